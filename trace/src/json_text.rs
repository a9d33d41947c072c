//! Handwritten JSON output: one line per response does not justify a library in the profiled program.
//!
//! Field names are constants of this code and are not escaped; texts may contain any characters.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A JSON object under construction.
#[derive(Clone, Debug)]
pub struct Object(String);

impl Default for Object {
    fn default() -> Self {
        Self("{".to_owned())
    }
}

impl Object {
    /// Creates an object without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an object with the field `type`.
    pub fn of_type(kind: &str) -> Self {
        Self::new().field("type", kind)
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Json) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        let _ = write!(self.0, "\"{name}\":");
        value.put(&mut self.0);
        self
    }

    /// Adds the fields of another object.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        if self.0.len() > 1 && other.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&other.0[1..]);
        self
    }

    /// Returns the object as a line, including the line end.
    pub fn end(self) -> String {
        self.0 + "}\n"
    }
}

/// A value that can be written as JSON.
pub trait Json {
    /// Appends the value.
    fn put(&self, out: &mut String);
}

macro_rules! as_displayed {
    ($($type:ty)*) => {$(
        impl Json for $type {
            fn put(&self, out: &mut String) {
                let _ = write!(out, "{self}");
            }
        }
    )*};
}
as_displayed! { bool u32 u64 }

/// A share or a factor with three decimal places; null if it is not a number.
impl Json for f64 {
    fn put(&self, out: &mut String) {
        let _ = if self.is_finite() { write!(out, "{self:.3}") } else { write!(out, "null") };
    }
}

impl Json for str {
    fn put(&self, out: &mut String) {
        push_text(out, self);
    }
}

impl Json for String {
    fn put(&self, out: &mut String) {
        push_text(out, self);
    }
}

impl Json for Object {
    fn put(&self, out: &mut String) {
        out.push_str(&self.0);
        out.push('}');
    }
}

impl<T: Json + ?Sized> Json for &T {
    fn put(&self, out: &mut String) {
        (**self).put(out);
    }
}

/// The value or null.
impl<T: Json> Json for Option<T> {
    fn put(&self, out: &mut String) {
        match self {
            Some(value) => value.put(out),
            None => out.push_str("null"),
        }
    }
}

impl<T: Json, const N: usize> Json for [T; N] {
    fn put(&self, out: &mut String) {
        push_list(out, self);
    }
}

impl<T: Json> Json for Vec<T> {
    fn put(&self, out: &mut String) {
        push_list(out, self);
    }
}

impl<T: Json> Json for BTreeMap<String, T> {
    fn put(&self, out: &mut String) {
        self.iter().fold(Object::new(), |object, (name, value)| object.field(name, value)).put(out);
    }
}

pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::new();
    push_text(&mut out, text);
    out
}

fn push_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if (control as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

fn push_list(out: &mut String, values: &[impl Json]) {
    out.push('[');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        value.put(out);
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_whatever_is_in_it() {
        let line = Object::of_type("x").field("t", "a\"b\\c\nd\u{1}é").field("n", None::<u64>).field("k", 7_u32);
        assert_eq!(
            line.field("f", true).field("s", 0.25).field("t", f64::NAN).end(),
            "{\"type\":\"x\",\"t\":\"a\\\"b\\\\c\\nd\\u0001é\",\"n\":null,\"k\":7,\"f\":true,\"s\":0.250,\"t\":null}\n"
        );
    }

    #[test]
    fn lists_and_objects_nest() {
        let inner = Object::new().field("n", [1_u64, 2]).field("r", vec![vec![], vec![3_u64]]).field("t", ["a\"", "b"]);
        let line = Object::new().field("o", [inner, Object::new()]).field("none", None::<Object>);
        let line = line.with(&Object::new()).with(&Object::new().field("s", Some(f64::INFINITY)));
        let line = line.field("m", BTreeMap::from([("a".to_owned(), 1_u64), ("b".to_owned(), 2)]));
        assert_eq!(
            line.end(),
            "{\"o\":[{\"n\":[1,2],\"r\":[[],[3]],\"t\":[\"a\\\"\",\"b\"]},{}],\"none\":null,\"s\":null,\"m\":{\"a\":1,\"b\":2}}\n"
        );
    }
}
