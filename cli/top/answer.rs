//! Response of a process to `live`, `watch` or `status`, and what the display takes from it.

use gpuwhy_report::state::{self, DeviceState, LineTotal, Live, RangeTotal, Status};
use profiler_core::leaf::Cause;
use serde_json::Value;

/// Maximum characters of a path.
const PATH: usize = 4_096;
pub const CAUSES: usize = Cause::ALL.len();

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusReply {
    pub status: Status,
    /// `None` for a library that does not know `live`, and after measuring is finished.
    pub live: Option<Live>,
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

impl StatusReply {
    pub fn of(json: &Value) -> Self {
        let live = json["devices"].is_array().then(|| state::read(json));
        let mut status: Status = state::read(json);
        // It is opened, so it is escaped only where it is shown.
        status.trace = json["trace"].as_str().map(|path| path.chars().take(PATH).collect());
        Self { status, live }
    }
}

/// The intervals of a device.
pub fn windows(live: &Live, device: &DeviceState) -> Vec<Window> {
    let known = |name: &String| Cause::ALL.iter().position(|cause| name == cause.name());
    // Causes that only a newer version knows count as unknown.
    let order: Vec<_> = live.causes.iter().map(|name| known(name).unwrap_or(Cause::CannotTell as usize)).collect();
    let window = |row: &Vec<u64>| {
        let (&end_ns, times) = row.split_first()?;
        let mut window = Window { end_ns, ..Window::default() };
        for (&time, &place) in times.iter().zip(&order) {
            window.causes[place] = window.causes[place].saturating_add(time);
        }
        Some(window)
    };
    device.windows.iter().filter_map(window).collect()
}

/// Kernels, lines and ranges.
pub fn tables(live: &Live) -> [Vec<TotalsRow>; 3] {
    let kernels = live.top_kernels.iter().map(|row| TotalsRow {
        name: row.name.clone(),
        count: Some(row.count),
        total_ns: row.total_ns,
    });
    [kernels.collect(), live.lines.iter().map(line).collect(), live.ranges.iter().map(range).collect()]
}

fn line(row: &LineTotal) -> TotalsRow {
    let file = row.file.rsplit('/').next().unwrap_or(&row.file);
    let name = match row.line {
        0 => format!("{file} {}", row.function),
        line => format!("{file}:{line} {}", row.function),
    };
    TotalsRow { name, count: None, total_ns: row.total_ns }
}

fn range(row: &RangeTotal) -> TotalsRow {
    let RangeTotal { domain, name, .. } = row;
    let name = if domain.is_empty() { name.clone() } else { format!("{domain}: {name}") };
    TotalsRow { name, count: Some(row.count), total_ns: row.device_ns }
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
        assert!(
            answer.status.command.chars().count() <= state::MOST_LETTERS && !answer.status.command.contains('\u{1b}')
        );
        assert_eq!(answer.live.unwrap().evidence.len(), 64);
    }

    #[test]
    fn windows_are_read_by_the_names_of_their_causes() {
        let json = json!({"causes": ["sync", "of_tomorrow", "gpu_compute"],
                          "devices": [{"id": 3, "windows": [[9, 1, 2, 4]]}]});
        let live = StatusReply::of(&json).live.unwrap();
        let window = windows(&live, &live.devices[0])[0];
        assert_eq!(window.end_ns, 9);
        let of = |cause: Cause| window.causes[cause as usize];
        assert_eq!([Cause::Sync, Cause::CannotTell, Cause::GpuCompute].map(of), [1, 2, 4]);
        assert_eq!(window.causes.iter().sum::<u64>(), 7);
    }
}
