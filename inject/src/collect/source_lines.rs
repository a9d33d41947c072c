//! Reads the lines of source code that the report names, when recording ends.
//!
//! The files are those that the program runs, so they may be anything: only regular files that look like source code
//! are read, a part at a time, until the time is over. What cannot be read has no text, and that is no error.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::Timestamp;
use gpuwhy_trace::source_line::{FILE_LIMIT, NAMED_LINES, SourceLine, TEXT_LIMIT, is_source, kept, needed};

use crate::command_line::CodeMasker;
use crate::sys::clock;

/// Maximum time that reading may take at the end of the program.
const LONGEST: Duration = Duration::from_millis(20);
/// Bytes that are read at once, between two looks at the time.
const AT_ONCE: u64 = 256 << 10;

/// Reads lines of the files that were there when recording began.
pub struct SourceReader {
    /// Folder of the program at the start; the names of files may be relative to it.
    folder: Option<PathBuf>,
    /// By the clock of files.
    began: Timestamp,
}

impl SourceReader {
    /// A reader for a recording that begins now.
    pub fn new() -> Self {
        Self { folder: env::current_dir().ok(), began: clock::wall_clock() }
    }

    /// Adds the lines at the first of `places`, a file and a line each, and what says what they do.
    pub fn read(&self, places: &[(&str, u32)], dictionary: &mut Dictionary) {
        self.read_until(places, dictionary, Instant::now() + LONGEST);
    }

    fn read_until(&self, places: &[(&str, u32)], dictionary: &mut Dictionary, until: Instant) {
        let mut files: Vec<(&str, Option<String>)> = Vec::new();
        let (mut named, mut room) = (0, TEXT_LIMIT);
        for &(file, line) in places {
            if named == NAMED_LINES || Instant::now() > until {
                return;
            }
            let known = files.iter().position(|(other, _)| *other == file).unwrap_or_else(|| {
                files.push((file, self.text(file, until)));
                files.len() - 1
            });
            let Some(text) = &files[known].1 else { continue };
            let rows: Vec<&str> = text.lines().collect();
            let wanted = needed(&rows, line);
            named += usize::from(!wanted.is_empty());
            let texts = within_texts(&rows);
            let mut masker = CodeMasker::default();
            for number in wanted.into_iter().filter(|&number| !texts[number as usize - 1]) {
                let text = masker.masked(number, &kept(rows[number as usize - 1]));
                let Some(left) = room.checked_sub(text.len()) else { return };
                room = left;
                let file = dictionary.intern_name(file);
                dictionary.add_source_line(SourceLine { file, line: number, text });
            }
        }
    }

    /// Text of a file that is as it was when recording began.
    fn text(&self, file: &str, until: Instant) -> Option<String> {
        if !is_source(file) {
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

/// True for each row that begins within a text of several rows: keys and documents, but no code.
fn within_texts(rows: &[&str]) -> Vec<bool> {
    let mut open: Option<&str> = None;
    let begins = rows.iter().map(|row| {
        let within = open.is_some();
        let mut rest = *row;
        loop {
            let next = match open {
                Some(quotes) => rest.find(quotes),
                None => [r#"""""#, "'''"].iter().filter_map(|quotes| rest.find(quotes)).min(),
            };
            let Some(at) = next else { break };
            open = match open {
                Some(_) => None,
                None => Some(if rest[at..].starts_with('"') { r#"""""# } else { "'''" }),
            };
            rest = &rest[at + 3..];
        }
        within
    });
    begins.collect()
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
    use std::time::SystemTime;

    use super::*;

    fn lines(reader: &SourceReader, file: &str, line: u32) -> Vec<(u32, String)> {
        let mut dictionary = Dictionary::new();
        reader.read_until(&[(file, line)], &mut dictionary, Instant::now() + Duration::from_secs(60));
        dictionary.source_lines().iter().map(|row| (row.line, row.text.clone())).collect()
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
    fn rows_of_long_texts_are_not_kept() {
        let rows = ["x = load_key(\"\"\"", "MIIE", "\"\"\")", "y = '''a'''", "z = \"\"\"b", "c\"\"\"", "d"];
        assert_eq!(within_texts(&rows), [false, true, true, false, false, true, false]);
    }

    #[test]
    fn the_lines_of_a_trace_are_limited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long.py").to_str().unwrap().to_owned();
        let row = format!("    f({})\n", "x, ".repeat(200));
        fs::write(&path, format!("def f():\n{}", row.repeat(1_000))).unwrap();
        let reader = SourceReader { folder: None, began: now(Duration::from_secs(60)) };
        let places: Vec<(&str, u32)> = (2..1_000).map(|line| (path.as_str(), line)).collect();
        let mut dictionary = Dictionary::new();
        reader.read_until(&places, &mut dictionary, Instant::now() + Duration::from_secs(60));
        let lines = dictionary.source_lines();
        assert_eq!(lines.len(), NAMED_LINES + 1, "and the function");
        assert!(lines.iter().map(|row| row.text.len()).sum::<usize>() <= TEXT_LIMIT);
    }
}
