//! A section of an ELF file, by name: what a library says about itself without being loaded.
//!
//! Only the 64-bit little-endian kind is understood, which is that of every machine that CUDA runs on. Whatever does not
//! fit is no section: the file may be anything.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Size of the header of the file.
const FILE_HEADER: usize = 64;
/// Size of the header of a section.
const SECTION_HEADER: usize = 64;
/// Sections that are looked at; libraries have some dozen.
const MAX_SECTIONS: u16 = 1024;
/// Bytes of a section that is read; names of sections take some hundred.
const MAX_SECTION: u64 = 1 << 20;

/// The bytes of the section `name` in the file at `path`.
pub fn section(path: &Path, name: &str) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let header: [u8; FILE_HEADER] = read(&file, 0, FILE_HEADER)?.try_into().ok()?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count, names) =
        (number(&header, 0x28, 8)?, number(&header, 0x3a, 2)?, number(&header, 0x3c, 2)?, number(&header, 0x3e, 2)?);
    if size != SECTION_HEADER as u64 || count > MAX_SECTIONS.into() || names >= count {
        return None;
    }
    let headers = read(&file, table, usize::try_from(count).ok()? * SECTION_HEADER)?;
    let headers: Vec<_> = headers.chunks_exact(SECTION_HEADER).collect();
    let texts = contents(&file, headers.get(usize::try_from(names).ok()?)?)?;
    let wanted = headers.iter().find(|header| {
        let at = number(header, 0, 4).and_then(|at| usize::try_from(at).ok());
        let text = at.and_then(|at| texts.get(at..)).unwrap_or_default();
        text.split(|&byte| byte == 0).next() == Some(name.as_bytes())
    })?;
    contents(&file, wanted)
}

/// What a section header describes.
fn contents(file: &File, header: &[u8]) -> Option<Vec<u8>> {
    let size = number(header, 0x20, 8).filter(|&size| size <= MAX_SECTION)?;
    read(file, number(header, 0x18, 8)?, usize::try_from(size).ok()?)
}

fn read(file: &File, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// The number of `size` bytes at `at`, at most 8.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..size].copy_from_slice(bytes.get(at..at + size)?);
    Some(u64::from_le_bytes(number))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An ELF file with the section `name` alone, and the names.
    pub fn file_with(name: &str, contents: &[u8]) -> Vec<u8> {
        let names = [b"\0", name.as_bytes(), b"\0"].concat();
        let mut file = vec![0; FILE_HEADER];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut place = |bytes: &[u8]| {
            let at = file.len() as u64;
            file.extend_from_slice(bytes);
            at
        };
        let (contents_at, names_at) = (place(contents), place(&names));
        let header = |name: u32, at: u64, size: usize| {
            let mut header = [0; SECTION_HEADER];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&at.to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            header
        };
        let headers = [header(1, contents_at, contents.len()), header(0, names_at, names.len())].concat();
        let table = place(&headers);
        file[0x28..0x30].copy_from_slice(&table.to_le_bytes());
        file[0x3a..0x40].copy_from_slice(&[64, 0, 2, 0, 1, 0]);
        file
    }

    #[test]
    fn a_section_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library");
        let file = file_with(".text", b"contents");
        std::fs::write(&path, &file).unwrap();
        assert_eq!(section(&path, ".text").as_deref(), Some(&b"contents"[..]));
        assert_eq!(section(&path, ".tex"), None);
        // Cut anywhere it is no library, and no error.
        for length in 0..file.len() {
            std::fs::write(&path, &file[..length]).unwrap();
            assert_eq!(section(&path, ".text"), None, "{length}");
        }
        assert_eq!(section(folder.path(), ".text"), None);
    }
}
