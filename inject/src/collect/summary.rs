//! What the collector says: the live line, the answer to somebody outside, and the text that the trace keeps.
//!
//! All of it is made from one report ([`profiler_core::report`]), so that they cannot differ.

use std::path::Path;

use profiler_core::event::Event;
use profiler_core::json_text::Object;
use profiler_core::process_info::End;
use profiler_core::record::Timestamp;
use profiler_core::report::Report;
use profiler_core::trace::{STORED_REPORT_FROM, StoredReport};

use crate::collect::collector::Collector;
use crate::log;
use crate::message::{Detail, LiveState, StatusSummary};
use crate::sys::clock::{self, after};
use crate::sys::threads;

impl Collector {
    /// Prints the live line, if it was asked for and it is time.
    pub(super) fn live_line_if_due(&mut self, at: Timestamp) {
        if self.captures.is_empty() || self.live.as_ref().is_none_or(|live| at < live.next) {
            return;
        }
        let line = self.captures.live_line(&self.session, self.decoder.dictionary());
        log::print(&format!("{line}\n"));
        if let Some(live) = &mut self.live {
            live.next = after(at, live.interval);
        }
    }

    /// How things are, for somebody outside.
    pub(super) fn answer(&mut self, detail: Detail) -> StatusSummary {
        self.event(&Event::Loss(self.loss));
        let spent = || threads::thread_cpu_time(threads::thread_id()).unwrap_or_default();
        let before = spent();
        if detail == Detail::Metrics {
            let fields = self.metrics();
            let cost = spent().saturating_sub(before);
            return StatusSummary { live: Some(LiveState { fields, cost }), ..StatusSummary::default() };
        }
        let report = self.make_report(End::Abrupt);
        let fields = (detail == Detail::Live).then(|| report.live_state());
        let loss = &self.loss;
        let hang = (detail == Detail::Hang).then(|| {
            Object::new()
                .text("host", &self.session.host)
                .optional_text("run", self.session.run().as_deref())
                .optional_number("rank", self.session.rank().map(u64::from))
                .optional_number("world_size", self.session.world_size().map(u64::from))
                .with(&self.captures.pending_collectives(clock::wall_clock(), self.decoder.dictionary()))
        });
        StatusSummary {
            hang,
            live: fields.map(|fields| LiveState { fields, cost: spent().saturating_sub(before) }),
            verdict: self.captures.name_now(&report, (report.verdict.group, report.verdict.share)),
            line: report.live_line(),
            summary: if detail == Detail::Summary { report.summary() } else { String::new() },
            kernels: report.completeness.kernels,
            lost: loss.dropped_by_cupti + loss.dropped_by_gpuwhy + loss.dropped_ranges,
            rank: self.session.rank(),
            run: self.session.run(),
            host: self.session.host.clone(),
            trace: self.trace.path().map(Path::to_owned),
        }
    }

    /// The report as text, where making it again would take long. Not when the replay was left out: a reader makes it
    /// up.
    pub(super) fn answer_to_keep(&self, report: &Report) -> Option<StoredReport> {
        (report.completeness.records() >= STORED_REPORT_FROM && self.simulates).then(|| StoredReport {
            gpuwhy_version: self.session.gpuwhy_version.clone(),
            summary: report.summary(),
            full: report.full(),
            ranges: report.range_tables(),
        })
    }

    /// The numbers for monitoring systems.
    pub(super) fn metrics(&self) -> Object {
        self.captures.metrics(&self.session, self.decoder.dictionary())
    }

    pub(super) fn make_report(&self, end: End) -> Report {
        self.captures.report(&self.session, self.decoder.dictionary(), end, Vec::new())
    }
}
