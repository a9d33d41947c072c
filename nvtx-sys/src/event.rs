//! What came with a range or mark, in safe types.
//!
//! Texts are borrowed from the program for the length of one call, and cut at [`MAX_TEXT`]: looking for the end of a
//! longer one would cost the program time for a name that nobody reads.

use std::borrow::Cow;
use std::ffi::c_char;
use std::mem::{offset_of, zeroed};

use crate::abi::{EventAttributes, color_type, message_type, payload_type};

/// Longest text, characters; NVIDIA's tools show a few hundred.
pub const MAX_TEXT: usize = 4096;

/// A string of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text<'a> {
    /// `char`, UTF-8 by custom; anything by the letter.
    Narrow(&'a [u8]),
    /// `wchar_t`, UTF-32 by custom.
    Wide(&'a [u32]),
}

impl<'a> Text<'a> {
    /// As UTF-8, where what is no character becomes U+FFFD.
    #[must_use]
    pub fn to_string_lossy(&self) -> Cow<'a, str> {
        match self {
            Self::Narrow(bytes) => String::from_utf8_lossy(bytes),
            Self::Wide(units) => {
                units.iter().map(|&unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
        }
    }

    /// The string at `address`, up to its NUL. Null gives an empty one.
    ///
    /// # Safety
    /// `address` is null or points to a string that ends with NUL and that nobody changes during `'a`.
    pub(crate) unsafe fn narrow(address: *const c_char) -> Self {
        if address.is_null() {
            return Self::Narrow(&[]);
        }
        // SAFETY: the caller vouches for the string up to its NUL, and no more than that is read.
        Self::Narrow(unsafe {
            let length = libc::strnlen(address, MAX_TEXT);
            std::slice::from_raw_parts(address.cast(), length)
        })
    }

    /// As [`narrow`](Self::narrow), of `wchar_t`.
    ///
    /// # Safety
    /// As for `narrow`; the address is a multiple of 4.
    pub(crate) unsafe fn wide(address: *const u32) -> Self {
        if !address.is_aligned() || address.is_null() {
            return Self::Wide(&[]);
        }
        // SAFETY: the caller vouches for the string up to its NUL, and the search stops there.
        let length = (0..MAX_TEXT).take_while(|&at| unsafe { *address.add(at) } != 0).count();
        // SAFETY: these were all read just now.
        Self::Wide(unsafe { std::slice::from_raw_parts(address, length) })
    }
}

/// A registered string as the tool numbers it; its handle in the program is this number. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegisteredString(pub u32);

/// The text of a range or mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Message<'a> {
    /// None, or of a type that this version does not know.
    #[default]
    None,
    /// Given with the call.
    Text(Text<'a>),
    /// Given before.
    Registered(RegisteredString),
}

/// The number that came with a range or mark.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Payload {
    /// None, or of a type that this version does not know, such as those of the payload extension.
    #[default]
    None,
    /// Unsigned, 32 or 64 bits.
    Unsigned(u64),
    /// Signed, 32 or 64 bits.
    Signed(i64),
    /// Floating point, 32 or 64 bits.
    Float(f64),
}

/// What came with a range or mark.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Event<'a> {
    /// The text.
    pub message: Message<'a>,
    /// Number of the category in its domain; 0 is none.
    pub category: u32,
    /// `0xAARRGGBB`; 0 when none was given.
    pub color: u32,
    /// The number.
    pub payload: Payload,
}

impl<'a> Event<'a> {
    /// Only a text.
    pub(crate) fn of(text: Text<'a>) -> Self {
        Self { message: Message::Text(text), ..Self::default() }
    }

    /// What `attributes` say. Null, or a size that was never set, says nothing.
    ///
    /// # Safety
    /// `attributes` is null or points to as many bytes as its member `size` says, at least 4, and its message is what
    /// its message type says; both are unchanged during `'a`.
    pub(crate) unsafe fn read(attributes: *const EventAttributes) -> Self {
        if attributes.is_null() {
            return Self::default();
        }
        // SAFETY: the first four bytes exist, says the caller.
        let size = usize::from(unsafe { (&raw const (*attributes).size).read_unaligned() });
        /// A member if the struct goes on to the end of the last one named, else zero: a type without its value is
        /// none.
        macro_rules! member {
            ($name:ident, $last:ident) => {
                if size >= offset_of!(EventAttributes, $last) + size_of_target(&raw const (*attributes).$last) {
                    (&raw const (*attributes).$name).read_unaligned()
                } else {
                    zeroed()
                }
            };
        }
        // SAFETY: a member is read when the program says that it exists, and zero is valid for each. Programs may pack
        // the struct into a buffer, so nothing is assumed about its alignment.
        let (category, color_type, color, payload_type, payload, message_type, message) = unsafe {
            (
                member!(category, category),
                member!(color_type, color),
                member!(color, color),
                member!(payload_type, payload),
                member!(payload, payload),
                member!(message_type, message),
                member!(message, message),
            )
        };
        let message = match message_type {
            // SAFETY: the caller vouches for the message's type.
            message_type::ASCII => Message::Text(unsafe { Text::narrow(message) }),
            // SAFETY: as above.
            message_type::UNICODE => Message::Text(unsafe { Text::wide(message.cast()) }),
            message_type::REGISTERED => {
                Message::Registered(RegisteredString(u32::try_from(message.addr()).unwrap_or(0)))
            }
            _ => Message::None,
        };
        let color = if color_type == color_type::ARGB { color } else { 0 };
        Self { message, category, color, payload: Payload::from_bits(payload_type, payload) }
    }
}

/// Bytes of what an address points to; nothing is read.
fn size_of_target<T>(_: *const T) -> usize {
    size_of::<T>()
}

impl Payload {
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
