//! Live control: a Unix socket on which this user's other processes can query, start and stop.
//!
//! One thread serves all clients and never waits for one: lines and responses are bounded, a client that does
//! not read loses lines and then its connection, and at most eight clients can connect. It queries the
//! collector by message and waits a bounded time for the response. The protocol is docs/guide/control.md; the
//! location of the socket is [`address`]. No CUDA call reaches this code.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{io, process, thread};

use crossbeam_channel::bounded;
use gpuwhy_report::state::Status;
use gpuwhy_trace::json_text::Object;
use host_sampler::own::{Identity, Own};

use crate::capture::controller::CaptureController;
use crate::capture::plan::{AtStep, AtStepAnswer, CaptureEvent};
use crate::command_line;
use crate::control::address::{self, SocketFile};
use crate::control::client::{Client, ControlCommand, StatusLines};
use crate::control::last_numbers;
use crate::runtime::Profiler;
use crate::shared::{Detail, LiveState, Message, Question, StatusSummary};
use crate::sys::{descriptors, sockets};

/// Maximum number of connections; further ones are closed at once.
const MAX_CLIENTS: usize = 8;
/// The thread checks at least this often whether the process has forked off or measuring is over.
const TICK: Duration = Duration::from_millis(500);
/// Maximum wait for the collector's response; it is late only if the collector has a large backlog.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between two checks whether this library has started.
const STARTING: Duration = Duration::from_millis(1);
/// Time without accepting connections after a failure: without a free descriptor, the connection would remain
/// pending and fail again at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Minimum interval between two states for live displays, and between two sets of metrics, for any number of
/// clients.
const LIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Reciprocal of the share of a core that making them may take: 0.2 %.
const LIVE_COST_PARTS: u32 = 500;

/// Why a command starts no capture.
const ENDED_FOR_GRAPHS: &str = "the program makes CUDA graphs, and switching recording on again can crash it";

/// Socket file of this process.
struct Socket {
    place: SocketFile,
    /// Process that created it.
    owner: u32,
    /// Its descriptor, and the identity of the file that it must refer to.
    descriptor: Option<(RawFd, Identity)>,
}

static SOCKET: OnceLock<Socket> = OnceLock::new();
/// Metrics at the end of measuring.
static LAST_NUMBERS: OnceLock<Object> = OnceLock::new();

/// The listening end.
#[derive(Debug)]
pub struct Control {
    listener: Own<UnixListener>,
}

impl Control {
    /// Opens the socket of this process. Fails if no folder can be exclusive to this user, or if the system
    /// refuses.
    pub fn open() -> io::Result<Self> {
        let (listener, place) = address::listen(address::user(), process::id())?;
        let listener = Own::new(listener, descriptors::identity_of)?;
        listener.get()?.set_nonblocking(true)?;
        let _ = SOCKET.set(Socket { place, owner: process::id(), descriptor: listener.descriptor() });
        Ok(Self { listener })
    }

    /// Serves clients until the process ends or closes the socket.
    pub fn run(self, controller: &CaptureController) {
        let mut clients: Vec<Client<Own<UnixStream>>> = Vec::new();
        let mut handler = CommandHandler::new(controller);
        let mut listens_from = Instant::now();
        // Until then measuring is off, which a client would take for its end.
        while Profiler::is_starting() {
            thread::sleep(STARTING);
        }
        while let Ok(listener) = self.listener.get() {
            let now = Instant::now();
            let readable = wait(&clients, Some(listener).filter(|_| now >= listens_from), now);
            // Checked again after the long wait.
            if readable && self.listener.get().and_then(|listener| accept(listener, &mut clients)).is_err() {
                listens_from = Instant::now() + PAUSE;
            }
            let now = Instant::now();
            for client in &mut clients {
                while let Some(command) = client.command() {
                    let answer = handler.answer(command);
                    client.answer(&answer);
                }
                match client.due_lines(now) {
                    Some(StatusLines::Bottleneck) => client.answer(&handler.state("bottleneck")),
                    Some(StatusLines::Live) => client.answer(handler.live(now)),
                    None => {}
                }
                client.write();
            }
            clients.retain(|client| client.is_alive(now));
        }
        tracing::info!("live control has ended: the program closed the control socket");
        close();
    }
}

/// Waits until a client has sent data or accepts more, or a line to one is due. Returns true if a connection
/// may be pending and `listener` is given.
fn wait(clients: &[Client<Own<UnixStream>>], listener: Option<&UnixListener>, now: Instant) -> bool {
    // A client whose descriptor is gone is detected when it is read.
    let open = |client: &Client<Own<UnixStream>>| Some((client.stream().get().ok()?.as_raw_fd(), client.has_output()));
    let mut ends: Vec<_> = clients.iter().filter_map(open).collect();
    ends.extend(listener.map(|listener| (listener.as_raw_fd(), false)));
    let due = clients.iter().filter_map(Client::due).min();
    let wait = due.map_or(TICK, |due| due.saturating_duration_since(now).min(TICK));
    sockets::wait_for_sockets(&ends, wait) && listener.is_some()
}

fn accept(listener: &UnixListener, clients: &mut Vec<Client<Own<UnixStream>>>) -> io::Result<()> {
    // Bounded: a flood of connections must not starve the existing clients.
    for _ in 0..MAX_CLIENTS {
        let stream = match listener.accept() {
            Ok((stream, _)) => Own::new(stream, descriptors::identity_of)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let peer = stream.get()?;
        let welcome = sockets::peer_user_id(peer) == Some(sockets::user_id())
            && clients.len() < MAX_CLIENTS
            && peer.set_nonblocking(true).is_ok();
        if welcome {
            clients.push(Client::new(stream));
        }
    }
    Ok(())
}

/// Removes the socket file, in the process that made it.
pub fn close() {
    if let Some(socket) = SOCKET.get()
        && socket.owner == process::id()
    {
        socket.place.remove();
    }
}

/// Keeps the metrics at the end of measuring: the program may continue, and an exporter may request them.
pub fn keep_last_numbers(numbers: Object) {
    let _ = LAST_NUMBERS.set(numbers);
}

/// At the end of the process: writes its last metrics for an exporter, if one has announced itself.
pub fn leave_last_numbers() {
    let Some(numbers) = LAST_NUMBERS.get() else { return };
    let Some(socket) = SOCKET.get().filter(|socket| socket.owner == process::id()) else { return };
    let line = Object::of_type("metrics").field("pid", process::id()).field("state", "ended").with(numbers);
    match last_numbers::leave(socket.place.path(), &line.end()) {
        Ok(left) => tracing::debug!("last numbers for an exporter: {left}"),
        Err(error) => tracing::warn!("the last numbers cannot be left for the exporter: {error}"),
    }
}

/// In the child of a fork: closes the socket, which would look alive after the parent's death.
pub fn forked() {
    if let Some(socket) = SOCKET.get()
        && socket.owner != process::id()
        && let Some((descriptor, identity)) = socket.descriptor
    {
        descriptors::close_inherited(descriptor, identity);
    }
}

struct CommandHandler<'a> {
    controller: &'a CaptureController,
    /// Last response of the collector, used once the collector has ended.
    last: StatusSummary,
    command: String,
    /// Newest state for live displays, and the time at which the next one may be made.
    live: Option<(String, Instant)>,
    /// The same for metrics.
    numbers: Option<(String, Instant)>,
}

impl<'a> CommandHandler<'a> {
    fn new(controller: &'a CaptureController) -> Self {
        Self { controller, last: StatusSummary::default(), command: shown_command(), live: None, numbers: None }
    }

    fn answer(&mut self, command: ControlCommand) -> String {
        match command {
            ControlCommand::Status => self.state("status"),
            ControlCommand::Watch(StatusLines::Bottleneck) => self.state("bottleneck"),
            ControlCommand::Watch(StatusLines::Live) => self.live(Instant::now()).to_owned(),
            ControlCommand::Metrics => self.metrics(Instant::now()).to_owned(),
            ControlCommand::Snapshot => {
                self.ask(Detail::Summary);
                let trace = self.last.trace.as_deref().map(Path::to_string_lossy);
                Object::of_type("snapshot")
                    .field("text", &self.last.summary)
                    .field("trace", trace.as_deref())
                    .end()
            }
            ControlCommand::Hang => {
                self.last.hang = None;
                self.ask(Detail::Hang);
                let answer = Object::of_type("hang").field("pid", process::id()).field("state", self.phase());
                // If the collector does not respond in time, the missing rank indicates that.
                self.last.hang.take().map_or(answer.clone(), |fields| answer.with(&fields)).end()
            }
            ControlCommand::Start => self.switch(CaptureEvent::CommandStart),
            ControlCommand::StartAtStep(wanted) => self.start_at_step(wanted),
            ControlCommand::Stop => self.switch(CaptureEvent::CommandStop),
            ControlCommand::Release => {
                self.controller.switch.ownership().set_yields(true);
                self.switch(CaptureEvent::CommandStop)
            }
            ControlCommand::Unknown => Object::of_type("error")
                .field(
                    "message",
                    "commands: status, start, start-at-step STEP [STEPS], stop, release, snapshot, hang, metrics, watch [MILLISECONDS], live [MILLISECONDS]",
                )
                .end(),
        }
    }

    fn start_at_step(&mut self, wanted: AtStep) -> String {
        let answer = if Profiler::is_measuring() { self.controller.start_at_step(wanted) } else { AtStepAnswer::Busy };
        tracing::debug!("{wanted:?} from outside: {answer:?}");
        self.live = None;
        let text = match answer {
            AtStepAnswer::Waits => "waits",
            AtStepAnswer::Past => "past",
            AtStepAnswer::NotCounted => "not_counted",
            AtStepAnswer::Busy => "busy",
        };
        // For the rank, which tells an operator more than the process id.
        self.ask(Detail::Status);
        self.switched(answer == AtStepAnswer::Waits).field("answer", text).field("rank", self.last.rank).end()
    }

    /// Response to a command that changes the state.
    fn switched(&self, changed: bool) -> Object {
        let (steps, awaited) = self.controller.steps();
        Object::of_type("ok")
            .field("changed", changed)
            .field("state", self.phase())
            .field("captures", self.controller.captures())
            .field("steps", steps)
            .field("starts_at_step", awaited)
    }

    fn switch(&mut self, event: CaptureEvent) -> String {
        let (_, awaited) = self.controller.steps();
        let changed = Profiler::is_measuring() && self.controller.event(event);
        if changed {
            // The client sees the change at once. Captures cost more than making a state.
            self.live = None;
        }
        tracing::debug!("{event:?} from outside: changed {changed}");
        let canceled = event == CaptureEvent::CommandStop && awaited.is_some() && self.controller.steps().1.is_none();
        let refused = event == CaptureEvent::CommandStart
            && self.controller.ended_for_graphs()
            && !self.controller.is_capturing()
            && Profiler::is_measuring();
        self.switched(changed).field("canceled", canceled).field("refused", refused.then_some(ENDED_FOR_GRAPHS)).end()
    }

    fn state(&mut self, kind: &str) -> String {
        self.ask(Detail::Status);
        let StatusSummary { host, run, rank, .. } = &self.last;
        let fields = self.fields(kind).field("steps", self.controller.steps().0);
        fields.field("host", host).field("run", run).field("rank", *rank).end()
    }

    /// State for live displays: the newest one, or a new one if it is due.
    fn live(&mut self, now: Instant) -> &str {
        let line = match self.live.take() {
            Some((line, due)) if now < due => (line, due),
            _ => {
                self.ask(Detail::Live);
                let live = self.last.live.take();
                let cost = live.as_ref().map_or(Duration::ZERO, |live| live.cost);
                let pause = LIVE_INTERVAL.max(cost * LIVE_COST_PARTS);
                let fields = self.fields("live").field("pause_ms", pause.as_millis() as u64);
                let fields = fields.field("cost_ns", cost.as_nanos() as u64);
                let line = live.map_or(fields.clone(), |live| fields.with(&live.fields)).end();
                (line, now + pause)
            }
        };
        &self.live.insert(line).0
    }

    /// Metrics for monitoring systems: the newest ones, or new ones if they are due.
    fn metrics(&mut self, now: Instant) -> &str {
        let line = match self.numbers.take() {
            Some((line, due)) if now < due => (line, due),
            last => {
                let made = match LAST_NUMBERS.get() {
                    Some(fields) => Some(LiveState { fields: fields.clone(), cost: Duration::ZERO }),
                    None => self.reply(Detail::Metrics).and_then(|answer| answer.live),
                };
                match (made, last) {
                    (None, Some((line, _))) => (line, now + LIVE_INTERVAL),
                    (made, _) => self.numbers_line(made, now),
                }
            }
        };
        &self.numbers.insert(line).0
    }

    fn numbers_line(&self, made: Option<LiveState>, now: Instant) -> (String, Instant) {
        let cost = made.as_ref().map_or(Duration::ZERO, |made| made.cost);
        let pause = LIVE_INTERVAL.max(cost * LIVE_COST_PARTS);
        let fields = Object::of_type("metrics")
            .field("pid", process::id())
            .field("state", self.phase())
            .field("captures", self.controller.captures())
            .field("unobserved_ns", self.controller.unobserved())
            .field("pause_ms", pause.as_millis() as u64)
            .field("cost_ns", cost.as_nanos() as u64);
        (made.map_or(fields.clone(), |made| fields.with(&made.fields)).end(), now + pause)
    }

    /// Fields that all states have.
    fn fields(&self, kind: &str) -> Object {
        let StatusSummary { bottleneck: (bottleneck, share), line, kernels, lost, trace, .. } = &self.last;
        let (steps_begun, starts_at_step) = self.controller.steps();
        let status = Status {
            pid: process::id().into(),
            command: self.command.clone(),
            state: self.phase().to_owned(),
            captures: self.controller.captures().into(),
            steps_begun,
            starts_at_step,
            bottleneck: (*bottleneck).to_owned(),
            share: *share,
            line: line.clone(),
            kernels: *kernels,
            lost: *lost,
            unobserved_ns: self.controller.unobserved(),
            holds_cupti: self.controller.holds_slot(),
            trace: trace.as_deref().map(|path| path.to_string_lossy().into_owned()),
        };
        Object::of_type(kind).with(&status.object())
    }

    fn phase(&self) -> &'static str {
        match () {
            () if !Profiler::is_measuring() => "finished",
            () if self.controller.is_capturing() => "capturing",
            // Between bursts and after them.
            () if self.controller.has_bursts() => "watching",
            () => "waiting",
        }
    }

    /// Queries the collector, if there is one that responds in time.
    fn ask(&mut self, detail: Detail) {
        if let Some(answer) = self.reply(detail) {
            self.last = answer;
        }
    }

    fn reply(&self, detail: Detail) -> Option<StatusSummary> {
        let (reply, answer) = bounded(1);
        let question = Message::Question(Question { detail, reply });
        let asked = Profiler::running().is_some_and(|profiler| profiler.shared().messages.try_send(question).is_ok());
        if asked { answer.recv_timeout(ANSWER_TIMEOUT).ok() } else { None }
    }
}

fn shown_command() -> String {
    command_line::words().join(" ").chars().take(200).collect()
}
