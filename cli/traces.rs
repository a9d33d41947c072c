//! Trace files from what stands on the command line: a folder stands for the traces in it, and what others recorded is
//! translated.

use std::fs::{self, File};
use std::io::{BufRead, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gpuprof_export::{ExportError, TraceFile};

/// Opens a trace, or what can be read as one: an SQLite file of Nsight Systems, of which `pid` chooses the process, or a
/// trace of the PyTorch profiler.
///
/// # Errors
///
/// When it is none of them or cannot be read.
pub fn open(path: &Path, pid: Option<u32>) -> Result<TraceFile, ExportError> {
    TraceFile::open_process(path, pid, Some(translate))
}

fn translate(json: &mut dyn BufRead, trace: File) -> Result<(), String> {
    gpuprof::translate_kineto(json, BufWriter::new(trace)).map_err(|error| error.to_string())
}

/// The files of `paths`, those of a folder in the order of their names. Folders within it are not entered.
///
/// # Errors
///
/// When a folder cannot be read or holds no trace.
pub fn expanded(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(within(path)?);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

fn within(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot = || format!("{}: cannot read this folder", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if (name.ends_with(".gpuprof") || name.ends_with(".gpuprof.gz")) && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        bail!("{}: there is no trace (*.gpuprof, *.gpuprof.gz) in this folder", folder.display());
    }
    files.sort();
    Ok(files)
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
        for name in ["b.gpuprof", "a.gpuprof.gz", "notes.txt"] {
            fs::write(path(name), "").unwrap();
        }
        fs::create_dir(path("c.gpuprof")).unwrap();
        let named = PathBuf::from("x.gpuprof");
        let files = expanded(&[named.clone(), folder.path().to_owned()]).unwrap();
        assert_eq!(files, [named, path("a.gpuprof.gz"), path("b.gpuprof")]);
    }
}
