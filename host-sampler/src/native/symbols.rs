//! Resolves addresses to names of functions.
//!
//! The table of a file's functions is created at the first address in that file: from `.symtab` of the file,
//! if the file is unchanged since it was loaded and has that table, else from the loader's table in memory.
//! Names are read one by one. An address without a symbol is shown as file and offset, `libfoo.so+0x1234`,
//! together with the build id of the file, so that a symbol server can provide the name later.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use gpuwhy_trace::demangle;
use gpuwhy_trace::short_text::cut;
use rustc_hash::FxBuildHasher;

use super::elf::{self, DynamicSymbols};
use super::modules::Module;
use crate::maps::Executable;
use crate::memory::{Memory, u32_at, u64_at};

/// Maximum number of functions in all tables together (12 bytes each); beyond it, further files get no table.
const MAX_SYMBOLS: usize = 1 << 20;
/// Maximum bytes of a mangled name. PyTorch's longest have a few thousand.
const MAX_MANGLED: usize = 4096;
/// Maximum bytes of a readable name; a longer one is cut.
const MAX_NAME: usize = 300;
/// Number of symbols before an address that are checked, because functions can be within the range of another
/// one.
const MAX_OVERLAP: usize = 8;
/// Number of entries read at once.
const CHUNK: usize = 4096;
/// Bytes of an entry in either table.
const ENTRY: usize = 24;
/// Maximum number of sections of a file.
const MAX_SECTIONS: usize = 4096;

/// Description of a function in a stack.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Readable name without parameters, or the file name and the address in the file.
    pub name: Arc<str>,
    /// File name; with the build id if the function has no name.
    pub file: Arc<str>,
    /// True if it is the bytecode loop of the Python interpreter.
    pub runs_python: bool,
}

/// Cached names of functions.
#[derive(Debug, Default)]
pub struct Symbols {
    tables: HashMap<u64, SymbolTable, FxBuildHasher>,
    symbols: usize,
    /// By start address.
    functions: HashMap<u64, Arc<Function>, FxBuildHasher>,
}

/// Maximum number of functions cached by name; a full cache is cleared.
const MAX_FUNCTIONS: usize = 32_768;

impl Symbols {
    /// Removes cached data about these ranges, which may now contain other files.
    pub fn forget(&mut self, lost: &[Executable]) {
        self.tables.retain(|&base, _| !lost.iter().any(|code| code.base.unwrap_or(code.begin) == base));
        self.symbols = self.tables.values().map(|table| table.symbols.len()).sum();
        self.functions.retain(|&address, _| !lost.iter().any(|code| code.contains(address)));
    }

    /// The function that contains the code at `address`.
    pub fn function(&mut self, memory: &Memory, module: &Module, address: u64) -> Arc<Function> {
        let at = module.address_in_file(address);
        let left = MAX_SYMBOLS - self.symbols;
        let table = self.tables.entry(module.base).or_insert_with(|| {
            let table = SymbolTable::of(memory, module, left);
            self.symbols += table.symbols.len();
            table
        });
        let symbol = u32::try_from(at).ok().and_then(|at| table.covering(at));
        let begin = symbol.map_or(address, |symbol| address - (at - u64::from(symbol.begin)));
        if let Some(known) = self.functions.get(&begin) {
            return Arc::clone(known);
        }
        let name = symbol.and_then(|symbol| table.name(memory, module, symbol));
        let function = Arc::new(name.map_or_else(|| unnamed(module, at), |name| named(module, &name)));
        if self.functions.len() >= MAX_FUNCTIONS {
            self.functions.clear();
        }
        self.functions.insert(begin, Arc::clone(&function));
        function
    }
}

fn named(module: &Module, mangled: &str) -> Function {
    let mut name = demangle::without_parameters(mangled);
    if name.len() > MAX_NAME {
        name = format!("{}...", cut(&name, MAX_NAME));
    }
    // The second are functions of 3.14 builds with one function per bytecode.
    let runs_python = mangled.starts_with("_PyEval_EvalFrameDefault") || mangled.starts_with("_TAIL_CALL_");
    Function { name: name.into(), file: Arc::clone(&module.name), runs_python }
}

fn unnamed(module: &Module, at: u64) -> Function {
    if module.path.as_os_str().is_empty() {
        return Function {
            name: "code made at run time".into(),
            file: "[anonymous memory]".into(),
            runs_python: false,
        };
    }
    let id = module.elf.as_ref().map_or("", |elf| &elf.build_id);
    let file = if id.is_empty() { Arc::clone(&module.name) } else { format!("{} build-id:{id}", module.name).into() };
    Function { name: format!("{}+{at:#x}", module.name).into(), file, runs_python: false }
}

/// A function of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Symbol {
    /// Start address in the file.
    begin: u32,
    /// Bytes of code.
    size: u32,
    /// Offset of its name in the table of names.
    name: u32,
}

/// Functions of a file, by address.
#[derive(Debug, Default)]
struct SymbolTable {
    symbols: Vec<Symbol>,
    names: SymbolNames,
}

#[derive(Clone, Copy, Debug, Default)]
enum SymbolNames {
    #[default]
    None,
    /// Address in the process and number of bytes.
    Memory(u64, u64),
    /// Offset and number of bytes in the file with this device, inode and modification time.
    File(u64, u64, Identity),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64, i64);

impl Identity {
    fn of(file: &File) -> Option<Self> {
        let found = file.metadata().ok()?;
        Some(Self(found.dev(), found.ino(), found.mtime()))
    }
}

impl SymbolTable {
    fn of(memory: &Memory, module: &Module, limit: usize) -> Self {
        let mut table = from_file(module, limit).unwrap_or_default();
        if table.symbols.is_empty()
            && let Some(dynamic) = module.elf.as_ref().and_then(|elf| elf.dynamic_symbols)
        {
            table = from_memory(memory, dynamic, limit);
        }
        // A file that would exceed the limit gets no table: otherwise, only some of its functions would have
        // names.
        if table.symbols.len() >= limit {
            table = Self::default();
        }
        table.symbols.shrink_to_fit();
        table
    }

    /// The function whose code contains `at`.
    fn covering(&self, at: u32) -> Option<Symbol> {
        let end = self.symbols.partition_point(|symbol| symbol.begin <= at);
        let before = self.symbols.get(end.saturating_sub(MAX_OVERLAP)..end)?;
        before.iter().rev().find(|symbol| at - symbol.begin < symbol.size).copied()
    }

    fn name(&self, memory: &Memory, module: &Module, symbol: Symbol) -> Option<String> {
        let mut bytes = [0; MAX_MANGLED];
        let offset = u64::from(symbol.name);
        let read = match self.names {
            SymbolNames::None => return None,
            SymbolNames::Memory(names, size) if offset < size => {
                memory.read_some(names.checked_add(offset)?, &mut bytes)
            }
            SymbolNames::File(names, size, identity) if offset < size => {
                let file = File::open(&module.path).ok().filter(|file| Identity::of(file) == Some(identity))?;
                file.read_at(&mut bytes, names.checked_add(offset)?).ok()?
            }
            _ => return None,
        };
        let name = bytes.get(..read)?.split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned()).filter(|name| !name.is_empty() && name.len() < MAX_MANGLED)
    }
}

/// Collects functions from the entries of a table.
#[derive(Default)]
struct SymbolList {
    /// Symbols with their priority among those at the same address: global before weak before local.
    found: Vec<(Symbol, u8)>,
}

impl SymbolList {
    fn add(&mut self, entries: &[u8]) {
        /// `STT_FUNC` and `STT_GNU_IFUNC`.
        const FUNCTIONS: [u8; 2] = [2, 10];
        for entry in entries.as_chunks::<ENTRY>().0 {
            let (info, defined) = (entry[4], entry[6..8] != [0, 0]);
            let (begin, size) = (u64_at(entry, 8).unwrap_or(0), u64_at(entry, 16).unwrap_or(0));
            if !FUNCTIONS.contains(&(info & 15)) || !defined || size == 0 {
                continue;
            }
            let (Ok(begin), Ok(size), Some(name)) = (u32::try_from(begin), u32::try_from(size), u32_at(entry, 0))
            else {
                continue;
            };
            let rank = [2, 0, 1].get(usize::from(info >> 4)).copied().unwrap_or(3);
            self.found.push((Symbol { begin, size, name }, rank));
        }
    }

    fn finish(mut self) -> Vec<Symbol> {
        self.found.sort_by_key(|&(symbol, rank)| (symbol.begin, rank, symbol.name));
        self.found.dedup_by_key(|(symbol, _)| symbol.begin);
        self.found.into_iter().map(|(symbol, _)| symbol).collect()
    }
}

fn from_memory(memory: &Memory, dynamic: DynamicSymbols, limit: usize) -> SymbolTable {
    let mut list = SymbolList::default();
    let mut bytes = vec![0; CHUNK * ENTRY];
    let mut address = dynamic.table;
    let mut left = dynamic.count;
    while left > 0 && list.found.len() < limit {
        let entries = left.min(CHUNK as u64);
        let Some(bytes) = bytes.get_mut(..entries as usize * ENTRY) else { break };
        if memory.read(address, bytes).is_err() {
            break;
        }
        list.add(bytes);
        address = address.wrapping_add(bytes.len() as u64);
        left -= entries;
    }
    SymbolTable { symbols: list.finish(), names: SymbolNames::Memory(dynamic.names, dynamic.names_size) }
}

fn from_file(module: &Module, limit: usize) -> Option<SymbolTable> {
    /// `SHT_SYMTAB` and `SHT_NOTE`
    const SYMBOLS: u32 = 2;
    const NOTES: u32 = 7;
    let file = File::open(&module.path).ok()?;
    let identity = Identity::of(&file)?;
    if identity.1 != module.inode {
        return None;
    }
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    let (offset, count) = (u64_at(&header, 40)?, u16::from_le_bytes([header[60], header[61]]));
    let mut sections = vec![0; usize::from(count).min(MAX_SECTIONS) * 64];
    file.read_exact_at(&mut sections, offset).ok()?;
    let sections = sections.as_chunks::<64>().0;
    // A file on another file system can have the same inode number.
    let id = module.elf.as_ref().map_or("", |elf| &elf.build_id);
    let has_id = |section: &[u8; 64]| {
        let mut notes = [0; 1024];
        let read = u64_at(section, 24).and_then(|at| file.read_at(&mut notes, at).ok()).unwrap_or(0);
        notes.get(..read).and_then(elf::build_id).is_some_and(|found| found == id)
    };
    let mut notes = sections.iter().filter(|section| u32_at(*section, 4) == Some(NOTES));
    if !id.is_empty() && !notes.any(has_id) {
        return None;
    }
    let symbols = sections.iter().find(|section| u32_at(*section, 4) == Some(SYMBOLS))?;
    let names = sections.get(u32_at(symbols, 40)? as usize)?;
    let (mut at, end) = (u64_at(symbols, 24)?, u64_at(symbols, 24)?.checked_add(u64_at(symbols, 32)?)?);
    let mut list = SymbolList::default();
    let mut bytes = vec![0; CHUNK * ENTRY];
    while at < end && list.found.len() < limit {
        let length = usize::try_from(end - at).ok()?.min(bytes.len());
        let bytes = bytes.get_mut(..length)?;
        file.read_exact_at(bytes, at).ok()?;
        list.add(bytes);
        at += length as u64;
    }
    let names = SymbolNames::File(u64_at(names, 24)?, u64_at(names, 32)?, identity);
    Some(SymbolTable { symbols: list.finish(), names })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_symbol_that_covers_it() {
        let symbol = |begin, size| Symbol { begin, size, name: 0 };
        let table =
            SymbolTable { symbols: vec![symbol(10, 20), symbol(15, 2), symbol(40, 5)], names: SymbolNames::None };
        let at = |at| table.covering(at).map(|symbol| symbol.begin);
        assert_eq!(
            [9, 10, 16, 17, 29, 30, 40, 44, 45].map(at),
            [None, Some(10), Some(15), Some(10), Some(10), None, Some(40), Some(44 - 4), None]
        );
    }

    #[test]
    fn global_symbols_go_before_others_and_data_is_left_out() {
        let entry = |name: u32, info: u8, section: u8, begin: u64| {
            let mut bytes = [0; ENTRY];
            bytes[..4].copy_from_slice(&name.to_le_bytes());
            bytes[4] = info;
            bytes[6] = section;
            bytes[8..16].copy_from_slice(&begin.to_le_bytes());
            bytes[16] = 8;
            bytes
        };
        let entries = [
            entry(1, 0x02, 1, 64),
            entry(2, 0x22, 1, 64),
            entry(3, 0x12, 1, 64),
            entry(4, 0x11, 1, 80),
            entry(5, 0x12, 0, 96),
            entry(6, 0x1a, 1, 32),
        ];
        let mut list = SymbolList::default();
        list.add(entries.as_flattened());
        let found: Vec<_> = list.finish().into_iter().map(|symbol| (symbol.begin, symbol.name)).collect();
        assert_eq!(found, [(32, 6), (64, 3)]);
    }

    #[test]
    fn what_has_no_name_keeps_its_build_id() {
        let elf = elf::Elf { build_id: "00ff".to_owned(), ..Default::default() };
        let mut module =
            Module { name: "libfoo.so".into(), path: "/lib/libfoo.so".into(), inode: 0, base: 0, elf: Some(elf) };
        let function = unnamed(&module, 0x1234);
        assert_eq!((&*function.name, &*function.file), ("libfoo.so+0x1234", "libfoo.so build-id:00ff"));
        module.elf = None;
        assert_eq!(&*unnamed(&module, 1).file, "libfoo.so");
        let long = format!("_Z{}{}v", 400, "f".repeat(400));
        assert_eq!(named(&module, &long).name.len(), MAX_NAME + 3);
        assert!(named(&module, "_PyEval_EvalFrameDefault.cold").runs_python);
    }
}
