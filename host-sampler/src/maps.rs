//! Files mapped into the process: `/proc/PID/maps`, reduced to the first mapping of each file, or to
//! executable memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process::Process;

/// A file mapped from its start, as the loader maps programs and libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Address of its first byte.
    pub address: u64,
    /// Path as reported by the kernel, with links resolved; ` (deleted)` is appended if the file is gone.
    pub path: PathBuf,
}

impl Mapped {
    /// Last component of its path.
    pub fn file_name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }
}

/// Every file mapped from its start, once, in the order of addresses.
///
/// # Errors
/// If the kernel denies access.
pub fn files(process: &Process) -> io::Result<Vec<Mapped>> {
    let text = fs::read(process.folder().join("maps"))?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// A range of executable memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Its first address.
    pub begin: u64,
    /// First address after it.
    pub end: u64,
    /// Path of the file, as in [`Mapped`]; `[vdso]`; or empty for anonymous memory, such as code generated at
    /// run time.
    pub path: PathBuf,
    /// Address of the file's first byte; `None` if that byte is not mapped.
    pub base: Option<u64>,
    /// Inode number of the file on its device.
    pub inode: u64,
}

impl Executable {
    /// True if it contains `address`.
    pub fn contains(&self, address: u64) -> bool {
        (self.begin..self.end).contains(&address)
    }
}

/// All executable memory, in the order of addresses. Takes about a microsecond per mapping of the process.
///
/// # Errors
/// If the kernel denies access.
pub fn executable(process: &Process) -> io::Result<Vec<Executable>> {
    let text = fs::read(process.folder().join("maps"))?;
    Ok(parse_executable(&String::from_utf8_lossy(&text)))
}

/// One line: `55e0a000-55e0b000 r--p 00000000 fe:00 1234   /usr/bin/python3.11`
struct Mapping<'a> {
    begin: u64,
    end: u64,
    executable: bool,
    offset: u64,
    inode: u64,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (begin, end) = fields.next()?.split_once('-')?;
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self {
            begin: hex(begin)?,
            end: hex(end)?,
            executable: fields.next()?.as_bytes().get(2) == Some(&b'x'),
            offset: hex(fields.next()?)?,
            inode: fields.nth(1)?.parse().ok()?,
            path: fields.next().unwrap_or_default().trim_start(),
        })
    }
}

fn parse(text: &str) -> Vec<Mapped> {
    let mut files: Vec<Mapped> = Vec::new();
    for mapping in text.lines().filter_map(Mapping::parse) {
        let path = Path::new(mapping.path);
        if mapping.offset == 0 && path.is_absolute() && !files.iter().any(|file| file.path == path) {
            files.push(Mapped { address: mapping.begin, path: path.to_owned() });
        }
    }
    files
}

fn parse_executable(text: &str) -> Vec<Executable> {
    let mut found = Vec::new();
    // File of consecutive mappings.
    let mut file = ("", None);
    for mapping in text.lines().filter_map(Mapping::parse) {
        let Mapping { begin, end, path, inode, .. } = mapping;
        if mapping.offset == 0 && !path.is_empty() {
            file = (path, Some(begin));
        } else if !path.is_empty() && path != file.0 {
            file = (path, None);
        }
        if mapping.executable {
            let base = if path.is_empty() { None } else { file.1 };
            found.push(Executable { begin, end, path: path.into(), base, inode });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_once_where_it_begins() {
        let text = "\
00400000-00401000 r--p 00000000 fe:00 77                                 /opt/my env/bin/python3.12
00401000-00900000 r-xp 00001000 fe:00 77                                 /opt/my env/bin/python3.12
7f0000000000-7f0000021000 rw-p 00000000 00:00 0
7f0000030000-7f0000031000 r--p 00000000 fe:00 78                         /lib/libpython3.9.so.1.0 (deleted)
7f0000040000-7f0000041000 r--p 00000000 fe:00 77                         /opt/my env/bin/python3.12
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
not a line
";
        let found = parse(text);
        let names: Vec<_> = found.iter().map(|file| (file.address, file.file_name())).collect();
        assert_eq!(names, [(0x40_0000, "python3.12"), (0x7f00_0003_0000, "libpython3.9.so.1.0 (deleted)")]);
    }

    #[test]
    fn code_is_found_with_the_begin_of_its_file() {
        let text = "\
00400000-00401000 r--p 00000000 fe:00 77                                 /opt/my env/bin/python3.12
00401000-00900000 r-xp 00001000 fe:00 77                                 /opt/my env/bin/python3.12
7f0000000000-7f0000021000 rwxp 00000000 00:00 0
7f0000030000-7f0000031000 r-xp 00003000 fe:00 78                         /lib/libcut.so
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
7ffd00031000-7ffd00033000 r-xp 00000000 00:00 0                          [vdso]
not a line
";
        let found: Vec<_> = parse_executable(text)
            .into_iter()
            .map(|code| (code.begin, code.path.to_str().unwrap().to_owned(), code.base, code.inode))
            .collect();
        let expected = [
            (0x40_1000, "/opt/my env/bin/python3.12", Some(0x40_0000), 77),
            (0x7f00_0000_0000, "", None, 0),
            (0x7f00_0003_0000, "/lib/libcut.so", None, 78),
            (0x7ffd_0003_1000, "[vdso]", Some(0x7ffd_0003_1000), 0),
        ];
        assert_eq!(found, expected.map(|(at, path, base, inode)| (at, path.to_owned(), base, inode)));
    }
}
