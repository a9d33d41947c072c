//! One sampled device: opened with the largest set of metrics that completes, decoded, closed.

use cupti_sys::counters::Counters;
use cupti_sys::counters::refusal::CounterError;
use cupti_sys::counters::sampling::{Interval, SampleTime, Sampler, Settings};
use cupti_sys::counters::sets::{self, Links, Quantity};
use cupti_sys::{CuptiResult, DriverDevice, Error};
use gpuwhy_trace::counters::{self, ChipName, CounterEvent, CounterLoss, Metric, MetricList, MetricSet, Sample};
use gpuwhy_trace::record::{DeviceId, Timestamp};

use crate::counters::access_lock::CounterAccess;
use crate::counters::sampling_rate::SamplingRate;

/// First chips that sample by time; Turing and earlier count cycles of the system clock, at about this many
/// Hz.
const FIRST_TIMED: [u32; 2] = [8, 0];
const SYSTEM_CLOCK_HZ: u64 = 1_000_000_000;
/// Number of incomplete samples, without a complete one, after which a unit counts as silent.
const SILENT_UNIT_SAMPLES: u64 = 40;
/// Maximum number of decodings after the end of sampling.
const DECODINGS_AT_END: u32 = 8;
/// Minimum number of decodings before a unit counts as silent.
const DECODINGS_TO_TELL: u32 = 3;
/// Number of consecutive errors after which a device is abandoned.
const CONSECUTIVE_ERRORS: u32 = 5;

/// A device, and the state of its counters.
#[derive(Debug)]
pub struct SampledDevice {
    device: DriverDevice,
    highest_clock_hz: u64,
    links: Links,
    sampler: Option<Sampler>,
    /// End of the newest sample, and length of a sample.
    newest: Timestamp,
    interval_nanos: u64,
    /// Since it was opened: complete samples, and incomplete ones.
    taken: u64,
    unfinished: u64,
    decodings: u32,
    errors: u32,
    /// The hardware's buffer overflowed; a library that cannot keep the newest samples returns no more.
    has_overflowed: bool,
    loss: CounterLoss,
}

impl SampledDevice {
    /// Creates a closed device. `links` are the units other than the chip itself, sampled if they send any
    /// data.
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

    /// True if it is being sampled.
    pub fn is_open(&self) -> bool {
        self.sampler.is_some()
    }

    /// Samples lost up to now.
    pub fn loss(&self) -> CounterLoss {
        self.loss
    }

    /// Notes that the rate was lowered.
    pub fn slowed(&mut self) {
        self.loss.slowed += 1;
    }

    /// Counts samples that did not reach the collector.
    pub fn lost(&mut self, samples: u64) {
        self.loss.lost += samples;
    }

    /// Sets the reason why it is not sampled, as far as known.
    pub fn refuse(&mut self, why: counters::UnavailableReason) {
        self.loss.refused = Some(why);
    }

    /// Opens it, with exclusive access to the counters, and returns the sampled metrics. Fails with the reason why it
    /// cannot be sampled.
    pub fn open(
        &mut self,
        access: &CounterAccess<'_>,
        counters: &'static Counters,
        sampling_rate: &SamplingRate,
    ) -> Result<MetricSet, CounterError> {
        if !counters.can_sample() {
            return Err(CounterError::OldLibrary);
        }
        let ordinal = self.device.ordinal;
        access.ask(counters, ordinal)?;
        let refusal = |error: Error| CounterError::of(&error);
        let chip = counters.chip_name(ordinal).map_err(refusal)?;
        let no_metrics = |error: Error| match CounterError::of(&error) {
            _ if counters.missing_library().is_some() => CounterError::NoMetricLibrary,
            CounterError::Other(CuptiResult::NOT_SUPPORTED | CuptiResult::INVALID_PARAMETER) => CounterError::NoMetrics,
            refusal => refusal,
        };
        let set = sets::choose(counters, &chip, self.links).map_err(no_metrics)?.ok_or(CounterError::NoMetrics)?;
        self.interval_nanos = sampling_rate.interval_nanos();
        let interval = if self.device.compute_capability >= FIRST_TIMED {
            Interval::Time(self.interval_nanos)
        } else {
            Interval::SystemCycles(self.interval_nanos * (SYSTEM_CLOCK_HZ / 1_000_000) / 1_000)
        };
        let metrics: Vec<_> = set.quantities.iter().copied().map(metric).collect();
        let settings =
            Settings { interval, hardware_buffer: sampling_rate.hardware_buffer(), samples: sampling_rate.room() };
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

    /// Decodes the available samples into events, once. Returns true if there are more.
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
            // The hardware overwrites the oldest samples silently.
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
                // One sample is still being collected.
                let unfinished = decoded.incomplete.saturating_sub(1);
                self.unfinished += unfinished;
                loss.incomplete += unfinished + decoded.failed;
                loss.first_dropped += u64::from(decoded.dropped_first);
                decoded.full && decoded.taken > 0
            }
            Err(error) if error.code == CuptiResult::OUT_OF_MEMORY => {
                // The number of lost samples is unknown.
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
                    self.loss.refused = Some(refused(CounterError::of(&error)));
                    self.sampler = None;
                }
                false
            }
        }
    }

    /// Returns and resets the overflow flag; if it is set, the device has to be opened again.
    pub fn take_overflow(&mut self) -> bool {
        std::mem::take(&mut self.has_overflowed)
    }

    /// Checks for a unit that sends no data, so that no sample completes. If there is one, closes the device and
    /// chooses a smaller set of metrics; `Some(false)` if there is no smaller set.
    pub fn gives_up_a_unit(&mut self) -> Option<bool> {
        if self.sampler.is_none()
            || self.taken > 0
            || self.unfinished < SILENT_UNIT_SAMPLES
            || self.decodings < DECODINGS_TO_TELL
        {
            return None;
        }
        self.sampler = None;
        let Some(fewer) = self.links.without_one() else {
            self.loss.refused = Some(counters::UnavailableReason::Incomplete);
            return Some(false);
        };
        self.links = fewer;
        Some(true)
    }

    /// Stops sampling, and decodes the remaining samples into events.
    pub fn close(&mut self, events: &mut Vec<CounterEvent>) {
        let Some(sampler) = &mut self.sampler else { return };
        // Fails if the driver is gone; samples may be available nevertheless.
        let stopped = sampler.stop();
        // Until no more samples arrive; bounded in case the library never stops.
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

/// Converts a refusal to the trace format.
pub fn refused(refusal: CounterError) -> counters::UnavailableReason {
    match refusal {
        CounterError::Busy => counters::UnavailableReason::Busy,
        CounterError::Permission => counters::UnavailableReason::NotPermitted,
        CounterError::Divided | CounterError::Virtual | CounterError::Confidential | CounterError::Device => {
            counters::UnavailableReason::NotSupported
        }
        CounterError::OldLibrary => counters::UnavailableReason::TooOld,
        CounterError::NoMetricLibrary => counters::UnavailableReason::NoLibrary,
        CounterError::NoMetrics => counters::UnavailableReason::UnknownChip,
        CounterError::Other(code) => counters::UnavailableReason::Failed(code.0),
    }
}
