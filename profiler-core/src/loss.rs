//! Each kind of loss: its name in JSON, its sentence, and whether it forbids a judgment.
//!
//! The report, its JSON, the notes of an export and the expectations of a test all read this list, so a new counter of
//! [`Loss`] is added here once.

use crate::record::Loss;
use crate::text_format::{counted, duration};

/// One counter of [`Loss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossKind {
    /// Name of the counter in JSON.
    pub name: &'static str,
    /// How much was lost.
    pub count: u64,
    /// Whether device work or calls are missing, so that no count of them can be believed.
    pub blocks_judgment: bool,
    wording: Wording,
}

/// How a count becomes a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wording {
    /// Words before the count, what was lost in the singular, words behind it.
    Counted(&'static str, &'static str, &'static str),
    /// The count is a time.
    Unobserved,
    /// Another part of the report says it.
    Elsewhere,
}

impl LossKind {
    /// A sentence for people; `None` when nothing was lost, or when another part of the report says it.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        match self.wording {
            _ if self.count == 0 => None,
            Wording::Counted(before, what, after) => {
                Some(format!("{}.", format!("{before} {} {after}", counted(self.count, what)).trim_end()))
            }
            Wording::Unobserved => Some(format!(
                "Nothing was recorded for {}, because another tool used CUPTI or CUPTI refused.",
                duration(self.count)
            )),
            Wording::Elsewhere => None,
        }
    }
}

impl Loss {
    /// All counters, in the order of the JSON.
    #[must_use]
    pub fn kinds(&self) -> [LossKind; 12] {
        use Wording::{Counted, Elsewhere, Unobserved};
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
        let blocks = |name, count, wording| LossKind { name, count, blocks_judgment: true, wording };
        let allows = |name, count, wording| LossKind { name, count, blocks_judgment: false, wording };
        [
            blocks("dropped_by_cupti", dropped_by_cupti, Counted("CUPTI dropped", "record", "")),
            blocks("dropped_by_gpuwhy", dropped_by_gpuwhy, Counted("gpuwhy dropped", "record", "")),
            allows("unknown_kinds", unknown_kinds, Counted("Not understood:", "record", "of an unknown kind")),
            blocks("broken_buffers", broken_buffers, Counted("CUPTI delivered", "broken buffer", "")),
            // The sentence of the buffers is enough.
            allows("broken_bytes", broken_bytes, Elsewhere),
            blocks("undelivered_buffers", undelivered_buffers, Counted("CUPTI never delivered", "buffer", "")),
            allows("dropped_ranges", dropped_ranges, Counted("gpuwhy dropped", "NVTX range event", "")),
            // The samples that failed stand beside those that did not.
            allows("failed_samples", failed_samples, Elsewhere),
            allows(
                "dictionary_overflow",
                dictionary_overflow,
                Counted("Too many names: counted without theirs", "record", ""),
            ),
            allows("unobserved_ns", unobserved_ns, Unobserved),
            allows(
                "own_kernels",
                own_kernels,
                Counted("Measuring kernels ran", "kernel", "of CUPTI's own, which are left out"),
            ),
            allows("dropped_collectives", dropped_collectives, Counted("gpuwhy dropped", "event", "of NCCL")),
        ]
    }

    /// What was lost, for people; nothing for a complete run.
    pub fn sentences(&self) -> impl Iterator<Item = String> + use<> {
        self.kinds().into_iter().filter_map(|kind| kind.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_lost_has_a_sentence() {
        assert_eq!(Loss::default().sentences().count(), 0);
        let loss =
            Loss { dropped_by_cupti: 1, broken_buffers: 2, broken_bytes: 96, unobserved_ns: 2_000, ..Loss::default() };
        let sentences: Vec<_> = loss.sentences().collect();
        assert_eq!(sentences[..2], ["CUPTI dropped 1 record.", "CUPTI delivered 2 broken buffers."]);
        assert!(sentences[2].starts_with("Nothing was recorded for 2"), "{sentences:?}");
        assert_eq!(sentences.len(), 3);
    }

    #[test]
    fn a_judgment_needs_all_records_and_buffers() {
        let blocking: Vec<_> =
            Loss::default().kinds().into_iter().filter(|kind| kind.blocks_judgment).map(|kind| kind.name).collect();
        assert_eq!(blocking, ["dropped_by_cupti", "dropped_by_gpuwhy", "broken_buffers", "undelivered_buffers"]);
    }
}
