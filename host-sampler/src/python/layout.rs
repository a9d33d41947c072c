//! Where the fields of CPython's structures are.
//!
//! From 3.13 on the interpreter says so itself ([`super::debug_offsets`]). The older versions have the tables below,
//! one for each minor version: made with `offsetof` from the headers of 3.9.18, 3.10.13, 3.11.7 and 3.12.1 on x86-64
//! Linux. Within a minor version the structures that extension modules are compiled against do not move; that the
//! internal ones did not either is checked each time by what is found behind the offsets.

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
    /// Its first thread.
    pub threads_head: usize,
    /// `int`, not 0 while the cyclic garbage collector runs.
    pub collecting: usize,
}

/// Where the interpreter lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GilLayout {
    /// The structure that holds it.
    pub place: GilPlace,
    /// `int`: 1 while it is held.
    pub locked: usize,
    /// The thread state that took it last.
    pub last_holder: usize,
}

/// What the lock belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GilPlace {
    /// One for the process, at this offset of `_PyRuntime`.
    Runtime(usize),
    /// One behind the pointer at this offset of `PyInterpreterState`.
    Interpreter(usize),
}

/// Fields of `PyThreadState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadLayout {
    /// The thread before it in its interpreter's list.
    pub previous: usize,
    pub next: usize,
    pub interpreter: usize,
    /// `pthread_t`.
    pub pthread: usize,
    /// Kernel thread id.
    pub native_id: Option<usize>,
    /// Its innermost frame.
    pub frame: FramePointer,
    /// The memory that its newest frames lie in.
    pub chunk: Option<usize>,
}

/// How to come from a thread to its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePointer {
    /// A field of the thread.
    Direct(usize),
    /// A field of the structure that a field of the thread points to.
    Through(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// Bytes to read.
    pub size: usize,
    /// The caller's frame.
    pub previous: usize,
    /// The code object, with tag bits in 3.14.
    pub code: usize,
    /// Where in the code it is.
    pub instruction: Instruction,
    /// What kind of frame it is.
    pub kind: KindField,
}

/// How a frame notes what kind of frame it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindField {
    /// Pointer to the generator that it is the frame of, or null.
    Generator(usize),
    /// `char`: who owns it; [`GENERATOR`], or from [`NOT_PYTHON`] on a piece of C.
    Owner(usize),
}

/// Value of `owner` for the frame of a generator or coroutine, `FRAME_OWNED_BY_GENERATOR`.
pub const GENERATOR: u8 = 1;
/// Smallest value of `owner` that marks a frame without Python code (3.12: `FRAME_OWNED_BY_CSTACK`, 3.14:
/// `FRAME_OWNED_BY_INTERPRETER`).
pub const NOT_PYTHON: u8 = 3;

/// How a frame notes its place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// `int` at this offset, in units of so many bytes; negative before the first instruction.
    Index(usize, u32),
    /// A pointer into the code object at this offset.
    Pointer(usize),
}

/// Fields of `PyCodeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLayout {
    /// Bytes to read.
    pub size: usize,
    /// `str`: the file.
    pub file: usize,
    /// `str`: the function, with its class where the version knows it.
    pub name: usize,
    /// `int`: line of `def`.
    pub first_line: usize,
    /// `bytes`: from places in the code to lines.
    pub lines: usize,
    /// How they are encoded.
    pub line_format: LineFormat,
    /// Where the instructions begin; 0 where [`Instruction::Index`] counts from their beginning.
    pub instructions: usize,
}

/// The three encodings of line numbers so far.
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
    /// Characters.
    pub length: usize,
    /// Bit field.
    pub state: usize,
    /// Bits of `interned`, which come before `kind`.
    pub interned_bits: u32,
    /// Where the characters of an ASCII string begin.
    pub ascii: usize,
    /// Where those of another compact string begin.
    pub compact: usize,
}

/// Fields of `PyBytesObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesLayout {
    /// Number of bytes.
    pub length: usize,
    /// The first one.
    pub data: usize,
}

const BYTES: BytesLayout = BytesLayout { length: 16, data: 32 };
const TEXT: TextLayout = TextLayout { length: 16, state: 32, interned_bits: 2, ascii: 48, compact: 72 };

impl Layout {
    /// The table of 3.`minor`, for the versions that do not describe themselves.
    #[must_use]
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
