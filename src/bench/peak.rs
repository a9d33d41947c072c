//! What a device could do at most, and where a piece of work stands under that roof.
//!
//! Peaks come from the device's own description: memory bandwidth as CUPTI gives it, and computation from the number of
//! multiprocessors, their clock and the documented throughput of one. Tensor cores are left out: their throughput
//! depends on formats and sparsity in ways that no record tells, so their peak has to be given.

use std::fmt;

use profiler_core::record::Device;
use serde::Serialize;

/// Floating-point arithmetic on CUDA cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// 32 bits.
    Single,
    /// 64 bits.
    Double,
}

/// Fused multiply-adds a clock on one multiprocessor, by compute capability: CUDA C++ Programming Guide, "Throughput of
/// Native Arithmetic Instructions", rows 32-bit and 64-bit floating-point add, multiply, multiply-add. `None` where it
/// is not listed here.
fn multiply_adds_per_clock(capability: [u32; 2], precision: Precision) -> Option<f64> {
    Some(match (precision, capability) {
        (Precision::Single, [7, _] | [8, 0]) => 64.0,
        (Precision::Single, [8, 6 | 7 | 9] | [9, 0] | [10, _] | [12, _]) => 128.0,
        (Precision::Double, [7, 0 | 2] | [8, 0]) => 32.0,
        (Precision::Double, [9, 0]) => 64.0,
        (Precision::Double, [7, 5] | [8, 6 | 7 | 9] | [12, _]) => 2.0,
        _ => return None,
    })
}

/// Operations per second at the highest core clock, where they are known. A multiply-add is two.
pub fn flops_per_second(device: &Device, precision: Precision) -> Option<f64> {
    let each = multiply_adds_per_clock(device.compute_capability, precision)?;
    let clocks = f64::from(device.multiprocessors) * f64::from(device.core_clock_khz) * 1e3;
    (clocks > 0.0).then_some(2.0 * each * clocks)
}

/// Bytes per second of device memory, where they are known.
pub fn bytes_per_second(device: &Device) -> Option<f64> {
    (device.memory_bandwidth_kbps > 0).then_some(device.memory_bandwidth_kbps as f64 * 1e3)
}

/// What stands in the way of more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Left of the ridge: memory.
    Memory,
    /// Right of it: computation.
    Compute,
}

/// Coordinates under the roofline of a device (Williams, Waterman, Patterson: Roofline, 2009).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Roofline {
    /// Operations per byte, by the author's counts: the abscissa.
    pub intensity: f64,
    /// Operations per second: the ordinate.
    pub flops_per_second: f64,
    /// The roof above: what memory and computation allow at this intensity, operations per second; `None` unless both
    /// peaks are known.
    pub roof_flops_per_second: Option<f64>,
    /// Operations per byte at which the roof has its ridge; `None` as above.
    pub ridge: Option<f64>,
    /// Which side of the ridge; `None` as above.
    pub bound: Option<Bound>,
}

impl Roofline {
    pub(super) fn new(bytes: u64, flops: f64, nanos: u64, bytes_peak: Option<f64>, flops_peak: Option<f64>) -> Self {
        let intensity = flops / bytes.max(1) as f64;
        let peaks = bytes_peak.zip(flops_peak);
        let ridge = peaks.map(|(bytes, flops)| flops / bytes);
        Self {
            intensity,
            flops_per_second: flops / nanos.max(1) as f64 * 1e9,
            roof_flops_per_second: peaks.map(|(bytes, flops)| (intensity * bytes).min(flops)),
            ridge,
            bound: ridge.map(|ridge| if intensity < ridge { Bound::Memory } else { Bound::Compute }),
        }
    }
}

impl fmt::Display for Roofline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} FLOP/byte", self.intensity)?;
        let Some((roof, ridge)) = self.roof_flops_per_second.zip(self.ridge) else { return Ok(()) };
        let side = if self.bound == Some(Bound::Memory) { "memory" } else { "compute" };
        let share = self.flops_per_second / roof * 1e2;
        write!(f, ", {share:.1} % of the {side} roof (ridge at {ridge:.1})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As CUPTI describes one.
    fn h200() -> Device {
        Device {
            compute_capability: [9, 0],
            multiprocessors: 132,
            core_clock_khz: 1_980_000,
            memory_bandwidth_kbps: 4_800_000_000,
            ..Device::default()
        }
    }

    #[test]
    fn peaks_are_those_of_the_data_sheet() {
        let teraflops = |precision| (flops_per_second(&h200(), precision).unwrap() / 1e12).round();
        assert_eq!([Precision::Single, Precision::Double].map(teraflops), [67.0, 33.0]);
        let unknown = Device { compute_capability: [99, 0], ..h200() };
        assert_eq!(flops_per_second(&unknown, Precision::Single), None);
    }

    #[test]
    fn the_roof_has_two_sides() {
        let peaks = (bytes_per_second(&h200()), flops_per_second(&h200(), Precision::Single));
        let low = Roofline::new(1_000_000_000, 1e9, 1_000_000, peaks.0, peaks.1);
        assert_eq!((low.bound, low.roof_flops_per_second), (Some(Bound::Memory), Some(4.8e12)));
        assert_eq!(low.flops_per_second, 1e12);
        let high = Roofline::new(1_000_000, 1e9, 1_000_000, peaks.0, peaks.1);
        assert_eq!((high.bound, high.roof_flops_per_second), (Some(Bound::Compute), peaks.1));
        assert_eq!(Roofline::new(1, 1.0, 1, None, peaks.1).bound, None);
    }
}
