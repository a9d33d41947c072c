//! Where files go: name patterns, and files that never overwrite another.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What stands in a name for a variable that is not set.
const UNSET: &str = "unset";

/// A file name with `%p` (process id), `%h` (host name), `%q{VAR}` (environment) and `%%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

/// A part of a pattern.
enum Part<'a> {
    /// Stands for itself.
    Text(&'a str),
    ProcessId,
    Host,
    Variable(&'a str),
    /// Looks like a placeholder and is none.
    Unknown(&'a str),
}

/// A file name made from a pattern.
#[derive(Debug, PartialEq, Eq)]
pub struct Expanded {
    /// The name.
    pub path: PathBuf,
    /// Variables of the pattern that are not set, or empty.
    pub unset: Vec<String>,
}

impl Pattern {
    /// From its text; everything that is not one of the patterns stands for itself.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find('%') {
            parts.push(Part::Text(&rest[..at]));
            let (part, length) = placeholder(&rest[at..]);
            parts.push(part);
            rest = &rest[at + length..];
        }
        parts.push(Part::Text(rest));
        parts
    }

    /// What in it looks like a placeholder and is none.
    #[must_use]
    pub fn unknown_placeholder(&self) -> Option<String> {
        self.parts().into_iter().find_map(|part| match part {
            Part::Unknown(text) => Some(text.to_owned()),
            _ => None,
        })
    }

    /// The file name as people are told it before there is a process.
    #[must_use]
    pub fn shown(&self) -> String {
        let parts = self.parts().into_iter().map(|part| match part {
            Part::Text(text) | Part::Unknown(text) => text.to_owned(),
            Part::ProcessId => "<pid>".to_owned(),
            Part::Host => "<host>".to_owned(),
            Part::Variable(name) => format!("<{name}>"),
        });
        parts.collect()
    }

    /// The file name for this process.
    #[must_use]
    pub fn expand(&self, process_id: u32, host: &str) -> Expanded {
        self.expand_with(process_id, host, |name| env::var(name).unwrap_or_default())
    }

    fn expand_with(&self, process_id: u32, host: &str, variable: impl Fn(&str) -> String) -> Expanded {
        let mut unset = Vec::new();
        let parts = self.parts().into_iter().map(|part| match part {
            Part::Text(text) | Part::Unknown(text) => text.to_owned(),
            Part::ProcessId => process_id.to_string(),
            Part::Host => host.to_owned(),
            Part::Variable(name) => match variable(name) {
                value if value.is_empty() => {
                    unset.push(name.to_owned());
                    UNSET.to_owned()
                }
                // Neither a slash nor `..` must lead into another folder.
                value if value.chars().all(|letter| letter == '.') => "_".repeat(value.len()),
                value => value.replace('/', "_"),
            },
        });
        let name: String = parts.collect();
        Expanded { path: PathBuf::from(name), unset }
    }
}

/// The placeholder that a text begins with, and its length.
fn placeholder(text: &str) -> (Part<'_>, usize) {
    let after = &text[1..];
    match after.chars().next() {
        Some('p') => (Part::ProcessId, 2),
        Some('h') => (Part::Host, 2),
        Some('%') => (Part::Text("%"), 2),
        Some(letter) => match after.strip_prefix("q{").and_then(|name| name.split_once('}')) {
            Some((name, _)) => (Part::Variable(name), name.len() + 4),
            None => (Part::Unknown(&text[..1 + letter.len_utf8()]), 1 + letter.len_utf8()),
        },
        None => (Part::Unknown(text), 1),
    }
}

/// Creates `path`, or when it exists `stem-1.ext`, `stem-2.ext`, ...: a trace is never written over another. Only the user
/// can read it, since it holds the program's command line and names; folders that are missing are made. A character
/// device, such as /dev/null, is written to as it is, and a link to one is not followed.
///
/// # Errors
/// Whatever the system says about the first name that does not exist; and when `path` is a folder, a pipe (of which
/// opening may never return) or another thing that is no file.
pub fn create_new(path: PathBuf) -> io::Result<(File, PathBuf)> {
    match fs::symlink_metadata(&path).map(|metadata| metadata.file_type()) {
        Ok(found) if found.is_char_device() => return Ok((open_device(&path)?, path)),
        Ok(found) if found.is_symlink() && fs::metadata(&path).is_ok_and(|target| !target.is_file()) => {
            return Err(unfit("is a link to something that is no file; name that itself"));
        }
        Ok(found) if !found.is_file() && !found.is_symlink() => return Err(unfit("exists and is no file")),
        Ok(_) => {}
        Err(_) => make_parent(&path)?,
    }
    let mut candidate = path.clone();
    for number in 1.. {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&candidate) {
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

fn unfit(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Without becoming the owner of a terminal.
fn open_device(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY).open(path)
}

/// Makes the folders of a file that are missing, as `mkdir -p` does, but never writable for others.
fn make_parent(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => DirBuilder::new().recursive(true).mode(0o755).create(folder),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn expanded(text: &str) -> Expanded {
        let variable = |name: &str| match name {
            "RANK" => "3".to_owned(),
            "UP" => "..".to_owned(),
            "NOPE" => String::new(),
            _ => "a/b".to_owned(),
        };
        Pattern::new(text).expand_with(42, "node7", variable)
    }

    fn expand(text: &str) -> String {
        expanded(text).path.to_str().unwrap().to_owned()
    }

    #[test]
    fn patterns_are_replaced() {
        assert_eq!(expand("gpuwhy-%p.gpuwhy"), "gpuwhy-42.gpuwhy");
        assert_eq!(expand("/tmp/%h/r%q{RANK}-%p"), "/tmp/node7/r3-42");
        assert_eq!(expand("100%%-%q{JOB}"), "100%-a_b");
        assert_eq!(expand("%q{UP}/%q{JOB}"), "__/a_b", "into no other folder");
        assert_eq!(Pattern::new("%h/r%q{RANK}-%p%%").shown(), "<host>/r<RANK>-<pid>%");
    }

    #[test]
    fn what_is_no_pattern_stands_for_itself() {
        for (text, unknown) in [("50%", "%"), ("%x", "%x"), ("%q{RANK", "%q"), ("%q", "%q"), ("é%é", "%é")] {
            assert_eq!(expand(text), text);
            assert_eq!(Pattern::new(text).unknown_placeholder().as_deref(), Some(unknown));
        }
        assert_eq!(Pattern::new("%p%h%q{A}%%p").unknown_placeholder(), None);
    }

    #[test]
    fn a_variable_that_is_not_set_makes_no_hidden_file() {
        let Expanded { path, unset } = expanded("%q{NOPE}.gpuwhy");
        assert_eq!((path.to_str(), unset), (Some("unset.gpuwhy"), vec!["NOPE".to_owned()]));
        assert!(expanded("%q{RANK}").unset.is_empty());
    }

    #[test]
    fn folders_are_made_and_only_the_user_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = create_new(folder.path().join("run1/a/x.gpuwhy")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap()) & 0o722), (0o600, 0o700));
        assert!(create_new(path.join("below/a/file")).is_err());
    }

    #[test]
    fn a_link_to_a_device_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("x.gpuwhy");
        symlink("/dev/null", &link).unwrap();
        assert!(create_new(link).unwrap_err().to_string().contains("a link"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // Of one that leads nowhere, or to a file, the name is taken.
        for (name, target) in [("y.gpuwhy", "nowhere"), ("z.gpuwhy", "file")] {
            fs::write(folder.path().join("file"), "precious").unwrap();
            symlink(folder.path().join(target), folder.path().join(name)).unwrap();
            let (_, path) = create_new(folder.path().join(name)).unwrap();
            assert_eq!(path, folder.path().join(name.replace('.', "-1.")));
        }
        assert!(!folder.path().join("nowhere").exists());
        assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "precious");
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
        let path = folder.path().join("a.gpuwhy");
        fs::write(&path, "precious").unwrap();
        let (_, second) = create_new(path.clone()).unwrap();
        let (_, third) = create_new(path.clone()).unwrap();
        assert_eq!(second, folder.path().join("a-1.gpuwhy"));
        assert_eq!(third, folder.path().join("a-2.gpuwhy"));
        assert_eq!(fs::read_to_string(path).unwrap(), "precious");
    }
}
