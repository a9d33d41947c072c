//! Prose on standard output: paragraphs in lines of the terminal.
//!
//! Sources have lines of 120 columns, terminals have lines of any length: paragraphs are put together before they are
//! divided anew.

use gpuwhy_report::text_format::lines;

use crate::terminal;

/// Where standard output is no terminal, and the most on one: longer lines are hard to read.
const COLUMNS: usize = 100;

/// A paragraph in lines of standard output, each behind `indent` spaces.
pub fn wrapped(paragraph: &str, indent: usize) -> String {
    within(paragraph, indent, terminal::columns().map_or(COLUMNS, usize::from).min(COLUMNS))
}

/// `text` with each paragraph on one line, for who breaks lines anew. Indented lines (lists, examples) stay as they
/// are.
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
