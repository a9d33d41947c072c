//! Source lines of kernel launches, from samples of the launching threads that fell into their launches.
//!
//! A sample shows the line of a launch if it lies within the launching call of its thread, or in the host gap
//! directly before that call and the gap is at most [`DISPATCH_NANOS`] long: there the framework prepares the
//! launch. The launch is then marked, and the operation that joins it supplies the kernel's name, or the
//! graph. The result is a set of counts by work and place: how many samples saw a launch of this kernel at
//! this line. A launch without samples uses no memory.
//!
//! Samples and calls from before a flush mark come in any order. By the flush that places a call, all samples
//! up to its end have arrived.

use std::collections::VecDeque;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Frame, NameId, StackId};
use rustc_hash::FxHashMap;

use super::launches::LaunchCall;
use super::stacks::{self, is_library};
use crate::attribution::api::ApiClass;
use crate::attribution::host_cause::Subject;
use crate::attribution::operation::DeviceOperation;
use crate::thresholds::DISPATCH_NANOS;

/// Total samples of all threads that wait for their call (16 bytes each), split equally, but at least
/// [`FEWEST_SAMPLES`] per thread.
const SAMPLES_TOGETHER: usize = 1 << 16;
const FEWEST_SAMPLES: usize = 64;
/// Sampled launches that wait for their operation, and the maximum number of samples per launch.
const AWAITED_LIMIT: usize = 16_384;
const SAMPLES_OF_LAUNCH: usize = 64;
/// Rows by work and place, 24 bytes each with their index.
const TOTALS_LIMIT: usize = 65_536;
/// Graphs whose kernels are summed.
const GRAPH_LIMIT: usize = 4_096;

/// Work started by a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaunchedWork {
    /// A kernel of this name.
    Kernel(NameId),
    /// A CUDA graph, by CUPTI's id; 0 when the records do not say.
    Graph(u32),
}

/// Counts of launching threads' samples by where they fell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchSampleCounts {
    /// Samples in the launch of a kernel or a graph, or in the host gap directly before it.
    pub in_launches: u64,
    /// Samples in launches of copies and memsets.
    pub in_copies: u64,
    /// Samples between launches, or in other calls.
    pub elsewhere: u64,
    /// Samples in launches that got no row because a table is full.
    pub overflow: u64,
    /// Samples in launches that left no record, or none yet.
    pub without_record: u64,
}

/// Kernels that one graph ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphKernels {
    /// Number of kernels.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
}

/// Samples of one thread that wait for their call, in time order.
#[derive(Debug, Default)]
pub(crate) struct LaunchSamples {
    waiting: VecDeque<(u64, StackId)>,
    /// Samples dropped because no call arrived for too long.
    dropped: u64,
}

impl LaunchSamples {
    pub(crate) fn push(&mut self, at: u64, stack: StackId) {
        // A sample is almost always the newest one.
        let index = match self.waiting.back() {
            Some(&(last, _)) if last > at => self.waiting.partition_point(|&(known, _)| known <= at),
            _ => self.waiting.len(),
        };
        self.waiting.insert(index, (at, stack));
    }

    /// True if a sample taken up to `end` is waiting.
    #[inline]
    pub(crate) fn any_until(&self, end: u64) -> bool {
        self.waiting.front().is_some_and(|&(at, _)| at <= end)
    }

    /// Removes the oldest sample if it was taken up to `end`.
    fn take_until(&mut self, end: u64) -> Option<(u64, StackId)> {
        if self.any_until(end) { self.waiting.pop_front() } else { None }
    }

    /// Limits the samples to this thread's share among `threads`.
    pub(crate) fn limit(&mut self, threads: usize) {
        let limit = (SAMPLES_TOGETHER / threads.max(1)).max(FEWEST_SAMPLES);
        if self.waiting.len() > limit {
            let excess = self.waiting.len() - limit;
            self.waiting.drain(..excess);
            self.waiting.shrink_to(2 * limit);
            self.dropped += excess as u64;
        }
    }
}

/// An outermost call that samples may have fallen into; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledCall {
    /// Index of the thread.
    pub(crate) thread: u32,
    /// End of the previous call on that thread; 0 for the first.
    pub(crate) before: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Kind of launch; `None` if the call launches no work.
    pub(crate) launches: Option<ApiClass>,
}

/// Counts of sampled launches. See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct LaunchLines {
    places: Places,
    /// Places of the samples in a launch, by its thread and start, until its operation arrives.
    awaited: FxHashMap<(u32, u64), Vec<PlaceId>>,
    /// The same launches in order of placement; some have been joined since.
    order: VecDeque<(u32, u64)>,
    all_totals: FxHashMap<(LaunchedWork, PlaceId), u64>,
    graphs: FxHashMap<u32, GraphKernels>,
    counts: LaunchSampleCounts,
}

impl LaunchLines {
    /// Assigns the samples up to the end of a call to that call, or to none. Returns true if the launch is to
    /// be joined.
    #[cold]
    #[inline(never)]
    pub(crate) fn placed(&mut self, call: SampledCall, samples: &mut LaunchSamples, dictionary: &Dictionary) -> bool {
        let prepares = call.before > 0 && call.start.saturating_sub(call.before) <= DISPATCH_NANOS;
        let mut is_awaited = false;
        while let Some((at, stack)) = samples.take_until(call.end) {
            let is_in = at >= call.start || (prepares && at > call.before);
            match call.launches.filter(|_| is_in) {
                None => self.counts.elsewhere += 1,
                Some(ApiClass::KernelLaunch | ApiClass::GraphLaunch) => {
                    self.counts.in_launches += 1;
                    is_awaited |= self.await_work((call.thread, call.start), stack, dictionary);
                }
                Some(_) => self.counts.in_copies += 1,
            }
        }
        is_awaited
    }

    fn await_work(&mut self, launch: (u32, u64), stack: StackId, dictionary: &Dictionary) -> bool {
        let Some(place) = self.places.get(stack, dictionary) else {
            self.counts.overflow += 1;
            return false;
        };
        let samples = self.awaited.entry(launch).or_default();
        if samples.is_empty() {
            self.order.push_back(launch);
        } else if samples.len() >= SAMPLES_OF_LAUNCH {
            // All samples come from one call that holds up the thread. The line is known, and one launch must
            // not outweigh all others.
            self.counts.overflow += 1;
            return true;
        }
        samples.push(place);
        if self.order.len() > AWAITED_LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            let lost = self.awaited.remove(&oldest).map_or(0, |samples| samples.len());
            self.counts.without_record += lost as u64;
        }
        true
    }

    /// An operation joined a launch that samples fell into.
    #[cold]
    #[inline(never)]
    pub(crate) fn joined(&mut self, launch: &LaunchCall, operation: &DeviceOperation) {
        let work = match (launch.class, operation.subject) {
            (ApiClass::GraphLaunch, _) => LaunchedWork::Graph(operation.graph_id),
            (_, Subject::Kernel(name)) => LaunchedWork::Kernel(name),
            // A kernel launch that left another kind of record identifies no kernel.
            _ => return,
        };
        // The first node of a graph takes the samples; later nodes find none.
        let Some(samples) = self.awaited.remove(&(launch.thread, launch.start)) else { return };
        for place in samples {
            let full = self.all_totals.len() >= TOTALS_LIMIT;
            match self.all_totals.get_mut(&(work, place)) {
                Some(count) => *count += 1,
                None if full => self.counts.overflow += 1,
                None => {
                    self.all_totals.insert((work, place), 1);
                }
            }
        }
        while self.order.front().is_some_and(|oldest| !self.awaited.contains_key(oldest)) {
            self.order.pop_front();
        }
    }

    pub(crate) fn graph_kernel(&mut self, graph: u32, nanos: u64) {
        let full = self.graphs.len() >= GRAPH_LIMIT && !self.graphs.contains_key(&graph);
        if !full {
            let kernels = self.graphs.entry(graph).or_default();
            kernels.count += 1;
            kernels.total_ns = kernels.total_ns.saturating_add(nanos);
        }
    }

    /// Number of samples in launches of each kernel or graph, by place.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (LaunchedWork, &LaunchPlace, u64)> {
        let row =
            |(&(work, place), &count): (&(LaunchedWork, PlaceId), &u64)| Some((work, self.places.place(place)?, count));
        self.all_totals.iter().filter_map(row)
    }

    /// Kernels of each graph, by CUPTI's graph id.
    pub(crate) fn graphs(&self) -> impl Iterator<Item = (u32, GraphKernels)> {
        self.graphs.iter().map(|(&graph, &kernels)| (graph, kernels))
    }

    /// Sample counts, including those of `threads` that belong to no call yet.
    pub(crate) fn counts<'a>(&self, threads: impl Iterator<Item = &'a LaunchSamples>) -> LaunchSampleCounts {
        let awaited: usize = self.awaited.values().map(Vec::len).sum();
        let rest: u64 = threads.map(|samples| samples.dropped + samples.waiting.len() as u64).sum();
        LaunchSampleCounts {
            elsewhere: self.counts.elsewhere + rest,
            without_record: self.counts.without_record + awaited as u64,
            ..self.counts
        }
    }
}

/// Maximum distinct places (56 bytes each, twice that with their index); samples at further ones are only
/// counted.
const PLACE_LIMIT: usize = 16_384;
/// Stacks with a cached place (12 bytes each); further ones are searched each time.
const STACK_LIMIT: usize = 65_536;
/// Maximum frames examined per stack, starting at the innermost.
const DEPTH_LIMIT: usize = 256;

/// Index of a [`LaunchPlace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PlaceId(u32);

/// Code location of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaunchPlace {
    /// Function of the innermost frame in the program's own code, or of the innermost frame if there is none.
    pub function: NameId,
    /// Its file.
    pub file: NameId,
    /// Its line, starting at 1; 0 if unknown, as for native frames.
    pub line: u32,
    /// Function and file of the innermost frame of the interpreter, if it is a different one.
    pub within: Option<(NameId, NameId)>,
    /// Function of the innermost frame that is the `forward` of a class: `Linear.forward`.
    pub module: Option<NameId>,
    /// Symbol of the innermost native frame that is one of PyTorch's operators.
    pub operator: Option<NameId>,
    /// Loaded file of the innermost native frame that belongs neither to CUDA's runtime and driver nor to the
    /// system.
    pub binary: Option<NameId>,
}

/// Places by stack: line, module and operator of a launch, and the library that made the call. Found once per
/// stack.
///
/// Stacks may hold frames of an interpreter, native frames, or both, with the native ones innermost. A native
/// frame has the symbol as its function, the name of the loaded file as its file, and no line.
#[derive(Debug, Default)]
pub(crate) struct Places {
    stacks: FxHashMap<StackId, PlaceId>,
    places: Vec<LaunchPlace>,
    ids: FxHashMap<LaunchPlace, PlaceId>,
}

impl Places {
    /// Place of `stack`; `None` if the stack is unknown or the table is full.
    pub(crate) fn get(&mut self, stack: StackId, dictionary: &Dictionary) -> Option<PlaceId> {
        if let Some(&place) = self.stacks.get(&stack) {
            return Some(place);
        }
        let frames: Vec<Frame> = dictionary.stack(stack).take(DEPTH_LIMIT).collect();
        let id = self.id(place_of(&frames, dictionary)?)?;
        if self.stacks.len() < STACK_LIMIT {
            self.stacks.insert(stack, id);
        }
        Some(id)
    }

    pub(crate) fn place(&self, id: PlaceId) -> Option<&LaunchPlace> {
        self.places.get(id.0 as usize)
    }

    fn id(&mut self, place: LaunchPlace) -> Option<PlaceId> {
        if let Some(&id) = self.ids.get(&place) {
            return Some(id);
        }
        if self.places.len() >= PLACE_LIMIT {
            return None;
        }
        let id = PlaceId(self.places.len() as u32);
        self.places.push(place);
        self.ids.insert(place, id);
        Some(id)
    }
}

/// Derives the place from the frames, innermost first.
fn place_of(frames: &[Frame], dictionary: &Dictionary) -> Option<LaunchPlace> {
    let file = |frame: &Frame| dictionary.name(frame.file);
    let function = |frame: &Frame| dictionary.name(frame.function);
    let (native, python): (Vec<&Frame>, Vec<&Frame>) =
        frames.iter().partition(|frame| is_native(file(frame), frame.line));
    let own = native.iter().find(|frame| !is_runtime(file(frame)));
    let operator = native.iter().find(|frame| is_operator(function(frame)));
    let line = match python.first() {
        Some(innermost) => python.iter().find(|frame| !is_library(file(frame))).unwrap_or(innermost),
        // A thread without an interpreter: the program's own code, else the operator, else the caller of
        // CUDA.
        None => {
            let of_program = native.iter().find(|frame| !is_shared_library(file(frame)) && !file(frame).is_empty());
            of_program.or(operator).or(own).or(native.first())?
        }
    };
    let within = python.first().filter(|innermost| (innermost.function, innermost.file) != (line.function, line.file));
    let module = python.iter().find(|frame| function(frame).ends_with(".forward"));
    Some(LaunchPlace {
        function: line.function,
        file: line.file,
        line: line.line,
        within: within.map(|frame| (frame.function, frame.file)),
        module: module.map(|frame| frame.function),
        operator: operator.map(|frame| frame.function),
        binary: own.map(|frame| frame.file),
    })
}

/// True if a frame is native: interpreter frames have a line, or a file that is source.
fn is_native(file: &str, line: u32) -> bool {
    line == 0 && (file.is_empty() || stacks::is_native(file))
}

fn is_shared_library(file: &str) -> bool {
    // For a file without symbols, its name is followed by its build id.
    let name = file.split(' ').next().unwrap_or(file);
    name.ends_with(".so") || name.contains(".so.")
}

/// System files, and files that every launch passes through.
const RUNTIME: [&str; 12] = [
    "libcuda.",
    "libcudart",
    "libcupti",
    "libprof.",
    "libnvToolsExt",
    "libc.so",
    "libc-2",
    "libpthread",
    "libstdc++",
    "libgcc_s",
    "ld-linux",
    "[",
];

/// True if a loaded file belongs to CUDA's runtime or driver, to the profiler or to the system.
fn is_runtime(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.is_empty() || RUNTIME.iter().any(|prefix| name.starts_with(prefix))
}

/// True if a symbol is a PyTorch operator: `at::_ops::addmm::call`, mangled or not. Source: PyTorch generates
/// one for each operator with `torchgen/gen.py` (`Operators.h`).
fn is_operator(symbol: &str) -> bool {
    symbol.contains("at::_ops::") || symbol.starts_with("_ZN2at4_ops")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINEAR: (&str, &str, u32) =
        ("/v/lib/python3.12/site-packages/torch/nn/modules/linear.py", "Linear.forward", 125);
    const CALL: (&str, &str, u32) =
        ("/v/lib/python3.12/site-packages/torch/nn/modules/module.py", "Module._call_impl", 1747);
    const MODEL: (&str, &str, u32) = ("/home/u/model.py", "Block.forward", 31);
    const TRAIN: (&str, &str, u32) = ("/home/u/train.py", "main", 42);
    const LAUNCH: (&str, &str, u32) = ("libcudart.so.12", "cudaLaunchKernel", 0);
    const CUBLAS: (&str, &str, u32) = ("libcublasLt.so.12", "cublasLtMatmul", 0);
    const ADDMM: (&str, &str, u32) = ("libtorch_cpu.so", "_ZN2at4_ops5addmm4callERKNS_6TensorE", 0);

    /// Line, function, within, module, operator and binary.
    fn columns(frames: &[(&str, &str, u32)]) -> [String; 6] {
        let mut dictionary = Dictionary::new();
        let stack = frames.iter().rev().fold(StackId::NONE, |caller, &(file, function, line)| {
            let (function, file) = (dictionary.intern_name(function), dictionary.intern_name(file));
            dictionary.intern_frame(Frame { caller, function, file, line })
        });
        let mut places = Places::default();
        let id = places.get(stack, &dictionary).unwrap();
        assert_eq!(places.get(stack, &dictionary), Some(id));
        let place = places.place(id).unwrap();
        let name = |id: Option<NameId>| id.map_or("-", |id| dictionary.name(id)).to_owned();
        [
            format!("{}:{}", dictionary.name(place.file), place.line),
            name(Some(place.function)),
            name(place.within.map(|(function, _)| function)),
            name(place.module),
            name(place.operator),
            name(place.binary),
        ]
    }

    #[test]
    fn the_line_is_the_programs_own_and_the_module_the_innermost() {
        assert_eq!(
            columns(&[LINEAR, CALL, MODEL, CALL, TRAIN]),
            ["/home/u/model.py:31", "Block.forward", "Linear.forward", "Linear.forward", "-", "-"]
        );
        assert_eq!(columns(&[TRAIN]), ["/home/u/train.py:42", "main", "-", "-", "-", "-"]);
        assert_eq!(columns(&[LINEAR])[..2], [format!("{}:125", LINEAR.0), "Linear.forward".to_owned()]);
    }

    #[test]
    fn native_frames_add_the_operator_and_the_library_and_change_no_line() {
        assert_eq!(
            columns(&[LAUNCH, CUBLAS, ADDMM, LINEAR, CALL, MODEL, TRAIN]),
            ["/home/u/model.py:31", "Block.forward", "Linear.forward", "Linear.forward", ADDMM.1, CUBLAS.0]
        );
    }

    #[test]
    fn a_thread_without_an_interpreter_names_its_own_code() {
        let solver = ("solver", "step()", 0);
        assert_eq!(columns(&[LAUNCH, CUBLAS, solver])[..2], ["solver:0", "step()"]);
        assert_eq!(columns(&[LAUNCH, CUBLAS, ADDMM])[..2], ["libtorch_cpu.so:0", ADDMM.1], "the backward thread");
        assert_eq!(columns(&[LAUNCH, CUBLAS])[..2], ["libcublasLt.so.12:0", "cublasLtMatmul"]);
        assert_eq!(columns(&[LAUNCH])[..2], ["libcudart.so.12:0", "cudaLaunchKernel"]);
    }

    #[test]
    fn unknown_stacks_say_nothing_and_tables_are_bounded() {
        let mut dictionary = Dictionary::new();
        let mut places = Places::default();
        assert_eq!(places.get(StackId::NONE, &dictionary), None);
        let (function, file) = (dictionary.intern_name("f"), dictionary.intern_name("a.py"));
        for line in 1..=PLACE_LIMIT as u32 + 1 {
            let stack = dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line });
            assert_eq!(places.get(stack, &dictionary).is_some(), line <= PLACE_LIMIT as u32);
        }
    }
}
