//! How far a piece of work is, and whether it goes on.

use std::ops::{ControlFlow, Range};

/// Work that counts items asks after so many of them.
const ITEMS: u32 = 1 << 14;

/// Is told now and then how much is done, bytes read and bytes in all, and answers whether to go on. A break ends the
/// work with an error that says so ([`OpenError::is_interrupted`](crate::OpenError::is_interrupted)); temporary files
/// are removed.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// A [`Progress`] that shows nothing and never ends the work.
pub fn unwatched(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The progress of a pass that is the part `percent` of the work.
pub fn share(progress: &mut Progress<'_>, percent: Range<u64>) -> impl FnMut(u64, u64) -> ControlFlow<()> {
    move |done, total| progress((total * percent.start + done * (percent.end - percent.start)) / 100, total)
}

/// Counts items and says when it is time to ask.
#[derive(Debug, Default)]
pub(crate) struct Ticks(u32);

impl Ticks {
    /// Counts one item; whether [`Progress`] is to be asked.
    pub(crate) fn is_due(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(ITEMS)
    }
}
