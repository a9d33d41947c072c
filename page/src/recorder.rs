//! The second pass: every record becomes an event of its lane, and every segment of a device a separate
//! event.

use std::collections::BTreeMap;
use std::io;

use gpuwhy_import::Observer;
use gpuwhy_report::capture::Captures;
use gpuwhy_report::words;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event;
use gpuwhy_trace::own_marks::is_own;
use gpuwhy_trace::record::{Copy, CopyKind, DeviceId, Record, Timestamp};
use profiler_core::attribution::Attributor;
use profiler_core::steps::LoggedStep;
use profiler_core::whatif::SimulatedOperation;

use crate::block::Blocks;
use crate::counter_lanes::{CounterLane, CounterLanes};
use crate::curves::{Curve, Curves};
use crate::device::{Context, DeviceLane};
use crate::graph_nodes::GraphNodes;
use crate::lane::{Lane, LaneEvent};
use crate::lost::Lost;
use crate::names::{NameKind, PageNames};
use crate::plan::Plan;
use crate::prescan::Selected;
use crate::range_lanes::RangeLanes;
use crate::sums::IntervalSums;

/// Maximum number of lanes of one kind; of more threads or streams, the first are kept.
const LANES: usize = 64;
/// Maximum number of steps per device and series.
const STEPS: usize = 1 << 17;

/// Columns of work on a stream: the name, bytes of a copy or the launch configuration, the launching call; if nodes of
/// CUDA graphs have origins, also the origin.
const WORK: &[&str] = &["name", "detail", "correlation"];
const WORK_OF_GRAPHS: &[&str] = &["name", "detail", "correlation", "origin"];
const ORIGIN: usize = 3;

/// See the [module](self).
pub(crate) struct Recorder<'a> {
    plan: &'a Plan,
    blocks: Blocks<'a>,
    names: PageNames,
    selected: Selected,
    devices: BTreeMap<u32, DeviceLane>,
    lanes: BTreeMap<LanePosition, (Lane, Option<IntervalSums>)>,
    ranges: RangeLanes,
    graph_nodes: GraphNodes,
    steps: BTreeMap<u32, Vec<LoggedStep>>,
    simulated: Vec<SimulatedOperation>,
    counters: CounterLanes,
    curves: Curves,
    shown_curves: Vec<Curve>,
    lost: Lost,
    failure: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LanePosition {
    Stream(u32, u32),
    Thread(u32),
    Samples(u32),
}

/// Result of the second pass.
pub(crate) struct Recorded<'a> {
    pub(crate) blocks: Blocks<'a>,
    pub(crate) names: PageNames,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) steps: BTreeMap<u32, Vec<LoggedStep>>,
    pub(crate) simulated: Vec<SimulatedOperation>,
    pub(crate) lost: Lost,
    pub(crate) counters: Vec<CounterLane>,
    pub(crate) curves: Vec<Curve>,
    pub(crate) uncorrected_ns: u64,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(plan: &'a Plan, blocks: Blocks<'a>) -> Self {
        Self {
            plan,
            blocks,
            names: PageNames::new(),
            selected: Selected::default(),
            devices: BTreeMap::new(),
            lanes: BTreeMap::new(),
            ranges: RangeLanes::default(),
            graph_nodes: GraphNodes::default(),
            steps: BTreeMap::new(),
            simulated: Vec::new(),
            counters: CounterLanes::new(plan.origin, plan.window),
            curves: Curves::new(plan.origin, plan.window),
            shown_curves: Vec::new(),
            lost: Lost::default(),
            failure: None,
        }
    }

    /// Writes everything except names and manifest.
    pub(crate) fn finish(mut self) -> io::Result<Recorded<'a>> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let uncorrected_ns = self.devices.values().map(|device| device.uncorrected_ns).sum();
        let of_devices = self.devices.values().map(|device| device.lost());
        let mut lost = of_devices.fold(self.lost.plus(self.ranges.lost), Lost::plus);
        lost.launches_unknown = self.curves.launches_unknown;
        let devices = self.devices.into_values().map(|device| device.segments);
        let lanes = devices.chain(self.ranges.into_lanes()).chain(self.lanes.into_values().map(|(lane, _)| lane));
        let mut lanes: Vec<Lane> = lanes.collect();
        let refused = self.blocks.finish()?;
        lanes.iter_mut().for_each(|lane| lane.written(refused));
        Ok(Recorded {
            lanes,
            blocks: self.blocks,
            names: self.names,
            steps: self.steps,
            simulated: self.simulated,
            lost,
            counters: self.counters.into_lanes(),
            curves: self.shown_curves,
            uncorrected_ns,
        })
    }

    /// Keeps the first failure, which stops all work.
    fn tell(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.failure.get_or_insert(error);
        }
    }

    fn record(&mut self, record: &Record, of_trace: &Dictionary) -> io::Result<()> {
        let dictionary = self.plan.names(of_trace);
        if let Record::Memory(event) = record {
            self.curves.memory(event);
        }
        if let Record::Range(mark) = record
            && is_own(mark, of_trace)
        {
            return Ok(());
        }
        let Some((start, end)) = record.span() else { return Ok(()) };
        if !matches!(
            record,
            Record::Kernel(_)
                | Record::Copy(_)
                | Record::Memset(_)
                | Record::Api(_)
                | Record::Sample(_)
                | Record::Range(_)
        ) {
            return Ok(());
        }
        let Some(event) = self.placed(start, end) else {
            self.lost.outside += 1;
            return Ok(());
        };
        match record {
            Record::Kernel(kernel) => {
                self.curves.began(kernel.device, start, kernel.correlation);
                let (name, kind, config) = self.names.config(kernel.config, dictionary);
                let event = event.with([name.into(), config.into(), kernel.correlation.0.into()]);
                self.work((kernel.device.0, kernel.stream.0), kernel.graph_node_id, kind, event, of_trace)
            }
            Record::Copy(copy) => {
                self.curves.began(copy.device, start, copy.correlation);
                let name = self.names.text(NameKind::Copy, &copy_name(copy));
                let event = event.with([name.into(), copy.bytes, copy.correlation.0.into()]);
                self.work((copy.device.0, copy.stream.0), copy.graph_node_id, NameKind::Copy, event, of_trace)
            }
            Record::Memset(memset) => {
                self.curves.began(memset.device, start, memset.correlation);
                let name = self.names.text(NameKind::Memset, "memset");
                let event = event.with([name.into(), memset.bytes, memset.correlation.0.into()]);
                self.work((memset.device.0, memset.stream.0), memset.graph_node_id, NameKind::Memset, event, of_trace)
            }
            Record::Api(call) => {
                let (name, kind) = self.names.function(call.function, dictionary);
                if kind == NameKind::Launch {
                    self.curves.launched(call);
                }
                let event = event.with([name.into(), call.return_value.into(), call.correlation.0.into()]);
                self.push(LanePosition::Thread(call.thread.0), kind, event)
            }
            Record::Sample(sample) => {
                let stack = self.names.stack(sample.stack, dictionary);
                let event = event.with([stack.into(), sample.on_cpu, sample.runnable, sample.state as u64]);
                self.push(LanePosition::Samples(sample.thread.0), NameKind::Code, event)
            }
            Record::Range(range) => {
                let (origin, kept) = (self.plan.origin, &self.plan.kept);
                let Self { names, blocks, ranges, .. } = self;
                let mut with = Context { origin, kept, blocks, names, dictionary };
                ranges.take(range, &mut with)
            }
            _ => Ok(()),
        }
    }

    /// Adds work of a stream; `node` is its node of a CUDA graph, or 0.
    fn work(
        &mut self,
        stream: (u32, u32),
        node: u64,
        kind: NameKind,
        mut event: LaneEvent,
        of_trace: &Dictionary,
    ) -> io::Result<()> {
        let (dictionary, position) = (self.plan.names(of_trace), LanePosition::Stream(stream.0, stream.1));
        let is_node = node != 0 && self.plan.has_origins;
        if is_node {
            let origin = self.names.origin(self.graph_nodes.captured(node), of_trace, dictionary);
            self.names.captured(origin, event.duration);
            event.values[ORIGIN] = origin.into();
        }
        self.push(position, kind, event)?;
        if let Some((lane, _)) = self.lanes.get_mut(&position).filter(|_| is_node) {
            lane.nodes += 1;
        }
        Ok(())
    }

    /// Event at this time; `None` outside the run.
    fn placed(&self, start: Timestamp, end: Timestamp) -> Option<LaneEvent> {
        let (start, end) = (start.nanos(), end.nanos());
        let last = self.plan.origin + self.plan.window;
        let inside = start >= self.plan.origin && start <= end && end <= last;
        inside.then(|| LaneEvent { begin: start - self.plan.origin, duration: end - start, ..LaneEvent::default() })
    }

    fn push(&mut self, position: LanePosition, kind: NameKind, event: LaneEvent) -> io::Result<()> {
        if !self.lanes.contains_key(&position) && !self.add_lane(position) {
            self.lost.without_row += 1;
            return Ok(());
        }
        let Some((lane, sums)) = self.lanes.get_mut(&position) else { return Ok(()) };
        if let Some(sums) = sums {
            sums.add(kind as usize, event.begin, event.begin + event.duration);
        }
        lane.push(event, &self.plan.kept, &mut self.blocks)
    }

    fn add_lane(&mut self, position: LanePosition) -> bool {
        let alike = |known: &&LanePosition| std::mem::discriminant(*known) == std::mem::discriminant(&position);
        if self.lanes.keys().filter(alike).count() >= LANES {
            return false;
        }
        let sums = || Some(IntervalSums::new(self.plan.intervals, NameKind::COUNT));
        let lane = match position {
            LanePosition::Stream(device, stream) => {
                let label = format!("GPU {device} stream {stream}");
                let columns = if self.plan.has_origins { WORK_OF_GRAPHS } else { WORK };
                (Lane::new("stream", Some(device), stream.into(), columns).named(label), sums())
            }
            LanePosition::Thread(id) => {
                let columns = &["name", "result", "correlation"];
                (Lane::new("thread", None, id.into(), columns), sums())
            }
            LanePosition::Samples(id) => {
                let columns = &["stack", "on_cpu", "runnable", "state"];
                (Lane::new("samples", None, id.into(), columns), None)
            }
        };
        self.lanes.insert(position, lane);
        true
    }

    fn segments(&mut self, captures: &mut Captures, dictionary: &Dictionary, is_last: bool) -> io::Result<()> {
        let (origin, kept) = (self.plan.origin, &self.plan.kept);
        let Self { names, blocks, devices, plan, ranges, .. } = self;
        let mut with = Context { origin, kept, blocks, names, dictionary };
        for (number, id, segments) in captures.take(Attributor::take_segments) {
            if plan.shown.is_some_and(|shown| shown != number) {
                continue;
            }
            let device = devices.entry(id.0).or_insert_with(|| {
                let name = dictionary.device(id).map_or("", |device| device.name.as_str());
                DeviceLane::new(id.0, format!("GPU {id} {}", crate::escape::shown(name)), plan.intervals)
            });
            segments.into_iter().try_for_each(|segment| device.take(segment, &mut with))?;
        }
        if !is_last {
            return Ok(());
        }
        devices.values_mut().try_for_each(|device| device.finish(&mut with))?;
        ranges.finish(&mut with)?;
        self.shown_curves = self.curves.finish(&mut self.blocks)?;
        for (lane, sums) in self.lanes.values_mut() {
            lane.name_thread(dictionary);
            lane.flush(kept, &mut self.blocks)?;
            if let Some(sums) = sums {
                lane.sums = Some(self.blocks.numbered(sums.packed())?);
            }
        }
        Ok(())
    }

    fn steps(&mut self, captures: &mut Captures) {
        for (number, device, step) in captures.take(Attributor::take_step_log) {
            let rows = self.steps.entry(device.0).or_default();
            if self.plan.shown.is_some_and(|shown| shown != number) {
                continue;
            }
            if rows.len() < STEPS {
                rows.push(step);
            } else {
                self.lost.steps += 1;
            }
        }
    }
}

impl Observer for Recorder<'_> {
    fn begin(&mut self, captures: &mut Captures) {
        captures.options.segments = true;
        captures.options.simulated_parts = self.plan.simulated.parts();
    }

    fn event(&mut self, event: &event::Event, dictionary: &Dictionary) {
        match event {
            event::Event::GraphNode(node) if self.plan.has_origins => self.graph_nodes.push(node),
            event::Event::Capture(mark) => self.selected.follow(*mark),
            event::Event::Counters(event) => {
                self.counters.take(event);
                self.curves.counters(event);
            }
            event::Event::Record(record) if self.failure.is_none() && self.selected.is(self.plan.shown) => {
                let outcome = self.record(record, dictionary);
                self.tell(outcome);
            }
            _ => {}
        }
    }

    fn taken(&mut self, captures: &mut Captures, dictionary: &Dictionary, is_last: bool) {
        let dictionary = self.plan.names(dictionary);
        if self.failure.is_none() {
            let outcome = self.segments(captures, dictionary, is_last);
            self.tell(outcome);
        }
        self.steps(captures);
        if is_last {
            // The series that the report shows is known only now.
            let of_report = |device: u32| captures.reported()?.1.step_series(DeviceId(device));
            self.steps
                .iter_mut()
                .for_each(|(&device, rows)| rows.retain(|step| of_report(device) == Some(step.series)));
        }
        captures.engines().for_each(|(_, engine)| self.simulated.extend(engine.take_simulated()));
    }
}

/// Direction and memory of a copy.
fn copy_name(copy: &Copy) -> String {
    let path = profiler_core::attribution::statistics::CopyPath {
        kind: copy.kind,
        source: copy.source,
        destination: copy.destination,
    };
    match copy.kind {
        CopyKind::PeerToPeer => format!("copy GPU {} to GPU {}", copy.peers[0], copy.peers[1]),
        _ => words::copies(path, 1),
    }
}
