//! CPU time and state of a thread, from the scheduler's own files.
//!
//! The files are opened once and read repeatedly, 0.4 to 1.2 microseconds each. The CPU time of a thread that
//! is currently on a core is as old as the last scheduler tick (1 to 4 ms); the times of a sleeping thread
//! are exact.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use gpuwhy_trace::record::ThreadState;

use crate::own::Own;
use crate::process::Process;

/// A thread that can be sampled.
#[derive(Debug)]
pub struct Thread {
    schedstat: Own<File>,
    stat: Own<File>,
    /// `None` if the kernel denies access.
    syscall: Option<Own<File>>,
}

/// Times counted by the scheduler since the thread started, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// On a core.
    pub on_cpu: u64,
    /// Runnable but waiting for a core.
    pub runnable: u64,
}

impl Thread {
    /// Opens a thread of a process by its kernel id.
    ///
    /// # Errors
    /// If the thread does not exist, or the kernel does not count its time.
    pub fn open(process: &Process, thread: u32) -> io::Result<Self> {
        let folder = process.folder().join("task").join(thread.to_string());
        let open = |name| File::open(folder.join(name)).and_then(Own::of_file);
        Ok(Self { schedstat: open("schedstat")?, stat: open("stat")?, syscall: open("syscall").ok() })
    }

    /// Reads its times.
    ///
    /// # Errors
    /// If it has ended.
    pub fn times(&self) -> io::Result<Times> {
        let mut text = [0; 64];
        let text = read(&self.schedstat, &mut text)?;
        let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().unwrap_or(0));
        Ok(Times { on_cpu: numbers.next().unwrap_or(0), runnable: numbers.next().unwrap_or(0) })
    }

    /// Stack pointer and program counter of a waiting thread. `None` if it is on a core, runnable or ended,
    /// or the kernel denies access.
    pub fn place(&self) -> Option<(u64, u64)> {
        let mut text = [0; 256];
        place(read(self.syscall.as_ref()?, &mut text).ok()?)
    }

    /// Name of the thread, which the kernel limits to 15 bytes. A new thread has the name of the one that
    /// started it.
    ///
    /// # Errors
    /// If it has ended, or the program has closed the file.
    pub fn name(&self) -> io::Result<String> {
        let mut bytes = [0; 256];
        let length = self.stat.get()?.read_at(&mut bytes, 0)?;
        Ok(name(&String::from_utf8_lossy(bytes.get(..length).unwrap_or_default())).to_owned())
    }

    /// State of the thread.
    ///
    /// # Errors
    /// If it has ended, or the program has closed the file.
    pub fn state(&self) -> io::Result<ThreadState> {
        self.stat.get()?;
        let mut text = [0; 256];
        let syscall = self.syscall.as_ref().and_then(|file| read(file, &mut text).ok());
        // Most samples end here, and `stat` takes as long as all the rest.
        if syscall.is_some_and(|line| line.starts_with(RUNNING)) {
            return Ok(ThreadState::Running);
        }
        let mut text = [0; 256];
        let letter = letter(read(&self.stat, &mut text)?);
        Ok(state(letter, syscall))
    }
}

fn read<'a>(file: &Own<File>, text: &'a mut [u8]) -> io::Result<&'a str> {
    let length = file.unchecked()?.read_at(text, 0)?;
    // A name may be cut or not UTF-8; all required fields are before or after it.
    let text = text.get(..length).unwrap_or_default();
    Ok(std::str::from_utf8(text).unwrap_or_else(|error| {
        std::str::from_utf8(text.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default()
    }))
}

/// Start of the `syscall` line of a thread that is on a core or runnable.
const RUNNING: &str = "running";

/// State in `PID (NAME) S ...`; a name can contain any characters, including parentheses.
pub(crate) fn letter(stat: &str) -> char {
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?')
}

/// Name in `PID (NAME) S ...`; empty in a line of another form.
fn name(stat: &str) -> &str {
    let after = stat.split_once(" (").map_or("", |(_, rest)| rest);
    after.rsplit_once(") ").map_or("", |(name, _)| name)
}

/// Thread state from a letter of `stat` and a line of `syscall`. The line is `running`, `-1 SP PC` outside of
/// a system call, or `NUMBER ARGUMENTS... SP PC`.
pub(crate) fn state(letter: char, syscall: Option<&str>) -> ThreadState {
    let first = syscall.and_then(|line| line.split_ascii_whitespace().next());
    let called = match (letter, first) {
        ('R', _) | (_, Some(RUNNING)) => return ThreadState::Running,
        (_, Some("-1")) => ThreadState::Memory,
        (_, Some(number)) => number.parse().map_or(ThreadState::Other, class),
        (_, None) => ThreadState::Other,
    };
    match (letter, called) {
        ('S', called) | ('D', called @ (ThreadState::Memory | ThreadState::Driver)) => called,
        ('D', _) => ThreadState::Disk,
        _ => ThreadState::Other,
    }
}

/// Last two numbers of a `syscall` line.
fn place(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace().rev();
    let mut address = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (pc, sp) = (address()?, address()?);
    (sp != 0 && pc != 0).then_some((sp, pc))
}

fn class(number: i64) -> ThreadState {
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_poll | libc::SYS_select | libc::SYS_epoll_wait => return ThreadState::Poll,
        _ => {}
    }
    match number {
        libc::SYS_futex => ThreadState::Futex,
        libc::SYS_ppoll | libc::SYS_pselect6 | libc::SYS_epoll_pwait => ThreadState::Poll,
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_pread64
        | libc::SYS_preadv
        | libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwrite64
        | libc::SYS_pwritev
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_sendfile
        | libc::SYS_splice
        | libc::SYS_openat
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_io_getevents
        | libc::SYS_io_uring_enter => ThreadState::Io,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => ThreadState::Sleep,
        libc::SYS_wait4 | libc::SYS_waitid => ThreadState::Child,
        libc::SYS_mmap
        | libc::SYS_munmap
        | libc::SYS_mremap
        | libc::SYS_mprotect
        | libc::SYS_madvise
        | libc::SYS_brk => ThreadState::Memory,
        libc::SYS_ioctl => ThreadState::Driver,
        _ => ThreadState::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn lines_of_the_kernel_are_understood() {
        assert_eq!(letter("12 (a) S (b) D 1 2"), 'D');
        assert_eq!(letter("12 (cut off"), '?');
        assert_eq!(name("12 (a) S (b) D 1 2"), "a) S (b");
        assert_eq!(["12 (cut off", ""].map(name), ["", ""]);
        let futex = format!("{} 0x7f 0x0 0x1", libc::SYS_futex);
        let read = format!("{} 0x3", libc::SYS_read);
        for (letter, line, expected) in [
            ('R', Some(read.as_str()), ThreadState::Running),
            ('S', Some("running"), ThreadState::Running),
            ('S', Some(futex.as_str()), ThreadState::Futex),
            ('S', Some(read.as_str()), ThreadState::Io),
            ('D', Some(read.as_str()), ThreadState::Disk),
            ('D', Some("-1 0x7ffd 0x7f00"), ThreadState::Memory),
            ('D', None, ThreadState::Disk),
            ('S', None, ThreadState::Other),
            ('S', Some("nonsense"), ThreadState::Other),
            ('T', Some(futex.as_str()), ThreadState::Other),
        ] {
            assert_eq!(state(letter, line), expected, "{letter} {line:?}");
        }
    }

    #[test]
    fn the_place_of_a_thread_that_waits_is_reported() {
        for (line, expected) in [
            ("running", None),
            ("-1 0x7ffd10 0x7f0020", Some((0x7f_fd10, 0x7f_0020))),
            ("202 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffd10 0x7f0020\n", Some((0x7f_fd10, 0x7f_0020))),
            ("202 0x1 0x0 0x0", None),
            ("0 1 2", None),
            ("", None),
        ] {
            assert_eq!(place(line), expected, "{line:?}");
        }
    }

    /// Samples a thread of this process that does `work` until the test ends.
    fn look(work: impl FnOnce(mpsc::Receiver<()>) + Send + 'static, expected: ThreadState) {
        let process = Process::this();
        let (tell, id) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let worker = std::thread::Builder::new().name("a worker".to_owned()).spawn(move || {
            let itself = std::fs::read_link("/proc/thread-self").unwrap();
            tell.send(itself.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            work(stopped);
        });
        let worker = worker.unwrap();
        let thread = Thread::open(&process, id.recv().unwrap()).unwrap();
        until(|| thread.state().unwrap() == expected);
        until(|| thread.times().unwrap().on_cpu > 0);
        assert_eq!(thread.name().unwrap(), "a worker");
        drop(stop);
        worker.join().unwrap();
        // The thread is joined slightly before the kernel removes it.
        until(|| thread.times().is_err() && thread.state().is_err() && thread.name().is_err());
    }

    fn until(mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_of_this_process_is_seen_waiting() {
        if !Process::this().folder().join("task").exists() || std::fs::read("/proc/self/syscall").is_err() {
            println!("SKIPPED: this kernel does not show what threads wait in");
            return;
        }
        look(|stopped| assert!(stopped.recv().is_err()), ThreadState::Futex);
        look(|stopped| while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {}, ThreadState::Running);
        look(
            |stopped| {
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    std::thread::sleep(Duration::from_millis(50));
                }
            },
            ThreadState::Sleep,
        );
    }

    #[test]
    fn no_such_thread_is_an_error() {
        assert!(Thread::open(&Process::this(), u32::MAX).is_err());
    }
}
