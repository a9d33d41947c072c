//! Classification of stacks, done once per stack: the stage of a data loader, and the source line to show.
//!
//! The line is the innermost one in the user's own Python code, because that is what the user can change. If
//! it called into a library, that function is shown next to it: the innermost native one, if there is one
//! outside of the C library and the interpreter, else the innermost Python one. For a wait in a data loader
//! it is the line that requested the batch. A stack without Python names its innermost function.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Frame, NameId, StackId};
use rustc_hash::FxHashMap;

use super::servers::{Doing, Role, role_of};

/// Maximum distinct lines (56 bytes each with their index); samples at further ones get no line.
const LINE_LIMIT: usize = 16_384;
/// Stacks with a cached class (16 bytes each); further ones are searched each time.
const STACK_LIMIT: usize = 65_536;
/// Maximum frames examined per stack, starting at the innermost.
const DEPTH_LIMIT: usize = 256;

/// Index of a [`HostLine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(u32);

impl LineId {
    /// Unknown line.
    pub const NONE: Self = Self(u32::MAX);

    #[cfg(test)]
    pub(crate) const fn of_index(index: u32) -> Self {
        Self(index)
    }
}

/// A line of the program that serves as evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostLine {
    /// Qualified name of the function.
    pub function: NameId,
    /// File.
    pub file: NameId,
    /// Line number, starting at 1; 0 if unknown, and for a native function.
    pub line: u32,
    /// Function and file that the line called: the innermost frame, or the innermost native one outside of
    /// the system.
    pub within: Option<(NameId, NameId)>,
    /// What a server of language models does there, if it belongs to one.
    pub doing: Option<Doing>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StackClass {
    pub(crate) stage: Option<Stage>,
    pub(crate) line: LineId,
    /// True if the innermost frame deliberately waits for another thread or process.
    pub(crate) waits: bool,
    /// True if a frame belongs to a compiler.
    pub(crate) builds: bool,
    /// Its significance in the loop of a server.
    pub(crate) role: Option<Role>,
}

/// Classes by stack, and their lines.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    classes: FxHashMap<StackId, StackClass>,
    lines: Vec<HostLine>,
    line_ids: FxHashMap<HostLine, LineId>,
}

impl Stacks {
    /// Class of `stack`. A stack that the dictionary does not know gets an empty class that is not cached.
    pub(crate) fn get(&mut self, stack: StackId, dictionary: &Dictionary) -> StackClass {
        if let Some(&class) = self.classes.get(&stack) {
            return class;
        }
        let frames: Vec<Frame> = dictionary.stack(stack).take(DEPTH_LIMIT).collect();
        // Native functions come before Python's.
        let native =
            frames.iter().take_while(|frame| frame.line == 0 && is_native(dictionary.name(frame.file))).count();
        let (native, python) = frames.split_at(native);
        let called = native.iter().find(|frame| !is_system(dictionary.name(frame.file)));
        let Some(innermost) = called.or(python.first()).or(native.first()) else {
            return StackClass { stage: None, line: LineId::NONE, waits: false, builds: false, role: None };
        };
        let frames = python;
        let waiting = frames.iter().take_while(|frame| waits(dictionary.name(frame.file))).count();
        let loader = frames.iter().enumerate().find_map(|(index, frame)| {
            Some((index, stage_of(dictionary.name(frame.file), dictionary.name(frame.function))?))
        });
        let users = |frames: &[Frame]| users_frame(frames.iter(), dictionary).copied();
        let named = match loader {
            // Work on this thread: the user's line inside the loader, else the one that requested the batch.
            Some((index, Stage::Inline | Stage::Collate)) => {
                users(&frames[..index]).or_else(|| users(&frames[index..]))
            }
            Some((index, _)) => users(&frames[index..]),
            None => users(frames),
        }
        .or(frames.first().copied())
        .unwrap_or(*innermost);
        let server = role_of(frames, waiting, dictionary).filter(|_| loader.is_none());
        let elsewhere = (named.function, named.file) != (innermost.function, innermost.file);
        let line = HostLine {
            function: named.function,
            file: named.file,
            line: named.line,
            within: elsewhere.then_some((innermost.function, innermost.file)),
            doing: server.map(|(server, role)| Doing { server, meaning: role.meaning() }),
        };
        let class = StackClass {
            stage: loader.map(|(_, stage)| stage),
            line: self.line_id(line),
            waits: waiting > 0,
            builds: builds(frames, dictionary),
            role: server.map(|(_, role)| role),
        };
        if self.classes.len() < STACK_LIMIT {
            self.classes.insert(stack, class);
        }
        class
    }

    pub(crate) fn line(&self, id: LineId) -> Option<&HostLine> {
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

/// Source line that represents a stack; `None` if its frames are unknown.
pub fn line_of(stack: StackId, dictionary: &Dictionary) -> Option<HostLine> {
    let mut stacks = Stacks::default();
    let class = stacks.get(stack, dictionary);
    stacks.line(class.line).copied()
}

/// Activity of a data loader on the thread with this stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Requests the next batch; the stack does not show how it is made.
    Next,
    /// Prepares samples on this thread.
    Inline,
    /// Joins samples to a batch, or copies it to pinned memory, on this thread.
    Collate,
    /// Receives a batch from workers.
    Receive,
    /// Starts or ends worker processes.
    Start,
}

/// Path pattern of a stage.
enum PathPattern {
    /// A file whose path ends with this.
    File(&'static str),
    /// Any file with this in its path.
    Within(&'static str),
}

struct StackEntry {
    place: PathPattern,
    /// Last components of qualified function names; empty for any.
    functions: &'static [&'static str],
    stage: Stage,
}

const fn entry(place: PathPattern, functions: &'static [&'static str], stage: Stage) -> StackEntry {
    StackEntry { place, functions, stage }
}

/// Data loaders as they appear in a Python stack. The first entry that matches a frame counts. The table
/// lists places, not versions: each entry was valid in every examined release of its library, and an entry
/// that no longer matches costs evidence but never produces a wrong name. A program's own iterator is in no
/// table; its line is the evidence then.
///
/// Sources: the modules of these names in PyTorch 1.9 to 2.9 (`torch/utils/data/dataloader.py` and `_utils`),
/// `torchdata` (`nodes`, `stateful_dataloader`), `webdataset`, Hugging Face `datasets` (`arrow_dataset.py`,
/// `iterable_dataset.py`), NVIDIA DALI (`plugin/base_iterator.py`, `plugin/pytorch`), FFCV (`loader/`),
/// `MosaicML` Streaming (`base/dataset.py`), Grain and TensorFlow's `tf.data`
/// (`python/data/ops/iterator_ops.py`).
const LOADERS: [StackEntry; 15] = [
    entry(PathPattern::File("torch/utils/data/_utils/pin_memory.py"), &[], Stage::Collate),
    entry(PathPattern::File("torch/utils/data/_utils/collate.py"), &[], Stage::Collate),
    entry(PathPattern::File("torch/utils/data/_utils/fetch.py"), &[], Stage::Inline),
    entry(PathPattern::File("torch/utils/data/dataloader.py"), &["_get_data", "_try_get_data"], Stage::Receive),
    entry(PathPattern::File("torch/utils/data/dataloader.py"), &["__next__", "_next_data"], Stage::Next),
    entry(PathPattern::File("torch/utils/data/dataloader.py"), &STARTS, Stage::Start),
    entry(PathPattern::Within("/torchdata/"), &["__next__", "next", "_next_data"], Stage::Next),
    entry(PathPattern::Within("/torchdata/"), &["_get_data", "_try_get_data"], Stage::Receive),
    entry(PathPattern::Within("/site-packages/webdataset/"), &[], Stage::Next),
    entry(PathPattern::File("site-packages/datasets/iterable_dataset.py"), &["__iter__", "__next__"], Stage::Next),
    entry(
        PathPattern::File("site-packages/datasets/arrow_dataset.py"),
        &["__getitem__", "__getitems__", "_getitem", "__iter__"],
        Stage::Inline,
    ),
    entry(PathPattern::Within("nvidia/dali/plugin/"), &["__next__", "next", "_get_outputs"], Stage::Next),
    entry(PathPattern::Within("/ffcv/loader/"), &["__next__", "__iter__"], Stage::Next),
    entry(PathPattern::Within("/site-packages/streaming/base/"), &["__iter__", "__getitem__"], Stage::Next),
    entry(PathPattern::Within("/site-packages/grain/"), &["__next__"], Stage::Next),
];

/// Functions of PyTorch's loader that start or end workers, at the beginning and the end of an epoch.
const STARTS: [&str; 5] = ["__iter__", "_get_iterator", "__init__", "_shutdown_workers", "__del__"];

/// The wrappers of `tf.data` change their names; the file has kept its name.
const TENSORFLOW: &str = "tensorflow/python/data/ops/iterator_ops.py";

/// Stage that a frame represents, if it belongs to a data loader.
fn stage_of(file: &str, function: &str) -> Option<Stage> {
    let (class, last) = function.rsplit_once('.').unwrap_or(("", function));
    let fits = |entry: &&StackEntry| {
        let here = match entry.place {
            PathPattern::File(end) => file.ends_with(end),
            PathPattern::Within(part) => file.contains(part),
        };
        here && (entry.functions.is_empty() || entry.functions.contains(&last))
    };
    if file.ends_with(TENSORFLOW) {
        return Some(Stage::Next);
    }
    let stage = LOADERS.iter().find(fits)?.stage;
    // In any frame of this class on the launching thread, workers have made the batch.
    let by_workers = stage == Stage::Next && class.ends_with("MultiProcessingDataLoaderIter");
    Some(if by_workers { Stage::Receive } else { stage })
}

/// Files in which a thread deliberately waits for another one, regardless of who holds the interpreter's
/// lock.
const WAITING: [&str; 7] =
    ["/threading.py", "/queue.py", "/selectors.py", "/asyncio/", "/concurrent/futures/", "/multiprocessing/", "/zmq/"];

/// True if code of this file waits deliberately.
fn waits(file: &str) -> bool {
    WAITING.iter().any(|part| file.contains(part))
}

/// Files of compilers that no call of compiled code passes through. Everything that Dynamo compiles is called by
/// `convert_frame.py`; the backward pass, and kernels of Triton, may be compiled later. Sources: the modules of these
/// names in PyTorch, Triton and JAX.
const COMPILERS: [&str; 14] = [
    "/torch/_dynamo/convert_frame.py",
    "/torch/_subclasses/",
    "/torch/fx/experimental/",
    "/torch/fx/passes/",
    "/torch/_inductor/graph.py",
    "/torch/_inductor/lowering.py",
    "/torch/_inductor/scheduler.py",
    "/torch/_inductor/codegen/",
    "/torch/_inductor/fx_passes/",
    "/torch/_inductor/async_compile.py",
    "/torch/_inductor/select_algorithm.py",
    "/triton/compiler/",
    "/jax/_src/interpreters/mlir.py",
    "/jax/_src/compiler.py",
];
/// JAX traces what it compiles with this function; other ones of its file run in each `jax.grad` without `jax.jit`.
const TRACES: (&str, &str) = ("/jax/_src/interpreters/partial_eval.py", "trace_to_jaxpr_dynamic");

/// True if one of the frames, the innermost first, is in a compiler that is not just being imported.
fn builds(frames: &[Frame], dictionary: &Dictionary) -> bool {
    let named = frames.iter().rev().map(|frame| (dictionary.name(frame.file), dictionary.name(frame.function)));
    named.take_while(|(file, _)| !file.starts_with("<frozen importlib")).any(|(file, function)| {
        COMPILERS.iter().any(|part| file.contains(part)) || (file.ends_with(TRACES.0) && function == TRACES.1)
    })
}

/// Install locations of libraries, and the file that Python runs at its start, such as that of `gpuwhy run --pytorch`
/// and `gpuwhy try`: its functions may be around calls of a library. Code elsewhere is the user's own.
const LIBRARIES: [&str; 5] =
    ["/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "/sitecustomize.py"];

/// Innermost frame of the user's code. Code that a library made and executed is named as that of `python -c`, and is
/// passed over if files of the user are around it.
pub(crate) fn users_frame<'a>(
    frames: impl Iterator<Item = &'a Frame> + Clone,
    dictionary: &Dictionary,
) -> Option<&'a Frame> {
    let users = frames.filter(|frame| !is_library(dictionary.name(frame.file)));
    users.clone().find(|frame| dictionary.name(frame.file) != "<string>").or_else(|| users.clone().next())
}

/// True if a file belongs to an installed library or to the interpreter, or was generated.
#[must_use]
pub fn is_library(file: &str) -> bool {
    file.starts_with("<frozen") || LIBRARIES.iter().any(|part| file.contains(part)) || is_generated(file)
}

/// True if the Inductor of PyTorch generated the file: its name is a hash, after the letter `c`, in base 32.
#[must_use]
pub fn is_generated(file: &str) -> bool {
    /// Letters of the hash, SHA-256, and the one before it.
    const NAME: usize = 52;
    let name = file.rsplit('/').next().and_then(|name| name.strip_suffix(".py"));
    name.is_some_and(|name| {
        name.len() == NAME && name.bytes().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
    })
}

/// True if this is the file of a native function: a bare library or program name. Python files have a folder,
/// end in `.py`, or look like `<string>`.
pub fn is_native(file: &str) -> bool {
    !file.is_empty() && !file.contains('/') && !file.starts_with('<') && !file.ends_with(".py")
}

/// Name prefixes of libraries whose functions reveal little about their callers: the C library and similar
/// ones, and the interpreter. `[` is code without a file.
const SYSTEM: [&str; 11] =
    ["libc.", "libc-", "libpthread", "libm.", "libm-", "ld-", "libstdc++", "libgcc_s", "libpython", "python", "["];

/// True if native functions of this file are skipped in favor of their caller.
pub(crate) fn is_system(file: &str) -> bool {
    SYSTEM.iter().any(|begin| file.starts_with(begin))
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

    /// Stage, file of the reported line, and the line.
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
    fn generated_code_is_not_the_users() {
        let hash = "cxf2xyc5t3l7rsrbvh4wsuuliwgln5dicwlhpy4f7625xxrrjf24.py";
        assert!(is_library(&format!("/tmp/torchinductor_u/xf/{hash}")) && is_library(hash));
        assert!(
            !is_library("/home/u/train.py")
                && !is_library("/home/u/configuration_of_the_model_with_long_name_and_a_suffix.py")
        );
    }

    #[test]
    fn a_loader_on_this_thread_names_the_line_of_the_data_set() {
        let frames = [("/home/u/data.py", "Images.__getitem__", 7), FETCH, NEXT, TRAIN];
        assert_eq!(judged(&frames), (Some(Stage::Inline), "/home/u/data.py".to_owned(), 7));
        assert_eq!(judged(&[FETCH, NEXT, TRAIN]), (Some(Stage::Inline), "/home/u/train.py".to_owned(), 42));
    }

    #[test]
    fn compilers_build_kernels_where_they_are_called_and_not_where_they_are_imported() {
        let of = |frames: &[(&str, &str, u32)]| {
            let mut dictionary = Dictionary::new();
            let id = stack(&mut dictionary, frames);
            Stacks::default().get(id, &dictionary).builds
        };
        const LIBRARY: &str = "/v/lib/python3.12/site-packages";
        let in_torch = |file: &str| format!("{LIBRARY}/torch/{file}");
        let (convert, fake, fast) = (
            in_torch("_dynamo/convert_frame.py"),
            in_torch("_subclasses/fake_tensor.py"),
            in_torch("_dynamo/eval_frame.py"),
        );
        let (convert, fake) = ((convert.as_str(), "_compile", 9), (fake.as_str(), "dispatch", 9));
        let (jax, import) = (format!("{LIBRARY}{}", TRACES.0), ("<frozen importlib._bootstrap>", "_load", 1));
        assert!(of(&[fake, convert, TRAIN]) && of(&[import, convert, TRAIN]) && of(&[(&jax, TRACES.1, 9), TRAIN]));
        assert!(!of(&[fake, import, TRAIN]), "an import");
        assert!(!of(&[TRAIN, (&fast, "_fn", 9), TRAIN]), "a call of compiled code");
        assert!(!of(&[(&jax, "linearize_jaxpr", 9), TRAIN]), "jax.grad without jax.jit");
    }

    #[test]
    fn a_wait_names_the_line_that_asked() {
        let queue = ("/lib/python3.12/queue.py", "Queue.get", 180);
        assert_eq!(judged(&[queue, NEXT, TRAIN]), (Some(Stage::Next), "/home/u/train.py".to_owned(), 42));
        assert_eq!(judged(&[queue, TRAIN]), (None, "/home/u/train.py".to_owned(), 42));
        assert_eq!(judged(&[queue]), (None, "/lib/python3.12/queue.py".to_owned(), 180));
    }

    /// Line and the function that it called.
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

    #[test]
    fn stages_by_file_and_function() {
        let torch = "/usr/lib/python3.12/site-packages/torch/utils/data/";
        for (file, function, stage) in [
            ("dataloader.py", "_BaseDataLoaderIter.__next__", Some(Stage::Next)),
            ("dataloader.py", "_next_data", Some(Stage::Next)),
            ("dataloader.py", "_MultiProcessingDataLoaderIter._next_data", Some(Stage::Receive)),
            ("dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data", Some(Stage::Receive)),
            ("dataloader.py", "_MultiProcessingDataLoaderIter.__init__", Some(Stage::Start)),
            ("dataloader.py", "DataLoader.__iter__", Some(Stage::Start)),
            ("dataloader.py", "DataLoader.__len__", None),
            ("_utils/fetch.py", "_MapDatasetFetcher.fetch", Some(Stage::Inline)),
            ("_utils/collate.py", "default_collate", Some(Stage::Collate)),
            ("_utils/pin_memory.py", "pin_memory", Some(Stage::Collate)),
            ("sampler.py", "BatchSampler.__iter__", None),
        ] {
            assert_eq!(stage_of(&format!("{torch}{file}"), function), stage, "{file} {function}");
        }
        assert_eq!(stage_of("/home/u/project/datasets/arrow_dataset.py", "__getitem__"), None, "the user's own");
        assert_eq!(
            stage_of("/opt/nvidia/dali/plugin/base_iterator.py", "_DaliBaseIterator.__next__"),
            Some(Stage::Next)
        );
        assert_eq!(stage_of("/x/tensorflow/python/data/ops/iterator_ops.py", "anything"), Some(Stage::Next));
    }

    #[test]
    fn native_files_are_distinguished_from_those_of_python() {
        for (file, native, system) in [
            ("libtorch_cpu.so", true, false),
            ("libcudnn_graph.so.9 build-id:00ff", true, false),
            ("libc.so.6", true, true),
            ("python3.11", true, true),
            ("[vdso]", true, true),
            ("/home/u/train.py", false, false),
            ("train.py", false, false),
            ("<string>", false, false),
            ("<frozen importlib._bootstrap>", false, false),
            ("", false, false),
        ] {
            assert_eq!((is_native(file), is_system(file)), (native, system), "{file}");
        }
    }

    #[test]
    fn the_users_files_are_distinguished_from_libraries() {
        assert!(is_library("/opt/conda/lib/python3.12/queue.py"));
        assert!(is_library("<frozen importlib._bootstrap>"));
        assert!(is_library("/tmp/gpuwhy-try-x/1-y/sitecustomize.py"));
        assert!(!is_library("/home/u/train.py"));
        assert!(!is_library("<string>"));
        let mut dictionary = Dictionary::new();
        let mut frame = |file: &str, line| {
            let (function, file) = (dictionary.intern_name("f"), dictionary.intern_name(file));
            Frame { caller: StackId::NONE, function, file, line }
        };
        let [library, made, user] =
            [frame("/lib/python3.12/queue.py", 1), frame("<string>", 2), frame("/home/u/a.py", 3)];
        let line = |frames: &[Frame]| users_frame(frames.iter(), &dictionary).map(|frame| frame.line);
        assert_eq!(line(&[library, made, user]), Some(3), "the launcher that Triton makes");
        assert_eq!([line(&[library, made, library]), line(&[library])], [Some(2), None]);
    }
}
