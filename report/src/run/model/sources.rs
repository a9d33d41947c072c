//! Text of the source lines that a report names, if the trace has it.

use std::collections::BTreeMap;

use gpuwhy_trace::dictionary::Dictionary;

use crate::text_format::names::short_path;

/// Lines of source code in a trace: those that its report names, and those that say what they do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceLines {
    files: BTreeMap<String, BTreeMap<u32, String>>,
}

/// A named line of source code with the statements around it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SourceRow {
    /// File, as in stack frames.
    pub file: String,
    /// Its number, from 1.
    pub line: u32,
    /// Its text without indentation.
    pub text: String,
    /// Number and text of the statements around it, outermost first: loops, `with`, conditions, and the function.
    pub around: Vec<(u32, String)>,
}

impl SourceLines {
    /// The lines of a trace.
    #[must_use]
    pub fn of(dictionary: &Dictionary) -> Self {
        let mut files: BTreeMap<String, BTreeMap<u32, String>> = BTreeMap::new();
        for row in dictionary.source_lines() {
            let file = dictionary.name(row.file);
            files.entry(file.to_owned()).or_default().insert(row.line, row.text.clone());
        }
        Self { files }
    }

    /// True if the trace has no lines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Lines of a file that the trace has, by number.
    #[must_use]
    pub fn file(&self, file: &str) -> Option<&BTreeMap<u32, String>> {
        self.files.get(file)
    }

    /// Files and numbers of the lines that contain `word`.
    pub(in crate::run) fn containing(&self, word: &str) -> impl Iterator<Item = (&str, u32)> {
        let rows = self.files.iter().flat_map(|(file, rows)| rows.iter().map(move |row| (file.as_str(), row)));
        rows.filter(move |(_, (_, text))| text.contains(word)).map(|(file, (&line, _))| (file, line))
    }

    /// The line, if the trace has its text.
    #[must_use]
    pub fn row(&self, file: &str, line: u32) -> Option<SourceRow> {
        let rows = self.files.get(file)?;
        let text = rows.get(&line).filter(|text| !text.trim().is_empty())?;
        let mut depth = indentation(text);
        let mut around = Vec::new();
        for (&number, text) in rows.range(..line).rev() {
            let word = text.trim_start().split([' ', ':', '(']).next().unwrap_or_default();
            if indentation(text) < depth && matches!(word, "for" | "while" | "with" | "async" | "def" | "if" | "elif") {
                depth = indentation(text);
                around.push((number, text.trim().to_owned()));
                if word == "def" || text.trim_start().starts_with("async def") {
                    break;
                }
            }
        }
        around.reverse();
        Some(SourceRow { file: file.to_owned(), line, text: text.trim().to_owned(), around })
    }

    /// File and number of the line with this place, such as `train.py:42 (main)`; `None` if two files could be meant.
    pub(in crate::run) fn find(&self, place: &str) -> Option<(&str, u32)> {
        let of_file = |(file, rows): (&'_ String, &BTreeMap<u32, String>)| {
            let number = place.strip_prefix(&*short_path(file))?.strip_prefix(':')?;
            let end = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
            number[..end].parse().ok().filter(|line| rows.contains_key(line))
        };
        let mut found = self.files.iter().filter_map(|entry| Some((entry.0.as_str(), of_file(entry)?)));
        found.next().filter(|_| found.next().is_none())
    }
}

fn indentation(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::source_line::SourceLine;

    #[test]
    fn a_place_finds_its_line_unless_two_files_could_be_meant() {
        let mut dictionary = Dictionary::new();
        let text = "def main():\n    with a:\n        x = 1\n    for i in b:\n        c(i)\n";
        for file in ["/home/u/train.py", "/v/lib/python3.12/site-packages/lib/train.py"] {
            let file = dictionary.intern_name(file);
            for (number, text) in (1..).zip(text.lines()) {
                dictionary.add_source_line(SourceLine { file, line: number, text: text.to_owned() });
            }
        }
        let sources = SourceLines::of(&dictionary);
        assert_eq!(sources.find("train.py:5 (main)"), Some(("/home/u/train.py", 5)));
        assert_eq!(
            sources.find("lib/train.py:5 (main), in x").unwrap().0,
            "/v/lib/python3.12/site-packages/lib/train.py"
        );
        for place in ["train.py:55 (main)", "train.py (main)", "train.py:x", "rain.py:5", "train.py", ""] {
            assert_eq!(sources.find(place), None, "{place}");
        }
        let row = sources.row("/home/u/train.py", 5).unwrap();
        let around = [(1, "def main():".to_owned()), (4, "for i in b:".to_owned())];
        assert_eq!((row.text.as_str(), row.around), ("c(i)", around.to_vec()));
        let other = dictionary.intern_name("/home/u/other/train.py");
        dictionary.add_source_line(SourceLine { file: other, line: 5, text: "x".to_owned() });
        assert_eq!(SourceLines::of(&dictionary).find("train.py:5 (main)"), None);
    }
}
