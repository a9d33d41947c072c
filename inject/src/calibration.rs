//! Results of `gpuwhy doctor --calibrate` on this machine, for the trace.
//!
//! One small file is read at the start. If it is missing or invalid, the built-in table is used instead, and
//! the log records that at debug level: a report names the overheads that it used.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::{env, str};

use gpuwhy_trace::cost::Calibration;
use gpuwhy_trace::cost::calibration::{self, LARGEST_FILE};

/// Bytes of `/proc/cpuinfo` that are read: the first processor. The kernel generates the rest only on demand.
const FIRST_PROCESSOR: u64 = 4096;

/// Overheads per call that were measured with this driver, CUPTI and processor; empty if there are none.
pub fn of_this_machine(driver: &str, cupti: u32) -> Vec<Calibration> {
    let [cache, home] = ["XDG_CACHE_HOME", "HOME"].map(env::var_os);
    let Some(path) = calibration::path(cache.as_deref(), home.as_deref()) else { return Vec::new() };
    let found = of_file(&path, driver, cupti, &processor());
    match &found {
        Ok(rows) => tracing::debug!(path = %path.display(), gpus = rows.len(), "prices of tracing measured here"),
        Err(reason) => {
            tracing::debug!(path = %path.display(), reason, "prices of tracing are those of the built-in table");
        }
    }
    found.unwrap_or_default()
}

fn of_file(path: &Path, driver: &str, cupti: u32, processor: &str) -> Result<Vec<Calibration>, String> {
    let said = |error: io::Error| error.to_string();
    // Opening a pipe would block until a writer opens it.
    let about = fs::metadata(path).map_err(said)?;
    if !about.is_file() || about.len() > LARGEST_FILE {
        return Err("not a file of a calibration's size".to_owned());
    }
    let text = first_bytes(path, LARGEST_FILE).map_err(said)?;
    let text = str::from_utf8(&text).map_err(|error| error.to_string())?;
    let entries = calibration::read(text).map_err(|bad| bad.to_string())?;
    Ok(calibration::of_machine(&entries, driver, cupti, processor))
}

fn processor() -> String {
    let bytes = first_bytes(Path::new("/proc/cpuinfo"), FIRST_PROCESSOR).unwrap_or_default();
    calibration::processor_in(&String::from_utf8_lossy(&bytes))
}

fn first_bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::cost::Prices;
    use gpuwhy_trace::cost::calibration::{Entry, Machine};

    use super::*;

    #[test]
    fn a_file_is_read_and_whatever_is_none_is_passed_over_at_once() {
        let folder = env::temp_dir().join(format!("gpuwhy-calibration-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("calibration.json");
        let of = |path: &Path| of_file(path, "580", 130_001, "cpu").map(|rows| rows.len());
        assert!(of(&file).is_err(), "missing");
        let machine =
            Machine { gpu: "NVIDIA H200".into(), driver: "580".into(), cupti: 130_001, processor: "cpu".into() };
        let entry = Entry { machine, prices: Prices::default(), scatter: Prices::default() };
        fs::write(&file, calibration::write(std::slice::from_ref(&entry))).unwrap();
        assert_eq!(of(&file), Ok(1));
        fs::write(&file, "{").unwrap();
        assert!(of(&file).unwrap_err().contains("not a calibration file"));
        fs::write(&file, [0xff; 10]).unwrap();
        assert!(of(&file).is_err());
        fs::write(&file, vec![b' '; LARGEST_FILE as usize + 1]).unwrap();
        assert!(of(&file).unwrap_err().contains("size"));
        assert!(of(&folder).unwrap_err().contains("size"), "a folder");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn this_machine_has_a_processor() {
        assert!(!processor().is_empty());
    }
}
