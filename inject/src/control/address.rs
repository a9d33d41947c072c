//! Location of the control sockets: one folder per user, one socket per process.
//!
//! Server and client use this file, so they cannot disagree. If `GPUWHY_CONTROL` names a folder, it is the
//! only one. `/tmp` is writable by all users: another user who creates `/tmp/gpuwhy-<uid>` first could learn
//! who listens, reply in a process's name, or have the client delete files. So both sides use a folder only
//! after the same check, and also check the user at the other end of each connection.

use std::fmt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, io, thread};

use crate::config;
use crate::sys::sockets;
use profiler_core::sorting::SortRows as _;

/// Maximum number of processes with the same id, in containers that share a folder, that can have sockets.
const NAMESAKES: u32 = 100;
/// Interval between two attempts to connect to a process whose connection queue is full.
const RETRY: Duration = Duration::from_millis(20);

/// User that owns the sockets: the effective user of this process.
pub fn user() -> u32 {
    sockets::user_id()
}

/// Possible folders of a user's sockets, the preferred one first: only the folder that `GPUWHY_CONTROL`
/// names, or a folder in `XDG_RUNTIME_DIR` and one in `/tmp`. An `XDG_RUNTIME_DIR` of another user, as under
/// `sudo -E`, is not used: a folder created there would lock that user out.
pub fn folders(user: u32) -> Vec<PathBuf> {
    let named = env::var_os(config::CONTROL).map(PathBuf::from);
    if let Some(folder) = named.filter(|folder| folder.is_absolute()) {
        return vec![folder];
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = runtime.filter(|folder| fs::metadata(folder).is_ok_and(|found| found.uid() == user));
    let own = own.map(|folder| folder.join("gpuwhy"));
    own.into_iter().chain([PathBuf::from(format!("/tmp/gpuwhy-{user}"))]).collect()
}

/// A process as its socket names it: `4711`, or `4711-2` for the second one with this id, in another
/// container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessName {
    /// Process id.
    pub id: u32,
    /// 1, or more if others have the same id.
    pub number: u32,
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { id, number: 1 } => write!(f, "{id}"),
            Self { id, number } => write!(f, "{id}-{number}"),
        }
    }
}

impl FromStr for ProcessName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (id, number) = text.split_once('-').unwrap_or((text, "1"));
        let parsed = id.parse().ok().zip(number.parse().ok());
        parsed.map(|(id, number)| Self { id, number }).ok_or("expected a process id, as `gpuwhy top` lists them")
    }
}

/// Lists the sockets in a folder that passed [`check`], with the process of each, ascending. Ignores
/// everything that is not a socket of `user`.
pub fn sockets(folder: &Path, user: u32) -> Vec<(ProcessName, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.strip_suffix(".sock")?.parse().ok()?;
            inode(&entry.path(), user).map(|_| (process, entry.path()))
        })
        .collect();
    found.sort_rows_by(Ord::cmp);
    found
}

/// Checks that a folder belongs to this user and is closed to others. Fails with the reason if it does not; with
/// `NotFound` if there is none.
pub fn check(folder: &Path, user: u32) -> io::Result<()> {
    // Does not follow links.
    let found = fs::symlink_metadata(folder)?;
    let mode = found.mode() & 0o7777;
    let wrong = match () {
        () if !found.is_dir() => "is no folder".to_owned(),
        () if found.uid() != user => format!("belongs to user {}, not to user {user}", found.uid()),
        () if mode & 0o077 != 0 => format!("is open to other users (mode {mode:o}, expected 700)"),
        () => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {wrong}", folder.display())))
}

/// Connects to a socket within `timeout`; `None` if no process listens. Removes the socket that a killed process left.
/// The stream is nonblocking. Fails if the socket or the process at its other end does not belong to this user, or if
/// the process does not accept the connection.
pub fn connect(socket: &Path, user: u32, timeout: Duration) -> io::Result<Option<UnixStream>> {
    let deadline = Instant::now() + timeout;
    loop {
        let Ok(found) = fs::symlink_metadata(socket) else { return Ok(None) };
        let Some(seen) = own(&found, user) else { return Err(denied("is no socket of this user")) };
        let error = match sockets::connect(socket) {
            Ok(stream) if sockets::peer_user_id(&stream) == Some(user) => return Ok(Some(stream)),
            Ok(_) => return Err(denied("is answered by another user")),
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::NotFound => return Ok(None),
            io::ErrorKind::ConnectionRefused => {
                remove(socket, user, seen);
                return Ok(None);
            }
            // Its queue is full: the process is stopped, or very slow.
            io::ErrorKind::WouldBlock if Instant::now() < deadline => thread::sleep(RETRY),
            io::ErrorKind::WouldBlock => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes no connections: is it stopped?"));
            }
            _ => return Err(error),
        }
    }
}

fn denied(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Socket file that this process listens on.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    user: u32,
    inode: Inode,
}

impl SocketFile {
    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, unless another file has its name by now. While the process listens, no other file
    /// gets its inode.
    pub fn remove(&self) {
        remove(&self.path, self.user, self.inode);
    }
}

/// Creates the control socket of `process` in the first usable folder of the user, and listens on it. If none is
/// usable, fails with the error of the first one.
pub fn listen(user: u32, process: u32) -> io::Result<(UnixListener, SocketFile)> {
    let mut failure = None;
    for folder in folders(user) {
        match make_private(&folder, user).and_then(|()| bind(&folder, user, process)) {
            Ok(found) => return Ok(found),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// Creates a folder that belongs to this user and is closed to others, if there is none. Fails if it cannot be created,
/// or if an existing one is not private.
pub fn make_private(folder: &Path, user: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display())))
        }
        _ => check(folder, user),
    }
}

/// Listens in `folder`. Between binding and listening, a socket refuses connections like that of a killed
/// process, which clients remove. So it listens before it gets the name that clients search for.
fn bind(folder: &Path, user: u32, id: u32) -> io::Result<(UnixListener, SocketFile)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unnamed = folder.join(format!("{id}.{}", now.subsec_nanos()));
    let listener = UnixListener::bind(&unnamed)?;
    let mode = fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600));
    let place = mode.and_then(|()| name(&unnamed, folder, user, id));
    let _ = fs::remove_file(&unnamed);
    Ok((listener, place?))
}

/// Gives the socket the first name that has no listener: a process of another container may have the same
/// process id and folder.
fn name(unnamed: &Path, folder: &Path, user: u32, id: u32) -> io::Result<SocketFile> {
    for number in 1..=NAMESAKES {
        let path = folder.join(format!("{}.sock", ProcessName { id, number }));
        if !matches!(connect(&path, user, Duration::ZERO), Ok(None)) {
            continue;
        }
        match fs::hard_link(unnamed, &path) {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            linked => linked?,
        }
        let inode = inode(&path, user).ok_or(io::ErrorKind::NotFound)?;
        return Ok(SocketFile { path, user, inode });
    }
    let taken = format!("{}: {NAMESAKES} processes have the id {id} here", folder.display());
    Err(io::Error::new(io::ErrorKind::AddrInUse, taken))
}

/// Device and inode number of a file.
type Inode = (u64, u64);

/// Inode of a path that is a socket of this user, and not a link to one.
fn inode(path: &Path, user: u32) -> Option<Inode> {
    own(&fs::symlink_metadata(path).ok()?, user)
}

/// Inode of a file that is a socket of this user.
fn own(found: &fs::Metadata, user: u32) -> Option<Inode> {
    (found.file_type().is_socket() && found.uid() == user).then(|| (found.dev(), found.ino()))
}

/// Removes a socket if it is still this one. If that fails, a later call finds it again.
fn remove(path: &Path, user: u32, wanted: Inode) {
    if inode(path, user) == Some(wanted) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A folder that passes the check, and its user.
    fn private() -> (tempfile::TempDir, PathBuf, u32) {
        let place = tempfile::tempdir().unwrap();
        let user = fs::metadata(place.path()).unwrap().uid();
        let folder = place.path().join("gpuwhy");
        make_private(&folder, user).unwrap();
        (place, folder, user)
    }

    #[test]
    fn only_a_folder_of_ones_own_is_used() {
        let (place, folder, user) = private();
        make_private(&folder, user).unwrap();
        let why = |folder: &Path, user| check(folder, user).unwrap_err().to_string();
        assert!(why(&folder, user + 1).contains(&format!("belongs to user {user}")), "another's");
        let link = place.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(why(&link, user).contains("no folder"), "a link");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(why(&folder, user).contains("mode 755"), "open to others");
        assert_eq!(check(&place.path().join("none"), user).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_socket_that_can_be_found_takes_connections() {
        let (_place, folder, user) = private();
        let done = AtomicBool::new(false);
        // They listen to the end, so that no file gets the inode of another one.
        let mut listeners = Vec::new();
        let (refused, removed) = thread::scope(|scope| {
            // Acts like a client that constantly requests the state of all processes.
            let asking = scope.spawn(|| {
                let mut refused = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    let found = sockets(&folder, user);
                    let answers = found.iter().map(|(_, socket)| connect(socket, user, Duration::from_secs(10)));
                    refused.extend(answers.filter_map(Result::err));
                }
                refused
            });
            let mut removed = 0;
            for (listener, place) in (0..200).filter_map(|_| bind(&folder, user, 4711).ok()) {
                removed += usize::from(inode(&place.path, user) != Some(place.inode));
                place.remove();
                listeners.push(listener);
            }
            done.store(true, Ordering::Relaxed);
            (asking.join().unwrap(), removed)
        });
        assert!(refused.is_empty(), "{refused:?}");
        assert_eq!((listeners.len(), removed), (200, 0), "removed by who found them");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing stays behind");
    }

    #[test]
    fn processes_are_named_as_they_are_read() {
        for name in ["4711", "1-2"] {
            assert_eq!(name.parse::<ProcessName>().unwrap().to_string(), name);
        }
        for name in ["", "x", "-1", "1-", "1-x", "99999999999"] {
            assert!(name.parse::<ProcessName>().is_err(), "{name}");
        }
    }

    #[test]
    fn sockets_are_listed_by_process_and_nothing_else_is() {
        let (_place, folder, user) = private();
        let _listeners =
            ["30", "4", "4-2", "x"].map(|name| UnixListener::bind(folder.join(format!("{name}.sock"))).unwrap());
        fs::write(folder.join("5.sock"), "precious").unwrap();
        symlink(folder.join("30.sock"), folder.join("6.sock")).unwrap();
        let found: Vec<_> = sockets(&folder, user).into_iter().map(|(process, _)| process.to_string()).collect();
        assert_eq!(found, ["4", "4-2", "30"]);
        assert!(sockets(&folder, user + 1).is_empty(), "of another user");
        assert!(sockets(&folder.join("nowhere"), user).is_empty());
    }

    #[test]
    fn only_a_socket_that_nobody_listens_on_is_removed() {
        let (_place, folder, user) = private();
        let [left, file, held] = ["1.sock", "2.sock", "3.sock"].map(|name| folder.join(name));
        drop(UnixListener::bind(&left).unwrap());
        fs::write(&file, "precious").unwrap();
        let _listener = UnixListener::bind(&held).unwrap();
        assert!(connect(&left, user, Duration::ZERO).unwrap().is_none());
        assert!(connect(&file, user, Duration::ZERO).is_err());
        assert!(connect(&held, user, Duration::ZERO).unwrap().is_some());
        assert_eq!([left, file, held].map(|path| path.exists()), [false, true, true]);
    }

    #[test]
    fn a_full_queue_is_waited_for_and_given_up() {
        let (_place, folder, user) = private();
        let (_listener, place) = bind(&folder, user, 7).unwrap();
        // Never accepted.
        let waiting: Vec<_> = std::iter::from_fn(|| sockets::connect(&place.path).ok()).take(100_000).collect();
        let error = connect(&place.path, user, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error} behind {}", waiting.len());
    }

    #[test]
    fn processes_with_one_id_get_sockets_of_their_own() {
        let (_place, folder, user) = private();
        let (_first, of_first) = bind(&folder, user, 1).unwrap();
        let (_second, of_second) = bind(&folder, user, 1).unwrap();
        assert_eq!(of_second.path, folder.join("1-2.sock"));
        assert!(of_first.path.exists(), "the first one's socket stays");
        // The first process's file is removed, and a third process takes the name: the first one leaves it in
        // place.
        fs::remove_file(&of_first.path).unwrap();
        let (_third, of_third) = bind(&folder, user, 1).unwrap();
        assert_eq!(of_third.path, of_first.path);
        of_first.remove();
        assert!(of_third.path.exists());
        of_third.remove();
        assert!(!of_third.path.exists() && of_second.path.exists());
    }
}
