//! One stack out of a native and a Python one.
//!
//! The Python functions stand for the interpreter's own frames, and what the innermost of them called in C or C++ goes
//! on top: `step (train.py:27) -> THPVariable_add -> at::native::add`. Native functions between two Python ones, and
//! those that started the interpreter, are left out.
//!
//! Of a thread that waits both stacks are of the same moment. Of one that runs they are not: the native one was copied
//! some milliseconds before, perhaps in another function. They are put together only if the native frame of the
//! interpreter held a pointer to an instruction of the line that Python's stack names, or the thread was in the same
//! lines before and after.

use super::{End, Function, NativeStack};
use crate::python::{Bytecode, Frame};

/// When two stacks were taken.
#[derive(Clone, Copy, Debug)]
pub enum Taken<'a> {
    /// While the thread waited, both in the same wait.
    Together,
    /// The native stack earlier, as the thread ran. With the bytecode of the innermost Python function, where the
    /// version tells it, and the Python stack before it.
    Earlier(Option<&'a Bytecode>, &'a [Frame]),
}

/// The two as one, innermost first. `None` when they do not belong together.
#[must_use]
pub fn merge(native: &NativeStack, python: &[Frame], taken: Taken<'_>) -> Option<Vec<Frame>> {
    let Some(innermost) = python.first() else { return Some(native_frames(native)) };
    let (called, words) = match &native.end {
        End::Interpreter(words) => (native.functions.len().saturating_sub(1), words.as_slice()),
        // What is known are the innermost functions; the interpreter is somewhere below them.
        End::Cut(_) => (native.functions.len(), &[][..]),
        End::Outermost => return None,
    };
    if let Taken::Earlier(bytecode, before) = taken {
        let points = |bytecode: &Bytecode| words.iter().any(|&word| bytecode.is_at(word, innermost.line));
        if !bytecode.is_some_and(points) && before != python {
            return None;
        }
    }
    let mut frames = native_frames(native);
    frames.truncate(called);
    frames.extend_from_slice(python);
    Some(frames)
}

/// The functions of a native stack as frames, innermost first.
#[must_use]
pub fn native_frames(native: &NativeStack) -> Vec<Frame> {
    native.functions.iter().map(|function| frame(function)).collect()
}

/// A native function in a stack: without a line.
fn frame(function: &Function) -> Frame {
    Frame { function: function.name.clone(), file: function.file.clone(), line: 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Cut;
    use super::*;

    fn native(names: &[&str], end: End) -> NativeStack {
        let function =
            |name: &&str| Arc::new(Function { name: (*name).into(), file: "lib.so".into(), runs_python: false });
        NativeStack { functions: names.iter().map(function).collect(), end }
    }

    fn python(line: u32) -> Vec<Frame> {
        ["step", "main"].map(|name| Frame { function: name.into(), file: "train.py".into(), line }).into()
    }

    fn names(frames: Option<Vec<Frame>>) -> Option<Vec<String>> {
        frames.map(|frames| frames.iter().map(|frame| frame.function.to_string()).collect())
    }

    #[test]
    fn called_functions_go_on_top_of_python() {
        let whole = native(&["add", "call", "_PyEval_EvalFrameDefault"], End::Interpreter(vec![]));
        let merged = names(merge(&whole, &python(1), Taken::Together)).unwrap();
        assert_eq!(merged, ["add", "call", "step", "main"]);
        let cut = native(&["futex_wait"], End::Cut(Cut::UnknownRegister));
        assert_eq!(names(merge(&cut, &python(1), Taken::Together)).unwrap(), ["futex_wait", "step", "main"]);
        let alone = native(&["work", "start_thread"], End::Outermost);
        assert_eq!(names(merge(&alone, &[], Taken::Together)).unwrap(), ["work", "start_thread"]);
        assert_eq!(merge(&alone, &python(1), Taken::Together), None, "a thread in Python has an interpreter below");
    }

    #[test]
    fn stacks_of_different_moments_are_merged_only_if_the_thread_stood_still() {
        let whole = native(&["add", "_PyEval_EvalFrameDefault"], End::Interpreter(vec![1, 2, 3]));
        let merged = |before: &[Frame]| names(merge(&whole, &python(7), Taken::Earlier(None, before)));
        assert_eq!(merged(&python(6)), None);
        assert_eq!(merged(&python(7)).unwrap(), ["add", "step", "main"]);
        let cut = native(&["add"], End::Cut(Cut::Unreadable));
        assert_eq!(names(merge(&cut, &python(7), Taken::Earlier(None, &python(7)))).unwrap(), ["add", "step", "main"]);
        assert_eq!(merge(&cut, &python(7), Taken::Earlier(None, &[])), None);
    }
}
