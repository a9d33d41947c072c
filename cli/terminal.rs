//! Properties of the terminal on standard output.

use anyhow::Result;
use console::Term;
use gpuwhy_report::text_format::{Style, printable_json};
use serde::Serialize;

/// Width in characters; `None` when standard output is not a terminal, or one that does not report its size.
pub fn columns() -> Option<u16> {
    Term::stdout().size_checked().map(|(_, columns)| columns).filter(|&columns| columns > 0)
}

/// True if the locale's encoding is not limited to ASCII. The first of three variables that is set decides,
/// as in the C library.
pub fn shows_unicode(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let encoding = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
    encoding.contains("utf-8") || encoding.contains("utf8")
}

/// `text` cut to `width` characters, with `~` as the last one when any are missing.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['~']).collect()
}

/// Text style for standard output: the width of the terminal, and color by `NO_COLOR`, `CLICOLOR`,
/// `CLICOLOR_FORCE` (for a pager) and `TERM`. Piped or saved text looks the same everywhere.
pub fn style() -> Style {
    let usual = Style::default();
    Style { width: columns().map_or(usual.width, usize::from), color: console::colors_enabled() }
}

/// Serializes to a line of JSON, in which no name can control the terminal. Fails when `document` cannot be
/// serialized.
pub fn json(document: &impl Serialize) -> Result<String> {
    Ok(printable_json(&serde_json::to_string(document)?).into_owned() + "\n")
}
