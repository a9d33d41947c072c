//! Makes few large files of many small ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::RANK;
use super::part::Part;
use super::place::{Lake, PartFile};
use super::read::{columns, visit};
use crate::error::ExportError;
use crate::tables::{Cell, Table};
use gpuwhy_import::{OpenError, Progress};

/// Rows of a row group after compaction: fewer requests to an object store.
const GROUP_ROWS: usize = 1 << 20;
/// Lists a new file and those in whose place it comes, a line each. Engines pass over names that begin so.
const LIST: &str = "_gpuwhy-compaction";
const NOT_OURS: &str = "this list of a compaction names no file of its folder; remove it";

/// What is made large.
#[derive(Clone, Copy, Debug)]
pub struct CompactOptions {
    /// Files of at least this many bytes stay as they are, and a new one gets about as many.
    pub bytes: u64,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { bytes: 256 << 20 }
    }
}

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Files that went.
    pub before: u64,
    /// Files in their place.
    pub after: u64,
    /// Bytes of the files that went.
    pub bytes_before: u64,
    /// Bytes of the files in their place.
    pub bytes_after: u64,
}

/// Joins the files of each table, day and run. Rows are sorted within each row group. A new file gets its name before
/// the old ones go, so that rows are never missing; an engine that lists the files in between sees rows twice. What a
/// process that was killed there left is completed by the next one, from a list that lies beside the files.
///
/// # Errors
/// When a file cannot be read or written, and when `progress` ends the work.
pub fn compact(lake: &Lake, options: CompactOptions, progress: &mut Progress<'_>) -> Result<Compacted, ExportError> {
    let mut compacted = Compacted::default();
    let count = Table::ALL.len() as u64;
    for (number, &table) in (0..).zip(Table::ALL) {
        recover(lake, table)?;
        let mut folders: BTreeMap<(String, String), Vec<(PartFile, u64)>> = BTreeMap::new();
        for file in lake.files(table)? {
            let bytes = fs::metadata(&file.path).map_err(|error| ExportError::io(&file.path, error))?.len();
            if bytes < options.bytes {
                folders.entry((file.date.clone(), file.run.clone())).or_default().push((file, bytes));
            }
        }
        let of_table = folders.len().max(1) as u64;
        for (place, ((date, run), files)) in (0..).zip(folders) {
            if progress(number * of_table + place, count * of_table).is_break() {
                return Err(OpenError::interrupted(lake.root()).into());
            }
            for files in batches(files, options.bytes) {
                join(lake, table, (&date, &run), &files, &mut compacted)?;
            }
        }
    }
    Ok(compacted)
}

/// Groups of two files or more that make one of about `bytes`.
fn batches(files: Vec<(PartFile, u64)>, bytes: u64) -> Vec<Vec<(PathBuf, u64)>> {
    let mut batches: Vec<(u64, Vec<(PathBuf, u64)>)> = Vec::new();
    for (file, size) in files {
        match batches.last_mut() {
            Some((sum, batch)) if *sum + size <= bytes => {
                *sum += size;
                batch.push((file.path, size));
            }
            _ => batches.push((size, vec![(file.path, size)])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).filter(|batch| batch.len() > 1).collect()
}

fn join(
    lake: &Lake,
    table: Table,
    (date, run): (&str, &str),
    files: &[(PathBuf, u64)],
    compacted: &mut Compacted,
) -> Result<(), ExportError> {
    let folder = lake.partition(table, date, run);
    let name = free_name(&folder);
    let mut part = Part::new(lake, date, run, name.clone()).grouped(GROUP_ROWS);
    let names: Vec<&str> = RANK.iter().chain(table.columns()).map(|column| column.name).collect();
    for (path, _) in files {
        if let Some(unknown) = columns(path)?.iter().find(|column| !names.contains(&column.as_str())) {
            let why =
                format!("it has the column {unknown}, which this version of gpuwhy does not know; use a newer one");
            return Err(ExportError::refused(path, why));
        }
        visit(path, &names, &mut |cells| {
            let rank = match cells.first() {
                Some(Cell::Integer(rank)) => u32::try_from(*rank).unwrap_or(u32::MAX),
                _ => 0,
            };
            part.row(table, rank, cells.get(1..).unwrap_or_default())
        })?;
    }
    let list = folder.join(LIST);
    let old = files.iter().filter_map(|(path, _)| path.file_name()?.to_str());
    let lines: Vec<String> = std::iter::once(format!("{name}.parquet")).chain(old.map(str::to_owned)).collect();
    fs::write(&list, lines.join("\n")).map_err(|error| ExportError::io(&list, error))?;
    let made = part.finish();
    if made.is_err() {
        // Nothing has changed; the error that counts is the one below.
        let _ = fs::remove_file(&list);
    }
    for path in made? {
        compacted.after += 1;
        compacted.bytes_after += fs::metadata(&path).map_or(0, |metadata| metadata.len());
    }
    for (path, bytes) in files {
        fs::remove_file(path).map_err(|error| ExportError::io(path, error))?;
        compacted.before += 1;
        compacted.bytes_before += bytes;
    }
    fs::remove_file(&list).map_err(|error| ExportError::io(&list, error))
}

/// A name that no file of the folder has. Names sort after those of nodes.
fn free_name(folder: &Path) -> String {
    let mut number = 0_u32;
    loop {
        let name = format!("part-whole-{number:04}");
        if !folder.join(format!("{name}.parquet")).exists() {
            return name;
        }
        number += 1;
    }
}

/// Completes what a process left that was killed between naming a new file and removing the old ones.
fn recover(lake: &Lake, table: Table) -> Result<(), ExportError> {
    let mut folders: Vec<PathBuf> =
        lake.files(table)?.iter().filter_map(|file| file.path.parent().map(Path::to_owned)).collect();
    folders.dedup();
    for folder in folders {
        let list = folder.join(LIST);
        let Ok(text) = fs::read_to_string(&list) else { continue };
        let mut names = text.lines();
        let is_name = |name: &str| name.ends_with(".parquet") && !name.contains('/');
        let Some(new) = names.next().filter(|_| text.lines().all(is_name)) else {
            return Err(ExportError::foreign(&list, NOT_OURS));
        };
        if folder.join(new).exists() {
            for old in names.map(|name| folder.join(name)).filter(|old| old.exists()) {
                fs::remove_file(&old).map_err(|error| ExportError::io(&old, error))?;
            }
        }
        fs::remove_file(&list).map_err(|error| ExportError::io(&list, error))?;
    }
    Ok(())
}
