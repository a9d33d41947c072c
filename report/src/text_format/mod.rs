//! Tools for terminal text: durations, lines of a bounded width, names cut to fit, names that cannot control
//! the terminal.
//!
//! The output is plain ASCII. This module does not detect a terminal: its width and color support are in the
//! caller's [`Style`]. The content of the texts is determined where they are used.

pub mod names;
mod nearest;
pub mod table;

use std::borrow::Cow;
use std::fmt::{self, Write};

pub use nearest::edits;
use profiler_core::attribution::statistics::CopyPath;

/// Default number of columns, for output to an unknown terminal.
const WIDTH: usize = 100;
/// Minimum and maximum number of columns of a text: longer lines are hard to read.
const NARROWEST: usize = 40;
const WIDEST: usize = 160;

/// Style of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of a line; clamped to 40 to 160.
    pub width: usize,
    /// True if colors and bold letters are used, as ANSI escape sequences.
    pub color: bool,
}

impl Default for Style {
    /// 100 columns without color: for files, pipes, and unknown terminals.
    fn default() -> Self {
        Self { width: WIDTH, color: false }
    }
}

/// Emphasis of a piece of text if colors are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// No emphasis.
    Plain,
    /// Text to be read first.
    Bold,
    /// Useful time.
    Green,
    /// Recoverable time.
    Yellow,
}

impl Paint {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
        }
    }
}

/// Formats a duration with three or four significant digits and a unit.
pub fn duration(nanos: u64) -> String {
    let value = nanos as f64;
    // The limits avoid rounding to a thousand of a unit.
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..999_950 => format!("{:.1} us", value / 1e3),
        999_950..999_950_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// Formats a time in UTC, to the minute, such as `2026-11-23 09:41`; uses the algorithm `civil_from_days` of
/// Howard Hinnant ("chrono-compatible low-level date algorithms", 2013).
pub fn date(nanos: u64) -> String {
    let minutes = nanos / 60_000_000_000;
    let (days, minute) = (minutes / 1_440 + 719_468, minutes % 1_440);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minute / 60, minute % 60)
}

/// Formats a number of bytes with three or four significant digits and a decimal unit.
pub fn bytes(count: u64) -> String {
    let value = count as f64;
    match count {
        0..1_000 => format!("{count} B"),
        1_000..999_950 => format!("{:.1} kB", value / 1e3),
        999_950..999_950_000 => format!("{:.1} MB", value / 1e6),
        999_950_000..999_950_000_000 => format!("{:.1} GB", value / 1e9),
        _ => format!("{:.2} TB", value / 1e12),
    }
}

/// `count` with its noun, in the plural unless it is one.
pub fn counted(count: u64, what: &str) -> String {
    match what.strip_suffix('y') {
        _ if count == 1 => format!("1 {what}"),
        Some(stem) => format!("{count} {stem}ies"),
        None if what.ends_with("ch") => format!("{count} {what}es"),
        None => format!("{count} {what}s"),
    }
}

/// Formats a share, 0 to 1, in whole percent; a nonzero share is never shown as 0.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        little if little < 0.95 => "less than 1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

/// Formats a rate in 10^9 bytes per second; slow ones in a smaller unit.
pub(crate) fn rate(gigabytes_per_second: f64) -> String {
    match gigabytes_per_second {
        slow if slow < 0.000_95 => format!("{:.1} kB/s", slow * 1e6),
        slow if slow < 0.095 => format!("{:.1} MB/s", slow * 1e3),
        rate => format!("{rate:.1} GB/s"),
    }
}

/// Formats a part in the unit of the total: `3.0 of 4.9 ms`.
pub(crate) fn part_of(part: u64, whole: u64) -> String {
    let (part, whole) = (duration(part), duration(whole));
    match (part.split_once(' '), whole.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} of {whole}"),
        _ => format!("{part} of {whole}"),
    }
}

/// Direction and memory of a copy, with the names in the JSON.
pub fn path_name(path: CopyPath) -> String {
    format!("{} ({} to {})", path.kind.name(), path.source.name(), path.destination.name())
}

/// The first `width` characters; the last one is `~` if the name was truncated.
pub fn shortened(name: &str, width: usize) -> String {
    let name = printable(name);
    if name.chars().count() <= width {
        return name.into_owned();
    }
    name.chars().take(width.saturating_sub(1)).chain(['~']).collect()
}

/// Escapes `text` for a terminal. Names come from the traced program, and a terminal interprets control
/// characters: escape sequences set its title or its clipboard, line breaks forge rows, bidirectional
/// controls reorder the text. So control characters are shown as `\n`, `\x1b` or `\u{202e}`.
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

/// Escapes lines like [`printable`], but keeps line breaks.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// Escapes JSON for a terminal without changing its meaning: characters that [`printable`] would change
/// become JSON escapes. Line breaks and tabs stay, because JSON has them only between tokens.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let escaped = |character| controls(character) && !matches!(character, '\n' | '\t');
    if !json.contains(escaped) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if escaped(character) {
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Escapes `text` for a line or a table cell of Markdown, so that no name becomes markup, a link or a mention. GitHub
/// looks for mentions, references and addresses after it has decoded escapes and entities; an empty comment parts
/// them, and is not copied with the text.
pub fn markdown(text: &str) -> String {
    let text = printable(text);
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '@' | '#' => out.extend([letter].into_iter().chain("<!-- -->".chars())),
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '~' | '$' => out.extend(['\\', letter]),
            _ => out.push(letter),
        }
    }
    out.replace("://", ":<!-- -->//").replace("www.", "www<!-- -->.")
}

/// True if a terminal interprets the character instead of showing it: control characters (C0, DEL, C1), line
/// and paragraph separators, and directional marks and controls.
fn controls(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text under construction, with a maximum number of columns. Text written to it cannot control a terminal:
/// the only exceptions are line breaks, which are never from names because these are escaped before, and the
/// output of [`Page::paint`].
#[derive(Debug)]
pub struct Page {
    text: String,
    columns: usize,
    color: bool,
}

impl Page {
    /// An empty page.
    pub fn new(style: Style) -> Self {
        Self { text: String::new(), columns: style.width.clamp(NARROWEST, WIDEST), color: style.color }
    }

    /// Writes part of a line with emphasis, if colors are used.
    pub fn paint(&mut self, paint: Paint, text: &str) {
        let painted = self.color && paint != Paint::Plain;
        if painted {
            self.text.push_str(paint.code());
        }
        self.text.push_str(&printable(text));
        if painted {
            self.text.push_str("\x1b[0m");
        }
    }

    /// Columns of a line.
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// The finished text.
    pub fn into_text(self) -> String {
        self.text
    }
}

impl Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                self.text.push('\n');
            }
            self.text.push_str(&printable(line));
        }
        Ok(())
    }
}

/// Writes `lead` and `text`, broken at spaces; lines after the first are indented by the width of `lead`, at
/// least by two columns and at most by a third of the line.
pub fn wrapped(out: &mut Page, lead: &str, text: &str) {
    wrapped_as(out, Paint::Plain, lead, text);
}

/// Like [`wrapped`], with every line painted.
pub fn wrapped_as(out: &mut Page, paint: Paint, lead: &str, text: &str) {
    let columns = out.columns();
    // Keep a number and its percent sign together.
    let text = text.replace(" %", "\u{a0}%");
    for line in lines(lead, lead.chars().count().clamp(2, columns / 3), &text, columns) {
        out.paint(paint, &line.replace('\u{a0}', " "));
        let _ = writeln!(out);
    }
}

/// Breaks `lead` and `text` at ASCII spaces into lines of `columns` characters; all but the first are
/// indented. A longer word gets a separate line.
pub fn lines(lead: &str, indent: usize, text: &str, columns: usize) -> Vec<String> {
    let (mut lines, mut line, mut is_empty) = (Vec::new(), lead.to_owned(), true);
    for word in text.split_ascii_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > columns {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines
}

/// Writes `lead` and the items with ` | ` between them, broken only between items.
pub(crate) fn listed(out: &mut Page, lead: &str, items: &[(Paint, String)]) {
    let columns = out.columns();
    let mut used = lead.chars().count();
    out.paint(Paint::Plain, lead);
    for (number, (paint, item)) in items.iter().enumerate() {
        let length = item.chars().count();
        // The next separator must fit, too.
        let after = if number + 1 < items.len() { 2 } else { 0 };
        if number > 0 && used + 3 + length + after > columns {
            let _ = write!(out, " |\n    ");
            used = 4;
        } else if number > 0 {
            let _ = write!(out, " | ");
            used += 3;
        }
        out.paint(*paint, item);
        used += length;
    }
    let _ = writeln!(out);
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
    fn lines_cannot_control_the_terminal() {
        assert_eq!(printable_lines("bottleneck:\n  \x1b]0;x\x07\tfine\n"), "bottleneck:\n  \\x1b]0;x\\x07\\tfine\n");
    }

    #[test]
    fn names_cannot_become_markup() {
        for (name, wanted) in [
            ("f<int>(a*)|`x` ~y~ $z$\\\n", "f&lt;int>(a\\*)\\|\\`x\\` \\~y\\~ \\$z\\$\\\\\\\\n"),
            ("![y](z) &#64;me &lt;b>", "!\\[y\\](z) &amp;#<!-- -->64;me &amp;lt;b>"),
            ("@me a@b.c {lambda()#1}", "@<!-- -->me a@<!-- -->b.c {lambda()#<!-- -->1}"),
            ("https://x www.y.z a::b", "https:<!-- -->//x www<!-- -->.y.z a::b"),
        ] {
            assert_eq!(markdown(name), wanted);
        }
    }

    #[test]
    fn json_that_cannot_control_the_terminal_means_the_same() {
        let json = "{\n\t\"name\": \"\\u001b]0;x\\u0007 \u{9b}31m\u{7f}\u{202e}\u{e9}\"}";
        let wanted = "{\n\t\"name\": \"\\u001b]0;x\\u0007 \\u009b31m\\u007f\\u202e\u{e9}\"}";
        assert_eq!(printable_json(json), wanted);
        assert!(matches!(printable_json(wanted), Cow::Borrowed(_)));
    }

    #[test]
    fn numbers_and_words_agree() {
        assert_eq!([1, 2].map(|count| counted(count, "copy")), ["1 copy", "2 copies"]);
        assert_eq!([1, 2].map(|count| counted(count, "launch")), ["1 launch", "2 launches"]);
        assert_eq!([0.0, 0.004, 0.0096, 0.617, 1.0].map(percent), ["0 %", "less than 1 %", "1 %", "62 %", "100 %"]);
        assert_eq!([0.000_5, 0.002, 16.94].map(rate), ["500.0 kB/s", "2.0 MB/s", "16.9 GB/s"]);
        assert_eq!(part_of(3_000_000, 4_900_000), "3.0 of 4.9 ms");
        assert_eq!(part_of(300_000, 4_900_000), "300.0 us of 4.9 ms");
    }

    #[test]
    fn color_is_added_only_where_it_is_wanted_and_takes_no_columns() {
        let items =
            [(Paint::Yellow, "waiting for launches 62 %".to_owned()), (Paint::Green, "computing 38 %".to_owned())];
        let text = |color| {
            let mut out = Page::new(Style { width: 40, color });
            wrapped_as(&mut out, Paint::Bold, "", "Bottleneck: kernel launches.");
            listed(&mut out, "GPU 0: ", &items);
            out.into_text()
        };
        assert_eq!(
            text(false),
            "Bottleneck: kernel launches.\nGPU 0: waiting for launches 62 % |\n    computing 38 %\n"
        );
        assert!(text(true).starts_with("\x1b[1mBottleneck: kernel launches.\x1b[0m\nGPU 0: \x1b[33mwaiting"));
        let plain =
            ["\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[0m"].iter().fold(text(true), |text, code| text.replace(code, ""));
        assert_eq!(plain, text(false));
    }

    #[test]
    fn shortening_counts_characters() {
        assert_eq!(shortened("gemm", 4), "gemm");
        assert_eq!(shortened("g\u{e9}mm_x", 4), "g\u{e9}m~");
    }

    #[test]
    fn a_page_obeys_no_name() {
        let mut out = Page::new(Style { width: 80, color: false });
        let name = "a\x1b[2Jb";
        let _ = writeln!(out, "{name}");
        wrapped(&mut out, "- ", "x\ny\x07");
        assert_eq!(out.into_text(), "a\\x1b[2Jb\n- x y\\x07\n");
        assert_eq!(shortened("a\nb", 9), "a\\nb", "a line break forges no row");
    }

    #[test]
    fn no_control_character_reaches_a_terminal() {
        assert!(matches!(printable("void gemm<1, 2>(float*) \u{e9}\u{4e2d}"), Cow::Borrowed(_)));
        assert_eq!(printable("a\x1b]0;x\x07b\n\tc\u{9b}1m\x7f\0"), "a\\x1b]0;x\\x07b\\n\\tc\\x9b1m\\x7f\\x00");
        assert_eq!(printable("x\u{202e}y\u{2066}\u{2028}"), "x\\u{202e}y\\u{2066}\\u{2028}");
    }

    #[test]
    fn lines_are_broken_and_indented() {
        for columns in [60, 80, 100, 140] {
            let mut out = Page::new(Style { width: columns, color: false });
            wrapped(&mut out, "note: ", &"word ".repeat(30));
            let text = out.into_text();
            assert!(text.lines().all(|line| line.len() <= columns), "{text}");
            assert!(text.lines().skip(1).all(|line| line.starts_with("      word")), "{text}");
            assert!(text.lines().next().unwrap().len() > columns - 5, "{text}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds: u64| date(seconds * 1_000_000_000);
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(951_782_399), "2000-02-28 23:59");
        assert_eq!(at(951_782_400), "2000-02-29 00:00");
        assert_eq!(at(951_868_800), "2000-03-01 00:00");
        assert_eq!(at(1_767_225_599), "2025-12-31 23:59");
        assert_eq!(date(u64::MAX), "2554-07-21 23:34");
    }
}
