//! One device that is sampled: opened with the largest set of metrics that completes, decoded, closed.

use cupti_sys::counters::Counters;
use cupti_sys::counters::refusal::Refusal;
use cupti_sys::counters::sampling::{Interval, SampleTime, Sampler, Settings};
use cupti_sys::counters::sets::{self, Links, Quantity};
use cupti_sys::{CuptiResult, DriverDevice, Error};
use gpuwhy_trace::counters::{self, ChipName, CounterEvent, CounterLoss, Metric, MetricList, MetricSet, Sample};
use gpuwhy_trace::record::{DeviceId, Timestamp};

use crate::counters::pace::Pace;
use crate::counters::turns::Turn;

/// The first chips that sample by time; Turing and before count cycles of the system clock, at about this many Hz.
const FIRST_TIMED: [u32; 2] = [8, 0];
const SYSTEM_CLOCK_HZ: u64 = 1_000_000_000;
/// Samples that were begun and not completed, without one that was, after which a unit is taken to send nothing.
const HOPELESS: u64 = 40;
/// Decodings after the end of sampling at most.
const DECODINGS_AT_END: u32 = 8;
/// Decodings before that is believed.
const DECODINGS_TO_TELL: u32 = 3;
/// Errors in a row after which a device is given up.
const CONSECUTIVE_ERRORS: u32 = 5;

/// A device, and what was seen of its counters.
#[derive(Debug)]
pub struct SampledDevice {
    device: DriverDevice,
    highest_clock_hz: u64,
    links: Links,
    sampler: Option<Sampler>,
    /// End of the newest sample, and what samples last.
    newest: Timestamp,
    interval_nanos: u64,
    /// Since it was opened: samples taken, and those that did not complete.
    taken: u64,
    unfinished: u64,
    decodings: u32,
    errors: u32,
    /// The hardware's buffer ran over, and a library that cannot keep the newest samples gives none any more.
    has_overflowed: bool,
    loss: CounterLoss,
}

impl SampledDevice {
    /// Closed. `links` are the units beside the chip that are sampled if they send anything.
    pub fn new(device: DriverDevice, highest_clock_hz: u64, links: Links) -> Self {
        let loss = CounterLoss { device: DeviceId(device.ordinal), ..CounterLoss::default() };
        Self {
            device,
            highest_clock_hz,
            links,
            sampler: None,
            newest: Timestamp::ZERO,
            interval_nanos: 0,
            taken: 0,
            unfinished: 0,
            decodings: 0,
            errors: 0,
            has_overflowed: false,
            loss,
        }
    }

    pub fn id(&self) -> DeviceId {
        self.loss.device
    }

    /// Whether it is sampled now.
    pub fn is_open(&self) -> bool {
        self.sampler.is_some()
    }

    /// What was lost so far.
    pub fn loss(&self) -> CounterLoss {
        self.loss
    }

    /// The rate was lowered.
    pub fn slowed(&mut self) {
        self.loss.slowed += 1;
    }

    /// So many samples did not reach the collector.
    pub fn lost(&mut self, samples: u64) {
        self.loss.lost += samples;
    }

    /// Why it is not sampled, as far as anybody knows.
    pub fn refuse(&mut self, why: counters::Refusal) {
        self.loss.refused = Some(why);
    }

    /// Opens it, in a turn, and answers what is sampled.
    ///
    /// # Errors
    /// Why it cannot be sampled.
    pub fn open(&mut self, turn: &Turn<'_>, counters: &'static Counters, pace: &Pace) -> Result<MetricSet, Refusal> {
        if !counters.can_sample() {
            return Err(Refusal::OldLibrary);
        }
        let ordinal = self.device.ordinal;
        turn.ask(counters, ordinal)?;
        let refusal = |error: Error| Refusal::of(&error);
        let chip = counters.chip_name(ordinal).map_err(refusal)?;
        let no_metrics = |error: Error| match Refusal::of(&error) {
            _ if counters.missing_library().is_some() => Refusal::NoMetricLibrary,
            Refusal::Other(CuptiResult::NOT_SUPPORTED | CuptiResult::INVALID_PARAMETER) => Refusal::NoMetrics,
            refusal => refusal,
        };
        let set = sets::choose(counters, &chip, self.links).map_err(no_metrics)?.ok_or(Refusal::NoMetrics)?;
        self.interval_nanos = pace.interval_nanos();
        let interval = if self.device.compute_capability >= FIRST_TIMED {
            Interval::Time(self.interval_nanos)
        } else {
            Interval::SystemCycles(self.interval_nanos * (SYSTEM_CLOCK_HZ / 1_000_000) / 1_000)
        };
        let metrics: Vec<_> = set.quantities.iter().copied().map(metric).collect();
        let settings = Settings { interval, hardware_buffer: pace.hardware_buffer(), samples: pace.room() };
        let mut sampler =
            Sampler::open(counters, ordinal, set.host, set.names, set.configuration, settings).map_err(refusal)?;
        sampler.start().map_err(refusal)?;
        tracing::debug!(
            "{chip} {ordinal}: {} counters every {} ns, {} bytes for {} samples",
            metrics.len(),
            self.interval_nanos,
            sampler.image_bytes(),
            settings.samples
        );
        self.sampler = Some(sampler);
        (self.newest, self.taken, self.unfinished) = (Timestamp::ZERO, 0, 0);
        (self.decodings, self.errors) = (0, 0);
        self.loss.refused = None;
        Ok(MetricSet {
            device: self.id(),
            chip: ChipName::new(&chip),
            metrics: MetricList::new(&metrics),
            interval_ns: self.interval_nanos,
            highest_clock_hz: match self.highest_clock_hz {
                0 => u64::from(self.device.core_clock_khz) * 1000,
                hertz => hertz,
            },
            multiprocessors: self.device.multiprocessors,
        })
    }

    /// Decodes what has come into events, once. Answers whether there is more.
    pub fn decode(&mut self, events: &mut Vec<CounterEvent>) -> bool {
        let Some(sampler) = &mut self.sampler else { return false };
        let (device, interval) = (self.loss.device, self.interval_nanos);
        let (newest, loss) = (&mut self.newest, &mut self.loss);
        let take = |time: SampleTime, values: &[f64]| {
            if time.end <= time.begin || values.iter().all(|value| !value.is_finite()) {
                loss.incomplete += 1;
                return;
            }
            let [begin, end] = [time.begin, time.end].map(Timestamp::from_nanos);
            // The hardware overwrites the oldest samples without a word.
            if *newest > Timestamp::ZERO && begin > *newest {
                loss.lost += (begin.since(*newest) + interval / 2) / interval.max(1);
            }
            *newest = end;
            let mut short = [f32::NAN; counters::METRIC_LIMIT];
            for (place, value) in short.iter_mut().zip(values) {
                *place = *value as f32;
            }
            let count = values.len().min(short.len());
            events.push(CounterEvent::Sample(Sample::new(device, begin, end, short.get(..count).unwrap_or(&short))));
        };
        match sampler.decode(take) {
            Ok(decoded) => {
                self.errors = 0;
                self.decodings += 1;
                self.taken += decoded.taken;
                // One of them is being collected.
                let unfinished = decoded.incomplete.saturating_sub(1);
                self.unfinished += unfinished;
                loss.incomplete += unfinished + decoded.failed;
                loss.first_dropped += u64::from(decoded.dropped_first);
                decoded.full && decoded.taken > 0
            }
            Err(error) if error.code == CuptiResult::OUT_OF_MEMORY => {
                // How many samples that were is not told.
                self.loss.lost += 1;
                self.sampler = None;
                self.has_overflowed = true;
                false
            }
            Err(error) => {
                self.errors += 1;
                if self.errors == 1 {
                    tracing::debug!("{error}");
                }
                if self.errors >= CONSECUTIVE_ERRORS {
                    tracing::warn!("GPU counters of device {} are no longer sampled: {error}", device.0);
                    self.loss.refused = Some(refused(Refusal::of(&error)));
                    self.sampler = None;
                }
                false
            }
        }
    }

    /// Whether its buffer ran over since this was last asked, so that it has to be opened again.
    pub fn take_overflow(&mut self) -> bool {
        std::mem::take(&mut self.has_overflowed)
    }

    /// Whether no sample completes, as a unit sends nothing. Closes it then, and chooses a smaller set; `Some(false)`
    /// when there is none.
    pub fn gives_up_a_unit(&mut self) -> Option<bool> {
        if self.sampler.is_none() || self.taken > 0 || self.unfinished < HOPELESS || self.decodings < DECODINGS_TO_TELL
        {
            return None;
        }
        self.sampler = None;
        let Some(fewer) = self.links.without_one() else {
            self.loss.refused = Some(counters::Refusal::Incomplete);
            return Some(false);
        };
        self.links = fewer;
        Some(true)
    }

    /// Ends sampling, and decodes what is left into events.
    pub fn close(&mut self, events: &mut Vec<CounterEvent>) {
        let Some(sampler) = &mut self.sampler else { return };
        // Refused when the driver is gone; what was sampled may be there all the same.
        let stopped = sampler.stop();
        // Until nothing more comes, with a bound for a library that goes on for ever.
        for _ in 0..DECODINGS_AT_END {
            let taken = self.taken;
            self.decode(events);
            if self.taken == taken {
                break;
            }
        }
        tracing::debug!("GPU counters of device {} closed: {stopped:?}, {:?}", self.loss.device.0, self.loss);
        self.sampler = None;
    }
}

fn metric(quantity: Quantity) -> Metric {
    match quantity {
        Quantity::Clock => Metric::Clock,
        Quantity::MultiprocessorsActive => Metric::MultiprocessorsActive,
        Quantity::Issue => Metric::Issue,
        Quantity::Tensor => Metric::Tensor,
        Quantity::Dram => Metric::Dram,
        Quantity::L2 => Metric::L2,
        Quantity::L1 => Metric::L1,
        Quantity::WarpsActive => Metric::WarpsActive,
        Quantity::DramRead => Metric::DramRead,
        Quantity::DramWrite => Metric::DramWrite,
        Quantity::PcieRead => Metric::PcieRead,
        Quantity::PcieWrite => Metric::PcieWrite,
        Quantity::NvlinkRead => Metric::NvlinkRead,
        Quantity::NvlinkWrite => Metric::NvlinkWrite,
        Quantity::EngineActive => Metric::EngineActive,
    }
}

/// A refusal in the words of a trace.
pub fn refused(refusal: Refusal) -> counters::Refusal {
    match refusal {
        Refusal::Busy => counters::Refusal::Busy,
        Refusal::Permission => counters::Refusal::NotPermitted,
        Refusal::Divided | Refusal::Virtual | Refusal::Confidential | Refusal::Device => {
            counters::Refusal::NotSupported
        }
        Refusal::OldLibrary => counters::Refusal::TooOld,
        Refusal::NoMetricLibrary => counters::Refusal::NoLibrary,
        Refusal::NoMetrics => counters::Refusal::UnknownChip,
        Refusal::Other(code) => counters::Refusal::Failed(code.0),
    }
}
