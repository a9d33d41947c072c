//! Trace files from command line arguments. A folder stands for the traces in it; files of other profilers
//! are converted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gpuwhy_import::{OpenError, TraceFile, is_kineto};
use tracing::debug;

use crate::{message, progress};

/// Opens a trace or converts a file of another profiler: an SQLite file of Nsight Systems, in which `pid`
/// selects the process, or a trace of the PyTorch profiler. Fails when the file has none of these formats or
/// cannot be read.
pub fn open(path: &Path, pid: Option<u32>) -> Result<TraceFile, OpenError> {
    let trace = progress::shown(|progress| TraceFile::open_process(path, pid, progress))?;
    if let Some(others) = trace.other_processes() {
        let pid = trace.session().process_id;
        message::note(&format!("{}: only process {pid} is read; {others}", path.display()));
    }
    Ok(trace)
}

/// Expands `paths` to files. A folder stands for its traces, sorted by name, without subfolders; `-` is
/// standard input. Reports files that look like traces but are skipped on stderr. Fails when a folder cannot
/// be read or holds no trace.
pub fn expanded(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let found = Found::within(path, &|_| true)
                .with_context(|| format!("{}: cannot read this folder", path.display()))?;
            for skipped in &found.skipped {
                message::say(skipped);
            }
            if found.files.is_empty() {
                bail!("{}: there is no trace in this folder ({})", path.display(), ENDINGS.join(", "));
            }
            files.extend(found.files);
        } else {
            files.push(if path == Path::new("-") { "/dev/stdin".into() } else { path.clone() });
        }
    }
    debug!(?files, "traces to read");
    Ok(files)
}

/// The traces in a folder that `may_read` accepts, as [`expanded`] finds them, and sentences about skipped files. Fails
/// when the folder cannot be read.
pub fn listed(folder: &Path, may_read: &dyn Fn(&Path) -> bool) -> io::Result<(Vec<PathBuf>, Vec<String>)> {
    Found::within(folder, may_read).map(|found| (found.files, found.skipped))
}

/// File name suffixes of traces: first ours, including the former name, then those of other profilers.
const ENDINGS: [&str; 8] =
    [".gpuwhy", ".gpuwhy.gz", ".gpuprof", ".gpuprof.gz", ".json", ".json.gz", ".sqlite", ".sqlite.gz"];
const OURS: usize = 4;

/// Files of a folder to read, and messages about the skipped ones.
#[derive(Debug, Default, PartialEq)]
struct Found {
    files: Vec<PathBuf>,
    skipped: Vec<String>,
}

impl Found {
    /// Lists the traces in `folder`. Traces of other profilers count only if there are none of ours: next to
    /// ours they are usually exports of the same runs, and every row would appear twice.
    fn within(folder: &Path, may_read: &dyn Fn(&Path) -> bool) -> io::Result<Self> {
        let mut found = Self::default();
        let (mut ours, mut others, mut json) = (Vec::new(), Vec::new(), 0);
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(kind) = ENDINGS.iter().position(|ending| name.ends_with(ending)) else { continue };
            let metadata = fs::metadata(&path);
            if metadata.as_ref().is_ok_and(fs::Metadata::is_dir) {
                continue;
            }
            // Opening a pipe would block until another process writes to it.
            if !metadata.is_ok_and(|metadata| metadata.is_file()) {
                found.skipped.push(format!("{}: skipped, as it is no file", path.display()));
            } else if !may_read(&path) {
                found.skipped.push(format!("{}: skipped, as it is a link out of the folder", path.display()));
            } else if kind < OURS {
                ours.push(path);
            } else if ENDINGS[kind].contains("json") && !is_kineto(&path) {
                json += 1;
            } else {
                others.push(path);
            }
        }
        let mut skip = |count: usize, what: &str| {
            if count > 0 {
                found.skipped.push(format!("{}: {count} {what}", folder.display()));
            }
        };
        skip(json, "JSON files skipped that are no traces of the PyTorch profiler");
        if ours.is_empty() {
            found.files = others;
        } else {
            skip(
                others.len(),
                "traces of other profilers skipped, because there are traces of gpuwhy; to read a skipped file, pass its path",
            );
            found.files = ours;
        }
        found.files.sort();
        found.skipped.sort();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_its_traces_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let error = expanded(&[folder.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no trace"), "{error}");
        for name in ["b.gpuwhy", "a.gpuwhy.gz", "old.gpuprof", "notes.txt"] {
            fs::write(path(name), "").unwrap();
        }
        fs::create_dir(path("c.gpuwhy")).unwrap();
        let named = PathBuf::from("x.gpuwhy");
        let files = expanded(&[named.clone(), folder.path().to_owned()]).unwrap();
        assert_eq!(files, [named, path("a.gpuwhy.gz"), path("b.gpuwhy"), path("old.gpuprof")]);
    }

    #[test]
    fn traces_of_others_count_where_there_are_none_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let trace = r#"{"schemaVersion": 1, "traceEvents": []}"#;
        fs::write(path("a.pt.trace.json"), trace).unwrap();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut packed, trace.as_bytes()).unwrap();
        fs::write(path("b.json.gz"), packed.finish().unwrap()).unwrap();
        fs::write(path("c.json"), r#"[{"ph": "X"}]"#).unwrap();
        fs::write(path("config.json"), r#"{"batch": 64}"#).unwrap();
        fs::write(path("d.sqlite"), "").unwrap();
        fs::write(path("notes.txt"), "").unwrap();
        let skipped = |found: &Found| found.skipped.join("\n");
        let found = Found::within(folder.path(), &|_| true).unwrap();
        assert_eq!(found.files, ["a.pt.trace.json", "b.json.gz", "c.json", "d.sqlite"].map(path));
        assert!(skipped(&found).contains("1 JSON files skipped") && found.skipped.len() == 1, "{found:?}");
        fs::write(path("e.gpuwhy"), "").unwrap();
        let found = Found::within(folder.path(), &|_| true).unwrap();
        assert_eq!(found.files, [path("e.gpuwhy")]);
        assert!(skipped(&found).contains("4 traces of other profilers skipped"), "{found:?}");
    }

    #[test]
    fn a_pipe_in_a_folder_is_skipped_and_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("a.gpuwhy");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::write(folder.path().join("b.gpuwhy"), "").unwrap();
        let found = Found::within(folder.path(), &|_| true).unwrap();
        assert_eq!(found.files, [folder.path().join("b.gpuwhy")]);
        assert!(found.skipped[0].contains("a.gpuwhy: skipped, as it is no file"), "{found:?}");
    }

    #[test]
    fn a_dash_is_standard_input() {
        assert_eq!(expanded(&["-".into(), "x".into()]).unwrap(), [PathBuf::from("/dev/stdin"), PathBuf::from("x")]);
    }
}
