//! JSON of types whose documented form is another one than their own: a line for each field. Types of the same form
//! derive [`serde::Serialize`].
//!
//! Times are integer nanoseconds and named `_ns`; shares are 0 to 1. `docs/reference/report.md` defines every field. A
//! field may be added within a schema version; renaming or removing one, or changing its meaning, raises it.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::attribution::leaf::{Leaf, Leaves};
use crate::counters::roofs::{Limit, LimitTimes};

/// What is written as an object.
pub(crate) trait Fields {
    /// Writes its fields in the order of the document.
    fn fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

/// Implements [`Fields`] and `Serialize` by `name: value`, `name?: value` (left out where it is `None`) and `..value`
/// (its fields).
macro_rules! document {
    ($($from:ident: $type:ty { $($fields:tt)* })*) => {$(
        impl $crate::document::Fields for $type {
            fn fields<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                let $from = self;
                $crate::document::document!(@ map; $($fields)*);
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
    (@ $map:ident;) => {};
    (@ $map:ident; $name:ident: $value:expr, $($rest:tt)*) => {
        $map.serialize_entry(stringify!($name), &$value)?;
        $crate::document::document!(@ $map; $($rest)*)
    };
    (@ $map:ident; $name:ident?: $value:expr, $($rest:tt)*) => {
        if let Some(value) = &$value {
            $map.serialize_entry(stringify!($name), value)?;
        }
        $crate::document::document!(@ $map; $($rest)*)
    };
    (@ $map:ident; ..$value:expr, $($rest:tt)*) => {
        $crate::document::Fields::fields(&$value, $map)?;
        $crate::document::document!(@ $map; $($rest)*)
    };
}
pub(crate) use document;

/// Writes types by their name.
macro_rules! by_name {
    ($($type:ty)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    )*};
}

by_name! {
    crate::attribution::host_cause::HostCause
    crate::attribution::leaf::Group
    Leaf
    crate::attribution::leaf::Work
    crate::collective::Algorithm
    crate::collective::Basis
    crate::collective::Function
    crate::cost::Mode
    crate::cost::PriceSource
    Limit
    crate::geometry::Limiter
    crate::hang::HangKind
    crate::kernels::DataType
    crate::kernels::Excluded
    crate::kernels::Level
    crate::kernels::Outcome
    crate::kernels::Resource
    crate::record::CopyKind
    crate::record::MemoryKind
    crate::record::Trigger
    crate::report::CopyClass
    crate::report::RecoverableBy
    crate::report::library::Library
    crate::steps::StepSource
    crate::steps::ToldBy
    crate::whatif::ScenarioKind
}

/// Nanoseconds by name of leaf.
pub(crate) fn leaves(leaves: &Leaves) -> BTreeMap<&'static str, u64> {
    Leaf::ALL.map(|leaf| (leaf.name(), leaves[leaf as usize])).into()
}

/// Nanoseconds by name of limit.
pub(crate) fn limits(times: &LimitTimes) -> BTreeMap<&'static str, u64> {
    Limit::ALL.map(|limit| (limit.name(), times[limit as usize])).into()
}

/// Function and file as an object.
pub(crate) fn within<S: Serializer>(within: &Option<(String, String)>, serializer: S) -> Result<S::Ok, S::Error> {
    within
        .as_ref()
        .map(|(function, file)| BTreeMap::from([("file", file), ("function", function)]))
        .serialize(serializer)
}
