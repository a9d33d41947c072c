//! Messages between the threads of the library.

use std::path::PathBuf;
use std::time::Duration;

use crossbeam_channel::Sender;
use cupti_sys::CompletedBuffer;
use gpuwhy_report::run::Report;
use gpuwhy_trace::cost::Mode;
use gpuwhy_trace::counters::CounterEvent;
use gpuwhy_trace::json_text::Object;
use gpuwhy_trace::kernels::KernelProfile;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::{CaptureMark, Timestamp};
use gpuwhy_trace::utilization::UtilizationReading;

use super::samples::SampleBatch;
use crate::routing::session_trace::SessionTrace;

/// Message to the collector.
#[derive(Debug)]
pub enum Message {
    /// A buffer with records.
    Buffer(CompletedBuffer),
    /// Host samples since the last flush.
    Samples(SampleBatch),
    /// Utilization of a device while the program is only watched.
    Utilization(UtilizationReading),
    /// Samples of GPU counters and NVML readings, in the order of time for each device.
    Counters(Vec<CounterEvent>),
    /// Result of measuring a kernel.
    KernelProfile(Box<KernelProfile>),
    /// A CUDA graph has been instantiated.
    Graph {
        /// Id in its records.
        id: u32,
        nodes: u32,
    },
    /// More ranges of the program than usual wait to be fetched.
    Ranges,
    /// Everything that was complete before this time has been delivered.
    Flushed {
        /// That time; not later than the previous one while CUPTI keeps records back.
        before: Timestamp,
        /// Number of records dropped since the start, as reported by CUPTI.
        dropped_by_cupti: u64,
    },
    /// Recording is off; other events continue.
    Idle,
    /// A client of the control socket requests the state.
    Question(Question),
    /// A capture starts, or its range ends.
    Capture(CaptureMark),
    /// The program starts or ends a session, or requests its data up to now.
    Session(SessionCommand),
    /// The last message.
    Finish {
        at: Timestamp,
        /// Shows whether everything was delivered.
        end: End,
        /// Number of records dropped since the start, as reported by CUPTI.
        dropped_by_cupti: u64,
    },
}

/// Command to the flushing thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlusherCommand {
    /// Flush before the period is over: a capture ended, or many records have arrived.
    FlushNow,
    /// Record less because tracing costs too much.
    LowerMode(Mode),
    /// Record the nodes of CUDA graphs because they cost little.
    RecordNodes,
    /// Record page faults, because the program has allocated managed memory.
    RecordFaults,
    /// Flush once more, forced, because the program ends.
    Finish,
    /// Stop measuring while the program continues: as [`Finish`](Self::Finish), after switching everything
    /// off.
    ShutDown,
}

/// State of the run as the collector knows it.
#[derive(Clone, Debug, Default)]
pub struct StatusSummary {
    /// Name of the bottleneck, and its share from 0 to 1.
    pub bottleneck: (&'static str, f64),
    /// The live line.
    pub line: String,
    /// The short report.
    pub summary: String,
    /// Number of kernels in the capture that the report covers.
    pub kernels: u64,
    /// Number of lost records and range events.
    pub lost: u64,
    /// Rank in the job, if a launcher set it.
    pub rank: Option<u32>,
    /// Name of the run, if it has one.
    pub run: Option<String>,
    /// Host name.
    pub host: String,
    /// Path of the trace file, once it exists.
    pub trace: Option<PathBuf>,
    /// Data for a live display, or metrics for monitoring systems, if requested.
    pub live: Option<LiveState>,
    /// Unfinished operations of communicators, if requested.
    pub hang: Option<Object>,
}

/// Data for a live display or a monitoring system.
#[derive(Clone, Debug)]
pub struct LiveState {
    /// Fields from the records.
    pub fields: Object,
    /// CPU time of the collector for making it.
    pub cost: Duration,
}

/// Level of detail of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// State and bottleneck.
    Status,
    /// The same with the short report.
    Summary,
    /// The same as [`Status`](Self::Status), with the data for a live display.
    Live,
    /// Only the metrics for monitoring systems.
    Metrics,
    /// The same as [`Status`](Self::Status), with the unfinished operations of communicators.
    Hang,
}

/// Request from the control thread to the collector.
#[derive(Debug)]
pub struct Question {
    /// Level of detail.
    pub detail: Detail,
    /// Receives the response.
    pub reply: Sender<StatusSummary>,
}

impl Question {
    /// Sends the response. The receiver may have stopped waiting.
    pub fn answer(self, answer: StatusSummary) {
        let _ = self.reply.try_send(answer);
    }
}

/// Request of a program for its session, on the way to the collector.
#[derive(Debug)]
pub enum SessionCommand {
    /// Starts a session, and replies once all further events are taken.
    Begin(Box<SessionTrace>, Sender<()>),
    /// Replies once everything that was complete at this time is in the file.
    Flush(Timestamp, Sender<()>),
    /// Ends it as of this time, and replies once the file is complete.
    End(Timestamp, Sender<Result<(), String>>),
}

#[derive(Debug)]
pub struct RunOutcome {
    pub report: Report,
    /// Path of the trace file, if one was written.
    pub trace: Option<PathBuf>,
    /// Final metrics for monitoring systems.
    pub metrics: Object,
    /// Message in place of the report, if no capture started.
    pub captured_nothing: Option<String>,
}
