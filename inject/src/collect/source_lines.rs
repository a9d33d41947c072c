//! Reads the lines of source code that the report names, when recording ends.
//!
//! The files are those that the program runs, so they may be anything: only regular files that look like source code
//! are read, a part at a time, until the time is over, on a thread that is not waited for longer than a tenth of a
//! second. What cannot be read has no text, and that is no error.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::Timestamp;
use gpuwhy_trace::source_line::{FILE_LIMIT, SourceLine, collect, is_source};

use crate::command_line::CodeMasker;
use crate::sys::{clock, process};
use crate::worker::Worker;

/// Maximum time that reading may take at the end of the program.
const LONGEST: Duration = Duration::from_millis(20);
/// Maximum wait for a call that does not return: opening a file on a mount that hangs.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bytes that are read at once, between two looks at the time.
const AT_ONCE: u64 = 256 << 10;

/// Reads lines of the files that were there when the program began.
#[derive(Debug)]
pub struct SourceReader {
    /// Folder of the program at the start; the names of files may be relative to it.
    folder: Option<PathBuf>,
    /// By the clock of files.
    began: Timestamp,
}

impl SourceReader {
    /// A reader for a recording that begins now. The program has read its files before, so that they must be as old
    /// as the process; the kernel rounds its start to a hundredth of a second.
    pub fn new() -> Self {
        let now = clock::wall_clock();
        let age = process::age().unwrap_or_default().saturating_sub(Duration::from_millis(10));
        let began = Timestamp::from_nanos(now.nanos().saturating_sub(clock::nanos(age)));
        Self { folder: env::current_dir().ok(), began }
    }

    /// Adds the lines at the first of `places`, a file and a line each, and what says what they do.
    pub fn read(self, places: &[(&str, u32)], dictionary: &mut Dictionary) {
        let places: Vec<(String, u32)> = places.iter().map(|&(file, line)| (file.to_owned(), line)).collect();
        if !places.iter().any(|(file, _)| is_source(file)) {
            return;
        }
        let lines = waited(PATIENCE, move || self.lines(&places, Instant::now() + LONGEST));
        for (file, line, text) in lines {
            let file = dictionary.intern_name(&file);
            dictionary.add_source_line(SourceLine { file, line, text });
        }
    }

    fn lines(&self, places: &[(String, u32)], until: Instant) -> Vec<Line> {
        let mut masker = CodeMasker::default();
        let lines = collect(places, |file| self.text(file, until), |number, row| masker.masked(number, row));
        lines.into_iter().map(|(place, line, text)| (places[place].0.clone(), line, text)).collect()
    }

    /// Text of a file that is as it was when the program began.
    fn text(&self, file: &str, until: Instant) -> Option<String> {
        if !is_source(file) || Instant::now() > until {
            return None;
        }
        let path = self.folder.as_ref().map_or_else(|| PathBuf::from(file), |folder| folder.join(file));
        // Opening a pipe would wait for a writer, and a terminal could become the controlling one.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut source = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let about = source.metadata().ok()?;
        // A file that took the place of another one may have an older time of modification.
        let changed = [(about.mtime(), about.mtime_nsec()), (about.ctime(), about.ctime_nsec())].into_iter().max()?;
        let changed = u64::try_from(changed.0).ok()?.checked_mul(1_000_000_000)?.checked_add(changed.1 as u64)?;
        if !about.is_file() || about.len() > FILE_LIMIT || changed > self.began.nanos() {
            return None;
        }
        let bytes = read(&mut source, until)?;
        String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
    }
}

/// A file, and a line of it with its text.
type Line = (String, u32, String);

/// What `read` returns on a thread of its own; nothing if that takes longer than `patience`. The thread is then left
/// alone.
fn waited(patience: Duration, read: impl FnOnce() -> Vec<Line> + Send + 'static) -> Vec<Line> {
    let worker = match Worker::start("gpuwhy-lines") {
        Ok(worker) => worker,
        Err(error) => {
            tracing::warn!("cannot start a thread: {error}; the trace has no source lines");
            return Vec::new();
        }
    };
    let (give, done) = bounded(1);
    worker.work(move || _ = give.try_send(read()));
    done.recv_timeout(patience).unwrap_or_else(|_| {
        tracing::info!("source files were not read within {patience:?}; the trace has no source lines");
        Vec::new()
    })
}

/// All bytes of a file, unless it grows beyond the limit or the time is over before its end.
fn read(file: &mut File, until: Instant) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        if file.take(AT_ONCE).read_to_end(&mut bytes).ok()? == 0 {
            return Some(bytes);
        }
        if bytes.len() as u64 > FILE_LIMIT || Instant::now() > until {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::thread;
    use std::time::SystemTime;

    use super::*;

    fn lines(reader: &SourceReader, file: &str, line: u32) -> Vec<(u32, String)> {
        let lines = reader.lines(&[(file.to_owned(), line)], Instant::now() + Duration::from_secs(600));
        lines.into_iter().map(|(_, line, text)| (line, text)).collect()
    }

    fn now(after: Duration) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + after;
        Timestamp::from_nanos(since.as_nanos() as u64)
    }

    #[test]
    fn lines_are_read_as_they_were_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let reader = |began| SourceReader { folder: Some(folder.path().to_owned()), began };
        let later = reader(now(Duration::from_secs(60)));
        let text = "import torch\nfor i in range(3):\n    torch.sum(key=i, token='abc')\n";
        fs::write(path("train.py"), text).unwrap();
        let wanted = [(1, "import torch"), (2, "for i in range(3):"), (3, "    torch.sum(key=i, token='***')")];
        let wanted = wanted.map(|(line, text)| (line, text.to_owned())).to_vec();
        assert_eq!(lines(&later, &path("train.py"), 3), wanted);
        assert_eq!(lines(&later, "train.py", 3), wanted, "relative to the folder");
        assert_eq!(lines(&later, "train.py", 4), []);

        // A file that changed since, by its contents or by another file in its place.
        let earlier = reader(Timestamp::from_nanos(1_600_000_000_000_000_000));
        assert_eq!(lines(&earlier, "train.py", 3), []);
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
        File::options().write(true).open(path("train.py")).unwrap().set_modified(old).unwrap();
        assert_eq!(lines(&earlier, "train.py", 3), []);
    }

    #[test]
    fn what_is_no_source_has_no_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let reader = SourceReader { folder: None, began: now(Duration::from_secs(60)) };
        fs::write(path("binary.py"), b"x = 1\0\n").unwrap();
        fs::write(path("latin.py"), b"x = '\xe9'\n").unwrap();
        fs::write(path("secret.pem"), "x\n").unwrap();
        fs::write(path("large.py"), "x = 1\n".repeat(2 << 20)).unwrap();
        fs::write(path("a.zip"), "x\n").unwrap();
        fs::create_dir(path("folder.py")).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe.py")).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", path("zero.py")).unwrap();
        let names = ["binary.py", "latin.py", "secret.pem", "large.py", "folder.py", "pipe.py", "zero.py", "gone.py"];
        for name in names {
            assert_eq!(lines(&reader, &path(name), 1), [], "{name}");
        }
        for name in [&path("a.zip/module.py"), "<stdin>", "<frozen os>", "", "\0.py"] {
            assert_eq!(lines(&reader, name, 1), [], "{name}");
        }
    }

    #[test]
    fn a_file_system_that_hangs_is_not_waited_for() {
        let (_held, never) = bounded::<Vec<Line>>(0);
        let lines = waited(Duration::from_millis(1), move || never.recv().unwrap_or_default());
        assert!(lines.is_empty());
        let line = ("a.py".to_owned(), 1, "x".to_owned());
        let known = vec![line.clone()];
        assert_eq!(waited(Duration::from_secs(600), move || known), [line]);
    }

    #[test]
    fn files_are_as_old_as_the_process() {
        let test_began = clock::wall_clock();
        // Longer than the ticks by which the kernel counts.
        thread::sleep(Duration::from_millis(50));
        let reader = SourceReader::new();
        // This process began before this test, and not before the machine.
        assert!(process::age().unwrap() >= Duration::from_millis(30));
        assert!(reader.began.nanos() <= test_began.nanos() + 20_000_000, "{reader:?}, {test_began:?}");
        assert!(reader.began.nanos() > clock::wall_clock().nanos() - 7 * 86_400 * 1_000_000_000);
    }
}
