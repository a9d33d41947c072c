//! Where the sockets lie: one folder for each user, one socket for each process.
//!
//! Both ends use this file, so they cannot disagree. The folder is closed to everybody else, which is what keeps other
//! users out before their credentials are looked at.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The folder of a user's sockets: in `XDG_RUNTIME_DIR`, or else in `/tmp`.
#[must_use]
pub fn folder(user: u32) -> PathBuf {
    match env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => Path::new(&folder).join("gpuprof"),
        None => PathBuf::from(format!("/tmp/gpuprof-{user}")),
    }
}

/// The socket of a process.
#[must_use]
pub fn socket(folder: &Path, process: u32) -> PathBuf {
    folder.join(format!("{process}.sock"))
}

/// Sockets in a folder, with the process each belongs to, ascending.
#[must_use]
pub fn sockets(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.strip_suffix(".sock")?.parse().ok()?;
            Some((process, entry.path()))
        })
        .collect();
    found.sort();
    found
}

/// Makes the folder, and makes sure that it is this user's own and closed to others: `/tmp` is everybody's, and a
/// folder that somebody else put there would give away who listens.
///
/// # Errors
/// When it is not, or cannot be made.
pub fn make_private(folder: &Path, user: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Not of what a link points to.
    let found = fs::symlink_metadata(folder)?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} is not a folder of this user alone", folder.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_folder_of_ones_own_is_used() {
        let place = tempfile::tempdir().unwrap();
        let user = fs::metadata(place.path()).unwrap().uid();
        let folder = place.path().join("gpuprof");
        make_private(&folder, user).unwrap();
        make_private(&folder, user).unwrap();
        assert!(make_private(&folder, user + 1).is_err(), "another's");
        let link = place.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(make_private(&link, user).is_err(), "a link");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(make_private(&folder, user).is_err(), "open to others");
    }

    #[test]
    fn sockets_are_listed_by_process() {
        let place = tempfile::tempdir().unwrap();
        for name in ["30.sock", "4.sock", "x.sock", "5.txt"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        let found: Vec<_> = sockets(place.path()).into_iter().map(|(process, _)| process).collect();
        assert_eq!(found, [4, 30]);
        assert!(sockets(&place.path().join("nowhere")).is_empty());
    }
}
