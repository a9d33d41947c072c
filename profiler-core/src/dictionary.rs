//! What repeats: names, launch configurations, API functions, stack frames, devices, links and contexts.
//!
//! Everything is append-only and ids are indices, so the trace writer emits just the tail that it has not written
//! yet, and a reader that replays those tails rebuilds the same ids.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use crate::record::{
    ApiFunction, ApiFunctionId, Context, ContextId, Device, DeviceId, Frame, LaunchConfig, LaunchConfigId, NameId,
    PcieLink, StackId,
};

/// Append-only tables that records refer to by id.
#[derive(Debug, Default)]
pub struct Dictionary {
    names: Table<Arc<str>>,
    launch_configs: Table<LaunchConfig>,
    api_functions: Table<ApiFunction>,
    frames: Table<Frame>,
    devices: Vec<Device>,
    contexts: Vec<Context>,
    links: Vec<PcieLink>,
}

impl Dictionary {
    /// An empty dictionary.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The id of `name`, new or known.
    pub fn intern_name(&mut self, name: &str) -> NameId {
        NameId(match self.names.ids.get(name) {
            Some(&id) => id,
            None => self.names.append(Arc::from(name)),
        })
    }

    /// The id of `name` if it is known.
    #[must_use]
    pub fn find_name(&self, name: &str) -> Option<NameId> {
        self.names.ids.get(name).copied().map(NameId)
    }

    /// The id of `config`, new or known.
    pub fn intern_launch_config(&mut self, config: LaunchConfig) -> LaunchConfigId {
        LaunchConfigId(self.launch_configs.intern(config))
    }

    /// The id of `function`, new or known.
    pub fn intern_api_function(&mut self, function: ApiFunction) -> ApiFunctionId {
        ApiFunctionId(self.api_functions.intern(function))
    }

    /// The id of the stack that ends with `frame`, new or known.
    pub fn intern_frame(&mut self, frame: Frame) -> StackId {
        StackId(self.frames.intern(frame))
    }

    /// Adds `name` as the next id without looking for an equal one: for readers, whose ids are given.
    pub fn append_name(&mut self, name: &str) -> NameId {
        NameId(self.names.append(Arc::from(name)))
    }

    /// Adds `config` as the next id without looking for an equal one: for readers, whose ids are given.
    pub fn append_launch_config(&mut self, config: LaunchConfig) -> LaunchConfigId {
        LaunchConfigId(self.launch_configs.append(config))
    }

    /// Adds `function` as the next id without looking for an equal one: for readers, whose ids are given.
    pub fn append_api_function(&mut self, function: ApiFunction) -> ApiFunctionId {
        ApiFunctionId(self.api_functions.append(function))
    }

    /// Adds `frame` as the next id without looking for an equal one: for readers, whose ids are given.
    pub fn append_frame(&mut self, frame: Frame) -> StackId {
        StackId(self.frames.append(frame))
    }

    /// Adds a device. One with the same ordinal and contents is ignored.
    pub fn add_device(&mut self, device: Device) {
        if !self.devices.contains(&device) {
            self.devices.push(device);
        }
    }

    /// Adds a context. One with the same contents is ignored.
    pub fn add_context(&mut self, context: Context) {
        if !self.contexts.contains(&context) {
            self.contexts.push(context);
        }
    }

    /// Adds a link. One with the same contents is ignored.
    pub fn add_link(&mut self, link: PcieLink) {
        if !self.links.contains(&link) {
            self.links.push(link);
        }
    }

    /// The string behind `id`, or `?` when the id is unknown.
    #[must_use]
    pub fn name(&self, id: NameId) -> &str {
        self.names.rows.get(id.0 as usize).map_or("?", |name| name)
    }

    /// The launch configuration behind `id`; unknown ids give an empty one with an unknown name.
    #[must_use]
    pub fn launch_config(&self, id: LaunchConfigId) -> LaunchConfig {
        let unknown = LaunchConfig { name: NameId::UNKNOWN, ..LaunchConfig::default() };
        self.launch_configs.rows.get(id.0 as usize).copied().unwrap_or(unknown)
    }

    /// The API function behind `id`.
    #[must_use]
    pub fn api_function(&self, id: ApiFunctionId) -> Option<ApiFunction> {
        self.api_functions.rows.get(id.0 as usize).copied()
    }

    /// The frames of a stack, innermost first. Empty for unknown ids.
    pub fn stack(&self, id: StackId) -> impl Iterator<Item = Frame> {
        let frame = |id: StackId| self.frames.rows.get(id.0 as usize).map(|&frame| (id, frame));
        // Callers have smaller ids, also in a damaged file: so this ends.
        let chain =
            std::iter::successors(frame(id), move |(id, last)| frame(last.caller).filter(|(caller, _)| caller < id));
        chain.map(|(_, frame)| frame)
    }

    /// The newest description of a device.
    #[must_use]
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.iter().rev().find(|device| device.id == id)
    }

    /// The newest description of a context.
    #[must_use]
    pub fn context(&self, id: ContextId) -> Option<&Context> {
        self.contexts.iter().rev().find(|context| context.id == id)
    }

    /// The newest description of a device's link to the host.
    #[must_use]
    pub fn link(&self, id: DeviceId) -> Option<&PcieLink> {
        self.links.iter().rev().find(|link| link.device == id)
    }

    /// All names, by id.
    #[must_use]
    pub fn names(&self) -> &[Arc<str>] {
        &self.names.rows
    }

    /// All launch configurations, by id.
    #[must_use]
    pub fn launch_configs(&self) -> &[LaunchConfig] {
        &self.launch_configs.rows
    }

    /// All API functions, by id.
    #[must_use]
    pub fn api_functions(&self) -> &[ApiFunction] {
        &self.api_functions.rows
    }

    /// All stack frames, by id.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames.rows
    }

    /// All devices, in the order in which they appeared.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// All links, in the order in which they appeared.
    #[must_use]
    pub fn links(&self) -> &[PcieLink] {
        &self.links
    }

    /// All contexts, in the order in which they appeared.
    #[must_use]
    pub fn contexts(&self) -> &[Context] {
        &self.contexts
    }
}

/// Rows in order of appearance, and the way back from a row to its index.
#[derive(Debug)]
struct Table<T> {
    rows: Vec<T>,
    ids: HashMap<T, u32, FxBuildHasher>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), ids: HashMap::default() }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    fn intern(&mut self, row: T) -> u32 {
        match self.ids.get(&row) {
            Some(&id) => id,
            None => self.append(row),
        }
    }

    fn append(&mut self, row: T) -> u32 {
        let id = u32::try_from(self.rows.len()).expect("fewer than 2^32 distinct rows");
        self.rows.push(row.clone());
        self.ids.insert(row, id);
        id
    }
}
