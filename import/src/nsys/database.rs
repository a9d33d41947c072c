//! A database of others, opened so that nothing in it can harm: it is not written to, and what it may cost is bounded.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, Result};

use crate::error::OpenError;

/// The longest text or row that is read, bytes. Names of kernels reach some ten kilobytes.
const LONGEST: i32 = 16 << 20;
/// Instructions of SQLite's machine between two looks at how many there were.
const BETWEEN: u32 = 1 << 16;
/// Instructions that reading may take, in all and for each byte of the file. Exports were read with 0.2 to 0.6 for a
/// byte.
const ALLOWED: u64 = 20_000_000;
const ALLOWED_PER_BYTE: u64 = 100;

/// A database that is only read.
pub(crate) struct Database {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Set when reading took more than it may.
    excessive: Arc<AtomicBool>,
}

impl Database {
    /// Opens `file` and nothing beside it: as it is on the disk, without what another process may be writing. `path` is
    /// how users know it.
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

    /// What is wrong with the file, in words of which some are SQLite's.
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

    /// What changes to the file lie beside it and are not read.
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

/// A read-only connection still makes files beside a database in WAL mode, and cannot read it in a folder that it may
/// not write to; an immutable file needs neither.
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
        let told = database.failed(&error).to_string();
        assert!(told.contains("x?.sqlite: reading it takes more than 100 steps"), "{told}");
        let long = database.connection.query_row("SELECT length(hex(zeroblob(9000000)))", [], |_| Ok(()));
        assert!(long.unwrap_err().to_string().contains("too big"));
        assert!(database.connection.execute("DELETE FROM a", []).is_err());
    }
}
