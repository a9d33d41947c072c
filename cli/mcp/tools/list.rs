//! The tool `list_traces`.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use gpuwhy_import::{Input, Request};
use gpuwhy_report::text_format::{bytes, date};
use serde_json::{Value, json};

use crate::mcp::answer::{Answer, Page, Total};
use crate::mcp::arguments::Arguments;
use crate::mcp::context::{Call, Context};
use crate::mcp::folder::Folder;

/// Most subfolders that are searched, and that are shown.
const SEARCHED: usize = 500;
const SHOWN: usize = 20;
/// Longest time for the bottlenecks of all traces.
const LONGEST: Duration = Duration::from_secs(20);

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
    let mut call = context.call.clone();
    call.within(LONGEST);
    let mut unread = 0;
    let row = |(at, path): &(u64, PathBuf)| row(context, path, *at, &call, &mut unread);
    answer.rows("traces", files.iter().skip(page.offset).map(row), Total::Exactly(all), page);
    if unread > 0 {
        answer.note(format!("bottlenecks left out: {unread}; `report` has them, or ask for fewer traces"));
    }
    skipped.into_iter().for_each(|sentence| answer.note(sentence));
    if all == 0 {
        answer.note("no trace in this folder: `gpuwhy run -- COMMAND` records one".to_owned());
    }
    Ok(answer)
}

/// A trace with its bottleneck. One that cannot be read before `call` is over counts as `unread`.
fn row(context: &Context, path: &Path, modified: u64, call: &Call, unread: &mut usize) -> Value {
    let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
    let input = Input::open(path).ok();
    let process = input.as_ref().and_then(Input::process);
    let report = input.and_then(|input| input.report(Request::default(), &mut |_, _| call.state()).ok());
    *unread += usize::from(report.is_none() && call.state().is_break());
    let bottleneck = report.as_ref().map(|report| &report.bottleneck);
    json!({
        "trace": context.folder.shown(path),
        "command": process.map(|process| process.command.join(" ")),
        "bottleneck": bottleneck.map(|of| of.cause.name()),
        "share": bottleneck.map(|of| (of.share * 1e3).round() / 1e3),
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
