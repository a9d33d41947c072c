//! Builds a report from the attributor's state.

use std::cmp::Reverse;

use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Device, Loss};
use gpuwhy_trace::utilization::Utilization;
use profiler_core::attribution::{Attributor, DeviceAccount};

use super::bottleneck::{bottleneck_with, not_measured};
use super::compute;
use super::library::Library;
use super::limits::limits;
use super::live_state::WINDOWS_KEPT;
use super::remedies::CallFacts;
use super::{
    ApiRow, CaptureTable, CopyOverlap, DeviceReport, GraphOrigins, HostReport, KernelLines, KernelRow, LibraryRow,
    ManagedPages, MemoryReport, RangesReport, Report, Sequence, StepMeaning, TypicalSteps, Untraced, copies, gaps,
    host_estimate, names, waits,
};
use crate::kernels::KernelsReport;

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
        Self::made(session, attributor, dictionary, loss, (end, damage), true)
    }

    /// Like [`new`](Self::new), but without the slow simulations, for a run that is still going.
    pub(crate) fn live(
        session: &ProcessInfo,
        attributor: &Attributor,
        dictionary: &Dictionary,
        loss: &Loss,
        end: End,
        damage: Vec<String>,
    ) -> Self {
        Self::made(session, attributor, dictionary, loss, (end, damage), false)
    }

    fn made(
        session: &ProcessInfo,
        attributor: &Attributor,
        dictionary: &Dictionary,
        loss: &Loss,
        (end, damage): (End, Vec<String>),
        simulated: bool,
    ) -> Self {
        let complete_until = attributor.last_flush().filter(|_| end == End::Abrupt);
        let completeness = Completeness { loss: *loss, complete_until, end, damage, ..attributor.completeness() };
        let mut devices: Vec<_> =
            attributor.devices().map(|account| device_report(account, attributor, dictionary, simulated)).collect();
        if completeness.loss.own_kernels > 0 {
            // Steps in which kernels were measured are longer, and the time between their kernels is not the program's.
            devices.iter_mut().for_each(|device| (device.what_if, device.untraced) = (None, None));
        }
        let mut ranges = RangesReport::of(attributor, dictionary);
        ranges.iter_mut().for_each(|ranges| ranges.divide(&devices));
        let host = HostReport::of(attributor, dictionary, &devices, completeness.loss.failed_samples);
        host.iter().for_each(|host| host_estimate::divide(&mut devices, host));
        let (api, kernel_lines) = (api_rows(attributor, dictionary), KernelLines::of(attributor, dictionary));
        let graph_origins = GraphOrigins::of(attributor, dictionary, loss);
        let connections = session.variable("CUDA_DEVICE_MAX_CONNECTIONS");
        let (lines, origins) = (kernel_lines.as_ref(), graph_origins.as_ref());
        let calls =
            CallFacts { lines, origins, api: &api, connections, command: &session.command, start: session.start };
        let bottleneck = bottleneck_with(attributor, &devices, host.as_ref(), &completeness, calls);
        let bottleneck = match session.not_measured() {
            Some(why) => not_measured(bottleneck, why),
            None => bottleneck,
        };
        Self {
            process: session.clone(),
            observed_ns: attributor.observed_ns(),
            completeness,
            devices,
            api,
            host,
            kernel_libraries: LibraryRow::all(attributor, dictionary),
            kernel_lines,
            graph_origins,
            ranges,
            memory: MemoryReport::of(attributor, dictionary),
            bottleneck,
            cost: None,
            utilization: Utilization::default(),
            monitored: None,
            bursts: None,
            counter_losses: Vec::new(),
            collectives: None,
            kernels: KernelsReport::default(),
            part: None,
            other_processes: None,
            captures: CaptureTable::default(),
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
    kernels.sort_by(|a, b| size(a).cmp(&size(b)).then_with(|| a.name.cmp(&b.name)));
    let what_if = attributor.what_if(account.id());
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
        typical: account.typical_steps().as_ref().map(TypicalSteps::of),
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
    let mut rows: Vec<_> = attributor
        .api_statistics()
        .map(|(function, row)| ApiRow {
            name: names::function(dictionary, function),
            calls: row.calls,
            failed: row.failed,
            total_ns: row.total_ns,
            max_ns: row.max_ns,
        })
        .collect();
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}
