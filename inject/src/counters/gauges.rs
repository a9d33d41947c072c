//! Reads the NVML values of a device: power, temperatures, clocks and their limits, memory, traffic, energy.
//!
//! A value that the device lacks is queried only once. Link counters have 32 bits on some drivers, so they
//! are read often enough to detect each wraparound, and are added up here.

use std::time::{Duration, Instant};

use gpuwhy_trace::counters::GaugeReading;
use gpuwhy_trace::record::{DeviceId, Timestamp};
use nvml_sys::{Device, Field, FieldReading, Status};

/// Interval between two readings of energy, which take 2 to 18 ms (H200).
const ENERGY_EVERY: Duration = Duration::from_secs(10);
/// Interval between two readings of the use by all processes, which the driver averages over up to a second.
const BUSY_EVERY: Duration = Duration::from_secs(1);
/// Modulus of a 32-bit counter.
const NARROW: u64 = 1 << 32;

/// NVML fields, in the order of the query.
const FIELDS: [Field; 5] =
    [Field::PCIE_RECEIVED, Field::PCIE_SENT, Field::NVLINK_RECEIVED, Field::NVLINK_SENT, Field::MEMORY_TEMPERATURE];
/// Bytes of the unit in which NVML counts NVLink traffic.
const NVLINK_UNIT: u64 = 1024;

/// A value that a device may lack.
#[derive(Debug)]
struct Gauge<T> {
    read: fn(&Device) -> Result<T, Status>,
    is_absent: bool,
}

impl<T> Gauge<T> {
    const fn new(read: fn(&Device) -> Result<T, Status>) -> Self {
        Self { read, is_absent: false }
    }

    fn read(&mut self, device: &Device) -> Option<T> {
        if self.is_absent {
            return None;
        }
        match (self.read)(device) {
            Ok(value) => Some(value),
            Err(status) => {
                self.is_absent = matches!(status, Status::NOT_SUPPORTED | Status::FUNCTION_NOT_FOUND);
                None
            }
        }
    }
}

/// Sum of a counter that may wrap around.
#[derive(Debug, Default)]
struct Total {
    last: Option<u64>,
    sum: u64,
}

impl Total {
    fn add(&mut self, reading: FieldReading) -> u64 {
        let last = self.last.replace(reading.value);
        self.sum += match last {
            None => 0,
            Some(last) if reading.is_narrow => (reading.value + NARROW - last) % NARROW,
            // A 64-bit counter that decreases was reset with the driver's state.
            Some(last) => reading.value.saturating_sub(last),
        };
        self.sum
    }
}

#[derive(Debug)]
pub struct DeviceGauges {
    id: DeviceId,
    device: Device,
    power: Gauge<u32>,
    temperature: Gauge<u32>,
    sm_clock: Gauge<u32>,
    memory_clock: Gauge<u32>,
    reasons: Gauge<u64>,
    memory: Gauge<u64>,
    energy: Gauge<u64>,
    energy_due: Instant,
    busy: Gauge<u32>,
    busy_due: Instant,
    totals: [Total; 4],
    /// True if a counter of PCI Express has 32 bits.
    has_narrow_links: bool,
    fields: Gauge<[Option<FieldReading>; FIELDS.len()]>,
}

impl DeviceGauges {
    /// Creates the readings of a device, without reading yet.
    pub fn new(id: DeviceId, device: Device) -> Self {
        Self {
            id,
            device,
            power: Gauge::new(Device::power),
            temperature: Gauge::new(Device::temperature),
            sm_clock: Gauge::new(Device::sm_clock),
            memory_clock: Gauge::new(Device::memory_clock),
            reasons: Gauge::new(Device::clock_reasons),
            memory: Gauge::new(Device::memory_used),
            energy: Gauge::new(Device::energy),
            energy_due: Instant::now(),
            busy: Gauge::new(|device| Ok(device.utilization()?.gpu)),
            busy_due: Instant::now(),
            totals: Default::default(),
            has_narrow_links: false,
            fields: Gauge::new(|device| device.fields(FIELDS)),
        }
    }

    /// Highest clock of the multiprocessors, Hz; 0 if NVML does not report it. Takes a millisecond.
    pub fn highest_clock_hz(&self) -> u64 {
        self.device.highest_sm_clock().map_or(0, |mhz| u64::from(mhz) * 1_000_000)
    }

    /// True if NVML counts the bytes of PCI Express, and those of NVLink; known after the first reading.
    pub fn counted_links(&self) -> [bool; 2] {
        [self.totals[0].last.is_some(), self.totals[2].last.is_some()]
    }

    /// Reads all available values. Energy is read less often; `ends` forces one more reading.
    pub fn read(&mut self, at: Timestamp, ends: bool) -> GaugeReading {
        let device = &self.device;
        let [pcie_in, pcie_out, nvlink_in, nvlink_out, memory_temperature] =
            self.fields.read(device).unwrap_or_default();
        self.has_narrow_links = [pcie_in, pcie_out].iter().flatten().any(|reading| reading.is_narrow);
        let energy_mj = if ends || Instant::now() >= self.energy_due {
            self.energy_due = Instant::now() + ENERGY_EVERY;
            self.energy.read(device)
        } else {
            None
        };
        let busy_percent = if Instant::now() >= self.busy_due {
            self.busy_due = Instant::now() + BUSY_EVERY;
            self.busy.read(device)
        } else {
            None
        };
        let [in_a, out_a, in_b, out_b] = &mut self.totals;
        let scaled = |total: &mut Total, reading: Option<FieldReading>, unit| Some(total.add(reading?) * unit);
        GaugeReading {
            device: self.id,
            at,
            power_mw: self.power.read(device),
            temperature_c: self.temperature.read(device),
            memory_temperature_c: memory_temperature.and_then(|reading| u32::try_from(reading.value).ok()),
            sm_clock_mhz: self.sm_clock.read(device),
            memory_clock_mhz: self.memory_clock.read(device),
            throttle: self.reasons.read(device),
            memory_used_bytes: self.memory.read(device),
            pcie_received_bytes: scaled(in_a, pcie_in, 1),
            pcie_sent_bytes: scaled(out_a, pcie_out, 1),
            nvlink_received_bytes: scaled(in_b, nvlink_in, NVLINK_UNIT),
            nvlink_sent_bytes: scaled(out_b, nvlink_out, NVLINK_UNIT),
            energy_mj,
            busy_percent,
        }
    }

    /// Updates the link totals between two readings, in which a 32-bit counter could wrap around twice.
    pub fn read_links(&mut self) {
        if !self.has_narrow_links {
            return;
        }
        let [pcie_in, pcie_out, ..] = self.fields.read(&self.device).unwrap_or_default();
        for (total, reading) in self.totals.iter_mut().zip([pcie_in, pcie_out]) {
            if let Some(reading) = reading {
                total.add(reading);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_counters_begin_again_and_wide_ones_do_not() {
        let mut total = Total::default();
        let narrow = |value| FieldReading { value, is_narrow: true };
        let sums = [u64::from(u32::MAX) - 9, 90, 90, 4_000_000_000].map(|value| total.add(narrow(value)));
        assert_eq!(sums, [0, 100, 100, 100 + 3_999_999_910]);
        let mut total = Total::default();
        let wide = |value| FieldReading { value, is_narrow: false };
        assert_eq!([1 << 40, (1 << 40) + 7, 5, 6].map(|value| total.add(wide(value))), [0, 7, 7, 8]);
    }
}
