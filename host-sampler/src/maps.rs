//! Which file is mapped where: `/proc/PID/maps`, reduced to the first mapping of each file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process::Process;

/// A file that is mapped from its beginning, as the loader maps programs and libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Where its first byte is.
    pub address: u64,
    /// Its name as the kernel gives it, links resolved; ` (deleted)` is appended when it is gone.
    pub path: PathBuf,
}

impl Mapped {
    /// The last part of its name.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }
}

/// Every file that is mapped from its beginning, in the order of addresses, each once.
///
/// # Errors
/// When the kernel does not show them.
pub fn files(process: &Process) -> io::Result<Vec<Mapped>> {
    let text = fs::read(process.folder().join("maps"))?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// `55e0a000-55e0b000 r--p 00000000 fe:00 1234   /usr/bin/python3.11`
fn parse(text: &str) -> Vec<Mapped> {
    let mut files: Vec<Mapped> = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(6, ' ');
        let (Some(range), Some(_), Some(offset), Some(_), Some(_), Some(path)) =
            (fields.next(), fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let path = Path::new(path.trim_start());
        let begins = offset.bytes().all(|digit| digit == b'0');
        if !begins || !path.is_absolute() || files.iter().any(|file| file.path == path) {
            continue;
        }
        if let Some(Ok(address)) = range.split('-').next().map(|hex| u64::from_str_radix(hex, 16)) {
            files.push(Mapped { address, path: path.to_owned() });
        }
    }
    files
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
}
