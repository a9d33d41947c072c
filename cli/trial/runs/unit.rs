//! What a step of the program is: chosen in the first run, the same in all others.

use std::path::Path;

use gpuwhy_import::OpenError;
use gpuwhy_inject::config::RangeName;
use serde_json::Value;

use super::recorded::{Recorded, report};

/// Steps that the Python side counts.
const PYTHON: [&str; 4] = ["optimizer", "loop", "module", "loader"];

/// The unit of the times.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Its name in JSON: one of those above; `range`; `recorded`: what the engine finds; `work`: from the first to the
    /// last of the GPU in a recorded run; `run`.
    pub name: String,
    /// File and line of the loop whose passes are the steps, or name of the range.
    pub at: Option<String>,
    /// How the Python side knows that loop again.
    pub key: Value,
    /// That range.
    pub step: Option<RangeName>,
}

impl Unit {
    /// One without a place.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), at: None, key: Value::Null, step: None }
    }

    /// The range that is a step.
    pub fn range(step: RangeName) -> Self {
        Self { at: Some(step.to_string()), step: Some(step), ..Self::named("range") }
    }

    /// That of a result of the Python side; `None` if it names none.
    pub fn of(result: &Value) -> Option<Self> {
        let name = result["unit"].as_str().filter(|name| PYTHON.contains(name))?;
        let key = result["loop"].clone();
        let at = key["file"].as_str().zip(key["line"].as_u64()).map(|(file, line)| format!("{file}:{line}"));
        Some(Self { at, key, ..Self::named(name) })
    }

    /// True if a time is that of a run from start to end.
    pub fn is_run(&self) -> bool {
        self.name == "run"
    }

    /// True if a time is that of all of the work, so that a run must end by itself.
    pub fn is_whole(&self) -> bool {
        matches!(self.name.as_str(), "run" | "work")
    }

    /// True if libprof.so counts them.
    pub fn is_recorded(&self) -> bool {
        matches!(self.name.as_str(), "range" | "recorded" | "work")
    }

    /// True if a run need not end by itself, and gpuwhy ends it.
    pub fn is_cut(&self) -> bool {
        self.is_recorded() && !self.is_whole()
    }

    /// The steps in a trace.
    pub fn recorded(&self, trace: &Path) -> Result<Recorded, OpenError> {
        match &self.step {
            Some(step) => Recorded::of_ranges(trace, step),
            None => report(trace).map(|report| Recorded::of(&report)),
        }
    }

    /// What one is, as in "100 ms a step".
    pub fn words(&self) -> String {
        match (self.name.as_str(), &self.at) {
            ("run", _) => "a run".to_owned(),
            ("work", _) => "from the first to the last work of the GPU".to_owned(),
            ("range", Some(name)) => format!("a range {name}"),
            ("module", _) => "a call of the model".to_owned(),
            ("loader", _) => "a batch".to_owned(),
            ("loop", Some(at)) => format!("a pass of the loop at {at}"),
            ("loop", None) => "a pass of a loop".to_owned(),
            _ => "a step".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pass_of_a_loop_is_named_by_its_line() {
        let key = json!({"file": "train.py", "function": "main", "header": "for x in y:", "nth": 0, "line": 41});
        let unit = Unit::of(&json!({"unit": "loop", "loop": key})).unwrap();
        assert_eq!((unit.words().as_str(), &unit.key), ("a pass of the loop at train.py:41", &key));
        assert_eq!(Unit::of(&json!({"unit": "optimizer"})).unwrap().words(), "a step");
        assert_eq!(Unit::of(&json!({"unit": null})), None);
    }
}
