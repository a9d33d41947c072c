//! `gpuwhy kernels --query-metrics`: the metrics of a chip, and what a choice of them takes.
//!
//! They come from the libcupti that a program would get. It may crash, and a program may have another one, so a
//! choice is checked in a child process before the program starts, and again inside the program.

use std::env;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, bail};
use cupti_sys::counters::Counters;
use cupti_sys::counters::host::{Collection, Host, MetricKind};
use cupti_sys::counters::range::RangePlan;
use cupti_sys::{Cupti, initialize_driver};
use gpuwhy_inject::config::{MOST_LAUNCHES, SUGGESTED, WantedMetrics, parse_metrics};
use gpuwhy_report::kernels::KernelsReport;
use gpuwhy_report::text_format::{counted, edits};
use serde_json::{Value, json};

use crate::args::kernels::KernelsArgs;
use crate::{doctor, message, terminal};

/// Exit code for a metric that does not exist, or too many metrics.
const REFUSED: u8 = 2;
/// Maximum number of metrics whose launches are counted one by one: each takes some milliseconds.
const COUNTED: usize = 200;
/// Device whose chip is asked.
const FIRST: u32 = 0;

/// The list of `--metrics` and `--section` for libprof.so; empty without them.
pub fn list(args: &KernelsArgs) -> String {
    let sections = args.section.iter().map(|name| format!("section:{name}"));
    args.metrics.iter().cloned().chain(sections).collect::<Vec<_>>().join(",")
}

/// The same list, parsed.
pub fn wanted(args: &KernelsArgs) -> Vec<WantedMetrics> {
    parse_metrics(&list(args)).unwrap_or_default()
}

/// A sentence for each choice that none of the measured kernels has.
pub fn absent(args: &KernelsArgs, report: &KernelsReport) -> Vec<String> {
    let names = report.metric_names();
    let is_absent = |item: &WantedMetrics| !names.is_empty() && !names.iter().any(|name| item.accepts(name));
    let sentence = |item: WantedMetrics| {
        let mut said = format!("no kernel was measured with {}", item.text());
        if let WantedMetrics::Named(text) = &item {
            let mut nearest: Vec<_> = names.iter().copied().collect();
            nearest.sort_by_cached_key(|name| edits(name, text));
            nearest.truncate(SUGGESTED);
            let _ = write!(said, "; the nearest metrics are {}", nearest.join(", "));
        }
        said
    };
    wanted(args).into_iter().filter(is_absent).map(sentence).collect()
}

/// Lists metrics, and returns the exit code. Fails without a usable libcupti or chip, or a closed stdout.
pub fn query(args: &KernelsArgs) -> Result<u8> {
    let (counters, chip) = opened(args.chip.as_deref())?;
    let host = Host::open(counters, Collection::Ranges, &chip, None).map_err(|error| {
        let missing = counters.missing_library().map(|(library, problem)| {
            format!("; {}: {problem}; install the whole nvidia-cuda-cupti package", library.display())
        });
        let is_unknown = counters.supported_chips().is_ok_and(|chips| !chips.contains(&chip));
        let why = if is_unknown { String::new() } else { format!("{error}; ") };
        anyhow!("chip {chip}: {why}this libcupti knows {}{}", known(counters), missing.unwrap_or_default())
    })?;
    let catalog = host.catalog().context("cannot list the metrics")?;
    let chosen = WantedMetrics::on_chip(&wanted(args), &catalog);
    let refusals = chosen.refusals(&chip);
    if !refusals.is_empty() {
        refusals.iter().for_each(|refusal| message::say(&format!("--metrics: {refusal}")));
        return Ok(REFUSED);
    }
    let passes = |names: &[String]| RangePlan::new(counters, &chip, &[names.to_vec()]).ok().map(|plan| plan.passes(0));
    let is_list = args.metrics.is_none() && args.section.is_empty();
    let pattern = args.query_metrics.as_ref().and_then(|pattern| pattern.as_deref());
    let matching = pattern.and_then(WantedMetrics::matching);
    let mut names = if is_list { catalog.0.keys().cloned().collect() } else { chosen.names };
    names.retain(|name| matching.as_ref().is_none_or(|item| item.accepts(name)));
    if let (true, Some(pattern)) = (names.is_empty(), pattern) {
        let of = if is_list { "" } else { " among those chosen" };
        message::say(&format!("--query-metrics: {chip} has no metric that matches {pattern}{of}"));
        return Ok(REFUSED);
    }
    let all_passes = if is_list { None } else { passes(&names) };
    let rows: Vec<Value> = names
        .iter()
        .map(|name| {
            let of = host.properties(name).ok();
            let kind = catalog.0.get(name).copied();
            let first = catalog.named(name).first().cloned();
            json!({
                "name": name,
                "kind": kind.map(MetricKind::name),
                "unit": of.as_ref().map(|of| &of.unit),
                "hardware": of.as_ref().map(|of| &of.hardware),
                "description": of.as_ref().map(|of| &of.description),
                "launches": first.filter(|_| names.len() <= COUNTED).and_then(|first| passes(&[first])),
            })
        })
        .collect();
    let suffixes: serde_json::Map<String, Value> =
        MetricKind::ALL.iter().map(|kind| (kind.name().to_owned(), kind.suffixes().into())).collect();
    let document = json!({"chip": chip, "launches": all_passes, "metrics": rows, "suffixes": suffixes});
    let shown = if args.json { terminal::json(&document)? } else { text(&document) };
    io::stdout().write_all(shown.as_bytes())?;
    Ok(0)
}

/// Loads the metrics of libcupti, and names the chip.
fn opened(chip: Option<&str>) -> Result<(&'static Counters, String)> {
    let search = doctor::search();
    let loaded = if chip.is_some() { Cupti::load_without_driver(&search) } else { Cupti::load(&search) };
    let hint = "`gpuwhy doctor` lists what was tried; without a GPU name a chip, such as --chip GH100";
    let first = |text: &str| text.lines().next().unwrap_or_default().trim_end_matches(" Tried:").to_owned();
    let cupti = loaded.map_err(|error| anyhow!("{}; {hint}", first(&error.to_string())))?;
    let counters = Counters::of(cupti);
    if let Some(chip) = chip {
        return Ok((counters, chip.to_ascii_uppercase()));
    }
    if !initialize_driver() {
        bail!("the driver does not initialize: name a chip with --chip; this libcupti knows {}", known(counters));
    }
    counters.initialize()?;
    Ok((counters, counters.chip_name(FIRST)?))
}

fn known(counters: &Counters) -> String {
    counters.supported_chips().unwrap_or_default().join(", ")
}

fn text(document: &Value) -> String {
    let mut out = String::new();
    let rows = document["metrics"].as_array().map(Vec::as_slice).unwrap_or_default();
    let chip = document["chip"].as_str().unwrap_or_default();
    let together =
        document["launches"].as_u64().map(|launches| format!(", together in {}", counted(launches, "launch")));
    let _ = writeln!(out, "{chip}: {}{}", counted(rows.len() as u64, "metric"), together.unwrap_or_default());
    let width = rows.iter().filter_map(|row| row["name"].as_str()).map(str::len).max().unwrap_or_default();
    for row in rows {
        let field = |name: &str| row[name].as_str().unwrap_or_default();
        let launches = row["launches"].as_u64().map(|count| format!("{}; ", counted(count, "launch")));
        let kind = if field("kind").is_empty() { String::new() } else { format!("{:<11}", field("kind")) };
        let _ = writeln!(
            out,
            "{:<width$}  {kind}{:<18}{}{}",
            field("name"),
            field("unit"),
            launches.unwrap_or_default(),
            field("description")
        );
    }
    if rows.iter().any(|row| row["kind"].is_string()) {
        let _ = writeln!(out, "\nA name is followed by");
        for (kind, suffixes) in document["suffixes"].as_object().into_iter().flatten() {
            let all: Vec<_> = suffixes.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let after_avg: Vec<_> = all.iter().filter_map(|of| of.strip_prefix(".avg")).collect();
            let rollups = match after_avg.as_slice() {
                [] => "",
                ["", ..] => ".avg, .max, .min or .sum, alone or with one of ",
                _ => ".avg, .max, .min or .sum with one of ",
            };
            let mut ends = if after_avg.is_empty() { all } else { after_avg };
            ends.retain(|end| !end.is_empty());
            let _ = writeln!(out, "  {kind}: {rollups}{}", ends.join(", "));
        }
    }
    out
}

/// Checks a choice of metrics, and says what it takes. Returns the exit code if it is refused.
pub fn checked(args: &KernelsArgs) -> Result<Option<u8>> {
    if wanted(args).is_empty() {
        return Ok(None);
    }
    let mut command = Command::new(env::current_exe().context("cannot find this program")?);
    command.args(["kernels", "--query-metrics", "--json"]);
    command.args(args.metrics.iter().map(|list| format!("--metrics={list}")));
    command.args(args.section.iter().map(|name| format!("--section={name}")));
    let output = command.stdin(Stdio::null()).output().context("cannot start a check of the metrics")?;
    if output.status.code() == Some(REFUSED.into()) {
        io::stderr().write_all(&output.stderr)?;
        return Ok(Some(REFUSED));
    }
    let Ok(document) = serde_json::from_slice::<Value>(&output.stdout) else {
        message::say("the metrics are checked in the program: no libcupti was found here, or it knows no GPU");
        return Ok(None);
    };
    let chip = document["chip"].as_str().unwrap_or_default();
    let count = document["metrics"].as_array().map_or(0, Vec::len);
    let launches = document["launches"].as_u64().unwrap_or_default();
    if launches > MOST_LAUNCHES.into() {
        message::say(&format!(
            "{count} metrics of {chip} take {launches} launches of a kernel, {MOST_LAUNCHES} are measured at most: \
             choose fewer metrics"
        ));
        return Ok(Some(REFUSED));
    }
    let how = if launches > 1 {
        format!("{launches} passes: each kernel is measured in {launches} of its launches, which must do the same work")
    } else {
        "1 pass: each kernel is measured in one launch".to_owned()
    };
    message::say(&format!("{count} metrics of {chip} in {how}; nothing is run twice, and no memory is saved"));
    Ok(None)
}
