//! Entries that events refer to: names, launch configurations, stacks, origins of nodes. Each is in the page once,
//! numbered in order of use.

use gpuwhy_report::launch_site::LaunchSite;
use gpuwhy_report::run::GraphThreadRow;
use gpuwhy_trace::demangle::without_parameters;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{ApiFunctionId, LaunchConfigId, NameId, StackId};
use profiler_core::api::{ApiClass, without_suffix};
use profiler_core::attribution::{GraphWork, LaunchPlace, LineId, Subject, is_communication};
use profiler_core::leaf::WorkKind;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::escape::shown;
use crate::graph_nodes::NodeOrigin;

/// Maximum number of names, configurations and stacks in a page; events with further ones use the first
/// entry, which is marked as such.
const LIMIT: usize = 1 << 20;
/// Maximum number of frames of a stack, from the innermost.
const DEPTH: usize = 128;

/// Kind of a name. The number is in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum NameKind {
    Compute,
    Communication,
    Copy,
    Memset,
    Launch,
    Wait,
    Memory,
    OtherCall,
    Range,
    Code,
}

impl NameKind {
    /// Number of kinds.
    pub(crate) const COUNT: usize = 10;
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum NameKey {
    Id(NameKind, u32),
    Text(NameKind, String),
}

/// Tables of the page other than events.
#[derive(Debug, Serialize)]
pub(crate) struct PageNames {
    names: Vec<(String, u8)>,
    /// Name, grid, block, registers per thread, static and dynamic shared bytes.
    configs: Vec<[u64; 10]>,
    /// Caller's frame (0: none), function, file, line.
    stacks: Vec<[u32; 4]>,
    /// Kind of subject, and its name.
    subjects: Vec<(&'static str, u32)>,
    /// What captured nodes of CUDA graphs; none without work of such nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    origins: Vec<Origin>,
    #[serde(skip)]
    known: FxHashMap<NameKey, u32>,
    #[serde(skip)]
    known_configs: FxHashMap<LaunchConfigId, (u32, NameKind)>,
    #[serde(skip)]
    known_stacks: FxHashMap<StackId, u32>,
    #[serde(skip)]
    known_subjects: FxHashMap<Subject, u32>,
    #[serde(skip)]
    known_origins: FxHashMap<NodeOrigin, u32>,
}

/// What captured a node of a CUDA graph.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Origin {
    /// Name of the line or, without one, of the thread.
    at: u32,
    /// Name of the module (0: outside modules), and names of the operators.
    module: u32,
    operators: u32,
    /// Name of adjacent operations with this origin.
    label: u32,
    stack: u32,
    /// Its operations of the whole run, and their time in nanoseconds.
    count: u64,
    total_ns: u64,
}

/// Entry of nodes that were not reported; entry 0 is that of other work.
const UNKNOWN: u32 = 1;

impl PageNames {
    pub(crate) fn new() -> Self {
        Self {
            names: vec![("(one of many more names)".to_owned(), NameKind::OtherCall as u8)],
            configs: vec![[0; 10]],
            stacks: vec![[0; 4]],
            subjects: vec![("none", 0)],
            origins: Vec::new(),
            known: FxHashMap::default(),
            known_configs: FxHashMap::default(),
            known_stacks: FxHashMap::default(),
            known_subjects: FxHashMap::default(),
            known_origins: FxHashMap::default(),
        }
    }

    fn intern(&mut self, key: NameKey, text: impl FnOnce() -> (String, NameKind)) -> u32 {
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        if self.names.len() >= LIMIT {
            return 0;
        }
        let (text, kind) = text();
        let index = self.names.len() as u32;
        self.names.push((shown(&text).into_owned(), kind as u8));
        self.known.insert(key, index);
        index
    }

    pub(crate) fn text(&mut self, kind: NameKind, text: &str) -> u32 {
        self.intern(NameKey::Text(kind, text.to_owned()), || (text.to_owned(), kind))
    }

    pub(crate) fn name(&mut self, kind: NameKind, id: NameId, dictionary: &Dictionary) -> u32 {
        self.intern(NameKey::Id(kind, id.0), || (dictionary.name(id).to_owned(), kind))
    }

    pub(crate) fn kernel(&mut self, id: NameId, dictionary: &Dictionary) -> (u32, NameKind) {
        let index = self.intern(NameKey::Id(NameKind::Compute, id.0), || {
            let raw = dictionary.name(id);
            let kind = if is_communication(raw) { NameKind::Communication } else { NameKind::Compute };
            (without_parameters(raw), kind)
        });
        let communicates = self.names[index as usize].1 == NameKind::Communication as u8;
        (index, if communicates { NameKind::Communication } else { NameKind::Compute })
    }

    /// Launch configuration of a kernel: its name, its kind and the entry of the configuration.
    pub(crate) fn config(&mut self, id: LaunchConfigId, dictionary: &Dictionary) -> (u32, NameKind, u32) {
        if let Some(&(entry, kind)) = self.known_configs.get(&id) {
            return (self.configs[entry as usize][0] as u32, kind, entry);
        }
        let config = dictionary.launch_config(id);
        let (name, kind) = self.kernel(config.name, dictionary);
        if self.configs.len() >= LIMIT {
            return (name, kind, 0);
        }
        let ([gx, gy, gz], [bx, by, bz]) = (config.grid.map(u64::from), config.block.map(u64::from));
        let shared = [config.static_shared_bytes, config.dynamic_shared_bytes].map(u64::from);
        let registers = config.registers_per_thread.into();
        let entry = self.configs.len() as u32;
        self.configs.push([name.into(), gx, gy, gz, bx, by, bz, registers, shared[0], shared[1]]);
        self.known_configs.insert(id, (entry, kind));
        (name, kind, entry)
    }

    pub(crate) fn function(&mut self, id: ApiFunctionId, dictionary: &Dictionary) -> (u32, NameKind) {
        let kind = |raw: &str| match ApiClass::of(raw) {
            class if class.launches() => NameKind::Launch,
            ApiClass::Synchronize | ApiClass::Query => NameKind::Wait,
            ApiClass::Memory => NameKind::Memory,
            _ => NameKind::OtherCall,
        };
        let index = self.intern(NameKey::Id(NameKind::OtherCall, id.0), || {
            let raw = dictionary.api_function(id).map_or("?", |function| dictionary.name(function.name));
            (without_suffix(raw).to_owned(), kind(raw))
        });
        let kinds = [NameKind::Launch, NameKind::Wait, NameKind::Memory];
        let of = self.names[index as usize].1;
        (index, kinds.into_iter().find(|&kind| kind as u8 == of).unwrap_or(NameKind::OtherCall))
    }

    /// Returns the innermost frame of a stack; 0 for none.
    pub(crate) fn stack(&mut self, id: StackId, dictionary: &Dictionary) -> u32 {
        if let Some(&known) = self.known_stacks.get(&id) {
            return known;
        }
        let mut frames = Vec::new();
        let mut at = id;
        for frame in dictionary.stack(id).take(DEPTH) {
            frames.push((at, frame));
            at = frame.caller;
        }
        let mut caller = 0;
        for (id, frame) in frames.into_iter().rev() {
            if let Some(&known) = self.known_stacks.get(&id) {
                caller = known;
                continue;
            }
            if self.stacks.len() >= LIMIT {
                return 0;
            }
            let function = self.name(NameKind::Code, frame.function, dictionary);
            let file = self.name(NameKind::Code, frame.file, dictionary);
            let entry = self.stacks.len() as u32;
            self.stacks.push([caller, function, file, frame.line]);
            self.known_stacks.insert(id, entry);
            caller = entry;
        }
        caller
    }

    /// Subject of idle time, named as in the report's gaps.
    pub(crate) fn subject(&mut self, subject: Subject, dictionary: &Dictionary) -> u32 {
        // The lines of one cause share one row of the report; the stack distinguishes them.
        let subject = if let Subject::Host(cause, _) = subject { Subject::Host(cause, LineId::NONE) } else { subject };
        if let Some(&known) = self.known_subjects.get(&subject) {
            return known;
        }
        if self.subjects.len() >= LIMIT {
            return 0;
        }
        let (kind, name) = match subject {
            Subject::None => ("none", 0),
            Subject::Call(function) => ("call", self.function(function, dictionary).0),
            Subject::Kernel(name) => ("kernel", self.kernel(name, dictionary).0),
            Subject::HostToDevice => ("copy_from_host", self.text(NameKind::Copy, "a copy from the host")),
            Subject::OtherTransfer => ("other_transfer", self.text(NameKind::Copy, "a copy or memset")),
            Subject::Awaited(producer) => {
                let place = if producer.other_device { " on another GPU" } else { "" };
                let kind = match producer.work {
                    WorkKind::Compute => NameKind::Compute,
                    WorkKind::Communication => NameKind::Communication,
                    WorkKind::Copy => NameKind::Copy,
                    WorkKind::Memset => NameKind::Memset,
                };
                ("event", self.text(kind, &format!("{}{place}", producer.work.name())))
            }
            Subject::Host(cause, _) => ("host", self.text(NameKind::Code, cause.name())),
        };
        let entry = self.subjects.len() as u32;
        self.subjects.push((kind, name));
        self.known_subjects.insert(subject, entry);
        entry
    }

    /// What captured a node: its stack or, without one, its thread; `None` if the node is unknown. The place follows
    /// from the names `of_trace`, the words from those of the page.
    pub(crate) fn origin(
        &mut self,
        captured: Option<NodeOrigin>,
        of_trace: &Dictionary,
        dictionary: &Dictionary,
    ) -> u32 {
        if self.origins.is_empty() {
            let unknown = self.text(NameKind::Code, "origin unknown");
            self.origins = vec![Origin::default(), Origin { at: unknown, label: unknown, ..Origin::default() }];
        }
        let Some(captured) = captured else { return UNKNOWN };
        let NodeOrigin { stack, thread } = captured;
        if let Some(&known) = self.known_origins.get(&captured) {
            return known;
        }
        if self.origins.len() >= LIMIT {
            return UNKNOWN;
        }
        let mut text = |text: &str| self.text(NameKind::Code, text);
        let origin = if let Some(place) = LaunchPlace::of(stack, of_trace) {
            let site = LaunchSite::of(&place, dictionary);
            let operators = site.operators().or_else(|| site.operator.clone());
            Origin {
                at: text(&site.text()),
                module: site.module_path().map_or(0, |module| text(&module)),
                operators: operators.map_or(0, |operators| text(&operators)),
                label: text(&site.captured_in()),
                stack: self.stack(stack, dictionary),
                ..Origin::default()
            }
        } else {
            let name = dictionary.thread_name(thread).map(str::to_owned);
            let of_thread = GraphThreadRow { thread: thread.0, name, work: GraphWork::default() }.text();
            Origin { at: text(&format!("{of_thread}, without a line")), label: text(&of_thread), ..Origin::default() }
        };
        let entry = self.origins.len() as u32;
        self.origins.push(origin);
        self.known_origins.insert(captured, entry);
        entry
    }

    /// Counts an operation with this origin.
    pub(crate) fn captured(&mut self, origin: u32, nanos: u64) {
        if let Some(of) = self.origins.get_mut(origin as usize) {
            of.count += 1;
            of.total_ns += nanos;
        }
    }
}
