//! Where files go: name patterns, and files that never overwrite another.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// A file name with `%p` (process id), `%h` (host name), `%q{VAR}` (environment) and `%%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// From its text; everything that is not one of the patterns stands for itself.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The file name for this process.
    #[must_use]
    pub fn expand(&self, process_id: u32, host: &str) -> PathBuf {
        self.expand_with(process_id, host, |name| env::var(name).unwrap_or_default())
    }

    fn expand_with(&self, process_id: u32, host: &str, variable: impl Fn(&str) -> String) -> PathBuf {
        let mut name = String::with_capacity(self.0.len() + 16);
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find('%') {
            name.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            rest = match after.chars().next() {
                Some('p') => {
                    name.push_str(&process_id.to_string());
                    &after[1..]
                }
                Some('h') => {
                    name.push_str(host);
                    &after[1..]
                }
                Some('%') => {
                    name.push('%');
                    &after[1..]
                }
                Some('q') if after[1..].starts_with('{') && after.contains('}') => {
                    let end = after.find('}').unwrap_or(after.len() - 1);
                    // A value with a slash must not lead into another folder.
                    name.push_str(&variable(&after[2..end]).replace('/', "_"));
                    &after[end + 1..]
                }
                _ => {
                    name.push('%');
                    after
                }
            };
        }
        name.push_str(rest);
        PathBuf::from(name)
    }
}

/// Creates `path`, or when it exists `stem-1.ext`, `stem-2.ext`, ...: a trace is never written over another. A
/// character device, such as /dev/null, is written to as it is.
///
/// # Errors
/// Whatever the system says about the first name that does not exist; and when `path` is a folder, a pipe (of which
/// opening may never return) or another thing that is no file.
pub fn create_new(path: PathBuf) -> io::Result<(File, PathBuf)> {
    match fs::metadata(&path).map(|metadata| metadata.file_type()) {
        Ok(found) if found.is_char_device() => return Ok((OpenOptions::new().write(true).open(&path)?, path)),
        Ok(found) if !found.is_file() => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "exists and is no file"));
        }
        _ => {}
    }
    let mut candidate = path.clone();
    for number in 1.. {
        match OpenOptions::new().write(true).create_new(true).open(&candidate) {
            Ok(file) => return Ok((file, candidate)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
                candidate = path.with_file_name(format!("{stem}-{number}{extension}"));
            }
            Err(error) => return Err(error),
        }
    }
    unreachable!("the loop returns before its counter ends")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> String {
        let variable = |name: &str| if name == "RANK" { "3".to_owned() } else { "a/b".to_owned() };
        Pattern::new(text).expand_with(42, "node7", variable).to_str().unwrap().to_owned()
    }

    #[test]
    fn patterns_are_replaced() {
        assert_eq!(expand("gpuprof-%p.gpuprof"), "gpuprof-42.gpuprof");
        assert_eq!(expand("/tmp/%h/r%q{RANK}-%p"), "/tmp/node7/r3-42");
        assert_eq!(expand("100%%-%q{JOB}"), "100%-a_b");
    }

    #[test]
    fn what_is_no_pattern_stands_for_itself() {
        for text in ["50%", "%x", "%q{RANK", "%q", "é%é"] {
            assert_eq!(expand(text), text);
        }
    }

    #[test]
    fn a_device_is_a_sink_and_a_folder_is_none() {
        let (_, path) = create_new(PathBuf::from("/dev/null")).unwrap();
        assert_eq!(path, PathBuf::from("/dev/null"));
        let folder = tempfile::tempdir().unwrap();
        assert!(create_new(folder.path().to_owned()).unwrap_err().to_string().contains("no file"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_existing_file_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gpuprof");
        fs::write(&path, "precious").unwrap();
        let (_, second) = create_new(path.clone()).unwrap();
        let (_, third) = create_new(path.clone()).unwrap();
        assert_eq!(second, folder.path().join("a-1.gpuprof"));
        assert_eq!(third, folder.path().join("a-2.gpuprof"));
        assert_eq!(fs::read_to_string(path).unwrap(), "precious");
    }
}
