//! Prose on standard output: paragraphs wrapped to the width of the terminal.
//!
//! Sources have lines of 120 columns, terminals any width, so paragraphs are joined before they are wrapped
//! again.

use gpuwhy_report::text_format::lines;

use crate::terminal;

/// Width when standard output is not a terminal, and maximum on a terminal: longer lines are hard to read.
const COLUMNS: usize = 100;

/// Wraps a paragraph for standard output, each line indented by `indent` spaces.
pub fn wrapped(paragraph: &str, indent: usize) -> String {
    within(paragraph, indent, terminal::columns().map_or(COLUMNS, usize::from).min(COLUMNS))
}

/// `text` with each paragraph joined to one line, for wrapping elsewhere. Indented lines (lists, examples)
/// stay unchanged.
pub fn unwrapped(text: &str) -> String {
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match lines.last_mut().filter(|last| is_prose(last) && is_prose(line)) {
            Some(last) => {
                last.push(' ');
                last.push_str(line);
            }
            None => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

fn within(paragraph: &str, indent: usize, width: usize) -> String {
    lines(&" ".repeat(indent), indent, paragraph, width).join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_become_lines_and_lists_stay() {
        let text = "One\nparagraph.\n\nAnother.\n\nLIST:\n  a  first\n     goes on\n  b  second";
        assert_eq!(unwrapped(text), text.replacen("One\np", "One p", 1));
        assert_eq!(unwrapped(""), "");
    }

    #[test]
    fn lines_end_between_words() {
        assert_eq!(within("one two  three\nfour", 2, 11), "  one two\n  three\n  four\n");
        assert_eq!(within("incomprehensibilities", 2, 11), "  incomprehensibilities\n");
    }
}
