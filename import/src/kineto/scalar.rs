//! A JSON value that should be a number or a text.
//!
//! Kineto changed the type of several fields over the years (`"tid": "25738"`, `"tid": 25738`), and other
//! writers differ again. A field of an unexpected type must cost only that field, not the rest of the file,
//! so reading a scalar never fails.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::lenient::{Lenient, Shape};

/// A number, a text, or any other value, which is ignored.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Scalar {
    #[default]
    Absent,
    Integer(i64),
    Real(f64),
    Text(String),
}

impl Scalar {
    /// Returns an integer, also one in quotes.
    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            Self::Real(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(*value as i64),
            Self::Text(text) => text.trim().parse().ok(),
            Self::Real(_) | Self::Absent => None,
        }
    }

    /// Returns an integer in the range of `T`.
    pub(super) fn within<T: TryFrom<i64>>(&self) -> Option<T> {
        self.integer().and_then(|value| T::try_from(value).ok())
    }

    /// Returns the text; empty for other types.
    pub(super) fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    /// Returns the text; empty for other types.
    pub(super) fn into_text(self) -> String {
        if let Self::Text(text) = self { text } else { String::new() }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
        // A double would not tell large ids apart.
        Ok(i64::try_from(value).map_or_else(|_| Scalar::Text(value.to_string()), Scalar::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Real(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_owned()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
        Ok(Scalar::Absent)
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Absent)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Absent)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Absent)
    }
}

/// Three sizes (`"grid": [24, 1, 1]`); zeros for anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent(pub(super) [u32; 3]);

impl<'de> Deserialize<'de> for Extent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Lenient::deserialize(deserializer)?.0.unwrap_or_default())
    }
}

impl Shape for Extent {
    fn elements<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
        let mut sizes = [0; 3];
        for size in &mut sizes {
            match seq.next_element::<Scalar>()? {
                Some(element) => *size = element.within().unwrap_or(0),
                None => return Ok(Some(Self(sizes))),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Some(Self(sizes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(json: &str) -> Scalar {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn numbers_come_in_several_dresses() {
        assert_eq!(scalar("25738").within::<u32>(), Some(25738));
        assert_eq!(scalar("\"25738\"").within::<u32>(), Some(25738));
        assert_eq!(scalar("25738.0").within::<u32>(), Some(25738));
        assert_eq!(scalar("-1").within::<u32>(), None);
        assert_eq!(scalar("0.5").integer(), None);
    }

    #[test]
    fn other_shapes_are_read_over() {
        for json in ["null", "true", "[1, [2]]", "{\"a\": {\"b\": 1}}"] {
            assert_eq!(scalar(json), Scalar::Absent, "{json}");
        }
        for (json, sizes) in [("[4, 106, 1]", [4, 106, 1]), ("[4]", [4, 0, 0]), ("7", [0; 3]), ("[-1, \"x\"]", [0; 3])]
        {
            assert_eq!(serde_json::from_str::<Extent>(json).unwrap().0, sizes, "{json}");
        }
    }
}
