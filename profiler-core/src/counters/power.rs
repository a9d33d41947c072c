//! Totals of a device's readings: power, energy, clocks and the reasons for lowering them, traffic.

use gpuwhy_trace::counters::{GaugeReading, Throttle};

/// A reading covers the time since the previous one, but no more than this, nanoseconds: twenty intervals.
const LONGEST: u64 = 2_000_000_000;
/// Reasons that do not count as a limit: an idle device lowers its own clock.
const NO_LIMIT: u64 = Throttle::Idle.bit();

/// Mean and extremes of a reading, weighted by time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GaugeMean {
    sum: f64,
    over_ns: u64,
    /// Smallest value.
    pub least: f64,
    /// Largest value.
    pub most: f64,
}

impl GaugeMean {
    fn add(&mut self, value: f64, nanos: u64) {
        let first = self.over_ns == 0 && self.sum == 0.0;
        self.least = if first { value } else { self.least.min(value) };
        self.most = if first { value } else { self.most.max(value) };
        self.sum += value * nanos as f64;
        self.over_ns = self.over_ns.saturating_add(nanos);
    }

    /// Total weight of the values.
    pub fn count(&self) -> f64 {
        self.over_ns as f64
    }

    /// Time-weighted mean; `None` before there were two readings.
    pub fn mean(&self) -> Option<f64> {
        (self.over_ns > 0).then(|| self.sum / self.over_ns as f64)
    }
}

/// Total of a device counter, as the sum of differences between readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CountedTotal {
    newest: Option<(u64, u64)>,
    /// Increase of the counter.
    pub sum: u64,
    /// Time of that increase, nanoseconds.
    pub over_ns: u64,
}

impl CountedTotal {
    fn add(&mut self, at: u64, value: Option<u64>) {
        let Some(value) = value else { return };
        // A counter that went back was reset.
        if let Some((before, last)) =
            self.newest.replace((at, value)).filter(|&(before, last)| at > before && value >= last)
        {
            self.sum = self.sum.saturating_add(value - last);
            self.over_ns = self.over_ns.saturating_add(at - before);
        }
    }

    /// Increase per second; `None` before there were two readings.
    pub fn per_second(&self) -> Option<f64> {
        (self.over_ns > 0).then(|| self.sum as f64 / self.over_ns as f64 * 1e9)
    }
}

/// Totals of the readings of one device.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GaugeSums {
    /// Number of readings.
    pub readings: u64,
    /// Time covered by them, nanoseconds.
    pub covered_ns: u64,
    /// Power, watts.
    pub power_w: GaugeMean,
    /// Temperature of the chip, degrees Celsius.
    pub temperature_c: GaugeMean,
    /// Clock of the multiprocessors, MHz.
    pub sm_clock_mhz: GaugeMean,
    /// Clock of the memory, MHz.
    pub memory_clock_mhz: GaugeMean,
    /// Memory in use by all processes, bytes.
    pub memory_used_bytes: GaugeMean,
    /// Time in which the device ran anything, of any process, as a fraction.
    pub busy: GaugeMean,
    /// Time in which clocks were lowered for a reason, nanoseconds, by [`Throttle::ALL`]. Several reasons may
    /// hold at once.
    pub throttled_ns: [u64; Throttle::ALL.len()],
    /// Time with any reason other than idleness, nanoseconds.
    pub limited_ns: u64,
    /// Time with known reasons, nanoseconds.
    pub reasons_over_ns: u64,
    /// Bytes received over PCI Express.
    pub pcie_received: CountedTotal,
    /// Bytes sent over PCI Express.
    pub pcie_sent: CountedTotal,
    /// Bytes received over NVLink.
    pub nvlink_received: CountedTotal,
    /// Bytes sent over NVLink.
    pub nvlink_sent: CountedTotal,
    /// Energy, millijoules.
    pub energy_mj: CountedTotal,
    newest: Option<u64>,
}

impl GaugeSums {
    /// Adds a reading. One that is not later than the previous one is ignored.
    pub fn add(&mut self, reading: &GaugeReading) {
        let at = reading.at.nanos();
        let nanos = match self.newest {
            Some(before) if at <= before => return,
            Some(before) => (at - before).min(LONGEST),
            None => 0,
        };
        self.newest = Some(at);
        self.readings += 1;
        self.covered_ns = self.covered_ns.saturating_add(nanos);
        let gauges = [
            (&mut self.power_w, reading.power_mw.map(|power| f64::from(power) / 1e3)),
            (&mut self.temperature_c, reading.temperature_c.map(f64::from)),
            (&mut self.sm_clock_mhz, reading.sm_clock_mhz.map(f64::from)),
            (&mut self.memory_clock_mhz, reading.memory_clock_mhz.map(f64::from)),
            (&mut self.memory_used_bytes, reading.memory_used_bytes.map(|bytes| bytes as f64)),
        ];
        for (gauge, value) in gauges {
            if let Some(value) = value {
                gauge.add(value, nanos);
            }
        }
        if let Some(busy) = reading.busy_percent {
            // It is read less often than the rest, and each counts the same.
            self.busy.add(f64::from(busy) / 100.0, 1);
        }
        if let Some(reasons) = reading.throttle {
            self.reasons_over_ns = self.reasons_over_ns.saturating_add(nanos);
            for (time, reason) in self.throttled_ns.iter_mut().zip(Throttle::ALL) {
                if reasons & reason.bit() != 0 {
                    *time = time.saturating_add(nanos);
                }
            }
            if reasons & !NO_LIMIT != 0 {
                self.limited_ns = self.limited_ns.saturating_add(nanos);
            }
        }
        self.pcie_received.add(at, reading.pcie_received_bytes);
        self.pcie_sent.add(at, reading.pcie_sent_bytes);
        self.nvlink_received.add(at, reading.nvlink_received_bytes);
        self.nvlink_sent.add(at, reading.nvlink_sent_bytes);
        self.energy_mj.add(at, reading.energy_mj);
    }

    /// Mean power, watts: from the energy counter if there is one, else from readings of the power.
    pub fn watts(&self) -> Option<f64> {
        self.energy_mj.per_second().map(|millijoules| millijoules / 1e3).or_else(|| self.power_w.mean())
    }

    /// Reason, other than idleness, that lowered clocks the longest, and its fraction of the time, 0 to 1.
    pub fn main_reason(&self) -> Option<(Throttle, f64)> {
        let reasons = Throttle::ALL.into_iter().zip(self.throttled_ns).filter(|(reason, _)| *reason != Throttle::Idle);
        let (reason, nanos) = reasons.max_by_key(|&(reason, nanos)| (nanos, std::cmp::Reverse(reason)))?;
        (nanos > 0).then(|| (reason, nanos as f64 / self.reasons_over_ns.max(1) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Timestamp;

    fn reading(millis: u64, power: u32, throttle: u64) -> GaugeReading {
        GaugeReading {
            at: Timestamp::from_nanos(millis * 1_000_000),
            power_mw: Some(power),
            throttle: Some(throttle),
            pcie_sent_bytes: Some(millis * 1_000),
            ..GaugeReading::default()
        }
    }

    #[test]
    fn readings_are_weighted_by_the_time_since_the_one_before() {
        let mut sums = GaugeSums::default();
        for (millis, power, throttle) in [(100, 1, 0), (200, 300_000, 0), (400, 600_000, 4), (400, 9, 8), (300, 9, 8)] {
            sums.add(&reading(millis, power, throttle));
        }
        assert_eq!((sums.readings, sums.covered_ns), (3, 300_000_000));
        assert_eq!(sums.watts(), Some(500.0));
        assert_eq!(
            sums.main_reason().map(|(reason, share)| (reason, (share * 3.0).round())),
            Some((Throttle::PowerCap, 2.0))
        );
        assert_eq!(sums.pcie_sent.per_second(), Some(1e6));
        assert_eq!(sums.energy_mj.per_second(), None);
    }

    #[test]
    fn idleness_is_no_limit_and_a_pause_of_the_reader_no_evidence() {
        let mut sums = GaugeSums::default();
        sums.add(&reading(0, 1, 1));
        sums.add(&reading(1, 1, 1));
        assert_eq!((sums.limited_ns, sums.main_reason()), (0, None));
        sums.add(&reading(60_000, 1, 4));
        assert_eq!(sums.limited_ns, LONGEST);
    }

    #[test]
    fn a_total_that_was_reset_is_passed_over() {
        let mut total = CountedTotal::default();
        for (at, value) in [(10, 100), (20, 150), (30, 5), (40, 25)] {
            total.add(at, Some(value));
        }
        assert_eq!((total.sum, total.over_ns), (70, 20));
    }
}
