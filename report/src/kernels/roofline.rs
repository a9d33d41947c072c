//! The roofline: performance of a kernel against its arithmetic intensity.
//!
//! Definition: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model",
//! 2009. The horizontal axis is operations per byte, by memory level; the vertical axis is operations per
//! second. Rooflines are given at the measured clock and at the highest one, because kernels that use the
//! tensor pipes run at a lower clock.

use super::{DataType, Figures, Level, Peaks};

/// Position of a kernel, for one data type and one memory level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Data type of the operations.
    pub of: DataType,
    /// Level whose bytes are counted.
    pub level: Level,
    /// Operations per byte.
    pub intensity: f64,
    /// Operations per second.
    pub performance: f64,
}

/// Points and rooflines of one kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roofline {
    /// Points by data type, the one with the most work first, then by level.
    pub points: Vec<Point>,
    /// Peak bytes per second by level.
    pub bandwidths: Vec<(Level, f64)>,
    /// Peak operations per second of each data type of the points, at the measured clock.
    pub peaks: Vec<(DataType, f64)>,
    /// The same at the highest clock of the device.
    pub highest_peaks: Vec<(DataType, f64)>,
}

/// A cache that moved less than this fraction of the bytes of the level below it was bypassed: L1's counters
/// exclude loads by the tensor memory accelerator, except for the few bytes of descriptors.
const LEAST_BYTES: f64 = 1e-3;
/// Minimum utilization of L2 for deriving its bandwidth from the counters; below it, their error is
/// significant.
const LEAST_USE: f64 = 0.02;

impl Roofline {
    /// Builds the roofline of a kernel with these `figures`.
    pub fn of(figures: &Figures, peaks: Option<&Peaks>) -> Self {
        let Some(nanos) = figures.duration_ns else { return Self::default() };
        let points = figures.operations.iter().flat_map(|&(of, count)| {
            let below = std::iter::once(None).chain(figures.bytes);
            Level::ALL.into_iter().zip(figures.bytes).zip(below).filter_map(move |((level, bytes), below)| {
                let least = below.unwrap_or(0.0) * LEAST_BYTES;
                let bytes = bytes.filter(|&bytes| bytes > 0.0 && bytes >= least)?;
                Some(Point { of, level, intensity: count / bytes, performance: count / nanos * 1e9 })
            })
        });
        let clock = figures.clock_hz.or(peaks.map(|peaks| peaks.clock_hz)).filter(|&clock| clock > 0.0);
        let roofs = |clock: Option<f64>| -> Vec<_> {
            let types = figures.operations.iter().map(|&(of, _)| of);
            types.filter_map(|of| Some((of, peaks?.operations_per_second(of, clock?)?))).collect()
        };
        // Bytes moved by a unit, divided by its utilization.
        let by_use = |level: Level, used: Option<f64>| {
            let place = Level::ALL.iter().position(|&other| other == level)?;
            let used = used.filter(|&used| used >= LEAST_USE)?;
            Some(figures.bytes[place]? / nanos * 1e9 / used)
        };
        let bandwidth = |level| match level {
            Level::Dram => peaks
                .and_then(|peaks| peaks.dram_bytes_per_second)
                .or_else(|| by_use(level, figures.roof(super::Roof::Dram))),
            Level::L2 => by_use(level, figures.l2_sectors),
            Level::L1 => Some(peaks?.l1_bytes_per_second(clock?)),
        };
        Self {
            points: points.collect(),
            bandwidths: Level::ALL.into_iter().filter_map(|level| Some((level, bandwidth(level)?))).collect(),
            peaks: roofs(clock),
            highest_peaks: roofs(peaks.map(|peaks| peaks.clock_hz)),
        }
    }

    /// Maximum performance of `point`: the lower of its compute roofline and the bandwidth of its level.
    pub fn roof_over(&self, point: &Point) -> Option<f64> {
        let peak = self.peaks.iter().find(|(of, _)| *of == point.of).map(|&(_, peak)| peak);
        let bandwidth = self.bandwidths.iter().find(|(level, _)| *level == point.level).map(|&(_, rate)| rate);
        let slope = bandwidth.map(|rate| rate * point.intensity);
        match (peak, slope) {
            (Some(peak), Some(slope)) => Some(peak.min(slope)),
            (peak, slope) => peak.or(slope),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Device;

    fn h200() -> Peaks {
        Peaks::of(&Device {
            compute_capability: [9, 0],
            multiprocessors: 132,
            core_clock_khz: 1_980_000,
            memory_bandwidth_kbps: 4_800_000_000,
            ..Device::default()
        })
        .unwrap()
    }

    #[test]
    fn a_matrix_kernel_stands_under_its_compute_roof() {
        // A BF16 matrix product on an H200: 88.8 % of the tensor pipes at 1.67 GHz equaled 804 of 905
        // TFLOP/s.
        let figures = Figures {
            duration_ns: Some(80_000.0),
            clock_hz: Some(1.674e9),
            operations: vec![(DataType::Bf16, 804e12 * 80e-6)],
            bytes: [Some(1.0e8), Some(4.0e8), None],
            ..Figures::default()
        };
        let roofline = Roofline::of(&figures, Some(&h200()));
        assert_eq!(roofline.points.len(), 2, "no bytes of L1 were measured");
        let point = roofline.points[0];
        assert!((point.performance / 1e12 - 804.0).abs() < 0.5 && (point.intensity - 643.2).abs() < 0.1);
        let peak = roofline.peaks[0].1 / 1e12;
        assert!((peak - 905.0).abs() < 0.5, "{peak}");
        assert!((roofline.highest_peaks[0].1 / 1e12 - 1_070.5).abs() < 0.5);
        assert_eq!(roofline.roof_over(&point), Some(roofline.peaks[0].1));
    }

    #[test]
    fn a_kernel_that_adds_stands_under_memory() {
        let figures = Figures {
            duration_ns: Some(500_000.0),
            operations: vec![(DataType::Fp32, 5e8)],
            bytes: [Some(2.0e9), Some(2.1e9), Some(2.0e9)],
            l2_sectors: Some(0.5),
            ..Figures::default()
        };
        let roofline = Roofline::of(&figures, Some(&h200()));
        let point = roofline.points[0];
        assert_eq!((point.intensity, point.performance), (0.25, 1e12));
        assert_eq!(roofline.roof_over(&point), Some(4.8e12 * 0.25));
        let tma = Roofline::of(&Figures { bytes: [Some(1e9), Some(2e9), Some(32.0)], ..figures.clone() }, None);
        assert_eq!(tma.points.iter().map(|point| point.level).collect::<Vec<_>>(), [Level::Dram, Level::L2]);
        let l2 = roofline.bandwidths.iter().find(|(level, _)| *level == Level::L2).unwrap().1;
        assert!((l2 - 8.4e12).abs() < 1e6, "bytes by time by use: {l2}");
        assert_eq!(Roofline::of(&Figures::default(), None), Roofline::default());
        assert_eq!(Roofline::of(&figures, None).bandwidths.len(), 1, "L2 alone tells by its own use");
    }
}
