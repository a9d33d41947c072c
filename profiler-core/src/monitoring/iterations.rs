//! Iterations of a server whose device work is not recorded, from the marks of its copies and CUDA graphs.
//!
//! They lie on the host: an iteration lasts from one copy of sampled tokens to the next, as the thread submits them, so
//! time without requests is a part of it. Causes are unknown.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{RangeEvent, ThreadId};
use gpuwhy_trace::submission::SubmissionMark;

use crate::leaf::LEAF_COUNT;
use crate::steps::step_table::StepTable;
use crate::steps::{Cuts, IterationLaunch, Iterations, StepKind, Steps};

/// Maximum number of threads that are followed: 0.5 MB each. A server has one for each device; a new thread takes the
/// place of one without iterations.
const THREADS: usize = 8;

/// Iterations of a server, found by the marks of its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitoredIterations {
    /// The thread that submits them.
    pub thread: ThreadId,
    /// The remembered ones. Times are those of the host, leaves are 0, and operations are marks.
    pub steps: Steps,
    /// Their kinds.
    pub kinds: Vec<StepKind>,
}

/// Work that threads submit.
#[derive(Debug, Default)]
pub(super) struct Submissions(Vec<SubmittingThread>);

#[derive(Debug)]
struct SubmittingThread {
    id: ThreadId,
    iterations: Iterations,
    table: StepTable,
    /// Number of iterations.
    seen: u64,
    /// True if they are those of a server.
    serves: bool,
}

impl Submissions {
    /// Processes a range event.
    pub(super) fn push(&mut self, event: &RangeEvent, dictionary: &Dictionary) {
        let Some((mark, bytes)) = SubmissionMark::of(event, dictionary) else { return };
        if self.0.iter().all(|thread| thread.id != event.thread) {
            if self.0.len() == THREADS {
                let Some(idle) = self.0.iter().position(|thread| thread.seen == 0) else { return };
                self.0.remove(idle);
            }
            let (iterations, table) = (Iterations::default(), StepTable::default());
            self.0.push(SubmittingThread { id: event.thread, iterations, table, seen: 0, serves: false });
        }
        let Some(thread) = self.0.iter_mut().find(|thread| thread.id == event.thread) else { return };
        let iteration = thread.iterations.push(match mark {
            SubmissionMark::ToHost => IterationLaunch::ToHost(bytes),
            SubmissionMark::FromHost => IterationLaunch::FromHost(bytes),
            SubmissionMark::Graph => IterationLaunch::Graph,
        });
        if let Some(cut) = iteration {
            thread.serves = cut.serves;
            thread.seen += u64::from(cut.ended.is_some());
        }
        thread.table.operation(event.at.nanos(), false, Cuts { step: None, iteration }, &[0; LEAF_COUNT]);
    }

    fn serving(&self) -> Option<&SubmittingThread> {
        self.0.iter().filter(|thread| thread.serves).max_by_key(|thread| thread.seen)
    }

    /// The thread that runs most iterations of a server.
    pub(super) fn thread(&self) -> Option<ThreadId> {
        self.serving().map(|thread| thread.id)
    }

    /// Iterations of that thread.
    pub(super) fn iterations(&self) -> Option<MonitoredIterations> {
        let &SubmittingThread { id: thread, ref table, .. } = self.serving()?;
        let kinds = table.iteration_kinds();
        (!kinds.is_empty()).then(|| MonitoredIterations { thread, steps: table.steps(), kinds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{Iteration, IterationKind, StepSource};
    use gpuwhy_trace::record::{Payload, RangeEventKind, Timestamp};

    /// A thread that submits copies and graphs.
    struct Program {
        dictionary: Dictionary,
        submissions: Submissions,
        at: u64,
    }

    impl Program {
        fn submit(&mut self, thread: u32, mark: SubmissionMark, bytes: u64) {
            self.at += 100;
            let [domain, message] = [SubmissionMark::DOMAIN, mark.name()].map(|name| self.dictionary.intern_name(name));
            let event = RangeEvent {
                at: Timestamp::from_nanos(self.at),
                thread: ThreadId(thread),
                kind: RangeEventKind::Mark,
                domain,
                message,
                payload: Payload::Unsigned(bytes),
                ..RangeEvent::default()
            };
            self.submissions.push(&event, &self.dictionary);
        }

        /// An iteration with this many sequences and tokens, that takes `nanos`.
        fn iteration(&mut self, thread: u32, sequences: u64, tokens: u64, nanos: u64) {
            let end = self.at + nanos;
            for bytes in [tokens * 4, tokens * 4, (sequences + 1) * 4] {
                self.submit(thread, SubmissionMark::FromHost, bytes);
            }
            self.submit(thread, SubmissionMark::Graph, 0);
            self.at = end - 100;
            self.submit(thread, SubmissionMark::ToHost, sequences * 4);
        }
    }

    /// Numbers of sequences of a server, which differ.
    const SEQUENCES: [u64; 3] = [32, 31, 33];

    fn program() -> Program {
        Program { dictionary: Dictionary::new(), submissions: Submissions::default(), at: 1_000 }
    }

    #[test]
    fn iterations_of_a_server_have_kinds_and_host_times() {
        let mut program = program();
        for number in 0..40 {
            let sequences = SEQUENCES[number % 3];
            let (tokens, nanos) = if number % 10 == 0 { (900, 50_000) } else { (sequences, 8_000) };
            program.iteration(7, sequences, tokens, nanos);
            // Another thread reads a value now and then.
            program.submit(8, SubmissionMark::ToHost, 4);
        }
        assert_eq!(program.submissions.thread(), Some(ThreadId(7)));
        let found = program.submissions.iterations().unwrap();
        assert_eq!((found.steps.source, found.steps.seen), (StepSource::Iteration, 40));
        let kinds: Vec<_> =
            found.kinds.iter().map(|kind| (kind.name, kind.count, kind.sequences, kind.tokens)).collect();
        assert_eq!(kinds, [("decode", 36, Some(32), Some(36 * 32)), ("prefill or mixed", 4, Some(32), Some(3_600))]);
        assert!((8_000..8_300).contains(&found.kinds[0].median_ns), "{:?}", found.kinds[0]);
        let last = found.steps.rows.last().unwrap().iteration;
        assert_eq!(last, Some(Iteration { kind: IterationKind::Decode, sequences: 32, tokens: 32 }));
    }

    #[test]
    fn iterations_of_vllm_are_found_without_its_ids() {
        let mut program = program();
        for number in 0..60 {
            let sequences = 20 - number / 10;
            for bytes in [24, 7_000, 24, 4 * sequences, 260] {
                program.submit(7, SubmissionMark::FromHost, bytes);
            }
            // Prompts run without a graph.
            if number % 10 > 0 {
                program.submit(7, SubmissionMark::Graph, 0);
            }
            program.submit(7, SubmissionMark::ToHost, 8 * sequences);
            program.submit(7, SubmissionMark::ToHost, 4 * sequences);
        }
        let kinds = program.submissions.iterations().unwrap().kinds;
        let kinds: Vec<_> = kinds.iter().map(|kind| (kind.name, kind.count, kind.tokens.is_some())).collect();
        // The first prompt is one iteration with the decode after it: no graph came before.
        assert_eq!(kinds, [("decode", 53, true), ("prefill or mixed", 6, false)]);
    }

    #[test]
    fn a_training_that_reads_its_loss_has_no_iterations() {
        let mut program = program();
        for _ in 0..100 {
            for bytes in [4_096, 4_096, 512] {
                program.submit(7, SubmissionMark::FromHost, bytes);
            }
            program.submit(7, SubmissionMark::Graph, 0);
            program.submit(7, SubmissionMark::ToHost, 4);
        }
        assert_eq!((program.submissions.thread(), program.submissions.iterations()), (None, None));
    }

    #[test]
    fn threads_and_iterations_are_bounded() {
        let mut program = program();
        for _ in 0..5_000 {
            program.iteration(3, 8, 8, 1_000);
        }
        for thread in 0..100 {
            program.submit(thread, SubmissionMark::ToHost, 4);
        }
        let threads = &program.submissions.0;
        assert!(threads.len() == THREADS && threads.iter().any(|thread| thread.id == ThreadId(3)));
        assert!(threads.iter().all(|thread| thread.table.steps().rows.len() <= 1_024));
    }

    #[test]
    fn threads_that_load_weights_do_not_shut_the_engine_out() {
        let mut program = program();
        for number in 0..500 {
            program.submit(number % 50, SubmissionMark::FromHost, 4_096);
        }
        for number in 0..40 {
            let sequences = SEQUENCES[number as usize % 3];
            program.iteration(50, sequences, if number % 10 == 0 { 900 } else { sequences }, 8_000);
            program.submit(number, SubmissionMark::FromHost, 4_096);
        }
        assert_eq!(program.submissions.thread(), Some(ThreadId(50)));
        assert_eq!(program.submissions.iterations().unwrap().steps.seen, 40);
    }
}
