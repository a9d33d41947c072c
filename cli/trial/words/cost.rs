//! `gpuwhy try --cost`: what recording costs this program, in the modes that the user names.

use serde_json::{Value, json};

use super::text::{line, outcome, without_time};
use crate::args::trial::CostMode;
use crate::trial::change::Change;
use crate::trial::change::candidates::Candidate;
use crate::trial::compare::gain::Gain;
use crate::trial::compare::pairs::Tried;

/// The modes, each once.
pub fn candidates(modes: &[CostMode]) -> Vec<Candidate> {
    let first = modes.iter().enumerate().filter(|(at, mode)| !modes[..*at].contains(mode));
    first.map(|(_, mode)| Candidate::plain(Change::Recording(mode.name()))).collect()
}

/// Increase of the time by recording, with its interval, where it is known.
fn cost(tried: &Tried) -> Option<Gain> {
    let more = |factor: f64| 1.0 / factor - 1.0;
    tried.gain.map(|gain| Gain { middle: more(gain.middle), low: more(gain.high), high: more(gain.low) })
}

/// The line about a mode.
pub fn words(tried: &Tried) -> String {
    // No minus before 0.0.
    let percent = |share: f64| format!("{:.1}", (1000.0 * share).round() / 10.0 + 0.0);
    let rest = match cost(tried) {
        // Recording makes no program faster, so an interval below zero is noise too.
        Some(Gain { low, high, .. }) if low <= 0.0 => {
            let word = if high > 0.05 { "unclear" } else { "no difference" };
            format!("{word} ({} to {} %)", percent(low), percent(high))
        }
        Some(Gain { middle, low, high }) => {
            format!("costs {} % ({} to {})", percent(middle), percent(low), percent(high))
        }
        None => without_time(tried).unwrap_or_else(|| "nothing can be said: there is no time".to_owned()),
    };
    let id = tried.candidate.change.id();
    line(&if id == CostMode::Light.name() { format!("{id} (the default)") } else { id.to_owned() }, &rest)
}

/// The rows of the JSON document.
pub fn rows<'a>(all: impl IntoIterator<Item = &'a Tried>) -> Value {
    let row = |tried: &Tried| {
        let cost = cost(tried);
        let (outcome, why) = if cost.is_some() { ("measured", None) } else { outcome(tried) };
        json!({
            "mode": tried.candidate.change.id(), "outcome": outcome, "why": why, "cost": cost.map(|cost| cost.middle),
            "low": cost.map(|cost| cost.low), "high": cost.map(|cost| cost.high), "pairs": tried.pairs,
            "unchanged_s": tried.seconds.map(|(before, _)| before), "recorded_s": tried.seconds.map(|(_, after)| after),
        })
    };
    all.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::compare::pairs::Outcome;

    #[test]
    fn a_mode_that_costs_nothing_and_one_that_records_nothing() {
        let mode = candidates(&[CostMode::Monitor, CostMode::Light, CostMode::Monitor]);
        assert_eq!(mode.iter().map(|one| one.change.id()).collect::<Vec<_>>(), ["monitor", "light"]);
        let mut tried = Tried::without_runs(&mode[0], Outcome::NoDifference, 1.0);
        tried.gain = Some(Gain { middle: 1.0 / 1.004, low: 1.0 / 1.011, high: 1.0 / 0.998 });
        assert!(words(&tried).ends_with(" no difference (-0.2 to 1.1 %)\n"), "{}", words(&tried));
        tried.gain = Some(Gain { middle: 1.0001, low: 1.00005, high: 1.0002 });
        assert!(words(&tried).ends_with(" no difference (0.0 to 0.0 %)\n"), "{}", words(&tried));
        tried.gain = Some(Gain { middle: 1.0 / 1.06, low: 1.0 / 1.21, high: 1.0 / 0.92 });
        assert!(words(&tried).ends_with(" unclear (-8.0 to 21.0 %)\n"), "{}", words(&tried));
        tried.gain = Some(Gain { middle: 1.0 / 1.012, low: 1.0 / 1.02, high: 1.0 / 1.001 });
        assert!(words(&tried).ends_with("costs 1.2 % (0.1 to 2.0)\n"), "{}", words(&tried));
        let tried = Tried::without_runs(&mode[1], Outcome::NotApplicable("nothing was recorded".to_owned()), 1.0);
        assert!(
            words(&tried).starts_with("light (the default) ")
                && words(&tried).ends_with(" not applicable: nothing was recorded\n")
        );
        assert_eq!(rows([&tried])[0]["outcome"], "not_applicable");
    }
}
