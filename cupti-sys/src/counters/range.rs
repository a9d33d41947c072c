//! The range profiler: the counters of one launch at a time.
//!
//! Auto range and user replay: CUPTI makes a range of every kernel between [`RangeProfiler::start`] and
//! [`RangeProfiler::stop`], and counts one pass of the metrics in it. The caller starts and stops around
//! another launch of the same kernel for each pass. Nothing is saved, restored or run twice. Activity records
//! stay complete, apart from extra records of CUPTI's own kernel `WaitNs`. Starting and stopping takes 2 to
//! 20 ms, opening 150 ms (H200, CUPTI 13.0); CUPTI waits for the device meanwhile.

use std::fmt;

use super::Counters;
use super::abi::{
    AUTO_RANGE, Object, ProfilerGetCounterAvailability, RangeDecodeData, RangeDisable, RangeEnable,
    RangeGetCounterDataInfo, RangeGetCounterDataSize, RangeImageInitialize, RangeSetConfig, RangeStart, RangeStop,
    USER_REPLAY,
};
use super::host::{Collection, Configuration, Host, MetricNames};
use crate::abi::{Context, CuptiResult};
use crate::cupti::Error;

/// A context, as CUPTI names it in a callback; only ever passed back to CUPTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextHandle(usize);

impl ContextHandle {
    pub(crate) fn new(context: Context) -> Self {
        Self(context.expose_provenance())
    }

    pub(crate) fn raw(self) -> Context {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// Metrics that are measured together.
struct Group {
    host: Host,
    metrics: Vec<String>,
    names: MetricNames,
    configuration: Configuration,
    image: Vec<u8>,
}

/// Metrics to measure for a kernel on one chip: groups of metrics, measured one after the other.
pub struct RangePlan {
    groups: Vec<Group>,
    missing: Vec<String>,
}

// SAFETY: its raw pointers are to CUPTI's host objects and to its own strings. CUPTI keeps no per-thread
// state for them: they were used in callbacks on any thread of a program (H200, CUPTI 13.0). Only one thread
// owns the value at a time.
unsafe impl Send for RangePlan {}

impl fmt::Debug for RangePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangePlan").field("groups", &self.groups.len()).field("missing", &self.missing).finish()
    }
}

impl RangePlan {
    /// Prepares these groups of metrics for a chip. Needs no GPU. Metrics that the chip does not have are
    /// left out and listed by [`missing`](Self::missing); a group that becomes empty is left out as well.
    /// Takes some milliseconds, more if metrics are missing.
    ///
    /// # Errors
    /// If CUPTI does not know the chip, or none of the metrics.
    pub fn new(counters: &'static Counters, chip: &str, groups: &[Vec<String>]) -> Result<Self, Error> {
        let mut plan = Self { groups: Vec::new(), missing: Vec::new() };
        let mut refused = None;
        for metrics in groups {
            let configured = configured(counters, chip, metrics)?;
            let group = match configured {
                Ok(group) => Some(group),
                Err(error) => {
                    refused = Some(error);
                    plan.without_missing(counters, chip, metrics)?
                }
            };
            plan.groups.extend(group);
        }
        match refused {
            Some(error) if plan.groups.is_empty() => Err(error),
            _ => Ok(plan),
        }
    }

    /// The group reduced to the metrics that the chip has; each is tried alone.
    fn without_missing(
        &mut self,
        counters: &'static Counters,
        chip: &str,
        metrics: &[String],
    ) -> Result<Option<Group>, Error> {
        let mut present = Vec::new();
        for metric in metrics {
            match configured(counters, chip, std::slice::from_ref(metric))? {
                Ok(_) => present.push(metric.clone()),
                Err(_) => self.missing.push(metric.clone()),
            }
        }
        if present.is_empty() {
            return Ok(None);
        }
        let group = configured(counters, chip, &present)?;
        if group.is_err() {
            self.missing.append(&mut present);
        }
        Ok(group.ok())
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Number of launches that a group needs.
    pub fn passes(&self, group: usize) -> usize {
        self.groups.get(group).map_or(0, |group| group.configuration.passes())
    }

    /// Metrics that the chip does not have.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }
}

/// The outer error concerns the chip, the inner one the metrics.
fn configured(counters: &'static Counters, chip: &str, metrics: &[String]) -> Result<Result<Group, Error>, Error> {
    let mut host = Host::open(counters, Collection::Ranges, chip, None)?;
    let names: Vec<&str> = metrics.iter().map(String::as_str).collect();
    let names = MetricNames::new(&names);
    let configuration = host.configure(&names);
    Ok(configuration.map(|configuration| Group {
        host,
        metrics: metrics.to_vec(),
        names,
        configuration,
        image: Vec::new(),
    }))
}

/// Result of the passes of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Collected {
    /// Number of ranges with values; one if all went well.
    pub ranges: usize,
    /// Number of ranges that did not fit, because a pass contained more than one kernel launch.
    pub dropped: usize,
    /// Metrics and values of the first range; empty if there is none.
    pub values: Vec<(String, f64)>,
}

/// The range profiler of one context. Closed on drop.
pub struct RangeProfiler {
    counters: &'static Counters,
    object: Object,
    context: ContextHandle,
    plan: RangePlan,
    /// The group that the object was configured for.
    configured: Option<usize>,
}

// SAFETY: as for `RangePlan`; start, stop and decode were called from callbacks on any thread of a program.
unsafe impl Send for RangeProfiler {}

impl fmt::Debug for RangeProfiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeProfiler").field("context", &self.context).field("plan", &self.plan).finish()
    }
}

impl RangeProfiler {
    /// Opens the profiler for `context`, which must be current on this thread. First checks that the counters
    /// are free. After [`Counters::initialize`]. On error the plan is returned too: dropping it takes a call
    /// for each group.
    ///
    /// # Errors
    /// [`CuptiResult::HARDWARE_BUSY`] while another tool has the counters,
    /// [`CuptiResult::INSUFFICIENT_PRIVILEGES`] if only administrators may use them, and others.
    pub fn open(
        counters: &'static Counters,
        context: ContextHandle,
        plan: RangePlan,
    ) -> Result<Self, (Error, RangePlan)> {
        match Self::enable(counters, context) {
            Ok(object) => Ok(Self { counters, object, context, plan, configured: None }),
            Err(error) => Err((error, plan)),
        }
    }

    fn enable(counters: &'static Counters, context: ContextHandle) -> Result<Object, Error> {
        let functions = &counters.functions;
        let mut asked =
            ProfilerGetCounterAvailability { context: context.raw(), ..ProfilerGetCounterAvailability::new() };
        // SAFETY: without an image the only pointer in the struct is the context, which CUPTI has just named.
        unsafe { functions.availability.call(&mut asked) }?;
        Self::make(counters, context)
    }

    fn make(counters: &'static Counters, context: ContextHandle) -> Result<Object, Error> {
        let functions = &counters.functions;
        let mut enable = RangeEnable { context: context.raw(), ..RangeEnable::new() };
        // SAFETY: the only pointer in the struct is the context, which CUPTI has just named.
        unsafe { functions.range_enable.call(&mut enable) }?;
        if enable.object.is_null() {
            return Err(Error { function: functions.range_enable.name(), code: CuptiResult::UNKNOWN });
        }
        Ok(enable.object)
    }

    /// The context of this profiler.
    pub const fn context(&self) -> ContextHandle {
        self.context
    }

    /// The metrics that it measures.
    pub const fn plan(&self) -> &RangePlan {
        &self.plan
    }

    /// Prepares the first pass of a group. Not between start and stop; the context must be current. A group
    /// other than the last one requires that the profiler be closed and opened again: an open profiler
    /// accepts another configuration without an error and continues with its first one (H100, CUPTI 13.0).
    ///
    /// # Errors
    /// If CUPTI refuses, or there is no such group.
    pub fn begin_group(&mut self, group: usize) -> Result<(), Error> {
        if self.configured.is_some_and(|configured| configured != group) {
            self.disable();
            self.object = Self::make(self.counters, self.context)?;
        }
        self.configured = Some(group);
        let (functions, object) = (&self.counters.functions, self.object);
        let Some(group) = self.plan.groups.get_mut(group) else {
            return Err(Error { function: functions.range_set_config.name(), code: CuptiResult::INVALID_PARAMETER });
        };
        if group.image.is_empty() {
            let mut size = RangeGetCounterDataSize {
                object,
                names: group.names.as_ptr(),
                count: group.names.len(),
                ranges: 1,
                nodes: 1,
                ..RangeGetCounterDataSize::new()
            };
            // SAFETY: the object is alive, and so are that many NUL-terminated strings.
            unsafe { functions.range_data_size.call(&mut size) }?;
            group.image = vec![0; size.size];
        }
        let (image, image_size) = (group.image.as_mut_ptr(), group.image.len());
        let mut initialize = RangeImageInitialize { object, size: image_size, image, ..RangeImageInitialize::new() };
        // SAFETY: the object is alive, and the image has the size that the struct states.
        unsafe { functions.range_image_initialize.call(&mut initialize) }?;
        let config = group.configuration.image();
        let mut set = RangeSetConfig {
            object,
            config_size: config.len(),
            config: config.as_ptr(),
            image_size,
            image,
            range: AUTO_RANGE,
            replay: USER_REPLAY,
            max_ranges: 1,
            levels: 1,
            min_level: 1,
            pass: 0,
            target_level: 1,
            ..RangeSetConfig::new()
        };
        // SAFETY: the object is alive; configuration and image are part of this value and are neither moved nor resized
        // until the object is disabled.
        unsafe { functions.range_set_config.call(&mut set) }
    }

    /// Starts a pass: launches from here on are counted. Waits for the device.
    ///
    /// # Errors
    /// [`CuptiResult::INSUFFICIENT_PRIVILEGES`] if only administrators may use the counters, and others.
    pub fn start(&mut self) -> Result<(), Error> {
        let mut parameters = RangeStart { object: self.object, ..RangeStart::new() };
        // SAFETY: the object is alive.
        unsafe { self.counters.functions.range_start.call(&mut parameters) }
    }

    /// Ends a pass, and waits for the launches in it. Returns true if it was the last pass.
    ///
    /// # Errors
    /// [`CuptiResult::UNKNOWN`] for work that cannot be measured, such as a CUDA graph, and others.
    pub fn stop(&mut self) -> Result<bool, Error> {
        let mut parameters = RangeStop { object: self.object, ..RangeStop::new() };
        // SAFETY: the object is alive.
        unsafe { self.counters.functions.range_stop.call(&mut parameters) }?;
        Ok(parameters.all_submitted != 0)
    }

    /// The values of a group, after its last pass.
    ///
    /// # Errors
    /// If CUPTI refuses, or there is no such group.
    pub fn collect(&mut self, group: usize) -> Result<Collected, Error> {
        let functions = &self.counters.functions;
        let Some(group) = self.plan.groups.get_mut(group) else {
            return Err(Error { function: functions.range_decode.name(), code: CuptiResult::INVALID_PARAMETER });
        };
        let mut decode = RangeDecodeData { object: self.object, ..RangeDecodeData::new() };
        // SAFETY: the object is alive; it writes to the image that it was configured with.
        unsafe { functions.range_decode.call(&mut decode) }?;
        let mut info = RangeGetCounterDataInfo {
            image: group.image.as_ptr(),
            size: group.image.len(),
            ..RangeGetCounterDataInfo::new()
        };
        // SAFETY: the image has the size that the struct states.
        unsafe { functions.range_data_info.call(&mut info) }?;
        let mut collected = Collected { ranges: info.ranges, dropped: decode.dropped, values: Vec::new() };
        if info.ranges > 0 {
            let mut values = vec![0.0; group.names.len()];
            group.host.evaluate(&group.image, 0, &group.names, &mut values)?;
            collected.values = group.metrics.iter().cloned().zip(values).collect();
        }
        Ok(collected)
    }
}

impl RangeProfiler {
    fn disable(&mut self) {
        let object = std::mem::replace(&mut self.object, std::ptr::null_mut());
        if object.is_null() {
            return;
        }
        let mut parameters = RangeDisable { object, ..RangeDisable::new() };
        // SAFETY: the object is alive and not used again; images and configurations outlive this call. The
        // return code does not matter: the driver may have shut down.
        let _ = unsafe { self.counters.functions.range_disable.call(&mut parameters) };
    }
}

impl Drop for RangeProfiler {
    fn drop(&mut self) {
        self.disable();
    }
}
