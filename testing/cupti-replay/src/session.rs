//! A recording, parsed and ready to be played.
//!
//! The complete recording is kept in memory, because a flush must find every record that had begun at that
//! moment, including those that the real run delivered much later. Recordings are a few megabytes; this is
//! not for hour-long ones.
//!
//! Pointers in records are replaced here, once: texts point into this session, which is never freed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::fmt;
use std::ops::Range;

use cupti_sys::Kind;
use cupti_sys::recording::GraphNode;

use crate::layout;

/// Distance between the correlation ids of consecutive sessions; a recording has less than a million.
const IDS_OF_A_SESSION: u32 = 1 << 20;

/// `CUPTI_ACTIVITY_KIND_INVALID`
const NO_KIND: u32 = 0;

/// Description of the library that made the recording.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Version that `cuptiGetVersion` returned.
    pub version: u32,
    /// Size in bytes of the records of each kind.
    pub sizes: BTreeMap<u32, usize>,
    /// Start of the recording in nanoseconds on CUPTI's clock.
    pub start: u64,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Offset of the record in the session's bytes.
    offset: usize,
    length: usize,
    /// Its kind.
    pub kind: u32,
    /// The API function, for API records.
    pub function: Option<u32>,
    /// Start time; 0 for a record without times.
    pub start: u64,
    /// Time of completion: its end; without times that of the record before it, or its delivery.
    pub complete: u64,
    /// Time at which the library decided to record it, and reserved space for it in a buffer: for device work
    /// when its call was made, for a call when it began, for other records when they were complete.
    pub decided: u64,
    /// Its position in a graph that was launched as one.
    pub graph: Place,
}

/// Position of a record in the launch of a CUDA graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In no graph.
    Outside,
    /// A node.
    Node,
    /// The node that is complete last, and the index of the record of the complete graph, which a client that
    /// enabled such records gets in place of all nodes.
    Last(usize),
}

/// Action at one time of the recording.
#[derive(Clone, Debug)]
pub enum Action {
    /// The real library returned a buffer with these items.
    Deliver {
        /// Indices into [`Session::items`].
        items: Range<usize>,
        /// The context's address in the recorded process: a token, never dereferenced.
        context: u64,
        /// Stream id as it was passed to `bufferCompleted`.
        stream: u32,
    },
    /// The real library reported this many dropped records.
    Dropped(u64),
    /// The recording client flushed.
    Flush,
    /// A node was added to a graph, or copied.
    GraphNode(GraphNode),
}

/// An action and its time, which never decreases from step to step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Nanoseconds on the recording's clock.
    pub at: u64,
    /// The action.
    pub action: Action,
}

/// Why a buffer of the recording cannot be played.
#[derive(Debug)]
pub struct BadBuffer {
    buffer: usize,
    offset: usize,
    reason: String,
}

impl fmt::Display for BadBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recorded buffer {}, byte {}: {}", self.buffer, self.offset, self.reason)
    }
}

impl std::error::Error for BadBuffer {}

/// The recording.
#[derive(Debug, Default)]
pub struct Session {
    /// Where it comes from.
    pub origin: Origin,
    names: HashMap<(u32, u32), CString>,
    items: Vec<Item>,
    bytes: Vec<u8>,
    steps: Vec<Step>,
    /// Launches of complete graphs.
    graphs: Vec<Item>,
    /// Number of nodes of each graph.
    nodes: BTreeMap<u32, u32>,
    by_creation: Vec<usize>,
    contexts: BTreeSet<u32>,
    /// Number of repetitions, and of sessions appended to this one.
    followed: u32,
    /// Text at each address, as of the current position in the recording.
    texts: HashMap<u64, usize>,
    /// Every text; never changed once added.
    kept: Vec<CString>,
}

impl Session {
    /// An empty session of a recording with this origin.
    #[must_use]
    pub fn new(origin: Origin) -> Self {
        Self { origin, ..Self::default() }
    }

    /// Adds the name of an API function.
    pub fn add_name(&mut self, domain: u32, function: u32, name: CString) {
        self.names.insert((domain, function), name);
    }

    /// From here on `address` points to `text`.
    pub fn add_text(&mut self, address: u64, text: CString) {
        self.texts.insert(address, self.kept.len());
        self.kept.push(text);
    }

    /// Adds the next action.
    pub fn add_step(&mut self, at: u64, action: Action) {
        let at = at.max(self.end());
        self.steps.push(Step { at, action });
    }

    /// Adds a buffer that was returned at `at`.
    ///
    /// # Errors
    /// If the buffer does not consist of complete records of known size.
    pub fn add_buffer(&mut self, at: u64, context: u64, stream: u32, buffer: &[u8]) -> Result<(), BadBuffer> {
        let number = self.steps.iter().filter(|step| matches!(step.action, Action::Deliver { .. })).count();
        let first = self.items.len();
        let (mut offset, mut latest) = (0, at);
        while offset < buffer.len() {
            let bad = |reason: String| BadBuffer { buffer: number, offset, reason };
            let rest = buffer.get(offset..).unwrap_or_default();
            let kind = layout::u32_at(rest, 0).ok_or_else(|| bad("less than a record is left".to_owned()))?;
            let length = *self
                .origin
                .sizes
                .get(&kind)
                .filter(|&&size| size > 0)
                .ok_or_else(|| bad(format!("the recording gives no size for records of kind {kind}")))?;
            let record = rest
                .get(..length)
                .ok_or_else(|| bad(format!("a record of kind {kind} has {length} bytes, {} are left", rest.len())))?;
            let item = self.take(record, kind, at, latest);
            if item.start != 0 {
                latest = item.complete;
            }
            self.items.push(item);
            offset += length;
        }
        self.add_step(at, Action::Deliver { items: first..self.items.len(), context, stream });
        Ok(())
    }

    fn take(&mut self, record: &[u8], kind: u32, delivered: u64, adjacent: u64) -> Item {
        let (start, end) = layout::times(kind).map_or((0, 0), |(start, end)| {
            (layout::u64_at(record, start).unwrap_or(0), layout::u64_at(record, end).unwrap_or(0))
        });
        // Device times are converted to the host's clock and may lie a little after the delivery.
        let complete = if end != 0 {
            end.min(delivered)
        } else if layout::times(kind).is_none() {
            adjacent
        } else {
            delivered
        };
        if let Some(context) = layout::context(kind).and_then(|at| layout::u32_at(record, at)) {
            self.contexts.insert(context);
        }
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(record);
        let copy = self.bytes.get_mut(offset..).unwrap_or_default();
        for &field in layout::texts(kind) {
            let text = layout::u64_at(copy, field).and_then(|address| self.texts.get(&address));
            let text = text.and_then(|&index| self.kept.get(index));
            layout::put_u64(copy, field, text.map_or(0, |text| text.as_ptr().addr() as u64));
        }
        for &field in layout::others(kind) {
            layout::put_u64(copy, field, 0);
        }
        let function = layout::function(kind).and_then(|at| layout::u32_at(record, at));
        let decided = if function.is_some() { start } else { complete };
        let node = layout::graph(kind).and_then(|at| layout::u32_at(record, at)).is_some_and(|graph| graph != 0);
        let graph = if node { Place::Node } else { Place::Outside };
        Item { offset, length: record.len(), kind, function, start, complete, decided, graph }
    }

    /// Makes a record of the complete graph for each launch of a graph; a recording by nodes does not contain
    /// it.
    fn make_whole_graphs(&mut self) {
        let Some(&length) = self.origin.sizes.get(&Kind::GRAPH_TRACE.0) else { return };
        let id = |item: &Item| layout::correlation(item.kind).and_then(|at| layout::u32_at(self.bytes(item), at));
        let graph =
            |item: &Item| layout::graph(item.kind).and_then(|at| layout::u32_at(self.bytes(item), at)).unwrap_or(0);
        let mut launches: BTreeMap<u32, (usize, usize, u64)> = BTreeMap::new();
        let mut nodes: HashMap<(u32, u32), u32> = HashMap::new();
        for (index, item) in self.items.iter().enumerate().filter(|(_, item)| item.graph == Place::Node) {
            let end = layout::times(item.kind).and_then(|(_, end)| layout::u64_at(self.bytes(item), end)).unwrap_or(0);
            let Some(correlation) = id(item) else { continue };
            *nodes.entry((graph(item), correlation)).or_default() += 1;
            let (first, last, latest) = launches.entry(correlation).or_insert((index, index, end));
            if self.items.get(*first).is_some_and(|first| item.start < first.start) {
                *first = index;
            }
            if self.items.get(*last).is_some_and(|last| item.complete >= last.complete) {
                *last = index;
            }
            *latest = end.max(*latest);
        }
        for ((graph, _), nodes) in nodes {
            let most = self.nodes.entry(graph).or_default();
            *most = nodes.max(*most);
        }
        for (first, last, end) in launches.into_values() {
            let (Some(&begins), Some(&ends)) = (self.items.get(first), self.items.get(last)) else { continue };
            let record = layout::whole_graph(length, begins.start, end, self.bytes(&begins), begins.kind);
            let offset = self.bytes.len();
            self.bytes.extend_from_slice(&record);
            if let Some(item) = self.items.get_mut(last) {
                item.graph = Place::Last(self.graphs.len());
            }
            let kind = Kind::GRAPH_TRACE.0;
            self.graphs.push(Item { offset, length, kind, start: begins.start, graph: Place::Outside, ..ends });
        }
    }

    /// Sets the time of decision of device work to that of its launching call. A nested call has the same id
    /// and starts later.
    fn join_launches(&mut self) {
        let correlation = |session: &Self, item: &Item| {
            layout::correlation(item.kind).and_then(|at| layout::u32_at(session.bytes(item), at)).filter(|&id| id != 0)
        };
        let mut calls = HashMap::new();
        for item in self.items.iter().filter(|item| item.function.is_some()) {
            if let Some(id) = correlation(self, item) {
                calls.entry(id).and_modify(|start: &mut u64| *start = item.start.min(*start)).or_insert(item.start);
            }
        }
        let decided: Vec<u64> = self
            .items
            .iter()
            .map(|item| {
                if !layout::is_device_work(item.kind) {
                    return item.decided;
                }
                correlation(self, item).and_then(|id| calls.get(&id).copied()).unwrap_or(item.start)
            })
            .collect();
        for (item, decided) in self.items.iter_mut().zip(decided) {
            item.decided = decided;
        }
    }

    /// Completes the session, to be played this many times in a row, each time later by its length: for
    /// endurance tests, and with new correlation ids.
    #[must_use]
    pub fn finish(mut self, times: u64) -> Self {
        self.join_launches();
        self.make_whole_graphs();
        let (items, steps, graphs) = (self.items.clone(), self.steps.clone(), self.graphs.clone());
        let length = self.end().saturating_sub(self.origin.start);
        for round in 1..times {
            self.followed = self.followed.wrapping_add(1);
            let ids = self.followed.wrapping_mul(IDS_OF_A_SESSION);
            let later = |time: u64| if time == 0 { 0 } else { time.saturating_add(length.saturating_mul(round)) };
            let (first, first_graph) = (self.items.len(), self.graphs.len());
            for item in &items {
                let mut again = self.again(self.with_other_ids(item, ids), item, later);
                if let Place::Last(whole) = &mut again.graph {
                    *whole += first_graph;
                }
                self.items.push(again);
            }
            for whole in &graphs {
                let again = self.again(self.with_other_ids(whole, ids), whole, later);
                self.graphs.push(again);
            }
            for step in &steps {
                let mut action = step.action.clone();
                if let Action::Deliver { items, .. } = &mut action {
                    *items = items.start + first..items.end + first;
                }
                self.add_step(later(step.at), action);
            }
        }
        self.order();
        self
    }

    /// Sorts the items into the order in which space is reserved for them: the last step of making a session.
    pub fn order(&mut self) {
        self.by_creation = (0..self.items.len()).collect();
        let items = &self.items;
        self.by_creation.sort_by_key(|&index| items.get(index).map(|item| item.decided));
    }

    /// Appends another program's session as if it were the same program: its times begin at the end of this
    /// session, and its correlation ids are shifted. Only the interval of its device work is used, without
    /// its start and its end. Call [`order`](Self::order) afterwards.
    pub fn then(&mut self, next: &mut Self) {
        let ((from, to), begin) = (next.span_of_work(), self.end());
        self.followed = self.followed.wrapping_add(1);
        let ids = self.followed.wrapping_mul(IDS_OF_A_SESSION);
        let later = |time: u64| if time == 0 { 0 } else { begin.saturating_add(time.clamp(from, to) - from) };
        let (first, first_graph) = (self.items.len(), self.graphs.len());
        for item in &next.items {
            let mut moved = self.again(next.with_other_ids(item, ids), item, later);
            if !(from..=to).contains(&item.decided) {
                // No client enables this kind.
                moved.kind = NO_KIND;
            }
            if let Place::Last(whole) = &mut moved.graph {
                *whole += first_graph;
            }
            self.items.push(moved);
        }
        for whole in &next.graphs {
            let moved = self.again(next.with_other_ids(whole, ids), whole, later);
            self.graphs.push(moved);
        }
        for step in &next.steps {
            let mut action = step.action.clone();
            if let Action::Deliver { items, .. } = &mut action {
                *items = items.start + first..items.end + first;
            }
            self.add_step(later(step.at), action);
        }
        self.names.extend(next.names.clone());
        self.contexts.extend(&next.contexts);
        self.nodes.extend(&next.nodes);
        // Records point to them.
        self.kept.append(&mut next.kept);
    }

    /// Interval from the first launch of device work to its last end.
    fn span_of_work(&self) -> (u64, u64) {
        let work = self.items.iter().filter(|item| layout::is_device_work(item.kind));
        let from = work.clone().map(|item| item.decided).min().unwrap_or(self.origin.start);
        (from, work.map(|item| item.complete).max().unwrap_or(from).max(from))
    }

    /// Record of an item, with `add` added to its correlation id.
    fn with_other_ids(&self, item: &Item, add: u32) -> Vec<u8> {
        let mut record = self.bytes(item).to_vec();
        if let Some(at) = layout::correlation(item.kind)
            && let Some(id) = layout::u32_at(&record, at).filter(|&id| id != 0)
            && let Some(field) = record.get_mut(at..at + 4)
        {
            field.copy_from_slice(&id.wrapping_add(add).to_le_bytes());
        }
        record
    }

    /// Copy of an item with this record, at a later time.
    fn again(&mut self, mut record: Vec<u8>, item: &Item, later: impl Fn(u64) -> u64) -> Item {
        if let Some((start, end)) = layout::times(item.kind) {
            for field in [start, end].into_iter().take(if start == end { 1 } else { 2 }) {
                let time = layout::u64_at(&record, field).unwrap_or(0);
                layout::put_u64(&mut record, field, later(time));
            }
        }
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(&record);
        let [start, complete, decided] = [item.start, item.complete, item.decided].map(later);
        Item { offset, start, complete, decided, ..*item }
    }

    /// Launch of the complete graph that ends with this item.
    #[must_use]
    pub fn whole_graph(&self, item: &Item) -> Option<&Item> {
        match item.graph {
            Place::Last(index) => self.graphs.get(index),
            Place::Outside | Place::Node => None,
        }
    }

    /// Graphs and their numbers of nodes.
    pub fn graphs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.nodes.iter().map(|(&graph, &nodes)| (graph, nodes))
    }

    /// All records, in the order of delivery.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Bytes of an item's record.
    #[must_use]
    pub fn bytes(&self, item: &Item) -> &[u8] {
        self.bytes.get(item.offset..item.offset + item.length).unwrap_or_default()
    }

    /// Indices of all items in the order in which the real library reserved space for them, see
    /// [`Item::decided`].
    #[must_use]
    pub fn by_creation(&self) -> &[usize] {
        &self.by_creation
    }

    /// All actions, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Ids of the contexts.
    pub fn contexts(&self) -> impl Iterator<Item = u32> {
        self.contexts.iter().copied()
    }

    /// Time of the last step, or the start.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.steps.last().map_or(self.origin.start, |step| step.at)
    }

    /// Domain and id of the API function with this name, regardless of the version after `_v`.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<(u32, u32)> {
        let known = |known: &CString| known.to_str().is_ok_and(|known| known.split("_v").next() == Some(name));
        self.names.iter().find(|(_, text)| known(text)).map(|(&number, _)| number)
    }

    /// Name of an API function.
    #[must_use]
    pub fn name(&self, domain: u32, function: u32) -> Option<&CString> {
        self.names.get(&(domain, function))
    }
}
