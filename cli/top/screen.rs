//! Terminal of the display: setup, drawing, input, and restoring it in all cases.

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

use super::dashboard::{Action, Dashboard, Update};
use super::source::SourceEvent;
use super::view;
use super::view::appearance::Appearance;
use crate::interrupt;

/// Time to wait for a key before responses and signals are checked.
const TICK: Duration = Duration::from_millis(100);
/// Maximum number of events processed between two frames.
const TOGETHER: usize = 1_000;

/// The display counts as stuck after this time without an iteration of its loop.
const STUCK: Duration = Duration::from_secs(2);
/// Value of the pulse after the display has ended.
const OVER: u64 = u64::MAX;
/// Exit code when the terminal is gone: the one for SIGHUP.
const HUNG_UP: u8 = 129;

/// True if there is a terminal to draw on and to read keys from.
pub fn is_there() -> bool {
    let dumb = env::var("TERM").is_ok_and(|term| term == "dumb");
    io::stdout().is_terminal() && io::stdin().is_terminal() && !dumb
}

/// Restores the terminal. Ignores errors: the terminal may be gone, and stderr too.
fn give_back() {
    let _ = ratatui::try_restore();
}

/// Ends the command when the display is stuck and its terminal is gone or a signal has come. In crossterm,
/// reading from a terminal that is gone never returns, and neither does writing to one that hangs.
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

/// Terminal while it shows the display.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Panic messages of background threads.
    failures: Arc<Mutex<Vec<String>>>,
    /// Number of iterations of the display loop.
    pulse: Arc<AtomicU64>,
}

impl Screen {
    /// Sets up the terminal, and a panic hook that restores it.
    fn new() -> io::Result<Self> {
        let failures = Arc::new(Mutex::new(Vec::new()));
        let (usual, drawing, failed) = (panic::take_hook(), thread::current().id(), Arc::clone(&failures));
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == drawing {
                give_back();
                usual(info);
            } else {
                // The display continues without this thread and shows the message.
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
        // After a panic the hook has already restored the terminal before printing the message; doing it
        // again would put the cursor above the message.
        if !thread::panicking() {
            give_back();
        }
    }
}

/// Shows the dashboard until the user quits. `act` performs the actions of keys. Fails when the terminal cannot
/// be read or written.
pub fn show(dashboard: &mut Dashboard, events: &Receiver<SourceEvent>, mut act: impl FnMut(Action)) -> Result<()> {
    interrupt::watch()?;
    let mut screen = Screen::new().context("this terminal cannot be used; try --once")?;
    let appearance = Appearance::of(|name| env::var(name).ok());
    let mut changed = true;
    loop {
        screen.pulse.fetch_add(1, Ordering::Relaxed);
        for _ in 0..TOGETHER {
            match events.try_recv() {
                Ok(event) => {
                    if let Some(update) = event.into_update() {
                        dashboard.take(update);
                        changed = true;
                    }
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        for failure in screen.failures.lock().drain(..) {
            dashboard.take(Update::Note(failure));
            changed = true;
        }
        if changed {
            screen
                .terminal
                .draw(|frame| view::draw(frame, dashboard, appearance))
                .context("cannot write to the terminal")?;
            // Lets a test check the terminal after a panic; release builds do not contain this.
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
                match dashboard.key(key) {
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
