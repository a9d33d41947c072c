//! Tools on running programs, through their control sockets.

use anyhow::{Result, anyhow, bail};
use gpuwhy_inject::control::address::ProcessName;
use serde_json::{Map, Value};

use crate::mcp::answer::{Answer, Page, Total, picked};
use crate::mcp::arguments::Arguments;
use crate::mcp::context::Context;
use crate::{control, top};

/// Fields of a process in the list.
const SHORT: [&str; 20] = [
    "process",
    "command",
    "state",
    "mode",
    "captures",
    "live_bottleneck",
    "live_share",
    "best_case",
    "busy",
    "line",
    "steps",
    "kernels",
    "lost",
    "unobserved_ns",
    "trace",
    "host",
    "run",
    "rank",
    "starts_at_step",
    "holds_cupti",
];
/// Further fields of one process.
const DETAILS: [&str; 10] = [
    "evidence",
    "advice",
    "missing",
    "ranking",
    "best_case_low",
    "best_case_high",
    "observed_ns",
    "cost",
    "cores",
    "bursts",
];
/// Lists of one process, of which the largest rows are shown.
const LISTS: [&str; 3] = ["top_kernels", "lines", "ranges"];
/// Rows of each.
const ROWS: usize = 5;

fn process(arguments: &Arguments) -> Result<Option<ProcessName>> {
    let parsed = arguments.text("pid").map(|pid| pid.parse().map_err(|why| anyhow!("pid: {pid:?}: {why}")));
    parsed.transpose()
}

pub fn running(_: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let only = process(arguments)?;
    let (answers, complaints) = top::responses(only.as_slice());
    if let (Some(process), true) = (only, answers.is_empty()) {
        match complaints.join("; ") {
            why if why.is_empty() => return Err(control::nobody(process)),
            why => bail!("{why}; `running` without pid lists the programs"),
        }
    }
    let mut answer = Answer::default();
    let all = answers.len();
    let page = Page { offset: arguments.count("offset", 0), limit: all };
    let rows =
        answers.iter().skip(page.offset).map(|state| if only.is_some() { detailed(state) } else { short(state) });
    answer.rows("processes", rows, Total::Exactly(all), page);
    complaints.into_iter().for_each(|why| answer.note(why));
    if all == 0 {
        answer.note("no program of this user runs with gpuwhy: `gpuwhy run -- COMMAND` starts one".to_owned());
    }
    Ok(answer)
}

fn short(state: &Value) -> Value {
    let mut row = picked(state, &SHORT);
    if state["steps"].is_object() {
        row["steps"] = picked(&state["steps"], &["device", "noun", "source", "seen", "median_ns"]);
    }
    row
}

fn detailed(state: &Value) -> Value {
    let mut row = short(state);
    for name in DETAILS {
        row[name] = state[name].clone();
    }
    for name in LISTS {
        row[name] = state[name].as_array().into_iter().flatten().take(ROWS).cloned().collect();
    }
    let devices = state["devices"].as_array().into_iter().flatten().map(|device| {
        let mut of_device = picked(device, &["id", "name", "window_ns"]);
        let spent: Map<_, _> = device["leaves"].as_object().cloned().unwrap_or_default();
        of_device["leaves"] = Value::Object(spent.into_iter().filter(|(_, nanos)| *nanos != 0).collect());
        of_device
    });
    row["devices"] = devices.collect();
    row
}

pub fn start(_: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let command = match (arguments.number("at_step"), arguments.number("steps")) {
        (Some(first), Some(count)) => format!("{} {first} {count}", control::AT_STEP),
        (Some(first), None) => format!("{} {first}", control::AT_STEP),
        (None, Some(_)) => bail!("steps: it needs at_step, the step at which the capture starts"),
        (None, None) => "start".to_owned(),
    };
    tell(arguments, &command)
}

pub fn stop(_: &mut Context, arguments: &Arguments) -> Result<Answer> {
    tell(arguments, "stop")
}

fn tell(arguments: &Arguments, command: &str) -> Result<Answer> {
    let Some(process) = process(arguments)? else { bail!("the argument \"pid\" is missing") };
    let said = control::send_command(process, &control::socket(process)?, command)?;
    Ok(Answer::only_text(&said, 0))
}
