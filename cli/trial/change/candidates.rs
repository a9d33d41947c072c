//! The remedies to try: those of a report, or those that the command line names.

use gpuwhy_report::run::Results;
use gpuwhy_report::run::remedies::Trial;
use gpuwhy_report::text_format::edits;
use serde_json::Value;

use super::{Change, machine};
use crate::trial::refused::{BAD_INPUT, Refused};

/// Maximum number of edits from a name to its suggestion.
const SLIP: usize = 3;

/// A change to try.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// How it is applied.
    pub change: Change,
    /// What to change in the program, as the report says it.
    pub text: Option<String>,
    /// File and line of the change.
    pub at: Option<String>,
    /// Effect on the results.
    pub results: Results,
    /// Interval of the gain that the report predicts.
    pub predicted: Option<(f64, f64)>,
    /// True if it is tried whatever it does to the results: the command line names it.
    pub is_named: bool,
}

/// A remedy of a report that is not tried.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    /// Its name.
    pub id: String,
    /// File and line of the change.
    pub at: Option<String>,
    /// What to change, as the report says it.
    pub text: Option<String>,
    /// How it changes the results, which was not asked for; `None` if nothing applies it from outside.
    pub why: Option<Results>,
}

impl Candidate {
    /// A remedy without a report.
    pub fn of(remedy: &'static Trial) -> Self {
        Self::plain(Change::Remedy(remedy))
    }

    /// A change of which no report says anything.
    pub fn plain(change: Change) -> Self {
        let results = change.trial().map_or(Results::Same, Trial::results);
        Self { change, text: None, at: None, results, predicted: None, is_named: false }
    }

    /// True if it is tried where these effects on the results are allowed.
    pub fn is_tried(&self, allowed: &[Results]) -> bool {
        self.is_named || allowed.contains(&self.results)
    }

    /// What to write into the program to keep it.
    pub fn to_keep(&self) -> String {
        let of_trial = |trial: &Trial| machine::setting(trial).unwrap_or_else(|| trial.keep.to_owned());
        let text = self.text.clone().or_else(|| self.change.trial().map(of_trial)).unwrap_or_default();
        let text = text.trim_end_matches('.');
        match &self.at {
            Some(at) if !text.contains(at.as_str()) => format!("{text} at {at}"),
            _ => text.to_owned(),
        }
    }
}

/// Remedies of a report (as JSON). Those of earlier versions have none.
pub fn rows(report: &Value) -> impl Iterator<Item = &Value> + Clone {
    report["bottleneck"]["remedies"].as_array().into_iter().flatten()
}

/// Remedies of a report that can be applied from outside, in its order.
pub fn candidates(report: &Value) -> Vec<Candidate> {
    let mut found = Vec::<Candidate>::new();
    for row in rows(report) {
        let Some(remedy) = row["id"].as_str().and_then(Trial::named) else { continue };
        if found.iter().any(|other| other.change.id() == remedy.id) {
            continue;
        }
        let (text, at, predicted) = (words(row, "text"), words(row, "at"), predicted(row));
        found.push(Candidate { text, at, predicted, ..Candidate::of(remedy) });
    }
    found
}

fn words(row: &Value, field: &str) -> Option<String> {
    row[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Remedies of a report that are not among those that are tried of `wanted`, in its order.
pub fn left_out(report: &Value, wanted: &[Candidate], allowed: &[Results]) -> Vec<LeftOut> {
    let mut found = Vec::<LeftOut>::new();
    for row in rows(report) {
        let Some(id) = row["id"].as_str() else { continue };
        let id = Trial::named(id).map_or(id, |trial| trial.id);
        let why = match wanted.iter().find(|candidate| candidate.change.id() == id) {
            Some(candidate) if candidate.is_tried(allowed) => continue,
            Some(candidate) => Some(candidate.results),
            None => None,
        };
        if !found.iter().any(|other| other.id == id) {
            found.push(LeftOut { id: id.to_owned(), at: words(row, "at"), text: words(row, "text"), why });
        }
    }
    found
}

/// The interval of the gain in a row of a report; `None` if it says nothing.
pub fn predicted(row: &Value) -> Option<(f64, f64)> {
    let (low, high) = (row["low"].as_f64()?, row["high"].as_f64().unwrap_or(f64::INFINITY));
    (high.is_finite() || low > 1.0).then_some((low, high))
}

/// What to say of a name that no remedy has.
pub fn unknown(name: &str) -> Refused {
    let nearest = Trial::all().map(|remedy| (edits(name, remedy.id), remedy.id)).min();
    let hint = match nearest.filter(|&(edits, _)| edits <= SLIP) {
        Some((_, hint)) => format!("did you mean {hint}?"),
        None => "`gpuwhy try --list` prints all of them".to_owned(),
    };
    Refused(BAD_INPUT, format!("--remedy {name}: there is no such remedy; {hint}"))
}

/// Remedies that the command line names, with what a report says about them. Fails for an unknown name.
pub fn named(names: &[String], report: Option<&Value>) -> Result<Vec<Candidate>, Refused> {
    let known = report.map(candidates).unwrap_or_default();
    let mut found = Vec::<Candidate>::new();
    for name in names {
        let remedy = Trial::named(name).ok_or_else(|| unknown(name))?;
        if !found.iter().any(|other| other.change.id() == remedy.id) {
            let from_report = known.iter().find(|candidate| candidate.change.id() == remedy.id);
            let candidate = from_report.cloned().unwrap_or_else(|| Candidate::of(remedy));
            found.push(Candidate { is_named: true, ..candidate });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use gpuwhy_report::run::remedies::How;
    use serde_json::json;

    use super::*;

    #[test]
    fn remedies_that_can_be_applied_from_outside_keep_their_order() {
        let report = json!({"bottleneck": {"remedies": [
            {"id": "pinned", "text": "Pin it", "at": "train.py:7", "low": 1.2, "high": 1.5, "link": "x"},
            {"id": "file_output", "text": "Write less"},
            {"id": "workers", "text": null, "at": null, "low": null, "high": null},
            {"id": "pinned"},
            {"no": "id"},
        ]}});
        let found = candidates(&report);
        assert_eq!(found.iter().map(|candidate| candidate.change.id()).collect::<Vec<_>>(), ["pinned", "workers"]);
        assert_eq!(found[0].predicted, Some((1.2, 1.5)));
        assert_eq!(found[0].to_keep(), "Pin it at train.py:7");
        assert_eq!(found[1].results, Trial::named("workers").unwrap().results());
        assert_eq!(found[1].to_keep(), Trial::named("workers").unwrap().keep);
        assert!(candidates(&json!({"bottleneck": {"cause": "launch"}})).is_empty());
        assert!(candidates(&json!([])).is_empty());
        let same_change = candidates(&json!({"bottleneck": {"remedies": [{"id": "foreach_fused"}]}}));
        assert_eq!(same_change[0].change.id(), "fused_optimizer");
        let named = named(&["tf32".into(), "pinned".into(), "tf32".into()], Some(&report)).unwrap();
        assert_eq!(named.len(), 2);
        assert_eq!(named[1].predicted, Some((1.2, 1.5)));
    }

    #[test]
    fn what_is_not_tried_is_known_with_the_reason() {
        let report = json!({"bottleneck": {"remedies": [
            {"id": "graphs", "text": "Capture it", "at": "train.py:7 (main)"},
            {"id": "tf32", "low": 1.0, "high": null}, {"id": "pinned", "low": 1.5, "high": null}, {"id": "gc"},
        ]}});
        let wanted = candidates(&report);
        let left = left_out(&report, &wanted, &[Results::Same]);
        let whys: Vec<_> = left.iter().map(|left| (left.id.as_str(), left.why)).collect();
        let of = |id: &str| Some(Trial::named(id).unwrap().results());
        assert_eq!(whys, [("graphs", None), ("tf32", of("tf32")), ("gc", of("gc"))]);
        assert_eq!(left[0].at.as_deref(), Some("train.py:7 (main)"));
        assert_eq!(
            wanted.iter().map(|one| one.predicted).collect::<Vec<_>>(),
            [None, Some((1.5, f64::INFINITY)), None]
        );
        let workers = candidates(&json!({"bottleneck": {"remedies": [{"id": "workers"}, {"id": "no_grad"}]}}));
        assert_eq!(workers.iter().map(|one| one.is_tried(&[Results::Same])).collect::<Vec<_>>(), [true, false]);
        let named = named(&["gc".into()], None).unwrap();
        assert!(named[0].is_tried(&[Results::Same]) && left_out(&json!([]), &named, &[]).is_empty());
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let error = named(&["pined".into()], None).unwrap_err().to_string();
        assert!(error.contains("did you mean pinned?"), "{error}");
        assert!(named(&["zzzzzzzzzz".into()], None).unwrap_err().to_string().contains("--list"));
    }

    #[test]
    fn every_change_of_pytorch_is_in_the_python_file() {
        let hooks = include_str!("../python/changes.py");
        for remedy in Trial::all() {
            let is_hook = hooks.contains(&format!("    \"{}\": _", remedy.id))
                || hooks
                    .lines()
                    .any(|line| line.starts_with("LOADER = ") && line.contains(&format!("\"{}\"", remedy.id)));
            assert_eq!(is_hook, matches!(remedy.how, How::PyTorch | How::Python | How::Unset(_)), "{}", remedy.id);
            assert_eq!(Trial::named(remedy.id).unwrap().change, remedy.change);
        }
    }
}
