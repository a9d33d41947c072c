//! Handwritten JSON: quoted texts and times.
//!
//! Rows are written with `write!` because a trace has millions of them and their keys follow Kineto's order.

use std::fmt;

use gpuwhy_report::text_format::printable_json;

/// Quotes a text and escapes terminal control characters.
pub fn quoted(text: &str) -> String {
    printable_json(&serde_json::Value::from(text).to_string()).into_owned()
}

/// Nanoseconds written as microseconds with three decimal places, which is lossless.
pub struct Micros(pub u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds() {
        assert_eq!(Micros(1_234_567).to_string(), "1234.567");
        assert_eq!(Micros(7).to_string(), "0.007");
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(quoted("a\"b\\\n\u{1}\u{9b}"), r#""a\"b\\\n\u0001\u009b""#);
    }
}
