//! Interns stacks in the dictionary: on the collector's thread, which owns it.

use std::sync::Arc;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{self, StackId};
use host_sampler::python::Frame;
use profiler_core::attribution::is_generated;

use crate::sampler::generated::GeneratedFiles;

/// Maximum number of frames in the dictionary, 16 bytes each: a program that generates functions must not
/// fill memory.
const MAX_FRAMES: usize = 1 << 18;

/// Interns stacks, and caches the last one: a thread that sleeps is in the same place for many samples.
#[derive(Debug)]
pub struct PythonStacks {
    last: Option<(Arc<[Frame]>, StackId)>,
    generated: GeneratedFiles,
}

impl PythonStacks {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self { last: None, generated: GeneratedFiles::default() }
    }

    /// Returns the id of a stack, innermost frame first; [`StackId::NONE`] for an empty one. `None` if the
    /// dictionary is full.
    pub fn intern(&mut self, frames: &Arc<[Frame]>, dictionary: &mut Dictionary) -> Option<StackId> {
        if let Some((last, id)) = &self.last
            && Arc::ptr_eq(last, frames)
        {
            return Some(*id);
        }
        if dictionary.frames().len() >= MAX_FRAMES {
            return None;
        }
        let mut caller = StackId::NONE;
        for Frame { function, file, line } in frames.iter().rev() {
            let operators = if is_generated(file) { self.generated.operators(file, *line) } else { None };
            let function = dictionary.intern_name(operators.as_ref().unwrap_or(function));
            let file = dictionary.intern_name(file);
            caller = dictionary.intern_frame(record::Frame { caller, function, file, line: *line });
        }
        self.last = Some((Arc::clone(frames), caller));
        Some(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_their_outer_frames() {
        let frame = |function: &str, line| Frame { function: function.into(), file: "train.py".into(), line };
        let inner: Arc<[Frame]> = Arc::new([frame("load", 7), frame("step", 5), frame("<module>", 9)]);
        let outer: Arc<[Frame]> = Arc::new([frame("step", 5), frame("<module>", 9)]);
        let (mut stacks, mut dictionary) = (PythonStacks::new(), Dictionary::new());
        let first = stacks.intern(&inner, &mut dictionary).unwrap();
        assert_eq!(stacks.intern(&inner, &mut dictionary), Some(first));
        let second = stacks.intern(&outer, &mut dictionary).unwrap();
        assert_eq!(dictionary.frames().len(), 3);
        let names = |id| dictionary.stack(id).map(|frame| dictionary.name(frame.function)).collect::<Vec<_>>();
        assert_eq!((names(first), names(second)), (vec!["load", "step", "<module>"], vec!["step", "<module>"]));
        let none: Arc<[Frame]> = Arc::new([]);
        assert_eq!(stacks.intern(&none, &mut dictionary), Some(StackId::NONE));
    }
}
