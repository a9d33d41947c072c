//! Summaries of the run: the live line, the status for clients of the control socket, and the text that the
//! trace keeps.
//!
//! All are made from one report ([`gpuwhy_report::run`]), so they cannot differ.

use std::path::Path;
use std::time::Duration;

use gpuwhy_report::run::Report;
use gpuwhy_report::text_format::printable;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::format::{STORED_REPORT_FROM, StoredReport};
use gpuwhy_trace::json_text::Object;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::{Loss, Timestamp};

use crate::capture::controller::CaptureController;
use crate::collect::sinks::Sinks;
use crate::log;
use crate::shared::{Detail, LiveState, StatusSummary};
use crate::sys::clock::{self, after};
use crate::sys::threads;

/// The live line and its schedule, on the clock of the records, so that a replay prints the same lines.
#[derive(Debug)]
pub struct Live {
    interval: Duration,
    next: Timestamp,
}

impl Live {
    /// Creates a line that is printed every `interval` after `start`.
    pub fn new(interval: Duration, start: Timestamp) -> Self {
        Self { interval, next: after(start, interval) }
    }

    /// Prints the line if it is due.
    pub fn line_if_due(&mut self, at: Timestamp, sinks: &mut Sinks, dictionary: &Dictionary) {
        if at >= self.next && !sinks.captures.is_empty() {
            log::print(&format!("{}\n", sinks.captures.live_line(&sinks.session, dictionary)));
            self.next = after(at, self.interval);
        }
    }
}

/// Makes the status for a client.
pub fn answer(detail: Detail, loss: &Loss, sinks: &Sinks, dictionary: &Dictionary) -> StatusSummary {
    let (session, captures) = (&sinks.session, &sinks.captures);
    let spent = || threads::thread_cpu_time(threads::thread_id()).unwrap_or_default();
    let before = spent();
    if detail == Detail::Metrics {
        let fields = captures.metrics(session, dictionary).object();
        let cost = spent().saturating_sub(before);
        return StatusSummary { live: Some(LiveState { fields, cost }), ..StatusSummary::default() };
    }
    let report = captures.report(session, dictionary, End::Abrupt, Vec::new());
    let fields = (detail == Detail::Live).then(|| report.live_state().object());
    let hang = (detail == Detail::Hang).then(|| {
        Object::new()
            .field("host", &session.host)
            .field("run", session.run())
            .field("rank", session.rank())
            .field("world_size", session.world_size())
            .with(&captures.pending_collectives(clock::wall_clock(), dictionary))
    });
    StatusSummary {
        hang,
        live: fields.map(|fields| LiveState { fields, cost: spent().saturating_sub(before) }),
        bottleneck: captures.name_now(&report, (report.bottleneck.cause, report.bottleneck.share)),
        line: report.live_line(),
        summary: if detail == Detail::Summary { report.summary() } else { String::new() },
        kernels: report.completeness.kernels,
        lost: loss.dropped_by_cupti + loss.dropped_by_gpuwhy + loss.dropped_ranges,
        rank: session.rank(),
        run: session.run(),
        host: session.host.clone(),
        trace: sinks.trace.path().map(Path::to_owned),
    }
}

/// Returns the report as text, if computing it again would take long.
pub fn answer_to_keep(report: &Report) -> Option<StoredReport> {
    (report.completeness.records() >= STORED_REPORT_FROM).then(|| StoredReport {
        gpuwhy_version: report.process.gpuwhy_version.clone(),
        summary: report.summary(),
        full: report.full(),
        ranges: report.range_tables(),
    })
}

/// Explains why there was no capture. `opened`: the first ranges that the program opened.
pub fn no_capture_reason(controller: &CaptureController, opened: &[String]) -> String {
    if controller.waits_for_commands() {
        return "no capture began: `gpuwhy start` asked for none".to_owned();
    }
    let Some(wanted) = controller.wanted_range() else { return "no capture began".to_owned() };
    let opened = if opened.is_empty() {
        "the program opened no range".to_owned()
    } else {
        format!("the first ranges that the program opened: {}", opened.join(", "))
    };
    printable(&format!("no capture began by the range {wanted}; {opened}")).into_owned()
}
