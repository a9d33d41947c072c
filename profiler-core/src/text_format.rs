//! What every text for a terminal is made with: durations, lines of a bounded width, names cut to fit, names that
//! cannot control the terminal.
//!
//! Plain ASCII and no color, since nobody here knows whether there is a terminal. What the texts say is decided in
//! `report` and `diff`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write};

use crate::attribution::statistics::CopyPath;

/// Columns of a line where nothing is known of a terminal.
pub(crate) const WIDTH: usize = 100;
/// Columns that a text is made for at least and at most: longer lines are hard to read.
const NARROWEST: usize = 40;
const WIDEST: usize = 160;

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

/// Three or four significant digits and a unit, powers of ten.
pub(crate) fn bytes(count: u64) -> String {
    let value = count as f64;
    match count {
        0..1_000 => format!("{count} B"),
        1_000..999_950 => format!("{:.1} kB", value / 1e3),
        999_950..999_950_000 => format!("{:.1} MB", value / 1e6),
        999_950_000..999_950_000_000 => format!("{:.1} GB", value / 1e9),
        _ => format!("{:.2} TB", value / 1e12),
    }
}

/// `count` and the word for it, in the plural unless there is one.
pub(crate) fn counted(count: u64, what: &str) -> String {
    let ending = match what.ends_with("ch") {
        _ if count == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{count} {what}{ending}")
}

/// Direction and memory of a copy.
pub(crate) fn path_name(path: CopyPath) -> String {
    format!("{} ({} to {})", path.kind.name(), path.source.name(), path.destination.name())
}

/// The first `width` characters, the last of them `~` when something is missing.
pub(crate) fn shortened(name: &str, width: usize) -> String {
    let name = printable(name);
    if name.chars().count() <= width {
        return name.into_owned();
    }
    name.chars().take(width.saturating_sub(1)).chain(['~']).collect()
}

/// The names of kernels in at most `width` characters each: of those that are too long, the begin, and what comes from
/// where they differ from the one most like them.
pub(crate) fn short_names<'a>(names: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let plain: Vec<String> = names.map(|name| without_namespaces(&printable(name), width)).collect();
    // The one most like a name is beside it in order.
    let mut order: Vec<&String> = plain.iter().collect();
    order.sort_unstable();
    order.dedup();
    let mut alike: HashMap<&String, usize> = HashMap::new();
    for pair in order.windows(2) {
        let same = pair[0].chars().zip(pair[1].chars()).take_while(|(a, b)| a == b).count();
        for name in pair {
            let most = alike.entry(name).or_default();
            *most = same.max(*most);
        }
    }
    plain.iter().map(|name| cut_before(name, alike.get(name).copied().unwrap_or(0), width)).collect()
}

/// As [`short_names`], of one name.
pub(crate) fn short_name(name: &str, width: usize) -> String {
    cut_in_the_middle(&without_namespaces(&printable(name), width), width)
}

/// A name of C++ without what says least, when it is longer than `width`: return type, parameters, namespaces.
fn without_namespaces(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let name = name.strip_prefix("void ").unwrap_or(name).replace("(anonymous namespace)::", "");
    let mut short = String::with_capacity(name.len());
    for part in without_parameters(&name).split_inclusive("::") {
        short.push_str(part);
        if let Some(before) = short.strip_suffix("::") {
            let kept = before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').len();
            if kept < before.len() {
                short.truncate(kept);
            }
        }
    }
    short
}

fn without_parameters(name: &str) -> &str {
    let whole = name.strip_suffix(" const").unwrap_or(name);
    let mut depth = 0;
    for (at, character) in whole.char_indices().rev() {
        match character {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at > 0 && character == '(' { &whole[..at] } else { name };
        }
    }
    name
}

/// The begin and the end, more of the end: names of kernels of one library begin alike.
fn cut_in_the_middle(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let head = width.saturating_sub(1) / 3;
    let tail = width.saturating_sub(1) - head;
    name.chars().take(head).chain(['~']).chain(name.chars().skip(length - tail)).collect()
}

/// The begin, and what comes from the word on in which character `from` is; as [`cut_in_the_middle`] where `from` is
/// shown either way.
fn cut_before(name: &str, from: usize, width: usize) -> String {
    let length = name.chars().count();
    let head = width.saturating_sub(1) / 3;
    let tail = width.saturating_sub(1) - head;
    if length <= width || from < head || from >= length - tail {
        return cut_in_the_middle(name, width);
    }
    let before: Vec<char> = name.chars().take(from).collect();
    let word = before.iter().rposition(|c| !c.is_alphanumeric()).map_or(from, |at| at + 1);
    let from = word.max(from.saturating_sub(tail / 2)).min(length - tail);
    let rest: String = name.chars().skip(from).collect();
    let begin: String = name.chars().take(head).collect();
    format!("{begin}~{}", shortened(&rest, tail))
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

/// Whether a terminal does something else with it than show it: control characters (C0, DEL, C1), separators of lines
/// and paragraphs, marks and controls of the direction of text.
fn controls(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text that is being written, and how many columns it may take. Whatever is written to it can control no terminal;
/// only line breaks are let through, since they are ours where names are escaped before.
pub(crate) struct Page {
    text: String,
    columns: usize,
}

impl Page {
    pub(crate) fn new(columns: usize) -> Self {
        Self { text: String::new(), columns: columns.clamp(NARROWEST, WIDEST) }
    }

    /// Columns of a line.
    pub(crate) const fn columns(&self) -> usize {
        self.columns
    }

    /// What was written.
    pub(crate) fn into_text(self) -> String {
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

/// Writes `lead` and `text`, broken at spaces; what follows the first line is indented by the width of `lead`, at least
/// by two and at most by a third of the line.
pub(crate) fn wrapped(out: &mut Page, lead: &str, text: &str) {
    let columns = out.columns();
    let mut line = lead.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > columns {
            let _ = writeln!(out, "{line}");
            line = " ".repeat(lead.chars().count().clamp(2, columns / 3));
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
    fn kernels_are_told_apart_by_what_differs() {
        let of = |functor: &str| {
            let functor = format!("at::native::{functor}<float>");
            format!("void at::native::vectorized_kernel<4, {functor}, std::array<char*, 2ul> >(int, {functor})")
        };
        assert_eq!(
            short_name(&of("FillFunctor"), 90),
            "vectorized_kernel<4, FillFunctor<float>, array<char*, 2ul> >",
            "no more is left out than must be"
        );
        let flash =
            |what: &str| format!("cudnn_generated_fort_native_sdpa_sm90_flash_{what}_wgmma_f16_knob_3_64x64x128");
        for [a, b] in [[of("FillFunctor"), of("AddFunctor")], [flash("fprop"), flash("bprop")]] {
            for width in [24, 36, 44, 56] {
                let short = short_names([a.as_str(), b.as_str(), a.as_str()].into_iter(), width);
                assert!(short.iter().all(|name| name.chars().count() <= width), "{short:?}");
                assert!(short[0] != short[1], "{short:?}");
            }
        }
        let names = [flash("fprop"), flash("bprop")];
        let short = short_names(names.iter().map(String::as_str), 44);
        assert_eq!(short[1], "cudnn_generate~bprop_wgmma_f16_knob_3_64x64~", "a word is not cut where it differs");
        assert_eq!(short_name("run<int>(int)", 8), "run<int>", "parameters go first");
        assert_eq!(short_name("gemm", 4), "gemm");
    }

    #[test]
    fn a_page_obeys_no_name() {
        let mut out = Page::new(80);
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
            let mut out = Page::new(columns);
            wrapped(&mut out, "note: ", &"word ".repeat(30));
            let text = out.into_text();
            assert!(text.lines().all(|line| line.len() <= columns), "{text}");
            assert!(text.lines().skip(1).all(|line| line.starts_with("      word")), "{text}");
            assert!(text.lines().next().unwrap().len() > columns - 5, "{text}");
        }
    }
}
