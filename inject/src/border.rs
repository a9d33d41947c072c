//! Every `unsafe` of this crate: the entry points that the driver and NVTX call, and a few calls of the C library.
//!
//! Nothing may cross this border but plain returns: no panic, no `exit`, no signal handler.
#![expect(unsafe_code, reason = "the C border of the library")]

use std::env;
use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host_sampler::own::Identity;
use profiler_core::record::Timestamp;

use crate::log;
use crate::nvtx;
use crate::profiler::{self, StartError};
use crate::session::{self, Functions, SessionError, Start, Text};

/// The driver calls this during `cuInit`, on the thread that called it, when `CUDA_INJECTION64_PATH` names this
/// library. Always answers 1: whatever is wrong with us must not become the host's CUDA error.
// SAFETY: the name is the one that the driver looks up; in this process nothing of ours calls it.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = catch_unwind(|| {
        match profiler::start_from_env() {
            // A session of the program was first.
            Ok(()) | Err(StartError::AlreadyStarted) => {}
            Err(error) => {
                log::error!("nothing is measured in this process: {error}");
                // There is no thread of ours to write it.
                log::write_waiting();
            }
        }
    });
    1
}

/// NVTX calls this at its first use in every library that contains it, when `NVTX_INJECTION64_PATH` names this library:
/// on any thread, before CUDA is used or never with it. Always answers 1: after 0 NVTX would unload the library.
///
/// # Safety
/// For NVTX only: the argument is valid until this returns.
// SAFETY: the name is the one that NVTX looks up; in this process nothing of ours calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_export_table: Option<nvtx_sys::GetExportTable>) -> c_int {
    let _ = catch_unwind(|| {
        at_fork(profiler::forked);
        let Some(get_export_table) = get_export_table else { return };
        // SAFETY: NVTX passes its own function and waits for this call to return; this library is never unloaded.
        if unsafe { nvtx_sys::attach::<nvtx::Ranges>(get_export_table) }.is_ok() {
            nvtx::attached();
        }
    });
    1
}

/// What a program that finds this library in its process may call.
static SESSION_FUNCTIONS: Functions = Functions {
    size: size_of::<Functions>(),
    begin: session_begin,
    flush: session_flush,
    end: session_end,
    now: session_now,
    nvtx: InitializeInjectionNvtx2,
};

/// The functions for sessions; they stay valid for as long as the process lives.
// SAFETY: the name has our prefix and means the same in every version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_session_functions() -> *const Functions {
    &raw const SESSION_FUNCTIONS
}

/// The functions for sessions of a program that has linked this library.
#[must_use]
pub fn session_functions() -> &'static Functions {
    &SESSION_FUNCTIONS
}

unsafe extern "C" fn session_begin(linked: c_int, file: c_int, text: Text) -> c_int {
    let start = if linked == 0 { Start::Injected } else { Start::Linked };
    let begin = || {
        // SAFETY: the caller hands the descriptor over. -1, which is none, panics, and that ends in `answer`.
        let file = unsafe { File::from_raw_fd(file) };
        session::begin(start, file)
    };
    // SAFETY: the caller vouches for `text`.
    unsafe { answer(text, begin) }
}

unsafe extern "C" fn session_flush(text: Text) -> c_int {
    // SAFETY: the caller vouches for `text`.
    unsafe { answer(text, session::flush) }
}

unsafe extern "C" fn session_end(text: Text) -> c_int {
    // SAFETY: the caller vouches for `text`.
    unsafe { answer(text, session::end) }
}

extern "C" fn session_now() -> u64 {
    catch_unwind(session::now).map_or(0, Timestamp::nanos)
}

/// Does what a program asks of its session, and tells it why that failed.
///
/// # Safety
/// `text` is as [`Text`] says.
unsafe fn answer(text: Text, work: impl FnOnce() -> Result<(), SessionError>) -> c_int {
    let panicked = || Err(SessionError::Start(StartError::Refused("internal error".to_owned())));
    let Err(error) = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| panicked()) else { return 0 };
    let words = error.to_string();
    // SAFETY: the caller says that so many bytes are writable; the words are not in them.
    unsafe { text.text.copy_from_nonoverlapping(words.as_ptr(), words.len().min(text.capacity)) };
    // SAFETY: the caller says that this is writable.
    unsafe { text.length.write(words.len()) };
    error.code()
}

/// Loads another injection library for good and has it initialize, on this thread, as the driver would have. Answers
/// what it answered.
pub fn initialize_other(path: &Path) -> Result<c_int, String> {
    if cupti_sys::is_no_file(path) {
        return Err(format!("{}: exists and is no regular file", path.display()));
    }
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    let linker_error = || {
        // SAFETY: the text of the last failure on this thread, copied before anything else is asked of the linker.
        let text = unsafe { libc::dlerror() };
        // SAFETY: not NULL, and then a text that ends with NUL.
        let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        text.unwrap_or_else(|| "the dynamic linker does not say why".to_owned())
    };
    // SAFETY: the user asks for this library's initialisers to run in this process.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(linker_error());
    }
    // SAFETY: a handle that was just opened and is never closed.
    let function = unsafe { libc::dlsym(library, c"InitializeInjection".as_ptr()) };
    if function.is_null() {
        return Err(linker_error());
    }
    if function.addr() == InitializeInjection as *const () as usize {
        return Err("it is this library".to_owned());
    }
    // SAFETY: a function of this name has this type in every injection library: the driver's contract.
    let initialize = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(function) };
    Ok(initialize())
}

/// What the exit handler and the fork handler call. Set before they are registered.
static EXIT: OnceLock<fn()> = OnceLock::new();
static FORK: OnceLock<fn()> = OnceLock::new();

extern "C" fn on_exit() {
    if let Some(handler) = EXIT.get() {
        let _ = catch_unwind(handler);
    }
}

extern "C" fn on_fork_in_child() {
    if let Some(handler) = FORK.get() {
        let _ = catch_unwind(handler);
    }
}

/// Keeps the object that this code is in mapped until the process ends: CUPTI, NVTX and handlers go on calling into it.
/// libprof.so is linked that way (`-z nodelete`); a plugin that has linked this crate may not be.
fn stay_mapped() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut object = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `on_exit` is an address in a loaded object, and the struct is live.
    if unsafe { libc::dladdr(on_exit as *const c_void, object.as_mut_ptr()) } == 0 {
        return;
    }
    // SAFETY: written by the successful call above.
    let object = unsafe { object.assume_init() };
    let how = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is the linker's own, of an object that is loaded: nothing new is loaded, and no initialiser runs.
    // A failure means that it is the program itself, which is never unloaded; the error text is taken off the program's
    // thread.
    unsafe {
        if libc::dlopen(object.dli_fname, how).is_null() {
            libc::dlerror();
        }
    }
}

/// Has `handler` called when the process exits normally.
pub fn at_exit(handler: fn()) {
    let _ = EXIT.set(handler);
    stay_mapped();
    // SAFETY: `on_exit` is a plain function of an object that stays mapped.
    if unsafe { libc::atexit(on_exit) } != 0 {
        log::warning!("no exit handler can be registered; the end of the trace will be missing");
    }
}

/// As [`at_exit`], but however often it is called, only once more.
pub fn at_exit_once(handler: fn()) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        at_exit(handler);
    }
}

/// Has `handler` called in the child of every fork. A second call changes nothing.
pub fn at_fork(handler: fn()) {
    if FORK.set(handler).is_err() {
        return;
    }
    stay_mapped();
    // SAFETY: as above; the handler stores atomics, and looks at a descriptor and closes it, which is safe in the child of a
    // process with threads.
    if unsafe { libc::pthread_atfork(None, None, Some(on_fork_in_child)) } != 0 {
        log::warning!("no fork handler can be registered");
    }
}

/// Runs `work` with all signals blocked on this thread, so that a thread started by it takes none of the host's.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are written by the calls before they are read; the mask is put back below.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = work();
    if blocked {
        // SAFETY: `before` was written by the successful call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}

/// What a pipe takes in one piece, and never blocks on when `poll` says that it is writable. `PIPE_BUF` of Linux.
const PIPE_BUF: usize = 4096;

/// Writes to stderr for at most `patience`, on whichever thread of the host's: what nobody takes is left out.
///
/// A pipe without a reader would send `SIGPIPE` and a file at its size limit `SIGXFSZ`, and both kill a host that had
/// no intention of writing there. They are blocked meanwhile, and taken back if this write caused them.
pub fn write_stderr(bytes: &[u8], patience: Duration) {
    with_signals_blocked(|| {
        // SAFETY: each call gets pointers to live locals of the type that it fills or reads, and `write` a slice of
        // the length that it says. A closed descriptor is an error code.
        unsafe {
            let mut ours = MaybeUninit::uninit();
            let mut pending = MaybeUninit::uninit();
            libc::sigemptyset(ours.as_mut_ptr());
            for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
                libc::sigpending(pending.as_mut_ptr());
                if libc::sigismember(pending.as_ptr(), signal) == 0 {
                    libc::sigaddset(ours.as_mut_ptr(), signal);
                }
            }
            write_pieces(bytes, Instant::now() + patience);
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            while libc::sigtimedwait(ours.as_ptr(), std::ptr::null_mut(), &raw const at_once) > 0 {}
        }
    });
}

fn write_pieces(mut bytes: &[u8], deadline: Instant) {
    while let Some(piece) = bytes.get(..bytes.len().min(PIPE_BUF)).filter(|piece| !piece.is_empty()) {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one live element. A positive time, since signals are blocked, so this ends in time.
        let ready = unsafe { libc::poll(&raw mut stderr, 1, c_int::try_from(left).unwrap_or(c_int::MAX)) };
        if ready <= 0 {
            return;
        }
        // SAFETY: the slice is live and has this length.
        let written = unsafe { libc::write(libc::STDERR_FILENO, piece.as_ptr().cast(), piece.len()) };
        let retry = written < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        match usize::try_from(written) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            // A descriptor that does not block and has room for less than a piece.
            Err(_) if retry && left > 0 => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => return,
        }
    }
}

/// The kernel's id of the calling thread, which is the one in CUPTI's records.
pub fn thread_id() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Sets a variable of this process if no other thread could be reading the environment. Answers whether it did.
pub fn set_variable_if_alone(name: &str, value: &OsStr) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    if threads.map(str::trim) != Some("1") {
        return false;
    }
    // SAFETY: this is the only thread, so nobody reads the environment now, and nobody can start a thread that would.
    // Pointers that the host took from `getenv` before stay valid: the C library frees no string it did not make.
    unsafe { env::set_var(name, value) };
    true
}

/// The time that a thread of this process has spent on cores; `None` when there is no such thread.
pub fn thread_cpu_time(thread: u32) -> Option<Duration> {
    /// `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`: how the kernel makes a clock of a thread id, and
    /// `pthread_getcpuclockid` too.
    const CLOCK_OF_THREAD: libc::clockid_t = 4 | 2;
    // To the kernel 0 is the calling thread; to a record, none.
    let thread = i32::try_from(thread).ok().filter(|&thread| thread != 0)?;
    let clock = (!thread << 3) | CLOCK_OF_THREAD;
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: writes the time, which is live, or answers with an error; an id that is no clock is such an error.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: written by the successful call above.
    let time = unsafe { time.assume_init() };
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// A connection to a Unix socket, made at once or not at all: `WouldBlock` when the other side's queue is full, for which
/// `UnixStream::connect` would wait without an end. The stream does not block.
///
/// # Errors
/// What the system says, and `InvalidInput` for a path that is too long for a socket.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays 0.
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, &byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = byte.cast_signed();
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes three numbers.
    let descriptor = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just opened and that nobody else knows.
    let stream = unsafe { UnixStream::from_raw_fd(descriptor) };
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: a live address of this family and length.
    let answer = unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), length) };
    if answer == 0 { Ok(stream) } else { Err(io::Error::last_os_error()) }
}

/// The effective user of this process.
pub fn user_id() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The user at the other end of a local connection, as of when it was made; `None` when the kernel does not say.
pub fn peer_user_id(stream: &UnixStream) -> Option<u32> {
    let mut peer = MaybeUninit::<libc::ucred>::uninit();
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    // SAFETY: both pointers are to live locals, and the second says how many bytes the first has.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if answer != 0 || length as usize != size_of::<libc::ucred>() {
        return None;
    }
    // SAFETY: written whole by the successful call above.
    Some(unsafe { peer.assume_init() }.uid)
}

/// What is behind a descriptor; `None` when it is closed. Safe in the child of a process with threads.
pub fn identity(descriptor: RawFd) -> Option<Identity> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: writes to the struct, which is live, or answers with an error; any number may be asked for.
    if unsafe { libc::fstat(descriptor, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: written by the successful call above.
    let found = unsafe { found.assume_init() };
    Some(Identity { device: found.st_dev, inode: found.st_ino })
}

/// The same of something open.
pub fn identity_of<T: AsRawFd>(opened: &T) -> Option<Identity> {
    identity(opened.as_raw_fd())
}

/// Closes a descriptor that the child of a fork has inherited, unless the program has put something of its own there. Safe
/// in the child of a process with threads.
pub fn close_inherited(descriptor: RawFd, expected: Identity) {
    if identity(descriptor) == Some(expected) {
        // SAFETY: takes a number; the child uses this descriptor nowhere.
        unsafe { libc::close(descriptor) };
    }
}

/// Returns when one of the sockets can be read, or written where that is asked for, or after `wait`. Answers whether the
/// last of them can be.
pub fn wait_for_sockets(sockets: &[(RawFd, bool)], wait: Duration) -> bool {
    let mut ends: Vec<_> = sockets
        .iter()
        .map(|&(fd, writes)| {
            let events = if writes { libc::POLLOUT } else { libc::POLLIN };
            libc::pollfd { fd, events, revents: 0 }
        })
        .collect();
    let millis = c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX).max(1);
    let count = libc::nfds_t::try_from(ends.len()).unwrap_or(0);
    // SAFETY: a live array of that length.
    if unsafe { libc::poll(ends.as_mut_ptr(), count, millis) } < 0 {
        // A filter of the program's may forbid it for good.
        std::thread::sleep(wait);
    }
    ends.last().is_some_and(|end| end.revents & libc::POLLIN != 0)
}

/// The limits on this process's address space and on its data, bytes; `None` where there is none.
pub fn memory_limits() -> [Option<u64>; 2] {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(|resource| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: writes to the struct, which is live, or answers with an error.
        let known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
        Some(limit.rlim_cur).filter(|&bytes| known && bytes != libc::RLIM_INFINITY)
    })
}

/// Bytes of a page.
pub fn page_bytes() -> u64 {
    // SAFETY: takes a number and answers with one.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Sends a signal to this process, as `kill` would from outside.
pub fn signal_this_process(signal: c_int) {
    // SAFETY: takes two numbers, of which the first is this process's own.
    if unsafe { libc::kill(libc::getpid(), signal) } != 0 {
        log::warning!("signal {signal} could not be sent: {}", io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_this_process_run_and_others_are_not_shown() {
        let before = thread_cpu_time(thread_id()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while thread_cpu_time(thread_id()).unwrap() == before {
            assert!(Instant::now() < deadline);
        }
        let parent = std::os::unix::process::parent_id();
        assert_eq!([parent, u32::MAX, 0].map(thread_cpu_time), [None; 3]);
    }
}
