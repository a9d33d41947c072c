//! Tools on running programs, through their control sockets.

use anyhow::{Result, anyhow, bail};
use gpuwhy_inject::control::address::ProcessName;
use serde_json::Value;

use crate::mcp::answer::{Answer, Page, Total};
use crate::mcp::arguments::Arguments;
use crate::mcp::context::Context;
use crate::{control, top};

/// Largest rows of a list that are shown.
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
            why if why.is_empty() => return Err(control::no_such_process(process)),
            why => bail!("{why}; `running` without pid lists the programs"),
        }
    }
    let mut answer = Answer::default();
    let all = answers.len();
    let page = Page { offset: arguments.count("offset", 0), limit: all };
    let rows = answers.iter().skip(page.offset).map(|state| shown(state, only.is_some()));
    answer.rows("processes", rows, Total::Exactly(all), page);
    complaints.into_iter().for_each(|why| answer.note(why));
    if all == 0 {
        answer.note("no program of this user runs with gpuwhy: `gpuwhy run -- COMMAND` starts one".to_owned());
    }
    Ok(answer)
}

/// The state of a process without what only a display needs: series of numbers, and the names of their columns. In a
/// list of processes also without texts and rows.
fn shown(state: &Value, in_detail: bool) -> Value {
    let fields = state.as_object().into_iter().flatten().filter(|(name, _)| *name != "causes");
    fields.filter_map(|(name, value)| Some((name.clone(), shown_value(value, in_detail)?))).collect()
}

fn shown_value(value: &Value, in_detail: bool) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(_) => Some(shown(value, in_detail)),
        Value::Array(list) => match list.first() {
            Some(Value::Object(_)) if in_detail => {
                Some(list.iter().take(ROWS).map(|row| shown(row, in_detail)).collect())
            }
            Some(Value::String(_)) | None if in_detail => Some(value.clone()),
            _ => None,
        },
        other => Some(other.clone()),
    }
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
