//! Structs that are encoded and decoded field by field from one list of fields.

use super::column::Field;
use super::varint::{self, Cursor, Malformed};

/// A type with one byte representation.
pub(super) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(cursor: &mut Cursor<'_>) -> Result<Self, Malformed>;
}

impl<F: Field> Wire for F {
    fn put(&self, out: &mut Vec<u8>) {
        varint::put(out, self.number());
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Self::from_number(cursor.varint()?).ok_or(Malformed)
    }
}

impl<const N: usize> Wire for [u32; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|number| number.put(out));
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = Wire::get(cursor)?;
        }
        Ok(numbers)
    }
}

impl Wire for [u8; 16] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn get(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        cursor.take(16)?.try_into().map_err(|_| Malformed)
    }
}

/// The order of the fields here is their order in the file.
macro_rules! wire {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn get(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
                Ok(Self { $($field: Wire::get(cursor)?,)* })
            }
        }
    )*};
}
pub(super) use wire;
