//! Text form of a hang report.

use std::fmt::Write as _;

use super::{Culprit, HangKind, HangReport, RunAnswers, WaitingCommunicator};
use gpuwhy_report::text_format::{Page, Style, duration, shortened, wrapped};

/// Maximum number of findings and culprits shown; the others are counted.
const SHOWN: usize = 16;
/// Maximum number of characters of a text from a reply.
const TEXT: usize = 160;
/// Maximum number of ranks in a list.
const RANKS: usize = 12;

impl HangReport {
    /// Formats the diagnosis with at most 100 columns.
    pub fn text(&self) -> String {
        self.text_within(Style::default())
    }

    /// Like [`text`](Self::text), in this style.
    pub fn text_within(&self, style: Style) -> String {
        let mut out = Page::new(style);
        let waiting = self.findings.len();
        if self.runs.is_empty() {
            let _ = writeln!(out, "no rank responded");
        }
        for run in self.runs.iter().take(SHOWN) {
            wrapped(&mut out, "", &self.of_run(run));
        }
        if self.runs.len() > SHOWN {
            let _ = writeln!(out, "... {} more runs", self.runs.len() - SHOWN);
        }
        for finding in self.findings.iter().take(SHOWN) {
            let label = if finding.is_passed_on { "follows: " } else { "hang: " };
            let run = match self.runs.len() {
                1 => String::new(),
                _ => format!("run {}: ", named(&finding.run)),
            };
            wrapped(&mut out, label, &format!("{run}{}", sentence(finding)));
            for culprit in finding.culprits.iter().take(SHOWN) {
                wrapped(&mut out, "  ", &of_culprit(culprit));
            }
            if finding.culprits.len() > SHOWN {
                let _ = writeln!(out, "  ... {} more ranks", finding.culprits.len() - SHOWN);
            }
        }
        if waiting > SHOWN {
            let _ = writeln!(out, "... {} more communicators", waiting - SHOWN);
        }
        for silent in self.silent.iter().take(SHOWN) {
            wrapped(&mut out, "silent: ", silent);
        }
        if self.silent.len() > SHOWN {
            let _ = writeln!(out, "... {} more that do not respond", self.silent.len() - SHOWN);
        }
        for run in self.runs.iter().filter(|run| !run.without_collectives.is_empty()).take(SHOWN) {
            let ranks = list(&run.without_collectives);
            let doubt = format!(
                "No collective of rank {ranks} was reported. Start the ranks with gpuwhy run --nccl (NCCL 2.27 or \
                 later), or pass dumps of PyTorch's flight recorder."
            );
            wrapped(&mut out, "not known: ", &doubt);
        }
        for doubt in &self.doubts {
            wrapped(&mut out, "not known: ", doubt);
        }
        out.into_text()
    }

    fn of_run(&self, of: &RunAnswers) -> String {
        let run =
            if of.run.is_empty() && self.runs.len() == 1 { String::new() } else { format!("run {}, ", named(&of.run)) };
        let silent = match &of.silent[..] {
            [] => String::new(),
            silent => format!(" of {}, no response from {}", of.ranks as usize + silent.len(), list(silent)),
        };
        let waiting = self.findings.iter().filter(|finding| finding.run == of.run).count();
        let waiting = match waiting {
            0 if of.has_no_collective() => "no collective of these is known".to_owned(),
            0 if !self.silent.is_empty() => "none of these waits in a collective".to_owned(),
            0 => "none waits in a collective".to_owned(),
            waiting => format!("communicators that wait: {waiting}"),
        };
        format!("{run}ranks: {}{silent}; {waiting}", of.ranks)
    }
}

fn named(run: &str) -> String {
    if run.is_empty() { "without a name".to_owned() } else { shortened_text(run) }
}

fn sentence(finding: &WaitingCommunicator) -> String {
    let name = if finding.name.is_empty() { &finding.communicator } else { &finding.name };
    let function = if finding.function.is_empty() { "operation" } else { finding.function.as_str() };
    let age = finding.age_ns.map_or_else(String::new, |age| format!(" for {}", duration(age)));
    let reason = match finding.kind {
        HangKind::Mismatch => "these ranks queued something else than the others: an error of the program",
        HangKind::NeverCame if finding.is_passed_on => {
            "these ranks never queued it, because they wait in another communicator"
        }
        HangKind::NeverCame => "these ranks never queued it",
        HangKind::Silent if finding.culprits.is_empty() => {
            "all that answer queued it, but not all ranks answer: ask those, or look whether they have ended"
        }
        HangKind::Silent => {
            "all others queued it, and these ranks say nothing: ask them, or look whether they have ended"
        }
        HangKind::NotRunning => {
            "all ranks queued it, and on these its kernel does not run: look for what runs before it on their streams"
        }
        HangKind::Running => {
            "all ranks queued it: look at the network and the devices (XID errors in the kernel log, ports of the NICs, \
             NCCL's RAS)"
        }
    };
    let waiting = list(&finding.waiting);
    let (name, function) = (shortened_text(name), shortened_text(function));
    format!("communicator {name}, {function} number {}: ranks {waiting} wait{age}; {reason}.", finding.number)
}

fn of_culprit(culprit: &Culprit) -> String {
    let mut text = format!("rank {}", culprit.rank);
    if !culprit.place.is_empty() {
        let _ = write!(text, " ({})", shortened_text(&culprit.place));
    }
    if let Some(queued) = &culprit.queued {
        let _ = write!(text, " queued {}", shortened_text(queued));
    }
    if let Some(line) = &culprit.line {
        let _ = write!(text, " at {}", shortened_text(line));
    }
    if let Some(other) = &culprit.waits_in {
        let _ = write!(text, "; it waits in communicator {}", shortened_text(other));
    }
    text
}

fn shortened_text(text: &str) -> String {
    shortened(text, TEXT)
}

/// Ranks as ranges: `0-6, 9`.
fn list(ranks: &[u32]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs: Vec<&[u32]> = sorted.chunk_by(|a, b| b - a == 1).collect();
    let named = runs.iter().take(RANKS).map(|run| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    let named: Vec<String> = named.collect();
    let more = if runs.len() > RANKS { ", ..." } else { "" };
    format!("{}{more}", named.join(", "))
}
