//! The tool `source`: lines that a report names, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use gpuwhy_report::text_format::printable;
use serde_json::Value;

use super::report::opened;
use crate::mcp::answer::Answer;
use crate::mcp::arguments::Arguments;
use crate::mcp::context::Context;

/// Largest file that is read, bytes.
const MOST_BYTES: u64 = 4 << 20;
/// Places that an error lists.
const LISTED: usize = 20;
/// Most characters of a line, and most bytes of an excerpt.
const MOST_LETTERS: usize = 200;
const MOST_EXCERPT: usize = 6_000;

pub fn source(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let (report, document) = opened(context, arguments)?;
    let (wished, line) = (arguments.needed("file")?, arguments.number("line").unwrap_or(0));
    let mut named = BTreeSet::new();
    collect(&document, &mut named);
    let is_wished = |file: &str| file == wished || Path::new(file).ends_with(wished);
    let Some((file, _)) = named.iter().find(|(file, of)| is_wished(file) && *of == line) else {
        let near: Vec<_> = named.iter().filter(|(file, _)| is_wished(file)).collect();
        let near = if near.is_empty() { named.iter().collect() } else { near };
        let listed: Vec<_> = near.iter().take(LISTED).map(|(file, line)| format!("{file}:{line}")).collect();
        let of = arguments.needed("trace")?;
        if listed.is_empty() {
            bail!("{wished}:{line}: the report of {of} names no lines: it has no host samples with Python stacks");
        }
        bail!("{wished}:{line}: the report of {of} does not name this line; it names: {}", listed.join(", "));
    };
    let path = context.folder.source(file).with_context(|| {
        format!(
            "{file}: no source file in {}, the folder of this server; it may be on another machine, and hidden files and \
             those without the ending of a source file are not shown",
            context.folder
        )
    })?;
    let metadata = fs::metadata(&path).with_context(|| file.clone())?;
    if metadata.len() > MOST_BYTES {
        bail!("{file}: larger than {MOST_BYTES} bytes");
    }
    let bytes = fs::read(&path).with_context(|| file.clone())?;
    let text = String::from_utf8_lossy(&bytes);
    let mut around = arguments.number("around").unwrap_or(10);
    let mut excerpt = excerpt_of(&text, line, around);
    while excerpt.len() > MOST_EXCERPT && around > 0 {
        around -= 1;
        excerpt = excerpt_of(&text, line, around);
    }
    if excerpt.is_empty() {
        bail!("{file}: it has no line {line}: it has changed since the run");
    }
    let mut answer = Answer::only_text(&format!("{}:\n{excerpt}", context.folder.shown(&path)), 0);
    let begun = SystemTime::UNIX_EPOCH + Duration::from_nanos(report.process.start.nanos());
    if metadata.modified().is_ok_and(|at| at > begun) {
        answer.note("the file has changed since the run began: the line may be another one".to_owned());
    }
    Ok(answer)
}

/// The lines around `line`, which is marked, with their numbers; empty if it does not exist.
fn excerpt_of(text: &str, line: u64, around: u64) -> String {
    if (text.lines().count() as u64) < line {
        return String::new();
    }
    let lines = text.lines().zip(1..).filter(|(_, number): &(&str, u64)| number.abs_diff(line) <= around);
    let shown = lines.map(|(text, number)| {
        let mark = if number == line { '>' } else { ' ' };
        let text: String = text.replace('\t', "    ").chars().take(MOST_LETTERS).collect();
        format!("{mark}{number:>5}  {}\n", printable(&text))
    });
    shown.collect()
}

/// All places in a document: objects with `file` and `line`.
fn collect(document: &Value, places: &mut BTreeSet<(String, u64)>) {
    match document {
        Value::Object(fields) => {
            let place = fields.get("file").and_then(Value::as_str).zip(fields.get("line").and_then(Value::as_u64));
            if let Some((file, line)) = place.filter(|(file, line)| !file.is_empty() && *line > 0) {
                places.insert((file.to_owned(), line));
            }
            fields.values().for_each(|value| collect(value, places));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, places)),
        _ => {}
    }
}
