//! Counters of one capture by device: samples joined with the operations that ran, and totals of readings.

use gpuwhy_trace::counters::{CounterEvent, MetricSet};
use gpuwhy_trace::record::{DeviceId, LaunchConfigId, Timestamp};
use gpuwhy_trace::utilization::DEVICE_LIMIT;
use rustc_hash::FxHashMap;

use super::estimate::{Activity, Estimator};
use super::power::GaugeSums;
use super::roofs::{KernelLimits, REACHABLE};

/// Number of samples at which estimates for the simulation are made first; then each time at half as many
/// more.
const FIRST_ESTIMATE: u64 = 40;

/// Counters of one device.
#[derive(Clone, Debug)]
pub struct DeviceCounters {
    /// The device.
    pub device: DeviceId,
    /// Totals of its readings.
    pub gauges: GaugeSums,
    estimator: Option<Estimator>,
    /// Fraction of a kernel's time (0 to 1) that remains at its roofline, by the newest estimates; for the
    /// simulation.
    at_roof: FxHashMap<LaunchConfigId, f32>,
    /// Number of samples at which the next estimates are made.
    due: u64,
}

impl DeviceCounters {
    /// Its samples; `None` if it is not sampled.
    pub fn estimator(&self) -> Option<&Estimator> {
        self.estimator.as_ref()
    }

    fn advance(&mut self, watermark: u64) {
        let Some(estimator) = &mut self.estimator else { return };
        estimator.advance(watermark);
        let used = estimator.counts().used;
        if used >= self.due {
            let estimates = estimator.solve();
            let limits = |config| KernelLimits::of(Activity::Kernel(config), &estimates, estimator.set());
            let reported = estimates.resolved().map(|config| (config, limits(config)));
            let known = reported.filter(|(_, limits)| limits.roof.is_some());
            self.at_roof = known.map(|(config, limits)| (config, limits.at_roof(REACHABLE) as f32)).collect();
            self.due = used + (used / 2).max(FIRST_ESTIMATE);
        }
    }
}

/// Counters of all devices.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    devices: Vec<DeviceCounters>,
    /// Start of the capture, nanoseconds; earlier samples are ignored.
    from: u64,
    sampled: bool,
}

impl Counters {
    /// The capture starts at `at`.
    pub fn begin(&mut self, at: Timestamp) {
        self.from = at.nanos();
    }

    /// Processes an event.
    pub fn take(&mut self, event: &CounterEvent) {
        match event {
            CounterEvent::Set(set) => self.set(set),
            CounterEvent::Sample(sample) => {
                let estimator = self.device_mut(sample.device).and_then(|device| device.estimator.as_mut());
                if let Some(estimator) = estimator {
                    estimator.sample(*sample);
                }
            }
            CounterEvent::Gauges(reading) if reading.at.nanos() >= self.from => {
                if let Some(device) = self.device_mut(reading.device) {
                    device.gauges.add(reading);
                }
            }
            CounterEvent::Gauges(_) | CounterEvent::Process(_) | CounterEvent::Loss(_) => {}
        }
    }

    /// Samples of the same metrics continue; for other metrics they start over.
    fn set(&mut self, set: &MetricSet) {
        let from = self.from;
        let Some(device) = self.device_mut(set.device) else { return };
        match &mut device.estimator {
            Some(estimator) if estimator.set().metrics == set.metrics => estimator.change_set(*set),
            estimator => {
                *estimator = Some(Estimator::new(*set, from));
                device.due = FIRST_ESTIMATE;
                device.at_roof = FxHashMap::default();
            }
        }
        self.sampled = true;
    }

    /// True if any device is sampled; otherwise operations need not be reported.
    #[inline]
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Records that `device` ran an operation from `start` to `end`.
    pub fn ran(&mut self, device: DeviceId, activity: Activity, start: u64, end: u64) {
        let known = self.devices.iter_mut().find(|known| known.device == device);
        if let Some(estimator) = known.and_then(|device| device.estimator.as_mut()) {
            estimator.ran(activity, start, end);
        }
    }

    /// Duration of a kernel of `nanos` at the achievable peak of its nearest roofline, by the samples up to
    /// now; 0 if unknown.
    pub fn at_roof(&self, device: DeviceId, config: LaunchConfigId, nanos: u64) -> u32 {
        let remains = self.device(device).and_then(|known| known.at_roof.get(&config));
        remains.map_or(0, |part| u32::try_from((nanos as f64 * f64::from(*part)) as u64).unwrap_or(u32::MAX).max(1))
    }

    /// All operations that ended before `watermark` have been reported.
    pub fn advance(&mut self, watermark: u64) {
        if self.sampled {
            self.devices.iter_mut().for_each(|device| device.advance(watermark));
        }
    }

    /// Counters of `device`.
    pub fn device(&self, device: DeviceId) -> Option<&DeviceCounters> {
        self.devices.iter().find(|known| known.device == device)
    }

    fn device_mut(&mut self, device: DeviceId) -> Option<&mut DeviceCounters> {
        let known = self.devices.iter().position(|known| known.device == device);
        let place = match known {
            Some(place) => place,
            None if self.devices.len() >= DEVICE_LIMIT => return None,
            None => {
                let (gauges, at_roof) = (GaugeSums::default(), FxHashMap::default());
                self.devices.push(DeviceCounters { device, gauges, estimator: None, at_roof, due: FIRST_ESTIMATE });
                self.devices.len() - 1
            }
        };
        self.devices.get_mut(place)
    }
}
