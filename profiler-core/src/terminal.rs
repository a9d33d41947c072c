//! What every text for a terminal is made with: durations, lines of a bounded width, names cut to fit, names that cannot
//! control the terminal.
//!
//! Plain ASCII and no colour, since nobody here knows whether there is a terminal. What the texts say is decided in
//! `report` and `diff`.

use std::borrow::Cow;
use std::fmt::Write;

use crate::attribution::statistics::CopyPath;

/// Columns of a line.
pub(crate) const WIDTH: usize = 100;

/// Three or four significant digits and a unit.
pub(crate) fn duration(nanos: u64) -> String {
    let value = nanos as f64;
    // The limits are where rounding would give a thousand of a unit.
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..999_950 => format!("{:.1} us", value / 1e3),
        999_950..999_950_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// Direction and memory of a copy.
pub(crate) fn path_name(path: CopyPath) -> String {
    format!("{} ({} to {})", path.kind.name(), path.source.name(), path.destination.name())
}

/// The first `width` characters, the last of them `~` when something is missing.
pub(crate) fn shortened(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width.saturating_sub(1)).chain(['~']).collect()
}

/// `text` as a terminal may show it. Names come from the traced program, and a terminal obeys what it is sent: escape
/// sequences set its title or its clipboard, line breaks forge rows, bidirectional controls reorder what is read. So
/// control characters are shown as `\n`, `\x1b` or `\u{202e}`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(controls) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' | '\r' | '\t' => shown.extend(character.escape_default()),
            '\0'..='\x1f' | '\x7f'..='\u{9f}' => {
                let _ = write!(shown, "\\x{:02x}", u32::from(character));
            }
            _ if controls(character) => shown.extend(character.escape_unicode()),
            _ => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal does something else with it than show it: control characters (C0, DEL, C1), separators of lines and
/// paragraphs, marks and controls of the direction of text.
fn controls(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes `lead` and `text`, broken at spaces; what follows the first line is indented by the width of `lead`, at least
/// by two.
pub(crate) fn wrapped(out: &mut String, lead: &str, text: &str) {
    let mut line = lead.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = " ".repeat(lead.chars().count().max(2));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_never_reach_a_thousand() {
        let cases = [(0, "0 ns"), (999, "999 ns"), (999_949, "999.9 us"), (999_950, "1.0 ms"), (999_950_000, "1.00 s")];
        for (nanos, text) in cases {
            assert_eq!(duration(nanos), text);
        }
    }

    #[test]
    fn shortening_counts_characters() {
        assert_eq!(shortened("gemm", 4), "gemm");
        assert_eq!(shortened("g\u{e9}mm_x", 4), "g\u{e9}m~");
    }

    #[test]
    fn no_control_character_reaches_a_terminal() {
        assert!(matches!(printable("void gemm<1, 2>(float*) \u{e9}\u{4e2d}"), Cow::Borrowed(_)));
        assert_eq!(printable("a\x1b]0;x\x07b\n\tc\u{9b}1m\x7f\0"), "a\\x1b]0;x\\x07b\\n\\tc\\x9b1m\\x7f\\x00");
        assert_eq!(printable("x\u{202e}y\u{2066}\u{2028}"), "x\\u{202e}y\\u{2066}\\u{2028}");
    }

    #[test]
    fn lines_are_broken_and_indented() {
        let mut out = String::new();
        wrapped(&mut out, "note: ", &"word ".repeat(30));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[1].starts_with("      word") && lines.iter().all(|line| line.len() <= WIDTH));
    }
}
