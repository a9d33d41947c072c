//! The lines of the user's code that keep a remedy, and a diff of them. The diff is written, never applied.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Unchanged lines around a changed one.
const CONTEXT: usize = 3;

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

/// A diff of edits.
#[derive(Debug, Default, PartialEq)]
pub struct Diff {
    /// Empty without any.
    pub text: String,
    /// Why files are not in it.
    pub left_out: Vec<String>,
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
    for (file, edits) in by_file(edits) {
        let text = fs::read(&file).unwrap_or_default();
        let old: Vec<_> = text.split(|byte| *byte == b'\n').collect();
        for (at, edits) in by_line(&edits) {
            let Some(new) = old.get(at).and_then(|line| edited(line, &edits)) else { continue };
            let new = String::from_utf8_lossy(&new).into_owned();
            let added = new.lines().filter(|line| line.as_bytes() != old[at]).map(str::trim);
            let place = file.strip_prefix(&work).unwrap_or(&file).display();
            lines.extend(added.map(|line| format!("{place}:{}: {line}", at + 1)));
        }
    }
    lines
}

/// Different edits by their files.
fn by_file(edits: &[Edit]) -> BTreeMap<PathBuf, Vec<&Edit>> {
    let mut files = BTreeMap::<PathBuf, Vec<&Edit>>::new();
    for (_, edit) in edits.iter().enumerate().filter(|(at, edit)| !edits[..*at].contains(edit)) {
        files.entry(edit.file.clone()).or_default().push(edit);
    }
    files
}

/// Those of a file by the index of their line.
fn by_line<'a>(edits: &[&'a Edit]) -> BTreeMap<usize, Vec<&'a Edit>> {
    let mut lines = BTreeMap::<usize, Vec<&Edit>>::new();
    for &edit in edits {
        lines.entry(edit.line.wrapping_sub(1)).or_default().push(edit);
    }
    lines
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

/// The diff of all `edits` against the files as they are, with paths relative to `root`; git applies it from every
/// folder of its repository if `root` is that.
pub fn diff(edits: &[Edit], root: &Path, is_git: bool) -> Diff {
    let mut diff = Diff::default();
    for (file, edits) in by_file(edits) {
        match of_file(&file, &edits, root, is_git) {
            Ok(text) => diff.text.push_str(&text),
            Err(why) => diff.left_out.push(format!("{}: {why}", file.display())),
        }
    }
    diff
}

fn of_file(file: &Path, edits: &[&Edit], root: &Path, is_git: bool) -> Result<String, String> {
    let real = fs::canonicalize(file).map_err(|error| error.to_string())?;
    let name = real.strip_prefix(root).ok().and_then(Path::to_str);
    let name = name.filter(|name| !name.contains(|letter: char| letter.is_control() || "\"\\".contains(letter)));
    let name = name.ok_or_else(|| format!("it is not below {}, or its name is none for a diff", root.display()))?;
    let text = fs::read_to_string(&real).map_err(|error| error.to_string())?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut new = BTreeMap::new();
    for (at, edits) in by_line(edits) {
        let line = lines.get(at).and_then(|line| edited(line.as_bytes(), &edits));
        let line = line.and_then(|line| String::from_utf8(line).ok());
        new.insert(at, line.ok_or_else(|| format!("line {} has changed meanwhile", at + 1))?);
    }
    let mut whole = if is_git { format!("diff --git a/{name} b/{name}\n") } else { String::new() };
    // A tab ends a name with spaces.
    let _ = write!(whole, "--- a/{name}\t\n+++ b/{name}\t\n");
    let places: Vec<usize> = new.keys().copied().collect();
    let mut added = 0;
    for hunk in places.chunk_by(|one, next| next - one <= 2 * CONTEXT) {
        let from = hunk[0].saturating_sub(CONTEXT);
        let to = (hunk[hunk.len() - 1] + CONTEXT + 1).min(lines.len());
        let more: usize = hunk.iter().map(|at| new[at].split_inclusive('\n').count() - 1).sum();
        let (count, first) = (to - from, from + 1);
        let _ = writeln!(whole, "@@ -{first},{count} +{},{} @@", first + added, count + more);
        added += more;
        for (at, old) in lines.iter().enumerate().take(to).skip(from) {
            let new = new.get(&at);
            push(&mut whole, if new.is_some() { '-' } else { ' ' }, old);
            new.iter().flat_map(|line| line.split_inclusive('\n')).for_each(|line| push(&mut whole, '+', line));
        }
    }
    Ok(whole)
}

fn push(whole: &mut String, sign: char, line: &str) {
    whole.push(sign);
    whole.push_str(line);
    if !line.ends_with('\n') {
        whole.push_str("\n\\ No newline at end of file\n");
    }
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
        let diff = diff(&edits, &root, false);
        let wanted = "--- a/my train.py\t\n+++ b/my train.py\t\n@@ -1,5 +1,5 @@\n call(a1)\r\n-call(a2)\r\n+call(b, a2, \
                      c)\r\n call(a3)\r\n call(a4)\r\n call(a5)\r\n@@ -18,4 +18,5 @@\n call(a18)\r\n call(a19)\r\n \
                      call(a20)\r\n-end()\n\\ No newline at end of file\n+start()\n+end()\n\\ No newline at end of file\n";
        assert_eq!(diff.text, wanted);
        assert!(diff.left_out.len() == 1 && diff.left_out[0].contains("none.py"), "{:?}", diff.left_out);
        let late = Edit { file, line: 2, column: 99, insert: String::new() };
        assert!(lines(std::slice::from_ref(&late)).is_empty());
        assert!(super::diff(&[late], &root, true).left_out[0].ends_with("line 2 has changed meanwhile"));
    }
}
