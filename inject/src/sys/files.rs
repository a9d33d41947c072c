//! New files, which never overwrite another.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, FileExt as _, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Creates `path`, or if it exists `stem-1.ext`, `stem-2.ext`, ...: a trace never overwrites another. Only the user can
/// read it, since it holds the program's command line and names. Creates missing folders. A character device, such as
/// /dev/null, is written to as it is, and a link to one is not followed. Returns the system's error for the first name
/// that does not exist. Fails if `path` is a folder, a pipe (opening one may never return) or something else that is
/// not a file.
pub fn create_new(path: PathBuf) -> io::Result<(File, PathBuf)> {
    match fs::symlink_metadata(&path).map(|metadata| metadata.file_type()) {
        Ok(found) if found.is_char_device() => return Ok((open_device(&path)?, path)),
        Ok(found) if found.is_symlink() && fs::metadata(&path).is_ok_and(|target| !target.is_file()) => {
            return Err(unfit("is a link to something that is no file; name that itself"));
        }
        Ok(found) if !found.is_file() && !found.is_symlink() => return Err(unfit("exists and is no file")),
        Ok(_) => {}
        Err(_) => make_parent(&path)?,
    }
    let mut candidate = path.clone();
    for number in 1.. {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&candidate) {
            Ok(file) => return Ok((file, candidate)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
                candidate = path.with_file_name(format!("{stem}-{number}{extension}"));
            }
            Err(error) => return Err(error),
        }
    }
    unreachable!("the loop returns before its counter ends")
}

/// Appends `line`, which ends with a line break, in one call, so that processes that append at the same time do not
/// mix. Creates a missing file for the user alone, and missing folders. If another process left an incomplete line,
/// ends it first. Returns the system's error. Fails if it is a link or not a file (opening a pipe may never return), if
/// it is larger than `most` bytes, or if its first `beginning` bytes are not in our format.
pub fn append(path: &Path, line: &str, most: u64, (beginning, is_ours): (u64, fn(&[u8]) -> bool)) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // Fails at once for a pipe without a reader, and for a file with a mandatory lock.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path);
    let mut file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => unfit("is a symbolic link; name its target"),
        _ => error,
    })?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(unfit("exists and is no file"));
    }
    if about.len() > most {
        return Err(unfit(&format!("is larger than {most} bytes; move it away")));
    }
    let mut first = Vec::new();
    (&file).take(beginning).read_to_end(&mut first)?;
    if !is_ours(&first) {
        return Err(unfit("exists and holds something else, so nothing is added to it"));
    }
    let mut last = [b'\n'];
    if let Some(at) = about.len().checked_sub(1) {
        let _ = file.read_at(&mut last, at)?;
    }
    let start = if last == *b"\n" { "" } else { "\n" };
    file.write_all(format!("{start}{line}").as_bytes())
}

fn unfit(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Opens it without making a terminal the controlling one.
fn open_device(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY).open(path)
}

/// Creates the missing folders of a file, as `mkdir -p` does, but never writable for others.
fn make_parent(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => DirBuilder::new().recursive(true).mode(0o755).create(folder),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn folders_are_made_and_only_the_user_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = create_new(folder.path().join("run1/a/x.gpuwhy")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap()) & 0o722), (0o600, 0o700));
        assert!(create_new(path.join("below/a/file")).is_err());
    }

    #[test]
    fn a_link_to_a_device_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("x.gpuwhy");
        symlink("/dev/null", &link).unwrap();
        assert!(create_new(link).unwrap_err().to_string().contains("a link"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // A link with a missing target, or to a file, occupies the name.
        for (name, target) in [("y.gpuwhy", "nowhere"), ("z.gpuwhy", "file")] {
            fs::write(folder.path().join("file"), "precious").unwrap();
            symlink(folder.path().join(target), folder.path().join(name)).unwrap();
            let (_, path) = create_new(folder.path().join(name)).unwrap();
            assert_eq!(path, folder.path().join(name.replace('.', "-1.")));
        }
        assert!(!folder.path().join("nowhere").exists());
        assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "precious");
    }

    #[test]
    fn nothing_is_appended_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for target in ["nowhere", "file"] {
            let link = folder.path().join(format!("to-{target}"));
            symlink(folder.path().join(target), &link).unwrap();
            let error = append(&link, "{}\n", 1 << 20, (1, |_| true)).unwrap_err().to_string();
            assert!(error.contains("a symbolic link"), "{error}");
        }
        assert!(!folder.path().join("nowhere").exists());
        assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "");
    }

    #[test]
    fn a_device_is_a_sink_and_a_folder_is_none() {
        let (_, path) = create_new(PathBuf::from("/dev/null")).unwrap();
        assert_eq!(path, PathBuf::from("/dev/null"));
        let folder = tempfile::tempdir().unwrap();
        assert!(create_new(folder.path().to_owned()).unwrap_err().to_string().contains("no file"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_existing_file_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gpuwhy");
        fs::write(&path, "precious").unwrap();
        let (_, second) = create_new(path.clone()).unwrap();
        let (_, third) = create_new(path.clone()).unwrap();
        assert_eq!(second, folder.path().join("a-1.gpuwhy"));
        assert_eq!(third, folder.path().join("a-2.gpuwhy"));
        assert_eq!(fs::read_to_string(path).unwrap(), "precious");
    }
}
