//! The native stack of a thread: functions of C and C++, without frame pointers, debug information or a
//! signal.
//!
//! | file | contents |
//! |---|---|
//! | `modules`, `elf` | the file that contains an address, and the tables in that file |
//! | `rules` | finding the registers of a caller |
//! | `symbols` | the function that contains an address |
//! | `merge` | merging a native and a Python stack |
//!
//! Registers come from the kernel. For a waiting thread, `/proc` provides the stack pointer and the program
//! counter (`/proc/PID/task/T/syscall`); for a running one, a sample of a perf event contains the registers
//! with a copy of the stack. Callee-saved registers are unknown for a waiting thread until a function is
//! found to have saved them. If a rule needs an unknown register, the stack ends; values are never guessed.
//! Each return address must follow a call instruction in executable memory.
//!
//! x86-64 only. Code generated at run time has no table, so a stack ends there.

mod elf;
pub mod merge;
mod modules;
mod rules;
mod symbols;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuwhy_trace::record::MAX_FRAMES;
use rustc_hash::FxBuildHasher;

use crate::memory::Memory;
use crate::process::Process;
use modules::{Module, Modules};
use rules::{Decoder, RA, Rules, SP};
use symbols::Symbols;

pub use rules::{Registers, Stop};
pub use symbols::Function;

/// Maximum number of frames walked in search of the interpreter.
const MAX_STEPS: usize = 128;
/// Maximum number of instructions whose rules and functions are cached (about 200 bytes each); a full cache
/// is cleared.
const MAX_KEPT: usize = 16_384;
/// Minimum interval between refreshes of the module list because an address is in no module.
const UNKNOWN_EVERY: Duration = Duration::from_millis(500);
/// Interval between refreshes of the module list otherwise.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Bytes of a waiting thread's stack that are read at once; deeper parts are read word by word.
const STACK_READ: usize = 16 << 10;

/// Unwinds the threads of a process.
#[derive(Debug)]
pub struct Native {
    process: Process,
    memory: Memory,
    modules: Modules,
    renewed: Option<Instant>,
    decoder: Decoder,
    symbols: Symbols,
    /// Keyed by the address that is looked up: that of an instruction, or of the last byte of a call, in
    /// which case the second part is `true`.
    known: HashMap<(u64, bool), Code, FxBuildHasher>,
    /// File and rules by address, without a function, for [`caller_of`](Self::caller_of).
    files: HashMap<u64, FileCode, FxBuildHasher>,
    /// True if [`caller_of`](Self::caller_of) met code in no known file since the list was read.
    met_unknown: bool,
    stack: Vec<u8>,
}

/// File of an instruction, and its rules if there are any.
type FileCode = (Arc<Module>, Option<Arc<Rules>>);

/// Cached data about an instruction.
#[derive(Clone, Debug)]
struct Code {
    function: Arc<Function>,
    /// `None` if there are none.
    rules: Option<Arc<Rules>>,
    /// True if a call instruction ends here; only checked for callers.
    follows_call: bool,
}

/// A native stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeStack {
    /// Functions, innermost first, at most [`MAX_FRAMES`]. The interpreter's loop is the last one if it was
    /// reached and the walk was to stop there.
    pub functions: Vec<Arc<Function>>,
    /// Reason for the end of the stack.
    pub end: End,
}

/// Reason for the end of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The thread's first function was reached.
    Outermost,
    /// The interpreter's loop was reached; contains the words in its frame and callee-saved registers.
    Interpreter(Vec<u64>),
    /// The walk could not continue.
    Cut(Cut),
}

/// Reason why a walk could not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A rule needed an unknown register.
    UnknownRegister,
    /// The stack was not copied to that depth, or is unreadable.
    Unreadable,
    /// Code without rules: generated at run time, or in a file without them.
    NoRules,
    /// The expected return address does not follow a call.
    NoCall,
    /// The stack is deeper than the limit.
    Deep,
}

/// A copied part of a stack and its address.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// Address of the first byte.
    pub begin: u64,
    /// Copied bytes.
    pub bytes: &'a [u8],
}

impl StackCopy<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.begin)?).ok()?;
        crate::memory::u64_at(self.bytes, offset)
    }
}

/// Reason why no thread of this process can be unwound.
#[derive(Debug)]
pub enum Unavailable {
    /// The registers of this processor are unsupported.
    Processor,
    /// The kernel denies the process access to its own memory.
    Denied(io::Error),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processor => f.write_str("native stacks are read on x86-64 only"),
            Self::Denied(error) => write!(f, "the memory of the process cannot be read: {error}"),
        }
    }
}

impl std::error::Error for Unavailable {}

impl Native {
    /// Opens the memory without reading it.
    ///
    /// # Errors
    /// If threads cannot be unwound on this system.
    pub fn new(process: &Process) -> Result<Self, Unavailable> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Unavailable::Processor);
        }
        Ok(Self {
            process: process.clone(),
            memory: Memory::open(process).map_err(Unavailable::Denied)?,
            modules: Modules::default(),
            renewed: None,
            decoder: Decoder::default(),
            symbols: Symbols::default(),
            known: HashMap::default(),
            files: HashMap::default(),
            met_unknown: false,
            stack: Vec::new(),
        })
    }

    /// The stack of a waiting thread, from its stack pointer and program counter. The caller must verify that
    /// the thread still waits in the same place afterwards.
    pub fn waiting(&mut self, sp: u64, pc: u64, to_interpreter: bool) -> NativeStack {
        let mut bytes = std::mem::take(&mut self.stack);
        bytes.resize(STACK_READ, 0);
        let read = self.memory.read_some(sp, &mut bytes);
        let copy = StackCopy { begin: sp, bytes: bytes.get(..read).unwrap_or_default() };
        let stack = self.walk(Registers::of_waiting(sp, pc), copy, true, to_interpreter);
        self.stack = bytes;
        stack
    }

    /// The stack of a thread from its registers and a partial copy of its stack, both taken at the same time.
    pub fn copied(&mut self, registers: Registers, stack: StackCopy<'_>, to_interpreter: bool) -> NativeStack {
        self.walk(registers, stack, false, to_interpreter)
    }

    /// Reads the list of files for [`caller_of`](Self::caller_of) if that is due, which takes milliseconds: every 5 s,
    /// or sooner after code in no known file.
    pub fn renew(&mut self) {
        self.renew_if_due(if self.met_unknown { UNKNOWN_EVERY } else { RENEW_EVERY });
    }

    /// Path of the file whose code called into the files with names that `is_inner` accepts: that of the innermost
    /// function outside them. For the calling thread, whose registers these are. Reads no names of functions and no
    /// list of files, which [`renew`](Self::renew) does, so that it can be called inside the program's calls: after
    /// the first calls some microseconds.
    pub fn caller_of(&mut self, mut registers: Registers, is_inner: impl Fn(&str) -> bool) -> Option<Arc<Path>> {
        if !self.memory.is_open() {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.stack);
        bytes.resize(STACK_READ, 0);
        let begin = registers.get(SP)?;
        let read = self.memory.read_some(begin, &mut bytes);
        bytes.truncate(read);
        let (mut is_call, mut was_inner, mut found) = (false, false, None);
        for _ in 0..MAX_STEPS {
            let copy = StackCopy { begin, bytes: &bytes };
            let Some(pc) = registers.get(RA) else { break };
            let Some((module, rules)) = self.file_and_rules(pc.wrapping_sub(is_call.into())) else { break };
            if is_inner(&module.name) {
                was_inner = true;
            } else if was_inner {
                found = Some(Arc::from(module.path.as_path()));
                break;
            }
            let read = |address| copy.word(address).or_else(|| self.memory.u64(address).ok());
            let Some(rules) = rules else { break };
            let Ok(caller) = rules.caller(&registers, read) else { break };
            (registers, is_call) = (caller, !rules.is_signal);
        }
        self.stack = bytes;
        found
    }

    fn file_and_rules(&mut self, address: u64) -> Option<FileCode> {
        if let Some(known) = self.files.get(&address) {
            return Some(known.clone());
        }
        let Some(module) = self.modules.at(&self.memory, address) else {
            self.met_unknown = true;
            return None;
        };
        let table = module.elf.as_ref().and_then(|elf| elf.unwind_table);
        let rules = table.and_then(|table| self.decoder.rules(&self.memory, table, address)).map(Arc::new);
        if self.files.len() >= MAX_KEPT {
            self.files.clear();
        }
        self.files.insert(address, (Arc::clone(&module), rules.clone()));
        Some((module, rules))
    }

    fn walk(&mut self, registers: Registers, copy: StackCopy<'_>, stands: bool, to_interpreter: bool) -> NativeStack {
        let mut functions = Vec::new();
        if !self.memory.is_open() {
            return NativeStack { functions, end: End::Cut(Cut::Unreadable) };
        }
        self.renew_if_due(RENEW_EVERY);
        let end = self.walk_into(&mut functions, registers, copy, stands, to_interpreter);
        functions.truncate(MAX_FRAMES);
        NativeStack { functions, end }
    }

    fn walk_into(
        &mut self,
        functions: &mut Vec<Arc<Function>>,
        mut registers: Registers,
        copy: StackCopy<'_>,
        stands: bool,
        to_interpreter: bool,
    ) -> End {
        let mut is_call = false;
        for _ in 0..MAX_STEPS {
            let Some(pc) = registers.get(RA) else { return End::Cut(Cut::UnknownRegister) };
            // If a call that never returns is the last instruction of a function, the return address is the
            // start of the next function.
            let mut code = self.code(pc.wrapping_sub(is_call.into()), is_call);
            if is_call && !code.as_ref().is_some_and(|code| code.follows_call) {
                // The address to which a signal handler returns does not follow a call.
                code = self.code(pc, false).filter(|code| code.rules.as_ref().is_some_and(|rules| rules.is_signal));
                if code.is_none() {
                    return End::Cut(Cut::NoCall);
                }
            }
            let Some(code) = code else { return End::Cut(Cut::NoRules) };
            functions.push(Arc::clone(&code.function));
            let Some(rules) = code.rules else { return End::Cut(Cut::NoRules) };
            let memory = &self.memory;
            let read = |address| copy.word(address).or_else(|| memory.u64(address).ok().filter(|_| stands));
            let caller = rules.caller(&registers, read);
            if to_interpreter && code.function.runs_python {
                return End::Interpreter(words_of(&registers, caller.ok(), read));
            }
            registers = match caller {
                Ok(caller) => caller,
                Err(Stop::Outermost) => return End::Outermost,
                Err(Stop::UnknownRegister) => return End::Cut(Cut::UnknownRegister),
                Err(Stop::Unreadable) => return End::Cut(Cut::Unreadable),
                Err(Stop::NoRules) => return End::Cut(Cut::NoRules),
            };
            is_call = !rules.is_signal;
        }
        End::Cut(Cut::Deep)
    }

    fn code(&mut self, address: u64, is_call: bool) -> Option<Code> {
        if let Some(code) = self.known.get(&(address, is_call)) {
            return Some(code.clone());
        }
        if !self.modules.is_code(address) {
            self.renew_if_due(UNKNOWN_EVERY);
        }
        let module = self.modules.at(&self.memory, address)?;
        let table = module.elf.as_ref().and_then(|elf| elf.unwind_table);
        let rules = table.and_then(|table| self.decoder.rules(&self.memory, table, address)).map(Arc::new);
        let function = self.symbols.function(&self.memory, &module, address);
        let follows_call = is_call && self.follows_call(address.wrapping_add(1));
        let code = Code { function, rules, follows_call };
        if self.known.len() >= MAX_KEPT {
            self.known.clear();
        }
        self.known.insert((address, is_call), code.clone());
        Some(code)
    }

    fn renew_if_due(&mut self, every: Duration) {
        if self.renewed.is_some_and(|at| at.elapsed() < every) {
            return;
        }
        let lost = self.modules.renew(&self.process);
        if !lost.is_empty() {
            let is_lost = |address: u64| lost.iter().any(|code| code.contains(address));
            self.known.retain(|&(address, _), _| !is_lost(address));
            self.files.retain(|&address, _| !is_lost(address));
            self.symbols.forget(&lost);
        }
        (self.renewed, self.met_unknown) = (Some(Instant::now()), false);
    }

    fn follows_call(&self, address: u64) -> bool {
        let before = address.checked_sub(8).and_then(|begin| self.memory.array::<8>(begin).ok());
        before.is_some_and(|bytes| ends_with_call(&bytes))
    }
}

/// Maximum number of words of a frame that are searched.
const MAX_WORDS: usize = 256;

/// Words in the frame of a function: its part of the stack, and the callee-saved registers.
fn words_of(registers: &Registers, caller: Option<Registers>, read: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
    let mut words: Vec<u64> = registers.kept().collect();
    let begin = registers.get(SP).unwrap_or(0);
    let end = caller.and_then(|caller| caller.get(SP)).unwrap_or(begin);
    words.extend((begin..end).step_by(8).take(MAX_WORDS).map_while(read));
    words
}

/// True if these bytes end with a call: direct (`e8` and four bytes), or indirect (`ff /2` with its
/// operands).
fn ends_with_call(bytes: &[u8; 8]) -> bool {
    if bytes[3] == 0xe8 {
        return true;
    }
    (2..=7).any(|length| {
        let [opcode, operand, ..] = bytes[8 - length..] else { return false };
        if opcode != 0xff || (operand >> 3) & 7 != 2 {
            return false;
        }
        let (mode, base) = (operand >> 6, operand & 7);
        let scaled = usize::from(mode != 3 && base == 4);
        let displacement = match mode {
            1 => 1,
            2 => 4,
            // A 32-bit displacement: relative to the instruction, or without a base after a SIB byte.
            0 if base == 5 || (scaled == 1 && bytes.get(8 - length + 2).is_some_and(|byte| byte & 7 == 5)) => 4,
            _ => 0,
        };
        length == 2 + scaled + displacement
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_distinguished_from_other_instructions() {
        for (bytes, is_call) in [
            ([0, 0, 0, 0xe8, 1, 2, 3, 4], true),
            ([0, 0, 0, 0xe9, 1, 2, 3, 4], false),
            ([0, 0, 0, 0, 0, 0, 0xff, 0xd0], true),
            ([0, 0, 0, 0, 0, 0, 0xff, 0xe0], false),
            ([0, 0, 0, 0, 0, 0xff, 0x50, 8], true),
            ([0, 0, 0, 0, 0xff, 0x54, 0x24, 8], true),
            ([0, 0, 0, 0, 0, 0xff, 0x14, 0xc8], true),
            ([0, 0, 0xff, 0x15, 1, 2, 3, 4], true),
            ([0, 0xff, 0x94, 0x24, 1, 2, 3, 4], true),
            ([0, 0xff, 0x14, 0xc5, 1, 2, 3, 4], true),
            ([0, 0, 0, 0, 0, 0xff, 0x10, 0x90], false),
            ([0x0f, 0x05, 0, 0, 0, 0, 0x0f, 0x05], false),
        ] {
            assert_eq!(ends_with_call(&bytes), is_call, "{bytes:x?}");
        }
    }

    #[test]
    fn noise_as_a_stack_gives_no_caller_that_was_not_called() {
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        let mut native = Native::new(&Process::this()).unwrap();
        let pc = noise_as_a_stack_gives_no_caller_that_was_not_called as fn() as usize as u64 + 16;
        let mut state = 1_u64;
        for _ in 0..2000 {
            let mut bytes = vec![0; 4096];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
            let mut registers = Registers::of_waiting(0x1000, pc);
            registers.set(6, Some(0x1000 + (state >> 53)));
            let stack = native.copied(registers, StackCopy { begin: 0x1000, bytes: &bytes }, false);
            assert!(stack.functions.len() == 1 && stack.end != End::Outermost, "{stack:?}");
        }
        let stack = native.waiting(8, 8, true);
        assert!(stack.functions.is_empty() && stack.end == End::Cut(Cut::NoRules), "{stack:?}");
    }
}
