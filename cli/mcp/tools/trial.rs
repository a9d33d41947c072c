//! The tool `try`: runs of a command with a change and without, by `gpuwhy try`.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::mcp::answer::Answer;
use crate::mcp::arguments::Arguments;
use crate::mcp::context::Context;
use crate::mcp::worker;

/// Default time for all runs, seconds, and more for copies, a build and the end.
const BUDGET_S: usize = 600;
const BESIDE: Duration = Duration::from_secs(300);
/// Longest diff in an answer, bytes: a part of one is of no use.
const LONGEST_PATCH: usize = 400;

pub fn measure(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let budget_s = arguments.count("budget_s", BUDGET_S);
    let mut words: Vec<OsString> = vec!["--quiet".into(), "try".into(), "--json".into(), "--until-input-ends".into()];
    let mut add = |option: &str, value: OsString| words.extend([option.into(), value]);
    add("--budget", format!("{budget_s}s").into());
    for (name, option) in [("remedies", "--remedy"), ("allow", "--allow"), ("env", "--env"), ("link", "--link")] {
        for value in arguments.texts(name).unwrap_or_default() {
            add(option, value.into());
        }
    }
    if let Some(command) = arguments.text("build") {
        add("--build", command.into());
    }
    for (name, option) in [("patch", "--patch"), ("trace", "--from")] {
        if let Some(file) = arguments.text(name) {
            add(option, context.folder.resolved(file)?.into());
        }
    }
    // A file without a name ends with this process, however that ends.
    let mut text = tempfile::tempfile().context("cannot make a temporary file")?;
    match (arguments.text("patch_text"), arguments.text("patch")) {
        (Some(_), Some(_)) => bail!("patch_text: patch is given too"),
        (Some(diff), None) => {
            text.write_all(diff.as_bytes()).context("cannot write a temporary file")?;
            add("--patch", format!("/proc/{}/fd/{}", std::process::id(), text.as_raw_fd()).into());
        }
        (None, _) => {}
    }
    words.push("--".into());
    words.extend(arguments.texts("command").unwrap_or_default().into_iter().map(OsString::from));
    context.call.lasts(Duration::from_secs(budget_s as u64) + BESIDE);
    let output = worker::ran(context, &words)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let Ok(Value::Object(document)) = serde_json::from_slice(&output.stdout) else { bail!("{}", said.trim()) };
    let mut answer = Answer::default();
    said.lines().for_each(|line| answer.note(line.to_owned()));
    for (name, value) in document {
        let is_long = name == "patch" && value.as_str().is_some_and(|diff| diff.len() > LONGEST_PATCH);
        if is_long {
            answer.note("patch: it is too long; `edits` of the remedies have its lines".to_owned());
        } else {
            answer.fact(&name, value);
        }
    }
    Ok(answer)
}
