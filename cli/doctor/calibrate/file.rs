//! The calibration file, which is read, changed, and replaced atomically.

use std::env;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gpuwhy_trace::cost::calibration::{self, Entry, LARGEST_FILE};

/// Path of this user's file. Fails when neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
pub fn path() -> Result<PathBuf> {
    let [cache, home] = ["XDG_CACHE_HOME", "HOME"].map(env::var_os);
    calibration::path(cache.as_deref(), home.as_deref())
        .context("no place for the calibration: neither XDG_CACHE_HOME nor HOME is an absolute path")
}

/// Entries of the file; empty when there is no file. Fails when it cannot be read or is not a calibration
/// file. Never changes the file.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= LARGEST_FILE);
    match text.as_deref().map_or(Err(calibration::BadFile::Malformed), calibration::read) {
        Ok(entries) => Ok(entries),
        Err(bad) => bail!("{} is left as it is: {bad}. Move it away to calibrate", path.display()),
    }
}

/// Adds `entry` to the file, or replaces the entry of the same machine. Readers find the old file or the new
/// one.
///
/// # Errors
/// As [`read`], and when it cannot be written.
pub fn add(path: &Path, entry: Entry) -> Result<()> {
    let text = calibration::write(&calibration::with(read(path)?, entry));
    let failed = || format!("cannot write {}", path.display());
    let folder = path.parent().with_context(failed)?;
    fs::create_dir_all(folder).with_context(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)?;
    file.persist(path).with_context(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::cost::Prices;
    use gpuwhy_trace::cost::calibration::Machine;

    use super::*;

    fn known(gpu: &str, kernel_launch: u32) -> Entry {
        let machine = Machine { gpu: gpu.into(), driver: "580".into(), cupti: 1, processor: "cpu".into() };
        Entry { machine, prices: Prices { kernel_launch, ..Prices::default() }, scatter: Prices::default() }
    }

    #[test]
    fn entries_of_other_machines_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/gpuwhy/calibration.json");
        for (gpu, launch) in [("a", 1), ("b", 2), ("a", 3)] {
            add(&path, known(gpu, launch)).unwrap();
        }
        let launches: Vec<_> = read(&path).unwrap().iter().map(|entry| entry.prices.kernel_launch).collect();
        assert_eq!(launches, [2, 3]);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn a_bad_file_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calibration.json");
        let long = " ".repeat(LARGEST_FILE as usize + 1);
        for text in ["not json", "{\"version\": 7, \"machines\": []}", &long] {
            fs::write(&path, text).unwrap();
            let error = format!("{:#}", add(&path, known("a", 1)).unwrap_err());
            assert!(error.contains(path.to_str().unwrap()) && error.contains("left as it is"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
