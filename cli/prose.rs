//! Prose on standard output: paragraphs in lines of the terminal.

use crate::terminal;

/// Where standard output is no terminal, and the most on one: longer lines are hard to read.
const COLUMNS: usize = 100;

/// A paragraph in lines of standard output, each behind `indent` spaces.
pub fn wrapped(paragraph: &str, indent: usize) -> String {
    within(paragraph, indent, terminal::columns().map_or(COLUMNS, usize::from).min(COLUMNS))
}

fn within(paragraph: &str, indent: usize, width: usize) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let letters = word.chars().count();
        if column > 0 && column + 1 + letters > width {
            text.push('\n');
            column = 0;
        }
        if column == 0 {
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += letters;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words() {
        assert_eq!(within("one two  three\nfour", 2, 11), "  one two\n  three\n  four\n");
        assert_eq!(within("incomprehensibilities", 2, 11), "  incomprehensibilities\n");
    }
}
