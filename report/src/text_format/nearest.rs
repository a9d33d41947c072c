//! Edit distance between words, for suggestions.

/// Number of characters to insert, delete or replace to turn one word into the other.
pub fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, letter) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_inserted_left_out_and_replaced() {
        for (from, to, wanted) in [
            ("dispatch", "dispatcher", 2),
            ("gaps", "gap", 1),
            ("kern", "kerm", 1),
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
        ] {
            assert_eq!((edits(from, to), edits(to, from)), (wanted, wanted), "{from} {to}");
        }
    }
}
