//! Progress of a piece of work, and its interruption.

use std::ops::{ControlFlow, Range};

/// Items between two calls of a [`Progress`].
const ITEMS: u32 = 1 << 14;

/// Called at intervals with the bytes read and the bytes in total; returns `Continue` to go on. A break stops
/// the work with an error that reports it ([`OpenError::is_interrupted`](crate::OpenError::is_interrupted));
/// temporary files are removed.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// A [`Progress`] that shows no progress and never stops the work.
pub fn unwatched(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Progress of a pass that makes up the part `percent` of the work.
pub fn share(progress: &mut Progress<'_>, percent: Range<u64>) -> impl FnMut(u64, u64) -> ControlFlow<()> {
    move |done, total| progress((total * percent.start + done * (percent.end - percent.start)) / 100, total)
}

/// Counts items and decides when to call a [`Progress`].
#[derive(Debug, Default)]
pub(crate) struct Ticks(u32);

impl Ticks {
    /// Counts one item; true if the [`Progress`] is to be called.
    pub(crate) fn is_due(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(ITEMS)
    }
}
