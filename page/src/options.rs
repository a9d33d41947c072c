//! What a page holds, and what was written.

/// Version of the data within a page; the script beside it reads this one.
pub const PAGE_VERSION: u32 = 2;
/// How many bytes single events may take by default: those of 10 million records.
pub const MAX_BYTES: u64 = 64_000_000;

/// What a page holds and how large it may be.
#[derive(Clone, Debug)]
pub struct Options {
    /// The title of the page; that of the command otherwise.
    pub title: Option<String>,
    /// The capture that it is about, of a run that was measured in pieces; `None` is the newest.
    pub capture: Option<u32>,
    /// Bytes that single events may take. Sums, names and the report come on top.
    pub max_bytes: u64,
    /// Which events the page holds.
    pub detail: Detail,
    /// Marks stand for the command line, the host, folders, names of threads and texts of ranges.
    pub redact: bool,
    /// Three lines of source code before and behind each of at most 32 lines that the report names, read from the files
    /// that it names, as far as they are here and older than the run.
    pub sources: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { title: None, capture: None, max_bytes: MAX_BYTES, detail: Detail::Auto, redact: false, sources: false }
    }
}

/// Which events a page holds. It always has the sums of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// All if they fit, else those of windows.
    #[default]
    Auto,
    /// All, in order of time, until the page is full.
    All,
    /// Those of windows that steps and gaps choose.
    Windows,
    /// None.
    None,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What the trace lacks, a sentence each.
    pub damage: Vec<String>,
    /// What of the trace is not in the page, a sentence each.
    pub left_out: Vec<String>,
    /// Events in the page.
    pub events: u64,
    /// Records of the trace that become events, in the page or not.
    pub records: u64,
}
