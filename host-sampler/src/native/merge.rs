//! Merges a native and a Python stack.
//!
//! The Python functions replace the interpreter's own frames, and the C or C++ functions called by the
//! innermost one are put on top: `step (train.py:27) -> THPVariable_add -> at::native::add`. Native functions
//! between two Python functions, and those that started the interpreter, are left out.
//!
//! For a waiting thread, both stacks were taken in the same wait. For a running thread, they were not: the
//! native one was copied some milliseconds earlier, possibly in another function. They are merged only if the
//! native frame of the interpreter contained a pointer to an instruction of the line in Python's stack, or if
//! the thread was in the same lines before and after.

use super::{End, Function, NativeStack};
use crate::python::{Bytecode, Frame};

/// Relation of the times at which two stacks were taken.
#[derive(Clone, Copy, Debug)]
pub enum Taken<'a> {
    /// Both in the same wait of the thread.
    Together,
    /// The native stack was taken earlier, while the thread ran. With the bytecode of the innermost Python
    /// function, if the Python version provides it, and the Python stack before the native one.
    Earlier(Option<&'a Bytecode>, &'a [Frame]),
}

/// The merged stack, innermost first. `None` if the two do not belong together.
pub fn merge(native: &NativeStack, python: &[Frame], taken: Taken<'_>) -> Option<Vec<Frame>> {
    let Some(innermost) = python.first() else { return Some(native_frames(native)) };
    let (called, words) = match &native.end {
        End::Interpreter(words) => (native.functions.len().saturating_sub(1), words.as_slice()),
        // Only the innermost functions are known; the interpreter is somewhere below them.
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

/// Functions of a native stack as frames, innermost first.
pub fn native_frames(native: &NativeStack) -> Vec<Frame> {
    native.functions.iter().map(|function| frame(function)).collect()
}

/// Frame of a native function, which has no line.
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
