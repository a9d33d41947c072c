//! The counters of one capture: samples joined with what ran, and what gauges add up to, by device.

use gpuwhy_trace::counters::{CounterEvent, MetricSet};
use gpuwhy_trace::record::{DeviceId, LaunchConfigId, Timestamp};
use gpuwhy_trace::utilization::DEVICE_LIMIT;
use rustc_hash::FxHashMap;

use super::estimate::{Activity, Estimator};
use super::power::GaugeSums;
use super::roofs::{KernelLimits, REACHABLE};

/// Estimates for the simulation are made anew when there are so many samples, and then a half more each time.
const FIRST_ESTIMATE: u64 = 40;

/// What is known of one device.
#[derive(Clone, Debug)]
pub struct DeviceCounters {
    /// The device.
    pub device: DeviceId,
    /// What its gauges add up to.
    pub gauges: GaugeSums,
    estimator: Option<Estimator>,
    /// What remains of a kernel's time at its roof, 0 to 1, by the newest estimates: for the simulation.
    at_roof: FxHashMap<LaunchConfigId, f32>,
    /// The number of samples after which the next estimates are made.
    due: u64,
}

impl DeviceCounters {
    /// Its samples; `None` when it is not sampled.
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
            let told = estimates.told().map(|config| (config, limits(config)));
            let known = told.filter(|(_, limits)| limits.roof.is_some());
            self.at_roof = known.map(|(config, limits)| (config, limits.at_roof(REACHABLE) as f32)).collect();
            self.due = used + (used / 2).max(FIRST_ESTIMATE);
        }
    }
}

/// Those of all devices.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    devices: Vec<DeviceCounters>,
    /// Samples before this are not of the capture, nanoseconds.
    from: u64,
    sampled: bool,
}

impl Counters {
    /// The capture begins at `at`.
    pub fn begin(&mut self, at: Timestamp) {
        self.from = at.nanos();
    }

    /// Takes an event.
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
            CounterEvent::Gauges(_) | CounterEvent::Loss(_) => {}
        }
    }

    /// Samples of the same metrics go on; those of others begin anew.
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

    /// Whether anything is sampled: else what runs need not be told.
    #[inline]
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Something ran on `device` from `start` to `end`.
    pub fn ran(&mut self, device: DeviceId, activity: Activity, start: u64, end: u64) {
        let known = self.devices.iter_mut().find(|known| known.device == device);
        if let Some(estimator) = known.and_then(|device| device.estimator.as_mut()) {
            estimator.ran(activity, start, end);
        }
    }

    /// How long a kernel of `nanos` would take at what the best kernels reach of its nearest roof, by the samples
    /// so far; 0 when that is not known.
    pub fn at_roof(&self, device: DeviceId, config: LaunchConfigId, nanos: u64) -> u32 {
        let remains = self.device(device).and_then(|known| known.at_roof.get(&config));
        remains.map_or(0, |part| u32::try_from((nanos as f64 * f64::from(*part)) as u64).unwrap_or(u32::MAX).max(1))
    }

    /// All that ended before `watermark` has been told.
    pub fn advance(&mut self, watermark: u64) {
        if self.sampled {
            self.devices.iter_mut().for_each(|device| device.advance(watermark));
        }
    }

    /// What is known of `device`.
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
