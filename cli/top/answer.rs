//! Status of a process, parsed from a line of JSON.
//!
//! Lines come from programs of other versions, and through a launcher from other machines. So a missing
//! field, or one with the wrong type, counts as absent, every list and text is bounded, and texts are escaped
//! for terminals here, once.

use gpuwhy_report::text_format::printable;
use profiler_core::leaf::Cause;
use serde_json::Value;

/// Maximum characters of a text.
const TEXT: usize = 600;
/// Maximum rows of a list.
const ROWS: usize = 64;
pub const CAUSES: usize = Cause::ALL.len();

/// Fields common to all responses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplyStatus {
    pub pid: u64,
    pub command: String,
    /// `waiting`, `capturing` or `finished`.
    pub state: String,
    pub captures: u64,
    /// Steps started, and the step at which a capture starts.
    pub steps: u64,
    pub starts_at_step: Option<u64>,
    /// Bottleneck, by its JSON name.
    pub bottleneck: String,
    /// 0 to 1.
    pub share: f64,
    /// The live line.
    pub line: String,
    pub kernels: u64,
    /// Number of lost records and range events.
    pub lost: u64,
    pub unobserved_ns: u64,
    pub trace: Option<String>,
}

/// Additional fields of a response to `live`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    pub host: String,
    /// Empty for an unnamed run.
    pub run: String,
    pub rank: Option<u64>,
    pub mode: String,
    pub observed_ns: u64,
    pub starting_up: bool,
    /// Current bottleneck, by its JSON name, and its share, 0 to 1.
    pub bottleneck: String,
    pub share: f64,
    /// Speedup of the program in the best case, and its interval, as factors.
    pub best_case: Option<f64>,
    pub interval: Option<(f64, f64)>,
    /// 0 to 1.
    pub busy: Option<f64>,
    /// Maximum slowdown of launching threads by tracing, 0 to 1.
    pub cost: Option<f64>,
    /// Number of bursts in mode auto.
    pub bursts: Option<u64>,
    pub steps: Option<StepsView>,
    pub evidence: Vec<String>,
    pub missing: Vec<String>,
    pub advice: String,
    pub devices: Vec<DeviceView>,
    pub devices_beyond: u64,
    pub kernels: Vec<TotalsRow>,
    pub lines: Vec<TotalsRow>,
    pub ranges: Vec<TotalsRow>,
}

/// Steps of the device with the longest window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepsView {
    pub noun: String,
    pub seen: u64,
    pub median_ns: u64,
    /// Durations of the most recent steps, oldest first, nanoseconds.
    pub newest_ns: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceView {
    pub id: u64,
    pub name: String,
    pub window_ns: u64,
    /// Intervals of at least a second, oldest first.
    pub windows: Vec<Window>,
}

/// Interval of a device's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// End of the interval, nanoseconds since the Unix epoch.
    pub end_ns: u64,
    /// Microseconds by cause, in the order of [`Cause::ALL`].
    pub causes: [u64; CAUSES],
}

/// A kernel, a line of code or a range, with its totals since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TotalsRow {
    pub name: String,
    pub count: Option<u64>,
    pub total_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusReply {
    pub status: ReplyStatus,
    /// `None` for a library that does not know `live`, and after measuring is finished.
    pub live: Option<Live>,
}

impl StatusReply {
    /// Parses a response to `live`, `watch` or `status`.
    pub fn of(json: &Value) -> Self {
        let live = json["devices"].is_array().then(|| live(json));
        Self { status: status(json), live }
    }
}

fn status(json: &Value) -> ReplyStatus {
    ReplyStatus {
        pid: number(json, "pid"),
        command: text(json, "command"),
        state: text(json, "state"),
        captures: number(json, "captures"),
        steps: number(json, "steps_begun"),
        starts_at_step: json["starts_at_step"].as_u64(),
        bottleneck: text(json, "bottleneck"),
        share: share(json, "share").unwrap_or(0.0),
        line: text(json, "line"),
        kernels: number(json, "kernels"),
        lost: number(json, "lost"),
        unobserved_ns: number(json, "unobserved_ns"),
        trace: json["trace"].as_str().map(|path| path.chars().take(4_096).collect()),
    }
}

fn live(json: &Value) -> Live {
    let order = order(&json["causes"]);
    let interval = share(json, "best_case_low").zip(share(json, "best_case_high"));
    let steps = json["steps"].is_object().then(|| steps(&json["steps"]));
    let named = |row: &Value| TotalsRow {
        name: text(row, "name"),
        count: row["count"].as_u64(),
        total_ns: number(row, "total_ns"),
    };
    Live {
        host: text(json, "host"),
        run: text(json, "run"),
        rank: json["rank"].as_u64(),
        mode: text(json, "mode"),
        observed_ns: number(json, "observed_ns"),
        starting_up: json["starting_up"] == true,
        bottleneck: text(json, "live_bottleneck"),
        share: share(json, "live_share").unwrap_or(0.0),
        best_case: share(json, "best_case"),
        interval,
        busy: share(json, "busy"),
        cost: share(json, "cost"),
        bursts: json["bursts"].as_u64(),
        steps,
        evidence: texts(json, "evidence"),
        missing: texts(json, "missing"),
        advice: text(json, "advice"),
        devices: list(json, "devices").map(|row| device(row, &order)).collect(),
        devices_beyond: number(json, "devices_beyond"),
        kernels: list(json, "top_kernels").map(named).collect(),
        lines: list(json, "lines").map(line).collect(),
        ranges: list(json, "ranges").map(range).collect(),
    }
}

/// Our cause for each number of a window.
fn order(causes: &Value) -> Vec<Option<usize>> {
    let known = |name: &Value| Cause::ALL.iter().position(|cause| name.as_str() == Some(cause.name()));
    causes.as_array().into_iter().flatten().take(ROWS).map(known).collect()
}

fn steps(json: &Value) -> StepsView {
    let newest = json["newest_ns"].as_array().into_iter().flatten().take(ROWS).filter_map(Value::as_u64);
    StepsView {
        noun: text(json, "noun"),
        seen: number(json, "seen"),
        median_ns: number(json, "median_ns"),
        newest_ns: newest.collect(),
    }
}

fn device(json: &Value, order: &[Option<usize>]) -> DeviceView {
    let windows = list(json, "windows").filter_map(|row| window(row, order));
    DeviceView {
        id: number(json, "id"),
        name: text(json, "name"),
        window_ns: number(json, "window_ns"),
        windows: windows.collect(),
    }
}

fn window(row: &Value, order: &[Option<usize>]) -> Option<Window> {
    let (end, times) = row.as_array()?.split_first()?;
    let mut window = Window { end_ns: end.as_u64()?, ..Window::default() };
    for (time, place) in times.iter().zip(order) {
        // Causes that only a newer version knows count as unknown.
        let place = place.unwrap_or(Cause::CannotTell as usize);
        window.causes[place] = window.causes[place].saturating_add(time.as_u64()?);
    }
    Some(window)
}

fn line(row: &Value) -> TotalsRow {
    let file = text(row, "file");
    let file = file.rsplit('/').next().unwrap_or(&file).to_owned();
    let name = match (number(row, "line"), text(row, "function")) {
        (0, function) => format!("{file} {function}"),
        (line, function) => format!("{file}:{line} {function}"),
    };
    TotalsRow { name, count: None, total_ns: number(row, "total_ns") }
}

fn range(row: &Value) -> TotalsRow {
    let (domain, name) = (text(row, "domain"), text(row, "name"));
    let name = if domain.is_empty() { name } else { format!("{domain}: {name}") };
    TotalsRow { name, count: row["count"].as_u64(), total_ns: number(row, "device_ns") }
}

fn list<'a>(json: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    json[name].as_array().into_iter().flatten().take(ROWS)
}

fn texts(json: &Value, name: &str) -> Vec<String> {
    list(json, name).filter_map(Value::as_str).map(harmless).collect()
}

fn text(json: &Value, name: &str) -> String {
    harmless(json[name].as_str().unwrap_or_default())
}

/// Text escaped for a terminal, of bounded length.
pub fn harmless(text: &str) -> String {
    let end = text.char_indices().nth(TEXT).map_or(text.len(), |(index, _)| index);
    let short = printable(&text[..end]);
    short.chars().take(TEXT).collect()
}

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or(0)
}

fn share(json: &Value, name: &str) -> Option<f64> {
    json[name].as_f64().filter(|share| share.is_finite() && *share >= 0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_an_answer_holds_is_read_or_counts_as_not_said() {
        for hostile in [
            json!(null),
            json!([]),
            json!({"devices": {}, "pid": "x", "line": 7}),
            json!({"devices": [1, null, {"windows": [[], [1], ["x"], [1, -2], 3]}], "causes": 3, "steps": {"newest_ns": ["x"]}}),
            json!({"devices": [], "best_case": -1.0, "busy": "much", "top_kernels": [{}, 5], "lines": "x"}),
        ] {
            let answer = StatusReply::of(&hostile);
            assert_eq!(
                (answer.status.pid, answer.live.as_ref().and_then(|live| live.best_case)),
                (0, None),
                "{hostile}"
            );
        }
        let long =
            json!({"command": "x\u{1b}[2J\u{202e}".repeat(100_000), "devices": [], "evidence": vec!["y"; 1_000]});
        let answer = StatusReply::of(&long);
        assert!(answer.status.command.chars().count() <= TEXT && !answer.status.command.contains('\u{1b}'));
        assert_eq!(answer.live.unwrap().evidence.len(), ROWS);
    }

    #[test]
    fn windows_are_read_by_the_names_of_their_causes() {
        let json = json!({"causes": ["sync", "of_tomorrow", "gpu_compute"],
                          "devices": [{"id": 3, "windows": [[9, 1, 2, 4]]}]});
        let live = StatusReply::of(&json).live.unwrap();
        let window = live.devices[0].windows[0];
        assert_eq!(window.end_ns, 9);
        let of = |cause: Cause| window.causes[cause as usize];
        assert_eq!([Cause::Sync, Cause::CannotTell, Cause::GpuCompute].map(of), [1, 2, 4]);
        assert_eq!(window.causes.iter().sum::<u64>(), 7);
    }
}
