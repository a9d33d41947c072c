//! Interface that a tool implements.

use crate::event::{Attributes, RegisteredString, Text};

/// The tool's id of a domain; its handle in the program is this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Domain(pub u32);

impl Domain {
    /// The domain of all calls without an explicit domain: its handle is null.
    pub const DEFAULT: Self = Self(0);
}

/// Receives the NVTX calls of a program.
///
/// The functions run on the program's threads in the middle of its work, several at a time, before `main` and
/// while threads end. They must be quick, and must not call anything that uses NVTX. Ids of domains and
/// strings may be unknown to the handler: a program can pass ids that another tool returned.
pub trait Handler: 'static {
    /// `nvtxMark...`, `nvtxDomainMarkEx`
    fn mark(domain: Domain, event: &Attributes<'_>);
    /// `nvtxRangePush...`: returns the number of ranges that were open in this thread and domain before it;
    /// negative if unknown.
    fn push(domain: Domain, event: &Attributes<'_>) -> i32;
    /// `nvtxRangePop`: returns the value that its push returned; negative if there was none.
    fn pop(domain: Domain) -> i32;
    /// `nvtxRangeStart...`: returns a number unique in the process, or 0 for a range that is not tracked.
    fn start(domain: Domain, event: &Attributes<'_>) -> u64;
    /// `nvtxRangeEnd`, with the value that [`start`](Self::start) returned.
    fn end(range: u64);
    /// `nvtxNameCategory...`
    fn name_category(domain: Domain, category: u32, name: Text<'_>);
    /// `nvtxNameOsThread...`, with the system's id of the thread.
    fn name_thread(thread: u32, name: Text<'_>);
    /// `nvtxDomainCreate...`
    fn create_domain(name: Text<'_>) -> Domain;
    /// `nvtxDomainRegisterString...`
    fn register_string(text: Text<'_>) -> RegisteredString;
}
