//! What a tool implements.

use crate::event::{Event, RegisteredString, Text};

/// A domain as the tool numbers it; its handle in the program is this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Domain(pub u32);

impl Domain {
    /// The domain of everything that is in no other: its handle is null.
    pub const DEFAULT: Self = Self(0);
}

/// Receives what a program says through NVTX.
///
/// The functions run on the program's threads in the middle of its work, several at a time, before `main` and while
/// threads end. They must be quick, and must not call anything that uses NVTX. Numbers of domains and strings may be
/// ones that the handler never gave: a program can pass what another tool gave it.
pub trait Handler: 'static {
    /// `nvtxMark...`, `nvtxDomainMarkEx`
    fn mark(domain: Domain, event: &Event<'_>);
    /// `nvtxRangePush...`: answers how many ranges were open in this thread and domain before it; negative when that
    /// is unknown.
    fn push(domain: Domain, event: &Event<'_>) -> i32;
    /// `nvtxRangePop`: answers what its push answered; negative when there was none.
    fn pop(domain: Domain) -> i32;
    /// `nvtxRangeStart...`: answers a number unique in the process, or 0 for a range that is not followed.
    fn start(domain: Domain, event: &Event<'_>) -> u64;
    /// `nvtxRangeEnd`, with what [`start`](Self::start) answered.
    fn end(range: u64);
    /// `nvtxNameCategory...`
    fn name_category(domain: Domain, category: u32, name: Text<'_>);
    /// `nvtxNameOsThread...`, with the number that the system gave to the thread.
    fn name_thread(thread: u32, name: Text<'_>);
    /// `nvtxDomainCreate...`
    fn create_domain(name: Text<'_>) -> Domain;
    /// `nvtxDomainRegisterString...`
    fn register_string(text: Text<'_>) -> RegisteredString;
}
