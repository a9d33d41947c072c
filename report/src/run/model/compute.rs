//! Computation of a device by how its grids fill it.

use gpuwhy_trace::geometry::Limiter;
use gpuwhy_trace::named;

named! {
    /// What a kernel's grid does with the device: the first of these that holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum GridClass: name {
        /// The kernel is shorter than 10 us.
        Tiny "tiny",
        /// Fewer blocks than multiprocessors.
        UnderFilled "under_filled",
        /// More than one wave, and the last one wastes [`TAIL_SHARE`](crate::run::compute::TAIL_SHARE) or more.
        Tail "tail",
        /// Theoretical occupancy below [`LOW_OCCUPANCY`](crate::run::compute::LOW_OCCUPANCY).
        LowOccupancy "low_occupancy",
        /// None of the above.
        Full "full",
        /// The record of the device or of the launch does not say.
        Unknown "unknown",
    }
}

/// Means over launches, weighted by their durations. Launches of unknown geometry are left out.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KernelGeometry {
    /// Launch configurations in it.
    pub configurations: u64,
    /// Time of the launches in it, nanoseconds.
    pub known_ns: u64,
    /// What limits the configuration with the most time.
    pub limiter: Limiter,
    /// As [`gpuwhy_trace::geometry::Geometry::theoretical_occupancy`].
    pub theoretical_occupancy: f64,
    /// As [`gpuwhy_trace::geometry::Geometry::achieved_occupancy`].
    pub achieved_occupancy: f64,
    /// As [`gpuwhy_trace::geometry::Geometry::sm_efficiency`].
    pub sm_efficiency: f64,
    /// As [`gpuwhy_trace::geometry::Geometry::waves`].
    pub waves: f64,
    /// As [`gpuwhy_trace::geometry::Geometry::tail_loss`].
    pub tail_loss: f64,
}

/// The computation of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComputeSplit {
    /// Summed durations by class, nanoseconds, indexed by [`GridClass`]. They sum to the time of all kernels that do
    /// not communicate.
    pub classes: [u64; GridClass::ALL.len()],
    /// Multiprocessors of the device, or 0 when its record is missing.
    pub multiprocessors: u32,
    /// Means over those kernels; `None` when more than 5 % of their time is of unknown geometry.
    pub geometry: Option<KernelGeometry>,
    /// Multiprocessors with a block, over the device's window: the PyTorch profiler's "est. SM efficiency".
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

    /// Part of the kernels' time that is of `class`, 0 to 1.
    pub fn share(&self, class: GridClass) -> f64 {
        self.time(class) as f64 / self.total().max(1) as f64
    }
}
