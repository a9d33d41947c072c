//! Evidence from a single host sample where no CUDA call was recorded: the parts of the thread's time by
//! cause, and the CUDA call that its native stack shows.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{HostSample, StackId};
use rustc_hash::FxHashMap;

use super::host::interpreter_lock::Others;
use super::host::samples::HostSampleView;
use super::host_cause::HostCause;
use super::stacks::{Stacks, is_native};
use crate::api::ApiClass;

/// Stacks with a cached call (12 bytes each); further ones are searched each time.
const STACK_LIMIT: usize = 65_536;
/// Maximum native frames examined per stack, starting at the innermost.
const DEPTH_LIMIT: usize = 256;

/// CUDA call shown by a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallSeen {
    /// The sample has no native functions, so a call would not be visible.
    Unseen,
    /// Native functions, but none of CUDA's.
    Outside,
    /// Within a call of this class.
    Inside(ApiClass),
    /// Within CUDA's libraries, in an unknown function.
    InsideUnknown,
}

/// A classified sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostActivity {
    /// Time since the previous sample by cause: on a core, ready for one, off. Sums to that time,
    /// nanoseconds.
    pub parts: [(HostCause, u64); 3],
    /// CUDA call shown by the stack.
    pub call: CallSeen,
}

/// Classifies samples and caches stacks.
#[derive(Debug, Default)]
pub(crate) struct HostActivities {
    stacks: Stacks,
    calls: FxHashMap<StackId, CallSeen>,
}

impl HostActivities {
    pub(crate) fn judge(&mut self, sample: &HostSample, dictionary: &Dictionary) -> HostActivity {
        let view = HostSampleView::new(sample, self.stacks.get(sample.stack, dictionary), Others::default());
        let parts = view.split(sample.at.since(sample.since));
        let call = match (self.call(sample.stack, dictionary), sample.earlier) {
            (CallSeen::Unseen, Some(earlier)) => self.call(earlier, dictionary),
            (seen, _) => seen,
        };
        HostActivity { parts, call }
    }

    fn call(&mut self, stack: StackId, dictionary: &Dictionary) -> CallSeen {
        if let Some(&seen) = self.calls.get(&stack) {
            return seen;
        }
        let mut seen = CallSeen::Unseen;
        // The outermost CUDA function is the one that the program called.
        let native = dictionary.stack(stack).take(DEPTH_LIMIT);
        for frame in native.take_while(|frame| frame.line == 0 && is_native(dictionary.name(frame.file))) {
            let (function, file) = (dictionary.name(frame.function), dictionary.name(frame.file));
            seen = match seen {
                _ if is_cuda_function(function) => CallSeen::Inside(ApiClass::of(function)),
                CallSeen::Unseen | CallSeen::Outside if file.starts_with("libcuda") => CallSeen::InsideUnknown,
                CallSeen::Unseen => CallSeen::Outside,
                seen => seen,
            };
        }
        if self.calls.len() < STACK_LIMIT {
            self.calls.insert(stack, seen);
        }
        seen
    }
}

/// `cuLaunchKernel`, `cudaMemcpy`: a CUDA prefix followed by a capital letter.
fn is_cuda_function(name: &str) -> bool {
    let stem = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"));
    stem.is_some_and(|stem| stem.starts_with(|first: char| first.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Frame;

    fn call(frames: &[(&str, &str, u32)]) -> CallSeen {
        let mut dictionary = Dictionary::new();
        let stack = frames.iter().rev().fold(StackId::NONE, |caller, &(file, function, line)| {
            let (function, file) = (dictionary.intern_name(function), dictionary.intern_name(file));
            dictionary.intern_frame(Frame { caller, function, file, line })
        });
        let sample = HostSample { stack, ..HostSample::default() };
        let mut activities = HostActivities::default();
        assert_eq!(activities.judge(&sample, &dictionary).call, activities.judge(&sample, &dictionary).call);
        activities.judge(&sample, &dictionary).call
    }

    #[test]
    fn the_outermost_function_of_cuda_is_the_call() {
        let train = ("/home/u/train.py", "main", 42);
        let inner = ("libcuda.so.1 build-id:00ff", "libcuda.so.1+0x1234", 0);
        let torch = ("libtorch_cuda.so", "at::native::gpu_kernel", 0);
        let driver = ("libcuda.so.1", "cuLaunchKernel", 0);
        let runtime = ("libcudart.so.12", "cudaStreamSynchronize", 0);
        assert_eq!(call(&[inner, driver, torch, train]), CallSeen::Inside(ApiClass::KernelLaunch));
        assert_eq!(call(&[inner, driver, runtime, torch, train]), CallSeen::Inside(ApiClass::Synchronize));
        assert_eq!(call(&[inner, torch, train]), CallSeen::InsideUnknown);
        assert_eq!(call(&[torch, train]), CallSeen::Outside);
        assert_eq!(call(&[("libcuda_user.so", "custom", 0), train]), CallSeen::InsideUnknown, "not claimed as outside");
        assert_eq!(call(&[train]), CallSeen::Unseen);
        assert_eq!(call(&[]), CallSeen::Unseen);
        assert_eq!(call(&[("app", "cut", 0)]), CallSeen::Outside, "a name of the program's own");
    }
}
