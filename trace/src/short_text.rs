//! Texts of bounded length.

/// The first `most` bytes of `text`, or fewer so that no character is split.
pub fn cut(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

/// Defines a text of at most `$most` bytes.
macro_rules! short_text {
    ($(#[$doc:meta])* $name:ident, $most:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name([u8; $most], u8);

        impl Default for $name {
            fn default() -> Self {
                Self::new("")
            }
        }

        impl $name {
            /// The text, or its beginning if it is too long.
            pub fn new(name: &str) -> Self {
                const { assert!($most <= u8::MAX as usize) };
                let (name, mut bytes) = ($crate::short_text::cut(name, $most), [0; $most]);
                bytes[..name.len()].copy_from_slice(name.as_bytes());
                Self(bytes, name.len() as u8)
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                std::str::from_utf8(&self.0[..self.1 as usize]).unwrap_or_default()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.as_str(), f)
            }
        }
    };
}
pub(crate) use short_text;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::ProgramName;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(ProgramName::new("python3 server.py").as_str(), "python3 server.py");
        assert_eq!(ProgramName::new(&"é".repeat(40)).as_str(), "é".repeat(23));
        assert_eq!(cut("short", 200), "short");
        assert_eq!(cut(&"é".repeat(150), 200).chars().count(), 100);
        assert_eq!(cut(&format!("x{}", "é".repeat(150)), 200).len(), 199);
    }
}
