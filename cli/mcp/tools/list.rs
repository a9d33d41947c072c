//! The tool `list_traces`.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use gpuwhy_import::Input;
use gpuwhy_report::text_format::{bytes, date};
use serde_json::{Value, json};

use crate::mcp::answer::{Answer, Page, Total};
use crate::mcp::arguments::Arguments;
use crate::mcp::context::Context;
use crate::mcp::folder::Folder;

/// Most subfolders that are searched, and that are shown.
const SEARCHED: usize = 500;
const SHOWN: usize = 20;

pub fn list_traces(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let name = arguments.text("folder").unwrap_or(".");
    let folder = context.folder.resolved(name)?;
    if !folder.is_dir() {
        bail!("{name}: this is a file; `report` and the other tools take it as `trace`");
    }
    let (files, skipped) =
        context.folder.traces(&folder).with_context(|| format!("{name}: cannot read this folder"))?;
    let mut files: Vec<_> = files.into_iter().map(|path| (modified(&path), path)).collect();
    files.sort_by_key(|(at, path)| (Reverse(*at), path.clone()));
    let all = files.len();
    let page = Page { offset: arguments.count("offset", 0), limit: arguments.count("limit", 50) };
    let mut answer = Answer::default();
    answer.fact("folder", context.folder.shown(&folder));
    let folders = subfolders(&context.folder, &folder)?;
    if folders.len() > SHOWN {
        answer.note(format!("folders: {SHOWN} of {}", folders.len()));
    }
    let shown = folders.iter().take(SHOWN);
    let folders: Vec<_> =
        shown.map(|(path, traces)| json!({"folder": context.folder.shown(path), "traces": traces})).collect();
    answer.fact("folders", folders);
    let row = |(at, path): &(u64, PathBuf)| row(context, path, *at);
    answer.rows("traces", files.iter().skip(page.offset).map(row), Total::Exactly(all), page);
    skipped.into_iter().for_each(|sentence| answer.note(sentence));
    if all == 0 {
        answer.note("no trace in this folder: `gpuwhy run -- COMMAND` records one".to_owned());
    }
    Ok(answer)
}

fn row(context: &Context, path: &Path, modified: u64) -> Value {
    let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
    let process = Input::open(path).ok().and_then(|input| input.process());
    json!({
        "trace": context.folder.shown(path),
        "command": process.map(|process| process.command.join(" ")),
        "modified": date(modified),
        "size": bytes(size),
    })
}

/// Time of the last change, nanoseconds since the Unix epoch; 0 if unknown.
fn modified(path: &Path) -> u64 {
    let at = fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(UNIX_EPOCH);
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

/// Folders in `folder` with traces, and their number, by name.
fn subfolders(root: &Folder, folder: &Path) -> Result<Vec<(PathBuf, usize)>> {
    let entries = fs::read_dir(folder)?.flatten().take(SEARCHED);
    let is_hidden = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    // Symbolic links may lead elsewhere.
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let folders = entries.filter(|entry| is_folder(entry) && !is_hidden(entry)).map(|entry| entry.path());
    let counted = folders.map(|path| {
        let traces = root.traces(&path).map_or(0, |(files, _)| files.len());
        (path, traces)
    });
    let mut found: Vec<_> = counted.filter(|(_, traces)| *traces > 0).collect();
    found.sort();
    Ok(found)
}
