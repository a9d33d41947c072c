//! Final metrics of a process for the exporter of this node: its last response to `metrics`, in a file next
//! to its socket.
//!
//! A file is written only if an exporter has announced itself within [`FRESH`], so that no files accumulate
//! without a reader. The exporter removes files older than [`KEPT`]. Both sides use this file, and only
//! folders that passed [`address::check`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::control::address::{self, ProcessName};
use profiler_core::sorting::SortRows as _;

/// File by which an exporter announces that it reads the folder.
const ANNOUNCEMENT: &str = "exporter";
const ENDING: &str = "last";
/// Age of an announcement above which the exporter counts as gone.
pub const FRESH: Duration = Duration::from_secs(300);
/// Time for which the numbers of an ended process are served.
pub const KEPT: Duration = Duration::from_secs(300);
/// Maximum file size, bytes; libprof.so writes some thousands.
const MAX_FILE: u64 = 256 << 10;

/// Announces in `folder` that an exporter reads it. Fails if the folder does not belong to this user alone, or cannot
/// be written.
pub fn announce(folder: &Path, user: u32) -> io::Result<()> {
    address::check(folder, user)?;
    replace(&folder.join(ANNOUNCEMENT), b"an exporter of gpuwhy looks into this folder\n")
}

/// Withdraws the announcement, and removes the files that processes wrote for it.
pub fn withdraw(folder: &Path, user: u32) {
    if address::check(folder, user).is_ok() {
        let _ = fs::remove_file(folder.join(ANNOUNCEMENT));
        for (_, _, path) in files(folder, user).into_iter().flatten() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes the last numbers of the process that listened on `socket`, if an exporter has announced itself. Returns true
/// if it did. Fails if they cannot be written.
pub fn leave(socket: &Path, line: &str) -> io::Result<bool> {
    let Some(folder) = socket.parent() else { return Ok(false) };
    let announced = fs::symlink_metadata(folder.join(ANNOUNCEMENT)).ok();
    if announced.is_none_or(|found| !found.is_file() || found.uid() != address::user() || age(&found) > FRESH) {
        return Ok(false);
    }
    replace(&socket.with_extension(ENDING), line.as_bytes()).map(|()| true)
}

/// A process that has ended, the time since then, and its last numbers.
pub type Ended = (ProcessName, Duration, String);

/// Returns the last numbers of the `most` processes in a folder that ended most recently, with their ages; and the
/// processes beyond that number. Removes files older than [`KEPT`] and unfinished ones. Fails if the folder does not
/// belong to this user alone.
pub fn newest(folder: &Path, user: u32, most: usize) -> io::Result<(Vec<Ended>, Vec<ProcessName>)> {
    let mut files = files(folder, user)?;
    files.sort_rows_by_key(|&(process, age, _)| (age, process));
    let beyond = files.split_off(files.len().min(most));
    let read = |(process, age, path): (ProcessName, Duration, PathBuf)| Some((process, age, read(&path).ok()?));
    Ok((files.into_iter().filter_map(read).collect(), beyond.into_iter().map(|(process, ..)| process).collect()))
}

/// Files for [`newest`].
fn files(folder: &Path, user: u32) -> io::Result<Vec<(ProcessName, Duration, PathBuf)>> {
    address::check(folder, user)?;
    let mut found = Vec::new();
    for path in fs::read_dir(folder)?.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((process, ending)) = name.split_once('.') else { continue };
        let Ok(process) = process.parse::<ProcessName>() else { continue };
        let unfinished = ending.starts_with(&format!("{ENDING}."));
        if ending != ENDING && !unfinished {
            continue;
        }
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if !metadata.is_file() || metadata.uid() != user {
            continue;
        }
        let age = age(&metadata);
        if age > KEPT {
            let _ = fs::remove_file(&path);
        } else if !unfinished {
            found.push((process, age, path));
        }
    }
    Ok(found)
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // Follows no link, and does not block on a pipe that replaced the file meanwhile.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    file.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

fn age(found: &fs::Metadata) -> Duration {
    // A time in the future comes from a file just written by another clock.
    let modified = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    SystemTime::now().duration_since(modified).unwrap_or_default()
}

/// Writes a file atomically; only its user can read it.
fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let unfinished = unfinished(path);
    let mut file = match create(&unfinished) {
        // Left by a process that was killed while writing.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&unfinished)?;
            create(&unfinished)?
        }
        created => created?,
    };
    let written = file.write_all(contents).and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn private() -> (tempfile::TempDir, u32) {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        (folder, address::user())
    }

    fn set_age(path: &Path, age: Duration) {
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn numbers_are_left_where_an_exporter_is_and_nowhere_else() {
        let (folder, user) = private();
        let socket = folder.path().join("7-2.sock");
        assert!(!leave(&socket, "{}").unwrap(), "nobody looks");
        announce(folder.path(), user).unwrap();
        assert!(leave(&socket, "{\"pid\":7}").unwrap());
        let (found, beyond) = newest(folder.path(), user, 64).unwrap();
        assert!(beyond.is_empty());
        assert_eq!((found.len(), found[0].0.to_string(), found[0].2.as_str()), (1, "7-2".to_owned(), "{\"pid\":7}"));
        let mode = fs::metadata(folder.path().join("7-2.last")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        set_age(&folder.path().join(ANNOUNCEMENT), FRESH + Duration::from_secs(5));
        assert!(!leave(&folder.path().join("8.sock"), "{}").unwrap(), "it is gone");
        announce(folder.path(), user).unwrap();
        withdraw(folder.path(), user);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "what was left for it is gone, too");
        assert!(!leave(&folder.path().join("8.sock"), "{}").unwrap(), "it said so");
    }

    #[test]
    fn what_is_old_goes_and_what_is_not_ours_stays_and_is_not_read() {
        let (folder, user) = private();
        let path = |name: &str| folder.path().join(name);
        for name in ["1.last", "2.last", "3.last.99", "4.sock", "x.last"] {
            fs::write(path(name), name).unwrap();
        }
        for name in ["2.last", "3.last.99"] {
            set_age(&path(name), KEPT + Duration::from_secs(5));
        }
        symlink(path("x.last"), path("5.last")).unwrap();
        let (found, _) = newest(folder.path(), user, 64).unwrap();
        assert_eq!(found.into_iter().map(|(process, ..)| process.id).collect::<Vec<_>>(), [1]);
        let left = ["1.last", "2.last", "3.last.99", "4.sock", "x.last", "5.last"].map(|name| path(name).exists());
        assert_eq!(left, [true, false, false, true, true, true]);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(newest(folder.path(), user, 64).is_err() && announce(folder.path(), user).is_err(), "open to others");
    }
    #[test]
    fn of_many_the_newest_are_read_and_the_others_are_named() {
        let (folder, user) = private();
        for process in 1..=5_u64 {
            let path = folder.path().join(format!("{process}.last"));
            fs::write(&path, "{}").unwrap();
            set_age(&path, Duration::from_secs(process * 10));
        }
        let (found, beyond) = newest(folder.path(), user, 2).unwrap();
        assert_eq!(found.into_iter().map(|(process, ..)| process.id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(beyond.into_iter().map(|process| process.id).collect::<Vec<_>>(), [3, 4, 5]);
    }
}
