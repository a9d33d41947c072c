//! What tracing adds to each kind of call and to each gap of the device, so that a simulation can take it off again.
//!
//! A price is the time that a program without the profiler does not need. Those of the machine that is traced come from
//! `gpuwhy doctor --calibrate`. Otherwise those of a table count, which was measured on an H200; for other GPUs they
//! are an estimate, and reports say so. What nobody has measured is 0, so that no gain is promised that is not there.
//!
//! What is not priced: the time that a kernel itself takes longer because it is recorded, and waiting calls.

use crate::dictionary::Dictionary;
use crate::named;

/// The longest name of a GPU, or of its source, that is kept, bytes.
pub const NAME_LIMIT: usize = 256;
/// Calibrations of one machine that are kept in a trace: one for each kind of GPU in it.
pub const CALIBRATION_LIMIT: usize = 16;
/// A thread that called nothing for longer than this did other work, nanoseconds. Launches in a row are some tens of
/// nanoseconds apart, and those of eager PyTorch 4 us and more.
pub const COLD_NANOS: u64 = 2_000;
/// A price above this is damage, nanoseconds: a thousand times what was measured.
pub const LARGEST: u32 = 1_000_000;

macro_rules! prices {
    ($($(#[$doc:meta])* $price:ident,)*) => {
        /// What tracing adds, nanoseconds, by place.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Prices {
            $($(#[$doc])* pub $price: u32,)*
        }

        /// The prices by name, in the order in which files have them.
        pub const NAMES: [&str; [$(stringify!($price)),*].len()] = [$(stringify!($price)),*];

        impl Prices {
            /// In the order of [`NAMES`].
            pub const fn to_array(self) -> [u32; NAMES.len()] {
                [$(self.$price),*]
            }

            /// From the order of [`NAMES`]; more than [`LARGEST`] becomes that.
            pub fn from_array(prices: [u32; NAMES.len()]) -> Self {
                let [$($price),*] = prices.map(|price| price.min(LARGEST));
                Self { $($price),* }
            }
        }
    };
}

prices! {
    /// On the launching thread, for a launch of a kernel right after another call.
    kernel_launch,
    /// The same after at least [`COLD_NANOS`] of other work, which takes what CUPTI needs out of the processor's
    /// caches.
    kernel_launch_cold,
    /// On the launching thread, for a launch of a graph, whatever is in it.
    graph_launch,
    /// On the launching thread, for each operation that a graph launches, if it is recorded by itself.
    graph_node,
    /// On the launching thread, for an asynchronous copy, a memset, and a copy that waits for nothing.
    copy,
    /// On the calling thread, for a call that is recorded as a call and launches nothing.
    call,
    /// On the device, before a kernel or memset that was queued behind another operation of its stream.
    kernel_gap,
    /// On the device, between two kernels that a graph launches.
    node_gap,
    /// On the device, before and behind a memset that a graph launches.
    memset_node_gap,
    /// On the device, before a copy that was queued behind another operation of its stream.
    copy_gap,
}

named! {
    /// Where prices come from.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum PriceSource: name words {
        /// Nowhere: the trace is not of gpuwhy, so what its profiler takes is not known, or no device is described.
        #[default]
        Unknown "unknown" "by unknown costs of tracing",
        /// Measured on this machine by `gpuwhy doctor --calibrate`.
        Measured "measured" "by costs of tracing measured on this machine",
        /// Those of the table, for this model of GPU.
        Table "table" "by costs of tracing measured on an H200",
        /// Those of the table, which was measured on another model.
        OtherMachine "other_machine"
            "by costs of tracing measured on another machine, with an H200; gpuwhy doctor --calibrate measures them here",
    }
}

/// Prices that were measured with one model of GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Its name, such as `NVIDIA H200`.
    pub gpu: String,
    /// What was measured.
    pub prices: Prices,
}

/// The GPU that [`TABLE`] was measured on, as part of its name.
const TABLE_GPU: &str = "H200";

/// Prices on an H200 (driver 580.159.04, CUPTI 13.0.85). Where they come from:
///
/// | price | source |
/// |---|---|
/// | kernel launch | [`LAUNCH_NANOS`](super::LAUNCH_NANOS) |
/// | the same after other work | an eager recurrent network, 16 us from launch to launch: 256 kernels in 4.10 instead of 3.72 ms. The network `mlp` pays 12 % and more (docs/design/overhead.md), 1.8 us a launch |
/// | call, graph launch | docs/design/overhead.md: empty kernels cost 14 % more with device records and 24 % with calls as well; 10 % of 2,716 ns |
/// | node of a graph | [`GRAPH_NODE_NANOS`](super::GRAPH_NODE_NANOS) |
/// | copy | [`COPY_NANOS`](super::COPY_NANOS) |
/// | gap before a queued kernel | docs/design/performance.md: `sm`, kernels of 19.6 us in a row, takes 1.1 % longer |
/// | gap at a memset of a graph | docs/design/attribution.md: five operations, one a memset, take 15.6 us instead of 12.7; all gaps bare are 1.3 us, and the two at the memset are 1.3 and 2.5 us under tracing, so 2.3 us are added to them |
/// | gap between nodes | not known: 0.1 us under tracing, which leaves nothing to take off |
/// | gap before a copy | not known |
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
    /// The prices for the devices of `dictionary`, and where they are from: of what was measured on this machine, if
    /// that is of the first device that has a name, else of the table. One process has GPUs of one model nearly always.
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
