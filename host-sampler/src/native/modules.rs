//! Files that contain the code of a process, and their unwind tables.
//!
//! The list is read from `/proc/PID/maps` and becomes outdated: libraries loaded later are missing, and
//! unloaded ones are still in it. A missing library is detected by an address that is in no module. An
//! unloaded one is harmless, since no thread executes unloaded code, unless another file was loaded at the
//! same place. The list is therefore also refreshed periodically, and data derived from changed entries is
//! discarded.

use std::path::PathBuf;
use std::sync::Arc;

use super::elf::Elf;
use crate::maps::{self, Executable};
use crate::memory::Memory;
use crate::process::Process;

/// Maximum number of executable ranges; further ones are unknown code. PyTorch with CUDA has some 300 files.
const MAX_PIECES: usize = 8192;

/// A file that is loaded.
#[derive(Debug)]
pub struct Module {
    /// File name without folders.
    pub name: Arc<str>,
    /// Its path; empty for anonymous memory.
    pub path: PathBuf,
    /// Inode number of the file on its device.
    pub inode: u64,
    /// Address of its first byte.
    pub base: u64,
    /// Its tables. `None` if it is not a file of machine code.
    pub elf: Option<Elf>,
}

impl Module {
    /// Converts an address of the process to one in the file.
    pub fn address_in_file(&self, address: u64) -> u64 {
        address.wrapping_sub(self.elf.as_ref().map_or(self.base, |elf| elf.bias))
    }
}

/// The code of a process.
#[derive(Debug, Default)]
pub struct Modules {
    code: Vec<Executable>,
    /// Module of each range of code, once it was needed.
    modules: Vec<Option<Arc<Module>>>,
}

impl Modules {
    /// Reads the list again. Returns the ranges of code that are gone or have changed.
    pub fn renew(&mut self, process: &Process) -> Vec<Executable> {
        let Ok(mut code) = maps::executable(process) else { return Vec::new() };
        code.truncate(MAX_PIECES);
        let mut known = std::mem::take(&mut self.code).into_iter().zip(std::mem::take(&mut self.modules)).peekable();
        let mut lost = Vec::new();
        for piece in &code {
            while let Some((old, _)) = known.next_if(|(old, _)| old.begin < piece.begin) {
                lost.push(old);
            }
            let module = match known.next_if(|(old, _)| old.begin == piece.begin) {
                Some((old, module)) if old == *piece => module,
                other => {
                    lost.extend(other.map(|(old, _)| old));
                    None
                }
            };
            self.modules.push(module);
        }
        lost.extend(known.map(|(old, _)| old));
        self.code = code;
        lost
    }

    /// True if `address` is in executable memory, according to the current list.
    pub fn is_code(&self, address: u64) -> bool {
        self.index_of(address).is_some()
    }

    /// The file that contains the code at `address`.
    pub fn at(&mut self, memory: &Memory, address: u64) -> Option<Arc<Module>> {
        let index = self.index_of(address)?;
        if let Some(Some(module)) = self.modules.get(index) {
            return Some(Arc::clone(module));
        }
        let code = self.code.get(index)?;
        let same = |module: &&Arc<Module>| Some(module.base) == code.base && module.path == code.path;
        let known = self.modules.iter().flatten().find(same).map(Arc::clone);
        let module = known.unwrap_or_else(|| Arc::new(load(memory, code)));
        self.modules.get_mut(index)?.replace(Arc::clone(&module));
        Some(module)
    }

    fn index_of(&self, address: u64) -> Option<usize> {
        let index = self.code.partition_point(|code| code.begin <= address).checked_sub(1)?;
        self.code.get(index).filter(|code| address < code.end).map(|_| index)
    }
}

fn load(memory: &Memory, code: &Executable) -> Module {
    let name = code.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    Module {
        name: name.trim_end_matches(" (deleted)").into(),
        path: code.path.clone(),
        inode: code.inode,
        base: code.base.unwrap_or(code.begin),
        elf: code.base.and_then(|base| Elf::at(memory, base)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_this_process_has_a_module_and_data_has_none() {
        let process = Process::this();
        let memory = Memory::open(&process).unwrap();
        let mut modules = Modules::default();
        assert!(modules.renew(&process).is_empty());
        let function = code_of_this_process_has_a_module_and_data_has_none as fn() as usize as u64;
        let module = modules.at(&memory, function).unwrap();
        assert!(module.path.is_absolute() && module.elf.is_some());
        assert!(module.address_in_file(function) < function);
        let data = Box::new(1_u64);
        assert!(modules.at(&memory, std::ptr::from_ref(&*data).expose_provenance() as u64).is_none());
        assert!(modules.at(&memory, 0).is_none());
        assert!(modules.renew(&process).is_empty());
        assert!(Arc::ptr_eq(&module, &modules.at(&memory, function).unwrap()), "kept");
    }

    #[test]
    fn another_file_in_the_same_place_is_noticed() {
        let process = Process::this();
        let mut modules = Modules::default();
        modules.renew(&process);
        modules.code[0].inode += 1;
        assert_eq!(modules.renew(&process).len(), 1);
        modules.code.remove(0);
        modules.modules.remove(0);
        assert!(modules.renew(&process).is_empty(), "one more is no loss");
        modules.code.insert(0, Executable { begin: 1, end: 2, path: "/gone".into(), base: None, inode: 0 });
        modules.modules.insert(0, None);
        let lost = modules.renew(&process);
        assert!(lost.len() == 1 && lost[0].path.ends_with("gone"), "{lost:?}");
    }
}
