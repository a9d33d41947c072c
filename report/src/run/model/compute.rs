//! Computation of a device, classified by how its grids fill it.

use gpuwhy_trace::geometry::Limiter;
use gpuwhy_trace::named;

named! {
    /// How a kernel's grid uses the device. The first matching class applies.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum GridClass: name {
        /// The kernel is shorter than 10 us.
        Tiny "tiny",
        /// Fewer blocks than multiprocessors.
        UnderFilled "under_filled",
        /// More than one wave, and the last one wastes at least
        /// [`TAIL_SHARE`](crate::run::compute::TAIL_SHARE).
        Tail "tail",
        /// Theoretical occupancy below [`LOW_OCCUPANCY`](crate::run::compute::LOW_OCCUPANCY).
        LowOccupancy "low_occupancy",
        /// None of the above.
        Full "full",
        /// The device or launch record lacks the information.
        Unknown "unknown",
    }
}

/// Launch means weighted by duration. Launches with unknown geometry are excluded.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KernelGeometry {
    /// Number of launch configurations.
    pub configurations: u64,
    /// Total time of these launches, nanoseconds.
    pub known_ns: u64,
    /// Limiter of the configuration with the most time.
    pub limiter: Limiter,
    /// See [`gpuwhy_trace::geometry::Geometry::theoretical_occupancy`].
    pub theoretical_occupancy: f64,
    /// See [`gpuwhy_trace::geometry::Geometry::achieved_occupancy`].
    pub achieved_occupancy: f64,
    /// See [`gpuwhy_trace::geometry::Geometry::sm_efficiency`].
    pub sm_efficiency: f64,
    /// See [`gpuwhy_trace::geometry::Geometry::waves`].
    pub waves: f64,
    /// See [`gpuwhy_trace::geometry::Geometry::tail_loss`].
    pub tail_loss: f64,
}

/// Computation of one device.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ComputeSplit {
    /// Summed durations by class, nanoseconds, indexed by [`GridClass`]. They sum to the time of all kernels
    /// except communication kernels.
    pub classes: [u64; GridClass::ALL.len()],
    /// Multiprocessors of the device, or 0 when its record is missing.
    pub multiprocessors: u32,
    /// Means over those kernels; `None` when more than 5 % of their time has unknown geometry.
    pub geometry: Option<KernelGeometry>,
    /// Share of multiprocessors with a block over the device's window: the PyTorch profiler's "est. SM
    /// efficiency".
    pub window_sm_efficiency: Option<f64>,
}

impl ComputeSplit {
    /// Summed duration of one class, nanoseconds.
    pub fn time(&self, class: GridClass) -> u64 {
        self.classes[class as usize]
    }

    /// Summed duration of all classes, nanoseconds.
    pub fn total(&self) -> u64 {
        self.classes.iter().copied().fold(0, u64::saturating_add)
    }

    /// Share of kernel time in `class`, 0 to 1.
    pub fn share(&self, class: GridClass) -> f64 {
        self.time(class) as f64 / self.total().max(1) as f64
    }
}
