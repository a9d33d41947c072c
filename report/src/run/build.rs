//! Builds a report from the attributor's state.

use std::cmp::Reverse;
use std::sync::Arc;

use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::cost::Cost;
use gpuwhy_trace::counters::CounterLoss;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::kernels::KernelProfile;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Device, Loss, Timestamp};
use gpuwhy_trace::utilization::Utilization;
use profiler_core::attribution::{Attributor, DeviceAccount};
use profiler_core::collective::CollectivesReport;
use profiler_core::monitoring::Monitoring;
use profiler_core::sorting::SortRows as _;

use super::bottleneck::{LiveBottleneck, advise_on_measured, bottleneck_with, not_measured};
use super::compute;
use super::limits::limits;
use super::live_state::WINDOWS_KEPT;
use super::monitor::Watched;
use super::remedies::{CallFacts, CodeReader, ParsedLines};
use super::{
    ApiRow, BurstTable, CaptureTable, CopyOverlap, DeviceReport, GraphOrigins, HostReport, KernelLines, KernelRow,
    LibraryRow, ManagedPages, MemoryReport, RangesReport, Report, Sequence, SourceLines, StepMeaning, TypicalSteps,
    Untraced, copies, gaps, host_estimate, names, waits,
};
use crate::cupti::{self, Seen};
use crate::kernels::{KernelsReport, best_advice};
use crate::library::Library;

/// What the captures know of a run beside the engine's results.
#[derive(Default)]
pub(crate) struct Captured<'a> {
    pub(crate) cost: Option<Cost>,
    pub(crate) utilization: Utilization,
    pub(crate) collectives: Option<CollectivesReport>,
    pub(crate) counter_losses: &'a [CounterLoss],
    pub(crate) captures: CaptureTable,
    pub(crate) bursts: Option<BurstTable>,
    /// Profiles of measured kernels; `None` leaves out the single kernels.
    pub(crate) kernel_profiles: Option<&'a [Arc<KernelProfile>]>,
    pub(crate) monitoring: Option<&'a Monitoring>,
    /// The bottleneck that a display showed last.
    pub(crate) live: Option<&'a LiveBottleneck>,
    /// Parses lines of source code.
    pub(crate) code_reader: Option<CodeReader>,
}

/// Losses, the end, and the parts of a trace that its reader skipped, which are empty when live.
pub(crate) type Gaps<'a> = (&'a Loss, End, Vec<String>);

impl Report {
    /// Describes the current state of `attributor`. `damage` lists the parts that a trace reader skipped;
    /// empty when live.
    pub fn new(
        session: &ProcessInfo,
        attributor: &Attributor,
        dictionary: &Dictionary,
        loss: &Loss,
        end: End,
        damage: Vec<String>,
    ) -> Self {
        Self::of(session, attributor, dictionary, (loss, end, damage), Captured::default(), true)
    }

    /// Like [`new`](Self::new), with what the captures know. Without `simulated`, the slow simulations are left out, for
    /// a run that is still going.
    pub(crate) fn of(
        session: &ProcessInfo,
        attributor: &Attributor,
        dictionary: &Dictionary,
        (loss, end, damage): Gaps<'_>,
        captured: Captured<'_>,
        simulated: bool,
    ) -> Self {
        let complete_until = attributor.last_flush().filter(|_| end == End::Abrupt);
        let completeness = Completeness { loss: *loss, complete_until, end, damage, ..attributor.completeness() };
        let mut devices: Vec<_> =
            attributor.devices().map(|account| device_report(account, attributor, dictionary, simulated)).collect();
        let stretched = completeness.loss.own_kernels > 0;
        if stretched {
            // Steps in which kernels were measured are longer, and the time between their kernels is not the program's.
            devices.iter_mut().for_each(|device| (device.what_if, device.untraced) = (None, None));
        }
        let mut ranges = RangesReport::of(attributor, dictionary);
        ranges.iter_mut().for_each(|ranges| ranges.divide(&devices));
        let mut host = HostReport::of(attributor, dictionary, &devices, completeness.loss.failed_samples);
        host.iter().for_each(|host| host_estimate::divide(&mut devices, host));
        let (api, kernel_lines) = (api_rows(attributor, dictionary), KernelLines::of(attributor, dictionary));
        let graph_origins = GraphOrigins::of(attributor, dictionary, loss);
        let profiles = captured.kernel_profiles;
        let kernels = profiles.map(|profiles| KernelsReport::of(attributor, dictionary, profiles, stretched));
        let kernels = kernels.unwrap_or_default();
        let sources = SourceLines::of(dictionary);
        let observed_ns = attributor.observed_ns();
        let watched_ns = super::watched_ns(&devices, captured.cost.as_ref(), observed_ns);
        let monitored = watched_ns.and(captured.monitoring).and_then(Monitoring::time);
        let monitored_iterations = watched_ns.and(captured.monitoring).and_then(Monitoring::iterations);
        let bottleneck = match watched_ns {
            Some(run_ns) => {
                let (time, utilization, bursts) = (monitored.as_ref(), &captured.utilization, captured.bursts.as_ref());
                let watched = Watched { process: session, run_ns, time, utilization, bursts };
                if let Some(host) = &mut host {
                    host.watch(attributor, dictionary, watched.steady_start());
                }
                let recent = captured.monitoring.and_then(Monitoring::recent_time);
                watched.bottleneck(host.as_ref(), &attributor.sample_totals(), recent.as_ref())
            }
            None => {
                let connections = session.variable("CUDA_DEVICE_MAX_CONNECTIONS");
                let (lines, origins) = (kernel_lines.as_ref(), graph_origins.as_ref());
                let (command, start) = (session.command.as_slice(), session.start);
                let parsed = ParsedLines::new(&sources, captured.code_reader);
                let source = parsed.as_ref();
                let calls = CallFacts { lines, origins, api: &api, connections, command, start, source };
                let mut found = bottleneck_with(attributor, &devices, host.as_ref(), &completeness, calls);
                if let Some(why) = session.not_measured() {
                    found = not_measured(found, why);
                }
                if let Some(advice) = best_advice(&kernels) {
                    advise_on_measured(&mut found, &advice);
                }
                if let Some(live) = captured.live {
                    found.live = live.clone().follow(attributor, &found);
                }
                found
            }
        };
        let mut process = session.clone();
        if watched_ns.is_none() {
            let graphs = api.iter().any(|row| row.name.contains("GraphLaunch"));
            let managed = completeness.managed_events > 0;
            let seen = Seen { graphs, captures: captured.captures.rows.len(), managed, observed_ns };
            process.notes.extend(cupti::sentences(session, seen));
        }
        Self {
            process,
            observed_ns,
            completeness,
            memory: MemoryReport::of(attributor, &devices, dictionary),
            devices,
            api,
            host,
            kernel_libraries: LibraryRow::all(attributor, dictionary),
            kernel_lines,
            graph_origins,
            operators: None,
            ranges,
            bottleneck,
            cost: captured.cost,
            utilization: captured.utilization,
            monitored,
            monitored_iterations,
            bursts: captured.bursts,
            counter_losses: captured.counter_losses.to_vec(),
            collectives: captured.collectives,
            kernels,
            part: None,
            other_processes: None,
            captures: captured.captures,
            sources,
        }
    }
}

fn device_report(
    account: &DeviceAccount,
    attributor: &Attributor,
    dictionary: &Dictionary,
    simulated: bool,
) -> DeviceReport {
    let statistics = account.statistics();
    let device =
        dictionary.device(account.id()).cloned().unwrap_or_else(|| Device { id: account.id(), ..Device::default() });
    let sequence = Sequence::of(attributor, account.id(), dictionary);
    let (compute, geometries) = compute::split(account, &device, dictionary);
    let limits = limits(account, attributor, &device, dictionary, simulated);
    let work = account.steady_work();
    let named = |name| limits.as_ref().and_then(|(_, named)| named.get(&name).copied());
    let mut kernels: Vec<_> = statistics
        .kernels()
        .map(|(name, row)| KernelRow {
            name: name.map_or_else(|| "(other kernels)".to_owned(), |id| names::kernel(dictionary, id)),
            library: name.and_then(|id| Library::of_kernel(dictionary.name(id))),
            communication: row.communication,
            durations: row.durations.clone(),
            steady: name.map_or_else(Default::default, |name| work.kernel(name)),
            geometry: name.and_then(|id| geometries.get(&id).copied()),
            limits: name.and_then(named),
        })
        .collect();
    let size = |row: &KernelRow| Reverse((row.steady.1, row.durations.total()));
    kernels.sort_rows_by(|a, b| size(a).cmp(&size(b)).then_with(|| a.name.cmp(&b.name)));
    let what_if = attributor.what_if(account.id());
    let steady = account.typical_steps();
    let of_iterations = account.iteration_kinds();
    let step_kinds = if of_iterations.is_empty() {
        steady.iter().flat_map(|steady| steady.kinds.clone()).collect()
    } else {
        of_iterations
    };
    debug_assert!(attributor.devices().any(|other| other.id() == account.id()));
    DeviceReport {
        device,
        pcie: dictionary.link(account.id()).copied(),
        window_ns: account.window_ns(),
        leaves: *account.leaves(),
        steady_leaves: account.steady_leaves(),
        begun_midway: account.is_midway(),
        steady_work: work,
        windows: account.newest_windows(WINDOWS_KEPT),
        steps: Some(account.steps()).filter(|steps| !steps.rows.is_empty()),
        typical: steady.map(|steady| TypicalSteps::of(&steady, account.forgotten_steps_ns())),
        step_kinds,
        step_meaning: StepMeaning::of(attributor, account, sequence.as_ref(), dictionary),
        sequence,
        untraced: Untraced::of(what_if.as_ref(), account, attributor),
        what_if,
        host_lead: account.host_lead(),
        gaps: gaps::gaps(account, dictionary),
        builds: account.kernel_builds(),
        queue_waits: account.queue_waits(),
        other_processes: attributor.other_processes(account.id()),
        awaited: waits::awaited(account),
        graph_operations: account.graph_operations(),
        graph_ns: account.graph_ns(),
        overlap: *account.overlap(),
        kernels,
        copies: copies::rows(statistics.copies(), dictionary.link(account.id())),
        compute,
        limits: limits.map(|(limits, _)| limits),
        gauges: attributor
            .counters()
            .device(account.id())
            .map(|device| device.gauges.clone())
            .filter(|gauges| gauges.readings > 0),
        managed: ManagedPages::of(account),
        copy_overlap: CopyOverlap::of(account.leaves(), account.overlap()),
    }
}

fn api_rows(attributor: &Attributor, dictionary: &Dictionary) -> Vec<ApiRow> {
    let longest = attributor.devices().max_by_key(|account| account.window_ns());
    let steady = longest.map_or(Timestamp::ZERO, DeviceAccount::steady_start);
    let mut rows: Vec<_> = attributor
        .api_statistics()
        .map(|(function, row)| ApiRow {
            name: names::function(dictionary, function),
            calls: row.calls,
            steady_calls: attributor.calls_after(function, steady),
            failed: row.failed,
            total_ns: row.total_ns,
            max_ns: row.max_ns,
        })
        .collect();
    rows.sort_rows_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}
