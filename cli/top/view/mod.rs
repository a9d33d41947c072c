//! Draws the display: title, table of processes, the chosen process, keys.
//!
//! Drawing is a function of the board and never queries a terminal, so tests draw into memory.

pub mod chart;
pub mod columns;
mod detail;
pub mod look;

use gpuwhy_report::text_format::duration;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Clear, Paragraph, Widget as _};

use self::columns::{Columns, cells};
use self::look::Look;
use super::board::{Board, Overlay};
use super::process::{Presence, Process};
use crate::terminal::cut;

/// Minimum size; smaller terminals show only a message.
const SMALLEST: (u16, u16) = (40, 10);
const KEYS: &str = "s start/stop  n report  h page  p pause  / filter  tab table  ? help  q quit";

pub fn draw(frame: &mut Frame<'_>, board: &Board, look: Look) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        line(buffer, area, "the terminal is too small: 80x24 is enough", look.warning());
        return;
    }
    let processes: Vec<&Process> = board.visible();
    let notices = usize::from(board.unreachable().next().is_some());
    // The table gets at most a third of the display, the chosen process the rest.
    let rows = processes.len().clamp(1, (usize::from(area.height) / 3).saturating_sub(2 + notices).max(1));
    let [title, notice, table, detail, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(notices as u16),
        Constraint::Length(rows as u16 + 1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_title(buffer, title, board, processes.len(), look);
    let unreachable: Vec<_> =
        board.unreachable().map(|(host, why)| format!("{host} cannot be reached: {why}")).collect();
    line(buffer, notice, &unreachable.join("; "), look.warning());
    draw_table(buffer, table, board, &processes, look);
    match board.chosen() {
        Some(process) => detail::draw(buffer, detail, board, process, look),
        None => draw_nothing(buffer, detail, board),
    }
    draw_keys(buffer, keys, board, look);
    if let Some(overlay) = &board.overlay {
        draw_overlay(buffer, area, overlay, look);
    }
}

fn draw_title(buffer: &mut Buffer, area: Rect, board: &Board, processes: usize, look: Look) {
    let mut parts = vec![format!("gpuwhy top  {}", board.source)];
    match board.played {
        Some((at, of)) => parts.push(format!("{} of {}", duration(at), duration(of))),
        None if processes == 1 => parts.push("1 process".to_owned()),
        None => parts.push(format!("{processes} processes")),
    }
    if !board.filter.is_empty() || board.filtering {
        let cursor = if board.filtering { "_" } else { "" };
        parts.push(format!("filter: {}{cursor}", board.filter));
    }
    if board.paused {
        parts.push("PAUSED".to_owned());
    }
    line(buffer, area, &parts.join("   "), look.strong());
}

fn draw_table(buffer: &mut Buffer, area: Rect, board: &Board, processes: &[&Process], look: Look) {
    let width = usize::from(area.width).saturating_sub(1);
    let columns = Columns::fitting(width, processes);
    row(buffer, Rect { height: 1, ..area }, " ", &columns.titles(), &columns, look.quiet());
    let room = usize::from(area.height).saturating_sub(1);
    let chosen = board.chosen().map(|process| &process.key);
    let place = processes.iter().position(|process| Some(&process.key) == chosen).unwrap_or(0);
    // Scroll so that the chosen row is visible.
    let first = place.saturating_sub(room.saturating_sub(1)).min(processes.len().saturating_sub(room));
    for (index, process) in processes.iter().skip(first).take(room).enumerate() {
        let is_chosen = first + index == place;
        let style = match (&process.presence, is_chosen) {
            (_, true) => look.chosen(),
            (Presence::Here, false) => Style::new(),
            (Presence::Silent(_), false) => look.warning(),
            (Presence::Ended, false) => look.quiet(),
        };
        let area = Rect { y: area.y + 1 + index as u16, height: 1, ..area };
        row(buffer, area, if is_chosen { ">" } else { " " }, &cells(&columns, process), &columns, style);
    }
}

fn row(buffer: &mut Buffer, area: Rect, mark: &str, cells: &[String], columns: &Columns, style: Style) {
    buffer.set_style(area, style);
    line(buffer, area, mark, style);
    let mut x = area.x + 1;
    for (cell, column) in cells.iter().zip(columns.all()) {
        let room = usize::from(area.right().saturating_sub(x));
        let width = if column.width == 0 { room } else { column.width.min(room) };
        let text = cut(cell, width);
        let text = if column.right { format!("{text:>width$}") } else { text };
        line(buffer, Rect { x, width: width as u16, ..area }, &text, style);
        x = (x + width as u16 + 1).min(area.right());
    }
}

fn draw_nothing(buffer: &mut Buffer, area: Rect, board: &Board) {
    let text = match (board.is_empty(), board.playback) {
        (false, _) => "No process matches the filter. Esc shows all.",
        (true, true) => "The trace is being read.",
        (true, false) => {
            "No process of this user runs with gpuwhy. Start one:\n\n    gpuwhy run -- python train.py\n\n\
             It is shown here as soon as it has loaded CUDA."
        }
    };
    let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), x: area.x + 2, width: area.width - 2 };
    Paragraph::new(text).render(area, buffer);
}

fn draw_keys(buffer: &mut Buffer, area: Rect, board: &Board, look: Look) {
    match &board.message {
        Some(message) => line(buffer, area, message, look.strong()),
        None if board.playback => line(buffer, area, "h page  p pause  tab table  g GPU  ? help  q quit", look.quiet()),
        None => line(buffer, area, KEYS, look.quiet()),
    }
}

fn draw_overlay(buffer: &mut Buffer, area: Rect, overlay: &Overlay, look: Look) {
    let area = Rect { y: area.y + 1, height: area.height.saturating_sub(2), ..area };
    Clear.render(area, buffer);
    rule(buffer, Rect { height: 1, ..area }, &format!("{}  (up, down; any other key closes)", overlay.title), look);
    let room = usize::from(area.height) - 1;
    for (index, text) in overlay.lines.iter().skip(overlay.top).take(room).enumerate() {
        line(buffer, Rect { y: area.y + 1 + index as u16, height: 1, ..area }, text, Style::new());
    }
}

/// Draws a horizontal rule with a title.
fn rule(buffer: &mut Buffer, area: Rect, title: &str, look: Look) {
    let width = usize::from(area.width);
    line(buffer, area, &look.rule().repeat(width), look.quiet());
    let title = format!(" {} ", cut(title, width.saturating_sub(6)));
    line(buffer, Rect { x: area.x + 2, width: area.width.saturating_sub(4), ..area }, &title, look.strong());
}

/// Draws one line of text, cut to the width.
fn line(buffer: &mut Buffer, area: Rect, text: &str, style: Style) {
    if area.height > 0 && area.width > 0 {
        buffer.set_stringn(area.x, area.y, text, usize::from(area.width), style);
    }
}

#[cfg(test)]
mod tests;
