//! What the report says about the price of tracing; the numbers are in [`crate::cost`].

use super::Report;
use crate::cost::{Cost, Mode};
use crate::terminal::{duration, wrapped};

/// Some lines on what tracing took; none for traces that do not say.
pub(super) fn lines(out: &mut String, report: &Report) {
    let Some(cost) = &report.cost else { return };
    let mut parts = vec![format!("mode {}", cost.mode.name())];
    if cost.whole_graphs {
        parts.push("CUDA graphs as a whole".to_owned());
    }
    if let Some(share) = cost.share().filter(|_| cost.mode != Mode::Watch) {
        let but = if cost.mode == Mode::Full { ", without the calls that only this mode records" } else { "" };
        parts.push(format!(
            "launching threads held up by at most about {:.1} % (records priced as on an H200{but})",
            share * 100.0
        ));
    }
    parts.push(match cost.core_share() {
        Some(share) => format!("gpuprof's threads {:.1} % of a core", share * 100.0),
        None => "processor time of gpuprof's threads not known".to_owned(),
    });
    wrapped(out, "tracing: ", &parts.join(", "));
    for sentence in given_up(cost, report) {
        wrapped(out, "  - ", &sentence);
    }
}

/// A sentence for each step down.
pub(super) fn given_up(cost: &Cost, report: &Report) -> Vec<String> {
    let sentence = |at: u64, to: Mode| {
        let lost = match to {
            Mode::Watch => {
                "device work and API calls are not recorded since then, and the answer is about the time before; the launch \
                 path does not get its full speed back"
            }
            _ => "calls that say nothing about time, memory and stream waits are not recorded since then",
        };
        format!("Stepped down to {} after {}, because tracing took more than allowed: {lost}.", to.name(), duration(at))
    };
    cost.steps_down().map(|step| sentence(step.at.since(report.process.start), step.to)).collect()
}
