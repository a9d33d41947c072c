//! Tools on the report of a trace, or of two.

use anyhow::{Result, anyhow};
use gpuwhy::Report;
use gpuwhy_compare::diff::json::DiffJson;
use gpuwhy_report::run::remedies;
use gpuwhy_report::text_format::{Style, printable_lines};
use gpuwhy_report::words;
use serde_json::{Value, json};

use crate::explain;
use crate::mcp::answer::{Answer, Page, Total, picked};
use crate::mcp::arguments::Arguments;
use crate::mcp::context::Context;

/// Lines of code of each kind in an answer.
const LINES: usize = 5;
/// Kernels in a comparison.
const KERNELS: usize = 10;
/// Fields of a place in the program.
const PLACE: [&str; 6] = ["file", "line", "function", "within", "module", "operator"];
/// Fields of a remedy.
const REMEDY: [&str; 11] =
    ["id", "text", "at", "source", "speedup", "low", "high", "measured", "certainty", "results", "link"];

fn capture(arguments: &Arguments) -> Option<u32> {
    arguments.number("capture").and_then(|number| u32::try_from(number).ok())
}

/// The report of the trace in the arguments, and its JSON.
pub fn opened(context: &mut Context, arguments: &Arguments) -> Result<(Report, Value)> {
    context.document(arguments.needed("trace")?, capture(arguments))
}

/// Adds what every answer about a trace needs: its name, its damage, and whether it has an end.
pub fn begin(arguments: &Arguments, report: &Report) -> Result<Answer> {
    let mut answer = Answer::default();
    answer.fact("trace", arguments.needed("trace")?);
    if let Some(damage) = report.completeness.damage.first() {
        answer.fact("damaged", format!("{damage}; the answer is about what can be read"));
    }
    if let Some(missing) = report.missing_end() {
        answer.fact("no_end", missing);
    }
    Ok(answer)
}

pub fn report(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let (report, document) = opened(context, arguments)?;
    let offset = arguments.count("offset", 0);
    if arguments.flag("full") {
        return Ok(Answer::only_text(&report.full_within(usize::MAX, Style::default()), offset));
    }
    let mut answer = begin(arguments, &report)?;
    let bottleneck = &document["bottleneck"];
    answer.fact("command", report.process.command.join(" "));
    answer.fact("conclusion", report.conclusion());
    answer.fact("gain", report.gain());
    for field in ["cause", "share", "best_case", "ranking", "evidence", "recommendation", "plan"] {
        answer.fact(field, bottleneck[field].clone());
    }
    let remedies = bottleneck["remedies"].as_array().into_iter().flatten();
    answer.fact("remedies", remedies.map(|remedy| picked(remedy, &REMEDY[..7])).collect::<Vec<_>>());
    let rows = |rows: &Value, fields: &[&str]| -> Value {
        let rows = rows.as_array().into_iter().flatten().take(LINES);
        rows.map(|row| picked(row, &[&PLACE, fields].concat())).collect()
    };
    answer.fact(
        "lines",
        json!({
            "idle_time": rows(&document["host"]["lines"], &["cause", "share", "step_ns"]),
            "kernels_launched_at": rows(&document["kernel_lines"]["lines"], &["share", "largest_kernel"]),
            "kernels_captured_at": rows(&document["graph_origins"]["rows"], &["kernel", "total_ns"]),
            "calls": rows(&document["host"]["calls"], &["calls", "share"]),
        }),
    );
    if document["source_lines"].is_array() {
        answer.fact("source_lines", document["source_lines"].clone());
    }
    answer.fact("missing", report.missing());
    answer.text(&report.summary_within(Style::default()), offset);
    Ok(answer)
}

pub fn remedies(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let (report, document) = opened(context, arguments)?;
    let mut answer = begin(arguments, &report)?;
    answer.fact("recommendation", document["bottleneck"]["recommendation"].clone());
    let of_report = document["bottleneck"]["remedies"].as_array().cloned().unwrap_or_default();
    let all = of_report.len();
    let rows = of_report.iter().zip(&report.bottleneck.remedies).map(|(row, remedy)| {
        let mut row = picked(row, &REMEDY);
        row["gain"] = remedy.gain().into();
        row["advised"] = remedy.is_advised().into();
        row["can_be_tried_from_outside"] = remedy.outside.into();
        if let Some(entry) = remedies::remedy(remedy.id) {
            row["recognized_by"] = entry.recognized.into();
            row["not_when"] = entry.not_when.into();
        }
        row
    });
    answer.rows("remedies", rows, Total::Exactly(all), Page { offset: 0, limit: all });
    if all == 0 {
        answer.note("no remedy of the catalogue fits; the recommendation says why".to_owned());
    }
    Ok(answer)
}

pub fn what_if(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let (report, document) = opened(context, arguments)?;
    let mut answer = begin(arguments, &report)?;
    answer.fact("plan", document["bottleneck"]["plan"].clone());
    let mut text = String::new();
    let mut all = Vec::new();
    for (device, row) in report.devices.iter().zip(document["devices"].as_array().into_iter().flatten()) {
        let Some(simulated) = &device.what_if else { continue };
        text.push_str(&format!("GPU {}:\n{}", device.device.id, words::what_if(simulated)));
        let mut of_device = picked(&row["what_if"], &["simulated", "refused", "steps", "base_error"]);
        let scenarios = simulated.best_cases.iter().zip(row["what_if"]["scenarios"].as_array().into_iter().flatten());
        let worth = scenarios.filter(|(best_case, _)| best_case.is_worth_showing());
        let described = worth.map(|(best_case, row)| {
            let mut row = row.clone();
            row["if"] = words::condition(best_case.kind).into();
            row
        });
        of_device["scenarios"] = described.collect();
        of_device["device"] = row["id"].clone();
        all.push(of_device);
    }
    if all.is_empty() {
        text.push_str("nothing was simulated: no steps were found, or nothing ran on a GPU\n");
    }
    let count = all.len();
    answer.rows("devices", all, Total::Exactly(count), Page { offset: 0, limit: count });
    answer.text(&text, 0);
    Ok(answer)
}

pub fn explain(_: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let word = arguments.text("word").unwrap_or_default();
    let text = explain::about(word).map_err(|unknown| anyhow!(unknown))?;
    Ok(Answer::only_text(&text, arguments.count("offset", 0)))
}

pub fn diff(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let names = [arguments.needed("before")?, arguments.needed("after")?];
    let [before, after] = [context.report(names[0], None)?, context.report(names[1], None)?];
    let outcome = gpuwhy::compare(&before, &after);
    let document = serde_json::to_value(DiffJson(&outcome))?;
    let diff = outcome.map_err(|refused| anyhow!("before: {}; after: {}; {refused}", names[0], names[1]))?;
    let mut answer = Answer::default();
    answer.fact("before", names[0]);
    answer.fact("after", names[1]);
    let fields = ["similarity", "warnings"];
    fields.into_iter().for_each(|field| answer.fact(field, document[field].clone()));
    let bottlenecks = [&before, &after].map(|report| report.bottleneck.cause.name());
    answer.fact("bottlenecks", json!({"before": bottlenecks[0], "after": bottlenecks[1]}));
    let devices = document["devices"].as_array().cloned().unwrap_or_default();
    let count = devices.len();
    let rows = devices.iter().map(|device| {
        let mut row = picked(device, &["headline", "outcome", "basis", "change_ns", "recordings_p", "prediction"]);
        row["before_ns"] = device["a"]["unit_ns"].clone();
        row["after_ns"] = device["b"]["unit_ns"].clone();
        let changed = |change: &&Value| change["change_ns"] != 0;
        row["cause_changes"] =
            device["cause_changes"].as_array().into_iter().flatten().filter(changed).cloned().collect();
        let is_other = |kernel: &&Value| kernel["speed"] != "same" || kernel["launches"] != "same";
        let kernels = device["kernels"].as_array().into_iter().flatten().filter(is_other).take(LINES);
        row["kernels"] = kernels.map(|kernel| picked(kernel, &["name", "change_ns", "launches", "speed"])).collect();
        row
    });
    answer.rows("devices", rows, Total::Exactly(count), Page { offset: 0, limit: count });
    let text = diff.text_within(KERNELS, Style::default());
    let text = format!("{text}A is {}\nB is {}\n", names[0], names[1]);
    answer.text(&printable_lines(&text), arguments.count("offset", 0));
    Ok(answer)
}
