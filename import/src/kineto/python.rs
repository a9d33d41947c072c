//! Python functions of a recording with stacks (`with_stack=True`), as samples of their thread.
//!
//! A row has the function, its file and its first line, and the time from its call to its return. Between two
//! such events the stack of the thread is known, which is what a sample says. Such rows do not show whether
//! the thread was on a core: it counts as running unless its innermost function is one that waits.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Frame, HostSample, StackId, ThreadId, ThreadState, Timestamp};

use super::processes::LabelId;

/// Shortest time with one stack that becomes a sample, nanoseconds: the resolution of the rows' times, microseconds.
const SHORTEST: u64 = 1_000;
/// File of the interpreter's own functions, which have no line.
const INTERPRETER: &str = "builtins";
/// First parts of paths below `site-packages`. The writer removes folders of the module search path from names.
const PACKAGES: [&str; 24] = [
    "torch",
    "torchvision",
    "torchaudio",
    "torchdata",
    "functorch",
    "triton",
    "numpy",
    "scipy",
    "pandas",
    "PIL",
    "cv2",
    "sklearn",
    "transformers",
    "datasets",
    "tokenizers",
    "accelerate",
    "lightning",
    "pytorch_lightning",
    "deepspeed",
    "webdataset",
    "streaming",
    "tqdm",
    "huggingface_hub",
    "vllm",
];
/// Modules of Python's library in which programs spend time, also removed from their folder.
const MODULES: [&str; 22] = [
    "threading.py",
    "queue.py",
    "selectors.py",
    "contextlib.py",
    "functools.py",
    "runpy.py",
    "socket.py",
    "ssl.py",
    "subprocess.py",
    "tempfile.py",
    "pickle.py",
    "copy.py",
    "random.py",
    "typing.py",
    "inspect.py",
    "weakref.py",
    "asyncio",
    "concurrent",
    "multiprocessing",
    "importlib",
    "json",
    "logging",
];

/// A call of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct PythonCall {
    pub(super) process: LabelId,
    pub(super) thread: ThreadId,
    start: Timestamp,
    end: Timestamp,
    /// Without its caller, which is known once all rows are read.
    frame: Frame,
    /// State of the thread while this is the innermost function.
    state: ThreadState,
}

impl PythonCall {
    /// Parses the name of a row: `data/prep.py(42): tokenize`, or `<built-in method sub of re.Pattern object>`. `None`
    /// for modules of a network, whose functions have rows of their own.
    pub(super) fn of(
        name: &str,
        (process, thread): (LabelId, ThreadId),
        (start, end): (Timestamp, Timestamp),
        dictionary: &mut Dictionary,
    ) -> Option<Self> {
        let in_file = name.split_once("): ").and_then(|(place, function)| {
            let (file, line) = place.rsplit_once('(')?;
            Some((installed(file), line.parse().ok()?, function))
        });
        if in_file.is_none() && name.starts_with("nn.Module: ") {
            return None;
        }
        let (file, line, function) = in_file.unwrap_or_else(|| (INTERPRETER.to_owned(), 0, name));
        let state = if line == 0 { state_of(function) } else { ThreadState::Running };
        let (function, file) = (dictionary.intern_name(function), dictionary.intern_name(&file));
        Some(Self { process, thread, start, end, frame: Frame { caller: StackId::NONE, function, file, line }, state })
    }
}

/// The path as it was installed, as far as its first part shows it.
fn installed(file: &str) -> String {
    let first = file.split('/').next().unwrap_or_default();
    if PACKAGES.contains(&first) && first != file {
        format!("/site-packages/{file}")
    } else if MODULES.contains(&first) {
        format!("/lib/python3/{file}")
    } else {
        file.to_owned()
    }
}

/// A function of the program itself, as text; `None` for those of Python, of libraries and of modules.
pub(super) fn own_function(name: &str) -> Option<String> {
    let (place, function) = name.split_once("): ")?;
    let (file, line) = place.rsplit_once('(')?;
    let is_own = !file.contains("site-packages/") && !file.contains("/lib/python") && !file.starts_with('<');
    (is_own && installed(file) == file).then(|| format!("{file}:{line} ({function})"))
}

/// State of a thread in a function of the interpreter, by its name.
fn state_of(function: &str) -> ThreadState {
    let name = function.strip_prefix("<built-in method ").unwrap_or(function);
    match name.split([' ', '>']).next().unwrap_or_default() {
        "sleep" => ThreadState::Sleep,
        "acquire" | "__enter__" => ThreadState::Futex,
        "select" | "poll" => ThreadState::Poll,
        "recv" | "recv_into" | "read" | "readinto" => ThreadState::Io,
        "waitpid" | "wait4" => ThreadState::Child,
        _ => ThreadState::Running,
    }
}

/// A sample for each time with one stack; a function that returns after its caller ends with it.
pub(super) fn samples(mut calls: Vec<PythonCall>, dictionary: &mut Dictionary) -> Vec<HostSample> {
    // Of calls that begin together, the caller is the longest.
    calls.sort_by_key(|call| (call.thread, call.start, std::cmp::Reverse(call.end)));
    let mut found = Vec::new();
    for thread in calls.chunk_by(|a, b| a.thread == b.thread) {
        let mut stack = Stack { open: Vec::new(), since: Timestamp::ZERO, found: &mut found };
        for call in thread {
            stack.leave(call.start);
            stack.enter(call, dictionary);
        }
        stack.leave(Timestamp::from_nanos(u64::MAX));
    }
    found
}

/// Functions that have not returned.
struct Stack<'a> {
    /// Call, its stack, and the stack that functions called by it see.
    open: Vec<(PythonCall, StackId, StackId)>,
    /// End of the newest sample.
    since: Timestamp,
    found: &'a mut Vec<HostSample>,
}

impl Stack<'_> {
    /// Ends the functions that return by `at`.
    fn leave(&mut self, at: Timestamp) {
        while let Some((call, ..)) = self.open.last().filter(|(call, ..)| call.end <= at) {
            let end = call.end;
            self.sample(end);
            self.open.pop();
        }
        self.sample(at);
    }

    fn enter(&mut self, call: &PythonCall, dictionary: &mut Dictionary) {
        let (caller, end) = match self.open.last() {
            Some(&(outer, _, caller)) => (caller, call.end.min(outer.end)),
            None => (StackId::NONE, call.end),
        };
        let stack = dictionary.intern_frame(Frame { caller, ..call.frame });
        // A function of the interpreter is shown as the innermost one only: it has no line.
        let seen = if call.frame.line == 0 { caller } else { stack };
        self.open.push((PythonCall { end, ..*call }, stack, seen));
        self.since = call.start;
    }

    /// The stack was as it is until `at`.
    fn sample(&mut self, at: Timestamp) {
        let Some(&(PythonCall { thread, state, .. }, stack, _)) = self.open.last() else { return };
        if at.nanos() == u64::MAX || at.since(self.since) < SHORTEST {
            return;
        }
        let since = std::mem::replace(&mut self.since, at);
        self.found.push(HostSample { since, at, thread, state, stack, ..HostSample::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, start: u64, end: u64, dictionary: &mut Dictionary) -> PythonCall {
        let at = |micros: u64| Timestamp::from_nanos(micros * 1_000);
        PythonCall::of(name, (LabelId::default(), ThreadId(1)), (at(start), at(end)), dictionary).unwrap()
    }

    #[test]
    fn each_time_with_one_stack_is_a_sample() {
        let mut dictionary = Dictionary::new();
        let rows = [
            ("<built-in method sub of re.Pattern object at 0x7f>", 30, 80),
            ("train.py(88): step", 10, 100),
            ("data/prep.py(42): tokenize", 20, 90),
            ("<built-in method sleep>", 200, 300),
        ];
        let calls = rows.map(|(name, start, end)| call(name, start, end, &mut dictionary)).to_vec();
        let found: Vec<_> = samples(calls, &mut dictionary)
            .iter()
            .map(|sample| {
                let names = dictionary.stack(sample.stack).map(|frame| (dictionary.name(frame.file), frame.line));
                (sample.since.nanos() / 1_000, sample.at.nanos() / 1_000, sample.state, names.collect::<Vec<_>>())
            })
            .collect();
        let (step, tokenize, built_in) = (("train.py", 88), ("data/prep.py", 42), (INTERPRETER, 0));
        let running = ThreadState::Running;
        assert_eq!(
            found,
            [
                (10, 20, running, vec![step]),
                (20, 30, running, vec![tokenize, step]),
                (30, 80, running, vec![built_in, tokenize, step]),
                (80, 90, running, vec![tokenize, step]),
                (90, 100, running, vec![step]),
                (200, 300, ThreadState::Sleep, vec![built_in]),
            ]
        );
    }

    #[test]
    fn libraries_have_their_folder_and_modules_of_a_network_are_passed_over() {
        assert_eq!(installed("torch/utils/data/dataloader.py"), "/site-packages/torch/utils/data/dataloader.py");
        assert_eq!(installed("threading.py"), "/lib/python3/threading.py");
        for own in ["data/prep.py", "torch.py", "/home/u/torch/x.py", "<string>"] {
            assert_eq!(installed(own), own);
        }
        let none =
            PythonCall::of("nn.Module: Linear_0", Default::default(), Default::default(), &mut Dictionary::new());
        assert!(none.is_none());
    }
}
