//! The lines of the user's code that keep a remedy, and a diff of them. The diff is written, never applied.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::trial::place::tree;

/// A text to insert into a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    file: PathBuf,
    /// From 1 on.
    line: usize,
    /// In bytes, from 0 on.
    column: usize,
    insert: String,
}

impl Edit {
    /// Those that the Python side gives for a remedy.
    pub fn all(edits: &Value) -> Vec<Self> {
        let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
        let edit = |row: &Value| {
            let (file, insert) = (row["file"].as_str()?.into(), row["insert"].as_str()?.to_owned());
            Some(Self { file, line: number(&row["line"])?, column: number(&row["column"])?, insert })
        };
        edits.as_array().into_iter().flatten().filter_map(edit).collect()
    }

    pub fn json(&self) -> Value {
        json!({"file": self.file, "line": self.line, "column": self.column, "insert": self.insert})
    }
}

/// The places with their lines of code as they will be, for those that are there.
pub fn lines(edits: &[Edit]) -> Vec<String> {
    let work = fs::canonicalize(".").unwrap_or_default();
    let mut lines = Vec::new();
    for (file, places) in by_place(edits) {
        let text = fs::read(file).unwrap_or_default();
        let old: Vec<_> = text.split(|byte| *byte == b'\n').collect();
        for (at, edits) in places {
            let Some(new) = old.get(at).and_then(|line| edited(line, &edits)) else { continue };
            let new = String::from_utf8_lossy(&new).into_owned();
            let added = new.lines().filter(|line| line.as_bytes() != old[at]).map(str::trim);
            let place = file.strip_prefix(&work).unwrap_or(file).display();
            lines.extend(added.map(|line| format!("{place}:{}: {line}", at + 1)));
        }
    }
    lines
}

/// Different edits by their files, and the index of their line.
fn by_place(edits: &[Edit]) -> BTreeMap<&Path, BTreeMap<usize, Vec<&Edit>>> {
    let mut files = BTreeMap::<&Path, BTreeMap<usize, Vec<&Edit>>>::new();
    for (_, edit) in edits.iter().enumerate().filter(|(at, edit)| !edits[..*at].contains(edit)) {
        files.entry(&edit.file).or_default().entry(edit.line.wrapping_sub(1)).or_default().push(edit);
    }
    files
}

/// The line with these insertions; `None` if it is shorter than a place in it.
fn edited(line: &[u8], edits: &[&Edit]) -> Option<Vec<u8>> {
    let mut sorted = edits.to_vec();
    sorted.sort_by_key(|edit| edit.column);
    let (mut whole, mut from) = (Vec::new(), 0);
    for edit in sorted {
        whole.extend(line.get(from..edit.column)?);
        whole.extend(edit.insert.as_bytes());
        from = edit.column;
    }
    whole.extend(&line[from..]);
    Some(whole)
}

/// The diff of all `edits` against the files as they are, with paths relative to `root`, and why others are not in it;
/// git makes it in `folder`.
///
/// # Errors
/// Without git, and when the folder cannot be written.
pub fn diff(edits: &[Edit], root: &Path, folder: &Path) -> Result<(String, Vec<String>)> {
    let (mut diff, mut left_out) = (String::new(), Vec::new());
    for (file, places) in by_place(edits) {
        match new_file(file, places, root) {
            Ok((name, texts)) => {
                for (side, text) in ["a", "b"].into_iter().zip(texts) {
                    let path = folder.join(side).join(&name);
                    fs::create_dir_all(path.parent().unwrap_or(folder))?;
                    fs::write(&path, text).with_context(|| path.display().to_string())?;
                }
                let [old, new] = ["a", "b"].map(|side| Path::new(side).join(&name));
                let text = tree::difference(folder, &["--no-prefix"], &old, &new)?;
                diff.push_str(&String::from_utf8_lossy(&text));
            }
            Err(why) => left_out.push(format!("{}: {why:#}", file.display())),
        }
    }
    Ok((diff, left_out))
}

/// The name of a file in `root`, and its text before and after.
fn new_file(file: &Path, places: BTreeMap<usize, Vec<&Edit>>, root: &Path) -> Result<(PathBuf, [Vec<u8>; 2])> {
    let real = fs::canonicalize(file)?;
    let name = real.strip_prefix(root).ok().with_context(|| format!("it is not below {}", root.display()))?;
    let text = fs::read(&real)?;
    let mut lines: Vec<_> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    for (at, edits) in places {
        let line = lines.get(at).and_then(|line| edited(line, &edits));
        lines[at] = line.with_context(|| format!("line {} has changed meanwhile", at + 1))?;
    }
    Ok((name.to_owned(), [text, lines.join(&b'\n')]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diff_has_every_insertion_once_with_its_lines_around() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let file = root.join("my train.py");
        let text: String = (1..=20).map(|line| format!("call(a{line})\r\n")).collect();
        fs::write(&file, text + "end()").unwrap();
        let rows = json!([
            {"file": file, "line": 2, "column": 5, "insert": "b, "},
            {"file": file, "line": 2, "column": 7, "insert": ", c"},
            {"file": file, "line": 2, "column": 7, "insert": ", c"},
            {"file": file, "line": 21, "column": 0, "insert": "start()\n"},
            {"file": root.join("none.py"), "line": 1, "column": 0, "insert": "x"},
            {"no": "edit"},
        ]);
        let edits = Edit::all(&rows);
        assert_eq!(edits.len(), 5);
        let shown = lines(&edits);
        assert_eq!(
            shown[..2],
            [format!("{0}:2: call(b, a2, c)", file.display()), format!("{0}:21: start()", file.display())]
        );
        let made = tempfile::tempdir().unwrap();
        let Ok((diff, left_out)) = diff(&edits, &root, made.path()) else {
            println!("SKIPPED: no git");
            return;
        };
        let wanted = "--- a/my train.py\t\n+++ b/my train.py\t\n@@ -1,5 +1,5 @@\n call(a1)\r\n-call(a2)\r\n+call(b, a2, \
                      c)\r\n call(a3)\r\n call(a4)\r\n call(a5)\r\n@@ -18,4 +18,5 @@\n call(a18)\r\n call(a19)\r\n \
                      call(a20)\r\n+start()\n end()\n\\ No newline at end of file\n";
        // git adds two lines in front, and to each part a line before it.
        let plain = |line: &str| match line.rfind(" @@ ") {
            Some(end) => format!("{} @@\n", &line[..end]),
            None => line.to_owned(),
        };
        assert_eq!(diff.split_inclusive('\n').skip(2).map(plain).collect::<String>(), wanted);
        assert!(left_out.len() == 1 && left_out[0].contains("none.py"), "{left_out:?}");
        let late = Edit { file, line: 2, column: 99, insert: String::new() };
        assert!(lines(std::slice::from_ref(&late)).is_empty());
        let late = super::diff(&[late], &root, made.path()).unwrap();
        assert!(late.0.is_empty() && late.1[0].ends_with("line 2 has changed meanwhile"), "{late:?}");
    }
}
