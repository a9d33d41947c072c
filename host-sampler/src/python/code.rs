//! Cached code objects: the function that a frame runs, and its line.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use super::layout::Layout;
use super::lines::CodeLines;
use super::object::{self, Types};
use crate::memory::{Memory, u32_at, u64_at};

/// Maximum number of cached code objects; a full cache is cleared. A training loop uses some hundred.
const MAX_KEPT: usize = 4096;

/// Contents of a code object.
#[derive(Debug)]
pub struct Code {
    /// Name of the function, qualified by its class from 3.11 on.
    pub function: Arc<str>,
    pub file: Arc<str>,
    first_line: u32,
    lines: CodeLines,
    mark: Mark,
}

/// Distinguishes a code object from a later one at the same address: the addresses of its name and of its
/// line table, and its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark(u64, u64, u32);

impl Code {
    /// Line of the instruction at `offset` bytes; the line of `def` if there is none.
    pub fn line(&self, offset: Option<u32>) -> u32 {
        offset.and_then(|offset| self.line_at(offset)).unwrap_or(self.first_line)
    }

    /// Line of the instruction at `offset` bytes, if the instruction exists and has a line.
    pub fn line_at(&self, offset: u32) -> Option<u32> {
        self.lines.at(offset)
    }
}

/// Code objects by address.
#[derive(Debug, Default)]
pub struct Codes(HashMap<u64, Arc<Code>, FxBuildHasher>);

impl Codes {
    /// The code object at `address`; `None` if there is none.
    pub fn get(&mut self, memory: &Memory, layout: &Layout, types: Types, address: u64) -> Option<Arc<Code>> {
        let mut object = [0; 1024];
        let object = object.get_mut(..layout.code.size)?;
        memory.read(address, object).ok()?;
        if u64_at(object, layout.object_type)? != types.code {
            return None;
        }
        let (name, lines) = (u64_at(object, layout.code.name)?, u64_at(object, layout.code.lines)?);
        let first_line = u32_at(object, layout.code.first_line)?;
        let mark = Mark(name, lines, first_line);
        if let Some(known) = self.0.get(&address)
            && known.mark == mark
        {
            return Some(Arc::clone(known));
        }
        let function = object::text(memory, layout, types, name)?;
        let file = object::text(memory, layout, types, u64_at(object, layout.code.file)?)?;
        let table = object::bytes(memory, layout, types, lines).unwrap_or_default();
        let code = Arc::new(Code {
            function: function.into(),
            file: file.into(),
            first_line,
            lines: CodeLines::decode(layout.code.line_format, &table, first_line),
            mark,
        });
        if self.0.len() >= MAX_KEPT {
            self.0.clear();
        }
        self.0.insert(address, Arc::clone(&code));
        Some(code)
    }
}
