//! A record as bytes, and the views that read the fields of a kind.

use crate::abi::Kind;

/// A field of a C record, for the layout check against other sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the C struct.
    pub name: &'static str,
    /// Bytes from the start of the record.
    pub offset: usize,
    /// Width in bytes.
    pub width: usize,
}

/// Validity of the string addresses in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strings {
    /// Written by the CUPTI of this process.
    Readable,
    /// From another process or a file: addresses are only numbers.
    Foreign,
}

/// One record in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    kind: Kind,
    bytes: &'a [u8],
    pub(super) strings: Strings,
}

impl<'a> Record<'a> {
    #[inline]
    pub(crate) const fn new(kind: Kind, bytes: &'a [u8], strings: Strings) -> Self {
        Self { kind, bytes, strings }
    }

    /// Kind of the record.
    #[inline]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The whole record, kind included.
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// A number in this record, or `None` if it lies past the record's end.
    #[inline]
    pub(super) fn read<T: Number>(&self, offset: usize) -> Option<T> {
        T::read(self.bytes.get(offset..)?)
    }

    /// The string address at `offset`; 0 if there is none.
    #[inline]
    pub fn string_address(&self, offset: usize) -> u64 {
        self.read(offset).unwrap_or(0)
    }
}

/// A number as stored in a record: little-endian, perhaps unaligned.
pub(super) trait Number: Sized {
    fn read(bytes: &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($int:ty),*) => {$(
        impl Number for $int {
            #[inline]
            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|&bytes| Self::from_le_bytes(bytes))
            }
        }
    )*};
}

numbers!(u8, u16, u32, i32, u64);

impl<const N: usize> Number for [u8; N] {
    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().copied()
    }
}

/// Defines a view of a record: its minimum size, its fields, and one accessor per field.
///
/// Fields under `always` exist in every record of at least the minimum size, which is that of CUDA 11.7.
/// Accessors of fields under `since` return `None` for records that end before them. `as` sets the type of a
/// number. Everything is inlined into the caller's crate, where a single comparison of the size then serves
/// all fields.
macro_rules! layout {
    (
        $(#[$doc:meta])*
        $view:ident, at least $least:literal bytes
        always { $($always:ident: $always_type:ty = $always_name:literal @ $always_offset:literal, $always_doc:literal;)* }
        since { $($since:ident: $since_type:ty = $since_name:literal @ $since_offset:literal, $since_doc:literal;)* }
        $(as { $($typed:ident: $typed_type:ident = $number:ident, $typed_doc:literal;)* })?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $view<'a>(crate::record::view::Record<'a>);

        impl<'a> $view<'a> {
            /// Size of the record in CUDA 11.7, the smallest that is accepted.
            pub const LEAST_BYTES: usize = $least;

            /// Every field that has an accessor.
            pub const FIELDS: &'static [crate::record::view::Field] = &[
                $(crate::record::view::Field { name: $always_name, offset: $always_offset, width: size_of::<$always_type>() },)*
                $(crate::record::view::Field { name: $since_name, offset: $since_offset, width: size_of::<$since_type>() },)*
            ];

            /// View of a record of this kind; `None` if it is too short.
            #[inline]
            pub(super) fn of(record: crate::record::view::Record<'a>) -> Option<Self> {
                const { $(assert!($always_offset + size_of::<$always_type>() <= $least);)* }
                (record.bytes().len() >= $least).then_some(Self(record))
            }

            /// The record itself.
            #[inline]
            pub const fn record(&self) -> crate::record::view::Record<'a> {
                self.0
            }

            $(#[doc = $always_doc] #[must_use] #[inline] pub fn $always(&self) -> $always_type {
                self.0.read($always_offset).unwrap_or_default()
            })*

            $(#[doc = $since_doc] #[must_use] #[inline] pub fn $since(&self) -> Option<$since_type> {
                self.0.read($since_offset)
            })*

            $($(#[doc = $typed_doc] #[must_use] pub fn $typed(&self) -> $typed_type {
                $typed_type(self.$number().into())
            })*)?
        }
    };
}
pub(super) use layout;
