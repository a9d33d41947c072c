//! Hang reports of the ranks of a job, from files: responses to `hang`, one per line, and dumps of PyTorch's
//! flight recorder, as pickles or JSON.

mod answer;
mod flight_recorder;
mod pickle;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use gpuwhy_compare::hang::RankReport;
use serde_json::Value;

/// Maximum size of a file, bytes: responses of 10,000 ranks are some 5 MB.
const LARGEST: u64 = 256 << 20;

/// Contents of a file.
#[derive(Debug, Default)]
pub struct RankReports {
    /// Hang reports, one per rank.
    pub rank_reports: Vec<RankReport>,
    /// Processes that did not respond: sentences that name the host or the file.
    pub silent: Vec<String>,
    /// Unreadable parts and remarks: sentences that name the file and the line.
    pub notes: Vec<String>,
}

/// The reason why a file is unusable. The sentence names the file.
#[derive(Debug)]
pub struct RankReportError(String);

impl std::fmt::Display for RankReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RankReportError {}

impl RankReports {
    /// Reads a file.
    ///
    /// # Errors
    /// Fails if it cannot be read, is too large, or has neither format.
    pub fn open(path: &Path) -> Result<Self, RankReportError> {
        let failed = |error: io::Error| RankReportError(format!("{}: {error}", path.display()));
        let mut bytes = Vec::new();
        File::open(path).map_err(failed)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self::read(&bytes, &path.display().to_string(), trailing_number(&name))
    }

    /// Reads the contents of `name`. A dump of the flight recorder lacks its rank, so `rank` provides it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read(bytes: &[u8], name: &str, rank: Option<u32>) -> Result<Self, RankReportError> {
        let refused = |why: String| RankReportError(format!("{name}: {why}"));
        if bytes.len() as u64 > LARGEST {
            return Err(refused("the file has more than 256 MiB".to_owned()));
        }
        let of_recorder = |dump: &Value| {
            let rank = rank.ok_or_else(|| {
                refused(
                    "a dump of the flight recorder, and its name does not end with the rank. Name it as PyTorch does \
                     (TORCH_NCCL_DEBUG_INFO_TEMP_FILE and the rank), as in nccl_trace_rank_3."
                        .to_owned(),
                )
            })?;
            let rank_report = flight_recorder::rank_report(dump, rank, name).map_err(refused)?;
            Ok(Self { rank_reports: vec![rank_report], ..Self::default() })
        };
        if bytes.first() == Some(&0x80) {
            let dump = pickle::read(bytes).map_err(|error| refused(format!("as a pickle: {error}")))?;
            return of_recorder(&dump);
        }
        if let Ok(dump) = serde_json::from_slice::<Value>(bytes)
            && dump.get("entries").is_some()
        {
            return of_recorder(&dump);
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            refused(format!("neither answers of ranks nor a dump: byte {}: no text", error.valid_up_to()))
        })?;
        let mut found = Self::default();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            found.line(line, &format!("{name}: line {number}"));
        }
        if found.rank_reports.is_empty() && found.silent.is_empty() && found.notes.is_empty() {
            found.notes.push(format!("{name}: no answers of ranks"));
        }
        Ok(found)
    }

    /// Takes the response of a process; `place` is its origin.
    pub fn line(&mut self, line: &str, place: &str) {
        // Launchers put the rank in front, as `srun --label` does.
        let json = line.find('{').map_or(line, |begin| &line[begin..]);
        match serde_json::from_str::<Value>(json) {
            Ok(value) if value["type"] == "silent" => {
                let (process, why) = answer::silent(&value);
                self.silent.push(format!("{place}: process {process} does not respond: {why}"));
            }
            Ok(value) => match answer::rank_report(&value) {
                Ok(rank_report) => self.rank_reports.push(rank_report),
                Err(why) => self.notes.push(format!("{place}: {why}")),
            },
            Err(error) => self.notes.push(format!("{place}: no answer of a rank: {error}")),
        }
    }
}

/// Number at the end of a name, before its extension.
fn trailing_number(name: &str) -> Option<u32> {
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    let digits = stem.len() - stem.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    stem[stem.len() - digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_recognized_and_others_refused_by_name() {
        for (name, rank) in [("nccl_trace_rank_12", Some(12)), ("rank3.json", Some(3)), ("dump", None)] {
            assert_eq!(trailing_number(name), rank);
        }
        let error = RankReports::read(br#"{"entries": []}"#, "dump", None).unwrap_err().to_string();
        assert!(error.starts_with("dump: ") && error.contains("nccl_trace_rank_3"), "{error}");
        let error = RankReports::read(&[0x80, 2, b'?'], "x_1", Some(1)).unwrap_err().to_string();
        assert!(error.contains("x_1: as a pickle: byte 2"), "{error}");
        assert!(RankReports::read(&[0xff, 0xfe], "y", None).unwrap_err().to_string().contains("y: neither"));
        let found = RankReports::read(b"3: {\"type\":\"hang\"}\nnot json\n", "z", None).unwrap();
        assert_eq!(found.rank_reports.len(), 0);
        assert!(
            found.notes[0].starts_with("z: line 1: ") && found.notes[1].starts_with("z: line 2: "),
            "{:?}",
            found.notes
        );
    }
}
