//! Whether traces can be written where the user wants them, before the program starts.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use gpuwhy_inject::config::{self, Pattern};

/// Why libprof.so could not write there. It makes missing folders, and gives the file a number if one exists.
pub fn problem(pattern: &Pattern) -> Option<String> {
    let path = pattern.expand(std::process::id(), "host").path;
    let path = std::path::absolute(&path).unwrap_or(path);
    let why = unfit(&path)?;
    Some(format!("--output ({}): {}: {why}", config::OUTPUT, path.display()))
}

fn unfit(path: &Path) -> Option<String> {
    match fs::metadata(path).map(|about| about.file_type()) {
        Ok(found) if found.is_char_device() => return None,
        Ok(found) if found.is_dir() => return Some("is a folder; name a file in it, such as %p.gpuwhy".to_owned()),
        Ok(found) if !found.is_file() => return Some("exists and is no file".to_owned()),
        _ => {}
    }
    let folders: Vec<PathBuf> = path.ancestors().skip(1).map(Path::to_owned).collect();
    let folder = folders.iter().find(|folder| fs::symlink_metadata(folder).is_ok())?;
    let missing = folders.first() != Some(folder);
    let what = if missing { "cannot make its folder in" } else { "cannot write to" };
    // Also finds a file system that is read-only, or has no room for a file.
    tempfile::tempfile_in(folder).err().map(|error| format!("{what} {}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let said = |path: &Path| unfit(path);
        for fit in
            [folder.path().join("x.gpuwhy"), folder.path().join("new/er/x.gpuwhy"), file.clone(), "/dev/null".into()]
        {
            assert_eq!(said(&fit), None, "{}", fit.display());
        }
        assert!(said(folder.path()).is_some_and(|why| why.contains("is a folder")));
        assert!(said(&file.join("x.gpuwhy")).is_some_and(|why| why.contains("cannot write to")));
        assert!(said(&file.join("new/x.gpuwhy")).is_some_and(|why| why.contains("cannot make its folder")));
        assert!(said(Path::new("/proc/none/x.gpuwhy")).is_some_and(|why| why.contains("/proc")));
    }
}
