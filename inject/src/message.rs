//! What the threads of the library tell each other, and what they share.
//!
//! Types that do next to nothing: whoever sends and whoever receives imports this file, and neither the other.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;
use cupti_sys::{CompletedBuffer, RecordSizes};
use gpuwhy_report::run::Report;
use gpuwhy_trace::cost::Mode;
use gpuwhy_trace::counters::CounterEvent;
use gpuwhy_trace::json_text::Object;
use gpuwhy_trace::kernels::KernelProfile;
#[cfg(feature = "pc-sampling")]
use gpuwhy_trace::kernels::PcWindow;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::{CaptureMark, Timestamp};
use gpuwhy_trace::utilization::UtilizationReading;

use crate::collect::session_trace::SessionTrace;
use crate::cost::CallbackTimer;
use crate::counters::stop::Stop;
use crate::cupti::pool::{FlushBacklog, Pool};
use crate::sampler::launchers::Launchers;
use crate::sampler::queue::{SampleBatch, SampleQueue};

/// What travels to the collector.
#[derive(Debug)]
pub enum Message {
    /// A buffer with records.
    Buffer(CompletedBuffer),
    /// What the sampler saw since the last flush.
    Samples(SampleBatch),
    /// How busy a device was, while the program is only watched.
    Utilization(UtilizationReading),
    /// Samples of hardware counters and readings of gauges, those of each device in the order of their times.
    Counters(Vec<CounterEvent>),
    /// What measuring a kernel came to.
    KernelProfile(Box<KernelProfile>),
    /// What sampling the program counters of a device came to.
    #[cfg(feature = "pc-sampling")]
    ProgramCounters(Box<SampledWindow>),
    /// A CUDA graph is ready to run.
    Graph {
        /// What its records call it.
        id: u32,
        nodes: u32,
    },
    /// Ranges of the program wait to be fetched, more than usual.
    Ranges,
    /// Everything that was complete before this time has been delivered.
    Flushed {
        /// That time; not later than the one before while CUPTI keeps something back.
        before: Timestamp,
        /// Records that CUPTI says it dropped, since the start.
        dropped_by_cupti: u64,
    },
    /// Nothing is recorded just now; what else there is goes on.
    Idle,
    /// Somebody outside asks how things are.
    Question(Question),
    /// A capture begins, or its range ends.
    Capture(CaptureMark),
    /// The program begins or ends a session, or wants to see what there is of it.
    Session(SessionCommand),
    /// The last one.
    Finish {
        at: Timestamp,
        /// Whether everything was delivered.
        end: End,
        /// Records that CUPTI says it dropped, since the start.
        dropped_by_cupti: u64,
    },
}

/// Program counters of a device, and the modules in which they are, by their checksums.
#[cfg(feature = "pc-sampling")]
#[derive(Debug)]
pub struct SampledWindow {
    pub window: PcWindow,
    pub modules: Vec<(u64, Vec<u8>)>,
}

/// What the threads of the library and the callbacks share.
#[derive(Debug)]
pub struct Shared {
    /// Where buffers come from.
    pub pool: Pool,
    /// Where they go.
    pub messages: Sender<Message>,
    /// Record sizes of the loaded CUPTI.
    pub sizes: RecordSizes,
    /// Bytes of records in buffers of another profiler that came to us since this was last read. `Relaxed`: a
    /// statistic.
    pub foreign_bytes: AtomicU64,
    /// Records thrown away here. `Relaxed`: a statistic that orders nothing.
    pub dropped: AtomicU64,
    /// Buffers that went to another tool. `Relaxed`: a statistic.
    pub undelivered: AtomicU64,
    /// Whether a buffer has come. `Relaxed`: seen a moment later it is as good.
    pub delivered: AtomicBool,
    /// Records that have come since the last flush.
    pub unflushed: FlushBacklog,
    /// The kernel's id of the flushing thread, whose calls are none of the program's; 0 before there is one. `Relaxed`:
    /// set before its first call.
    pub flusher: AtomicU32,
    /// What tracing takes.
    pub meters: CallbackTimer,
    /// Which threads the sampler reads.
    pub launchers: Launchers,
    /// What it saw.
    pub sample_queue: SampleQueue,
    /// The end of the thread that reads counters.
    pub counters: Stop,
}

impl Shared {
    /// Nothing has been recorded yet.
    pub fn new(pool: Pool, messages: Sender<Message>, sizes: RecordSizes) -> Self {
        Self {
            pool,
            messages,
            sizes,
            foreign_bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            delivered: AtomicBool::new(false),
            unflushed: FlushBacklog::default(),
            flusher: AtomicU32::new(0),
            meters: CallbackTimer::default(),
            launchers: Launchers::new(),
            sample_queue: SampleQueue::default(),
            counters: Stop::default(),
        }
    }

    /// Whether a buffer has come.
    pub fn has_delivered(&self) -> bool {
        self.delivered.load(Ordering::Relaxed)
    }

    pub fn set_flusher(&self, thread: u32) {
        self.flusher.store(thread, Ordering::Relaxed);
    }

    /// So many buffers will not come back.
    pub fn give_up(&self, buffers: usize) {
        self.undelivered.fetch_add(buffers as u64, Ordering::Relaxed);
        self.pool.forget(buffers);
    }
}

/// What the flushing thread is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlusherCommand {
    /// Flush before the period is over: a capture ended, or many records have come.
    FlushNow,
    /// Tracing takes too much: record less.
    LowerMode(Mode),
    /// Nodes of CUDA graphs cost little: record them.
    RecordNodes,
    /// The program ends: flush once more, with force.
    Finish,
    /// Measuring ends and the program goes on: as [`Finish`](Self::Finish), with everything switched off first.
    ShutDown,
}

/// What the collector knows.
#[derive(Clone, Debug, Default)]
pub struct StatusSummary {
    /// Name of the verdict, and its share from 0 to 1.
    pub verdict: (&'static str, f64),
    /// The live line.
    pub line: String,
    /// The short report.
    pub summary: String,
    /// Kernels of the capture that the report is about.
    pub kernels: u64,
    /// Records and range events that were lost.
    pub lost: u64,
    /// The rank in the job, where a launcher said so.
    pub rank: Option<u32>,
    /// What names the run, where something does.
    pub run: Option<String>,
    /// Host name.
    pub host: String,
    /// The trace file, once there is one.
    pub trace: Option<PathBuf>,
    /// What a live display shows, or the numbers for monitoring systems, if they were asked for.
    pub live: Option<LiveState>,
    /// What was queued in communicators and is not finished, if it was asked for.
    pub hang: Option<Object>,
}

/// What a live display or a monitoring system shows.
#[derive(Clone, Debug)]
pub struct LiveState {
    /// The fields that come from the records.
    pub fields: Object,
    /// Processor time of the collector that making it took.
    pub cost: Duration,
}

/// How much somebody outside wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// State and verdict.
    Status,
    /// The same with the short report.
    Summary,
    /// The same as [`Status`](Self::Status), with what a live display shows.
    Live,
    /// The numbers for monitoring systems, and nothing else.
    Metrics,
    /// The same as [`Status`](Self::Status), with what was queued in communicators and is not finished.
    Hang,
}

/// What the control thread asks the collector.
#[derive(Debug)]
pub struct Question {
    /// How much.
    pub detail: Detail,
    /// Where the answer goes.
    pub reply: Sender<StatusSummary>,
}

impl Question {
    /// Answers it. Nobody may be waiting any more.
    pub fn answer(self, answer: StatusSummary) {
        let _ = self.reply.try_send(answer);
    }
}

/// What a program asks of its session, on the way to the collector.
#[derive(Debug)]
pub enum SessionCommand {
    /// Begins one, and answers when whatever comes next is seen.
    Begin(Box<SessionTrace>, Sender<()>),
    /// Answers when everything that was complete at this time is in the file.
    Flush(Timestamp, Sender<()>),
    /// Ends it as of this time, and answers when the file is complete.
    End(Timestamp, Sender<Result<(), String>>),
}

#[derive(Debug)]
pub struct RunOutcome {
    pub report: Report,
    /// The trace file, if one was written.
    pub trace: Option<PathBuf>,
    /// The last numbers for monitoring systems.
    pub metrics: Object,
    /// No capture began, so the report is about nothing: what is said in its place.
    pub captured_nothing: Option<String>,
}
