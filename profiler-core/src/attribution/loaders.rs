//! Data loaders as they show in a Python stack: which file and function means which stage of loading.
//!
//! The table names places, not versions: each entry held over the releases of its library that were looked at, and an
//! entry that no longer fits costs evidence, never a wrong name. A program's own iterator is in no table; its line is
//! the evidence then.

/// What a data loader does on the thread whose stack this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Asks for the next batch; how it is made cannot be told from the stack.
    Next,
    /// Prepares samples on this thread.
    Inline,
    /// Joins samples to a batch, or copies it to page-locked memory, on this thread.
    Collate,
    /// Takes a batch over from workers.
    Receive,
}

/// Where a stage is.
enum PathPattern {
    /// A file whose path ends so.
    File(&'static str),
    /// Any file with this in its path.
    Within(&'static str),
}

struct Entry {
    place: PathPattern,
    /// Last parts of qualified function names; empty for any.
    functions: &'static [&'static str],
    stage: Stage,
}

const fn entry(place: PathPattern, functions: &'static [&'static str], stage: Stage) -> Entry {
    Entry { place, functions, stage }
}

/// The first entry that fits a frame counts.
///
/// Sources: the modules of these names in PyTorch 1.9 to 2.9 (`torch/utils/data/dataloader.py` and `_utils`),
/// `torchdata` (`nodes`, `stateful_dataloader`), `webdataset`, Hugging Face `datasets` (`arrow_dataset.py`,
/// `iterable_dataset.py`), NVIDIA DALI (`plugin/base_iterator.py`, `plugin/pytorch`), FFCV (`loader/`), `MosaicML`
/// Streaming (`base/dataset.py`), Grain and TensorFlow's `tf.data` (`python/data/ops/iterator_ops.py`).
const LOADERS: [Entry; 14] = [
    entry(PathPattern::File("torch/utils/data/_utils/pin_memory.py"), &[], Stage::Collate),
    entry(PathPattern::File("torch/utils/data/_utils/collate.py"), &[], Stage::Collate),
    entry(PathPattern::File("torch/utils/data/_utils/fetch.py"), &[], Stage::Inline),
    entry(PathPattern::File("torch/utils/data/dataloader.py"), &["_get_data", "_try_get_data"], Stage::Receive),
    entry(PathPattern::File("torch/utils/data/dataloader.py"), &["__next__", "_next_data"], Stage::Next),
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

/// `tf.data` has wrappers whose names change; the file has not.
const TENSORFLOW: &str = "tensorflow/python/data/ops/iterator_ops.py";

/// The stage that a frame stands for, if it is a data loader's.
pub(super) fn stage_of(file: &str, function: &str) -> Option<Stage> {
    let (class, last) = function.rsplit_once('.').unwrap_or(("", function));
    let fits = |entry: &&Entry| {
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
    // Whatever this class does on the launching thread, workers have made the batch.
    let by_workers = stage == Stage::Next && class.ends_with("MultiProcessingDataLoaderIter");
    Some(if by_workers { Stage::Receive } else { stage })
}

/// Files in which a thread waits for another one on purpose, whoever holds the interpreter's lock meanwhile.
const WAITING: [&str; 6] =
    ["/threading.py", "/queue.py", "/selectors.py", "/asyncio/", "/concurrent/futures/", "/multiprocessing/"];

/// Whether code of this file waits on purpose.
pub(super) fn waits(file: &str) -> bool {
    WAITING.iter().any(|part| file.contains(part))
}

/// Where libraries are installed. What is elsewhere is the user's own.
const LIBRARIES: [&str; 4] = ["/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3"];

/// Whether a file belongs to an installed library or to the interpreter.
pub(super) fn is_library(file: &str) -> bool {
    file.starts_with("<frozen") || LIBRARIES.iter().any(|part| file.contains(part))
}

/// Whether this is the file of a native function: a library or program by its name alone. Python names its files with
/// their folders, with `.py`, or as `<string>`.
pub(crate) fn is_native(file: &str) -> bool {
    !file.is_empty() && !file.contains('/') && !file.starts_with('<') && !file.ends_with(".py")
}

/// Beginnings of the names of libraries whose functions say little about who called them: the C library and its like,
/// and the interpreter. `[` is code without a file.
const SYSTEM: [&str; 11] =
    ["libc.", "libc-", "libpthread", "libm.", "libm-", "ld-", "libstdc++", "libgcc_s", "libpython", "python", "["];

/// Whether a native function of this file is passed over for the one that called it.
pub(super) fn is_system(file: &str) -> bool {
    SYSTEM.iter().any(|begin| file.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_by_file_and_function() {
        let torch = "/usr/lib/python3.12/site-packages/torch/utils/data/";
        for (file, function, stage) in [
            ("dataloader.py", "_BaseDataLoaderIter.__next__", Some(Stage::Next)),
            ("dataloader.py", "_next_data", Some(Stage::Next)),
            ("dataloader.py", "_MultiProcessingDataLoaderIter._next_data", Some(Stage::Receive)),
            ("dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data", Some(Stage::Receive)),
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
    fn native_files_are_told_from_those_of_python() {
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
    fn the_users_files_are_told_from_libraries() {
        assert!(is_library("/opt/conda/lib/python3.12/queue.py"));
        assert!(is_library("<frozen importlib._bootstrap>"));
        assert!(!is_library("/home/u/train.py"));
        assert!(!is_library("<string>"));
    }
}
