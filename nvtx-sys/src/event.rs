//! Attributes of a range or mark, in safe types.
//!
//! Texts are borrowed from the program for the length of one call, and cut at [`MAX_TEXT`]: searching for the
//! end of a longer text would cost the program time for a name that no user reads.

use std::borrow::Cow;
use std::ffi::c_char;
use std::mem::{offset_of, zeroed};

use crate::abi::{EventAttributes, PayloadData, STATIC_SCHEMAS, color_type, message_type, payload_type};

/// Maximum length of a text in characters; NVIDIA's tools show a few hundred.
pub const MAX_TEXT: usize = 4096;

/// A string of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text<'a> {
    /// `char`: UTF-8 by convention; formally any bytes.
    Narrow(&'a [u8]),
    /// `wchar_t`: UTF-32 by convention.
    Wide(&'a [u32]),
}

impl<'a> Text<'a> {
    /// The text as UTF-8; invalid characters become U+FFFD.
    pub fn to_string_lossy(&self) -> Cow<'a, str> {
        match self {
            Self::Narrow(bytes) => String::from_utf8_lossy(bytes),
            Self::Wide(units) => {
                units.iter().map(|&unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
        }
    }

    /// The string at `address`, up to its NUL; empty if `address` is null.
    ///
    /// # Safety
    /// `address` is null or points to a NUL-terminated string that does not change during `'a`.
    pub(crate) unsafe fn narrow(address: *const c_char) -> Self {
        if address.is_null() {
            return Self::Narrow(&[]);
        }
        // SAFETY: the caller guarantees the string up to its NUL, and no more than that is read.
        Self::Narrow(unsafe {
            let length = libc::strnlen(address, MAX_TEXT);
            std::slice::from_raw_parts(address.cast(), length)
        })
    }

    /// Like [`narrow`](Self::narrow), for `wchar_t`.
    ///
    /// # Safety
    /// As for `narrow`; the address is a multiple of 4.
    pub(crate) unsafe fn wide(address: *const u32) -> Self {
        if !address.is_aligned() || address.is_null() {
            return Self::Wide(&[]);
        }
        // SAFETY: the caller guarantees the string up to its NUL, and the search stops there.
        let length = (0..MAX_TEXT).take_while(|&at| unsafe { *address.add(at) } != 0).count();
        // SAFETY: these elements were all just read.
        Self::Wide(unsafe { std::slice::from_raw_parts(address, length) })
    }
}

/// The tool's id of a registered string; its handle in the program is this number. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegisteredString(pub u32);

/// The text of a range or mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Message<'a> {
    /// None, or of a type that this version does not know.
    #[default]
    None,
    /// Passed with the call.
    Text(Text<'a>),
    /// Registered before.
    Registered(RegisteredString),
}

/// The payload of a range or mark.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Payload {
    /// None, or of a type that this version does not know.
    #[default]
    None,
    /// Unsigned, 32 or 64 bits.
    Unsigned(u64),
    /// Signed, 32 or 64 bits.
    Signed(i64),
    /// Floating point, 32 or 64 bits.
    Float(f64),
    /// A struct of the payload extension.
    Extended(Extended),
}

/// Start of a struct of the payload extension whose schema id the program chose. If there are several
/// structs, the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// Id of the schema minus [`STATIC_SCHEMAS`]; unique only within its domain.
    pub schema: u32,
    /// Size of the struct in bytes, as stated by the program.
    pub size: u32,
    /// Its first bytes, padded with zeros.
    pub words: [u64; EXTENDED_WORDS],
}

/// Number of words of a struct that are kept.
pub const EXTENDED_WORDS: usize = 3;
/// Maximum number of structs per event; if there are more, none is read.
const MAX_STRUCTS: i32 = 64;

/// Attributes of a range or mark.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attributes<'a> {
    /// The text.
    pub message: Message<'a>,
    /// Id of the category in its domain; 0 is none.
    pub category: u32,
    /// `0xAARRGGBB`; 0 if the program passed none.
    pub color: u32,
    /// The payload.
    pub payload: Payload,
}

impl<'a> Attributes<'a> {
    /// An event with only a text.
    pub(crate) fn of(text: Text<'a>) -> Self {
        Self { message: Message::Text(text), ..Self::default() }
    }

    /// Reads `attributes`. Null, or a size that was never set, yields an empty event.
    ///
    /// # Safety
    /// `attributes` is null or points to as many bytes as its member `size` states, at least 4, and its
    /// message matches its message type; both are unchanged during `'a`.
    pub(crate) unsafe fn read(attributes: *const EventAttributes) -> Self {
        if attributes.is_null() {
            return Self::default();
        }
        // SAFETY: the caller guarantees the first four bytes.
        let size = usize::from(unsafe { (&raw const (*attributes).size).read_unaligned() });
        /// A member, if the struct extends to the end of the last member named, else zero: a type without its
        /// value counts as none.
        macro_rules! member {
            ($name:ident, $last:ident) => {
                if size >= offset_of!(EventAttributes, $last) + size_of_target(&raw const (*attributes).$last) {
                    (&raw const (*attributes).$name).read_unaligned()
                } else {
                    zeroed()
                }
            };
        }
        // SAFETY: a member is read only if the program states that it exists, and zero is valid for each.
        // Programs may pack the struct into a buffer, so no alignment is assumed.
        let (category, color_type, color, payload_type, structs, payload, message_type, message) = unsafe {
            (
                member!(category, category),
                member!(color_type, color),
                member!(color, color),
                member!(payload_type, payload),
                member!(reserved, payload),
                member!(payload, payload),
                member!(message_type, message),
                member!(message, message),
            )
        };
        let message = match message_type {
            // SAFETY: the caller guarantees the message's type.
            message_type::ASCII => Message::Text(unsafe { Text::narrow(message) }),
            // SAFETY: as above.
            message_type::UNICODE => Message::Text(unsafe { Text::wide(message.cast()) }),
            message_type::REGISTERED => {
                Message::Registered(RegisteredString(u32::try_from(message.addr()).unwrap_or(0)))
            }
            _ => Message::None,
        };
        let color = if color_type == color_type::ARGB { color } else { 0 };
        let payload = if payload_type == payload_type::EXTENDED && (1..=MAX_STRUCTS).contains(&structs) {
            // SAFETY: the caller guarantees the payload's type: the address of at least one descriptor of a
            // struct.
            unsafe { Payload::extended(payload) }
        } else {
            Payload::from_bits(payload_type, payload)
        };
        Self { message, category, color, payload }
    }
}

/// Size in bytes of a pointer's target, which is not read.
fn size_of_target<T>(_: *const T) -> usize {
    size_of::<T>()
}

impl Payload {
    /// The first of the structs whose descriptors are at `address`, if it states its size.
    ///
    /// # Safety
    /// `address` is 0 or that of a [`PayloadData`], whose payload is null or points to as many bytes as its
    /// size states, unchanged during the call.
    unsafe fn extended(address: u64) -> Self {
        let Ok(address) = usize::try_from(address) else { return Self::None };
        let place = std::ptr::with_exposed_provenance::<PayloadData>(address);
        if place.is_null() || !place.is_aligned() {
            return Self::None;
        }
        // SAFETY: the caller guarantees one descriptor, and it is aligned.
        let PayloadData { schema, size, payload } = unsafe { place.read() };
        // Without an explicit size, only the schema determines the length, and schemas are not read.
        let (Some(schema), Ok(reported)) = (schema.checked_sub(STATIC_SCHEMAS), u32::try_from(size)) else {
            return Self::None;
        };
        let (Ok(schema), false) = (u32::try_from(schema), payload.is_null()) else { return Self::None };
        let mut bytes = [0; EXTENDED_WORDS * 8];
        let length = size.min(bytes.len());
        // SAFETY: the caller guarantees `size` bytes, and no more than that is copied.
        unsafe { std::ptr::copy_nonoverlapping(payload.cast::<u8>(), bytes.as_mut_ptr(), length) };
        let mut words = [0; EXTENDED_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        }
        Self::Extended(Extended { schema, size: reported, words })
    }

    fn from_bits(payload_type: i32, bits: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "32-bit payloads are in the low half")]
        let low = bits as u32;
        match payload_type {
            payload_type::UNSIGNED_INT64 => Self::Unsigned(bits),
            payload_type::INT64 => Self::Signed(bits.cast_signed()),
            payload_type::DOUBLE => Self::Float(f64::from_bits(bits)),
            payload_type::UNSIGNED_INT32 => Self::Unsigned(low.into()),
            payload_type::INT32 => Self::Signed(low.cast_signed().into()),
            payload_type::FLOAT => Self::Float(f32::from_bits(low).into()),
            _ => Self::None,
        }
    }
}
