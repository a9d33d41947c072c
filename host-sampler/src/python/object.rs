//! The two kinds of Python objects whose contents are read: `str` and `bytes`.
//!
//! The type of each object is compared with the address of the type exported by the interpreter, so that
//! memory that has been reused in the meantime is not read as a name.

use super::layout::Layout;
use crate::memory::{Memory, u32_at, u64_at};

/// Maximum number of characters of a name. A longer name keeps its end, the significant part of a path.
const MAX_TEXT: usize = 240;
/// Maximum number of bytes read from a `bytes` object.
const MAX_BYTES: usize = 1 << 18;

/// Addresses of the interpreter's type objects.
#[derive(Clone, Copy, Debug)]
pub struct Types {
    /// `PyCode_Type`.
    pub code: u64,
    /// `PyUnicode_Type`.
    pub text: u64,
    /// `PyBytes_Type`.
    pub bytes: u64,
}

/// Characters of the `str` at `address`; `None` if there is none.
pub fn text(memory: &Memory, layout: &Layout, types: Types, address: u64) -> Option<String> {
    let mut header = [0; 256];
    let header = header.get_mut(..layout.text.compact)?;
    memory.read(address, header).ok()?;
    if u64_at(header, layout.object_type)? != types.text {
        return None;
    }
    let state = u32_at(header, layout.text.state)? >> layout.text.interned_bits;
    let (kind, is_compact, is_ascii) = ((state & 7) as usize, state & 8 != 0, state & 16 != 0);
    if !is_compact || !matches!(kind, 1 | 2 | 4) {
        return None;
    }
    let length = usize::try_from(u64_at(header, layout.text.length)?).ok()?;
    let kept = length.min(MAX_TEXT);
    let start = if is_ascii { layout.text.ascii } else { layout.text.compact };
    let skipped = start.checked_add(length.checked_sub(kept)?.checked_mul(kind)?)?;
    let mut characters = [0; MAX_TEXT * 4];
    let characters = characters.get_mut(..kept * kind)?;
    memory.read(address.checked_add(skipped as u64)?, characters).ok()?;
    Some(characters.chunks(kind).map(character).collect())
}

fn character(bytes: &[u8]) -> char {
    let code = bytes.iter().rev().fold(0_u32, |code, &byte| code << 8 | u32::from(byte));
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Contents of the `bytes` at `address`; `None` if there is none, or it is too long.
pub fn bytes(memory: &Memory, layout: &Layout, types: Types, address: u64) -> Option<Vec<u8>> {
    let kind = memory.u64(address.checked_add(layout.object_type as u64)?).ok()?;
    if kind != types.bytes {
        return None;
    }
    let length = memory.u64(address.checked_add(layout.bytes.length as u64)?).ok()?;
    let length = usize::try_from(length).ok().filter(|&length| length <= MAX_BYTES)?;
    let mut contents = vec![0; length];
    memory.read(address.checked_add(layout.bytes.data as u64)?, &mut contents).ok()?;
    Some(contents)
}
