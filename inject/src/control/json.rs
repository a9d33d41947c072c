//! Lines of JSON, written by hand: one flat object a line does not pay for a library in the host's process.

use std::fmt::Write;

/// An object being written.
#[derive(Debug)]
pub struct Object(String);

impl Object {
    /// With the field `type`.
    pub fn new(kind: &str) -> Self {
        Self("{".to_owned()).text("type", kind)
    }

    /// Adds a text.
    pub fn text(mut self, name: &str, text: &str) -> Self {
        self.name(name);
        self.0.push('"');
        for character in text.chars() {
            match character {
                '"' => self.0.push_str("\\\""),
                '\\' => self.0.push_str("\\\\"),
                '\n' => self.0.push_str("\\n"),
                control if (control as u32) < 0x20 => {
                    let _ = write!(self.0, "\\u{:04x}", control as u32);
                }
                other => self.0.push(other),
            }
        }
        self.0.push('"');
        self
    }

    /// Adds a text or null.
    pub fn optional_text(self, name: &str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self.raw(name, "null"),
        }
    }

    /// Adds a number.
    pub fn number(self, name: &str, number: u64) -> Self {
        self.raw(name, &number.to_string())
    }

    /// Adds a share, with three places; one that is no number is 0.
    pub fn share(self, name: &str, share: f64) -> Self {
        let share = if share.is_finite() { share } else { 0.0 };
        self.raw(name, &format!("{share:.3}"))
    }

    /// Adds true or false.
    pub fn flag(self, name: &str, flag: bool) -> Self {
        self.raw(name, if flag { "true" } else { "false" })
    }

    /// The line, with its end.
    pub fn end(mut self) -> String {
        self.0.push_str("}\n");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_whatever_is_in_it() {
        let line =
            Object::new("x").text("t", "a\"b\\c\nd\u{1}é").optional_text("n", None).number("k", 7).flag("f", true);
        assert_eq!(
            line.share("s", f64::NAN).end(),
            "{\"type\":\"x\",\"t\":\"a\\\"b\\\\c\\nd\\u0001é\",\"n\":null,\"k\":7,\"f\":true,\"s\":0.000}\n"
        );
    }
}
