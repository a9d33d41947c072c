//! What the collector does beside records, at each flush mark: losses, readings of devices, steps, what tracing takes.
//!
//! All of it is bounded by the number of devices or captures, never by that of records.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use profiler_core::counters::CounterEvent;
use profiler_core::event::Event;
use profiler_core::kernels::KernelProfile;
use profiler_core::monitoring::BurstDecision;
use profiler_core::record::Timestamp;
use profiler_core::utilization::UtilizationReading;

use crate::capture::plan;
use crate::collect::collector::Collector;
use crate::config;
#[cfg(feature = "pc-sampling")]
use crate::kernels::pc_sampling;
#[cfg(feature = "pc-sampling")]
use crate::message::SampledWindow;
use crate::nccl;
use crate::nvtx;
use crate::sys::clock::{self, after};

/// When one part in so many of all buffers waits to be decoded, the collector is falling behind.
const BACKLOG_PARTS: usize = 4;

/// How often utilization is written: a killed program's trace has it too, and the time between two is told apart.
const UTILIZATION_WRITTEN_EVERY: Duration = Duration::from_secs(1);

impl Collector {
    /// Utilization of a device is something of the GPU, so it opens the trace.
    pub(super) fn utilization(&mut self, reading: UtilizationReading) {
        self.utilization.take(reading);
        let event = Event::Utilization { at: Timestamp::ZERO, reading };
        self.captures.event(&event, &self.session, self.decoder.dictionary());
        if matches!(reading, UtilizationReading::Device(_)) {
            // In a run that is only watched CUPTI does not.
            self.decoder.describe_devices();
            self.open_trace();
        }
    }

    /// Samples and gauges open no trace: that takes something that the program did with the device.
    pub(super) fn counters(&mut self, events: &[CounterEvent]) {
        for &event in events {
            let event = Event::Counters(event);
            self.event(&event);
            if let Some(own) = &mut self.own {
                own.event(&event, self.decoder.dictionary());
            }
        }
    }

    /// What measuring a kernel came to. The kernel has run, so there is a trace.
    pub(super) fn kernel_profile(&mut self, profile: KernelProfile) {
        self.event(&Event::KernelProfile(Arc::new(profile)));
    }

    /// What sampling program counters came to. Modules are written before, so that those that could not be are told.
    #[cfg(feature = "pc-sampling")]
    pub(super) fn program_counters(&mut self, sampled: SampledWindow) {
        let SampledWindow { mut window, modules } = sampled;
        if let Some(trace) = self.trace.path() {
            window.modules_lost += pc_sampling::write_modules(trace, &modules);
        }
        self.event(&Event::ProgramCounters(Arc::new(window)));
    }

    /// Chooses kernels to be measured, once enough has run.
    pub(super) fn choose_kernels(&mut self) {
        let Some(kernels) = &self.kernels else { return };
        let Some(request) = kernels.request() else { return };
        let dictionary = self.decoder.dictionary();
        let is_wanted = |name: &str| request.names.as_ref().is_none_or(|names| names.is_match(name));
        let choices = self.captures.kernels_to_measure(request.most, is_wanted, dictionary);
        // Program counters are sampled in kernels that nobody can measure as well.
        let only_sampled = || (request.source.is_some() && self.captures.has_run_enough()).then(Vec::new);
        if let Some(choices) = choices.or_else(only_sampled) {
            kernels.choose(choices, dictionary.contexts().to_vec());
        }
    }

    /// Totals, so not every reading has to be written.
    pub(super) fn write_utilization_if_due(&mut self, at: Timestamp) {
        if at >= self.utilization_due && !self.utilization.is_empty() {
            self.write_utilization(at);
        }
    }

    pub(super) fn write_utilization(&mut self, at: Timestamp) {
        let dictionary = self.decoder.dictionary();
        let absence = self.utilization.absence.map(UtilizationReading::Absent);
        for reading in self.utilization.devices.iter().copied().map(UtilizationReading::Device).chain(absence) {
            self.trace.write(|trace| trace.event(&Event::Utilization { at, reading }, dictionary));
        }
        self.utilization_due = after(at, UTILIZATION_WRITTEN_EVERY);
    }

    /// Tells how many steps there were so far, when somebody counts them.
    pub(super) fn watch_steps(&mut self, before: Timestamp) {
        let Some(watch) = &mut self.step_watch else { return };
        watch.flushed(before, self.decoder.dictionary());
        let seen = watch.devices().map(|account| account.steps().seen).max().unwrap_or(0);
        self.controller.event(plan::Event::StepsDetected(seen));
    }

    /// Adds up what tracing takes, and steps down when it is too much.
    pub(super) fn update_cost(&mut self, before: Timestamp) {
        let due = self.account.flushed(before, &self.shared.meters);
        let cost = self.account.cost();
        let event = Event::Cost { at: before, cost };
        let dictionary = self.decoder.dictionary();
        self.captures.event(&event, &self.session, dictionary);
        if due.write || due.step_down.is_some() {
            self.trace.write(|trace| trace.event(&event, dictionary));
        }
        if let Some(mode) = due.step_down {
            tracing::warn!("tracing costs more than {} allows; mode {} from now on", config::MAX_OVERHEAD, mode.name());
            self.controller.step_down(mode);
        }
    }

    /// Mode auto: begins and ends bursts.
    pub(super) fn choose_bursts(&mut self) {
        let Some((planner, view)) = self.bursts.as_mut().zip(self.captures.monitor_view()) else { return };
        // Not the time of the mark, which is a flush behind: a burst would last so much longer.
        let decision = planner.decide(clock::now(self.cupti), &view, &self.account.cost());
        let event = match decision {
            Some(BurstDecision::Begin(trigger)) => Some(plan::Event::BurstBegins(trigger)),
            Some(BurstDecision::End) => Some(plan::Event::BurstEnds),
            None => None,
        };
        // One that did not begin gives its credit back; one that somebody else has ended has ended.
        if event.is_some_and(|event| !self.controller.event(event)) {
            planner.refused();
        }
        self.account.bursts(planner.summary());
    }

    /// Has nodes of CUDA graphs recorded where they cost little, and takes down that they are once CUPTI was left to
    /// others.
    pub(super) fn choose_graph_records(&mut self, at: Timestamp) {
        self.count_nodes();
        let Some(graph_nodes) = &self.graph_nodes else { return };
        let left = !self.controller.holds_slot();
        if (left || graph_nodes.nodes_are_cheap(at))
            && !self.controller.is_watching()
            && self.controller.ask_for_nodes()
        {
            if left {
                // What they would have cost is no reason.
                self.account.unrecorded_nodes(0);
            }
            self.graph_nodes = None;
            self.account.record_nodes(at);
            let why = if left { "CUPTI was left to other tools" } else { "they cost little here" };
            tracing::info!("nodes of CUDA graphs are recorded from now on: {why}");
        }
    }

    /// Takes down what nodes would have cost.
    pub(super) fn count_nodes(&mut self) {
        if let Some(graph_nodes) = &self.graph_nodes {
            self.account.unrecorded_nodes(graph_nodes.nodes_ns());
        }
    }

    /// Sheds what can be made up for later before anything must be lost.
    pub(super) fn shed_load(&mut self) {
        let backlog = self.shared.messages.len();
        if self.simulates && backlog * BACKLOG_PARTS > self.shared.pool.limit() {
            self.simulates = false;
            self.captures.stop_what_if();
            tracing::warn!(
                "{backlog} buffers wait to be processed: the what-if simulation stops here; `gpuwhy report` computes it from the trace"
            );
        }
    }

    pub(super) fn count_loss(&mut self, dropped_by_cupti: u64) {
        self.loss.dropped_by_cupti = self.loss.dropped_by_cupti.max(dropped_by_cupti);
        self.loss.dropped_by_gpuwhy = self.shared.dropped.load(Ordering::Relaxed) + self.router.missed();
        self.loss.dictionary_overflow = self.decoder.dictionary().beyond();
        self.loss.dropped_ranges = nvtx::dropped();
        self.loss.dropped_collectives = nccl::dropped();
        self.loss.unobserved_ns = self.controller.unobserved();
        self.loss.undelivered_buffers = self.shared.undelivered.load(Ordering::Relaxed);
        let foreign = self.shared.foreign_bytes.swap(0, Ordering::Relaxed);
        if foreign > 0 && !self.foreign_buffers_logged {
            self.foreign_buffers_logged = true;
            tracing::warn!(
                "another profiler's activity buffers come to gpuwhy: its records are left alone, and some of ours may \
                 have gone to it; run the two apart"
            );
        }
    }
}
