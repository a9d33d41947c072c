//! `_Py_DebugOffsets`: the description of CPython's structures at the start of `_PyRuntime`, in 3.13 and
//! later.
//!
//! It consists of a cookie, the version, and groups of 64-bit offsets, each preceded by the size of the
//! structure. The order of the groups is that of `pycore_runtime.h` (3.13) and `pycore_debug_offsets.h`
//! (3.14), in which three groups have grown and one is new. Later versions are not supported by guessing.

use super::layout::{
    BytesLayout, CodeLayout, FrameLayout, FramePointer, GilLayout, GilPlace, Instruction, InterpreterLayout, KindField,
    Layout, LineFormat, TextLayout, ThreadLayout,
};
use crate::memory::u64_at;

/// The cookie at the start.
const COOKIE: &[u8] = b"xdebugpy";
/// Bytes of the table that are read; 3.14 needs 664.
pub const SIZE: usize = 704;
/// Maximum offset in any structure; `PyInterpreterState` has about 300 kB.
const MAX_OFFSET: u64 = 1 << 20;
/// Maximum offset in frames, code objects and strings, which are small.
const MAX_SMALL: u64 = 1024;

/// Contents of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Described {
    /// `PY_VERSION_HEX`.
    pub version: u64,
    /// True if the interpreter was built without its lock.
    pub free_threaded: bool,
    /// Offsets of a known version; [`None`] for other versions and impossible offsets.
    pub layout: Option<Layout>,
}

/// Parses the table; `None` if there is none.
pub fn parse(table: &[u8]) -> Option<Described> {
    if !table.starts_with(COOKIE) {
        return None;
    }
    let version = u64_at(table, 8)?;
    let free_threaded = u64_at(table, 16)? != 0;
    let layout = match version >> 16 {
        0x030d => layout(table, &V13),
        0x030e => layout(table, &V14),
        _ => None,
    };
    Some(Described { version, free_threaded, layout })
}

/// Index of the first 64-bit word of each group, and differences within groups.
struct Groups {
    interpreter: usize,
    /// 3.14 has an additional field before `gc`.
    interpreter_gc: usize,
    thread: usize,
    frame: usize,
    code: usize,
    object: usize,
    bytes: usize,
    text: usize,
    gc: usize,
    interned_bits: u32,
}

const V13: Groups = Groups {
    interpreter: 6,
    interpreter_gc: 10,
    thread: 19,
    frame: 28,
    code: 34,
    object: 44,
    bytes: 64,
    text: 67,
    gc: 71,
    interned_bits: 2,
};

const V14: Groups = Groups {
    interpreter: 6,
    interpreter_gc: 11,
    thread: 22,
    frame: 31,
    code: 39,
    object: 50,
    bytes: 74,
    text: 77,
    gc: 81,
    interned_bits: 16,
};

fn layout(table: &[u8], groups: &Groups) -> Option<Layout> {
    let large = |word: usize| offset(table, word, MAX_OFFSET);
    let small = |word: usize| offset(table, word, MAX_SMALL);
    let gc = groups.interpreter_gc;
    // In both versions, `ceval_gil` and the fields after it start four words after `gc`.
    let embedded = large(gc + 5)?;
    let ascii = small(groups.text + 3)?;
    Some(Layout {
        interpreters_head: large(5)?,
        interpreter: InterpreterLayout {
            next: large(groups.interpreter + 2)?,
            threads_head: large(groups.interpreter + 3)?,
            collecting: large(gc)? + large(groups.gc + 1)?,
        },
        gil: GilLayout {
            place: GilPlace::Interpreter(large(gc + 4)?),
            // The table has offsets of the interpreter's own lock; converts them to offsets in any lock.
            locked: large(gc + 7)?.checked_sub(embedded)?,
            last_holder: large(gc + 8)?.checked_sub(embedded)?,
        },
        thread: ThreadLayout {
            previous: large(groups.thread + 1)?,
            next: large(groups.thread + 2)?,
            interpreter: large(groups.thread + 3)?,
            frame: FramePointer::Direct(large(groups.thread + 4)?),
            pthread: large(groups.thread + 5)?,
            native_id: Some(large(groups.thread + 6)?),
            chunk: Some(large(groups.thread + 7)?),
        },
        frame: FrameLayout {
            size: small(groups.frame)?,
            previous: small(groups.frame + 1)?,
            code: small(groups.frame + 2)?,
            instruction: Instruction::Pointer(small(groups.frame + 3)?),
            kind: KindField::Owner(small(groups.frame + 5)?),
        },
        code: CodeLayout {
            size: small(groups.code)?,
            file: small(groups.code + 1)?,
            name: small(groups.code + 3)?,
            lines: small(groups.code + 4)?,
            first_line: small(groups.code + 5)?,
            line_format: LineFormat::Locations,
            instructions: small(groups.code + 9)?,
        },
        text: TextLayout {
            state: small(groups.text + 1)?,
            length: small(groups.text + 2)?,
            interned_bits: groups.interned_bits,
            ascii,
            // `PyCompactUnicodeObject` adds a length and a pointer.
            compact: ascii + 16,
        },
        bytes: BytesLayout { length: small(groups.bytes + 1)?, data: small(groups.bytes + 2)? },
        object_type: small(groups.object + 1)?,
    })
}

fn offset(table: &[u8], word: usize, limit: u64) -> Option<usize> {
    let value = u64_at(table, word * 8)?;
    if value < limit { usize::try_from(value).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table in which each word contains its own index, so that a field shows which word it was read from.
    fn table(version: u64) -> Vec<u8> {
        let mut table: Vec<u8> = (0..SIZE as u64 / 8).flat_map(u64::to_le_bytes).collect();
        table[..8].copy_from_slice(COOKIE);
        table[8..16].copy_from_slice(&version.to_le_bytes());
        table[16..24].fill(0);
        table
    }

    #[test]
    fn each_field_is_read_from_its_word() {
        // Words counted in the declaration of 3.14's structure.
        let described = parse(&table(0x030e_00f0)).unwrap();
        assert!(!described.free_threaded);
        let layout = described.layout.unwrap();
        assert_eq!((layout.interpreters_head, layout.interpreter.next, layout.interpreter.threads_head), (5, 8, 9));
        assert_eq!(layout.interpreter.collecting, 11 + 82);
        assert_eq!(layout.gil.place, GilPlace::Interpreter(15));
        assert_eq!((layout.gil.locked, layout.gil.last_holder), (18 - 16, 19 - 16));
        assert_eq!((layout.code.name, layout.code.first_line, layout.code.instructions), (42, 44, 48));
        assert_eq!((layout.bytes.data, layout.text.length, layout.text.ascii), (76, 79, 80));
    }

    #[test]
    fn an_unknown_version_has_no_layout_and_another_cookie_no_table() {
        assert_eq!(parse(&table(0x030f_00a1)).unwrap().layout, None);
        assert_eq!(parse(&vec![0; SIZE]), None);
        assert_eq!(parse(b"xdebugpy"), None);
        let mut broken = table(0x030d_00f0);
        broken[28 * 8..29 * 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(parse(&broken).unwrap().layout, None);
    }
}
