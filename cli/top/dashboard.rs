//! State of the display and its changes by keys: a state machine without a terminal.

use std::collections::BTreeMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::answer::StatusReply;
use super::process::{Presence, ProcessKey, ProcessTable, ProcessView};
use gpuwhy_report::state::sanitized;

/// Protocol command for the report up to now.
pub const REPORT: &str = "snapshot";
/// Maximum number of ended processes that are still shown.
const ENDED_KEPT: usize = 64;
/// Lines to scroll an overlay by per page.
const SCROLL: usize = 10;

/// Update from a source.
#[derive(Debug)]
pub enum Update {
    Answer(ProcessKey, Box<StatusReply>),
    /// A process does not respond; with the reason.
    Silent(ProcessKey, String),
    /// A process has ended.
    Ended(ProcessKey),
    /// A host cannot be reached; with the reason.
    Unreachable(String, String),
    /// A host responds.
    Reached(String),
    /// Message for the user.
    Note(String),
    /// Result of an action: one line.
    Done(String),
    /// Result of an action: many lines with a title.
    Page(String, String),
    /// Progress of a playback: its time and the length of the run, nanoseconds.
    Played(u64, u64),
}

/// Action of a key outside of the display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    /// Sends a protocol command to a process.
    Tell(ProcessKey, &'static str),
    /// Writes the page of a process's trace.
    Page(ProcessKey, String),
    /// Pauses or resumes the display and a playback.
    Pause(bool),
}

/// Text on top of the display.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    pub title: String,
    pub lines: Vec<String>,
    /// First line that is shown.
    pub top: usize,
}

/// State of the display, see the [module](self).
#[derive(Debug, Default)]
pub struct Dashboard {
    /// Name of the source, for the title.
    pub source: String,
    /// True if a trace is played back.
    pub playback: bool,
    pub played: Option<(u64, u64)>,
    processes: BTreeMap<ProcessKey, ProcessView>,
    selected: Option<ProcessKey>,
    pub table: ProcessTable,
    /// Index of the device that is shown, within the process.
    device: usize,
    pub filter: String,
    /// True if keys edit the filter.
    pub filtering: bool,
    pub paused: bool,
    pub overlay: Option<Overlay>,
    pub message: Option<String>,
    /// Hosts that cannot be reached, with reasons.
    unreachable: BTreeMap<String, String>,
}

const HELP: &str = "\
up, down, j, k    choose a process
tab               kernels, lines or ranges, where there is room for one table
g                 the next GPU of the process
s                 start or stop the capture of the process
n                 the report of the process so far
h                 write the HTML page of its trace
/                 show only processes whose command, host or id holds a text; Esc shows all
p, space          pause the display, or the playback
q, Ctrl-C         quit; the processes go on

D  data loading: the GPU waits for the next batch     H  other CPU work between launches
C  copying memory                                     L  waiting for the next launch
G  computing                                          S  idle after a synchronization
X  communicating with other GPUs                      A  memory is allocated or freed
K  building or loading kernels                        O  another process uses the GPU
-  no work                                            ?  the records do not say

STEP is the median. BEST is the best case: how many times as fast the program could become without
the bottleneck. COST is by how much recording slows the launching threads down at most. LOST counts
records and range events that were dropped. `gpuwhy report --explain WORD` explains the rest.";

impl Dashboard {
    /// Creates an empty dashboard.
    pub fn new(source: String, playback: bool) -> Self {
        Self { source, playback, ..Self::default() }
    }

    /// Applies an update from a source.
    pub fn take(&mut self, update: Update) {
        match update {
            // A paused playback sends no updates; live updates are shown again after the pause.
            Update::Answer(key, _) if self.paused && self.processes.contains_key(&key) => {}
            Update::Answer(key, answer) => {
                let process = self.processes.entry(key.clone()).or_insert_with(|| ProcessView::new(key));
                process.take(*answer);
            }
            Update::Silent(key, why) => {
                let process = self.processes.entry(key.clone()).or_insert_with(|| ProcessView::new(key));
                process.presence = Presence::Silent(sanitized(&why));
            }
            Update::Ended(key) => {
                if let Some(process) = self.processes.get_mut(&key) {
                    process.presence = Presence::Ended;
                }
                self.forget_ended();
            }
            Update::Unreachable(host, why) => {
                let of_host = self.processes.values_mut().filter(|process| process.key.host == host);
                for process in of_host.filter(|process| process.presence == Presence::Here) {
                    process.presence = Presence::Silent("its host cannot be reached".to_owned());
                }
                self.unreachable.insert(host, sanitized(&why));
            }
            Update::Reached(host) => {
                self.unreachable.remove(&host);
            }
            Update::Note(text) | Update::Done(text) => self.message = Some(sanitized(&text)),
            Update::Page(title, text) => {
                let lines = text.lines().map(sanitized).collect();
                self.overlay = Some(Overlay { title: sanitized(&title), lines, top: 0 });
            }
            Update::Played(at, of) => self.played = Some((at, of)),
        }
        if self.selected.is_none() {
            self.choose_first();
        }
    }

    /// Drops all but the newest ended processes; process ids approximate the order.
    fn forget_ended(&mut self) {
        let ended = |process: &&ProcessView| process.presence == Presence::Ended;
        let surplus = self.processes.values().filter(ended).count().saturating_sub(ENDED_KEPT);
        let chosen = self.selected.clone();
        let old: Vec<_> = self.processes.values().filter(ended).map(|process| process.key.clone()).collect();
        for key in old.into_iter().filter(|key| Some(key) != chosen.as_ref()).take(surplus) {
            self.processes.remove(&key);
        }
    }

    /// Processes that pass the filter, by run and rank, so that those of a job stay together. Processes
    /// without a run come last, by host.
    pub fn visible(&self) -> Vec<&ProcessView> {
        let wanted = self.filter.to_lowercase();
        let mut processes: Vec<_> = self
            .processes
            .values()
            .filter(|process| {
                let named = format!("{} {}", process.key, process.status.command).to_lowercase();
                wanted.is_empty() || named.contains(&wanted)
            })
            .collect();
        processes.sort_by_cached_key(|process| {
            let (run, rank) = process.live.as_ref().map_or((None, None), |live| (live.run.clone(), live.rank));
            let host = process.key.host.clone();
            let place = run.filter(|run| !run.is_empty()).map_or_else(|| (true, host.clone()), |run| (false, run));
            let id = process.key.process.split('-').next().and_then(|id| id.parse::<u64>().ok());
            (place, rank, host, id, process.key.process.clone())
        });
        processes
    }

    /// True if there is no process, shown or hidden.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    pub fn chosen(&self) -> Option<&ProcessView> {
        self.visible().into_iter().find(|process| Some(&process.key) == self.selected.as_ref())
    }

    /// Index of the device that is shown, in the process's list of devices.
    pub fn device(&self, process: &ProcessView) -> usize {
        let devices = process.live.as_ref().map_or(0, |live| live.devices.len());
        if devices == 0 { 0 } else { self.device % devices }
    }

    /// Hosts that cannot be reached, with reasons.
    pub fn unreachable(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unreachable.iter().map(|(host, why)| (host.as_str(), why.as_str()))
    }

    pub fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(Action::Quit);
        }
        if self.overlay.is_some() {
            return self.overlay_key(key.code);
        }
        if self.filtering {
            self.filter_key(key.code);
            return None;
        }
        self.message = None;
        match key.code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::PageUp => self.choose(-(SCROLL as isize)),
            KeyCode::PageDown => self.choose(SCROLL as isize),
            KeyCode::Tab => {
                self.table = match self.table {
                    ProcessTable::Kernels => ProcessTable::Lines,
                    ProcessTable::Lines => ProcessTable::Ranges,
                    ProcessTable::Ranges => ProcessTable::Kernels,
                }
            }
            KeyCode::Char('g') => self.device = self.device.wrapping_add(1),
            KeyCode::Char('/') => self.filtering = true,
            KeyCode::Esc => self.set_filter(String::new()),
            KeyCode::Char('?') => {
                let lines = HELP.lines().map(str::to_owned).collect();
                self.overlay = Some(Overlay { title: "Keys and letters".to_owned(), lines, top: 0 });
            }
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                return Some(Action::Pause(self.paused));
            }
            KeyCode::Char('s' | 'n' | 'h') => return self.ask(key.code),
            _ => {}
        }
        None
    }

    /// Action of a key on the chosen process.
    fn ask(&mut self, key: KeyCode) -> Option<Action> {
        let (answer, message) = match self.chosen() {
            None => (None, "no process is chosen".to_owned()),
            Some(process) => {
                let gone = process.presence == Presence::Ended || self.playback;
                let trace = process.status.trace.clone();
                match (key, trace) {
                    (KeyCode::Char('h'), Some(trace)) => {
                        (Some(Action::Page(process.key.clone(), trace)), "writing the page".to_owned())
                    }
                    (KeyCode::Char('h'), None) => (None, "this process has no trace yet".to_owned()),
                    _ if self.playback => (None, "a trace takes no commands".to_owned()),
                    _ if gone => (None, "this process has ended".to_owned()),
                    (KeyCode::Char('n'), _) => {
                        (Some(Action::Tell(process.key.clone(), REPORT)), "asking for the report".to_owned())
                    }
                    _ if process.status.state == "finished" => (None, "measuring is over in this process".to_owned()),
                    _ => {
                        let stop = process.status.state == "capturing";
                        let command = if stop { "stop" } else { "start" };
                        (Some(Action::Tell(process.key.clone(), command)), format!("{command}: asking"))
                    }
                }
            }
        };
        self.message = Some(message);
        answer
    }

    fn overlay_key(&mut self, key: KeyCode) -> Option<Action> {
        let overlay = self.overlay.as_mut()?;
        let last = overlay.lines.len().saturating_sub(1);
        match key {
            KeyCode::Up | KeyCode::Char('k') => overlay.top = overlay.top.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => overlay.top = (overlay.top + 1).min(last),
            KeyCode::PageUp => overlay.top = overlay.top.saturating_sub(SCROLL),
            KeyCode::PageDown | KeyCode::Char(' ') => overlay.top = (overlay.top + SCROLL).min(last),
            KeyCode::Home => overlay.top = 0,
            KeyCode::End => overlay.top = last,
            _ => self.overlay = None,
        }
        None
    }

    fn filter_key(&mut self, key: KeyCode) {
        let mut filter = self.filter.clone();
        match key {
            KeyCode::Enter => self.filtering = false,
            KeyCode::Esc => {
                self.filtering = false;
                filter.clear();
            }
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Char(character) if filter.chars().count() < 60 => filter.push(character),
            _ => {}
        }
        self.set_filter(filter);
    }

    fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        if self.chosen().is_none() {
            self.choose_first();
        }
    }

    fn choose_first(&mut self) {
        let first = self.visible().first().map(|process| process.key.clone());
        self.selected = first;
    }

    fn choose(&mut self, by: isize) {
        let keys: Vec<_> = self.visible().iter().map(|process| process.key.clone()).collect();
        let now = keys.iter().position(|key| Some(key) == self.selected.as_ref()).unwrap_or(0);
        let next = now.saturating_add_signed(by).min(keys.len().saturating_sub(1));
        self.selected = keys.get(next).cloned();
        self.device = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_report::state::{Live, Status};

    fn dashboard(processes: &[(&str, &str, &str)]) -> Dashboard {
        let mut dashboard = Dashboard::new("here".to_owned(), false);
        for &(process, command, state) in processes {
            answer(&mut dashboard, process, command, state);
        }
        dashboard
    }

    fn answer(dashboard: &mut Dashboard, process: &str, command: &str, state: &str) {
        let key = ProcessKey { host: String::new(), process: process.to_owned() };
        let (command, state) = (command.to_owned(), state.to_owned());
        let status = Status { command, state, trace: Some("/t".to_owned()), ..Status::default() };
        dashboard.take(Update::Answer(key, Box::new(StatusReply { status, live: None })));
    }

    fn press(dashboard: &mut Dashboard, keys: &str) -> Vec<Action> {
        keys.chars().filter_map(|key| dashboard.key(KeyEvent::from(KeyCode::Char(key)))).collect()
    }

    fn chosen(dashboard: &Dashboard) -> Option<String> {
        dashboard.chosen().map(|process| process.key.to_string())
    }

    #[test]
    fn the_choice_stays_with_its_process() {
        let mut dashboard = dashboard(&[("20", "b", "capturing"), ("100", "c", "waiting")]);
        assert_eq!(chosen(&dashboard), Some("20".to_owned()));
        press(&mut dashboard, "j");
        answer(&mut dashboard, "3", "a", "capturing");
        assert_eq!(chosen(&dashboard), Some("100".to_owned()));
        let shown: Vec<_> = dashboard.visible().iter().map(|process| process.key.process.clone()).collect();
        assert_eq!(shown, ["3", "20", "100"]);
        press(&mut dashboard, "jjkkkk");
        assert_eq!(chosen(&dashboard), Some("3".to_owned()));
    }

    #[test]
    fn ranks_of_a_job_stay_together() {
        let mut dashboard = Dashboard::new(String::new(), false);
        for (process, run, rank) in [("1", "b", 1), ("2", "a", 10), ("3", "", 0), ("4", "b", 0), ("5", "a", 9)] {
            let key = ProcessKey { host: "n".to_owned(), process: process.to_owned() };
            let live = Some(Live { run: Some(run.to_owned()), rank: Some(rank), ..Live::default() });
            dashboard.take(Update::Answer(key, Box::new(StatusReply { status: Status::default(), live })));
        }
        let shown: Vec<_> = dashboard.visible().iter().map(|process| process.key.process.clone()).collect();
        assert_eq!(shown, ["5", "2", "4", "1", "3"]);
    }

    #[test]
    fn keys_ask_the_chosen_process() {
        let mut dashboard = dashboard(&[
            ("1", "a", "capturing"),
            ("2", "b", "waiting"),
            ("3", "c", "finished"),
            ("4", "d", "watching"),
        ]);
        let key = |process: &str| ProcessKey { host: String::new(), process: process.to_owned() };
        assert_eq!(press(&mut dashboard, "s"), [Action::Tell(key("1"), "stop")]);
        assert_eq!(press(&mut dashboard, "js"), [Action::Tell(key("2"), "start")]);
        assert_eq!(press(&mut dashboard, "n"), [Action::Tell(key("2"), REPORT)]);
        assert_eq!(press(&mut dashboard, "js"), [], "measuring is over");
        assert_eq!(press(&mut dashboard, "h"), [Action::Page(key("3"), "/t".to_owned())]);
        dashboard.take(Update::Ended(key("3")));
        assert_eq!(press(&mut dashboard, "n"), []);
        assert!(dashboard.message.as_ref().unwrap().contains("ended"));
        assert_eq!(press(&mut dashboard, "h").len(), 1, "its trace is there");
        assert_eq!(press(&mut dashboard, "q"), [Action::Quit]);
        // Bursts are not captures to stop. The library knows whether a capture can start, and says why if not.
        assert_eq!(press(&mut dashboard, "js"), [Action::Tell(key("4"), "start")]);
        dashboard.take(Update::Done("nothing changed: the program makes CUDA graphs".to_owned()));
        assert_eq!(dashboard.message.as_deref(), Some("nothing changed: the program makes CUDA graphs"));
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(dashboard.key(control_c), Some(Action::Quit));
    }

    #[test]
    fn a_filter_narrows_and_esc_widens() {
        let mut dashboard = dashboard(&[("1", "python train.py", "capturing"), ("2", "./simulate", "capturing")]);
        press(&mut dashboard, "/Simq");
        assert_eq!((chosen(&dashboard), dashboard.filtering), (None, true), "q is a letter of the filter");
        dashboard.key(KeyEvent::from(KeyCode::Backspace));
        assert_eq!(chosen(&dashboard), Some("2".to_owned()));
        dashboard.key(KeyEvent::from(KeyCode::Enter));
        dashboard.key(KeyEvent::from(KeyCode::Esc));
        assert_eq!((dashboard.visible().len(), dashboard.filter.as_str()), (2, ""));
        let mut none = Dashboard::new(String::new(), false);
        assert!(none.is_empty() && press(&mut none, "jks/x").is_empty() && none.chosen().is_none());
    }

    #[test]
    fn those_that_are_gone_stay_and_their_number_is_bounded() {
        let mut dashboard = Dashboard::new(String::new(), false);
        for process in 0..300 {
            answer(&mut dashboard, &process.to_string(), "a", "capturing");
            dashboard.take(Update::Ended(ProcessKey { host: String::new(), process: process.to_string() }));
        }
        assert!(dashboard.visible().len() <= ENDED_KEPT + 1);
        assert!(dashboard.chosen().is_some());
    }

    #[test]
    fn a_paused_display_stays_and_a_report_can_be_scrolled() {
        let mut dashboard = dashboard(&[("1", "a", "capturing")]);
        assert_eq!(press(&mut dashboard, "p"), [Action::Pause(true)]);
        answer(&mut dashboard, "1", "changed", "capturing");
        assert_eq!(dashboard.chosen().unwrap().status.command, "a");
        assert_eq!(press(&mut dashboard, "p"), [Action::Pause(false)]);
        dashboard.take(Update::Page("t".to_owned(), "x\n".repeat(30) + "\u{1b}[2J"));
        press(&mut dashboard, "jj ");
        assert_eq!(dashboard.overlay.as_ref().unwrap().top, 12);
        assert!(!dashboard.overlay.as_ref().unwrap().lines[30].contains('\u{1b}'));
        press(&mut dashboard, "q");
        assert!(dashboard.overlay.is_none(), "any other key closes it");
    }

    #[test]
    fn a_host_that_cannot_be_reached_is_said_until_it_answers() {
        let mut dashboard = Dashboard::new(String::new(), false);
        let key = ProcessKey { host: "node7".to_owned(), process: "1".to_owned() };
        dashboard.take(Update::Answer(key, Box::default()));
        dashboard.take(Update::Unreachable("node7".to_owned(), "exit 255".to_owned()));
        assert!(matches!(dashboard.chosen().unwrap().presence, Presence::Silent(_)));
        assert_eq!(dashboard.unreachable().collect::<Vec<_>>(), [("node7", "exit 255")]);
        dashboard.take(Update::Reached("node7".to_owned()));
        assert_eq!(dashboard.unreachable().count(), 0);
    }
}
