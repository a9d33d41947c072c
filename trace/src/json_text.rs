//! Handwritten JSON output: one line per response does not justify a library in the profiled program.
//!
//! Field names are constants of this code and are not escaped; texts may contain any characters.

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
        Self::new().text("type", kind)
    }

    /// Adds a text.
    #[must_use]
    pub fn text(mut self, name: &str, text: &str) -> Self {
        self.name(name);
        push_text(&mut self.0, text);
        self
    }

    /// Adds a text or null.
    #[must_use]
    pub fn optional_text(self, name: &str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self.raw(name, "null"),
        }
    }

    /// Adds texts.
    #[must_use]
    pub fn texts<'a>(mut self, name: &str, texts: impl IntoIterator<Item = &'a str>) -> Self {
        self.name(name);
        self.0.push('[');
        for (index, text) in texts.into_iter().enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            push_text(&mut self.0, text);
        }
        self.0.push(']');
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, name: &str, number: u64) -> Self {
        self.raw(name, &number.to_string())
    }

    /// Adds a number or null.
    #[must_use]
    pub fn optional_number(self, name: &str, number: Option<u64>) -> Self {
        match number {
            Some(number) => self.number(name, number),
            None => self.raw(name, "null"),
        }
    }

    /// Adds numbers.
    #[must_use]
    pub fn numbers(mut self, name: &str, numbers: impl IntoIterator<Item = u64>) -> Self {
        self.name(name);
        push_numbers(&mut self.0, numbers);
        self
    }

    /// Adds rows of numbers.
    #[must_use]
    pub fn rows<R: IntoIterator<Item = u64>>(mut self, name: &str, rows: impl IntoIterator<Item = R>) -> Self {
        self.name(name);
        self.0.push('[');
        for (index, row) in rows.into_iter().enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            push_numbers(&mut self.0, row);
        }
        self.0.push(']');
        self
    }

    /// Adds a share or a factor with three decimal places; a value that is not a number becomes 0.
    #[must_use]
    pub fn share(self, name: &str, share: f64) -> Self {
        let share = if share.is_finite() { share } else { 0.0 };
        self.raw(name, &format!("{share:.3}"))
    }

    /// Adds a share or a factor with three decimal places, or null; a value that is not a number becomes
    /// null.
    #[must_use]
    pub fn optional_share(self, name: &str, share: Option<f64>) -> Self {
        match share.filter(|share| share.is_finite()) {
            Some(share) => self.share(name, share),
            None => self.raw(name, "null"),
        }
    }

    /// Adds true or false.
    #[must_use]
    pub fn flag(self, name: &str, flag: bool) -> Self {
        self.raw(name, if flag { "true" } else { "false" })
    }

    /// Adds an object, or null.
    #[must_use]
    pub fn object(self, name: &str, object: Option<Object>) -> Self {
        match object {
            Some(object) => self.raw(name, &object.closed()),
            None => self.raw(name, "null"),
        }
    }

    /// Adds objects.
    #[must_use]
    pub fn objects(mut self, name: &str, objects: impl IntoIterator<Item = Object>) -> Self {
        self.name(name);
        self.0.push('[');
        for (index, object) in objects.into_iter().enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            self.0.push_str(&object.closed());
        }
        self.0.push(']');
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
        self.closed() + "\n"
    }

    fn closed(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn raw(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.0.push_str(value);
        self
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        let _ = write!(self.0, "\"{name}\":");
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

fn push_numbers(out: &mut String, numbers: impl IntoIterator<Item = u64>) {
    out.push('[');
    for (index, number) in numbers.into_iter().enumerate() {
        let _ = write!(out, "{}{number}", if index > 0 { "," } else { "" });
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_whatever_is_in_it() {
        let line =
            Object::of_type("x").text("t", "a\"b\\c\nd\u{1}é").optional_text("n", None).number("k", 7).flag("f", true);
        assert_eq!(
            line.share("s", f64::NAN).end(),
            "{\"type\":\"x\",\"t\":\"a\\\"b\\\\c\\nd\\u0001é\",\"n\":null,\"k\":7,\"f\":true,\"s\":0.000}\n"
        );
    }

    #[test]
    fn lists_and_objects_nest() {
        let inner = Object::new().numbers("n", [1, 2]).rows("r", [vec![], vec![3]]).texts("t", ["a\"", "b"]);
        let line = Object::new().objects("o", [inner, Object::new()]).object("none", None);
        let line = line.with(&Object::new()).with(&Object::new().optional_share("s", Some(f64::INFINITY)));
        assert_eq!(
            line.optional_number("m", None).end(),
            "{\"o\":[{\"n\":[1,2],\"r\":[[],[3]],\"t\":[\"a\\\"\",\"b\"]},{}],\"none\":null,\"s\":null,\"m\":null}\n"
        );
    }
}
