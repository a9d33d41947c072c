//! Reads the utilization of the process's devices while it is only watched: NVML's rates, and hardware
//! counters (GPM).
//!
//! Rates are those of the driver's last sample period, assumed valid since the previous reading; counters are
//! exact for any interval. Neither distinguishes processes.

use std::time::{Duration, Instant};

use cupti_sys::devices_in_use;
use gpuwhy_trace::record::DeviceId;
use gpuwhy_trace::utilization::{Absence, Counter, DeviceUtilization, UtilizationReading};
use nvml_sys::{Device, Metric, Sample};

use crate::counters::nvml::{Devices, absence};

/// Interval between readings. Counters advance ten times a second, and rates five times (H200, driver 580:
/// docs/design/overhead.md); a round takes 1.2 ms there, so this is half a percent of a core.
pub const PERIOD: Duration = Duration::from_millis(250);
/// Maximum wait for the first context, after which all devices that the driver shows are read.
const CONTEXT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time that a rate is an average over (NVML reference, `nvmlUtilization_t`): it covers no more,
/// however late the next reading is.
const LONGEST_MEAN: Duration = Duration::from_secs(1);
/// Bytes of the unit in which NVML reports traffic, MiB/s.
const MIB: f64 = (1u64 << 20) as f64;

/// Metrics, in the order of [`Counter::ALL`].
const METRICS: [Metric; Counter::ALL.len()] = [
    Metric::GRAPHICS_UTIL,
    Metric::SM_UTIL,
    Metric::SM_OCCUPANCY,
    Metric::ANY_TENSOR_UTIL,
    Metric::DRAM_BW_UTIL,
    Metric::PCIE_TX_PER_SEC,
    Metric::PCIE_RX_PER_SEC,
    Metric::NVLINK_TOTAL_TX_PER_SEC,
    Metric::NVLINK_TOTAL_RX_PER_SEC,
];

/// Utilization of all devices of the process, and the time of the next reading.
#[derive(Debug)]
pub struct UtilizationReader {
    begun: Instant,
    due: Instant,
    state: DeviceState,
    /// True if the time between the last reading and the next does not count.
    paused: bool,
}

#[derive(Debug)]
enum DeviceState {
    /// There is no context yet.
    Waiting,
    Open(OpenReader),
    /// Unavailable for the rest of the run.
    Absent,
}

#[derive(Debug, Default)]
struct OpenReader {
    /// Contexts for which the meters were opened.
    contexts: u64,
    meters: Vec<Meter>,
}

#[derive(Debug)]
struct Meter {
    device: Device,
    read: Instant,
    totals: DeviceUtilization,
    counters: Option<Counters>,
}

/// Two readings of hardware counters; each new reading overwrites the older one.
#[derive(Debug)]
struct Counters {
    last: Sample,
    spare: Sample,
    at: Instant,
}

impl UtilizationReader {
    /// Creates a reader without any open device.
    pub fn new() -> Self {
        let now = Instant::now();
        Self { begun: now, due: now, state: DeviceState::Waiting, paused: false }
    }

    /// Notes that the program is not watched at the moment.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Reads the devices if that is due, and passes the readings to `hand_over`.
    pub fn tick(&mut self, found: &mut Option<Devices>, mut hand_over: impl FnMut(UtilizationReading)) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        let contexts = devices_in_use();
        self.due = now + PERIOD;
        let paused = std::mem::take(&mut self.paused);
        match &mut self.state {
            DeviceState::Waiting if contexts == 0 && now - self.begun < CONTEXT_TIMEOUT => {}
            DeviceState::Waiting => {
                let devices = Devices::find(found).ok_or(Absence::NoDevice);
                match devices.and_then(|devices| devices.nvml.map(|_| devices)) {
                    Ok(devices) => {
                        let mut open = OpenReader::default();
                        open.add(devices, contexts, &mut hand_over);
                        self.state = DeviceState::Open(open);
                    }
                    Err(why) => {
                        tracing::info!("utilization is not read: {}", why.words());
                        hand_over(UtilizationReading::Absent(why));
                        self.state = DeviceState::Absent;
                    }
                }
            }
            DeviceState::Open(open) => {
                for meter in open.meters.iter_mut().filter(|meter| uses(contexts, meter.totals.device)) {
                    if paused {
                        meter.begin_again();
                    } else {
                        meter.read();
                    }
                    hand_over(UtilizationReading::Device(meter.totals));
                }
                if contexts != open.contexts
                    && let Some(devices) = found
                {
                    open.add(devices, contexts, &mut hand_over);
                }
            }
            DeviceState::Absent => {}
        }
    }
}

/// True if the process has a context on this device; assumed for all devices without any context yet, and for
/// ordinals of 64 and above.
fn uses(contexts: u64, device: DeviceId) -> bool {
    contexts == 0 || device.0 >= u64::BITS || contexts & (1 << device.0) != 0
}

impl OpenReader {
    /// Adds devices that have come into use; reports absent ones at once.
    fn add(&mut self, devices: &mut Devices, contexts: u64, hand_over: &mut impl FnMut(UtilizationReading)) {
        for device in devices.driver.clone() {
            let id = DeviceId(device.ordinal);
            if !uses(contexts, id) || self.meters.iter().any(|meter| meter.totals.device == id) {
                continue;
            }
            match devices.handle(&device) {
                Ok(handle) => {
                    let meter = Meter::new(id, handle);
                    hand_over(UtilizationReading::Device(meter.totals));
                    self.meters.push(meter);
                }
                Err(why) => {
                    let why = Some(why);
                    let totals = DeviceUtilization {
                        device: id,
                        no_rates: why,
                        no_counters: why,
                        ..DeviceUtilization::default()
                    };
                    hand_over(UtilizationReading::Device(totals));
                }
            }
        }
        self.contexts = contexts;
    }
}

impl Meter {
    /// Determines the readings that the device supports; the first ones are the baseline.
    fn new(id: DeviceId, device: Device) -> Self {
        let mut totals = DeviceUtilization { device: id, ..DeviceUtilization::default() };
        let read = Instant::now();
        let mut counters = None;
        if device.is_divided() {
            (totals.no_rates, totals.no_counters) = (Some(Absence::Divided), Some(Absence::Divided));
        } else {
            totals.no_rates = device.utilization().err().map(absence);
            match device.sample().and_then(|last| Ok(Counters { last, spare: device.sample()?, at: read })) {
                Ok(pair) => counters = Some(pair),
                Err(status) => totals.no_counters = Some(absence(status)),
            }
        }
        Self { device, read, totals, counters }
    }

    /// Restarts at a new baseline: the time since the last reading does not count.
    fn begin_again(&mut self) {
        self.read = Instant::now();
        if let Some(counters) = &mut self.counters {
            match self.device.sample_again(&mut counters.last) {
                Ok(()) => counters.at = self.read,
                // There is no longer a baseline.
                Err(status) => {
                    self.counters = None;
                    self.totals.no_counters = Some(absence(status));
                }
            }
        }
    }

    fn read(&mut self) {
        let now = Instant::now();
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        if self.totals.no_rates.is_none() {
            match self.device.utilization() {
                Ok(rates) => {
                    let over = nanos((now - self.read).min(LONGEST_MEAN));
                    self.totals.busy.add(over, f64::from(rates.gpu) / 100.0);
                    self.totals.memory.add(over, f64::from(rates.memory) / 100.0);
                }
                Err(_) => self.totals.failed += 1,
            }
        }
        self.read = now;
        let Some(counters) = &mut self.counters else { return };
        let metrics = self
            .device
            .sample_again(&mut counters.spare)
            .and_then(|()| self.device.metrics(&counters.last, &counters.spare, METRICS));
        // After a failure the next reading covers the time since the last good one.
        let Ok(metrics) = metrics else {
            self.totals.failed += 1;
            return;
        };
        let over = nanos(now - counters.at);
        for ((counter, total), value) in Counter::ALL.into_iter().zip(&mut self.totals.counters).zip(metrics) {
            let Some(value) = value else { continue };
            // MiB a second are bytes by 1e9 nanoseconds; shares come as percent.
            let rate = if counter.is_traffic() { value * MIB / 1e9 } else { value / 100.0 };
            total.add(over, rate);
        }
        counters.at = now;
        std::mem::swap(&mut counters.last, &mut counters.spare);
    }
}
