//! Merges many small files into few large ones.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::RANK;
use super::part::PendingFiles;
use super::place::{Lake, PartFile};
use super::read::{columns, visit};
use crate::error::ExportError;
use crate::tables::{Cell, Table};
use gpuwhy_import::{OpenError, Progress};

/// Rows per row group after compaction: larger groups need fewer requests to an object store.
const GROUP_ROWS: usize = 1 << 20;
/// File that lists a new file and the files that it replaces, one per line. Engines ignore names with this
/// prefix.
const LIST: &str = "_gpuwhy-compaction";
const NOT_OURS: &str = "this list of a compaction names no file of its folder; remove it";

/// Options of compaction.
#[derive(Clone, Copy, Debug)]
pub struct CompactOptions {
    /// Files of at least this many bytes are left unchanged; a new file gets about this size.
    pub bytes: u64,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { bytes: 256 << 20 }
    }
}

/// Result of compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Number of files replaced.
    pub before: u64,
    /// Number of new files.
    pub after: u64,
    /// Bytes of the files replaced.
    pub bytes_before: u64,
    /// Bytes of the new files.
    pub bytes_after: u64,
}

/// Merges the files of each table, day and run. Rows are sorted within each row group. A new file gets its
/// name before the old ones are removed, so that rows are never missing; an engine that lists the files in
/// between sees rows twice. If the process is killed at that point, the next compaction completes the
/// replacement from a list next to the files.
///
/// # Errors
/// If a file cannot be read or written, or if `progress` ends the work.
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

/// Batches of two or more files that together have about `bytes`.
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
    let mut part = PendingFiles::new(lake, date, run, name.clone()).grouped(GROUP_ROWS);
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
    // Not through a link with this name.
    let written = File::create_new(&list).and_then(|mut file| file.write_all(lines.join("\n").as_bytes()));
    written.map_err(|error| ExportError::io(&list, error))?;
    let made = part.finish();
    if made.is_err() {
        // The lake is unchanged; the error returned below is the relevant one.
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

/// A file name that is unused in the folder. Such names sort after those of nodes.
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

/// Completes a replacement by a process that was killed between naming the new file and removing the old
/// ones.
fn recover(lake: &Lake, table: Table) -> Result<(), ExportError> {
    let mut folders: Vec<PathBuf> =
        lake.files(table)?.iter().filter_map(|file| file.path.parent().map(Path::to_owned)).collect();
    folders.dedup();
    for folder in folders {
        let list = folder.join(LIST);
        if !fs::symlink_metadata(&list).is_ok_and(|found| found.is_file()) {
            continue;
        }
        let text = fs::read_to_string(&list).map_err(|error| ExportError::io(&list, error))?;
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
