//! Walks from a thread state through its frames.
//!
//! The thread keeps running, so a walk can start in a function that returns before the walk ends. Four
//! measures prevent wrong stacks. Frames of 3.11 and later are contiguous, so one read captures nearly all of
//! them at the same time. Unless a walk finds the thread exactly where the last sample left it, two more
//! walks follow, and only the part common to all counts: the outer frames, which did not change. (Two walks
//! in total are not enough: in a program that only calls and returns, 50 ns each, one of 20,000 samples then
//! had a wrong caller.) A stack must end in the same outermost frame as the previous one, and not in a
//! generator, because a frame that returns is unlinked from its callers, and a generator's slightly too
//! early. Finally, each code object is verified by its type.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use gpuwhy_trace::record::MAX_FRAMES;
use rustc_hash::FxBuildHasher;

use super::code::{Code, Codes};
use super::layout::{FramePointer, GENERATOR, GilPlace, Instruction, KindField, Layout, NOT_PYTHON};
use super::object::Types;
use super::threads::ThreadAddress;
use super::{Bytecode, Frame, Lock, Sample};
use crate::memory::{Memory, Unreadable, u32_at, u64_at};

/// Maximum number of attempts per sample.
const ATTEMPTS: usize = 6;
/// Number of walks of a moving thread whose common part counts.
const WALKS: usize = 3;
/// Maximum number of frames walked, including those that represent C code.
const MAX_STEPS: usize = 4 * MAX_FRAMES;
/// Maximum bytes of frames read at once. CPython allocates memory for them in chunks of 16 KiB.
const MAX_BLOCK: u64 = 32 << 10;
/// Maximum number of cached threads.
const MAX_KNOWN: usize = 64;
/// Tag bits of an object reference, from 3.14 on. In earlier versions, they are 0 because objects are
/// aligned.
const TAG_BITS: u64 = 3;

/// Walks stacks.
#[derive(Debug)]
pub struct Walker {
    layout: Layout,
    types: Types,
    runtime: u64,
    codes: Codes,
    /// Cached data by thread state.
    known: HashMap<u64, Known, FxBuildHasher>,
    block: Vec<u8>,
}

/// A frame and its caller.
struct Step {
    frame: Option<RawFrame>,
    is_generator: bool,
    previous: u64,
}

/// A Python frame as stored in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RawFrame {
    address: u64,
    code: u64,
    place: CodePosition,
}

/// Position of a frame in its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CodePosition {
    /// Number of bytes after the first instruction.
    Offset(u32),
    Address(u64),
    /// Before the first instruction.
    Begin,
}

/// Data from earlier walks of a thread.
#[derive(Debug, Default)]
struct Known {
    /// Outermost frame of the last walk.
    root: u64,
    /// Frames of the last sample, innermost first, with their code objects.
    frames: Vec<(RawFrame, Arc<Code>)>,
}

#[derive(Debug)]
struct Walk {
    /// Innermost first.
    frames: Vec<RawFrame>,
    /// The outermost frame, 0 if there are no frames, or `None` if the walk stopped before it.
    root: Option<u64>,
    /// When it began and ended.
    read: (Instant, Instant),
}

impl Walker {
    /// Creates a walker without cached code.
    pub fn new(layout: Layout, types: Types, runtime: u64) -> Self {
        Self { layout, types, runtime, codes: Codes::default(), known: HashMap::default(), block: Vec::new() }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Samples a thread. `None` if no walk succeeded. Also returns the thread that held the lock last.
    pub fn sample(&mut self, memory: &Memory, thread: ThreadAddress) -> Option<(Sample, ThreadAddress)> {
        let (lock, holder) = self.lock(memory, thread).ok()?;
        let holder = ThreadAddress { state: holder, ..thread };
        let collecting = thread.interpreter.wrapping_add(self.layout.interpreter.collecting as u64);
        let is_collecting = memory.u32(collecting).ok()? != 0;
        let walk = (0..ATTEMPTS).find_map(|_| self.stable(memory, thread.state).ok().flatten())?;
        let frames = self.name(memory, thread.state, &walk)?;
        let innermost = self.known.get(&thread.state).and_then(|known| known.frames.first());
        let bytecode = innermost.and_then(|(raw, code)| self.layout.bytecode(raw, code));
        let is_truncated = walk.root.is_none();
        Some((Sample { frames, read: walk.read, is_truncated, bytecode, lock, holder: None, is_collecting }, holder))
    }

    /// Stack of a thread that stands still. `None` if it cannot be read.
    pub fn stack_of_still(&mut self, memory: &Memory, thread: ThreadAddress) -> Option<Vec<Frame>> {
        let walk = self.walk(memory, thread.state).ok()?;
        self.name(memory, thread.state, &walk)
    }

    /// Resolves the names of the frames. A call that was already in the previous sample keeps its code object
    /// alive; the code objects of the others are checked again.
    fn name(&mut self, memory: &Memory, thread: u64, walk: &Walk) -> Option<Vec<Frame>> {
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        let known = self.known.entry(thread).or_default();
        let same = common(known.frames.iter().map(|(frame, _)| frame), walk.frames.iter());
        let new = walk.frames.len() - same;
        known.frames.drain(..known.frames.len() - same);
        let mut named = Vec::with_capacity(walk.frames.len());
        for raw in walk.frames.get(..new)? {
            named.push((*raw, self.codes.get(memory, &self.layout, self.types, raw.code)?));
        }
        named.extend(walk.frames.get(new..)?.iter().copied().zip(known.frames.drain(..).map(|(_, code)| code)));
        known.frames = named;
        Some(known.frames.iter().map(|(raw, code)| self.layout.frame(raw, code)).collect())
    }

    /// The frames that did not change, if their outermost frame is that of the thread.
    fn stable(&mut self, memory: &Memory, thread: u64) -> Result<Option<Walk>, Unreadable> {
        let mut walk = self.walk(memory, thread)?;
        let before = self.known.get(&thread).map_or(&[][..], |known| &known.frames);
        if !before.iter().map(|(frame, _)| frame).eq(&walk.frames) {
            for _ in 1..WALKS {
                let again = self.walk(memory, thread)?;
                let common = common(again.frames.iter(), walk.frames.iter());
                if walk.root != again.root || (common == 0 && !again.frames.is_empty()) {
                    return Ok(None);
                }
                // For a frame in both walks, the later position is more accurate.
                walk = again;
                walk.frames.drain(..walk.frames.len() - common);
            }
        }
        if let Some(root) = walk.root {
            let known = self.known.entry(thread).or_default();
            if std::mem::replace(&mut known.root, root) != root {
                return Ok(None);
            }
        }
        Ok(Some(walk))
    }

    /// Holder of the lock, and its thread state or that of the one before.
    fn lock(&self, memory: &Memory, thread: ThreadAddress) -> Result<(Lock, u64), Unreadable> {
        let gil = match self.layout.gil.place {
            GilPlace::Runtime(offset) => self.runtime.wrapping_add(offset as u64),
            GilPlace::Interpreter(pointer) => memory.u64(thread.interpreter.wrapping_add(pointer as u64))?,
        };
        let layout = self.layout.gil;
        let mut lock = [0; 256];
        let lock = lock.get_mut(..layout.locked.max(layout.last_holder) + 8).ok_or(Unreadable(gil))?;
        memory.read(gil, lock)?;
        let locked = u32_at(lock, layout.locked).ok_or(Unreadable(gil))?;
        let holder = u64_at(lock, layout.last_holder).ok_or(Unreadable(gil))?;
        let lock = match locked {
            1 if holder == thread.state => Lock::ThisThread,
            1 => Lock::OtherThread,
            _ => Lock::Free,
        };
        Ok((lock, holder))
    }

    /// The innermost frame of a thread, and the start of its newest chunk of frames, or 0.
    fn innermost(&self, memory: &Memory, thread: u64) -> Result<(u64, u64), Unreadable> {
        let layout = self.layout.thread;
        let frame = match layout.frame {
            FramePointer::Direct(offset) | FramePointer::Through(offset, _) => offset,
        };
        let mut state = [0; 1024];
        let end = frame.max(layout.chunk.unwrap_or(0)) + 8;
        let state = state.get_mut(..end).ok_or(Unreadable(thread))?;
        memory.read(thread, state)?;
        let word = |offset| u64_at(state, offset).ok_or(Unreadable(thread));
        let chunk = layout.chunk.map_or(Ok(0), word)?;
        let pointer = word(frame)?;
        Ok(match layout.frame {
            FramePointer::Direct(_) => (pointer, chunk),
            FramePointer::Through(_, offset) => (memory.u64(pointer.wrapping_add(offset as u64))?, chunk),
        })
    }

    fn walk(&mut self, memory: &Memory, thread: u64) -> Result<Walk, Unreadable> {
        let begun = Instant::now();
        let (frames, root) = self.frames(memory, thread)?;
        Ok(Walk { frames, root, read: (begun, Instant::now()) })
    }

    /// Frames and outermost frame of a [`Walk`].
    fn frames(&mut self, memory: &Memory, thread: u64) -> Result<(Vec<RawFrame>, Option<u64>), Unreadable> {
        let (innermost, chunk) = self.innermost(memory, thread)?;
        let block = self.read_block(memory, chunk, innermost)?;
        let mut frames = Vec::with_capacity(MAX_FRAMES);
        let mut address = innermost;
        let (mut last, mut is_generator) = (0, false);
        for _ in 0..MAX_STEPS {
            if address == 0 {
                return if is_generator { Err(Unreadable(last)) } else { Ok((frames, Some(last))) };
            }
            if frames.len() == MAX_FRAMES {
                break;
            }
            last = address;
            let step = match self.in_block(block, address) {
                Some(bytes) => self.decode(address, bytes)?,
                None => self.read_frame(memory, address)?,
            };
            frames.extend(step.frame);
            (address, is_generator) = (step.previous, step.is_generator);
        }
        Ok((frames, None))
    }

    fn read_frame(&self, memory: &Memory, address: u64) -> Result<Step, Unreadable> {
        let mut bytes = [0; 1024];
        let bytes = bytes.get_mut(..self.layout.frame.size).ok_or(Unreadable(address))?;
        memory.read(address, bytes)?;
        self.decode(address, bytes)
    }

    fn decode(&self, address: u64, bytes: &[u8]) -> Result<Step, Unreadable> {
        let layout = &self.layout.frame;
        let word = |offset| u64_at(bytes, offset).ok_or(Unreadable(address));
        let previous = word(layout.previous)?;
        let (is_python, is_generator) = match layout.kind {
            KindField::Generator(offset) => (true, word(offset)? != 0),
            KindField::Owner(offset) => {
                let owner = *bytes.get(offset).ok_or(Unreadable(address))?;
                (owner < NOT_PYTHON, owner == GENERATOR)
            }
        };
        if !is_python {
            return Ok(Step { frame: None, is_generator, previous });
        }
        let place = match layout.instruction {
            Instruction::Index(offset, unit) => {
                let index = u32_at(bytes, offset).ok_or(Unreadable(address))?.cast_signed();
                u32::try_from(index)
                    .map_or(CodePosition::Begin, |index| CodePosition::Offset(index.saturating_mul(unit)))
            }
            Instruction::Pointer(offset) => CodePosition::Address(word(offset)?),
        };
        let frame = RawFrame { address, code: word(layout.code)? & !TAG_BITS, place };
        Ok(Step { frame: Some(frame), is_generator, previous })
    }

    /// Reads the chunk with the newest frames up to the innermost one. Returns its start, or `None` if the
    /// version has no chunks, or if the innermost frame is elsewhere (as that of a generator is).
    fn read_block(&mut self, memory: &Memory, begin: u64, innermost: u64) -> Result<Option<u64>, Unreadable> {
        let length = innermost.wrapping_add(self.layout.frame.size as u64).wrapping_sub(begin);
        if begin == 0 || length > MAX_BLOCK {
            return Ok(None);
        }
        self.block.resize(length as usize, 0);
        memory.read(begin, &mut self.block)?;
        Ok(Some(begin))
    }

    fn in_block(&self, begin: Option<u64>, address: u64) -> Option<&[u8]> {
        let offset = usize::try_from(address.checked_sub(begin?)?).ok()?;
        self.block.get(offset..offset.checked_add(self.layout.frame.size)?)
    }
}

/// Number of outermost calls that two stacks have in common; both are innermost first.
fn common<'a>(
    one: impl DoubleEndedIterator<Item = &'a RawFrame>,
    other: impl DoubleEndedIterator<Item = &'a RawFrame>,
) -> usize {
    let is_same_call = |(one, other): &(&RawFrame, &RawFrame)| one.address == other.address && one.code == other.code;
    one.rev().zip(other.rev()).take_while(is_same_call).count()
}

impl Layout {
    fn frame(&self, raw: &RawFrame, code: &Code) -> Frame {
        let at = match raw.place {
            CodePosition::Offset(offset) => Some(offset),
            CodePosition::Address(address) => {
                let begin = raw.code.saturating_add(self.code.instructions as u64);
                address.checked_sub(begin).and_then(|offset| u32::try_from(offset).ok())
            }
            CodePosition::Begin => None,
        };
        Frame { function: code.function.clone(), file: code.file.clone(), line: code.line(at) }
    }

    /// Location of the function's bytecode, if this version stores it in the code object.
    fn bytecode(&self, raw: &RawFrame, code: &Arc<Code>) -> Option<Bytecode> {
        match self.frame.instruction {
            Instruction::Pointer(_) => {
                let begin = raw.code.saturating_add(self.code.instructions as u64);
                Some(Bytecode { begin, code: Arc::clone(code) })
            }
            Instruction::Index(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;

    /// Arbitrary memory: noise, and pointers into the same memory.
    #[test]
    fn memory_that_holds_something_else_gives_no_stack() {
        let memory = Memory::open(&Process::this()).unwrap();
        let mut words = vec![0_u64; 8192];
        let begin = words.as_ptr().expose_provenance() as u64;
        let mut state = 1_u64;
        for round in 0..200 {
            for word in &mut words {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let inside = begin + (state >> 40) % 60_000;
                *word = [inside, inside & !7, state, state >> 48][(state >> 33) as usize % 4];
            }
            for minor in 9..=12 {
                let layout = Layout::of_minor(minor).unwrap();
                // This address occurs nowhere in the noise, so no object in it is a code object.
                let types = Types { code: u64::MAX - 1, text: begin, bytes: begin };
                let mut walker = Walker::new(layout, types, begin);
                let thread = ThreadAddress { state: begin + round * 8, interpreter: begin + round * 16 };
                for _ in 0..3 {
                    let sample = walker.sample(&memory, thread);
                    assert!(sample.is_none_or(|(sample, _)| sample.frames.is_empty()));
                }
            }
        }
    }
}
