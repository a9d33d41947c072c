//! Numbers and parameter structs of CUPTI's counter interfaces: Profiler Host, PM sampling, range profiler.
//!
//! Each function takes one struct that states its own size. The size ends with the last field, without the
//! trailing padding that C adds, so each size is written out here and is not `size_of`. Libraries accept
//! older, shorter structs; the sizes here are the shortest that contain every field in use, from 12.6 on.
//! `testing/layout-check` compares sizes and offsets with the headers of released packages.

mod functions;
mod profiler;

pub use functions::{Call, Function, Functions};
pub use profiler::*;

/// Size and fields of a parameter struct, as a test compares them with NVIDIA's headers.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name of the C type.
    pub name: &'static str,
    /// Bytes from its start to the end of its last field.
    pub size: usize,
    /// True if newer headers may append fields.
    pub grows: bool,
    /// C names of the fields that are used, and their offsets in bytes.
    pub fields: &'static [(&'static str, usize)],
}

/// Defines structs that start with their size and a `pPriv`; the other fields are listed with their C name and
/// offset.
macro_rules! parameters {
    ($list:ident: $($(#[$doc:meta])* $name:ident = $c:literal, $size:literal $(, $grows:ident)? {
        $($field:ident: $type:ty = $c_field:literal @ $offset:literal, $field_doc:literal;)*
    })*) => {
        $(
            $(#[$doc])*
            #[doc = concat!("\n\n`", $c, "`")]
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub struct $name {
                /// Size of this struct in bytes: [`Self::SIZE`].
                pub struct_size: usize,
                /// NULL.
                pub private: *mut ::std::ffi::c_void,
                $(#[doc = $field_doc] pub $field: $type,)*
            }

            impl $name {
                /// Bytes from its start to the end of its last field.
                pub const SIZE: usize = $size;
                /// For a comparison with NVIDIA's headers.
                pub const LAYOUT: $crate::counters::abi::Layout = $crate::counters::abi::Layout {
                    name: $c,
                    size: $size,
                    grows: parameters!(@grows $($grows)?),
                    fields: &[("pPriv", 8), $(($c_field, $offset)),*],
                };

                /// With its size, and everything else 0.
                pub const fn new() -> Self {
                    // SAFETY: every field is an integer or a raw pointer, for which all zeroes is a valid
                    // value.
                    let zeroed = unsafe { std::mem::zeroed::<Self>() };
                    Self { struct_size: $size, ..zeroed }
                }
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::new()
                }
            }

            const _: () = {
                assert!(std::mem::offset_of!($name, private) == 8);
                $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
                assert!(size_of::<$name>() >= $size && size_of::<$name>() < $size + 8);
            };
        )*

        /// Every struct of this file.
        pub(super) const $list: &[$crate::counters::abi::Layout] = &[$($name::LAYOUT),*];
    };
    (@grows) => { false };
    (@grows grows) => { true };
}
pub(crate) use parameters;

/// Every parameter struct.
pub fn layouts() -> impl Iterator<Item = Layout> {
    PROFILER_LAYOUTS.iter().copied()
}
