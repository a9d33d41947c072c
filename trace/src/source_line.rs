//! Lines of the program's source code: those that a report can name, and the lines that say what they do.
//!
//! A line alone says little: `n(x[i:i + 1])` is slow because of the loop around it. So a trace has, of each named
//! line, the whole statement, the statements around it, the last assignments of its names, and their imports. All of
//! that is found by indentation and words, without a parser, because it runs in the traced program.

use std::collections::BTreeSet;

use crate::record::NameId;

/// Maximum number of named lines whose text a trace has.
pub const NAMED_LINES: usize = 16;
/// Maximum bytes of the text of all lines of a trace.
pub const TEXT_LIMIT: usize = 64 << 10;
/// Maximum size of a file that is read for its lines, bytes.
pub const FILE_LIMIT: u64 = 10 << 20;
/// Maximum letters of a line; the rest is cut off.
const WIDEST: usize = 400;
/// Maximum number of lines of one statement, before and after the named one.
const STATEMENT: usize = 12;
/// Maximum number of statements around a line.
const AROUND: usize = 12;
/// Maximum number of names whose assignments are searched, and how many lines back.
const NAMES: usize = 24;
const BACK: usize = 400;
/// Maximum number of lines that use what the named one assigns, and how far they may be from it.
const USES: usize = 3;
const AHEAD: usize = 30;
/// File name extensions of source code.
const ENDINGS: [&str; 16] =
    ["py", "pyx", "pyi", "c", "h", "cc", "cpp", "cxx", "hh", "hpp", "hxx", "cu", "cuh", "rs", "jl", "inl"];

/// A line of source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// Name of the file, as in stack frames.
    pub file: NameId,
    /// Its number, from 1.
    pub line: u32,
    /// Its text with its indentation, without the line break.
    pub text: String,
}

/// True if the name of a file is that of source code, and no made-up one such as `<stdin>`.
#[must_use]
pub fn is_source(file: &str) -> bool {
    let ending = file.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map_or("", |(_, ending)| ending);
    !file.starts_with('<') && ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known))
}

/// The text of a line as a trace keeps it: at most 400 characters, and nothing for a line that is not there.
#[must_use]
pub fn kept(text: &str) -> String {
    text.trim_end().chars().take(WIDEST).collect()
}

/// Numbers, from 1, of the lines that say what line `named` of `rows` does, that line among them. Empty if there is no
/// such line.
#[must_use]
pub fn needed(rows: &[&str], named: u32) -> BTreeSet<u32> {
    let Some(at) = (named as usize).checked_sub(1).filter(|&at| at < rows.len()) else { return BTreeSet::new() };
    let text = Text { rows };
    let own = text.statement(at);
    let mut wanted: BTreeSet<usize> = own.clone().collect();
    let (around, function) = text.around(own.start);
    wanted.extend(around.iter().copied());
    let mut names = BTreeSet::new();
    for &row in &wanted {
        names.extend(words(rows[row]).filter(|word| !word.is_attribute).map(|word| word.text));
    }
    let mut assigned: Vec<usize> = Vec::new();
    for name in names.iter().take(NAMES) {
        let before = own.start.saturating_sub(BACK)..own.start;
        let found = before.rev().find(|&row| assigns(rows[row], name));
        assigned.extend(found.into_iter().flat_map(|row| text.statement(row)));
    }
    wanted.extend(assigned);
    wanted.extend(text.uses(own.end, &rows[own], function));
    let names: BTreeSet<&str> = wanted.iter().flat_map(|&row| words(rows[row])).map(|word| word.text).collect();
    let imports = (0..rows.len()).filter(|&row| {
        let is_import = ["import ", "from "].iter().any(|start| rows[row].trim_start().starts_with(start));
        is_import && words(rows[row]).skip(1).any(|word| names.contains(word.text))
    });
    wanted.extend(imports.take(NAMES));
    wanted.into_iter().map(|row| row as u32 + 1).collect()
}

struct Text<'a> {
    rows: &'a [&'a str],
}

impl Text<'_> {
    /// The lines of the statement that line `at` is a part of, by its brackets.
    fn statement(&self, at: usize) -> std::ops::Range<usize> {
        let (mut open, mut most, mut start) = (0, 0, at);
        for row in (at.saturating_sub(STATEMENT)..at).rev() {
            open += brackets(self.rows[row]);
            if open > most {
                (most, start) = (open, row);
            }
        }
        let mut open: i32 = (start..=at).map(|row| brackets(self.rows[row])).sum();
        let mut end = at + 1;
        while open > 0 && end < self.rows.len() && end <= at + STATEMENT {
            open += brackets(self.rows[end]);
            end += 1;
        }
        start..end
    }

    /// Lines of the statements around line `at` up to its function, with decorators; and the indentation of that
    /// function, if it is in one.
    fn around(&self, at: usize) -> (Vec<usize>, Option<usize>) {
        let (mut found, mut depth) = (Vec::new(), indentation(self.rows[at]));
        for row in (0..at).rev() {
            let text = self.rows[row];
            let here = indentation(text);
            if is_blank(text) || here >= depth {
                continue;
            }
            // The end of a head in several lines.
            let head = self.statement(row).start;
            let word = words(self.rows[head]).next().map_or("", |word| word.text);
            depth = here;
            if matches!(word, "for" | "while" | "with" | "async" | "def" | "if" | "elif") {
                found.push(head);
            }
            if word == "def" || word == "async" && self.rows[head].contains("def ") {
                let decorators = (0..head).rev().take(3);
                found.extend(decorators.take_while(|&row| self.rows[row].trim_start().starts_with('@')));
                return (found, Some(here));
            }
            if here == 0 || found.len() >= AROUND {
                break;
            }
        }
        (found, None)
    }

    /// Lines from `from` on that use what the statement `own` assigns, before its function ends.
    fn uses(&self, from: usize, own: &[&str], function: Option<usize>) -> Vec<usize> {
        let Some(first) = own.first() else { return Vec::new() };
        let targets: Vec<&str> = first.split(';').flat_map(targets).collect();
        let ahead = (from..self.rows.len()).take(AHEAD);
        let inside = ahead.take_while(|&row| {
            let text = self.rows[row];
            is_blank(text) || function.is_none_or(|function| indentation(text) > function)
        });
        let uses = |row: &usize| words(self.rows[*row]).any(|word| !word.is_attribute && targets.contains(&word.text));
        inside.filter(uses).take(USES).collect()
    }
}

fn is_blank(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with('#')
}

fn indentation(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// Opened less closed brackets of a line, outside of strings and comments in it.
fn brackets(text: &str) -> i32 {
    let (mut open, mut quote, mut escaped) = (0, None, false);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(begun), _) if letter == begun => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '#') => break,
            (None, '(' | '[' | '{') => open += 1,
            (None, ')' | ']' | '}') => open -= 1,
            _ => {}
        }
    }
    open
}

/// A name in a line.
struct Word<'a> {
    text: &'a str,
    /// It follows a period.
    is_attribute: bool,
}

fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.find(is_part)?;
        let from = &rest[start..];
        let end = from.find(|letter| !is_part(letter)).unwrap_or(from.len());
        let is_attribute = rest[..start].trim_end().ends_with('.');
        rest = &from[end..];
        Some(Word { text: &from[..end], is_attribute })
    })
    .filter(|word| !word.text.starts_with(|letter: char| letter.is_ascii_digit()))
}

/// Names that a statement assigns: `a` and `b` of `a, b = c`.
fn targets(statement: &str) -> impl Iterator<Item = &str> {
    let equals = statement.match_indices('=').find(|&(at, _)| {
        let around = [statement[..at].chars().next_back(), statement[at + 1..].chars().next()];
        around[1] != Some('=') && !matches!(around[0], Some('=' | '!' | '<' | '>' | ':'))
    });
    let left = equals.map_or("", |(at, _)| &statement[..at]);
    let left = if left.contains(['(', '{']) { "" } else { left };
    left.split(',').map(|name| name.split([':', ' ', '[']).find(|part| !part.is_empty()).unwrap_or_default())
}

/// True if a line assigns `name`, in any of its statements.
fn assigns(text: &str, name: &str) -> bool {
    // Most lines do not even contain it.
    text.contains(name) && text.split([';', ':']).flat_map(targets).any(|target| target == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, named: u32) -> Vec<u32> {
        needed(&text.lines().collect::<Vec<_>>(), named).into_iter().collect()
    }

    #[test]
    fn a_line_has_what_says_what_it_does() {
        let text = "\
import torch
import numpy as np
from torch import nn
net = nn.Linear(8, 8); x = torch.randn(64, 8)

@torch.no_grad()
def run(
    steps,
):
    unused = 3
    while True:
        # One by one.
        for i in range(64):
            if i == 3:
                print(i)
            y = net(x[i:i + 1]).relu(
                ).sum(
            )
        print(y)
        yield
z = y
";
        // Not the comment, numpy, the inner `print`, nor what follows the function.
        assert_eq!(lines(text, 17), [1, 3, 4, 6, 7, 11, 13, 16, 17, 18, 19]);
        assert_eq!(lines(text, 16), lines(text, 17));
        assert_eq!(lines(text, 4), [1, 3, 4, 16], "and what uses it");
        assert!(lines(text, 99).is_empty() && lines(text, 0).is_empty() && lines("", 1).is_empty());
    }

    #[test]
    fn hostile_text_ends() {
        let deep: Vec<String> = (0..300).rev().map(|depth| format!("{}for ((((", " ".repeat(depth))).collect();
        let rows: Vec<&str> = deep.iter().map(String::as_str).collect();
        for named in [1, 150, 300] {
            assert!(needed(&rows, named).contains(&named));
        }
        for text in ["=", ";;=;:=", "é = ü\n\u{202e}é(", "\t\t\"\\", "'''\n(((\n'''\nx = 1", ")))\n]]]\nx"] {
            for named in 1..=4 {
                let _ = lines(text, named);
            }
        }
        assert_eq!(kept(&"ü".repeat(1_000)).chars().count(), WIDEST);
    }

    #[test]
    fn source_is_told_by_its_name() {
        for (file, is) in [("/a/b.py", true), ("b.CU", true), ("<stdin>", false), ("/a/.py", true), ("/a.py/b", false)]
        {
            assert_eq!(is_source(file), is, "{file}");
        }
        assert!(!is_source("/etc/passwd") && !is_source("<frozen x>.py") && !is_source(""));
    }
}
