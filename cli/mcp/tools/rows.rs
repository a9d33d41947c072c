//! Tools on the steps and kernels of a trace.

use anyhow::{Context as _, Result, bail};
use gpuwhy_report::run::operators::OperatorsBy;
use gpuwhy_report::run::{DeviceReport, KernelLines, Report};
use profiler_core::leaf::Cause;
use profiler_core::steps::StepSource;
use serde_json::{Map, Value, json};

use super::report::{begin, opened};
use crate::mcp::answer::{Answer, Page, Total, picked};
use crate::mcp::arguments::Arguments;
use crate::mcp::context::Context;

/// Lines of code of one kernel.
const PLACES: usize = 3;

/// The device in the arguments, else the one with the longest window.
fn device<'r>(report: &'r Report, arguments: &Arguments) -> Result<(usize, &'r DeviceReport)> {
    let mut devices = report.devices.iter().enumerate();
    let name = arguments.needed("trace")?;
    if let Some(wished) = arguments.number("device") {
        let ids: Vec<_> = report.devices.iter().map(|device| device.device.id.to_string()).collect();
        let found = devices.find(|(_, device)| device.device.id.to_string() == wished.to_string());
        return found.with_context(|| format!("{name}: there is no GPU {wished}; there are: {}", ids.join(", ")));
    }
    let busiest = devices.max_by_key(|(_, device)| device.window_ns);
    busiest.with_context(|| format!("{name}: nothing was recorded on a GPU; `report` says why"))
}

pub fn steps(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let (report, document) = opened(context, arguments)?;
    let mut answer = begin(arguments, &report)?;
    let (index, device) = device(&report, arguments)?;
    let Some(steps) = device.steps.as_ref().filter(|steps| steps.source != StepSource::Window) else {
        let trace = arguments.needed("trace")?;
        bail!("{trace}: no steps were found on GPU {}: no sequence of its operations repeats", device.device.id);
    };
    answer.fact("device", document["devices"][index]["id"].clone());
    let found = &document["devices"][index];
    for field in ["source", "recognized_by", "period", "seen", "median_ns"] {
        answer.fact(field, found["steps"][field].clone());
    }
    for percent in [10, 90, 99] {
        answer.fact(&format!("percentile_{percent}_ns"), steps.duration_percentile(percent));
    }
    answer.fact("remembered", steps.rows.len());
    answer.fact("step_kinds", found["step_kinds"].clone());
    if !document["serving"].is_null() {
        answer.fact("serving", document["serving"].clone());
    }
    answer.fact("typical_step_by_cause_ns", by_cause(&device.typical_causes()));
    let slow = device.slow_steps();
    let page = Page { offset: arguments.count("offset", 0), limit: arguments.count("limit", 10) };
    let rows = slow.iter().skip(page.offset).map(|slow| {
        json!({
            "after_start_ns": slow.step.start.since(report.process.start),
            "duration_ns": slow.step.duration(),
            "excess_by_cause_ns": by_cause(&slow.excess),
        })
    });
    answer.fact("slow_steps_in_all", slow.len());
    answer.rows("slow_steps", rows, Total::Exactly(slow.len()), page);
    Ok(answer)
}

fn by_cause(causes: &[(Cause, u64)]) -> Map<String, Value> {
    causes.iter().map(|(cause, nanos)| (cause.name().to_owned(), (*nanos).into())).collect()
}

pub fn kernels(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let (report, document) = opened(context, arguments)?;
    let mut answer = begin(arguments, &report)?;
    let (index, _) = device(&report, arguments)?;
    let device = &document["devices"][index];
    let part = arguments.text("name").unwrap_or_default();
    let is_wanted = |kernel: &&Value| kernel["name"].as_str().is_some_and(|name| name.contains(part));
    let all = device["kernels"].as_array().map_or(&[][..], Vec::as_slice);
    let wanted: Vec<_> = all.iter().filter(is_wanted).collect();
    if wanted.is_empty() && !all.is_empty() {
        bail!("{}: no kernel has {part:?} in its name; there are {} kernels", arguments.needed("trace")?, all.len());
    }
    let total: u64 = all.iter().filter_map(|kernel| kernel["total_ns"].as_u64()).sum();
    answer.fact("device", device["id"].clone());
    answer.fact("kernel_time_ns", total);
    let page = Page { offset: arguments.count("offset", 0), limit: arguments.count("limit", 10) };
    let count = wanted.len();
    let rows = wanted.into_iter().skip(page.offset).map(|kernel| {
        let mut row = picked(
            kernel,
            &["name", "library", "count", "total_ns", "steady_count", "steady_ns", "median_ns", "max_ns", "limits"],
        );
        let occupancy = ["limiter", "achieved_occupancy", "sm_efficiency", "waves"];
        row["geometry"] = picked(&kernel["geometry"], &occupancy);
        row["launched_at"] = places(&document["kernel_lines"]["kernels"], kernel, "kernel_ns");
        row["captured_at"] = places(&document["graph_origins"]["rows"], kernel, "count");
        row
    });
    answer.rows("kernels", rows, Total::Exactly(count), page);
    if let Some(why) = report.kernel_lines.as_ref().and_then(KernelLines::left_out) {
        answer.note(format!("kernels by line: {why}"));
    }
    Ok(answer)
}

pub fn operators(context: &mut Context, arguments: &Arguments) -> Result<Answer> {
    let (report, _) = opened(context, arguments)?;
    let mut answer = begin(arguments, &report)?;
    let by = if arguments.flag("shapes") { OperatorsBy::Shapes } else { OperatorsBy::Operator };
    let operators = report.operators.context("the report has no operators")?.regrouped(by);
    let part = arguments.text("name").unwrap_or_default();
    let wanted: Vec<_> = operators.rows.iter().filter(|row| row.name.contains(part)).collect();
    for (name, value) in [("device_ns", operators.device_ns), ("outside_ns", operators.outside_ns)] {
        answer.fact(name, value);
    }
    answer.fact("source", serde_json::to_value(operators.source)?);
    let page = Page { offset: arguments.count("offset", 0), limit: arguments.count("limit", 20) };
    let rows = wanted.iter().skip(page.offset).map(|row| json!(row));
    answer.rows("operators", rows, Total::Exactly(wanted.len()), page);
    Ok(answer)
}

/// Rows of `places` about this kernel.
fn places(places: &Value, kernel: &Value, of_all: &str) -> Value {
    let rows = places.as_array().into_iter().flatten().filter(|row| row["kernel"] == kernel["name"]);
    let fields = ["file", "line", "function", "module", "operator", "total_ns", "low_ns", "high_ns", of_all];
    rows.take(PLACES).map(|row| picked(row, &fields)).collect()
}
