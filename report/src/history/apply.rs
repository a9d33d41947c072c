//! Gains that `gpuwhy try` measured take the place of estimates.

use super::{Measured, measured};
use crate::run::remedies::Trial;
use crate::run::{MeasuredGain, Remedy, Report, lead};
use profiler_core::sorting::SortRows as _;

impl Report {
    /// Puts the gains of this program that were measured on its host into its remedies. They come before all that are
    /// estimated to bring less, and those that make no difference last: they are no longer advised.
    pub fn apply_measured(&mut self, lines: &[Measured]) {
        let (command, host) = (&self.process.command, &self.process.host);
        let bottleneck = &mut self.bottleneck;
        let before = lead(&bottleneck.remedies);
        let tried = |remedy: &Remedy| Trial::named(remedy.id).map_or(remedy.id, |trial| trial.id);
        let gain = |remedy: &Remedy| measured(lines, command, host, tried(remedy)).map(gain_of);
        let mut found = Vec::new();
        for remedy in &mut bottleneck.remedies {
            remedy.measured = gain(remedy);
            found.extend(remedy.measured.map(|gain| (remedy.id, gain)));
        }
        if found.is_empty() {
            return;
        }
        found.sort_rows_by(|(_, a), (_, b)| a.gain.total_cmp(&b.gain));
        let (useless, useful): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, gain)| !gain.helps());
        let mut last = Vec::new();
        for (id, _) in useless {
            let at = bottleneck.remedies.iter().position(|remedy| remedy.id == id);
            last.extend(at.map(|at| bottleneck.remedies.remove(at)));
        }
        // The largest gain is put in last, so it is before the others.
        for (id, gain) in useful {
            let Some(at) = bottleneck.remedies.iter().position(|remedy| remedy.id == id) else { continue };
            let remedy = bottleneck.remedies.remove(at);
            let smaller = bottleneck.remedies.iter().position(|other| expected(other) < gain.gain);
            bottleneck.remedies.insert(smaller.unwrap_or(at).min(at), remedy);
        }
        bottleneck.remedies.extend(last);
        if let Some(rest) = bottleneck.recommendation.strip_prefix(&before) {
            bottleneck.recommendation = lead(&bottleneck.remedies) + rest;
        }
    }
}

fn expected(remedy: &Remedy) -> f64 {
    remedy.measured.map(|measured| measured.gain).or(remedy.speedup).unwrap_or(1.0)
}

fn gain_of(line: &Measured) -> MeasuredGain {
    MeasuredGain { gain: line.gain, low: line.low, high: line.high, at_unix_ns: line.at_ns }
}
