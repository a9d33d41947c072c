//! A database from an untrusted source. It is opened read-only, and the cost of reading it is limited.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, Result};

use crate::error::OpenError;

/// Maximum length of a text or row, bytes. Kernel names reach some ten kilobytes.
const LONGEST: i32 = 16 << 20;
/// SQLite virtual machine instructions between two checks of their number.
const BETWEEN: u32 = 1 << 16;
/// Instructions that reading may take: a fixed number, plus a number per byte of the file. Exports took 0.2
/// to 0.6 per byte.
const ALLOWED: u64 = 20_000_000;
const ALLOWED_PER_BYTE: u64 = 100;

/// A read-only database.
pub(crate) struct Database {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Set if reading exceeded the limit.
    excessive: Arc<AtomicBool>,
}

impl Database {
    /// Opens only `file`, as it is on disk, without the changes that another process may be writing next to
    /// it. `path` is the name that users know.
    pub(crate) fn open(file: &Path, path: &Path) -> std::result::Result<Self, OpenError> {
        let metadata = std::fs::metadata(file).map_err(|error| OpenError::io(path, error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let absolute = std::path::absolute(file).map_err(|error| OpenError::io(path, error))?;
        let connection = Connection::open_with_flags(uri(&absolute), flags)
            .and_then(restricted)
            .map_err(|error| OpenError::sqlite(path, &error))?;
        let excessive = Arc::new(AtomicBool::new(false));
        bounded(&connection, metadata.len(), Arc::clone(&excessive));
        Ok(Self { connection, path: path.to_owned(), bytes: metadata.len(), excessive })
    }

    /// Error of reading the file, partly in SQLite's words.
    pub(super) fn failed(&self, error: &rusqlite::Error) -> OpenError {
        if self.excessive.load(Ordering::Relaxed) {
            let why = format!(
                "reading it takes more than {ALLOWED_PER_BYTE} steps of SQLite for each of its {} bytes: it is damaged, or \
                 made to keep its reader busy; `sqlite3 FILE .dump | sqlite3 NEW` makes a new one of what it holds",
                self.bytes
            );
            return OpenError::refused(&self.path, why);
        }
        OpenError::sqlite(&self.path, error)
    }

    /// Describes changes to the file that are stored next to it and are not read.
    pub(super) fn unread(&self) -> Option<String> {
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        let has_changes = std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > 0);
        has_changes.then(|| {
            let log = Path::new(&log).display();
            format!(
                "changes that lie in {log} are not read: opening the file with sqlite3 and closing it brings them in"
            )
        })
    }
}

/// A read-only connection still creates files next to a database in WAL mode, and fails in a read-only
/// folder; an immutable file has neither problem.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(byte.into()),
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri + "?immutable=1"
}

fn restricted(connection: Connection) -> Result<Connection> {
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    Ok(connection)
}

fn bounded(connection: &Connection, bytes: u64, excessive: Arc<AtomicBool>) {
    let allowed = ALLOWED.saturating_add(bytes.saturating_mul(ALLOWED_PER_BYTE));
    let mut done = 0u64;
    let stop = move || {
        done = done.saturating_add(BETWEEN.into());
        let stop = done > allowed;
        excessive.fetch_or(stop, Ordering::Relaxed);
        stop
    };
    connection.progress_handler(BETWEEN as i32, Some(stop));
}

#[cfg(test)]
mod tests {
    use super::{Database, uri};

    #[test]
    fn any_path_is_one_uri() {
        let of = |path: &str| uri(path.as_ref());
        assert_eq!(of("/tmp/a b?mode=rw#%2f.sqlite"), "file:///tmp/a%20b%3Fmode%3Drw%23%252f.sqlite?immutable=1");
        assert_eq!(of("//tmp/x"), "file:////tmp/x?immutable=1");
    }

    #[test]
    fn reading_that_never_ends_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x?.sqlite");
        rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
        let database = Database::open(&path, &path).unwrap();
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
        let error = database.connection.query_row(endless, [], |_| Ok(())).unwrap_err();
        let reported = database.failed(&error).to_string();
        assert!(reported.contains("x?.sqlite: reading it takes more than 100 steps"), "{reported}");
        let long = database.connection.query_row("SELECT length(hex(zeroblob(9000000)))", [], |_| Ok(()));
        assert!(long.unwrap_err().to_string().contains("too big"));
        assert!(database.connection.execute("DELETE FROM a", []).is_err());
    }
}
