//! Text in the form that HTML requires.

use std::borrow::Cow;

use gpuwhy_report::text_format::printable;

/// Maximum number of characters of a name: C++ has names of megabytes.
const LONGEST: usize = 2_000;

/// Escapes `text` for any place in a page: the result contains no markup, directional control, or control
/// character. A text of more than 2,000 characters is truncated.
pub(crate) fn escaped(text: &str) -> String {
    let shown = shown(text);
    let mut safe = String::with_capacity(shown.len() + 16);
    for character in shown.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(character),
        }
    }
    safe
}

/// `text` without control characters, truncated to a length that a page can hold.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    let short = match text.char_indices().nth(LONGEST) {
        Some((end, _)) => return Cow::Owned(format!("{}…", printable(&text[..end]))),
        None => text,
    };
    printable(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markup() {
        assert_eq!(
            escaped("</script><b a=\"x\" c='y'>&"),
            "&lt;/script&gt;&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;"
        );
        assert!(!escaped("a\u{202e}b\0c\n").contains(['\u{202e}', '\0', '\n']));
        assert_eq!(shown(&"x".repeat(1 << 20)).chars().count(), LONGEST + 1);
    }
}
