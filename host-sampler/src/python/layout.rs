//! Offsets of the fields in CPython's structures.
//!
//! From 3.13 on, the interpreter provides them itself ([`super::debug_offsets`]). Older versions have the
//! tables below, one for each minor version, generated with `offsetof` from the headers of 3.9.18, 3.10.13,
//! 3.11.7 and 3.12.1 on x86-64 Linux. Within a minor version, structures used by compiled extension modules
//! do not change. Whether internal ones have not changed either is checked each time by validating the data
//! at these offsets.

/// All offsets that a sample needs, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Pointer to the first `PyInterpreterState`, in `_PyRuntime`.
    pub interpreters_head: usize,
    /// `PyInterpreterState`.
    pub interpreter: InterpreterLayout,
    /// `_gil_runtime_state`.
    pub gil: GilLayout,
    /// `PyThreadState`.
    pub thread: ThreadLayout,
    /// `PyFrameObject` or `_PyInterpreterFrame`.
    pub frame: FrameLayout,
    /// `PyCodeObject`.
    pub code: CodeLayout,
    /// `PyASCIIObject`.
    pub text: TextLayout,
    /// `ob_size` and `ob_sval` of `PyBytesObject`.
    pub bytes: BytesLayout,
    /// `ob_type` of `PyObject`.
    pub object_type: usize,
}

/// Fields of `PyInterpreterState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpreterLayout {
    /// The next interpreter.
    pub next: usize,
    /// First thread of the interpreter.
    pub threads_head: usize,
    /// `int`, nonzero while the cyclic garbage collector runs.
    pub collecting: usize,
}

/// Location of the interpreter lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GilLayout {
    /// Structure that contains it.
    pub place: GilPlace,
    /// `int`: 1 while it is held.
    pub locked: usize,
    /// Thread state that last acquired it.
    pub last_holder: usize,
}

/// Structure that contains the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GilPlace {
    /// A single lock for the process, at this offset of `_PyRuntime`.
    Runtime(usize),
    /// A lock for each interpreter; the pointer to it is at this offset of `PyInterpreterState`.
    Interpreter(usize),
}

/// Fields of `PyThreadState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadLayout {
    /// Previous thread in its interpreter's list.
    pub previous: usize,
    pub next: usize,
    pub interpreter: usize,
    /// `pthread_t`.
    pub pthread: usize,
    /// Kernel thread id.
    pub native_id: Option<usize>,
    /// Innermost frame of the thread.
    pub frame: FramePointer,
    /// Memory chunk that contains its newest frames.
    pub chunk: Option<usize>,
}

/// Path from a thread to its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePointer {
    /// A field of the thread.
    Direct(usize),
    /// A field of the thread that points to a structure, and a field of that structure.
    Through(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// Bytes to read.
    pub size: usize,
    /// Frame of the caller.
    pub previous: usize,
    /// The code object, with tag bits in 3.14.
    pub code: usize,
    /// Current instruction.
    pub instruction: Instruction,
    /// Kind of frame.
    pub kind: KindField,
}

/// Representation of the kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindField {
    /// Pointer to the generator that owns the frame, or null.
    Generator(usize),
    /// `char`, the owner: [`GENERATOR`]; values of at least [`NOT_PYTHON`] mark a C frame.
    Owner(usize),
}

/// Value of `owner` for the frame of a generator or coroutine, `FRAME_OWNED_BY_GENERATOR`.
pub const GENERATOR: u8 = 1;
/// Smallest value of `owner` that marks a frame without Python code (3.12: `FRAME_OWNED_BY_CSTACK`, 3.14:
/// `FRAME_OWNED_BY_INTERPRETER`).
pub const NOT_PYTHON: u8 = 3;

/// Representation of the current instruction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// `int` at this offset, in units of the given number of bytes; negative before the first instruction.
    Index(usize, u32),
    /// A pointer into the code object at this offset.
    Pointer(usize),
}

/// Fields of `PyCodeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLayout {
    /// Bytes to read.
    pub size: usize,
    /// `str`: the file name.
    pub file: usize,
    /// `str`: the function name, including its class if the version provides it.
    pub name: usize,
    /// `int`: line of `def`.
    pub first_line: usize,
    /// `bytes`: maps bytecode offsets to lines.
    pub lines: usize,
    /// Encoding of the lines.
    pub line_format: LineFormat,
    /// Offset of the first instruction; 0 if [`Instruction::Index`] counts from it.
    pub instructions: usize,
}

/// The three encodings of line numbers in existing versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// 3.9 and before: `co_lnotab`.
    Lnotab,
    /// 3.10: `co_linetable` of PEP 626.
    Ranges,
    /// 3.11 and later: `co_linetable` with columns.
    Locations,
}

/// Fields of `PyASCIIObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLayout {
    /// Number of characters.
    pub length: usize,
    /// Bit field.
    pub state: usize,
    /// Number of bits of `interned`, which precede `kind`.
    pub interned_bits: u32,
    /// Offset of the characters of an ASCII string.
    pub ascii: usize,
    /// Offset of the characters of any other compact string.
    pub compact: usize,
}

/// Fields of `PyBytesObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesLayout {
    /// Number of bytes.
    pub length: usize,
    /// First byte.
    pub data: usize,
}

const BYTES: BytesLayout = BytesLayout { length: 16, data: 32 };
const TEXT: TextLayout = TextLayout { length: 16, state: 32, interned_bits: 2, ascii: 48, compact: 72 };

impl Layout {
    /// The table of 3.`minor`, for versions without a description of their own structures.
    pub fn of_minor(minor: u8) -> Option<Self> {
        match minor {
            9 | 10 => Some(Self::v3_9_or_10(minor == 9)),
            11 => Some(Self::v3_11()),
            12 => Some(Self::v3_12()),
            _ => None,
        }
    }

    fn v3_9_or_10(is_9: bool) -> Self {
        let (generator, last, unit) = if is_9 { (96, 104, 1) } else { (88, 96, 2) };
        Self {
            interpreters_head: 32,
            interpreter: InterpreterLayout { next: 0, threads_head: 8, collecting: 816 },
            gil: GilLayout { place: GilPlace::Runtime(352), locked: 16, last_holder: 8 },
            thread: ThreadLayout {
                previous: 0,
                next: 8,
                interpreter: 16,
                pthread: 176,
                native_id: None,
                frame: FramePointer::Direct(24),
                chunk: None,
            },
            frame: FrameLayout {
                size: 112,
                previous: 24,
                code: 32,
                instruction: Instruction::Index(last, unit),
                kind: KindField::Generator(generator),
            },
            code: CodeLayout {
                size: 176,
                file: 104,
                name: 112,
                first_line: 40,
                lines: 120,
                line_format: if is_9 { LineFormat::Lnotab } else { LineFormat::Ranges },
                instructions: 0,
            },
            text: TEXT,
            bytes: BYTES,
            object_type: 8,
        }
    }

    fn v3_11() -> Self {
        Self {
            interpreters_head: 40,
            interpreter: InterpreterLayout { next: 0, threads_head: 16, collecting: 848 },
            gil: GilLayout { place: GilPlace::Runtime(360), locked: 16, last_holder: 8 },
            thread: ThreadLayout {
                previous: 0,
                next: 8,
                interpreter: 16,
                pthread: 152,
                native_id: Some(160),
                frame: FramePointer::Through(56, 8),
                chunk: Some(296),
            },
            frame: FrameLayout {
                size: 80,
                previous: 48,
                code: 32,
                instruction: Instruction::Pointer(56),
                kind: KindField::Owner(69),
            },
            code: CodeLayout {
                size: 192,
                file: 112,
                name: 128,
                first_line: 72,
                lines: 136,
                line_format: LineFormat::Locations,
                instructions: 184,
            },
            text: TEXT,
            bytes: BYTES,
            object_type: 8,
        }
    }

    fn v3_12() -> Self {
        let before = Self::v3_11();
        Self {
            interpreter: InterpreterLayout { next: 0, threads_head: 72, collecting: 312 },
            gil: GilLayout { place: GilPlace::Interpreter(384), locked: 16, last_holder: 8 },
            thread: ThreadLayout {
                pthread: 136,
                native_id: Some(144),
                frame: FramePointer::Through(56, 0),
                chunk: Some(232),
                ..before.thread
            },
            frame: FrameLayout { previous: 8, code: 0, kind: KindField::Owner(70), ..before.frame },
            code: CodeLayout { size: 200, first_line: 68, instructions: 192, ..before.code },
            text: TextLayout { ascii: 40, compact: 56, ..TEXT },
            ..before
        }
    }
}
