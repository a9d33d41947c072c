//! The terminal of the display: set up, drawn to, read from, and given back whatever happens.

use std::io::{self, IsTerminal as _, Stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use std::{env, panic, process, thread};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event as Input, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen};

use super::board::{Action, Board, Update};
use super::source::Event;
use super::view;
use super::view::look::Look;
use crate::interrupt;

/// How soon an answer and a signal are noticed while no key comes.
const TICK: Duration = Duration::from_millis(100);
/// Events that are taken between two pictures.
const TOGETHER: usize = 1_000;

/// The display counts as stuck after this time without a turn.
const STUCK: Duration = Duration::from_secs(2);
/// What the pulse says when the display is over.
const OVER: u64 = u64::MAX;
/// Exit code when the terminal is gone: that of SIGHUP.
const HUNG_UP: u8 = 129;

/// Whether there is a terminal to draw on and to read keys from.
pub fn is_there() -> bool {
    let dumb = env::var("TERM").is_ok_and(|term| term == "dumb");
    io::stdout().is_terminal() && io::stdin().is_terminal() && !dumb
}

/// Gives the terminal back. It may be gone, and stderr too.
fn give_back() {
    let _ = ratatui::try_restore();
}

/// Ends the command when the display is stuck and nobody can see it any more: reading a terminal that is gone never
/// comes back from crossterm, and writing to one that stands still does not either.
fn guard(pulse: Arc<AtomicU64>) {
    thread::spawn(move || {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            thread::sleep(TICK);
            match pulse.load(Ordering::Relaxed) {
                OVER => return,
                now if now != last => (last, since) = (now, Instant::now()),
                _ if since.elapsed() < STUCK => {}
                _ => {
                    let hung_up = || terminal::window_size().is_err().then_some(HUNG_UP);
                    if let Some(code) = interrupt::exit_code().or_else(hung_up) {
                        give_back();
                        process::exit(code.into());
                    }
                }
            }
        }
    });
}

/// The terminal while it shows the display.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// What threads behind the display said when they failed.
    failures: Arc<Mutex<Vec<String>>>,
    /// Counts the turns of the display.
    pulse: Arc<AtomicU64>,
}

impl Screen {
    /// Takes the terminal, and sees to it that a panic finds it as it was.
    fn new() -> io::Result<Self> {
        let failures = Arc::new(Mutex::new(Vec::new()));
        let (usual, drawing, failed) = (panic::take_hook(), thread::current().id(), Arc::clone(&failures));
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == drawing {
                give_back();
                usual(info);
            } else {
                // The display goes on without what this thread did, and says so.
                failed.lock().push(info.to_string());
            }
        }));
        terminal::enable_raw_mode()?;
        if let Err(error) = execute!(io::stdout(), EnterAlternateScreen) {
            give_back();
            return Err(error);
        }
        match Terminal::new(CrosstermBackend::new(io::stdout())) {
            Ok(terminal) => {
                let pulse = Arc::default();
                guard(Arc::clone(&pulse));
                Ok(Self { terminal, failures, pulse })
            }
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.pulse.store(OVER, Ordering::Relaxed);
        // After a panic it was given back before that was told; once more would put the cursor above it.
        if !thread::panicking() {
            give_back();
        }
    }
}

/// Shows the board until it is left. `act` does what keys ask for. Fails when the terminal cannot be read or written.
pub fn show(board: &mut Board, events: &Receiver<Event>, mut act: impl FnMut(Action)) -> Result<()> {
    interrupt::watch()?;
    let mut screen = Screen::new().context("this terminal cannot be used; try --once")?;
    let look = Look::of(|name| env::var(name).ok());
    let mut changed = true;
    loop {
        screen.pulse.fetch_add(1, Ordering::Relaxed);
        for _ in 0..TOGETHER {
            match events.try_recv() {
                Ok(event) => {
                    if let Some(update) = event.into_update() {
                        board.take(update);
                        changed = true;
                    }
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        for failure in screen.failures.lock().drain(..) {
            board.take(Update::Note(failure));
            changed = true;
        }
        if changed {
            screen.terminal.draw(|frame| view::draw(frame, board, look)).context("cannot write to the terminal")?;
            // So that a test can see what a panic leaves behind; no such build is shipped.
            assert!(!cfg!(debug_assertions) || env::var_os("GPUWHY_TOP_PANIC").is_none(), "asked to panic");
        }
        changed = false;
        if interrupt::state().is_break() {
            return Ok(());
        }
        if !event::poll(TICK).context("cannot read from the terminal")? {
            continue;
        }
        match event::read().context("cannot read from the terminal")? {
            Input::Key(key) if key.kind != KeyEventKind::Release => {
                changed = true;
                match board.key(key) {
                    Some(Action::Quit) => return Ok(()),
                    Some(action) => act(action),
                    None => {}
                }
            }
            Input::Resize(..) => changed = true,
            _ => {}
        }
    }
}
