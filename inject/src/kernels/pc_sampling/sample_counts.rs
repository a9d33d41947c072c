//! Counts of PC samples, limited in memory.

use std::collections::HashMap;

use cupti_sys::counters::pc::{Fetched, PcSample};
use gpuwhy_trace::kernels::{Outcome, PcCount, PcFunction, PcWindow, limit};

/// A function, an offset in it, and CUPTI's number of a stall reason.
type SampleKey = (u32, u64, u32);

/// Counts of samples. Memory is bounded by [`limit`].
#[derive(Debug, Default)]
pub struct SampleCounts {
    functions: HashMap<u64, HashMap<String, u32>>,
    function_count: u32,
    counts: HashMap<SampleKey, u64>,
    fetched: Fetched,
    overflow: u64,
    full: u64,
}

impl SampleCounts {
    /// Adds the samples of one program counter.
    pub fn take(&mut self, sample: &PcSample<'_>) {
        let Some(function) = self.function(sample.module, sample.function) else {
            let samples: u64 = sample.reasons.iter().map(|reason| u64::from(reason.samples)).sum();
            self.overflow = self.overflow.saturating_add(samples);
            return;
        };
        for reason in sample.reasons.iter().filter(|reason| reason.samples > 0) {
            let key = (function, sample.offset, reason.index);
            let samples = u64::from(reason.samples);
            if self.counts.len() >= limit::COUNTS && !self.counts.contains_key(&key) {
                self.overflow = self.overflow.saturating_add(samples);
                continue;
            }
            let count = self.counts.entry(key).or_default();
            *count = count.saturating_add(samples);
        }
    }

    /// Adds the totals of a fetch.
    pub fn add(&mut self, fetched: Fetched) {
        self.fetched.samples = self.fetched.samples.saturating_add(fetched.samples);
        self.fetched.dropped = self.fetched.dropped.saturating_add(fetched.dropped);
        self.fetched.foreign = self.fetched.foreign.saturating_add(fetched.foreign);
        self.full += u64::from(fetched.full);
    }

    /// Adds the counts to a window; `reasons` are CUPTI's numbers of stall reasons and their names.
    pub fn conclude(self, window: PcWindow, reasons: &[(u32, String)]) -> PcWindow {
        let mut functions = vec![PcFunction::default(); self.function_count as usize];
        for (module, names) in self.functions {
            for (symbol, place) in names {
                if let Some(function) = functions.get_mut(place as usize) {
                    *function = PcFunction { module, symbol };
                }
            }
        }
        let places: HashMap<u32, u32> = (0..).zip(reasons).map(|(place, &(index, _))| (index, place)).collect();
        let mut overflow = self.overflow;
        let mut counts = Vec::with_capacity(self.counts.len());
        for ((function, offset, index), samples) in self.counts {
            match places.get(&index) {
                Some(&reason) => counts.push(PcCount { function, offset, reason, samples }),
                None => overflow = overflow.saturating_add(samples),
            }
        }
        counts.sort_unstable();
        let has_samples = self.fetched.samples > 0 || !counts.is_empty();
        PcWindow {
            outcome: if has_samples { Outcome::Measured } else { Outcome::NotLaunched },
            reasons: reasons.iter().map(|(_, name)| name.clone()).collect(),
            functions,
            counts,
            samples: self.fetched.samples,
            dropped: self.fetched.dropped,
            foreign: self.fetched.foreign,
            overflow,
            full: self.full,
            ..window
        }
    }

    fn function(&mut self, module: u64, symbol: &str) -> Option<u32> {
        let names = self.functions.entry(module).or_default();
        if let Some(&place) = names.get(symbol) {
            return Some(place);
        }
        if self.function_count as usize >= limit::FUNCTIONS {
            return None;
        }
        names.insert(symbol.to_owned(), self.function_count);
        self.function_count += 1;
        Some(self.function_count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cupti_sys::counters::abi::StallReason;

    fn seen(sample_counts: &mut SampleCounts, module: u64, function: &str, offset: u64, reasons: &[(u32, u32)]) {
        let reasons: Vec<_> = reasons.iter().map(|&(index, samples)| StallReason { index, samples }).collect();
        sample_counts.take(&PcSample { module, function, offset, reasons: &reasons });
    }

    #[test]
    fn samples_add_up_and_come_sorted() {
        let mut sample_counts = SampleCounts::default();
        seen(&mut sample_counts, 7, "f", 0x20, &[(3, 5), (9, 1)]);
        seen(&mut sample_counts, 7, "g", 0x10, &[(3, 2)]);
        seen(&mut sample_counts, 7, "f", 0x20, &[(3, 5), (4, 0)]);
        seen(&mut sample_counts, 8, "f", 0x00, &[(9, 4)]);
        seen(&mut sample_counts, 8, "f", 0x00, &[(77, 6)]);
        sample_counts.add(Fetched { samples: 25, dropped: 2, foreign: 1, full: false });
        sample_counts.add(Fetched { samples: 5, dropped: 0, foreign: 0, full: true });
        let reasons = [(3, "wait".to_owned()), (9, "selected".to_owned())];
        let window = sample_counts.conclude(PcWindow::default(), &reasons);
        let counts: Vec<_> = window.counts.iter().map(|of| (of.function, of.offset, of.reason, of.samples)).collect();
        assert_eq!(counts, [(0, 0x20, 0, 10), (0, 0x20, 1, 1), (1, 0x10, 0, 2), (2, 0, 1, 4)]);
        let functions: Vec<_> = window.functions.iter().map(|of| (of.module, of.symbol.as_str())).collect();
        assert_eq!(functions, [(7, "f"), (7, "g"), (8, "f")]);
        assert_eq!((window.samples, window.dropped, window.foreign, window.full), (30, 2, 1, 1));
        assert_eq!((window.overflow, window.outcome), (6, Outcome::Measured), "a reason without a name");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut sample_counts = SampleCounts::default();
        for number in 0..=limit::FUNCTIONS {
            seen(&mut sample_counts, 1, &format!("f{number}"), 0, &[(0, 2)]);
        }
        assert_eq!(sample_counts.overflow, 2);
        for offset in 0..limit::COUNTS as u64 {
            seen(&mut sample_counts, 1, "f0", offset + 1, &[(0, 1)]);
        }
        assert_eq!(sample_counts.overflow, 2 + limit::FUNCTIONS as u64);
        seen(&mut sample_counts, 1, "f0", 0, &[(0, 1)]);
        let window = sample_counts.conclude(PcWindow::default(), &[(0, "wait".to_owned())]);
        assert_eq!((window.counts.len(), window.counts[0].samples), (limit::COUNTS, 3), "what is known goes on");
        assert_eq!(SampleCounts::default().conclude(PcWindow::default(), &[]).outcome, Outcome::NotLaunched);
    }
}
