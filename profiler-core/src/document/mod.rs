//! JSON of types whose documented form is another one than their own: a line for each field. Types of the same form
//! derive [`serde::Serialize`].
//!
//! Times are integer nanoseconds and named `_ns`; shares are 0 to 1. `docs/reference/report.md` defines every field. A
//! field may be added within a schema version; renaming or removing one, or changing its meaning, raises it.

mod engine;
mod report;

pub(crate) use report::{leaves, limits, within};
use serde::ser::SerializeMap;

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
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    )*};
}
pub(crate) use by_name;

by_name! {
    crate::collective::Algorithm
    crate::collective::Function
    crate::cost::Mode
    crate::cost::PriceSource
    crate::geometry::Limiter
    crate::kernels::Outcome
    crate::record::CopyKind
    crate::record::MemoryKind
    crate::record::Trigger
}
