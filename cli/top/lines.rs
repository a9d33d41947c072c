//! The display without a terminal: one table, or lines of JSON.

use std::io::{self, Write as _};
use std::sync::mpsc::Receiver;

use anyhow::Result;
use gpuwhy_report::text_format::printable;
use serde_json::{Value, json};

use super::dashboard::{Dashboard, Update};
use super::process::{ProcessKey, ProcessView};
use super::source::{self, SourceEvent};
use super::view::columns::{Columns, cells};
use crate::{interrupt, message, terminal};

/// Prints one line of JSON for each response.
pub fn json(events: Vec<SourceEvent>) -> Result<()> {
    for event in events {
        print(event, false)?;
    }
    Ok(())
}

/// Prints lines of JSON as they arrive, until the sources or the reader end.
pub fn follow(events: &Receiver<SourceEvent>) -> Result<()> {
    while let Some(events) = source::events(events) {
        if interrupt::state().is_break() {
            return Ok(());
        }
        for event in events {
            print(event, true)?;
        }
    }
    Ok(())
}

/// Writes an event as a line. `with_others` includes events that are not responses, for a reader that merges
/// hosts.
fn print(event: SourceEvent, with_others: bool) -> Result<()> {
    let named = |kind: &str, key: &ProcessKey, why: &str| json!({"type": kind, "process": key.process, "on": key.host, "message": why});
    let line = match event {
        SourceEvent::Answer(key, answer) => placed(key, *answer),
        SourceEvent::Round(processes) if with_others => json!({"type": "host", "processes": processes}),
        SourceEvent::Update(Update::Ended(key)) if with_others => named("ended", &key, "the process has ended"),
        SourceEvent::Update(Update::Silent(key, why)) if with_others => named("silent", &key, &why),
        SourceEvent::Update(Update::Note(text)) if with_others => json!({"type": "note", "message": text}),
        SourceEvent::Update(update) => {
            complain(&update);
            return Ok(());
        }
        SourceEvent::Round(_) => return Ok(()),
    };
    let mut out = io::stdout().lock();
    out.write_all(terminal::json(&line)?.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// A response with the process and the host that it is from.
fn placed(key: ProcessKey, mut answer: Value) -> Value {
    if let Value::Object(fields) = &mut answer {
        fields.insert("process".to_owned(), key.process.into());
        fields.insert("on".to_owned(), key.host.into());
    }
    answer
}

/// The responses, and errors and notes in sentences.
pub fn responses(events: Vec<SourceEvent>) -> (Vec<Value>, Vec<String>) {
    let (mut answers, mut complaints) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            SourceEvent::Answer(key, answer) => answers.push(placed(key, *answer)),
            SourceEvent::Update(update) => complaints.extend(complaint(&update)),
            SourceEvent::Round(_) => {}
        }
    }
    (answers, complaints)
}

fn complaint(update: &Update) -> Option<String> {
    match update {
        Update::Silent(key, why) => Some(format!("process {key}: {why}")),
        Update::Unreachable(host, why) => Some(format!("{host}: {why}")),
        Update::Note(text) => Some(text.clone()),
        _ => None,
    }
}

/// Reports errors and notes on stderr.
fn complain(update: &Update) {
    if let Some(complaint) = complaint(update) {
        message::say(&complaint);
    }
}

/// Prints the table of processes.
pub fn table(events: Vec<SourceEvent>, width: usize) -> Result<()> {
    let mut dashboard = Dashboard::new(String::new(), false);
    for event in events {
        if let Some(update) = event.into_update() {
            complain(&update);
            dashboard.take(update);
        }
    }
    io::stdout().write_all(text(&dashboard, width).as_bytes())?;
    Ok(())
}

/// The table as text: a row for each process, followed by its current state and the path of its trace.
fn text(dashboard: &Dashboard, width: usize) -> String {
    let processes: Vec<&ProcessView> = dashboard.visible();
    if processes.is_empty() {
        return "no process of this user runs with gpuwhy\n".to_owned();
    }
    let columns = Columns::fitting(width, &processes);
    let mut text = row(&columns.titles(), &columns);
    for process in processes {
        text.push_str(&row(&cells(&columns, process), &columns));
        if !process.status.line.is_empty() {
            let line: String = process.status.line.trim_start_matches("gpuwhy ").chars().take(120).collect();
            text.push_str(&format!("          {line}\n"));
        }
        if let Some(step) = process.status.starts_at_step {
            let steps = process.status.steps_begun.unwrap_or(0);
            text.push_str(&format!("          a capture begins at step {step}; {steps} steps have begun\n"));
        }
        if let Some(trace) = &process.status.trace {
            let captures = process.status.captures;
            text.push_str(&format!("          captures: {captures}, trace: {}\n", printable(trace)));
        }
    }
    text
}

fn row(cells: &[String], columns: &Columns) -> String {
    let padded: Vec<_> = cells
        .iter()
        .zip(columns.all())
        .map(|(cell, column)| match (column.width, column.right) {
            (0, _) => cell.clone(),
            (width, true) => format!("{cell:>width$}"),
            (width, false) => format!("{cell:<width$}"),
        })
        .collect();
    padded.join(" ").trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_row_and_a_line_for_each_process() {
        let mut dashboard = Dashboard::new(String::new(), false);
        assert_eq!(text(&dashboard, 80), "no process of this user runs with gpuwhy\n");
        let answer = json!({"pid": 7, "command": "python train.py", "state": "capturing", "line": "gpuwhy [1.0 s] x",
                            "bottleneck": "launch", "share": 0.61, "captures": 2, "starts_at_step": 9, "steps_begun": 4,
                            "trace": "/x\u{1b}.gpuwhy"});
        let key = ProcessKey { host: String::new(), process: "7".to_owned() };
        let event = SourceEvent::Answer(key, Box::new(answer));
        dashboard.take(event.into_update().unwrap());
        let text = text(&dashboard, 80);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].starts_with("      7 capturing") && lines[1].contains("launch 61 %"), "{text}");
        assert_eq!(lines[2].trim(), "[1.0 s] x");
        assert_eq!(lines[3].trim(), "a capture begins at step 9; 4 steps have begun");
        assert_eq!(lines[4].trim(), "captures: 2, trace: /x\\x1b.gpuwhy");
    }
}
