//! Modules (cubins) that the program has loaded, kept until it is known which of them have samples.
//!
//! They are copied in the call that loads them, since CUPTI shows them only then. Only useful ones are kept:
//! modules with line information, and small ones, which a disassembler access lock into instructions. NVIDIA's
//! libraries have hundreds of megabytes without lines.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cupti_sys::Cupti;
use cupti_sys::counters::Counters;
use cupti_sys::counters::range::ContextHandle;
use parking_lot::Mutex;

use crate::sys::memory;

/// Maximum size of a module that is kept, bytes.
const MODULE_BYTES: usize = 16 << 20;
/// Maximum size of a module without line information, bytes.
const PLAIN_BYTES: usize = 256 << 10;
/// Maximum size of all modules, bytes.
const ALL_BYTES: usize = 64 << 20;
/// Maximum number of contexts that are kept.
const CONTEXTS: usize = 64;

/// Modules loaded up to now.
#[derive(Debug, Default)]
pub struct Modules(Mutex<ModuleState>);

#[derive(Debug, Default)]
struct ModuleState {
    /// Contexts in which modules were loaded, in the order of the first load.
    contexts: Vec<ContextHandle>,
    modules: Vec<Arc<[u8]>>,
    bytes: usize,
    /// Number of modules with line information for which there was no room.
    lost: u64,
    /// Modules are no longer needed.
    is_over: bool,
}

impl Modules {
    /// Called when a module was loaded, on the loading thread, inside its call.
    pub fn loaded(&self, context: ContextHandle, module: &[u8]) {
        if self.0.lock().is_over {
            return;
        }
        let has_lines = has_lines(module);
        let most = if has_lines { MODULE_BYTES } else { PLAIN_BYTES };
        let mut state = self.0.lock();
        if !state.contexts.contains(&context) && state.contexts.len() < CONTEXTS {
            state.contexts.push(context);
        }
        if module.len() > most || state.bytes + module.len() > ALL_BYTES || memory::is_short() {
            state.lost += u64::from(has_lines);
            return;
        }
        if !state.modules.iter().any(|known| **known == *module) {
            state.bytes += module.len();
            state.modules.push(Arc::from(module));
        }
    }

    pub fn context_ends(&self, context: ContextHandle) {
        self.0.lock().contexts.retain(|known| *known != context);
    }

    /// First context of each device, with the device.
    pub fn contexts(&self, cupti: &Cupti) -> Vec<(u32, ContextHandle)> {
        let contexts = self.0.lock().contexts.clone();
        let mut found: Vec<(u32, ContextHandle)> = Vec::new();
        for context in contexts {
            match cupti.device_of(context) {
                Ok(device) if found.iter().all(|&(known, _)| known != device) => found.push((device, context)),
                Ok(_) => {}
                Err(error) => tracing::debug!("PC samples of a context are not sampled: {error}"),
            }
        }
        found
    }

    /// Frees the memory once sampling has ended.
    pub fn close(&self) {
        let mut state = self.0.lock();
        (state.is_over, state.modules) = (true, Vec::new());
    }

    /// Returns the modules with these checksums, and the number of those there was no room for.
    pub fn of(&self, counters: &Counters, wanted: &HashSet<u64>) -> (Vec<(u64, Vec<u8>)>, u64) {
        let (modules, lost) = {
            let state = self.0.lock();
            // A window that was refused needs none.
            (if wanted.is_empty() { Vec::new() } else { state.modules.clone() }, state.lost)
        };
        let mut found = Vec::new();
        // Without the lock: it takes a tenth of a second for all.
        for module in &modules {
            match counters.module_checksum(module) {
                Ok(checksum) if wanted.contains(&checksum) => found.push((checksum, module.to_vec())),
                Ok(_) => {}
                Err(error) => tracing::debug!("{error}"),
            }
        }
        (found, lost)
    }
}

/// Writes modules into the folder next to the trace, whose name is that of the trace with `.cubins` appended.
/// An existing file is from an earlier window. Returns the number of modules that could not be written.
pub fn write(trace: &Path, modules: &[(u64, Vec<u8>)]) -> u64 {
    let mut folder = trace.as_os_str().to_owned();
    folder.push(".cubins");
    let folder = PathBuf::from(folder);
    let mut lost = 0;
    for (checksum, module) in modules {
        let path = folder.join(format!("{checksum:016x}.cubin"));
        if let Err(error) = write_once(&path, module) {
            if lost == 0 {
                tracing::warn!("{}: {error}; source lines of this module are unavailable", path.display());
            }
            lost += 1;
        }
    }
    lost
}

/// Writes a new file that only the user can read, in a folder that only the user can enter. An existing file
/// is left unchanged.
fn write_once(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        created => created?,
    };
    file.write_all(bytes).inspect_err(|_| {
        // A partial file would be taken for a complete one.
        let _ = fs::remove_file(path);
    })
}

/// True if a module has a section `.debug_line`: only by its section names, since modules may be large.
fn has_lines(module: &[u8]) -> bool {
    section_names(module).is_some_and(|names| names.split(|&byte| byte == 0).any(|name| name == b".debug_line"))
}

/// String table with the section names of a 64-bit ELF file.
fn section_names(module: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u64::from_le_bytes(*module.get(at..)?.first_chunk()?));
    let short = |at: usize| Some(u64::from(u16::from_le_bytes(*module.get(at..)?.first_chunk()?)));
    if module.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let header = number(40)?.checked_add(short(58)?.checked_mul(short(62)?)?)?;
    let header = usize::try_from(header).ok()?;
    let (at, size) = (number(header.checked_add(24)?)?, number(header.checked_add(32)?)?);
    let at = usize::try_from(at).ok()?;
    module.get(at..at.checked_add(usize::try_from(size).ok()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with section names at the end and one section header.
    fn module(names: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[40] = 64;
        bytes[58] = 64;
        bytes[64 + 24] = 128;
        bytes[64 + 32] = names.len() as u8;
        bytes.extend_from_slice(names);
        bytes
    }

    #[test]
    fn modules_with_lines_are_distinguished_from_others() {
        assert!(has_lines(&module(b"\0.strtab\0.debug_line\0")));
        assert!(!has_lines(&module(b"\0.nv.debug_lines\0")) && !has_lines(b"\x7fELF\x02") && !has_lines(b""));
        let whole = module(b"\0.debug_line\0");
        assert!((0..whole.len()).all(|length| !has_lines(&whole[..length])));
        let mut hostile = whole;
        hostile[40..48].fill(0xff);
        assert!(!has_lines(&hostile));
    }
}
