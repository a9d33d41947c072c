//! Modules (cubins) kept next to a trace: the source line and the SASS text of each instruction.
//!
//! `libprof.so` keeps the modules in which it took PC samples in a folder named like the trace with
//! [`FOLDER`] appended, one file per checksum. Reading order: `lines`, `sass`.

mod lines;
mod sass;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use gpuwhy_report::kernels::source::{SourceLine, SourceMap};
use gpuwhy_trace::kernels::PcWindow;

pub use lines::LineTable;
pub use sass::Sass;

/// Suffix that is appended to the name of a trace.
pub const FOLDER: &str = ".cubins";
/// Maximum size of a module that is read, bytes: the most that the writer keeps.
const MAX_MODULE: u64 = 64 << 20;
/// Maximum size of a source file that is read, bytes.
const MAX_SOURCE: u64 = 8 << 20;

/// Modules of some PC sampling windows.
#[derive(Debug, Default)]
pub struct Modules {
    modules: HashMap<u64, Module>,
    /// Lines of source files; `None` if the file is missing.
    sources: RefCell<HashMap<String, Option<Vec<String>>>>,
}

#[derive(Debug, Default)]
struct Module {
    path: PathBuf,
    lines: LineTable,
    sass: Sass,
}

/// Path of a module's file next to a trace.
#[must_use]
pub fn file_of(trace: &Path, module: u64) -> PathBuf {
    let mut folder = trace.as_os_str().to_owned();
    folder.push(FOLDER);
    PathBuf::from(folder).join(format!("{module:016x}.cubin"))
}

impl Modules {
    /// Opens the modules of `windows` that lie next to the trace. Modules that are missing or malformed yield
    /// no lines.
    #[must_use]
    pub fn beside<'a>(trace: &Path, windows: impl Iterator<Item = &'a PcWindow>) -> Self {
        let mut modules = HashMap::new();
        for function in windows.flat_map(|window| &window.functions) {
            modules.entry(function.module).or_insert_with(|| {
                let path = file_of(trace, function.module);
                let lines = read(&path, MAX_MODULE).map(|bytes| LineTable::of(&bytes)).unwrap_or_default();
                Module { path, lines, sass: Sass::default() }
            });
        }
        Self { modules, sources: RefCell::default() }
    }

    /// Files that exist, with their checksums.
    pub fn files(&self) -> impl Iterator<Item = (u64, &Path)> {
        self.modules.iter().map(|(&module, of)| (module, of.path.as_path())).filter(|(_, path)| path.is_file())
    }

    /// Sets the instructions of a module from the output of a disassembler.
    pub fn set_sass(&mut self, module: u64, sass: Sass) {
        if let Some(known) = self.modules.get_mut(&module) {
            known.sass = sass;
        }
    }
}

impl SourceMap for Modules {
    fn place(&self, module: u64, function: &str, offset: u64) -> Option<SourceLine> {
        let (file, line) = self.modules.get(&module)?.lines.place(function, offset)?;
        Some(SourceLine { file: file.to_owned(), line })
    }

    fn instruction(&self, module: u64, function: &str, offset: u64) -> Option<String> {
        self.modules.get(&module)?.sass.instruction(function, offset).map(str::to_owned)
    }

    fn text(&self, place: &SourceLine) -> Option<String> {
        let mut sources = self.sources.borrow_mut();
        let lines = sources.entry(place.file.clone()).or_insert_with(|| {
            let bytes = read(Path::new(&place.file), MAX_SOURCE)?;
            Some(String::from_utf8_lossy(&bytes).lines().map(|line| line.trim().to_owned()).collect())
        });
        lines.as_ref()?.get(usize::try_from(place.line).ok()?.checked_sub(1)?).cloned()
    }
}

/// Reads a complete regular file. A module may name any path, and reading a pipe or a device would never end.
fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let about = fs::metadata(path).ok()?;
    (about.is_file() && about.len() <= most).then(|| fs::read(path).ok())?
}
