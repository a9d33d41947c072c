//! Overhead of tracing per kind of call and per device gap, so that a simulation can subtract it.
//!
//! An overhead is the time that a program would save without the profiler. `gpuwhy doctor --calibrate`
//! measures it on the traced machine. Without a calibration, a table measured on an H200 is used; for other
//! GPUs it is an estimate, and reports state that. Unmeasured overheads are 0, so that no gain is predicted
//! that does not exist.
//!
//! Not included: waiting calls, and the time by which recording prolongs a kernel itself.

use crate::dictionary::Dictionary;
use crate::named;

/// Maximum length of a stored GPU or source name, bytes.
pub const NAME_LIMIT: usize = 256;
/// Maximum number of calibrations in a trace: one for each model of GPU in the machine.
pub const CALIBRATION_LIMIT: usize = 16;
/// A thread without a call for longer than this did other work, nanoseconds. Consecutive launches are some
/// tens of nanoseconds apart, those of eager PyTorch 4 us and more.
pub const COLD_NANOS: u64 = 2_000;
/// Overheads above this are treated as damage, nanoseconds: a thousand times the measured values.
pub const LARGEST: u32 = 1_000_000;

macro_rules! prices {
    ($($(#[$doc:meta])* $price:ident,)*) => {
        /// Overheads of tracing by place, nanoseconds.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Prices {
            $($(#[$doc])* pub $price: u32,)*
        }

        /// Names in the order used in files.
        pub const NAMES: [&str; [$(stringify!($price)),*].len()] = [$(stringify!($price)),*];

        impl Prices {
            /// Values in the order of [`NAMES`].
            pub const fn to_array(self) -> [u32; NAMES.len()] {
                [$(self.$price),*]
            }

            /// From the order of [`NAMES`]; values are clamped to [`LARGEST`].
            pub fn from_array(prices: [u32; NAMES.len()]) -> Self {
                let [$($price),*] = prices.map(|price| price.min(LARGEST));
                Self { $($price),* }
            }
        }
    };
}

prices! {
    /// On the launching thread: a kernel launch right after another call.
    kernel_launch,
    /// The same after at least [`COLD_NANOS`] of other work, which evicts CUPTI's data from the CPU caches.
    kernel_launch_cold,
    /// On the launching thread: a graph launch, independent of its contents.
    graph_launch,
    /// On the launching thread: each operation that a graph launches, if it is recorded individually.
    graph_node,
    /// On the launching thread: an asynchronous copy, a memset, or a copy that does not wait.
    copy,
    /// On the calling thread: a call that is recorded as a call and launches no work.
    call,
    /// On the device: before a kernel or memset queued after another operation of its stream.
    kernel_gap,
    /// On the device: between two kernels that a graph launches.
    node_gap,
    /// On the device: before and after a memset that a graph launches.
    memset_node_gap,
    /// On the device: before a copy queued after another operation of its stream.
    copy_gap,
}

named! {
    /// Source of the overheads.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum PriceSource: name words {
        /// None: the trace was not written by gpuwhy, so the overhead of its profiler is unknown, or no
        /// device is described.
        #[default]
        Unknown "unknown" "estimated from unknown tracing overhead",
        /// Measured on this machine by `gpuwhy doctor --calibrate`.
        Measured "measured" "estimated from tracing overhead measured on this machine",
        /// The built-in table, for this model of GPU.
        Table "table" "estimated from tracing overhead measured on an H200",
        /// The built-in table, which was measured on another model.
        OtherMachine "other_machine"
            "estimated from tracing overhead measured on another machine, with an H200; gpuwhy doctor --calibrate measures it here",
    }
}

/// Overheads measured on one model of GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Name of the GPU, such as `NVIDIA H200`.
    pub gpu: String,
    /// Measured overheads.
    pub prices: Prices,
}

/// Part of the name of the GPU on which [`TABLE`] was measured.
const TABLE_GPU: &str = "H200";

/// Overheads on an H200 (driver 580.159.04, CUPTI 13.0.85). Sources:
///
/// | overhead | source |
/// |---|---|
/// | kernel launch | [`LAUNCH_NANOS`](super::LAUNCH_NANOS) |
/// | the same after other work | an eager recurrent network, 16 us from launch to launch: 256 kernels in 4.10 instead of 3.72 ms. The network `mlp` pays 12 % and more (docs/design/overhead.md), 1.8 us a launch |
/// | call, graph launch | docs/design/overhead.md: empty kernels cost 14 % more with device records and 24 % with calls as well; 10 % of 2,716 ns |
/// | node of a graph | [`GRAPH_NODE_NANOS`](super::GRAPH_NODE_NANOS) |
/// | copy | [`COPY_NANOS`](super::COPY_NANOS) |
/// | gap before a queued kernel | docs/design/performance.md: `sm`, consecutive kernels of 19.6 us, takes 1.1 % longer |
/// | gap at a memset of a graph | docs/design/attribution.md: five operations, one a memset, take 15.6 us instead of 12.7; all gaps are 1.3 us untraced, and the two at the memset are 1.3 and 2.5 us under tracing, so tracing adds 2.3 us to them |
/// | gap between nodes | unknown: 0.1 us under tracing, which leaves nothing to subtract |
/// | gap before a copy | unknown |
pub const TABLE: Prices = Prices {
    kernel_launch: super::LAUNCH_NANOS as u32,
    kernel_launch_cold: 1_484,
    graph_launch: 270,
    graph_node: super::GRAPH_NODE_NANOS as u32,
    copy: super::COPY_NANOS as u32,
    call: 270,
    kernel_gap: 216,
    node_gap: 0,
    memset_node_gap: 1_150,
    copy_gap: 0,
};

impl Prices {
    /// Overheads for the devices of `dictionary` and their source: the calibration of this machine if it
    /// matches the first named device, else the table. A process nearly always has GPUs of one model.
    pub fn of(measured: &[Calibration], dictionary: &Dictionary) -> (Self, PriceSource) {
        let mut names = dictionary.devices().iter().map(|device| device.name.as_str());
        match names.find(|name| !name.is_empty()) {
            None => (Self::default(), PriceSource::Unknown),
            Some(name) => match measured.iter().find(|row| row.gpu == name) {
                Some(row) => (row.prices, PriceSource::Measured),
                None if name.contains(TABLE_GPU) => (TABLE, PriceSource::Table),
                None => (TABLE, PriceSource::OtherMachine),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Device;

    #[test]
    fn prices_keep_their_places() {
        let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let prices = Prices::from_array(numbers);
        assert_eq!((prices.to_array(), prices.graph_node, prices.copy_gap), (numbers, 4, 10));
        assert_eq!(Prices::from_array([u32::MAX; 10]).to_array(), [LARGEST; 10]);
    }

    #[test]
    fn what_was_measured_here_comes_before_the_table() {
        let measured =
            Calibration { gpu: "NVIDIA L4".into(), prices: Prices { kernel_launch: 7, ..Prices::default() } };
        let of = |names: &[&str]| {
            let mut dictionary = Dictionary::new();
            for name in names {
                dictionary.add_device(Device { name: (*name).to_owned(), ..Device::default() });
            }
            let (prices, source) = Prices::of(std::slice::from_ref(&measured), &dictionary);
            (prices.kernel_launch, source)
        };
        assert_eq!(of(&[]), (0, PriceSource::Unknown));
        assert_eq!(of(&["", "NVIDIA L4"]), (7, PriceSource::Measured));
        assert_eq!(of(&["NVIDIA H200"]), (921, PriceSource::Table));
        assert_eq!(of(&["NVIDIA A100-SXM4-80GB", "NVIDIA L4"]), (921, PriceSource::OtherMachine));
    }
}
