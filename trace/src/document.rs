//! JSON of types whose documented form differs from their Rust fields: one line per field. Types with the
//! same form derive [`serde::Serialize`].
//!
//! Times are integer nanoseconds with names ending in `_ns`; shares are 0 to 1. `docs/reference/report.md`
//! defines every field. A field may be added within a schema version; renaming or removing a field, or
//! changing its meaning, increments the version.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;

use crate::cost::Cost;
use crate::record::{Loss, PcieLink};
use crate::utilization::{Counter, DeviceUtilization, Utilization};

/// A type that is serialized as an object.
pub trait Fields {
    /// Writes the fields in the order of the document.
    fn fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

/// Implements [`Fields`] and `Serialize` from `name: value`, `name?: value` (omitted if `None`), `name` (the field of
/// that name) and `..value` (the fields of `value`).
#[macro_export]
macro_rules! document {
    ($($from:ident: $type:ty { $($fields:tt)* })*) => {$(
        impl $crate::document::Fields for $type {
            fn fields<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                let $from = self;
                $crate::document::document!(@ $from map; $($fields)*);
                Ok(())
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(serializer, None)?;
                $crate::document::Fields::fields(self, &mut map)?;
                serde::ser::SerializeMap::end(map)
            }
        }
    )*};
    (@ $from:ident $map:ident;) => {};
    (@ $from:ident $map:ident; $name:ident, $($rest:tt)*) => {
        $crate::document::document!(@ $from $map; $name: $from.$name, $($rest)*)
    };
    (@ $from:ident $map:ident; $name:ident: $value:expr, $($rest:tt)*) => {
        $map.serialize_entry(stringify!($name), &$value)?;
        $crate::document::document!(@ $from $map; $($rest)*)
    };
    (@ $from:ident $map:ident; $name:ident?: $value:expr, $($rest:tt)*) => {
        if let Some(value) = &$value {
            $map.serialize_entry(stringify!($name), value)?;
        }
        $crate::document::document!(@ $from $map; $($rest)*)
    };
    (@ $from:ident $map:ident; ..$value:expr, $($rest:tt)*) => {
        $crate::document::Fields::fields(&$value, $map)?;
        $crate::document::document!(@ $from $map; $($rest)*)
    };
}
pub use document;

/// Serializes types by name.
#[macro_export]
macro_rules! by_name {
    ($($type:ty)*) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    )*};
}
pub use by_name;

by_name! {
    crate::collective::Algorithm
    crate::collective::Function
    crate::kernels::Outcome
}

document! {
    from: PcieLink {
        generation, lanes,
        gigabytes_per_second: from.bytes_per_second() / 1e9,
    }
    from: Utilization {
        absence: from.absence.map(|why| why.words()),
        devices,
    }
    from: DeviceUtilization {
        device,
        covered_ns: from.busy.over_ns,
        busy: from.busy.mean(),
        memory: from.memory.mean(),
        counters: BTreeMap::from_iter(Counter::ALL.into_iter().map(|counter| (counter.name(), from.counter(counter)))),
        failed_readings: from.failed,
        no_rates: from.no_rates.map(|why| why.words()),
        no_counters: from.no_counters.map(|why| why.words()),
    }
    from: Cost {
        mode, whole_graphs,
        nodes_since_unix_ns: Some(from.nodes_since.nanos()).filter(|&nanos| nanos > 0),
        unrecorded_nodes_estimate_ns: Some(from.unrecorded_nodes_ns).filter(|&nanos| nanos > 0),
        observed_ns,
        records_estimate_ns: from.records_ns,
        cupti_ns, callback_ns,
        threads_cpu_ns?: Some(from.threads_ns).filter(|&nanos| nanos > 0),
        share_at_most: from.share(),
        bursts?: Some(from.bursts).filter(|_| from.has_bursts()),
        burst_ns?: Some(from.burst_ns).filter(|_| from.has_bursts()),
        slowed_since_bursts_low?: from.slowed.map(|(low, _)| low),
        slowed_since_bursts_high?: from.slowed.map(|(_, high)| high),
        steps_down: from.steps_down().collect::<Vec<_>>(),
    }
}

/// Serializes the counters by name.
impl Fields for Loss {
    fn fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.kinds().iter().try_for_each(|kind| map.serialize_entry(kind.name, &kind.count))
    }
}
