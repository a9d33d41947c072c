//! Contents of a page, and the result of writing it.

use gpuwhy_report::history::Measured;

/// Version of the data within a page; the embedded script reads this one.
pub const PAGE_VERSION: u32 = 2;
/// Default limit for the bytes of single events: those of 10 million records.
pub const MAX_BYTES: u64 = 64_000_000;

/// Contents of a page and its maximum size.
#[derive(Clone, Debug)]
pub struct Options {
    /// Title of the page; by default that of the command.
    pub title: Option<String>,
    /// Number of the capture to show, for a run that was split; `None` is the newest.
    pub capture: Option<u32>,
    /// Maximum bytes of single events, in addition to sums, names and the report.
    pub max_bytes: u64,
    /// Events in the page.
    pub detail: Detail,
    /// True to replace the command line, the host, folders, names of threads and texts of ranges by
    /// placeholders.
    pub redact: bool,
    /// True to include three lines of source code before and after each of at most 32 lines that the report
    /// names. They are read from the named files, if these exist here and are older than the run.
    pub sources: bool,
    /// Gains of remedies that `gpuwhy try` measured; those of the traced program take the place of estimates.
    pub measured: Vec<Measured>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            title: None,
            capture: None,
            max_bytes: MAX_BYTES,
            detail: Detail::Auto,
            redact: false,
            sources: false,
            measured: Vec::new(),
        }
    }
}

/// Events in a page. It always has the sums of the complete run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// All if they fit, else those of selected windows.
    #[default]
    Auto,
    /// All, in time order, until the page is full.
    All,
    /// Those of windows around selected steps and gaps.
    Windows,
    /// None.
    None,
}

/// Result of writing a page.
#[derive(Clone, Debug, Default)]
pub struct PageResult {
    /// Parts that the trace lacks, one sentence each.
    pub damage: Vec<String>,
    /// True if the trace has an end: the program was not killed, and the file not cut off.
    pub has_end: bool,
    /// Parts of the trace that are not in the page, one sentence each.
    pub left_out: Vec<String>,
    /// Number of events in the page.
    pub events: u64,
    /// Number of trace records that become events, including those not in the page.
    pub records: u64,
}
