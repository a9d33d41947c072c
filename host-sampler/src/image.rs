//! Symbols of a loaded library or program, found in memory in the same way as by the dynamic loader.
//!
//! The loader's own table (`PT_DYNAMIC`, `DT_GNU_HASH`) is mapped, so no file is opened: it may have been
//! replaced since, or be outside this mount namespace. Symbols that are not exported are not found; CPython
//! exports what its extension modules need, statically linked or not.

use crate::memory::{Memory, Unreadable, u32_at, u64_at};

/// Maximum number of program headers of a file; libtorch has about ten.
const MAX_HEADERS: u16 = 128;
/// Maximum number of entries of the dynamic section.
const MAX_DYNAMIC: u64 = 512;
/// Maximum number of symbols in a hash chain: there are about as many buckets as symbols, so chains are
/// short.
const MAX_CHAIN: u64 = 10_000;
/// Maximum length of a symbol name to look up, bytes.
const MAX_NAME: usize = 64;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// A loaded ELF file.
#[derive(Debug)]
pub struct Image<'a> {
    memory: &'a Memory,
    /// Load bias: added to addresses in the file.
    bias: u64,
    strings: u64,
    symbols: u64,
    hash: u64,
}

impl<'a> Image<'a> {
    /// The ELF file whose first byte is at `base`. `None` if that is not a 64-bit little-endian ELF file with
    /// a symbol table.
    pub fn at(memory: &'a Memory, base: u64) -> Option<Self> {
        let header = memory.array::<64>(base).ok()?;
        if header.get(..6) != Some(b"\x7fELF\x02\x01") {
            return None;
        }
        let table = base.checked_add(u64_at(&header, 32)?)?;
        let (size, count) = (header.get(54..56)?, header.get(56..58)?);
        let (size, count) = (u16::from_le_bytes(size.try_into().ok()?), u16::from_le_bytes(count.try_into().ok()?));
        let mut bias = None;
        let mut dynamic = None;
        for index in 0..count.min(MAX_HEADERS) {
            let entry = memory.array::<56>(table.checked_add(u64::from(size) * u64::from(index))?).ok()?;
            let (kind, offset, address) = (u32_at(&entry, 0)?, u64_at(&entry, 8)?, u64_at(&entry, 16)?);
            match kind {
                PT_LOAD if offset == 0 => bias = Some(base.wrapping_sub(address)),
                PT_DYNAMIC => dynamic = Some(address),
                _ => {}
            }
        }
        let bias = bias?;
        let mut image = Self { memory, bias, strings: 0, symbols: 0, hash: 0 };
        let dynamic = bias.wrapping_add(dynamic?);
        for index in 0..MAX_DYNAMIC {
            let entry = memory.array::<16>(dynamic.checked_add(index * 16)?).ok()?;
            let value = u64_at(&entry, 8)?;
            match u64_at(&entry, 0)? {
                0 => break,
                DT_STRTAB => image.strings = image.loaded(value),
                DT_SYMTAB => image.symbols = image.loaded(value),
                DT_GNU_HASH => image.hash = image.loaded(value),
                _ => {}
            }
        }
        (image.strings != 0 && image.symbols != 0 && image.hash != 0).then_some(image)
    }

    /// glibc writes the loaded address into the dynamic section; musl leaves the address in the file.
    fn loaded(&self, value: u64) -> u64 {
        if value < self.bias { self.bias.wrapping_add(value) } else { value }
    }

    /// Address of the exported symbol `name`.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        self.look_up(name).ok().flatten()
    }

    fn look_up(&self, name: &str) -> Result<Option<u64>, Unreadable> {
        let memory = self.memory;
        let wanted = name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        let [buckets, first, bloom] = [0, 4, 8].map(|offset| memory.u32(self.hash.wrapping_add(offset)).map(u64::from));
        let (buckets, first) = (buckets?, first?);
        if buckets == 0 {
            return Ok(None);
        }
        let bucket_table = self.hash.wrapping_add(16 + bloom? * 8);
        let chains = bucket_table.wrapping_add(buckets * 4);
        let start = u64::from(memory.u32(bucket_table.wrapping_add(u64::from(wanted) % buckets * 4))?);
        if start < first {
            return Ok(None);
        }
        for index in start..start + MAX_CHAIN {
            let hash = memory.u32(chains.wrapping_add((index - first) * 4))?;
            if hash | 1 == wanted | 1 {
                let symbol = memory.array::<24>(self.symbols.wrapping_add(index * 24))?;
                let (text, value) = (u32_at(&symbol, 0).unwrap_or(0), u64_at(&symbol, 8).unwrap_or(0));
                if value != 0 && self.is_named(self.strings.wrapping_add(text.into()), name) {
                    return Ok(Some(self.bias.wrapping_add(value)));
                }
            }
            if hash & 1 == 1 {
                break;
            }
        }
        Ok(None)
    }

    fn is_named(&self, address: u64, name: &str) -> bool {
        let mut text = [0; MAX_NAME];
        let read = self.memory.read_some(address, &mut text);
        text.get(..read)
            .and_then(|text| text.strip_prefix(name.as_bytes()))
            .is_some_and(|rest| rest.first() == Some(&0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps;
    use crate::process::Process;

    #[test]
    fn exported_functions_of_the_c_library_are_found() {
        let process = Process::this();
        let memory = Memory::open(&process).unwrap();
        let files = maps::files(&process).unwrap();
        let libc = files
            .iter()
            .find(|file| file.file_name().starts_with("libc.so") || file.file_name().starts_with("ld-musl"));
        let Some(libc) = libc else {
            println!("SKIPPED: the C library is linked statically");
            return;
        };
        let image = Image::at(&memory, libc.address).unwrap();
        let getpid = image.symbol("getpid").unwrap();
        assert!(getpid > libc.address && memory.u64(getpid).is_ok());
        assert_ne!(image.symbol("malloc"), Some(getpid));
        assert_eq!(image.symbol("no_such_function"), None);
    }

    #[test]
    fn memory_that_is_no_elf_file_has_no_symbols() {
        let memory = Memory::open(&Process::this()).unwrap();
        let bytes = vec![0x7f_u8; 4096];
        assert!(Image::at(&memory, bytes.as_ptr().expose_provenance() as u64).is_none());
        assert!(Image::at(&memory, 0).is_none());
    }
}
