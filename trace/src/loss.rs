//! Each kind of loss: its counter, its name in JSON, and whether it forbids a judgment.
//!
//! The report, its JSON, the notes of an export, the expectations of a test and the trace all read this list, so a new
//! counter is added here, at the end, and its sentence to `words` in `gpuwhy-report`.

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

macro_rules! losses {
    ($($(#[$doc:meta])* $counter:ident $($blocks:ident)?,)*) => {
        /// What did not become a record. Counters only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Loss {
            $($(#[$doc])* pub $counter: u64,)*
        }

        impl Loss {
            /// All counters, in the order of the JSON and of the trace.
            pub fn kinds(&self) -> [LossKind; [$(stringify!($counter)),*].len()] {
                [$(LossKind {
                    name: stringify!($counter),
                    count: self.$counter,
                    blocks_judgment: !stringify!($($blocks)?).is_empty(),
                }),*]
            }

            /// The counters that `next` gives, in the same order.
            pub(crate) fn read<E>(mut next: impl FnMut() -> Result<u64, E>) -> Result<Self, E> {
                Ok(Self { $($counter: next()?,)* })
            }

            /// What was lost since the counters stood at `earlier`.
            pub const fn since(&self, earlier: &Self) -> Self {
                Self { $($counter: self.$counter.saturating_sub(earlier.$counter),)* }
            }

            /// Records that were dropped, by whomever.
            pub const fn dropped(&self) -> u64 {
                self.dropped_by_cupti.saturating_add(self.dropped_by_gpuwhy)
            }
        }
    };
}

// Those behind which `blocks` stands forbid a judgment.
losses! {
    /// Records that the tracing library says it dropped.
    dropped_by_cupti blocks,
    /// Records that gpuwhy received and threw away because it could not keep up.
    dropped_by_gpuwhy blocks,
    /// Records of a kind that this version does not know.
    unknown_kinds,
    /// Activity buffers whose walk stopped before their end.
    broken_buffers blocks,
    /// Bytes in those buffers behind the point where the walk stopped.
    broken_bytes,
    /// Buffers still with the tracing library when the wait at exit ended; their records are unknown in number.
    undelivered_buffers blocks,
    /// Range events of the program that were thrown away because there were too many at once.
    dropped_ranges,
    /// Host samples at host threads that gave nothing: torn reads, threads that were gone.
    failed_samples,
    /// How often a name, launch configuration, function, frame, device or context found its table full and became
    /// one with others (see [`Dictionary`](crate::dictionary::Dictionary)).
    dictionary_overflow,
    /// Time of captures in which nothing could be recorded, because another tool held the tracing library or because
    /// that refused; nanoseconds.
    unobserved_ns,
    /// Kernels that the tracing library launched itself while kernels were measured; they are none of the program's.
    own_kernels,
    /// Events of communicators that were thrown away because there were too many at once.
    dropped_collectives,
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
