//! Marks that gpuwhy makes itself when the program copies between host and device or launches a CUDA graph, in a run
//! whose device work is not recorded: they show the iterations of a server.

use crate::dictionary::Dictionary;
use crate::named;
use crate::record::{Payload, RangeEvent, RangeEventKind};

named! {
    /// Work that was submitted. The payload of the mark are the bytes of the copy.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SubmissionMark: name {
        /// A copy from device to host.
        ToHost "copy to host",
        /// A copy from host to device.
        FromHost "copy from host",
        /// A CUDA graph.
        Graph "graph launch",
    }
}

impl SubmissionMark {
    /// Domain of these marks.
    pub const DOMAIN: &str = "gpuwhy";

    /// The mark that an event is, and its bytes.
    #[must_use]
    pub fn of(event: &RangeEvent, dictionary: &Dictionary) -> Option<(Self, u64)> {
        if event.kind != RangeEventKind::Mark || dictionary.name(event.domain) != Self::DOMAIN {
            return None;
        }
        let bytes = if let Payload::Unsigned(bytes) = event.payload { bytes } else { 0 };
        let name = dictionary.name(event.message);
        Self::ALL.into_iter().find(|mark| mark.name() == name).map(|mark| (mark, bytes))
    }
}
