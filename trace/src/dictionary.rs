//! Tables of repeating data: names, launch configurations, API functions, stack frames, devices, links,
//! contexts, threads and lines of source code.
//!
//! All tables are append-only and ids are indices. The trace writer therefore writes only rows that it has
//! not written yet, and a reader that appends them in order gets the same ids.
//!
//! A program may compile a kernel for each new shape, for days. Every table is therefore limited: rows beyond
//! the limit share one row and are counted. Readers accept everything in a file, because its size is a limit
//! in itself.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use crate::record::{
    ApiFunction, ApiFunctionId, Context, ContextId, Device, DeviceId, Frame, LaunchConfig, LaunchConfigId, NameId,
    PcieLink, StackId, ThreadId, ThreadName,
};
use crate::source_line::{SourceLine, TEXT_LIMIT, kept};

/// Maximum number of distinct names: twice the limit of NVTX names. Large training programs have a few
/// thousand.
pub const NAME_LIMIT: usize = 131_072;
/// Maximum bytes of all names together. Mangled template names have up to a few thousand bytes each.
pub const NAME_BYTES_LIMIT: usize = 32 << 20;
/// Maximum number of distinct launch configurations (some 200 bytes each, including the index). Dynamic
/// shapes create many.
pub const CONFIG_LIMIT: usize = 131_072;
/// Maximum number of distinct API functions. CUDA 13.4 has 1,400.
pub const FUNCTION_LIMIT: usize = 8_192;
/// Maximum number of distinct stack frames.
pub const FRAME_LIMIT: usize = 262_144;
/// Maximum number of device descriptions: ordinals of one process, each possibly described more than once.
pub const DEVICE_LIMIT: usize = 256;
/// Maximum number of context descriptions. Lookups are linear, so this also limits time.
pub const CONTEXT_LIMIT: usize = 1_024;
/// Maximum number of thread names. Lookups are linear, so this also limits time.
pub const THREAD_LIMIT: usize = 1_024;
/// Maximum number of lines of source code.
pub const SOURCE_LINE_LIMIT: usize = 2_048;
/// Name shared by all names beyond the limit.
const FURTHER_NAMES: &str = "<names beyond the table>";

/// Beginning of the name of a graph whose nodes were not recorded.
const WHOLE_GRAPH: &str = "[CUDA graph ";

/// True if a kernel of this name stands for a launch of a graph without records of its nodes.
pub fn is_whole_graph(name: &str) -> bool {
    name.starts_with(WHOLE_GRAPH)
}

/// Append-only tables that records refer to by id.
#[derive(Clone, Debug, Default)]
pub struct Dictionary {
    name_bytes: usize,
    beyond: u64,
    names: UniqueRows<Arc<str>>,
    launch_configs: UniqueRows<LaunchConfig>,
    api_functions: UniqueRows<ApiFunction>,
    frames: UniqueRows<Frame>,
    devices: Vec<Device>,
    contexts: Vec<Context>,
    links: Vec<PcieLink>,
    threads: Vec<ThreadName>,
    source_lines: Vec<SourceLine>,
    source_bytes: usize,
}

impl Dictionary {
    /// An empty dictionary.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the id of `name`, adding it if new. Beyond [`NAME_LIMIT`] or [`NAME_BYTES_LIMIT`], new names
    /// share one id.
    pub fn intern_name(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.names.ids.get(name) {
            return NameId(id);
        }
        if self.names.rows.len() >= NAME_LIMIT || self.name_bytes + name.len() > NAME_BYTES_LIMIT {
            self.beyond += 1;
            return NameId(self.names.intern(Arc::from(FURTHER_NAMES)));
        }
        self.append_name(name)
    }

    /// Returns the id of `name` if it is known.
    pub fn find_name(&self, name: &str) -> Option<NameId> {
        self.names.ids.get(name).copied().map(NameId)
    }

    /// Returns the id of `config`, adding it if new. Beyond [`CONFIG_LIMIT`], new ones become a configuration
    /// that contains only the name.
    pub fn intern_launch_config(&mut self, config: LaunchConfig) -> LaunchConfigId {
        let further = || LaunchConfig { name: config.name, ..LaunchConfig::default() };
        LaunchConfigId(self.launch_configs.intern_within(CONFIG_LIMIT, config, further, &mut self.beyond))
    }

    /// Returns the configuration that stands for a launch of the graph `id` without records of its nodes: computation
    /// of its own name, see [`is_whole_graph`].
    pub fn intern_whole_graph(&mut self, id: u32) -> LaunchConfigId {
        let name = self.intern_name(&format!("{WHOLE_GRAPH}{id}, nodes not recorded]"));
        self.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() })
    }

    /// Returns the id of `function`, adding it if new. Beyond [`FUNCTION_LIMIT`], new ones become a function
    /// without a name.
    pub fn intern_api_function(&mut self, function: ApiFunction) -> ApiFunctionId {
        let further = || ApiFunction { callback_id: u32::MAX, name: NameId::UNKNOWN, ..function };
        ApiFunctionId(self.api_functions.intern_within(FUNCTION_LIMIT, function, further, &mut self.beyond))
    }

    /// Returns the id of the stack that ends with `frame`, adding it if new. Beyond [`FRAME_LIMIT`], this is
    /// the id of its caller.
    pub fn intern_frame(&mut self, frame: Frame) -> StackId {
        if self.frames.rows.len() >= FRAME_LIMIT && !self.frames.ids.contains_key(&frame) {
            self.beyond += 1;
            return frame.caller;
        }
        StackId(self.frames.intern(frame))
    }

    /// Number of lookups that found a full table. Counting the distinct rows would need another table.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Adds `name` as the next id, without deduplication: for readers, whose ids are fixed.
    pub fn append_name(&mut self, name: &str) -> NameId {
        self.name_bytes += name.len();
        NameId(self.names.append(Arc::from(name)))
    }

    /// Adds `config` as the next id, without deduplication: for readers, whose ids are fixed.
    pub fn append_launch_config(&mut self, config: LaunchConfig) -> LaunchConfigId {
        LaunchConfigId(self.launch_configs.append(config))
    }

    /// Adds `function` as the next id, without deduplication: for readers, whose ids are fixed.
    pub fn append_api_function(&mut self, function: ApiFunction) -> ApiFunctionId {
        ApiFunctionId(self.api_functions.append(function))
    }

    /// Adds `frame` as the next id, without deduplication: for readers, whose ids are fixed.
    pub fn append_frame(&mut self, frame: Frame) -> StackId {
        StackId(self.frames.append(frame))
    }

    /// Adds a device unless an identical one exists or [`DEVICE_LIMIT`] is reached.
    pub fn add_device(&mut self, device: Device) {
        add(&mut self.devices, device, DEVICE_LIMIT, &mut self.beyond);
    }

    /// Adds a context unless an identical one exists or [`CONTEXT_LIMIT`] is reached.
    pub fn add_context(&mut self, context: Context) {
        add(&mut self.contexts, context, CONTEXT_LIMIT, &mut self.beyond);
    }

    /// Adds a link unless an identical one exists.
    pub fn add_link(&mut self, link: PcieLink) {
        if !self.links.contains(&link) {
            self.links.push(link);
        }
    }

    /// Adds the name of a thread unless an identical one exists or [`THREAD_LIMIT`] is reached.
    pub fn add_thread_name(&mut self, thread: ThreadName) {
        add(&mut self.threads, thread, THREAD_LIMIT, &mut self.beyond);
    }

    /// Adds a line of source code, what is behind a line break or too wide cut off, unless it is there or one of
    /// [`SOURCE_LINE_LIMIT`] and [`TEXT_LIMIT`] is reached: a reader of traces parses all of them.
    pub fn add_source_line(&mut self, line: SourceLine) {
        let line = SourceLine { text: kept(&line.text), ..line };
        let known = self.source_lines.len();
        let limit = if self.source_bytes + line.text.len() > TEXT_LIMIT { 0 } else { SOURCE_LINE_LIMIT };
        add(&mut self.source_lines, line, limit, &mut self.beyond);
        self.source_bytes += self.source_lines[known..].iter().map(|line| line.text.len()).sum::<usize>();
    }

    /// The string of `id`, or `?` if the id is unknown.
    pub fn name(&self, id: NameId) -> &str {
        self.names.rows.get(id.0 as usize).map_or("?", |name| name)
    }

    /// The launch configuration of `id`; an empty one with an unknown name if the id is unknown.
    pub fn launch_config(&self, id: LaunchConfigId) -> LaunchConfig {
        let unknown = LaunchConfig { name: NameId::UNKNOWN, ..LaunchConfig::default() };
        self.launch_configs.rows.get(id.0 as usize).copied().unwrap_or(unknown)
    }

    /// The API function of `id`.
    pub fn api_function(&self, id: ApiFunctionId) -> Option<ApiFunction> {
        self.api_functions.rows.get(id.0 as usize).copied()
    }

    /// The frames of a stack, innermost first. Empty for unknown ids.
    pub fn stack(&self, id: StackId) -> impl Iterator<Item = Frame> {
        let frame = |id: StackId| self.frames.rows.get(id.0 as usize).map(|&frame| (id, frame));
        // Callers have smaller ids, even in a damaged file, so the iteration ends.
        let chain =
            std::iter::successors(frame(id), move |(id, last)| frame(last.caller).filter(|(caller, _)| caller < id));
        chain.map(|(_, frame)| frame)
    }

    /// The newest description of a device.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.iter().rev().find(|device| device.id == id)
    }

    /// The newest description of a context.
    pub fn context(&self, id: ContextId) -> Option<&Context> {
        self.contexts.iter().rev().find(|context| context.id == id)
    }

    /// The newest description of a device's link to the host.
    pub fn link(&self, id: DeviceId) -> Option<&PcieLink> {
        self.links.iter().rev().find(|link| link.device == id)
    }

    /// The newest name of a thread.
    pub fn thread_name(&self, id: ThreadId) -> Option<&str> {
        self.threads.iter().rev().find(|thread| thread.thread == id).map(|thread| self.name(thread.name))
    }

    /// All names, by id.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names.rows
    }

    /// All launch configurations, by id.
    pub fn launch_configs(&self) -> &[LaunchConfig] {
        &self.launch_configs.rows
    }

    /// All API functions, by id.
    pub fn api_functions(&self) -> &[ApiFunction] {
        &self.api_functions.rows
    }

    /// All stack frames, by id.
    pub fn frames(&self) -> &[Frame] {
        &self.frames.rows
    }

    /// All devices, in order of appearance.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// All links, in order of appearance.
    pub fn links(&self) -> &[PcieLink] {
        &self.links
    }

    /// All thread names, in order of appearance.
    pub fn thread_names(&self) -> &[ThreadName] {
        &self.threads
    }

    /// All lines of source code, in order of appearance.
    pub fn source_lines(&self) -> &[SourceLine] {
        &self.source_lines
    }

    /// All contexts, in order of appearance.
    pub fn contexts(&self) -> &[Context] {
        &self.contexts
    }
}

fn add<T: PartialEq>(rows: &mut Vec<T>, row: T, limit: usize, beyond: &mut u64) {
    if rows.contains(&row) {
        return;
    }
    if rows.len() < limit {
        rows.push(row);
    } else {
        *beyond += 1;
    }
}

/// Rows in order of appearance, and a map from each row to its index.
#[derive(Clone, Debug)]
struct UniqueRows<T> {
    rows: Vec<T>,
    ids: HashMap<T, u32, FxBuildHasher>,
}

impl<T> Default for UniqueRows<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), ids: HashMap::default() }
    }
}

impl<T: Clone + Eq + Hash> UniqueRows<T> {
    fn intern(&mut self, row: T) -> u32 {
        match self.ids.get(&row) {
            Some(&id) => id,
            None => self.append(row),
        }
    }

    /// Like [`intern`](Self::intern), but new rows become `further` if the table has `limit` rows.
    fn intern_within(&mut self, limit: usize, row: T, further: impl FnOnce() -> T, beyond: &mut u64) -> u32 {
        if self.rows.len() < limit {
            return self.intern(row);
        }
        self.ids.get(&row).copied().unwrap_or_else(|| {
            *beyond += 1;
            self.intern(further())
        })
    }

    fn append(&mut self, row: T) -> u32 {
        let id = u32::try_from(self.rows.len()).expect("fewer than 2^32 distinct rows");
        self.rows.push(row.clone());
        self.ids.insert(row, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ApiDomain;

    #[test]
    fn names_beyond_the_table_share_one_and_are_counted() {
        let mut dictionary = Dictionary::new();
        let first = dictionary.intern_name("0");
        for index in 1..NAME_LIMIT + 10 {
            dictionary.intern_name(&index.to_string());
        }
        assert_eq!(dictionary.names().len(), NAME_LIMIT + 1);
        assert_eq!(dictionary.name(NameId(dictionary.names.ids[FURTHER_NAMES])), FURTHER_NAMES);
        assert_eq!((dictionary.intern_name("0"), dictionary.beyond()), (first, 10));

        let mut dictionary = Dictionary::new();
        let long = "x".repeat(NAME_BYTES_LIMIT);
        dictionary.intern_name(&long);
        let further = dictionary.intern_name("y");
        assert_eq!((dictionary.name(further), dictionary.beyond()), (FURTHER_NAMES, 1));
    }

    #[test]
    fn a_launch_beyond_the_table_keeps_its_name() {
        let mut dictionary = Dictionary::new();
        let name = dictionary.intern_name("gemm");
        let config = |width| LaunchConfig { name, grid: [width, 1, 1], ..LaunchConfig::default() };
        for width in 1..=CONFIG_LIMIT as u32 + 5 {
            dictionary.intern_launch_config(config(width));
        }
        let id = dictionary.intern_launch_config(config(u32::MAX));
        assert_eq!((dictionary.launch_config(id).name, dictionary.launch_config(id).grid), (name, [0; 3]));
        assert_eq!((dictionary.launch_configs().len(), dictionary.beyond()), (CONFIG_LIMIT + 1, 6));
    }

    #[test]
    fn the_other_tables_end_too() {
        let mut dictionary = Dictionary::new();
        for id in 0..10_000 {
            let device = DeviceId(id);
            dictionary.add_context(Context { id: ContextId(id), device, ..Context::default() });
            dictionary.add_device(Device { id: device, ..Device::default() });
            let function = ApiFunction { domain: ApiDomain::Driver, callback_id: id, name: NameId(0) };
            dictionary.intern_api_function(function);
        }
        assert_eq!((dictionary.contexts().len(), dictionary.devices().len()), (CONTEXT_LIMIT, DEVICE_LIMIT));
        assert_eq!(dictionary.api_functions().len(), FUNCTION_LIMIT + 1);
    }
}
