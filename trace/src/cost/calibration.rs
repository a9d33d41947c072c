//! The file in which `gpuwhy doctor --calibrate` stores the overhead of tracing on a machine, as text.
//!
//! ```json
//! {"version": 1, "machines": [
//!   {"gpu": "NVIDIA H200", "driver": "580.159.04", "cupti": 130001, "processor": "Intel(R) Xeon(R) Processor",
//!    "prices_ns": {"kernel_launch": 921, ...}, "scatter_ns": {"kernel_launch": 40, ...}}
//! ]}
//! ```
//!
//! This module defines only the contents and the location; callers read and write the file.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use super::prices::{Calibration, LARGEST, NAME_LIMIT, NAMES, Prices};
use super::small_json::Json;
use crate::json_text::quoted;
use crate::short_text::cut;

/// Maximum file size in bytes; a longer file is not read.
pub const LARGEST_FILE: u64 = 256 << 10;
/// Maximum number of machines; beyond it, the oldest measurement is dropped.
pub const MACHINE_LIMIT: usize = 64;
const VERSION: f64 = 1.0;

/// Hardware and software that overheads depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Name of the GPU.
    pub gpu: String,
    /// Version of the kernel-mode driver.
    pub driver: String,
    /// CUPTI's version number.
    pub cupti: u32,
    /// Name of the CPU, from `/proc/cpuinfo`.
    pub processor: String,
}

/// One machine and its overhead table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Machine on which they were measured.
    pub machine: Machine,
    /// Medians.
    pub prices: Prices,
    /// Interquartile ranges, nanoseconds.
    pub scatter: Prices,
}

/// Why a calibration file is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFile {
    /// Not in the format that [`write()`] produces.
    Malformed,
    /// Written by a newer version.
    Newer,
}

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it is not a calibration file of gpuwhy",
            Self::Newer => "a newer version of gpuwhy wrote it",
        })
    }
}

impl std::error::Error for BadFile {}

/// Path of the file, from the values of `XDG_CACHE_HOME` and `HOME`. Relative paths are ignored, as XDG
/// requires.
pub fn path(cache_home: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
    let absolute = |path: Option<&OsStr>| path.map(Path::new).filter(|path| path.is_absolute()).map(Path::to_owned);
    let cache = absolute(cache_home).or_else(|| Some(absolute(home)?.join(".cache")))?;
    Some(cache.join("gpuwhy/calibration.json"))
}

/// Name of the first processor in the text of `/proc/cpuinfo`; empty if there is none.
pub fn processor_in(cpuinfo: &str) -> String {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut names = lines.filter(|(name, _)| ["model name", "CPU part", "cpu model"].contains(&name.trim()));
    names.next().map_or_else(String::new, |(_, name)| cut(name.trim(), NAME_LIMIT).to_owned())
}

/// Parses the machines in the text of a file.
///
/// # Errors
/// If the text is not in the format of [`write()`], or is of a newer version.
pub fn read(text: &str) -> Result<Vec<Entry>, BadFile> {
    let file = Json::of(text).ok_or(BadFile::Malformed)?;
    let version = file.get("version").and_then(Json::number).ok_or(BadFile::Malformed)?;
    if version > VERSION {
        return Err(BadFile::Newer);
    }
    let machines = file.get("machines").and_then(Json::array).ok_or(BadFile::Malformed)?;
    machines.iter().map(|machine| entry(machine).ok_or(BadFile::Malformed)).collect()
}

fn entry(from: &Json) -> Option<Entry> {
    let text = |name: &str| Some(cut(from.get(name)?.text()?, NAME_LIMIT).to_owned());
    let prices = |name: &str| {
        let prices = from.get(name)?;
        let of = |name: &str| prices.get(name).map_or(Some(0), |price| price.number().and_then(nanos));
        let mut numbers = [0; NAMES.len()];
        for (number, name) in numbers.iter_mut().zip(NAMES) {
            *number = of(name)?;
        }
        Some(Prices::from_array(numbers))
    };
    Some(Entry {
        machine: Machine {
            gpu: text("gpu")?,
            driver: text("driver")?,
            cupti: nanos_unlimited(from.get("cupti")?.number()?)?,
            processor: text("processor")?,
        },
        prices: prices("prices_ns")?,
        scatter: prices("scatter_ns")?,
    })
}

fn nanos(number: f64) -> Option<u32> {
    (0.0..=f64::from(LARGEST)).contains(&number).then_some(number as u32)
}

fn nanos_unlimited(number: f64) -> Option<u32> {
    (0.0..=f64::from(u32::MAX)).contains(&number).then_some(number as u32)
}

/// Text of a file with these machines.
pub fn write(entries: &[Entry]) -> String {
    let mut text = format!("{{\"version\": {VERSION}, \"machines\": [");
    for (index, Entry { machine, prices, scatter }) in entries.iter().enumerate() {
        let named = |prices: &Prices| {
            let pairs: Vec<_> =
                NAMES.iter().zip(prices.to_array()).map(|(name, price)| format!("\"{name}\": {price}")).collect();
            format!("{{{}}}", pairs.join(", "))
        };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{}\n  {{\"gpu\": {}, \"driver\": {}, \"cupti\": {}, \"processor\": {},\n   \"prices_ns\": {},\n   \"scatter_ns\": {}}}",
            if index == 0 { "" } else { "," },
            quoted(&machine.gpu),
            quoted(&machine.driver),
            machine.cupti,
            quoted(&machine.processor),
            named(prices),
            named(scatter),
        );
    }
    text + "\n]}\n"
}

/// Returns `entries` with `new` replacing any earlier entry of its machine.
#[must_use]
pub fn with(mut entries: Vec<Entry>, mut new: Entry) -> Vec<Entry> {
    new.machine.gpu = cut(&new.machine.gpu, NAME_LIMIT).to_owned();
    new.machine.processor = cut(&new.machine.processor, NAME_LIMIT).to_owned();
    entries.retain(|entry| entry.machine != new.machine);
    entries.push(new);
    let surplus = entries.len().saturating_sub(MACHINE_LIMIT);
    entries.drain(..surplus);
    entries
}

/// Overheads in `entries` for every GPU model measured with this driver, CUPTI and processor.
pub fn of_machine(entries: &[Entry], driver: &str, cupti: u32, processor: &str) -> Vec<Calibration> {
    let here = |entry: &&Entry| {
        entry.machine.driver == driver && entry.machine.cupti == cupti && entry.machine.processor == processor
    };
    let calibration = |entry: &Entry| Calibration { gpu: entry.machine.gpu.clone(), prices: entry.prices };
    entries.iter().filter(here).map(calibration).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(gpu: &str, driver: &str) -> Machine {
        Machine { gpu: gpu.into(), driver: driver.into(), cupti: 130_001, processor: "A \"fast\" one".into() }
    }

    fn known(gpu: &str, driver: &str, launch: u32) -> Entry {
        let prices = Prices { kernel_launch: launch, copy_gap: 3, ..Prices::default() };
        Entry { machine: machine(gpu, driver), prices, scatter: Prices { kernel_launch: 9, ..Prices::default() } }
    }

    #[test]
    fn what_is_written_is_read() {
        let entries = vec![known("NVIDIA H200", "580", 921), known("NVIDIA L4", "580", 1_200)];
        assert_eq!(read(&write(&entries)), Ok(entries.clone()));
        assert_eq!(read(&write(&[])), Ok(Vec::new()));
        let here = of_machine(&entries, "580", 130_001, "A \"fast\" one");
        assert_eq!(here.iter().map(|row| row.prices.kernel_launch).collect::<Vec<_>>(), [921, 1_200]);
        assert!(of_machine(&entries, "570", 130_001, "A \"fast\" one").is_empty());
        assert!(of_machine(&entries, "580", 130_002, "A \"fast\" one").is_empty());
        assert!(of_machine(&entries, "580", 130_001, "").is_empty());
    }

    #[test]
    fn a_machine_is_there_once_and_others_stay() {
        let entries = with(vec![known("a", "1", 1), known("b", "1", 2)], known("a", "1", 3));
        let rows: Vec<_> = entries.iter().map(|entry| (&*entry.machine.gpu, entry.prices.kernel_launch)).collect();
        assert_eq!(rows, [("b", 2), ("a", 3)]);
        let many = (0..100).fold(Vec::new(), |entries, number| with(entries, known(&number.to_string(), "1", 1)));
        assert_eq!((many.len(), &*many[0].machine.gpu), (MACHINE_LIMIT, "36"));
        assert!((write(&many).len() as u64) < LARGEST_FILE);
    }

    #[test]
    fn damage_and_newer_versions_are_distinguished() {
        for text in [
            "",
            "[]",
            "{}",
            "{\"version\": 1}",
            "{\"version\": 1, \"machines\": [{}]}",
            &write(&[known("a", "1", 1)])
                .replace("921", "-1")
                .replace("\"kernel_launch\": 1,", "\"kernel_launch\": -1,"),
            &write(&[known("a", "1", 1)]).replace("130001", "\"x\""),
        ] {
            assert_eq!(read(text), Err(BadFile::Malformed), "{text}");
        }
        assert_eq!(read("{\"version\": 2, \"machines\": 7}"), Err(BadFile::Newer));
        let partial = write(&[known("a", "1", 1)]).replace("\"copy_gap\": 3", "\"later\": 4");
        assert_eq!(read(&partial).unwrap()[0].prices.copy_gap, 0, "what is missing was not measured");
    }

    #[test]
    fn the_file_lies_in_the_cache_of_the_user() {
        let of = |cache: Option<&str>, home: Option<&str>| {
            let path = path(cache.map(OsStr::new), home.map(OsStr::new))?;
            path.to_str().map(str::to_owned)
        };
        assert_eq!(of(Some("/c"), Some("/h")).unwrap(), "/c/gpuwhy/calibration.json");
        assert_eq!(of(Some("relative"), Some("/h")).unwrap(), "/h/.cache/gpuwhy/calibration.json");
        assert_eq!(of(Some(""), None), None);
        let cpuinfo = "processor\t: 0\nmodel\t\t: 7\nmodel name\t: Intel(R) Xeon(R) Processor\nmodel name\t: other\n";
        assert_eq!(processor_in(cpuinfo), "Intel(R) Xeon(R) Processor");
        assert_eq!(processor_in(""), "");
    }
}
