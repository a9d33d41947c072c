//! Code locations of launches and other calls, found once per stack.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Frame, NameId, StackId};
use rustc_hash::FxHashMap;

use super::stacks;

/// Maximum distinct places (60 bytes each, twice that with their index); samples at further ones are only
/// counted.
const PLACE_LIMIT: usize = 16_384;
/// Stacks with a cached place (12 bytes each); further ones are searched each time.
const STACK_LIMIT: usize = 65_536;
/// Maximum frames examined per stack, starting at the innermost.
const DEPTH_LIMIT: usize = 256;
/// Frames inside that of the line that are kept: a trainer's loop has six around its steps.
const INWARD_FRAMES: usize = 8;

/// Index of a [`LaunchPlace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PlaceId(pub(super) u32);

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
    /// The same of the next outer class that is no part of `torch.nn`, which only holds layers: `Attention.forward`.
    pub parent: Option<NameId>,
    /// Symbol of the innermost native frame that is one of PyTorch's operators; in generated code, the operators that
    /// were fused: `aten.add, aten.gelu [x, h]`.
    pub operator: Option<NameId>,
    /// Loaded file of the innermost native frame that belongs neither to CUDA's runtime and driver nor to the
    /// system.
    pub binary: Option<NameId>,
    /// Stack of the interpreter up to the eighth frame inside that of the line.
    inward: StackId,
}

impl LaunchPlace {
    /// Place of `stack`; `None` if the stack is unknown.
    pub fn of(stack: StackId, dictionary: &Dictionary) -> Option<Self> {
        let frames: Vec<Frame> = dictionary.stack(stack).take(DEPTH_LIMIT).collect();
        let place = place_of(&frames, dictionary)?;
        let line = frames.iter().position(|frame| place.is_at(frame)).unwrap_or_default();
        let native = frames.iter().take_while(|frame| is_native(dictionary.name(frame.file), frame.line)).count();
        let inward = match line.saturating_sub(INWARD_FRAMES).max(native).checked_sub(1) {
            Some(inner) => frames.get(inner).map_or(StackId::NONE, |inner| inner.caller),
            None => stack,
        };
        Some(Self { inward, ..place })
    }

    fn is_at(&self, frame: &Frame) -> bool {
        (frame.function, frame.file, frame.line) == (self.function, self.file, self.line)
    }

    /// Frames inside that of the line, the outermost first: eight at most. Only of a place of a call
    /// ([`Attributor::call_lines`](super::Attributor::call_lines)).
    pub fn inner_frames(&self, dictionary: &Dictionary) -> Vec<Frame> {
        let frames = dictionary.stack(self.inward).take(INWARD_FRAMES + 1).take_while(|frame| !self.is_at(frame));
        let mut frames: Vec<Frame> = frames.collect();
        frames.reverse();
        frames.truncate(INWARD_FRAMES);
        frames
    }

    /// True for the `forward` of a class, as in `torch.nn.Module`. The wrapper of a compiled function has this name,
    /// too, and belongs to no class.
    pub fn is_module(function: &str) -> bool {
        function.strip_suffix(".forward").is_some_and(|class| !class.ends_with("<locals>"))
    }
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
    /// Place of `stack`, without its inner frames, which would divide the rows of a line; `None` if the stack is
    /// unknown or the table is full.
    pub(crate) fn get(&mut self, stack: StackId, dictionary: &Dictionary) -> Option<PlaceId> {
        self.found(stack, dictionary, |place| LaunchPlace { inward: StackId::NONE, ..place })
    }

    /// The same with its [`LaunchPlace::inner_frames`]. A table is used by one of both.
    pub(crate) fn with_inner_frames(&mut self, stack: StackId, dictionary: &Dictionary) -> Option<PlaceId> {
        self.found(stack, dictionary, |place| place)
    }

    fn found(
        &mut self,
        stack: StackId,
        dictionary: &Dictionary,
        kept: fn(LaunchPlace) -> LaunchPlace,
    ) -> Option<PlaceId> {
        if let Some(&place) = self.stacks.get(&stack) {
            return Some(place);
        }
        let id = self.id(kept(LaunchPlace::of(stack, dictionary)?))?;
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
    let fused = python.iter().find(|frame| function(frame).starts_with("aten."));
    let line = match python.first() {
        Some(innermost) => stacks::users_frame(python.iter().copied(), dictionary).unwrap_or(innermost),
        // A thread without an interpreter: the program's own code, else the operator, else the caller of
        // CUDA.
        None => {
            let of_program = native.iter().find(|frame| !is_shared_library(file(frame)) && !file(frame).is_empty());
            of_program.or(operator).or(own).or(native.first())?
        }
    };
    let within = python.first().filter(|innermost| (innermost.function, innermost.file) != (line.function, line.file));
    let mut modules = python.iter().filter(|frame| LaunchPlace::is_module(function(frame)));
    let module = modules.next();
    let of_layers = |frame: &Frame| file(frame).contains("/torch/nn/");
    let parent =
        modules.find(|frame| !of_layers(frame) && module.is_some_and(|inner| inner.function != frame.function));
    Some(LaunchPlace {
        function: line.function,
        file: line.file,
        line: line.line,
        within: within.map(|frame| (frame.function, frame.file)),
        module: module.map(|frame| frame.function),
        parent: parent.map(|frame| frame.function),
        operator: operator.or(fused).map(|frame| frame.function),
        binary: own.map(|frame| frame.file),
        inward: StackId::NONE,
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
    fn generated_code_shows_the_model_and_the_fused_operators() {
        const GENERATED: &str = "/tmp/torchinductor_u/xf/cxf7ndsyp3kjpsmbyhc5bqkymszfpkccbv5jmyaxpffqfbm7ykqk.py";
        let wrapper = ("/v/lib/python3.12/site-packages/torch/_functorch/aot_autograd.py", "f.<locals>.forward", 3);
        let launcher = ("/v/lib/python3.12/site-packages/torch/_inductor/runtime/triton_heuristics.py", "run", 9);
        let fused = (GENERATED, "aten.add, aten.gelu [x, h_1]", 140);
        assert_eq!(
            columns(&[LAUNCH, launcher, fused, wrapper, MODEL, TRAIN])[..5],
            ["/home/u/model.py:31", "Block.forward", "run", "Block.forward", fused.1]
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
    fn inner_frames_divide_the_places_of_calls_alone() {
        let mut dictionary = Dictionary::new();
        let mut stack = |frames: &[(&str, &str, u32)]| {
            frames.iter().rev().fold(StackId::NONE, |caller, &(file, function, line)| {
                let (function, file) = (dictionary.intern_name(function), dictionary.intern_name(file));
                dictionary.intern_frame(Frame { caller, function, file, line })
            })
        };
        let other = (LINEAR.0, LINEAR.1, 7);
        let stacks = [stack(&[LINEAR, CALL, TRAIN]), stack(&[other, CALL, TRAIN])];
        let (mut launches, mut calls) = (Places::default(), Places::default());
        let [a, b] = stacks.map(|stack| launches.get(stack, &dictionary).unwrap());
        assert_eq!(a, b);
        let [a, b] = stacks.map(|stack| calls.with_inner_frames(stack, &dictionary).unwrap());
        let lines = [a, b].map(|id| {
            let frames = calls.place(id).unwrap().inner_frames(&dictionary);
            frames.iter().map(|frame| frame.line).collect::<Vec<_>>()
        });
        assert_eq!(lines, [[CALL.2, LINEAR.2], [CALL.2, 7]]);
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
