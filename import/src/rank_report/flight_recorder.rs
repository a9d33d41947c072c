//! Dumps of PyTorch's flight recorder (`TORCH_FR_BUFFER_SIZE`), version 2 of the format.
//!
//! Each rank counts its operations itself (`collective_seq_id`), so the numbers align as long as no rank has
//! skipped one. Sends and receives are not compared: they are not collectives of the group.

use std::collections::HashMap;

use gpuwhy_compare::hang::{CommunicatorState, Outstanding, RankReport};
use serde_json::Value;

/// Maximum number of unfinished operations kept per group, the oldest.
const OUTSTANDING: usize = 256;
/// Maximum number of groups of a rank.
const GROUPS: usize = 1_024;

/// Reads the dump of a rank.
pub(super) fn rank_report(dump: &Value, rank: u32, place: &str) -> Result<RankReport, String> {
    let entries = dump["entries"].as_array().ok_or("the dump has no list of entries")?;
    let version = dump["version"].as_str().unwrap_or_default();
    if !version.starts_with("2.") {
        return Err(format!("a dump of version '{version}': expected 2.x"));
    }
    let mut rank_report = RankReport { rank, place: place.to_owned(), ..RankReport::default() };
    let newest = entries.iter().filter_map(|entry| number(&entry["time_created_ns"])).max().unwrap_or(0);
    let mut indices = HashMap::new();
    for entry in entries.iter().filter(|entry| entry["is_p2p"] != true) {
        let Some(group) = group_of(dump, entry, &mut rank_report.communicators, &mut indices) else { continue };
        let Some(number_) = number(&entry["collective_seq_id"]) else { continue };
        group.queued = group.queued.max(number_ + 1);
        if entry["state"] == "completed" || entry["retired"] == true {
            group.finished = group.finished.max(number_ + 1);
        } else if group.outstanding.len() < OUTSTANDING {
            group.outstanding.push(outstanding(entry, number_, newest));
        }
    }
    for group in &mut rank_report.communicators {
        group.outstanding.sort_by_key(|operation| operation.number);
        if let Some(first) = group.outstanding.first() {
            group.finished = group.finished.min(first.number);
        }
    }
    let last = entries.iter().max_by_key(|entry| number(&entry["time_created_ns"]));
    rank_report.line =
        last.and_then(|entry| line(&entry["frames"])).map(|line| format!("{line} (its newest operation)"));
    Ok(rank_report)
}

/// Finds or creates the group of an entry. Status and members are read on creation; `indices` maps names to
/// indices.
fn group_of<'a>(
    dump: &Value,
    entry: &Value,
    groups: &'a mut Vec<CommunicatorState>,
    indices: &mut HashMap<String, usize>,
) -> Option<&'a mut CommunicatorState> {
    let name = text(&entry["process_group"][0]);
    if let Some(&index) = indices.get(&name) {
        return groups.get_mut(index);
    }
    if groups.len() == GROUPS {
        return None;
    }
    indices.insert(name.clone(), groups.len());
    let description = text(&entry["process_group"][1]);
    let ranks = ranks(&dump["pg_config"][name.as_str()]["ranks"]);
    // Groups of other ranks may have the same name.
    let id = format!("{name} of ranks {ranks:?}");
    let status = &dump["pg_status"][text(&entry["pg_id"])];
    // -1 means none.
    let last = |name: &str| number(&status[name]).map_or(0, |last| last + 1);
    let name = if description.is_empty() { name } else { format!("{name} ({description})") };
    groups.push(CommunicatorState {
        id,
        name,
        size: ranks.len() as u32,
        ranks,
        queued: last("last_enqueued_collective"),
        finished: last("last_completed_collective"),
        outstanding: Vec::new(),
    });
    groups.last_mut()
}

fn outstanding(entry: &Value, number_: u64, newest: u64) -> Outstanding {
    let function = text(&entry["profiling_name"]);
    let function = function.rsplit(':').next().unwrap_or_default().trim_start_matches('_').to_owned();
    // For a broadcast or gather, the shapes of one side may be empty on some ranks.
    let shapes = if entry["input_sizes"].as_array().is_some_and(|list| !list.is_empty()) { "input" } else { "output" };
    let list = |value: &Value| if value.is_null() { String::new() } else { value.to_string() };
    Outstanding {
        number: number_,
        function,
        elements: list(&entry[format!("{shapes}_sizes")]),
        data_type: entry[format!("{shapes}_dtypes")]
            .as_array()
            .map_or_else(String::new, |types| types.iter().map(text).collect::<Vec<_>>().join(", ").to_lowercase()),
        // The start of a kernel is recorded only if timing is on; a recorded time means that it started.
        runs: match (entry["state"].as_str(), entry["time_discovered_started_ns"].is_null()) {
            (Some("started"), _) | (_, false) => Some(true),
            _ => None,
        },
        // The dump lacks its own time; the newest operation is a lower bound.
        age_ns: number(&entry["time_created_ns"]).map(|at| newest.saturating_sub(at)).filter(|&age| age > 0),
        line: line(&entry["frames"]),
    }
}

/// Innermost frame that is not PyTorch's own.
fn line(frames: &Value) -> Option<String> {
    let frames = frames.as_array()?;
    let is_own = |frame: &&Value| !frame["filename"].as_str().unwrap_or_default().contains("/torch/");
    let frame = frames.iter().find(is_own).or(frames.first())?;
    let file = text(&frame["filename"]);
    let line = number(&frame["line"])?;
    Some(format!("{}:{line} {}", file.rsplit('/').next().unwrap_or_default(), text(&frame["name"])))
}

/// Members, from a list or the text of one.
fn ranks(of: &Value) -> Vec<u32> {
    let from_text = of.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let list = from_text.as_ref().unwrap_or(of);
    let mut ranks: Vec<u32> =
        list.as_array().into_iter().flatten().filter_map(|rank| u32::try_from(rank.as_u64()?).ok()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// A number, also one written as text; `None` if it is negative or not a number.
fn number(of: &Value) -> Option<u64> {
    of.as_u64().or_else(|| of.as_str()?.parse().ok())
}

fn text(of: &Value) -> String {
    match of {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_compare::hang::{HangKind, judge};
    use serde_json::json;

    fn entry(number: u64, name: &str, sizes: &Value, state: &str) -> Value {
        json!({
            "frames": [
                {"name": "all_reduce", "filename": "/usr/lib/python3/site-packages/torch/distributed/c10d.py", "line": 9},
                {"name": "step", "filename": "/home/user/train.py", "line": 40 + number},
            ],
            "record_id": number, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number,
            "p2p_seq_id": 0, "op_id": number, "profiling_name": name, "time_created_ns": 1_000_000_000_000 + number,
            "input_sizes": sizes, "input_dtypes": ["Float"], "output_sizes": sizes, "output_dtypes": ["Float"],
            "state": state, "retired": state == "completed", "is_p2p": false,
        })
    }

    fn dump(entries: Vec<Value>, enqueued: i64, completed: i64) -> Value {
        json!({
            "version": "2.5", "entries": entries,
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
            "pg_status": {"0": {"last_enqueued_collective": enqueued, "last_started_collective": -1,
                                "last_completed_collective": completed}},
        })
    }

    #[test]
    fn a_rank_that_left_out_a_collective_is_found() {
        let shape = json!([[3, 4]]);
        let waits = |rank| {
            let entries = vec![
                entry(1, "nccl:all_reduce", &shape, "completed"),
                entry(2, "nccl:all_reduce", &shape, "scheduled"),
            ];
            rank_report(&dump(entries, 2, 1), rank, "dump").unwrap()
        };
        // All entries but one were overwritten; the status has the numbers.
        let absent =
            rank_report(&dump(vec![entry(1, "nccl:all_reduce", &shape, "completed")], 1, 1), 2, "dump_2").unwrap();
        let report = judge(&[waits(0), waits(1), absent]);
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!((finding.kind, finding.number, &finding.waiting[..]), (HangKind::NeverCame, 2, &[0, 1][..]));
        let culprit = &finding.culprits[0];
        assert_eq!((culprit.rank, culprit.place.as_str()), (2, "dump_2"));
        assert_eq!(culprit.line.as_deref(), Some("train.py:41 step (its newest operation)"));
    }

    #[test]
    fn another_shape_is_a_mismatch_with_both_lines() {
        let of =
            |rank, shape| rank_report(&dump(vec![entry(1, "nccl:all_reduce", &shape, "scheduled")], 1, -1), rank, "d");
        let report = judge(&[of(0, json!([[3]])).unwrap(), of(1, json!([[3]])).unwrap(), of(2, json!([[4]])).unwrap()]);
        let finding = &report.findings[0];
        assert_eq!((finding.kind, finding.culprits[0].rank), (HangKind::Mismatch, 2));
        assert_eq!(finding.culprits[0].queued.as_deref(), Some("all_reduce [[4]] float"));
    }

    #[test]
    fn groups_are_distinguished_by_name_and_have_their_ranks() {
        let shape = json!([[1]]);
        let mut entries: Vec<_> = (0..4).map(|number| entry(number, "nccl:all_reduce", &shape, "scheduled")).collect();
        entries[1]["process_group"] = json!(["1", "tp"]);
        entries[3]["process_group"] = json!(["1", "tp"]);
        let mut dump = dump(entries, 3, -1);
        dump["pg_config"]["1"] = json!({"ranks": [1, 2]});
        let groups = rank_report(&dump, 1, "d").unwrap().communicators;
        let found: Vec<_> = groups.iter().map(|group| (group.name.as_str(), group.size, group.queued)).collect();
        assert_eq!(found, [("0 (default_pg)", 3, 4), ("1 (tp)", 2, 4)]);
        assert_eq!(groups[1].outstanding.len(), 2);
    }

    #[test]
    fn other_versions_and_shapes_of_files_are_refused_or_passed_over() {
        assert!(rank_report(&json!({"version": "1.0", "entries": []}), 0, "d").unwrap_err().contains("'1.0'"));
        assert!(rank_report(&json!({"version": "2.5"}), 0, "d").unwrap_err().contains("entries"));
        let odd = json!({"version": "2.9", "entries": [null, 3, {"process_group": 7, "collective_seq_id": "4"}, {}]});
        assert!(rank_report(&odd, 0, "d").unwrap().communicators.iter().all(|group| group.queued <= 5));
    }
}
