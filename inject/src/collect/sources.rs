//! Where events come from: CUPTI's buffers, the program's ranges and communicators, samples of its threads.
//!
//! Other threads hand over what is an event already: readings of counters, profiles of kernels.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{HostSample, Record, StackId, Timestamp};

use crate::cupti::decode::Decoder;
use crate::nvtx;
use crate::sampler::launchers::CallCounter;
use crate::sampler::queue::SampleBatch;
use crate::sampler::stacks::PythonStacks;

/// All that have to intern names.
pub struct Sources {
    pub decoder: Decoder,
    ranges: nvtx::Drain,
    stacks: PythonStacks,
    /// Interns the native functions that stand alone.
    earlier_stacks: PythonStacks,
    /// Which threads launch.
    pub calls: CallCounter,
}

impl Sources {
    /// With the decoder of the loaded CUPTI.
    pub fn new(decoder: Decoder) -> Self {
        Self {
            decoder,
            ranges: nvtx::Drain::default(),
            stacks: PythonStacks::new(),
            earlier_stacks: PythonStacks::new(),
            calls: CallCounter::default(),
        }
    }

    /// What events refer to.
    #[inline]
    pub fn dictionary(&self) -> &Dictionary {
        self.decoder.dictionary()
    }

    /// The program's ranges and marks up to `until`, and what NCCL told meanwhile.
    pub fn ranges(&mut self, until: Timestamp, events: &mut Vec<Event>) {
        let ranges = self.ranges.events(until, self.decoder.dictionary_mut());
        events.extend(ranges.map(|range| Event::Record(Record::Range(range))));
        events.extend(self.ranges.collectives().map(Event::Collective));
    }

    /// The first ranges that the program opened.
    pub fn opened_ranges(&self) -> Vec<String> {
        self.ranges.opened(self.decoder.dictionary())
    }

    /// What the sampler saw. Answers how many looks failed.
    pub fn samples(&mut self, batch: &SampleBatch, events: &mut Vec<Event>) -> u64 {
        let mut failed = batch.failed;
        for queued in &batch.samples {
            let stack = self.stacks.intern(&queued.frames, self.decoder.dictionary_mut());
            failed += u64::from(stack.is_none());
            let stack = stack.unwrap_or(StackId::NONE);
            let earlier = match queued.earlier.is_empty() {
                true => None,
                false => self.earlier_stacks.intern(&queued.earlier, self.decoder.dictionary_mut()),
            };
            events.push(Event::Record(Record::Sample(HostSample { stack, earlier, ..queued.sample })));
        }
        failed
    }
}
