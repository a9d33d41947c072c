//! Each kind of loss: its name in JSON, and whether it forbids a judgment.
//!
//! The report, its JSON, the notes of an export and the expectations of a test all read this list, so a new counter of
//! [`Loss`] is added here, and its sentence to `words` in `gpuwhy-report`.

use crate::record::Loss;

/// One counter of [`Loss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossKind {
    /// Name of the counter in JSON.
    pub name: &'static str,
    /// How much was lost.
    pub count: u64,
    /// Whether device work or calls are missing, so that no count of them can be believed.
    pub blocks_judgment: bool,
}

impl Loss {
    /// All counters, in the order of the JSON.
    #[must_use]
    pub fn kinds(&self) -> [LossKind; 12] {
        // Whoever adds a counter is told here.
        let Self {
            dropped_by_cupti,
            dropped_by_gpuwhy,
            unknown_kinds,
            broken_buffers,
            broken_bytes,
            undelivered_buffers,
            dropped_ranges,
            failed_samples,
            dictionary_overflow,
            unobserved_ns,
            own_kernels,
            dropped_collectives,
        } = *self;
        let blocks = |name, count| LossKind { name, count, blocks_judgment: true };
        let allows = |name, count| LossKind { name, count, blocks_judgment: false };
        [
            blocks("dropped_by_cupti", dropped_by_cupti),
            blocks("dropped_by_gpuwhy", dropped_by_gpuwhy),
            allows("unknown_kinds", unknown_kinds),
            blocks("broken_buffers", broken_buffers),
            allows("broken_bytes", broken_bytes),
            blocks("undelivered_buffers", undelivered_buffers),
            allows("dropped_ranges", dropped_ranges),
            allows("failed_samples", failed_samples),
            allows("dictionary_overflow", dictionary_overflow),
            allows("unobserved_ns", unobserved_ns),
            allows("own_kernels", own_kernels),
            allows("dropped_collectives", dropped_collectives),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judgment_needs_all_records_and_buffers() {
        let blocking: Vec<_> =
            Loss::default().kinds().into_iter().filter(|kind| kind.blocks_judgment).map(|kind| kind.name).collect();
        assert_eq!(blocking, ["dropped_by_cupti", "dropped_by_gpuwhy", "broken_buffers", "undelivered_buffers"]);
    }
}
