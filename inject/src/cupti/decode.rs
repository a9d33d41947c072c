//! Decodes CUPTI's records into gpuwhy's.
//!
//! With `convert`, the only place where both models meet. Runs on the collector thread while the buffer is
//! held, because names live only that long.

use std::collections::HashMap;
use std::ffi::{CStr, CString};

use cupti_sys::record::{Activity, ApiRecord, GraphTraceRecord, KernelRecord, MemoryRecord};
use cupti_sys::{Cupti, DeviceLink, Domain, DriverDevice, abi};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ApiFunctionId, ContextId, CorrelationId, DeviceId, Kernel, LaunchConfig,
    LaunchConfigId, MemoryEvent, MemoryOperation, NameId, PcieLink, Record, StreamId, ThreadId, Timestamp,
};
use nvml_sys::Nvml;
use rustc_hash::FxBuildHasher;

use crate::cupti::kinds::LAST_CALLBACK_ID;
use crate::cupti::{convert, recorder};

/// Result of decoding a CUPTI record.
#[derive(Debug)]
pub enum Decoded {
    Event(Event),
    /// An entry of the dictionary.
    Description,
    /// A kind that this version does not know.
    Unknown,
}

/// Decodes records, and owns the dictionary that grows with them.
#[derive(Debug)]
pub struct Decoder {
    /// Queried at the start: a CUPTI that hangs later must not block the collector.
    api_names: HashMap<(Domain, u32), String, FxBuildHasher>,
    dictionary: Dictionary,
    links_asked: bool,
    kernel_names: KernelNames,
    /// Functions that were called, by number: runtime functions, driver functions.
    functions: [Vec<Option<ApiFunctionId>>; 2],
}

impl Decoder {
    /// Creates a decoder with an empty dictionary. Queries `cupti` for the names of all API functions, only
    /// this once.
    pub fn new(cupti: &'static Cupti) -> Self {
        let names = |domain| recorder::api_functions(cupti, domain).map(move |(id, name)| ((domain, id), name));
        Self {
            api_names: names(Domain::RUNTIME).chain(names(Domain::DRIVER)).collect(),
            dictionary: Dictionary::new(),
            links_asked: false,
            kernel_names: KernelNames::default(),
            functions: Default::default(),
        }
    }

    /// Dictionary that the records refer to.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// As [`dictionary`](Self::dictionary), for names that do not come from CUPTI.
    pub fn dictionary_mut(&mut self) -> &mut Dictionary {
        &mut self.dictionary
    }

    /// Describes the devices by the driver's data, unless they are described, and queries their links once;
    /// has no effect while CUDA is not initialized.
    pub fn describe_devices(&mut self) {
        let no_devices = self.dictionary.devices().is_empty();
        if !no_devices && self.links_asked {
            return;
        }
        let devices = cupti_sys::driver_devices();
        if !devices.is_empty() && !std::mem::replace(&mut self.links_asked, true) {
            pcie_links(&devices).for_each(|link| self.dictionary.add_link(link));
        }
        if no_devices {
            devices.into_iter().map(convert::driver_device).for_each(|device| self.dictionary.add_device(device));
        }
    }

    /// Notes that the next records are from another buffer.
    pub fn next_buffer(&mut self) {
        self.kernel_names.next_buffer();
    }

    pub fn decode(&mut self, record: cupti_sys::Record<'_>) -> Decoded {
        Decoded::Event(Event::Record(match record.activity() {
            Activity::Kernel(kernel) => Record::Kernel(self.kernel(&kernel)),
            Activity::Api(call) => Record::Api(self.api(&call)),
            Activity::Memcpy(copy) => Record::Copy(convert::memcpy(&copy)),
            Activity::MemcpyP2p(copy) => Record::Copy(convert::peer_memcpy(&copy)),
            Activity::Memset(memset) => Record::Memset(convert::memset(&memset)),
            Activity::Sync(sync) => Record::Sync(convert::sync(&sync)),
            Activity::CudaEvent(event) => Record::Event(convert::event(&event)),
            Activity::Overhead(overhead) => Record::Overhead(convert::overhead(&overhead)),
            Activity::Memory(event) => Record::Memory(self.memory(&event)),
            Activity::MemoryPool(event) => Record::Memory(convert::memory_pool(&event)),
            Activity::UnifiedMemory(event) => Record::Managed(convert::unified_memory(&event)),
            Activity::Device(device) => {
                self.dictionary.add_device(convert::device(&device));
                self.describe_devices();
                return Decoded::Description;
            }
            Activity::Context(context) => {
                self.dictionary.add_context(convert::context(&context));
                return Decoded::Description;
            }
            // Enabled by another tool: our links do not come from CUPTI (`pcie_links`).
            Activity::Pcie => return Decoded::Description,
            Activity::GraphTrace(graph) => Record::Kernel(self.whole_graph(&graph)),
            Activity::Other => return Decoded::Unknown,
        }))
    }

    fn kernel(&mut self, kernel: &KernelRecord<'_>) -> Kernel {
        let known = self.kernel_names.find(kernel.name_address(), || kernel.name(), &mut self.dictionary);
        let config = LaunchConfig {
            name: known.id,
            grid: kernel.grid(),
            block: kernel.block(),
            cluster: kernel.cluster(),
            registers_per_thread: kernel.registers_per_thread(),
            static_shared_bytes: kernel.static_shared_memory().cast_unsigned(),
            dynamic_shared_bytes: kernel.dynamic_shared_memory().cast_unsigned(),
            shared_executed_bytes: kernel.shared_memory_executed(),
            local_bytes_per_thread: kernel.local_memory_per_thread(),
            launch_type: kernel.launch_type(),
        };
        Kernel {
            start: Timestamp::from_nanos(kernel.start()),
            end: Timestamp::from_nanos(kernel.end()),
            device: DeviceId(kernel.device_id()),
            context: ContextId(kernel.context_id()),
            stream: StreamId(kernel.stream_id()),
            correlation: CorrelationId(kernel.correlation_id()),
            config: known.launch(config, &mut self.dictionary),
            graph_id: kernel.graph_id(),
            graph_node_id: kernel.graph_node_id(),
        }
    }

    fn memory(&mut self, event: &MemoryRecord<'_>) -> MemoryEvent {
        let name = event.name().map(|name| self.dictionary.intern_name(&name.to_string_lossy()));
        let local = event.pool_type() == abi::MemoryPoolType::LOCAL;
        let of_pool = |value: u64| if local { value } else { 0 };
        MemoryEvent {
            at: Timestamp::from_nanos(event.timestamp()),
            operation: match event.operation() {
                abi::MemoryOperation::ALLOCATION => MemoryOperation::Allocation,
                abi::MemoryOperation::RELEASE => MemoryOperation::Release,
                _ => MemoryOperation::Unknown,
            },
            kind: convert::memory_kind(event.memory()),
            device: DeviceId(event.device_id()),
            context: ContextId(event.context_id()),
            stream: StreamId(event.stream_id()),
            correlation: CorrelationId(event.correlation_id()),
            address: event.address(),
            bytes: event.byte_count(),
            name: name.unwrap_or(NameId::UNKNOWN),
            pool: of_pool(event.pool_address()),
            pool_bytes: of_pool(event.pool_size_or_process()),
            pool_used: of_pool(event.pool_utilized()),
            pool_threshold: of_pool(event.pool_release_threshold()),
        }
    }

    /// A graph launch recorded as a single unit: computation under a separate name. Its contents, and whether
    /// they were copies, are unknown.
    fn whole_graph(&mut self, graph: &GraphTraceRecord<'_>) -> Kernel {
        Kernel {
            start: Timestamp::from_nanos(graph.start()),
            end: Timestamp::from_nanos(graph.end()),
            device: DeviceId(graph.device_id()),
            context: ContextId(graph.context_id()),
            stream: StreamId(graph.stream_id()),
            correlation: CorrelationId(graph.correlation_id()),
            config: self.dictionary.intern_whole_graph(graph.graph_id()),
            graph_id: graph.graph_id(),
            graph_node_id: 0,
        }
    }

    fn api(&mut self, call: &ApiRecord<'_>) -> ApiCall {
        ApiCall {
            start: Timestamp::from_nanos(call.start()),
            end: Timestamp::from_nanos(call.end()),
            thread: ThreadId(call.thread_id()),
            correlation: CorrelationId(call.correlation_id()),
            function: self.function(call.domain(), call.callback_id()),
            return_value: call.return_value(),
        }
    }

    #[inline]
    fn function(&mut self, domain: Domain, callback_id: u32) -> ApiFunctionId {
        let of_domain = &self.functions[usize::from(domain != Domain::RUNTIME)];
        match of_domain.get(callback_id as usize) {
            Some(&Some(id)) => id,
            _ => self.new_function(domain, callback_id),
        }
    }

    #[cold]
    fn new_function(&mut self, domain: Domain, callback_id: u32) -> ApiFunctionId {
        let (ours, prefix) =
            if domain == Domain::RUNTIME { (ApiDomain::Runtime, "cuda") } else { (ApiDomain::Driver, "cu") };
        let known = self.api_names.get(&(domain, callback_id)).cloned();
        let name = known.unwrap_or_else(|| format!("{prefix}#{callback_id}"));
        let name = self.dictionary.intern_name(&name);
        let id = self.dictionary.intern_api_function(ApiFunction { domain: ours, callback_id, name });
        // Larger numbers, which no library has, can only be corruption, and are looked up each time.
        if callback_id <= LAST_CALLBACK_ID {
            let of_domain = &mut self.functions[usize::from(domain != Domain::RUNTIME)];
            let index = callback_id as usize;
            of_domain.resize(of_domain.len().max(index + 1), None);
            of_domain[index] = Some(id);
        }
        id
    }
}

/// PCI Express links of these devices, as far as they are known. Not from CUPTI: while its PCIE records are
/// on, threads that launch at the same time contend for one lock (docs/design/overhead.md). Linux has them in
/// `/sys`, without a library, which is read first; most virtual machines leave that empty, and NVML is
/// queried then. Loading NVML takes milliseconds, so do not call this on a thread of the program.
fn pcie_links(devices: &[DriverDevice]) -> impl Iterator<Item = PcieLink> {
    let is_reported = devices.iter().all(|device| device.link.is_some());
    let nvml = if is_reported { None } else { Nvml::load().ok() };
    devices.iter().filter_map(move |device| {
        let by_nvml = || {
            let (generation, lanes) = nvml?.device(device.uuid).ok()?.best_link()?;
            DeviceLink::of_generation(generation, lanes)
        };
        let link = device.link.or_else(by_nvml);
        if link.is_none() {
            tracing::info!(
                "the PCI Express link of device {} is unknown: neither /sys nor NVML reports it",
                device.ordinal
            );
        }
        let DeviceLink { generation, megatransfers, lanes } = link?;
        Some(PcieLink { device: DeviceId(device.ordinal), generation, megatransfers, lanes })
    })
}

/// Maximum number of name addresses that are cached, each with a copy of the name.
const ADDRESS_LIMIT: usize = 16_384;

/// Cache of launched kernels, by the address at which CUPTI keeps their name.
///
/// Hashing a mangled name of a thousand characters for each launch costs more than the rest of decoding, and
/// hashing the launch comes next. So a name is found by its address, and a launch by comparing it with the
/// previous one. An address can mean another name once a module is unloaded, but not within a buffer, whose
/// names CUPTI keeps until the buffer is returned: so the text is compared once per buffer.
#[derive(Debug, Default)]
struct KernelNames {
    /// Indices into `known`; kernels without a name have address 0.
    indices: HashMap<u64, usize, FxBuildHasher>,
    known: Vec<KnownKernel>,
    buffer: u64,
}

/// A name, and the last launch of a kernel with that name: most launches equal the previous one.
#[derive(Debug)]
struct KnownKernel {
    name: CString,
    /// Buffer in which the text was last compared.
    compared: u64,
    id: NameId,
    last: Option<(LaunchConfig, LaunchConfigId)>,
}

impl KernelNames {
    /// Starts the next buffer: addresses may mean other names.
    fn next_buffer(&mut self) {
        self.buffer += 1;
    }

    /// Finds the kernel whose `name` is at `address`.
    #[inline]
    fn find<'a>(
        &mut self,
        address: u64,
        name: impl FnOnce() -> Option<&'a CStr>,
        dictionary: &mut Dictionary,
    ) -> &mut KnownKernel {
        let index = match self.indices.get(&address) {
            Some(&index) if self.known[index].compared == self.buffer => index,
            _ => self.compare(address, name(), dictionary),
        };
        &mut self.known[index]
    }

    /// Compares the name at an address with the cached one. Clears the cache if it has more addresses than
    /// programs have kernels.
    #[inline(never)]
    fn compare(&mut self, address: u64, name: Option<&CStr>, dictionary: &mut Dictionary) -> usize {
        let (address, name) = name.map_or((0, c"<unnamed kernel>"), |name| (address, name));
        if self.known.len() >= ADDRESS_LIMIT && !self.indices.contains_key(&address) {
            // It is a cache: entries still in use come back at once.
            self.indices.clear();
            self.known.clear();
        }
        let index = *self.indices.entry(address).or_insert(self.known.len());
        match self.known.get_mut(index) {
            Some(known) if known.name.as_c_str() == name => known.compared = self.buffer,
            Some(known) => *known = KnownKernel::new(name, self.buffer, dictionary),
            None => self.known.push(KnownKernel::new(name, self.buffer, dictionary)),
        }
        index
    }
}

impl KnownKernel {
    fn new(name: &CStr, buffer: u64, dictionary: &mut Dictionary) -> Self {
        let id = dictionary.intern_name(&name.to_string_lossy());
        Self { name: name.to_owned(), compared: buffer, id, last: None }
    }

    /// Id of a launch of this kernel.
    #[inline]
    fn launch(&mut self, config: LaunchConfig, dictionary: &mut Dictionary) -> LaunchConfigId {
        match self.last {
            Some((last, id)) if last == config => id,
            _ => {
                let beyond = dictionary.beyond();
                let id = dictionary.intern_launch_config(config);
                // Launches that the table has no room for must be counted each time.
                self.last = (dictionary.beyond() == beyond).then_some((config, id));
                id
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::dictionary::CONFIG_LIMIT;

    fn launched(names: &mut KernelNames, dictionary: &mut Dictionary, name: &CStr, blocks: u32) -> (String, u32) {
        names.next_buffer();
        let known = names.find(64, || Some(name), dictionary);
        let config = LaunchConfig { name: known.id, grid: [blocks, 1, 1], ..LaunchConfig::default() };
        let id = known.launch(config, dictionary);
        let config = dictionary.launch_config(id);
        (dictionary.name(config.name).to_owned(), config.grid[0])
    }

    #[test]
    fn a_launch_is_what_its_record_says_whatever_came_before_at_its_address() {
        let (mut names, mut dictionary) = (KernelNames::default(), Dictionary::new());
        for (name, blocks) in [(c"a", 1), (c"a", 1), (c"a", 2), (c"a", 1), (c"b", 1), (c"b", 2), (c"a", 2)] {
            let expected = (name.to_str().unwrap().to_owned(), blocks);
            assert_eq!(launched(&mut names, &mut dictionary, name, blocks), expected);
        }
        assert_eq!(dictionary.launch_configs().len(), 4, "each once");
    }

    #[test]
    fn the_text_is_compared_once_a_buffer() {
        let (mut names, mut dictionary) = (KernelNames::default(), Dictionary::new());
        for _ in 0..2 {
            names.next_buffer();
            let mut checks = 0;
            for _ in 0..3 {
                names.find(
                    64,
                    || {
                        checks += 1;
                        Some(c"a")
                    },
                    &mut dictionary,
                );
            }
            assert_eq!(checks, 1);
        }
        // Kernels without a name are not cached.
        let ids = [0, 8].map(|address| names.find(address, || None, &mut dictionary).id);
        assert_eq!((ids[0], dictionary.name(ids[0])), (ids[1], "<unnamed kernel>"));
    }

    #[test]
    fn launches_without_room_in_the_table_are_counted_each_time() {
        let (mut names, mut dictionary) = (KernelNames::default(), Dictionary::new());
        for blocks in 0..CONFIG_LIMIT as u32 {
            launched(&mut names, &mut dictionary, c"a", blocks);
        }
        assert_eq!(dictionary.beyond(), 0);
        for _ in 0..3 {
            launched(&mut names, &mut dictionary, c"a", u32::MAX);
        }
        assert_eq!(dictionary.beyond(), 3);
    }
}
