//! History file: lines of JSON, in the order in which runs ended.
//!
//! The file is append-only. A large file is renamed with the suffix `.1` and replaces the previously renamed
//! one; both are read.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use gpuwhy_inject::config;
use gpuwhy_report::history::{self, LARGEST_FILE, Measured, PUT_ASIDE_FROM, Run};
use tracing::info;

/// Path of this user's history. Fails when history is off, or no folder for it is known.
pub fn path() -> Result<PathBuf> {
    match env::var_os(config::HISTORY).filter(|value| !value.is_empty()) {
        Some(value) if value.to_str().is_some_and(|text| config::expected(config::HISTORY, text).is_none()) => {
            match config::Settings::from_variables(&[(config::HISTORY.into(), value)]).0.history {
                Some(path) => Ok(path),
                None => bail!("{} is off, so no history is kept", config::HISTORY),
            }
        }
        Some(value) => {
            let value = value.to_string_lossy();
            bail!("{}={value}: expected an absolute file name or `off`", config::HISTORY)
        }
        None => {
            let [state, home] = ["XDG_STATE_HOME", "HOME"].map(env::var_os);
            history::path(state.as_deref(), home.as_deref())
                .context("no place for the history: neither XDG_STATE_HOME nor HOME is an absolute path")
        }
    }
}

/// Path for a program that is about to start, in the default location and ready for appending. `None` when
/// the variable is set, or when the file cannot be written. The user did not request the file by name, so
/// only `-v` reports that.
pub fn ready() -> Option<PathBuf> {
    if env::var_os(config::HISTORY).is_some_and(|value| !value.is_empty()) {
        return None;
    }
    let prepared = path().and_then(|path| prepare(&path).map(|()| path));
    prepared.inspect_err(|error| info!("no history is kept: {error:#}")).ok()
}

/// Path for a run that is about to be added; `None` when no history is kept. `-v` reports the reason.
pub fn wanted() -> Option<PathBuf> {
    match path() {
        Ok(path) => Some(path),
        Err(error) => {
            info!("{error:#}");
            None
        }
    }
}

/// Creates the folder, and renames a large file. Two commands that do so within a hundredth of a millisecond
/// could lose the older half; a lock, which could block, is not worth it.
fn prepare(path: &Path) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let folder = path.parent().with_context(failed)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(failed)?;
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_symlink() => bail!("{} is a symbolic link; name its target", path.display()),
        Ok(about) if !about.is_file() => bail!("{} is no file", path.display()),
        Ok(_) if !history::may_grow(&beginning(path).with_context(failed)?) => {
            bail!("{} holds something else than a history, so nothing is added to it", path.display())
        }
        Ok(about) if about.len() >= PUT_ASIDE_FROM => fs::rename(path, aside(path)).with_context(failed)?,
        _ => {}
    }
    // Reports a read-only folder before the program starts.
    opened(path).map(drop).with_context(failed)
}

fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(history::BEGINNING).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

fn opened(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

/// Appends a line, which must end with a line break. Fails when the file cannot be written.
pub fn append(path: &Path, line: &str) -> Result<()> {
    prepare(path)?;
    let failed = || format!("cannot write {}", path.display());
    let mut file = opened(path).with_context(failed)?;
    let mut last = [b'\n'];
    if let Some(at) = file.metadata().with_context(failed)?.len().checked_sub(1) {
        let _ = file.read_at(&mut last, at).with_context(failed)?;
    }
    // Complete the partial line of another process.
    let start = if last == *b"\n" { "" } else { "\n" };
    file.write_all(format!("{start}{line}").as_bytes()).with_context(failed)
}

/// Runs without duplicates, oldest first, and error messages for skipped lines. Fails when there is no file,
/// or it cannot be read.
pub fn read(path: &Path) -> Result<(Vec<Run>, Vec<String>)> {
    let (mut runs, mut bad) = (BTreeMap::new(), Vec::new());
    let mut found = false;
    for path in [aside(path), path.to_owned()] {
        let text = match text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        found = true;
        let of_run = |line: &[u8]| !line.is_empty() && !Measured::is_line(line);
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| of_run(line)) {
            match serde_json::from_slice::<Run>(line) {
                Ok(run) => {
                    let (host, process, start) = run.identity();
                    runs.insert((start, process, host.to_owned()), run);
                }
                Err(error) => {
                    // Serde counts from the start of this line, not of the file.
                    let error = error.to_string();
                    let why = error.rsplit_once(" at line 1 column ").map_or(&*error, |(why, _)| why);
                    bad.push(format!("{}, line {}: {why}", path.display(), number + 1));
                }
            }
        }
    }
    if !found {
        bail!("there is no history at {}: `gpuwhy run` and the Python module keep one", path.display());
    }
    Ok((runs.into_values().collect(), bad))
}

/// Measured gains of remedies. Files that cannot be read and damaged lines have none: they are an extra.
pub fn read_measured(path: &Path) -> Vec<Measured> {
    let texts = [aside(path), path.to_owned()].into_iter().filter_map(|path| text(&path).ok());
    let lines = texts.flat_map(|text| text.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>());
    lines.filter(|line| Measured::is_line(line)).filter_map(|line| serde_json::from_slice(&line).ok()).collect()
}

/// Contents of a file, up to a size that no history reaches.
fn text(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe would block until another process writes to it.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(4 * LARGEST_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn run(start_ns: u64) -> Run {
        Run { start_ns, host: "node".to_owned(), process_id: 7, ..Run::default() }
    }

    #[test]
    fn runs_come_back_once_and_in_order_whatever_is_between_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/history.jsonl");
        assert!(read(&path).unwrap_err().to_string().contains("there is no history"));
        append(&path, &run(2).line()).unwrap();
        fs::write(&path, [fs::read(&path).unwrap(), run(9).line().as_bytes()[..40].to_vec()].concat()).unwrap();
        for start in [1, 2] {
            append(&path, &run(start).line()).unwrap();
        }
        let (runs, bad) = read(&path).unwrap();
        assert_eq!(runs, [run(1), run(2)]);
        assert_eq!(bad.len(), 1);
        assert!(bad[0].contains("history.jsonl, line 2: "), "{bad:?}");
    }

    #[test]
    fn a_large_file_is_put_aside_and_read_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let line = run(1).line();
        fs::write(&path, line.clone() + &"\n".repeat(usize::try_from(PUT_ASIDE_FROM).unwrap())).unwrap();
        append(&path, &run(2).line()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), run(2).line());
        assert_eq!(read(&path).unwrap().0, [run(1), run(2)]);
    }

    #[test]
    fn measured_gains_are_kept_beside_the_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        assert!(read_measured(&path).is_empty());
        let gain = Measured { at_ns: 3, remedy: "pinned".to_owned(), gain: 1.5, ..Measured::default() };
        append(&path, &gain.line()).unwrap();
        append(&path, &run(1).line()).unwrap();
        append(&path, &gain.line()).unwrap();
        assert_eq!(read_measured(&path), [gain.clone(), gain]);
        assert_eq!(read(&path).unwrap(), (vec![run(1)], vec![]));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = append(folder.path(), "{}\n").unwrap_err().to_string();
        assert!(error.ends_with("is no file"), "{error}");
        assert!(read(folder.path()).unwrap_err().to_string().starts_with("cannot read"));
        let link = folder.path().join("history.jsonl");
        symlink(folder.path().join("nowhere"), &link).unwrap();
        let error = append(&link, "{}\n").unwrap_err().to_string();
        assert!(error.ends_with("is a symbolic link; name its target"), "{error}");
        assert!(!folder.path().join("nowhere").exists());
    }
}
