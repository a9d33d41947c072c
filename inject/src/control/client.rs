//! One connection: lines in, lines out, both bounded and nonblocking.
//!
//! A client that sends a line that is too long, or that does not read its responses, loses the connection. A
//! slow watcher first loses lines.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use crate::capture::plan::AtStep;
use crate::config::MAX_STEPS;

/// Maximum length of a command, bytes.
const MAX_LINE: usize = 256;
/// Maximum size of unread responses, bytes; a report has some thousands.
const MAX_OUTPUT: usize = 256 << 10;
/// Time without reads and writes after which a connection is closed.
const IDLE: Duration = Duration::from_secs(60);
/// Interval between two lines to a watcher: the default, and the minimum.
const WATCH: Duration = Duration::from_secs(1);
const FASTEST_WATCH: Duration = Duration::from_millis(100);
/// The state for live displays is larger and is made less often.
const FASTEST_LIVE: Duration = Duration::from_secs(1);

/// Command of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    /// Report the state.
    Status,
    /// Start a capture.
    Start,
    /// Start a capture at a step of the program.
    StartAtStep(AtStep),
    /// End the capture.
    Stop,
    /// End the capture, and let other tools use CUPTI until the next one.
    Release,
    /// Send the report up to now.
    Snapshot,
    /// Send metrics for monitoring systems.
    Metrics,
    /// Send the unfinished operations of communicators.
    Hang,
    /// Send a line per interval from now on.
    Watch(StatusLines),
    /// Any other text.
    Unknown,
}

/// Lines that are sent periodically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusLines {
    /// The bottleneck.
    Bottleneck,
    /// Everything that a live display shows.
    Live,
}

/// Subscription of a client.
#[derive(Clone, Copy, Debug)]
struct Watch {
    lines: StatusLines,
    interval: Duration,
    due: Instant,
}

/// One connection over any nonblocking stream.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    input: Vec<u8>,
    output: Vec<u8>,
    watch: Option<Watch>,
    active: Instant,
    closed: bool,
}

impl<S: Read + Write> Client<S> {
    /// Creates a connection.
    pub fn new(stream: S) -> Self {
        Self { stream, input: Vec::new(), output: Vec::new(), watch: None, active: Instant::now(), closed: false }
    }

    /// Underlying stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// True if output waits to be written.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Time at which the next line to a watcher is due.
    pub fn due(&self) -> Option<Instant> {
        self.watch.map(|watch| watch.due)
    }

    /// Returns the kind of line that is due; the next one is then scheduled from now.
    pub fn due_lines(&mut self, now: Instant) -> Option<StatusLines> {
        let watch = self.watch.as_mut().filter(|watch| watch.due <= now)?;
        watch.due = now + watch.interval;
        Some(watch.lines)
    }

    /// True if the connection is kept.
    pub fn is_alive(&self, now: Instant) -> bool {
        !self.closed && now.duration_since(self.active) < IDLE
    }

    /// Returns the next command if a complete line has arrived. Takes no command while responses wait to be
    /// read.
    pub fn command(&mut self) -> Option<ControlCommand> {
        if self.closed || self.has_output() {
            return None;
        }
        if !self.input.contains(&b'\n') {
            self.read();
        }
        let Some(end) = self.input.iter().position(|&byte| byte == b'\n') else {
            self.closed |= self.input.len() > MAX_LINE;
            return None;
        };
        let line: Vec<u8> = self.input.drain(..=end).collect();
        Some(self.parse(String::from_utf8_lossy(&line).trim()))
    }

    fn parse(&mut self, line: &str) -> ControlCommand {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "status" => ControlCommand::Status,
            "start" => ControlCommand::Start,
            "start-at-step" => at_step(rest).map_or(ControlCommand::Unknown, ControlCommand::StartAtStep),
            "stop" => ControlCommand::Stop,
            "release" => ControlCommand::Release,
            "snapshot" => ControlCommand::Snapshot,
            "metrics" => ControlCommand::Metrics,
            "hang" => ControlCommand::Hang,
            "watch" => self.watch(StatusLines::Bottleneck, rest, FASTEST_WATCH),
            "live" => self.watch(StatusLines::Live, rest, FASTEST_LIVE),
            _ => ControlCommand::Unknown,
        }
    }

    fn watch(&mut self, lines: StatusLines, wish: &str, fastest: Duration) -> ControlCommand {
        let wish = wish.trim().parse().map_or(WATCH, Duration::from_millis);
        let interval = wish.clamp(fastest, Duration::from_secs(3600));
        self.watch = Some(Watch { lines, interval, due: Instant::now() + interval });
        ControlCommand::Watch(lines)
    }

    /// Reads at most the length of a line, so that a flood waits in the kernel and not here.
    fn read(&mut self) {
        let mut piece = [0; MAX_LINE];
        match self.stream.read(&mut piece) {
            Ok(0) => self.closed = true,
            Ok(bytes) => {
                self.input.extend_from_slice(&piece[..bytes]);
                self.active = Instant::now();
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.closed = true,
        }
    }

    /// Appends a line to the output; drops it if too much is waiting.
    pub fn answer(&mut self, line: &str) {
        if self.output.len() + line.len() <= MAX_OUTPUT {
            self.output.extend_from_slice(line.as_bytes());
        }
    }

    /// Writes as much as the other side accepts.
    pub fn write(&mut self) {
        while self.has_output() && !self.closed {
            match self.stream.write(&self.output) {
                Ok(0) => self.closed = true,
                Ok(bytes) => {
                    self.output.drain(..bytes);
                    self.active = Instant::now();
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
                Err(_) => self.closed = true,
            }
        }
    }
}

/// Parses `FIRST` or `FIRST COUNT`.
fn at_step(text: &str) -> Option<AtStep> {
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok().filter(|&steps: &u64| steps <= MAX_STEPS));
    let (first, count) = (numbers.next()??, numbers.next());
    let count = match count {
        Some(count) => Some(count.filter(|&steps| steps > 0)?),
        None => None,
    };
    numbers.next().is_none().then_some(AtStep { first, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// A stream with some input, and room for a number of output bytes.
    struct Pipe {
        incoming: Vec<u8>,
        room: usize,
        written: usize,
    }

    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.incoming.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let bytes = buffer.len().min(self.incoming.len());
            buffer[..bytes].copy_from_slice(&self.incoming[..bytes]);
            self.incoming.drain(..bytes);
            Ok(bytes)
        }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.written += taken;
            if taken == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(incoming: &str, room: usize) -> Client<Pipe> {
        Client::new(Pipe { incoming: incoming.as_bytes().to_vec(), room, written: 0 })
    }

    #[test]
    fn lines_become_commands() {
        let mut client = client("status\nstart\r\n stop \nsnapshot\nwatch 5\nfly\nsta", 0);
        let commands: Vec<_> = std::iter::from_fn(|| client.command()).collect();
        use ControlCommand::{Snapshot, Start, Status, Stop, Unknown, Watch};
        assert_eq!(commands, [Status, Start, Stop, Snapshot, Watch(StatusLines::Bottleneck), Unknown]);
        assert_eq!(client.watch.unwrap().interval, FASTEST_WATCH, "no faster than that");
        assert!(client.is_alive(Instant::now()));
    }

    #[test]
    fn a_step_and_a_number_of_steps_are_read() {
        let wants = |text: &str| client(&format!("{text}\n"), 0).command().unwrap();
        let at = |first, count| ControlCommand::StartAtStep(AtStep { first, count });
        assert_eq!(wants("start-at-step 0"), at(0, None));
        assert_eq!(wants("start-at-step  1000 5 "), at(1000, Some(5)));
        for bad in ["", "x", "-1", "1 0", "1 x", "1 2 3", "99999999999999999999", "1099511627776", "1 1099511627776"] {
            assert_eq!(wants(&format!("start-at-step {bad}")), ControlCommand::Unknown, "{bad}");
        }
    }

    #[test]
    fn live_lines_come_once_a_second_at_most() {
        let mut client = client("live 5\n", 0);
        let before = Instant::now();
        assert_eq!(client.command(), Some(ControlCommand::Watch(StatusLines::Live)));
        let due = client.due().unwrap();
        assert!(due >= before + FASTEST_LIVE);
        assert_eq!(client.due_lines(due - Duration::from_nanos(1)), None, "one was the answer");
        assert_eq!(client.due_lines(due), Some(StatusLines::Live));
        assert_eq!(client.due(), Some(due + FASTEST_LIVE));
    }

    #[test]
    fn a_line_without_an_end_closes_the_connection_and_takes_no_memory() {
        let mut client = client(&"x".repeat(100_000), 0);
        for _ in 0..100 {
            assert_eq!(client.command(), None);
        }
        assert!(!client.is_alive(Instant::now()));
        assert!(client.input.len() <= 2 * MAX_LINE);
    }

    #[test]
    fn noise_is_taken_for_commands_at_most_and_is_gone_through_in_the_end() {
        let mut state = 1_u64;
        for _ in 0..200 {
            let bytes = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Every eighth byte ends a line; random bytes would hardly ever end one.
                if state >> 61 == 0 { b'\n' } else { (state >> 40) as u8 }
            });
            let noise: Vec<u8> = bytes.take(20_000).collect();
            let mut client = Client::new(Pipe { incoming: noise, room: 0, written: 0 });
            let mut access_lock = 0;
            while client.is_alive(Instant::now()) && !client.stream.incoming.is_empty() {
                client.command();
                access_lock += 1;
                assert!(access_lock <= 20_000 && client.input.len() <= 2 * MAX_LINE);
            }
        }
    }

    #[test]
    fn who_does_not_read_loses_lines_and_then_the_connection() {
        let mut client = client("watch 100\nstatus\n", 10);
        assert_eq!(client.command(), Some(ControlCommand::Watch(StatusLines::Bottleneck)));
        for _ in 0..10_000 {
            client.answer(&"y".repeat(1000));
            client.write();
        }
        assert_eq!((client.stream.written, client.has_output()), (10, true));
        assert!(client.output.len() <= MAX_OUTPUT);
        assert_eq!(client.command(), None, "no command before its answers are read");
        assert!(client.is_alive(Instant::now()) && !client.is_alive(Instant::now() + IDLE));
    }
}
