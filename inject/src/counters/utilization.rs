//! Reads the utilization of the process's devices while it is only watched: NVML's rates, and hardware counters (GPM).
//!
//! Rates are those of the driver's last sample period, taken as valid since the reading before; counters are exact over
//! any time. Processes are not told apart.

use std::time::{Duration, Instant};

use cupti_sys::devices_in_use;
use gpuwhy_trace::record::DeviceId;
use gpuwhy_trace::utilization::{Absence, Counter, DeviceUtilization, UtilizationReading};
use nvml_sys::{Device, Metric, Sample};

use crate::counters::nvml::{Devices, absence};

/// Time between readings. Counters advance ten times a second, and rates five times (H200, driver 580:
/// docs/design/overhead.md); a round takes 1.2 ms there, so this is half a percent of a core.
pub const PERIOD: Duration = Duration::from_millis(250);
/// So long is waited for the first context before all devices that the driver shows are read.
const CONTEXT_TIMEOUT: Duration = Duration::from_secs(5);
/// A rate is a mean over at most this long (NVML reference, `nvmlUtilization_t`): it speaks for no more, however late
/// the next reading comes.
const LONGEST_MEAN: Duration = Duration::from_secs(1);
/// Bytes of the unit in which NVML tells traffic, MiB/s.
const MIB: f64 = (1u64 << 20) as f64;

/// The metrics, in the order of [`Counter::ALL`].
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

/// The utilization of all devices of the process, and when it is to be read.
#[derive(Debug)]
pub struct UtilizationReader {
    begun: Instant,
    due: Instant,
    state: State,
    /// What lies between the last reading and the next is not to be counted.
    paused: bool,
}

#[derive(Debug)]
enum State {
    /// Until there is a context.
    Waiting,
    Open(Open),
    /// For good.
    Absent,
}

#[derive(Debug, Default)]
struct Open {
    /// The contexts that the meters were opened for.
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

/// Readings of hardware counters, the older of which is overwritten in turn.
#[derive(Debug)]
struct Counters {
    last: Sample,
    spare: Sample,
    at: Instant,
}

impl UtilizationReader {
    /// Nothing is open yet.
    pub fn new() -> Self {
        let now = Instant::now();
        Self { begun: now, due: now, state: State::Waiting, paused: false }
    }

    /// The program is not watched for now.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Reads what is due, and hands it over.
    pub fn tick(&mut self, found: &mut Option<Devices>, mut hand_over: impl FnMut(UtilizationReading)) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        let contexts = devices_in_use();
        self.due = now + PERIOD;
        let paused = std::mem::take(&mut self.paused);
        match &mut self.state {
            State::Waiting if contexts == 0 && now - self.begun < CONTEXT_TIMEOUT => {}
            State::Waiting => {
                let devices = Devices::find(found).ok_or(Absence::NoDevice);
                match devices.and_then(|devices| devices.nvml.map(|_| devices)) {
                    Ok(devices) => {
                        let mut open = Open::default();
                        open.add(devices, contexts, &mut hand_over);
                        self.state = State::Open(open);
                    }
                    Err(why) => {
                        tracing::info!("utilization is not read: {}", why.words());
                        hand_over(UtilizationReading::Absent(why));
                        self.state = State::Absent;
                    }
                }
            }
            State::Open(open) => {
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
            State::Absent => {}
        }
    }
}

/// Whether the process has a context on this device; of one with none yet, and beyond 64, it is assumed.
fn uses(contexts: u64, device: DeviceId) -> bool {
    contexts == 0 || device.0 >= u64::BITS || contexts & (1 << device.0) != 0
}

impl Open {
    /// Takes up devices that have come into use; what is absent is handed over at once.
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
    /// Finds out what the device has; what is read now is where it begins.
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

    /// What was since the last reading is not counted.
    fn begin_again(&mut self) {
        self.read = Instant::now();
        if let Some(counters) = &mut self.counters {
            match self.device.sample_again(&mut counters.last) {
                Ok(()) => counters.at = self.read,
                // There is nothing to compare with any more.
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
