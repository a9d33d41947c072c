//! The terminal that standard output goes to.

use console::Term;

/// Columns where standard output is no terminal: what is piped or kept looks the same everywhere.
pub const USUAL_COLUMNS: usize = 100;
/// Longer lines of prose are hard to read.
const MOST_PROSE_COLUMNS: usize = 100;

/// Characters of a line; `None` when standard output is no terminal, or one that does not say.
pub fn columns() -> Option<u16> {
    Term::stdout().size_checked().map(|(_, columns)| columns).filter(|&columns| columns > 0)
}

/// Characters of a line of text on standard output.
pub fn width() -> usize {
    columns().map_or(USUAL_COLUMNS, usize::from)
}

/// A paragraph in lines of standard output, each behind `indent` spaces.
pub fn wrapped(paragraph: &str, indent: usize) -> String {
    within(paragraph, indent, width().min(MOST_PROSE_COLUMNS))
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
