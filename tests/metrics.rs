//! Every field of the JSON is defined in docs/reference/report.md: adding a field requires adding its
//! definition.
//!
//! The fields are parsed from the source, because no recording has all of them. Names that are data (leaves,
//! causes, kinds of records) are not checked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use gpuwhy_trace::record::Loss;

/// Rust files at `path`, a file or a folder.
fn sources(path: PathBuf, to: &mut Vec<PathBuf>) {
    match fs::read_dir(&path) {
        Ok(entries) => entries.for_each(|entry| sources(entry.unwrap().path(), to)),
        Err(_) => to.push(path),
    }
}

/// Fields that are serialized: those that `document!` lists, and those of structs that derive `Serialize`.
fn fields(source: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let (mut serialized, mut inside, mut hidden) = (false, false, false);
    for line in source.lines().map(str::trim) {
        if line.contains("derive(") {
            serialized |= line.contains("Serialize");
        } else if line.contains("struct ") {
            inside = serialized && line.ends_with('{');
        } else if line.starts_with("from: ") && line.ends_with('{') {
            inside = true;
        } else if line == "}" {
            (serialized, inside) = (false, false);
        } else if inside && (line.contains("flatten") || line.contains("skip)") || line.contains("rename")) {
            hidden = true;
        } else if inside
            && let Some((name, _)) = line.trim_start_matches("pub ").split_once(": ")
            && !std::mem::take(&mut hidden)
        {
            found.insert(name.trim_end_matches('?'));
        }
    }
    found.retain(|name| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    found
}

#[test]
fn every_field_of_the_json_is_defined() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documented = fs::read_to_string(root.join("docs/reference/report.md")).unwrap();
    let mut files = Vec::new();
    for place in ["report/src/run/json", "report/src/run/model", "compare/src/diff/json.rs"] {
        sources(root.join(place), &mut files);
    }
    let mut missing = Vec::new();
    let mut seen = 0;
    for file in files {
        let source = fs::read_to_string(&file).unwrap();
        let fields = fields(&source);
        seen += fields.len();
        let unknown = fields.into_iter().filter(|name| !documented.contains(&format!("`{name}")));
        missing.extend(unknown.map(|name| format!("{name} of {}", file.display())));
    }
    let losses = Loss::default().kinds().map(|kind| kind.name);
    missing.extend(losses.into_iter().filter(|name| !documented.contains(&format!("`{name}"))).map(str::to_owned));
    assert!(seen > 150, "only {seen} fields found: this test no longer understands the sources");
    assert!(missing.is_empty(), "docs/reference/report.md does not define {missing:#?}");
}
