//! The thread that reads the devices: NVML values and utilization, and samples of GPU counters. No other
//! thread reads these. An NVML call may take milliseconds; one that never returns costs the readings, and
//! delays one fork and the exit of the program by 2 s each.
//!
//! It costs the program's threads no time: no device is opened in a callback or before the program has a
//! context, and sampling starts half a second after the start of work. NVML readings take at most 0.2 % of a
//! core, those of other processes once a second left out, which were not measured; if sampling takes more
//! than its share, its rate is lowered (`sampling_rate`). Measurements of selected kernels get exclusive
//! access to the counters through `access_lock`.
//!
//! A refusal is not an error: it is a fact in the trace, with advice.

use std::time::{Duration, Instant};

use cupti_sys::counters::Counters;
use cupti_sys::counters::sets::Links;
use cupti_sys::{Cupti, devices_in_use};
use gpuwhy_trace::counters::{self, CounterEvent};
use gpuwhy_trace::record::DeviceId;

use crate::capture::controller::CaptureController;
use crate::config::{CommandLine, GpuMetrics, Settings};
use crate::counters::access_lock::{COUNTER_ACCESS, CounterAccess};
use crate::counters::gauges::DeviceGauges;
use crate::counters::library_calls::STOP_TIMEOUT;
use crate::counters::nvml::Devices;
use crate::counters::processes::Processes;
use crate::counters::sampled::{SampledDevice, refused};
use crate::counters::sampling_rate::{PERIOD, SamplingRate};
use crate::counters::utilization::UtilizationReader;
use crate::shared::stop::{Stop, Wake};
use crate::shared::{Message, Shared};
use crate::sys::{clock, memory, process, threads};

pub mod access_lock;
mod gauges;
pub mod library_calls;
mod nvml;
mod processes;
mod sampled;
mod sampling_rate;
mod utilization;

/// Interval between two NVML readings.
const GAUGES_EVERY: Duration = Duration::from_millis(100);
/// The same for 32-bit link counters, which may wrap around after 4 GiB: 68 ms at 63 GB/s.
const LINKS_EVERY: Duration = Duration::from_millis(50);
/// Maximum number of NVML readings that calls of the program request, of some 0.1 ms each.
const MOST_REQUESTED: u32 = 1_000;
/// Interval between two checks for contexts on further devices.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time that a program works before its devices are sampled: a short program does not pay for opening them.
const OPEN_AFTER: Duration = Duration::from_millis(500);
/// Interval between two attempts while another tool has the counters.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Delay before a device whose buffer overflowed is opened again: this thread may still be late.
const OPEN_AFTER_OVERFLOW: Duration = Duration::from_secs(5);
/// Time for which sampling continues between two captures: the next may follow, and opening takes 200 ms.
const CLOSE_AFTER: Duration = Duration::from_secs(2);
/// Memory that must be left within the process's limit for tables, buffer and images: an H100 took 147 MB at
/// 200 samples a second, and higher rates take more.
const MEMORY_TO_SAMPLE: u64 = 512 << 20;

/// CUPTI's counter libraries have their own exit handlers, and counters must be closed before those run: a C
/// program that closed them afterwards crashed at its end (H100, CUPTI 13.0). So our handler is registered
/// again after each call that may have registered one of theirs.
pub fn close_before_libraries() {
    if let Err(error) = process::at_exit_again() {
        tracing::warn!("GPU counters may be closed late: {error}");
    }
}

/// At the end of the main thread: closes the counters, and waits for such calls of other threads of this
/// library.
pub fn close_for_exit(counters: &Stop) {
    if counters.stop(STOP_TIMEOUT) {
        library_calls::wait_until_over();
    }
}

/// Configuration of the thread, before it starts.
#[derive(Clone, Copy, Debug)]
pub struct ReaderConfig {
    wanted: GpuMetrics,
    samples: bool,
    /// Device work is not recorded, so samples must show the busy time, and no buffer ever arrives.
    monitors: bool,
    /// True if the trace may name other programs.
    names_others: bool,
}

/// State of the thread.
struct ReaderThread<'a> {
    reader: ReaderConfig,
    cupti: &'static Cupti,
    shared: &'a Shared,
    controller: &'a CaptureController,
    devices: Option<Devices>,
    gauges: Vec<DeviceGauges>,
    processes: Vec<Processes>,
    utilization: UtilizationReader,
    sampled: Vec<SampledDevice>,
    /// Bit mask of the devices found up to now, by ordinal.
    known: u64,
    sampling_rate: SamplingRate,
    access: Option<CounterAccess<'static>>,
    events: Vec<CounterEvent>,
    /// Time of the next check for devices that have come into use.
    poll_due: Instant,
    /// Time at which devices are opened, or tried again.
    open_due: Option<Instant>,
    decode_due: Instant,
    gauges_due: Instant,
    /// Number of readings that calls of the program requested.
    requested: u32,
    /// Last time at which records were made.
    worked: Option<Instant>,
    /// True if records are being made: readings at other times belong to no capture.
    is_on: bool,
    reported: Vec<counters::CounterLoss>,
}

impl ReaderConfig {
    /// Applies the settings. `None` if they request no readings.
    pub fn prepare(settings: &Settings) -> Option<Self> {
        let (wanted, monitors) = (settings.gpu_metrics, settings.mode.monitors());
        // A run whose tracing costs too much may step down to mode monitor.
        let may_monitor = monitors || settings.budget.is_some_and(|budget| !budget.only_graphs);
        let names_others = settings.command_line != CommandLine::Off;
        let reader = Self { wanted, samples: wanted.samples(), monitors, names_others };
        (wanted != GpuMetrics::Off || may_monitor).then_some(reader)
    }

    /// Reads until it is stopped.
    pub fn run(self, cupti: &'static Cupti, shared: &Shared, controller: &CaptureController, stop: &Stop) {
        let _over = stop.begin();
        let now = Instant::now();
        let rate = if let GpuMetrics::On(rate) = self.wanted { rate } else { None };
        let mut thread = ReaderThread {
            reader: self,
            cupti,
            shared,
            controller,
            devices: None,
            gauges: Vec::new(),
            processes: Vec::new(),
            utilization: UtilizationReader::new(),
            sampled: Vec::new(),
            known: 0,
            sampling_rate: SamplingRate::new(rate),
            access: None,
            events: Vec::new(),
            poll_due: now,
            open_due: None,
            decode_due: now,
            gauges_due: now,
            requested: 0,
            worked: None,
            is_on: false,
            reported: Vec::new(),
        };
        loop {
            let wake = stop.wait(thread.rest());
            if wake == Wake::End {
                break;
            }
            let _calls = library_calls::enter();
            thread.round(wake == Wake::Reading);
        }
        let _calls = library_calls::enter();
        thread.finish();
    }
}

impl ReaderThread<'_> {
    /// Pause between two rounds.
    fn rest(&self) -> Duration {
        match self.reader.wanted {
            GpuMetrics::Off => utilization::PERIOD,
            _ if self.known == 0 && !self.controller.monitors() => POLL_INTERVAL,
            _ => LINKS_EVERY,
        }
    }

    /// `requested`: a call of the program requests a reading.
    fn round(&mut self, requested: bool) {
        let now = Instant::now();
        self.is_on = self.controller.is_on();
        let reads = self.is_on && self.reader.wanted != GpuMetrics::Off && self.requested < MOST_REQUESTED;
        self.shared.counters.ignore_readings(!reads);
        self.read_utilization();
        if self.reader.wanted == GpuMetrics::Off {
            return;
        }
        if self.is_on {
            self.worked = Some(now);
        } else if self.worked.is_none_or(|worked| now.duration_since(worked) > CLOSE_AFTER) {
            self.close();
            return;
        }
        if requested && reads {
            self.requested += 1;
            (self.poll_due, self.gauges_due) = (now, now);
        }
        if now >= self.poll_due {
            self.poll_due = now + POLL_INTERVAL;
            self.find_devices();
        }
        self.read_gauges(now);
        if self.reader.samples {
            self.sample(now);
        }
        self.hand_over();
    }

    /// Adds devices on which a context has been created.
    fn find_devices(&mut self) {
        let new = devices_in_use() & !self.known;
        if new == 0 {
            return;
        }
        let Some(devices) = Devices::find(&mut self.devices) else { return };
        self.known |= new;
        let several = devices.driver.len() > 1;
        let is_new = |ordinal| ordinal < u64::BITS && new & (1_u64 << ordinal) != 0;
        for device in devices.driver.clone().into_iter().filter(|device| is_new(device.ordinal)) {
            let id = DeviceId(device.ordinal);
            let handle = devices.handle(&device);
            let handle =
                handle.inspect_err(|why| tracing::info!("no NVML readings of device {}: {}", id.0, why.words()));
            let named = self.reader.names_others;
            self.processes.extend(handle.ok().map(|handle| Processes::new(id, handle, named)));
            let mut gauges = handle.ok().map(|handle| DeviceGauges::new(id, handle));
            let mut highest = 0;
            let monitors = self.reader.monitors;
            let mut links = Links { pcie: true, nvlink: several, engine: monitors };
            if let Some(gauges) = &mut gauges {
                highest = gauges.highest_clock_hz();
                self.events.push(CounterEvent::Gauges(gauges.read(clock::now(self.cupti), false)));
                // Traffic that NVML counts need not be sampled.
                let [pcie, nvlink] = gauges.counted_links();
                // Without records of copies, the traffic must come from samples.
                links.pcie = monitors || !pcie;
                links.nvlink &= !nvlink;
            }
            self.gauges.extend(gauges);
            if self.reader.samples {
                self.sampled.push(SampledDevice::new(device, highest, links));
                let at_once = matches!(self.reader.wanted, GpuMetrics::On(_));
                self.open_due.get_or_insert(Instant::now() + if at_once { Duration::ZERO } else { OPEN_AFTER });
            }
        }
    }

    /// Reads utilization while no device work is recorded.
    fn read_utilization(&mut self) {
        if !self.is_on && !self.controller.is_draining() {
            self.utilization.pause();
        } else if self.controller.monitors() {
            // Fails only if the collector has a large backlog; the next reading has the totals.
            self.utilization.tick(&mut self.devices, |reading| {
                let _ = self.shared.messages.try_send(Message::Utilization(reading));
            });
        }
    }

    fn read_gauges(&mut self, now: Instant) {
        if now < self.gauges_due {
            self.gauges.iter_mut().for_each(DeviceGauges::read_links);
            return;
        }
        self.gauges_due = now + GAUGES_EVERY;
        for gauges in &mut self.gauges {
            let at = clock::now(self.cupti);
            self.events.push(CounterEvent::Gauges(gauges.read(at, false)));
        }
        // They explain gaps between device work, which monitoring does not record.
        if self.controller.monitors() {
            return;
        }
        for processes in &mut self.processes {
            let readings = processes.read(now, clock::now(self.cupti));
            self.events.extend(readings.into_iter().map(CounterEvent::Process));
        }
    }

    fn sample(&mut self, now: Instant) {
        if COUNTER_ACCESS.is_wanted() && self.access.is_some() {
            self.give_way();
            return;
        }
        if self.open_due.is_some_and(|due| now >= due) && (self.reader.monitors || self.shared.has_delivered()) {
            self.open_due = None;
            self.open();
            self.decode_due = Instant::now() + PERIOD;
        }
        if now >= self.decode_due {
            self.decode(now.duration_since(self.decode_due) + PERIOD);
            self.decode_due = now + PERIOD;
        }
    }

    /// Opens the devices that are not open. Takes a fifth of a second per device.
    fn open(&mut self) {
        if memory::left().is_some_and(|left| left < MEMORY_TO_SAMPLE) {
            tracing::warn!("GPU counters are not sampled: the limits of this process leave too little memory");
            self.sampled.iter_mut().for_each(|device| device.refuse(counters::UnavailableReason::Failed(8)));
            return;
        }
        if self.access.is_none() {
            self.access = COUNTER_ACCESS.for_sampling();
        }
        let Some(access) = &self.access else {
            self.sampled.iter_mut().for_each(|device| device.refuse(counters::UnavailableReason::GivenAway));
            self.open_due = Some(Instant::now() + GAUGES_EVERY);
            return;
        };
        let available = Counters::of(self.cupti);
        let is_asked_for = matches!(self.reader.wanted, GpuMetrics::On(_));
        let mut asks_again = false;
        for device in self.sampled.iter_mut().filter(|device| !device.is_open()) {
            if self.shared.counters.is_asked() {
                break;
            }
            // If initialization fails, the first call fails the same way.
            let _ = available.initialize();
            let opened = device.open(access, available, &self.sampling_rate);
            close_before_libraries();
            match opened {
                Ok(set) => self.events.push(CounterEvent::Set(set)),
                Err(refusal) => {
                    let why = refused(refusal);
                    let is_news = device.loss().refused != Some(why);
                    device.refuse(why);
                    asks_again |= refusal.may_pass();
                    match (is_news, is_asked_for) {
                        (true, true) => {
                            tracing::warn!("GPU counters of device {} are not sampled: {refusal}", device.id().0)
                        }
                        (true, false) => {
                            tracing::info!("GPU counters of device {} are not sampled: {refusal}", device.id().0)
                        }
                        (false, _) => {}
                    }
                }
            }
        }
        if !self.sampled.iter().any(SampledDevice::is_open) {
            self.access = None;
        }
        self.open_due = asks_again.then(|| Instant::now() + ASK_AGAIN);
    }

    fn decode(&mut self, lasted: Duration) {
        let before = threads::thread_cpu_time(threads::thread_id());
        for device in self.sampled.iter_mut().filter(|device| device.is_open()) {
            // Repeated if the image was full: the rate is high, or the thread is late.
            for _ in 0..self.sampling_rate.decodings() {
                if !device.decode(&mut self.events) {
                    break;
                }
            }
            match device.gives_up_a_unit() {
                Some(true) => self.open_due = Some(Instant::now()),
                Some(false) => tracing::warn!(
                    "GPU counters of device {} are not sampled: no sample completes; report this GPU to gpuwhy",
                    device.id().0
                ),
                None => {}
            }
        }
        let mut overflowed = false;
        for device in &mut self.sampled {
            overflowed |= device.take_overflow();
        }
        if overflowed {
            self.open_due.get_or_insert(Instant::now() + OPEN_AFTER_OVERFLOW);
        }
        let after = threads::thread_cpu_time(threads::thread_id());
        let spent = after.zip(before).map_or(Duration::ZERO, |(after, before)| after.saturating_sub(before));
        if self.sampling_rate.note(spent, lasted) {
            tracing::info!(
                "GPU counters take more than their share of a core: a sample every {} ns now",
                self.sampling_rate.interval_nanos()
            );
            for device in self.sampled.iter_mut().filter(|device| device.is_open()) {
                device.slowed();
                device.close(&mut self.events);
            }
            self.open_due = Some(Instant::now());
        }
    }

    /// Releases the counters, which are needed for selected kernels.
    fn give_way(&mut self) {
        for device in &mut self.sampled {
            if device.is_open() {
                device.close(&mut self.events);
                device.refuse(counters::UnavailableReason::GivenAway);
            }
        }
        self.access = None;
        self.open_due = Some(Instant::now() + GAUGES_EVERY);
    }

    /// Stops sampling between captures.
    fn close(&mut self) {
        if self.access.is_none() {
            return;
        }
        for device in &mut self.sampled {
            device.close(&mut self.events);
        }
        self.access = None;
        self.open_due = Some(Instant::now());
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let losses: Vec<_> = self.sampled.iter().map(SampledDevice::loss).collect();
        if losses != self.reported {
            self.events.extend(losses.iter().copied().map(CounterEvent::Loss));
            self.reported = losses;
        }
        if !self.is_on {
            self.events.retain(|event| !is_reading(event));
        }
        if self.events.is_empty() {
            return;
        }
        // Fails only if the collector has a large backlog: the next totals include the loss.
        if let Err(refused) = self.shared.messages.try_send(Message::Counters(std::mem::take(&mut self.events)))
            && let Message::Counters(events) = refused.into_inner()
        {
            for device in &mut self.sampled {
                let id = device.id();
                let is_its =
                    |event: &&CounterEvent| matches!(event, CounterEvent::Sample(sample) if sample.device == id);
                device.lost(events.iter().filter(is_its).count() as u64);
            }
            // Lost samples are counted; their descriptions are sent again.
            self.events = events.into_iter().filter(|event| !is_reading(event)).collect();
        }
    }

    fn finish(mut self) {
        // The last samples belong to a capture in progress.
        self.is_on |= self.controller.is_on();
        for device in &mut self.sampled {
            device.close(&mut self.events);
        }
        for gauges in &mut self.gauges {
            let at = clock::now(self.cupti);
            self.events.push(CounterEvent::Gauges(gauges.read(at, true)));
        }
        self.access = None;
        self.hand_over();
    }
}

fn is_reading(event: &CounterEvent) -> bool {
    matches!(event, CounterEvent::Sample(_) | CounterEvent::Gauges(_) | CounterEvent::Process(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn what_is_read_follows_the_settings_and_the_mode() {
        let samples = |variables: &[(&str, &str)]| {
            let variables: Vec<_> = variables.iter().map(|&(name, value)| (name.into(), value.into())).collect();
            ReaderConfig::prepare(&Settings::from_variables(&variables).0).map(|reader| reader.samples)
        };
        let metrics = |wanted, mode| samples(&[(config::GPU_METRICS, wanted), (config::MODE, mode)]);
        assert_eq!(metrics("off", "light"), None);
        assert_eq!(metrics("gauges", "light"), Some(false));
        assert_eq!(metrics("auto", "light"), Some(true));
        assert_eq!(metrics("on:500", "full"), Some(true));
        assert_eq!(metrics("on", "monitor"), Some(true));
        assert_eq!(metrics("gauges", "monitor"), Some(false));
        assert_eq!(metrics("off", "monitor"), Some(false), "utilization");
        let limited = [(config::GPU_METRICS, "off"), (config::MODE, "light"), (config::MAX_OVERHEAD, "2%")];
        assert_eq!(samples(&limited), Some(false), "utilization, once it has come down to mode monitor");
    }
}
