//! The terminal of the display: set up, drawn to, read from, and given back whatever happens.

use std::env;
use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ratatui::crossterm::event::{self, Event as Input, KeyEventKind};

use super::board::{Action, Board};
use super::source::Event;
use super::view;
use super::view::look::Look;
use crate::interrupt;

/// How soon an answer and a signal are noticed while no key comes.
const TICK: Duration = Duration::from_millis(100);
/// Events that are taken between two pictures.
const TOGETHER: usize = 1_000;

/// Whether there is a terminal to draw on and to read keys from.
pub fn is_there() -> bool {
    let dumb = env::var("TERM").is_ok_and(|term| term == "dumb");
    io::stdout().is_terminal() && io::stdin().is_terminal() && !dumb
}

/// Gives the terminal back, also when a panic or an error ends the display.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the board until it is left. `act` does what keys ask for.
///
/// # Errors
///
/// When the terminal cannot be read or written.
pub fn show(board: &mut Board, events: &Receiver<Event>, mut act: impl FnMut(Action)) -> Result<()> {
    interrupt::watch()?;
    // It gives the terminal back before a panic is told, too.
    let mut terminal = ratatui::try_init().context("this terminal cannot be used; try --once")?;
    let _restore = Restore;
    let look = Look::of(|name| env::var(name).ok());
    let mut changed = true;
    loop {
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
        if changed {
            terminal.draw(|frame| view::draw(frame, board, look)).context("cannot write to the terminal")?;
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
