//! Locates the unwind table, symbols and build id of a loaded ELF file.
//!
//! Everything is read from memory, where the loader has put it. [`super::symbols`] reads unmapped parts from
//! the file, if that is still the same file.

use crate::memory::{Memory, u32_at, u64_at};

/// Maximum number of program headers of a file; libtorch has about ten.
const MAX_HEADERS: usize = 128;
/// Maximum bytes of the dynamic section that are read.
const MAX_DYNAMIC: usize = 512 * 16;
/// Maximum bytes of notes that are read.
const MAX_NOTES: u64 = 4096;
/// Maximum bytes of a build id that are stored. Linkers write 8 to 20.
const MAX_BUILD_ID: usize = 32;
/// Maximum number of buckets of a hash table that are searched for its last symbol.
const MAX_BUCKETS: u64 = 1 << 20;
/// Maximum number of symbols in a chain of the hash table.
const MAX_CHAIN: u64 = 10_000;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const NT_GNU_BUILD_ID: u32 = 3;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// A loaded file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Load bias: added to addresses in the file.
    pub bias: u64,
    /// Table of functions for unwinding (`.eh_frame_hdr`), if it exists in the usual format.
    pub unwind_table: Option<UnwindTable>,
    /// The loader's symbols, if they exist.
    pub dynamic_symbols: Option<DynamicSymbols>,
    /// Build id in hexadecimal digits; empty if there is none.
    pub build_id: String,
}

/// `.eh_frame_hdr`: sorted pairs of a function's start and its unwind information, each 32 bits relative to
/// the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindTable {
    /// Address to which the pairs are relative.
    pub address: u64,
    /// Number of pairs after the header of [`UnwindTable::HEADER`] bytes.
    pub count: u32,
}

impl UnwindTable {
    /// Number of bytes before the first pair.
    pub const HEADER: u64 = 12;

    fn at(memory: &Memory, address: u64, size: u64) -> Option<Self> {
        // Version 1; pointer to the section as a signed 32-bit distance; count of 32 bits; pairs relative to
        // the table.
        let header = memory.array::<12>(address).ok()?;
        let usual = header.first_chunk() == Some(&[1, 0x1b, 0x03, 0x3b]);
        let count = u32_at(&header, 8)?;
        (usual && Self::HEADER + u64::from(count) * 8 <= size).then_some(Self { address, count })
    }
}

/// The loader's symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicSymbols {
    /// Address of the first symbol; each has 24 bytes.
    pub table: u64,
    /// Number of symbols.
    pub count: u64,
    pub names: u64,
    /// Size of the names, bytes.
    pub names_size: u64,
}

impl Elf {
    /// The file loaded with its first byte at `base`. `None` if that is not a 64-bit little-endian ELF file.
    pub fn at(memory: &Memory, base: u64) -> Option<Self> {
        let header = memory.array::<64>(base).ok()?;
        if header.get(..6) != Some(b"\x7fELF\x02\x01") || u16_at(&header, 54)? != 56 {
            return None;
        }
        let count = usize::from(u16_at(&header, 56)?).min(MAX_HEADERS);
        let mut table = vec![0; count * 56];
        memory.read(base.checked_add(u64_at(&header, 32)?)?, &mut table).ok()?;
        let headers = || {
            table.as_chunks::<56>().0.iter().filter_map(|entry| {
                Some((u32_at(entry, 0)?, u64_at(entry, 8)?, u64_at(entry, 16)?, u64_at(entry, 40)?))
            })
        };
        let bias = headers().find(|&(kind, offset, ..)| kind == PT_LOAD && offset == 0)?.2;
        let mut elf = Self { bias: base.wrapping_sub(bias), ..Self::default() };
        for (kind, _, address, size) in headers() {
            let address = elf.bias.wrapping_add(address);
            match kind {
                PT_GNU_EH_FRAME => elf.unwind_table = UnwindTable::at(memory, address, size),
                PT_DYNAMIC => elf.dynamic_symbols = elf.dynamic(memory, address, size),
                PT_NOTE if elf.build_id.is_empty() => {
                    let mut notes = vec![0; size.min(MAX_NOTES) as usize];
                    let read = memory.read_some(address, &mut notes);
                    elf.build_id = notes.get(..read).and_then(build_id).unwrap_or_default();
                }
                _ => {}
            }
        }
        Some(elf)
    }

    fn dynamic(&self, memory: &Memory, address: u64, size: u64) -> Option<DynamicSymbols> {
        let mut entries = vec![0; usize::try_from(size).ok()?.min(MAX_DYNAMIC)];
        memory.read(address, &mut entries).ok()?;
        let entry = |wanted| {
            let entries = entries.as_chunks::<16>().0.iter();
            entries.filter(|entry| u64_at(*entry, 0) == Some(wanted)).find_map(|entry| u64_at(entry, 8))
        };
        // glibc writes the loaded address into the dynamic section; musl and the kernel leave the address in
        // the file.
        let loaded = |address| if address < self.bias { self.bias.wrapping_add(address) } else { address };
        let count = match (entry(DT_HASH), entry(DT_GNU_HASH)) {
            (Some(hash), _) => u64::from(memory.u32(loaded(hash).checked_add(4)?).ok()?),
            (None, Some(hash)) => count_of_gnu_hash(memory, loaded(hash))?,
            (None, None) => return None,
        };
        Some(DynamicSymbols {
            table: loaded(entry(DT_SYMTAB)?),
            count,
            names: loaded(entry(DT_STRTAB)?),
            names_size: entry(DT_STRSZ)?,
        })
    }
}

/// Number of symbols of a table with a GNU hash table: one more than the index of the last chain's last
/// symbol.
fn count_of_gnu_hash(memory: &Memory, hash: u64) -> Option<u64> {
    let word = |at: u64| memory.u32(at).ok().map(u64::from);
    let (buckets, first, bloom) = (word(hash)?, word(hash.checked_add(4)?)?, word(hash.checked_add(8)?)?);
    let table = hash.checked_add(16 + bloom * 8)?;
    let mut last = 0;
    let mut bytes = vec![0; usize::try_from(buckets.min(MAX_BUCKETS)).ok()? * 4];
    memory.read(table, &mut bytes).ok()?;
    for bucket in bytes.as_chunks::<4>().0 {
        last = last.max(u64::from(u32::from_le_bytes(*bucket)));
    }
    if last < first {
        return Some(first);
    }
    let chains = table.checked_add(buckets * 4)?;
    let ends = |&index: &u64| word(chains.wrapping_add((index - first) * 4)).is_none_or(|hash| hash & 1 == 1);
    (last..last + MAX_CHAIN).find(ends).map(|index| index + 1)
}

/// Build id in ELF notes, in hexadecimal digits.
pub fn build_id(mut notes: &[u8]) -> Option<String> {
    loop {
        let (name, bytes, kind) = (u32_at(notes, 0)?, u32_at(notes, 4)?, u32_at(notes, 8)?);
        let begin = 12 + usize::try_from(name).ok()?.next_multiple_of(4);
        let end = begin.checked_add(usize::try_from(bytes).ok()?)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..16) == Some(b"GNU\0") {
            let id = notes.get(begin..end)?;
            return Some(id.iter().take(MAX_BUILD_ID).map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().copied().map(u16::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps;
    use crate::process::Process;

    #[test]
    fn the_program_and_its_libraries_describe_themselves() {
        let process = Process::this();
        let memory = Memory::open(&process).unwrap();
        let mut described = 0;
        for code in maps::executable(&process).unwrap() {
            let Some(elf) = code.base.and_then(|base| Elf::at(&memory, base)) else { continue };
            println!("{} {elf:x?}", code.path.display());
            let table = elf.unwind_table.unwrap();
            assert!(table.count > 0);
            described += 1;
            if code.path.to_str().unwrap().contains("libc.so") {
                assert!(elf.dynamic_symbols.unwrap().count > 1000);
                assert!(elf.build_id.len() >= 16);
            }
        }
        assert!(described > 0);
    }

    #[test]
    fn memory_that_is_no_elf_file_says_nothing() {
        let memory = Memory::open(&Process::this()).unwrap();
        let mut bytes = vec![0_u8; 8192];
        assert_eq!(Elf::at(&memory, bytes.as_ptr().expose_provenance() as u64), None);
        let mut state = 1_u32;
        for _ in 0..300 {
            for byte in &mut bytes {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (state >> 24) as u8;
            }
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
            bytes[54..58].copy_from_slice(&[56, 0, 4, 0]);
            bytes[64..80].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let _ = Elf::at(&memory, bytes.as_ptr().expose_provenance() as u64);
        }
        assert_eq!(Elf::at(&memory, 0), None);
    }
}
