//! A response to `hang` from a process on its control socket. `docs/guide/control.md` defines the fields.

use gpuwhy_compare::hang::{CommunicatorState, Outstanding, RankReport};
use serde_json::Value;

/// Maximum number of list items read, and of characters of a text.
const ROWS: usize = 256;
const TEXT: usize = 400;

/// Reads the response of a rank. Fields of unexpected types count as absent.
pub(super) fn rank_report(answer: &Value) -> Result<RankReport, String> {
    if answer["type"] == "error" {
        return Err("the library in this process knows no hang: it is of an older version".to_owned());
    }
    if answer["type"] != "hang" {
        return Err("no answer to hang".to_owned());
    }
    let rank = answer["rank"].as_u64().and_then(|rank| u32::try_from(rank).ok());
    let rank = rank.ok_or("the process has no rank: neither RANK nor a variable of Open MPI, PMI or Slurm was set")?;
    let place = format!("{}, process {}", text(&answer["host"]), answer["pid"].as_u64().unwrap_or(0));
    Ok(RankReport {
        run: text(&answer["run"]),
        rank,
        world_size: answer["world_size"].as_u64().map_or(0, |size| u32::try_from(size).unwrap_or(u32::MAX)),
        place,
        line: optional(&answer["line"]),
        communicators: list(&answer["communicators"]).map(communicator).collect(),
    })
}

/// A process from which `gpuwhy hang --answers` got no response, and the reason.
pub(super) fn silent(line: &Value) -> (String, String) {
    (text(&line["process"]), text(&line["message"]))
}

fn communicator(of: &Value) -> CommunicatorState {
    let number = |name: &str| of[name].as_u64().unwrap_or(0);
    CommunicatorState {
        id: text(&of["communicator"]),
        name: text(&of["name"]),
        // The library knows the number of ranks, but not their ids.
        ranks: Vec::new(),
        size: u32::try_from(number("ranks")).unwrap_or(u32::MAX),
        queued: number("queued"),
        finished: number("finished"),
        outstanding: list(&of["outstanding"]).map(outstanding).collect(),
    }
}

fn outstanding(of: &Value) -> Outstanding {
    Outstanding {
        number: of["number"].as_u64().unwrap_or(0),
        function: text(&of["function"]),
        elements: of["count"].as_u64().map_or_else(String::new, |count| count.to_string()),
        data_type: text(&of["data_type"]),
        runs: of["runs"].as_bool(),
        age_ns: of["age_ns"].as_u64(),
        line: optional(&of["line"]),
    }
}

fn list(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten().take(ROWS)
}

fn text(of: &Value) -> String {
    of.as_str().unwrap_or_default().chars().take(TEXT).collect()
}

fn optional(of: &Value) -> Option<String> {
    Some(text(of)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_read_and_other_types_count_as_not_said() {
        let whole = json!({"type": "hang", "pid": 7, "host": "a", "run": "gpt", "rank": 3, "world_size": 4, "line": "t.py:4 step", "communicators": [
            {"communicator": "00ff", "name": "dp", "ranks": 4, "queued": 9, "finished": 8, "outstanding": [
                {"number": 8, "function": "all_reduce", "count": 100, "data_type": "float32", "age_ns": 5, "runs": true}]}]});
        let read = rank_report(&whole).unwrap();
        assert_eq!((read.rank, read.place.as_str(), read.line.as_deref()), (3, "a, process 7", Some("t.py:4 step")));
        assert_eq!((read.run.as_str(), read.world_size), ("gpt", 4));
        let operation = &read.communicators[0].outstanding[0];
        assert_eq!((operation.elements.as_str(), operation.runs, operation.age_ns), ("100", Some(true), Some(5)));
        for odd in
            [json!({"type": "hang", "rank": 1, "communicators": 7}), json!({"type": "hang", "rank": 1, "line": []})]
        {
            assert_eq!(rank_report(&odd).map(|read| read.communicators.len()), Ok(0));
        }
        assert!(rank_report(&json!({"type": "error"})).unwrap_err().contains("older"));
        assert!(rank_report(&json!({"type": "hang"})).unwrap_err().contains("RANK"));
        assert!(rank_report(&json!([])).is_err());
    }
}
