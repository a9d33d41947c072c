//! The kinds of loss: counter, name in JSON, and whether a loss prevents a conclusion.
//!
//! The report, its JSON, the notes of an export, the expectations of a test and the trace all use this list.
//! Add a new counter here, at the end, and its sentence to `words` in `gpuwhy-report`.

/// One counter of [`Loss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossKind {
    /// Name of the counter in JSON.
    pub name: &'static str,
    /// Amount lost.
    pub count: u64,
    /// True if device work or calls are missing, so that their counts are unreliable.
    pub blocks_judgment: bool,
}

macro_rules! losses {
    ($($(#[$doc:meta])* $counter:ident $($blocks:ident)?,)*) => {
        /// Data that did not become a record. Counters only grow.
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

            /// Reads all counters from `next`, in the same order.
            pub(crate) fn read<E>(mut next: impl FnMut() -> Result<u64, E>) -> Result<Self, E> {
                Ok(Self { $($counter: next()?,)* })
            }

            /// Losses since the counters had the values of `earlier`.
            pub const fn since(&self, earlier: &Self) -> Self {
                Self { $($counter: self.$counter.saturating_sub(earlier.$counter),)* }
            }

            /// Records dropped by CUPTI or gpuwhy.
            pub const fn dropped(&self) -> u64 {
                self.dropped_by_cupti.saturating_add(self.dropped_by_gpuwhy)
            }
        }
    };
}

// Losses marked with `blocks` prevent a conclusion.
losses! {
    /// Records that the tracing library reports as dropped.
    dropped_by_cupti blocks,
    /// Records that gpuwhy received and dropped because it could not keep up.
    dropped_by_gpuwhy blocks,
    /// Records of a kind unknown to this version.
    unknown_kinds,
    /// Activity buffers whose parsing stopped before their end.
    broken_buffers blocks,
    /// Bytes after the point in these buffers at which parsing stopped.
    broken_bytes,
    /// Buffers still held by the tracing library when the wait at exit ended; the number of their records is
    /// unknown.
    undelivered_buffers blocks,
    /// Range events of the program that were dropped because too many were pending.
    dropped_ranges,
    /// Host samples without a result: torn reads, or threads that had exited.
    failed_samples,
    /// Number of times a name, launch configuration, function, frame, device or context found its table full
    /// and was merged with others (see [`Dictionary`](crate::dictionary::Dictionary)).
    dictionary_overflow,
    /// Time in captures without recording, because another tool held the tracing library or because it
    /// refused; nanoseconds.
    unobserved_ns,
    /// Kernels launched by the tracing library itself while kernels were measured; they do not belong to the
    /// program.
    own_kernels,
    /// Collective events that were dropped because too many were pending.
    dropped_collectives,
    /// Nodes of CUDA graphs whose stack was not read: a limit was reached, or another thread was reading.
    unplaced_graph_nodes,
    /// Nodes of CUDA graphs that were dropped because too many were pending.
    dropped_graph_nodes,
    /// Calls that take or give device memory that were dropped because too many were pending.
    dropped_memory_calls,
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
