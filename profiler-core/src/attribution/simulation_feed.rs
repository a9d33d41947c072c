//! Input of the simulation: the only place where the attributor refers to it.
//!
//! The accounts never depend on the simulation, so all calls go in this direction.

use gpuwhy_trace::cost::prices::COLD_NANOS;
use gpuwhy_trace::cost::{PriceSource, Prices};
use gpuwhy_trace::record::{ApiCall, DeviceId, StreamId, ThreadId};

use super::account::DeviceAccount;
use super::gap_history::InputWait;
use super::operation::DeviceOperation;
use crate::api::ApiClass;
use crate::thresholds::CLOCK_SLACK_NANOS;
use crate::whatif::{
    self, BestCase, CallClass, Launched, LaunchedBy, MOST_BYTES, OperationClass, Simulation, SmallGrid, Transfer,
    WhatIf, removed_in,
};

/// Passes the required calls, operations and steps to the simulation.
#[derive(Debug, Default)]
pub(super) struct SimulationFeed {
    /// Queries that need no device use it directly.
    pub(super) whatif: Simulation,
    /// Tracing overhead of the records from here on.
    prices: Prices,
    pub(super) source: PriceSource,
    /// Stream of the newest operation, if that was a memset of a graph.
    memset: Option<(DeviceId, StreamId)>,
    /// Return time of the newest call, by thread index.
    returned: Vec<u64>,
}

impl SimulationFeed {
    /// Sets the tracing overhead of the records from here on, and its source.
    pub(super) fn set_prices(&mut self, prices: Prices, source: PriceSource) {
        (self.prices, self.source) = (prices, source);
    }

    /// Steps of a device with shorter kernels, for the steps that represent the device: see
    /// [`Simulation::with_shorter_kernels`].
    pub(super) fn with_shorter_kernels(
        &self,
        account: &DeviceAccount,
        remains: &dyn Fn(DeviceId, u32) -> f64,
    ) -> Option<BestCase> {
        self.whatif.with_shorter_kernels(account.id(), account.step_series(), remains)
    }

    /// Simulation result for a device; its best cases are additive if the simulation is not reliable.
    pub(super) fn what_if(&self, account: &DeviceAccount) -> Option<WhatIf> {
        let answer = self.whatif.what_if(account.id(), account.step_series(), account.steady_start().nanos())?;
        let leaves = account.steady_leaves();
        // The measured and the simulated steps must be the same ones.
        let (answer, judged) = match account.typical_steps() {
            Some(steps) => (answer, steps.leaves()),
            None => (answer.only_if_it_covers(leaves.iter().sum()), leaves),
        };
        let answer = answer.or_additive(&leaves, account.steady_link_ns());
        Some(answer.leaving_the_work(&judged, account.steady_work().selections()))
    }

    /// A call of the thread with this index was placed. `launches`: it launches device work. A call that
    /// launches by its class but did not (it failed, or was captured) costs only its time.
    pub(super) fn call(&mut self, thread: usize, call: &ApiCall, class: ApiClass, launches: bool) {
        if self.whatif.skips(call.start.nanos()) {
            return;
        }
        let (start, end) = (call.start.nanos(), call.end.nanos());
        if self.returned.len() <= thread {
            self.returned.resize(thread + 1, 0);
        }
        let before = std::mem::replace(&mut self.returned[thread], end);
        let tracing_ns = price_of(&self.prices, class, launches, start.saturating_sub(before));
        let class = if launches || !class.launches() { class.into() } else { CallClass::Other };
        self.whatif.call(&whatif::Call {
            thread: simulated_thread(thread),
            start,
            end,
            class,
            correlation: call.correlation,
            tracing_ns,
        });
    }

    /// An operation was joined with its launch, which the watermark has not passed.
    #[inline]
    pub(super) fn launched(&mut self, operation: &DeviceOperation) {
        let DeviceOperation { device, stream, symbol: kernel, fit, graph, .. } = *operation;
        let bytes = operation.simulated_bytes();
        let Some(launch) = operation.launch else { return };
        let thread = simulated_thread(launch.thread as usize);
        if graph {
            if self.prices.graph_node > 0 {
                self.whatif.graph_node(thread, launch.start, self.prices.graph_node);
            }
        } else if (fit > 0 || bytes > 0 || operation.selection)
            && let Some(class) = class_of(operation)
        {
            let to_host = class == OperationClass::CopyToHost;
            let launched = match class {
                OperationClass::Selection | OperationClass::CopyWithin => match removed_in(class, bytes) {
                    Some(kind) => Launched::RemovedIn(kind),
                    None => return,
                },
                _ if fit > 0 => Launched::Grid(SmallGrid { device, stream, kernel, fit: fit.into() }),
                OperationClass::CopyToHost => Launched::Copy(Transfer { device, stream, to_host, bytes }),
                OperationClass::CopyFromHost if bytes < MOST_BYTES => {
                    Launched::Copy(Transfer { device, stream, to_host, bytes })
                }
                _ => return,
            };
            self.whatif.launches(thread, launch.start, launched);
        }
    }

    /// An operation is on its way to its timeline.
    #[inline]
    pub(super) fn operation(&mut self, operation: &DeviceOperation) {
        // Most of a long run is not simulated: skip the computation then.
        let begin = operation.launch.map_or(operation.start, |launch| launch.start.max(operation.start));
        if self.whatif.skips(begin) {
            return;
        }
        let Some(class) = class_of(operation) else { return };
        let correlation = operation.correlation;
        let tracing_ns = self.before(operation, class);
        self.whatif.operation(&whatif::Operation {
            start: operation.start,
            end: operation.end,
            device: operation.device,
            stream: operation.stream,
            class,
            launch: operation.launch.map(|launch| LaunchedBy { correlation, start: launch.start }),
            excess: operation.excess(),
            bytes: operation.simulated_bytes(),
            tracing_ns,
            node: operation.graph,
            kernel: operation.kernel,
        });
    }

    /// Tracing overhead in the gap before an operation that was queued, nanoseconds.
    fn before(&mut self, operation: &DeviceOperation, class: OperationClass) -> u16 {
        let Prices { kernel_gap, node_gap, memset_node_gap, copy_gap, .. } = self.prices;
        let stream = Some((operation.device, operation.stream));
        let memset = class == OperationClass::Memset;
        let price = match class {
            _ if operation.graph && (memset || self.memset == stream) => memset_node_gap,
            OperationClass::CopyFromHost | OperationClass::CopyWithin | OperationClass::CopyOther => copy_gap,
            _ if operation.graph => node_gap,
            _ => kernel_gap,
        };
        self.memset = stream.filter(|_| operation.graph && memset);
        u16::try_from(price).unwrap_or(u16::MAX)
    }

    /// A timeline has advanced: takes the input waits, the starts of steps and where steps broke off.
    pub(super) fn take_findings(&mut self, account: &mut DeviceAccount, input_waits: &mut Vec<InputWait>) {
        for InputWait { thread, start, end } in input_waits.drain(..) {
            self.whatif.input_wait(simulated_thread(thread as usize), start, end);
        }
        let device = account.id();
        for (at, series) in account.boundaries.drain(..) {
            self.whatif.step_boundary(device, at, series);
        }
        for at in account.breaks.drain(..) {
            self.whatif.step_break(device, at);
        }
    }

    /// All timelines have advanced to `watermark`; each may have stopped up to the clock slack before it.
    pub(super) fn advance(&mut self, watermark: u64) {
        let simulated = if watermark == u64::MAX { watermark } else { watermark.saturating_sub(CLOCK_SLACK_NANOS) };
        self.whatif.advance(simulated);
    }
}

/// Class of an operation; `None` for idle leaves.
fn class_of(operation: &DeviceOperation) -> Option<OperationClass> {
    if operation.selection { Some(OperationClass::Selection) } else { OperationClass::of(operation.leaf) }
}

/// Tracing overhead of a call of this class that does not wait, without the nodes of a graph, nanoseconds.
/// `launches`: it launches device work. `host_gap`: nanoseconds since its thread returned from the previous
/// call.
const fn price_of(prices: &Prices, class: ApiClass, launches: bool, host_gap: u64) -> u32 {
    match class {
        ApiClass::KernelLaunch if launches && host_gap >= COLD_NANOS => prices.kernel_launch_cold,
        ApiClass::KernelLaunch if launches => prices.kernel_launch,
        ApiClass::GraphLaunch if launches => prices.graph_launch,
        ApiClass::Copy | ApiClass::BlockingCopy | ApiClass::Memset if launches => prices.copy,
        _ => prices.call,
    }
}

/// The simulation must distinguish threads but needs no real ids.
fn simulated_thread(index: usize) -> ThreadId {
    ThreadId(u32::try_from(index).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_launches_nothing_has_the_price_of_a_call() {
        let prices = Prices::from_array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let after = |class, gap| [true, false].map(|launches| price_of(&prices, class, launches, gap));
        let of = |class| after(class, 0);
        assert_eq!(of(ApiClass::KernelLaunch), [1, 6]);
        assert_eq!([COLD_NANOS - 1, COLD_NANOS].map(|gap| after(ApiClass::KernelLaunch, gap)[0]), [1, 2]);
        assert_eq!(of(ApiClass::GraphLaunch), [3, 6]);
        assert_eq!([ApiClass::Copy, ApiClass::BlockingCopy, ApiClass::Memset].map(of), [[5, 6]; 3]);
        assert_eq!([ApiClass::Other, ApiClass::Query, ApiClass::Memory].map(of), [[6, 6]; 3]);
    }
}
