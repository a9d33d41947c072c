//! Measured gains of remedies, lines of the same file as the runs.

use gpuwhy_trace::json_text::Object;

use super::{LineVersion, hash, program};

/// Start of every line.
const FIRST_FIELD: &[u8] = b"{\"gpuwhy_measured\":";

/// The gain that a remedy had when it was tried.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
pub struct Measured {
    /// Version of the line.
    pub gpuwhy_measured: LineVersion,
    /// Time of the measurement, nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// Host name.
    pub host: String,
    /// Version of gpuwhy that measured it.
    pub version: String,
    /// The program, as [`super::Run::program`] names it.
    pub program: String,
    /// A hash of its arguments, which may hold secrets.
    pub arguments: u64,
    /// Name of the remedy.
    pub remedy: String,
    /// Remedies that it built on.
    pub on_top_of: Vec<String>,
    /// Time per step without the remedy divided by that with it.
    pub gain: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Number of pairs of runs.
    pub pairs: u64,
}

impl Measured {
    /// The line with its terminator.
    pub fn line(&self) -> String {
        Object::new()
            .field("gpuwhy_measured", super::VERSION)
            .field("at_ns", self.at_ns)
            .field("host", &self.host)
            .field("version", &self.version)
            .field("program", &self.program)
            .field("arguments", self.arguments)
            .field("remedy", &self.remedy)
            .field("on_top_of", &self.on_top_of)
            .field("gain", self.gain)
            .field("low", self.low)
            .field("high", self.high)
            .field("pairs", self.pairs)
            .end()
    }

    /// True for such a line.
    pub fn is_line(line: &[u8]) -> bool {
        line.starts_with(FIRST_FIELD)
    }
}

impl Measured {
    /// True if it was measured with this command on `host`.
    pub fn is_of(&self, command: &[String], host: &str) -> bool {
        self.host == host && self.arguments == arguments(command) && self.program == program(command)
    }
}

/// The hash of a command's arguments.
pub fn arguments(command: &[String]) -> u64 {
    hash(&command.get(1..).unwrap_or_default().join("\0"))
}

/// The last measured gain of `remedy` for this command on `host`; `None` if it was never tried there.
pub fn measured<'a>(lines: &'a [Measured], command: &[String], host: &str, remedy: &str) -> Option<&'a Measured> {
    let alike = |line: &&Measured| line.remedy == remedy && line.is_of(command, host);
    lines.iter().filter(alike).max_by_key(|line| line.at_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Run;

    fn line(at_ns: u64, host: &str, script: &str, remedy: &str) -> Measured {
        let (command, host, remedy) = (command(&[script]), host.to_owned(), remedy.to_owned());
        Measured {
            at_ns,
            host,
            program: program(&command),
            arguments: arguments(&command),
            remedy,
            ..Measured::default()
        }
    }

    fn command(words: &[&str]) -> Vec<String> {
        ["python3"].iter().chain(words).map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn the_last_one_of_this_program_on_this_host_counts() {
        let lines = [
            line(1, "a", "train.py", "pinned"),
            line(3, "a", "train.py", "pinned"),
            line(2, "a", "train.py", "pinned"),
            line(4, "b", "train.py", "pinned"),
            line(5, "a", "other.py", "pinned"),
            line(6, "a", "train.py", "gc"),
        ];
        assert_eq!(measured(&lines, &command(&["train.py"]), "a", "pinned"), Some(&lines[1]));
        assert_eq!(measured(&lines, &command(&["train.py"]), "b", "gc"), None);
        assert_eq!(measured(&lines, &command(&["train.py", "--small"]), "a", "pinned"), None);
    }

    #[test]
    fn a_line_is_recognized() {
        let text = line(1, "a", "train.py", "pinned").line();
        assert!(Measured::is_line(text.as_bytes()) && text.ends_with("}\n"), "{text}");
        assert!(!Measured::is_line(Run::default().line().as_bytes()));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_line_comes_back() {
        let line = Measured { gain: 3.84, low: 3.8, high: 3.9, pairs: 3, ..line(7, "a", "train.py", "bf16") };
        assert_eq!(serde_json::from_str::<Measured>(&line.line()).unwrap(), line);
        let newer = line.line().replace("\"gpuwhy_measured\":1", "\"gpuwhy_measured\":2");
        assert!(serde_json::from_str::<Measured>(&newer).unwrap_err().to_string().contains("version 2"));
    }
}
