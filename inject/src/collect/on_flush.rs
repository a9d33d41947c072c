//! What the collector does beside records, at each flush mark: losses, gauges, steps, what tracing takes.
//!
//! All of it is bounded by the number of devices or captures, never by that of records.

use std::sync::atomic::Ordering;
use std::time::Duration;

use profiler_core::record::Timestamp;
use profiler_core::utilization::UtilizationReading;

use crate::capture::plan::Event;
use crate::collect::collector::Collector;
use crate::config::{self, WhatIf};
use crate::sys::clock::after;
use crate::{log, nvtx};

/// When one part in so many of all buffers waits to be decoded, the collector is falling behind.
const BACKLOG_PARTS: usize = 4;

/// How often what gauges said is written: a killed program's trace has it too, and the time between two is told apart.
const GAUGES_WRITTEN_EVERY: Duration = Duration::from_secs(1);

impl Collector {
    /// Utilization of a device are something of the GPU, so they begin a trace.
    pub(super) fn gauges(&mut self, reading: UtilizationReading) {
        self.gauges.take(reading);
        self.captures.utilization(reading);
        if matches!(reading, UtilizationReading::Device(_)) {
            // In a run that is only watched CUPTI does not.
            self.decoder.describe_devices();
            self.open_trace();
        }
    }

    /// Totals, so not every reading has to be written.
    pub(super) fn gauges_if_due(&mut self, at: Timestamp) {
        if at >= self.gauges_due && !self.gauges.is_empty() {
            self.write_gauges(at);
        }
    }

    pub(super) fn write_gauges(&mut self, at: Timestamp) {
        let dictionary = self.decoder.dictionary();
        let absence = self.gauges.absence.map(UtilizationReading::Absent);
        for reading in self.gauges.devices.iter().copied().map(UtilizationReading::Device).chain(absence) {
            self.trace.write(|trace| trace.utilization(at, &reading, dictionary));
        }
        self.gauges_due = after(at, GAUGES_WRITTEN_EVERY);
    }

    /// Tells how many steps there were so far, when somebody counts them.
    pub(super) fn watch_steps(&mut self, before: Timestamp) {
        let Some(watch) = &mut self.step_watch else { return };
        watch.flushed(before, self.decoder.dictionary());
        let seen = watch.devices().map(|account| account.steps().seen).max().unwrap_or(0);
        self.director.event(Event::StepsDetected(seen));
    }

    /// Adds up what tracing takes, and steps down when it is too much.
    pub(super) fn weigh(&mut self, before: Timestamp) {
        let due = self.account.flushed(before, &self.inlet.meters);
        let cost = self.account.cost();
        self.captures.cost(cost);
        if due.write || due.step_down.is_some() {
            let dictionary = self.decoder.dictionary();
            self.trace.write(|trace| trace.cost(before, &cost, dictionary));
        }
        if let Some(mode) = due.step_down {
            log::warning!("tracing takes more than {} allows: only {} from now on", config::MAX_OVERHEAD, mode.name());
            self.director.step_down(mode);
        }
    }

    /// Has nodes of CUDA graphs recorded where they cost little, and takes down that they are once CUPTI was left to others.
    pub(super) fn judge_graphs(&mut self, at: Timestamp) {
        self.count_nodes();
        let Some(census) = &self.census else { return };
        let left = !self.director.holds_slot();
        if (left || census.nodes_are_cheap(at)) && !self.director.is_watching() && self.director.ask_for_nodes() {
            if left {
                // What they would have cost is no reason.
                self.account.unrecorded_nodes(0);
            }
            self.census = None;
            self.account.record_nodes(at);
            let why = if left { "CUPTI was left to other tools" } else { "they cost little here" };
            log::info!("nodes of CUDA graphs are recorded from now on: {why}");
        }
    }

    /// Takes down what nodes would have cost.
    pub(super) fn count_nodes(&mut self) {
        if let Some(census) = &self.census {
            self.account.unrecorded_nodes(census.nodes_ns());
        }
    }

    /// Sheds what can be made up for later before anything must be lost.
    pub(super) fn keep_up(&mut self) {
        let backlog = self.inlet.deliveries.len();
        if self.what_if == WhatIf::Auto && backlog * BACKLOG_PARTS > self.inlet.pool.limit() {
            self.what_if = WhatIf::Off;
            self.captures.stop_what_if();
            log::warning!(
                "{backlog} buffers of records wait: the what-if replay is left out here (`gpuwhy report` makes it up from the trace)"
            );
        }
    }

    pub(super) fn count_loss(&mut self, dropped_by_cupti: u64) {
        self.loss.dropped_by_cupti = self.loss.dropped_by_cupti.max(dropped_by_cupti);
        self.loss.dropped_by_gpuwhy = self.inlet.dropped.load(Ordering::Relaxed) + self.segments.missed();
        self.loss.dictionary_overflow = self.decoder.dictionary().beyond();
        self.loss.dropped_ranges = nvtx::dropped();
        self.loss.unobserved_ns = self.director.unobserved();
        self.loss.undelivered_buffers = self.inlet.undelivered.load(Ordering::Relaxed);
        let foreign = self.inlet.foreign_bytes.swap(0, Ordering::Relaxed);
        if foreign > 0 && !self.foreign_buffers_said {
            self.foreign_buffers_said = true;
            log::warning!(
                "another profiler's activity buffers come to gpuwhy: its records are left alone, and some of ours may \
                 have gone to it; run the two apart"
            );
        }
    }
}
