//! What a stack says, found once for each stack: the stage of a data loader, and the line to name.
//!
//! The line is the innermost one of the user's own Python code, because that is what can be changed; where it called
//! into a library, that function stands beside it: the innermost native one, if there is one outside of the C library
//! and the interpreter, else the innermost Python one. For a wait in a data loader it is the line that asked for the
//! batch. A stack without Python names its innermost function.

use rustc_hash::FxHashMap;

use super::loaders::{Stage, is_library, is_native, is_system, stage_of, waits};
use crate::dictionary::Dictionary;
use crate::record::{Frame, NameId, StackId};

/// Distinct lines that are told apart (32 bytes each with their index); samples at further ones name none.
const LINE_LIMIT: usize = 16_384;
/// Stacks whose class is remembered (16 bytes each); further ones are looked through each time.
const STACK_LIMIT: usize = 65_536;
/// Frames of a stack that are looked at, from the innermost.
const DEPTH_LIMIT: usize = 256;

/// Index of a [`HostLine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(u32);

impl LineId {
    /// No line is known.
    pub const NONE: Self = Self(u32::MAX);
}

/// A line of the program, as evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostLine {
    /// Qualified name of the function.
    pub function: NameId,
    /// File.
    pub file: NameId,
    /// Line number, from 1; 0 when unknown, and for a native function.
    pub line: u32,
    /// Function and file of what it called: the innermost frame, or the innermost native one that is not of the system.
    pub within: Option<(NameId, NameId)>,
}

/// What is known of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackClass {
    pub(super) stage: Option<Stage>,
    pub(super) line: LineId,
    /// The innermost frame waits for another thread or process on purpose.
    pub(super) waits: bool,
}

/// Classes by stack, and the lines they name.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    classes: FxHashMap<StackId, StackClass>,
    lines: Vec<HostLine>,
    line_ids: FxHashMap<HostLine, LineId>,
}

impl Stacks {
    /// The class of `stack`. One that the dictionary does not know says nothing and is not remembered.
    pub(super) fn get(&mut self, stack: StackId, dictionary: &Dictionary) -> StackClass {
        if let Some(&class) = self.classes.get(&stack) {
            return class;
        }
        let frames: Vec<Frame> = dictionary.stack(stack).take(DEPTH_LIMIT).collect();
        // Native functions lie above Python's.
        let native =
            frames.iter().take_while(|frame| frame.line == 0 && is_native(dictionary.name(frame.file))).count();
        let (native, python) = frames.split_at(native);
        let called = native.iter().find(|frame| !is_system(dictionary.name(frame.file)));
        let Some(innermost) = called.or(python.first()).or(native.first()) else {
            return StackClass { stage: None, line: LineId::NONE, waits: false };
        };
        let frames = python;
        let loader = frames.iter().enumerate().find_map(|(index, frame)| {
            Some((index, stage_of(dictionary.name(frame.file), dictionary.name(frame.function))?))
        });
        let users = |frames: &[Frame]| frames.iter().find(|frame| !is_library(dictionary.name(frame.file))).copied();
        let named = match loader {
            // Work on this thread: the user's line inside the loader, else the one that asked for the batch.
            Some((index, Stage::Inline | Stage::Collate)) => {
                users(&frames[..index]).or_else(|| users(&frames[index..]))
            }
            Some((index, _)) => users(&frames[index..]),
            None => users(frames),
        }
        .or(frames.first().copied())
        .unwrap_or(*innermost);
        let elsewhere = (named.function, named.file) != (innermost.function, innermost.file);
        let line = HostLine {
            function: named.function,
            file: named.file,
            line: named.line,
            within: elsewhere.then_some((innermost.function, innermost.file)),
        };
        let class = StackClass {
            stage: loader.map(|(_, stage)| stage),
            line: self.line_id(line),
            waits: frames.first().is_some_and(|frame| waits(dictionary.name(frame.file))),
        };
        if self.classes.len() < STACK_LIMIT {
            self.classes.insert(stack, class);
        }
        class
    }

    /// The line behind `id`.
    pub(super) fn line(&self, id: LineId) -> Option<&HostLine> {
        self.lines.get(id.0 as usize)
    }

    fn line_id(&mut self, line: HostLine) -> LineId {
        if let Some(&id) = self.line_ids.get(&line) {
            return id;
        }
        if self.lines.len() >= LINE_LIMIT {
            return LineId::NONE;
        }
        let id = LineId(self.lines.len() as u32);
        self.lines.push(line);
        self.line_ids.insert(line, id);
        id
    }
}

/// The line that a stack stands for; `None` when nothing is known of it.
pub(crate) fn line_of(stack: StackId, dictionary: &Dictionary) -> Option<HostLine> {
    let mut stacks = Stacks::default();
    let class = stacks.get(stack, dictionary);
    stacks.line(class.line).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(dictionary: &mut Dictionary, frames: &[(&str, &str, u32)]) -> StackId {
        frames.iter().rev().fold(StackId::NONE, |caller, &(file, function, line)| {
            let (function, file) = (dictionary.intern_name(function), dictionary.intern_name(file));
            dictionary.intern_frame(Frame { caller, function, file, line })
        })
    }

    /// Stage, file of the named line, and the line.
    fn judged(frames: &[(&str, &str, u32)]) -> (Option<Stage>, String, u32) {
        let mut dictionary = Dictionary::new();
        let id = stack(&mut dictionary, frames);
        let mut stacks = Stacks::default();
        let class = stacks.get(id, &dictionary);
        let line = stacks.line(class.line).unwrap();
        (class.stage, dictionary.name(line.file).to_owned(), line.line)
    }

    const FETCH: (&str, &str, u32) = ("/lib/python3.12/site-packages/torch/utils/data/_utils/fetch.py", "fetch", 50);
    const NEXT: (&str, &str, u32) = ("/lib/python3.12/site-packages/torch/utils/data/dataloader.py", "__next__", 700);
    const TRAIN: (&str, &str, u32) = ("/home/u/train.py", "main", 42);

    #[test]
    fn a_loader_on_this_thread_names_the_line_of_the_data_set() {
        let frames = [("/home/u/data.py", "Images.__getitem__", 7), FETCH, NEXT, TRAIN];
        assert_eq!(judged(&frames), (Some(Stage::Inline), "/home/u/data.py".to_owned(), 7));
        assert_eq!(judged(&[FETCH, NEXT, TRAIN]), (Some(Stage::Inline), "/home/u/train.py".to_owned(), 42));
    }

    #[test]
    fn a_wait_names_the_line_that_asked() {
        let queue = ("/lib/python3.12/queue.py", "Queue.get", 180);
        assert_eq!(judged(&[queue, NEXT, TRAIN]), (Some(Stage::Next), "/home/u/train.py".to_owned(), 42));
        assert_eq!(judged(&[queue, TRAIN]), (None, "/home/u/train.py".to_owned(), 42));
        assert_eq!(judged(&[queue]), (None, "/lib/python3.12/queue.py".to_owned(), 180));
    }

    /// Line and what it called.
    fn named(frames: &[(&str, &str, u32)]) -> (String, Option<String>) {
        let mut dictionary = Dictionary::new();
        let id = stack(&mut dictionary, frames);
        let mut stacks = Stacks::default();
        let class = stacks.get(id, &dictionary);
        let line = stacks.line(class.line).unwrap();
        let within = line.within.map(|(function, _)| dictionary.name(function).to_owned());
        (dictionary.name(line.function).to_owned(), within)
    }

    #[test]
    fn native_functions_stand_beside_the_line_that_called_them() {
        let add = ("libtorch_cpu.so", "at::native::add", 0);
        let copy = ("libc.so.6", "memcpy", 0);
        let linear = ("/lib/python3.12/site-packages/torch/nn/modules/linear.py", "Linear.forward", 125);
        let both = |line: &str, within: &str| (line.to_owned(), Some(within.to_owned()));
        assert_eq!(named(&[copy, add, linear, TRAIN]), both("main", "at::native::add"));
        assert_eq!(named(&[copy, linear, TRAIN]), both("main", "Linear.forward"), "the C library says nothing");
        assert_eq!(named(&[copy, TRAIN]), ("main".to_owned(), None));
        assert_eq!(named(&[copy, add, linear]), both("Linear.forward", "at::native::add"));
        assert_eq!(named(&[copy, add, ("libc.so.6", "start_thread", 0)]), ("at::native::add".to_owned(), None));
        assert_eq!(named(&[copy]), ("memcpy".to_owned(), None));
        assert_eq!(
            named(&[copy, add, ("/home/u/data.py", "Images.__getitem__", 7), FETCH, NEXT, TRAIN]).0,
            "Images.__getitem__"
        );
        let (stage, ..) = judged(&[copy, ("python3.12", "lock_acquire", 0), FETCH, NEXT, TRAIN]);
        assert_eq!(stage, Some(Stage::Inline));
    }

    #[test]
    fn unknown_stacks_say_nothing_and_tables_are_bounded() {
        let mut dictionary = Dictionary::new();
        let mut stacks = Stacks::default();
        assert_eq!(stacks.get(StackId::NONE, &dictionary).line, LineId::NONE);
        for line in 0..LINE_LIMIT as u32 + 2 {
            let id = stack(&mut dictionary, &[("a.py", "f", line)]);
            let known = stacks.get(id, &dictionary).line != LineId::NONE;
            assert_eq!(known, line < LINE_LIMIT as u32);
        }
    }
}
