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
/// Maximum number of lines, from the begin of a file, in which imports are searched.
const IMPORTS: usize = 1_000;
/// Words of lines that decide, from anywhere in a file, how others run; how many lines from the begin of the file are
/// searched for them, and how many are kept.
const DECIDES: [&str; 9] = [
    "DataLoader(",
    "no_grad",
    "inference_mode",
    "set_grad_enabled",
    "requires_grad",
    "backward(",
    "use_deterministic_algorithms",
    "fill_uninitialized_memory",
    "detect_anomaly",
];
const SEARCHED: usize = 4_000;
const DECIDING: usize = 12;
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

/// The text of a line as a trace keeps it: at most 400 characters, and nothing behind a line break.
#[must_use]
pub fn kept(text: &str) -> String {
    let first = text.split(['\n', '\r']).next().unwrap_or_default();
    first.trim_end().chars().take(WIDEST).collect()
}

/// A line to be kept: the index of the place for which it is, its number, and its text.
pub type Kept = (usize, u32, String);

/// The lines that say what the first [`NAMED_LINES`] of `places` do, a file and a line each, and at most
/// [`TEXT_LIMIT`] of them. `text` reads a file, and `masked` hides the secrets in a line.
pub fn collect(
    places: &[(impl AsRef<str>, u32)],
    mut text: impl FnMut(&str) -> Option<String>,
    mut masked: impl FnMut(u32, &str) -> String,
) -> Vec<Kept> {
    let mut texts: Vec<(&str, Option<String>)> = Vec::new();
    let mut named: Vec<(usize, usize)> = Vec::new();
    for (place, (file, line)) in places.iter().enumerate() {
        if named.len() == NAMED_LINES {
            break;
        }
        let file = file.as_ref();
        let known = texts.iter().position(|(other, _)| *other == file).unwrap_or_else(|| {
            texts.push((file, text(file)));
            texts.len() - 1
        });
        let last = (*line as usize).checked_sub(1);
        let is_there = |text: &String| last.is_some_and(|line| text.lines().nth(line).is_some());
        named.extend(texts[known].1.as_ref().filter(|text| is_there(text)).map(|_| (place, known)));
    }
    let sources: Vec<Source<'_>> =
        texts.iter().map(|(_, text)| Source::of(text.as_deref().unwrap_or_default())).collect();
    let (mut found, mut seen, mut room) = (Vec::new(), BTreeSet::new(), TEXT_LIMIT);
    for (place, of) in named {
        let source = &sources[of];
        for line in source.needed(places[place].1) {
            let row = line as usize - 1;
            if source.in_texts[row] || !seen.insert((of, line)) {
                continue;
            }
            let text = masked(line, &kept(source.rows[row]));
            let Some(left) = room.checked_sub(text.len()) else { return found };
            room = left;
            found.push((place, line, text));
        }
    }
    found
}

/// A file of source code, in rows.
#[derive(Debug)]
pub struct Source<'a> {
    rows: Vec<&'a str>,
    /// True for each row that begins within a text of several rows: keys and documents, but no code.
    in_texts: Vec<bool>,
    /// Rows with words of [`DECIDES`].
    deciding: Vec<usize>,
}

impl<'a> Source<'a> {
    /// The file with this text.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        let rows: Vec<&str> = text.lines().collect();
        let in_texts = in_texts(&rows);
        let decides = |row: &usize| {
            let text = rows[*row].trim_start();
            !in_texts[*row] && !text.starts_with('#') && DECIDES.iter().any(|word| text.contains(word))
        };
        let deciding = (0..rows.len().min(SEARCHED)).filter(decides).take(DECIDING).collect();
        Self { rows, in_texts, deciding }
    }

    /// Numbers, from 1, of the lines that say what line `named` does, that line among them. Empty if there is no such
    /// line.
    #[must_use]
    pub fn needed(&self, named: u32) -> BTreeSet<u32> {
        let rows = &self.rows;
        let Some(at) = (named as usize).checked_sub(1).filter(|&at| at < rows.len()) else { return BTreeSet::new() };
        let own = self.statement(at);
        let before = own.start.saturating_sub(BACK)..own.start;
        let scopes = self.scopes(before.start..(own.end + AHEAD).min(rows.len()));
        let mut wanted: BTreeSet<usize> = own.clone().collect();
        wanted.extend(self.around(own.start));
        let mut names = BTreeSet::new();
        for &row in &wanted {
            names.extend(words(rows[row]).filter(|word| !word.is_attribute).map(|word| word.text));
        }
        let mut assigned: Vec<usize> = Vec::new();
        for name in names.iter().take(NAMES) {
            let sets = |row: &usize| assigns(rows[*row], name) && scopes.sees(own.start, *row);
            let found = before.clone().rev().find(sets);
            assigned.extend(found.into_iter().flat_map(|row| self.statement(row)));
        }
        wanted.extend(assigned);
        for &row in &self.deciding {
            wanted.extend(self.statement(row));
            wanted.extend(self.around(row));
            // The function of a decorator.
            let decorates = |row: &usize| rows[*row].trim_start().starts_with('@');
            let decorators = (row..rows.len()).take(3).take_while(decorates);
            wanted.extend(decorators.last().map(|last| last + 1).filter(|&row| row < rows.len()));
        }
        wanted.extend(self.uses(&own, &scopes));
        let names: BTreeSet<&str> = wanted.iter().flat_map(|&row| words(rows[row])).map(|word| word.text).collect();
        let imports = (0..rows.len().min(IMPORTS)).chain(before).filter(|&row| {
            let is_import = ["import ", "from "].iter().any(|start| rows[row].trim_start().starts_with(start));
            is_import && words(rows[row]).skip(1).any(|word| names.contains(word.text))
        });
        wanted.extend(imports.take(NAMES));
        wanted.into_iter().map(|row| row as u32 + 1).collect()
    }

    /// The functions around the lines of `range`.
    fn scopes(&self, range: std::ops::Range<usize>) -> Scopes {
        let is_code = |row: &usize| !self.is_blank(*row) && !self.rows[*row].trim_start().starts_with([')', ']', '}']);
        // From there on, all functions around a line are known.
        let first = (0..=range.start).rev().find(|row| is_code(row) && indentation(self.rows[*row]) == 0).unwrap_or(0);
        let (mut open, mut around) = (Vec::<(usize, usize)>::new(), Vec::new());
        for row in first..range.end {
            let (is_code, depth) = (is_code(&row), indentation(self.rows[row]));
            open.retain(|&(of, _)| !is_code || of < depth);
            around.push(open.last().map(|&(_, row)| row));
            if is_code && is_function(self.rows[row]) {
                open.push((depth, row));
            }
        }
        Scopes { first, around }
    }

    fn is_blank(&self, row: usize) -> bool {
        let text = self.rows[row].trim_start();
        text.is_empty() || text.starts_with('#') || self.in_texts[row]
    }

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

    /// Lines of the statements around line `at` up to its function, with decorators.
    fn around(&self, at: usize) -> Vec<usize> {
        let (mut found, mut depth) = (Vec::new(), indentation(self.rows[at]));
        for row in (0..at).rev() {
            let text = self.rows[row];
            let here = indentation(text);
            if self.is_blank(row) || here >= depth {
                continue;
            }
            // The end of a head in several lines.
            let head = self.statement(row).start;
            let word = words(self.rows[head]).next().map_or("", |word| word.text);
            depth = here;
            if matches!(word, "for" | "while" | "with" | "async" | "def" | "if" | "elif") {
                found.push(head);
            }
            if is_function(self.rows[head]) {
                let decorators = (0..head).rev().take(3);
                found.extend(decorators.take_while(|&row| self.rows[row].trim_start().starts_with('@')));
                break;
            }
            if here == 0 || found.len() >= AROUND {
                break;
            }
        }
        found
    }

    /// Lines after the statement `own` that use what it assigns, in its function or one in that.
    fn uses(&self, own: &std::ops::Range<usize>, scopes: &Scopes) -> Vec<usize> {
        let targets: Vec<&str> = self.rows[own.start].split(';').flat_map(targets).collect();
        let ahead = (own.end..self.rows.len()).take(AHEAD).filter(|&row| scopes.sees(row, own.start));
        let uses = |row: &usize| words(self.rows[*row]).any(|word| !word.is_attribute && targets.contains(&word.text));
        ahead.filter(uses).take(USES).collect()
    }
}

/// The functions around the lines from `first` on: each by its own line, `None` outside of functions.
struct Scopes {
    first: usize,
    around: Vec<Option<usize>>,
}

impl Scopes {
    fn of(&self, row: usize) -> Option<usize> {
        self.around.get(row.checked_sub(self.first)?).copied().flatten()
    }

    /// True if what line `set` assigns has its name in line `at`: both are in the same function, or `set` is in one
    /// around that or in none.
    fn sees(&self, at: usize, set: usize) -> bool {
        let of = self.of(set);
        of.is_none() || std::iter::successors(self.of(at), |&row| self.of(row)).any(|row| of == Some(row))
    }
}

/// True for the head of a function.
fn is_function(text: &str) -> bool {
    let text = text.trim_start();
    text.strip_prefix("async ").unwrap_or(text).trim_start().starts_with("def ")
}

/// True for each row that begins within a text of several rows.
fn in_texts(rows: &[&str]) -> Vec<bool> {
    let mut open: Option<&str> = None;
    let begins = rows.iter().map(|row| {
        let within = open.is_some();
        let mut rest = *row;
        loop {
            let next = match open {
                Some(quotes) => rest.find(quotes),
                None if !rest.contains(['"', '\'']) => None,
                None => [r#"""""#, "'''"].iter().filter_map(|quotes| rest.find(quotes)).min(),
            };
            let Some(at) = next else { break };
            open = match open {
                Some(_) => None,
                None => Some(if rest[at..].starts_with('"') { r#"""""# } else { "'''" }),
            };
            rest = &rest[at + 3..];
        }
        within
    });
    begins.collect()
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
        Source::of(text).needed(named).into_iter().collect()
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
        assert_eq!(lines(text, 4), [1, 3, 4, 6, 7, 16], "what uses it, and what turns gradients off");
        assert!(lines(text, 99).is_empty() && lines(text, 0).is_empty() && lines("", 1).is_empty());
    }

    #[test]
    fn names_of_other_functions_are_not_those_of_the_line() {
        let text = "\
x = 1
def outer():
    x = 2
    y = '''
text
'''
    def other():
        x = 3
        z = 4
    def run():
        r = f(x, z, y) #
        print(r)
    r = 5
def after():
    print(r)
r = f(x)
def later():
    print(r)
print(r)
";
        // Of `x`, the one of the function around, not that of `other`; of `r`, the use in `run` alone.
        assert_eq!(lines(text, 11), [3, 4, 10, 11, 12]);
        assert_eq!(lines(text, 16), [1, 16, 18, 19]);
    }

    #[test]
    fn a_line_has_what_decides_from_afar_how_it_runs() {
        let text = "\
def make():
    # no_grad
    loader = DataLoader(
        data)
    other()
@torch.no_grad()
def test():
    run()
def main():
    f(x) #
";
        assert_eq!(lines(text, 10), [1, 3, 4, 6, 7, 9, 10]);
    }

    #[test]
    fn rows_of_long_texts_are_no_code() {
        let rows = ["x = load_key(\"\"\"", "MIIE", "\"\"\")", "y = '''a'''", "z = \"\"\"b", "c\"\"\"", "d"];
        assert_eq!(in_texts(&rows), [false, true, true, false, false, true, false]);
    }

    #[test]
    fn the_lines_of_a_trace_are_limited() {
        let row = format!("    f({})\n", "x, ".repeat(200));
        let text = format!("def f():\n{}", row.repeat(1_000));
        let places: Vec<(&str, u32)> = (2..1_002).map(|line| ("long.py", line)).chain([("b.py", 1)]).collect();
        let mut reads = 0;
        let read = |_: &str| {
            reads += 1;
            Some(text.clone())
        };
        let lines = collect(&places, read, |_, row| row.to_owned());
        assert_eq!((lines.len(), reads), (NAMED_LINES + 1, 1), "and the function");
        assert!(lines.iter().map(|(.., text)| text.len()).sum::<usize>() <= TEXT_LIMIT);
        let wide = |_: u32, _: &str| "x".repeat(TEXT_LIMIT / 3);
        assert_eq!(collect(&places, |_| Some(text.clone()), wide).len(), 3);
        assert!(collect(&places, |_| None, |_, row| row.to_owned()).is_empty());
    }

    #[test]
    fn hostile_text_ends() {
        let deep: Vec<String> = (0..300).rev().map(|depth| format!("{}for ((((", " ".repeat(depth))).collect();
        let deep = deep.join("\n");
        for named in [1, 150, 300] {
            assert!(lines(&deep, named).contains(&named));
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
