//! What `gpuwhy try` prints: a line for each remedy, and JSON.

use gpuwhy_report::run::Results;
use gpuwhy_report::run::remedies::{How, Trial};
use gpuwhy_report::text_format::{counted, duration, printable};
use serde_json::{Value, json};

use crate::trial::change::candidates::LeftOut;
use crate::trial::change::edits::{self, Edit};
use crate::trial::change::machine;
use crate::trial::compare::gain::Gain;
use crate::trial::compare::output::Compared;
use crate::trial::compare::pairs::{Basis, Outcome, Tried};
use crate::trial::runs::measured::Measured;
use crate::trial::runs::steps::median;
use crate::trial::runs::unit::Unit;

/// Version of the JSON schema.
const SCHEMA: u32 = 1;
/// Width of the first column.
const NAME: usize = 34;

/// Where a prediction comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Prediction {
    /// The report's, as an interval.
    Report(f64, f64),
    /// The last measurement of this program on this machine.
    History(f64),
}

/// A line of a table.
pub fn line(name: &str, rest: &str) -> String {
    format!("{}\n", printable(format!("{name:<NAME$}{rest}").trim_end()))
}

fn seconds(time: f64) -> String {
    duration((time * 1e9).round() as u64)
}

/// The line about the unchanged program.
pub fn unchanged(measured: &[Measured], unit: &Unit) -> String {
    let times: Vec<f64> = measured.iter().map(Measured::per_step).collect();
    let steps = measured.iter().map(|run| run.steps).min().unwrap_or(0);
    let time = format!("{} {}", seconds(median(&times).unwrap_or(0.0)), unit.words());
    let runs = counted(measured.len() as u64, "run");
    let of = if unit.is_whole() { String::new() } else { format!(" of {steps} steps") };
    let costs = cost(measured).map(|cost| 100.0 * cost);
    let costs = costs.map(|cost| format!("; with kernels recorded, which costs about {cost:.0} % here"));
    line("unchanged", &format!("{time} ({runs}{of}{})", costs.unwrap_or_default()))
}

/// Share of the time that recording may take, in the median of the runs.
fn cost(runs: &[Measured]) -> Option<f64> {
    median(&runs.iter().filter_map(|run| run.cost).collect::<Vec<_>>())
}

/// What is said of a change without a gain or a loss; `None` if it has one.
pub fn without_time(tried: &Tried) -> Option<String> {
    Some(match (&tried.outcome, tried.doubt) {
        (Outcome::NotApplicable(why), _) => format!("not applicable: {why}"),
        (Outcome::Fails(words), _) => format!("the program fails with it: {words}"),
        (Outcome::Unmeasured(why), _) => format!("nothing can be said: {why}"),
        (Outcome::NoDifference, Some(why)) => format!("nothing can be said: {why}"),
        (Outcome::NoTime(why), _) => format!("not measured: {why}"),
        _ => return None,
    })
}

/// The line about a remedy; `number` counts those that were tried, `kept` are the numbers of those below it.
pub fn tried(tried: &Tried, number: usize, kept: &[usize], prediction: Option<Prediction>) -> String {
    let id = tried.candidate.change.id();
    let on_top: Vec<_> = kept.iter().map(usize::to_string).collect();
    let name = match tried.outcome {
        Outcome::NotAllowed => return String::new(),
        Outcome::NoTime(_) => format!("- {id}"),
        _ if kept.is_empty() => format!("{number} {id}"),
        _ => format!("{number} {id}, on top of {}", on_top.join(", ")),
    };
    let (gain, has_runs) = (tried.gain, tried.seconds.is_some());
    let measured = |words: &str| match gain {
        Some(Gain { low, high, .. }) => format!("{words} ({low:.2} to {high:.2})"),
        None => words.to_owned(),
    };
    let time = tried.seconds.map(|(_, with)| seconds(with)).unwrap_or_default();
    let rest = without_time(tried).unwrap_or_else(|| match tried.outcome {
        Outcome::Helps => {
            let factor = gain.map(|gain| format!("{:.2}x", gain.middle)).unwrap_or_default();
            let in_all = if kept.is_empty() { String::new() } else { format!("   {:.2}x in all", tried.in_all) };
            format!("{time}   {}{in_all}", measured(&factor))
        }
        Outcome::Slower => format!("{time}   {}", measured("slower")),
        Outcome::ChangesResults => {
            "faster, but it prints other numbers, so no gain is claimed (--allow behavior)".to_owned()
        }
        _ => measured("no difference"),
    });
    let predicted = prediction.map(|prediction| match prediction {
        Prediction::Report(low, high) => format!("predicted {}", interval_x(low, high)),
        Prediction::History(gain) => format!("measured before {gain:.2}x"),
    });
    let with_gain = [Some(condition(tried.basis)), tried.note.map(str::to_owned)];
    let with_runs = [
        predicted,
        tried.candidate.change.trial().and_then(machine::setting),
        tried.compared.as_ref().and_then(compared),
    ];
    let with_gain = with_gain.into_iter().filter(|_| gain.is_some());
    let more = with_gain.chain(with_runs.into_iter().filter(|_| has_runs)).flatten().filter(|words| !words.is_empty());
    line(&name, &more.fold(rest, |line, words| format!("{line}   {words}")))
}

/// What a gain holds for, where it is not that of equal numbers of steps.
fn condition(basis: Basis) -> String {
    match basis {
        Basis::Step => String::new(),
        Basis::ToEnd => {
            "from the first step to the end of the program, as the GPU works long after the last".to_owned()
        }
        Basis::StepOfPart => "if a step does the same work with it".to_owned(),
        Basis::Run => "whole runs with their start-up, as one of both has no such steps".to_owned(),
        Basis::All(before, after) => format!("all of the work: {before} steps before, {after} after"),
    }
}

fn interval_x(low: f64, high: f64) -> String {
    if low < 1.1 && high.is_finite() {
        return format!("{low:.2}x to {high:.2}x");
    }
    if high.is_finite() { format!("{low:.1}x to {high:.1}x") } else { format!("at least {low:.1}x") }
}

/// What the comparison of the output says; nothing if it is equal.
fn compared(compared: &Compared) -> Option<String> {
    match compared {
        Compared::Equal => None,
        Compared::Nothing(why) => Some(format!("output not compared: {why}")),
        Compared::Lacks { line, .. } => Some(format!("does not print \"{line}\"")),
        Compared::Differs { changed, unchanged, is_rounding } => {
            let how = if *is_rounding { "changes numbers" } else { "prints other numbers" };
            Some(format!("{how}: \"{changed}\", unchanged \"{unchanged}\""))
        }
    }
}

/// The first lines: remedies of the report that are not tried, and why. `is_all` if there is no other.
pub fn not_tried(left_out: &[LeftOut], is_all: bool) -> String {
    if is_all && left_out.is_empty() {
        return "Not tried: the report names no change.\n".to_owned();
    }
    let names = |why: Option<Results>| {
        let of = left_out.iter().filter(|left| left.why == why);
        let place = |at: &String| at.split(" (").next().map(|at| format!(" at {at}"));
        let names = of.map(|left| left.id.clone() + &left.at.as_ref().and_then(place).unwrap_or_default());
        names.collect::<Vec<_>>()
    };
    let whys = [
        (None, "a change of the program, which `gpuwhy try --patch FIX.diff -- COMMAND` measures"),
        (Some(Results::Rounding), "--allow rounding, as last digits change"),
        (Some(Results::Behavior), "to be named (--remedy ID), as the program behaves differently"),
    ];
    let rows = whys.into_iter().filter_map(|(why, words)| {
        let names = names(why);
        let needs = if names.len() == 1 { "needs" } else { "need" };
        (!names.is_empty()).then(|| format!("{} {needs} {words}", names.join(", ")))
    });
    listed("Not tried: ", rows)
}

/// Lines of which the first one has a lead.
fn listed(lead: &str, rows: impl IntoIterator<Item = String>) -> String {
    let lines = rows.into_iter().enumerate().map(|(at, row)| {
        let lead = if at == 0 { lead.to_owned() } else { " ".repeat(lead.len()) };
        format!("{}\n", printable(&format!("{lead}{row}")))
    });
    lines.collect()
}

/// The last lines: what to write into the program.
pub fn to_keep(all: &[Tried]) -> String {
    let kept: Vec<_> = all.iter().filter(|tried| tried.outcome == Outcome::Helps).collect();
    if kept.is_empty() {
        let is_known =
            all.iter().filter(|tried| tried.has_run()).all(|tried| tried.is_measured() && tried.doubt.is_none());
        let text = match all.iter().any(Tried::has_run) {
            false if all.iter().any(|tried| matches!(tried.outcome, Outcome::NoTime(_))) => {
                "No gain could be measured.\n"
            }
            false => "Nothing was tried.\n",
            true if is_known => "Nothing that was tried helps.\n",
            true => "No gain could be measured.\n",
        };
        return text.to_owned();
    }
    let edits: Vec<_> = kept.iter().flat_map(|tried| tried.edits.clone()).collect();
    let others = kept.iter().filter(|tried| edits::lines(&tried.edits).is_empty());
    let others = others.map(|tried| tried.candidate.to_keep());
    listed("To keep: ", edits::lines(&edits).into_iter().chain(others))
}

/// The table of `--list`.
pub fn list() -> String {
    let rows = Trial::all().map(|remedy| {
        let how = match remedy.how {
            How::Set(values) => {
                values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
            }
            How::Add(names, setting) => format!("{}={setting}", names.last().unwrap_or(&"")),
            How::Unset(name) => format!("{name} unset"),
            How::PyTorch => "PyTorch".to_owned(),
            How::Python => "Python".to_owned(),
            How::Preload(names) => format!("LD_PRELOAD={}", names.join(" or ")),
            How::Cores => "CPU affinity".to_owned(),
        };
        format!("{:<18} {:<9} {} ({how})\n", remedy.id, remedy.results().name(), remedy.change)
    });
    format!("{:<18} {:<9} what it changes\n{}", "remedy", "results", rows.collect::<String>())
}

/// The same list as JSON.
pub fn list_json() -> Value {
    let rows = Trial::all().map(|remedy| {
        json!({"id": remedy.id, "results": remedy.results().name(), "change": remedy.change, "keep": remedy.keep,
            "any_program": remedy.is_for_any_program()})
    });
    json!({"schema_version": SCHEMA, "remedies": rows.collect::<Vec<_>>()})
}

/// The result as JSON.
pub fn document(program: &str, unit: &Unit, unchanged: &[Measured], all: &[(Tried, Option<Prediction>)]) -> Value {
    let times: Vec<f64> = unchanged.iter().map(Measured::per_step).collect();
    let rows = all.iter().map(|(tried, prediction)| {
        let (outcome, why) = outcome(tried);
        let (output, changed, before, is_rounding) = match &tried.compared {
            None => (None, None, None, None),
            Some(Compared::Equal) => (Some("equal"), None, None, None),
            Some(Compared::Nothing(_)) => (Some("not_compared"), None, None, None),
            Some(Compared::Lacks { line, .. }) => (Some("lacks_lines"), None, Some(line), None),
            Some(Compared::Differs { changed, unchanged, is_rounding }) => {
                (Some("differs"), Some(changed), Some(unchanged), Some(is_rounding))
            }
        };
        let report = match prediction {
            Some(Prediction::Report(low, high)) => json!({"low": low, "high": high}),
            Some(Prediction::History(gain)) => json!({"measured_before": gain}),
            None => Value::Null,
        };
        json!({
            "id": tried.candidate.change.id(), "results": tried.candidate.results.name(), "outcome": outcome, "why": why,
            "unchanged_s": tried.seconds.map(|(before, _)| before), "changed_s": tried.seconds.map(|(_, after)| after),
            "gain": tried.gain.map(|gain| gain.middle), "low": tried.gain.map(|gain| gain.low),
            "high": tried.gain.map(|gain| gain.high), "basis": basis(tried.basis), "steps_of_all": steps_of_all(tried.basis),
            "note": tried.note, "pairs": tried.pairs, "in_all": tried.in_all, "predicted": report, "output": output,
            "output_changed": changed, "output_unchanged": before, "output_is_rounding": is_rounding,
            "at": tried.candidate.at, "keep": tried.candidate.to_keep(),
            "edits": tried.edits.iter().map(Edit::json).collect::<Vec<_>>(),
        })
    });
    json!({
        "schema_version": SCHEMA, "program": program, "unit": unit.name, "unit_at": unit.at,
        "unchanged": {"s": median(&times), "runs": unchanged.len(), "steps": unchanged.iter().map(|run| run.steps).min(),
            "recording_share": cost(unchanged)},
        "remedies": rows.collect::<Vec<_>>(),
    })
}

/// Numbers of steps in which all of the work was done, without the change and with it.
fn steps_of_all(basis: Basis) -> Option<[usize; 2]> {
    match basis {
        Basis::All(before, after) => Some([before, after]),
        Basis::Step | Basis::StepOfPart | Basis::ToEnd | Basis::Run => None,
    }
}

/// Remedies that are not tried as JSON.
pub fn not_tried_json(left_out: &[LeftOut]) -> Value {
    let row = |left: &LeftOut| {
        let why = left.why.map_or("needs_change", Results::name);
        json!({"id": left.id, "why": why, "at": left.at, "text": left.text})
    };
    left_out.iter().map(row).collect()
}

/// Name of what a gain is of, in JSON.
fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Step => "step",
        Basis::StepOfPart => "step_of_part",
        Basis::All(..) => "all_work",
        Basis::ToEnd => "to_end",
        Basis::Run => "run",
    }
}

/// Name of an outcome in JSON, and its reason.
pub fn outcome(tried: &Tried) -> (&'static str, Option<&str>) {
    match &tried.outcome {
        Outcome::Helps => ("helps", None),
        Outcome::NoDifference => ("no_difference", tried.doubt),
        Outcome::Slower => ("slower", None),
        Outcome::ChangesResults => ("changes_results", None),
        Outcome::NotApplicable(why) => ("not_applicable", Some(why)),
        Outcome::Fails(words) => ("fails", Some(words)),
        Outcome::Unmeasured(why) => ("not_measured", Some(why)),
        Outcome::NotAllowed => ("not_allowed", None),
        Outcome::NoTime(why) => ("no_time", Some(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::change::Change;
    use crate::trial::change::candidates::Candidate;

    #[test]
    fn what_was_cut_for_time_was_not_left_out() {
        let tried = |outcome| Tried::without_runs(&Candidate::plain(Change::Recording("light")), outcome, 1.0);
        let no_time = tried(Outcome::NoTime("the time was up in a run with it (--budget)".to_owned()));
        let left_out = tried(Outcome::NotApplicable("it has none".to_owned()));
        assert_eq!(to_keep(std::slice::from_ref(&left_out)), "Nothing was tried.\n");
        assert_eq!(to_keep(&[left_out, no_time]), "No gain could be measured.\n");
    }
}
