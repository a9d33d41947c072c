//! Draws the display: title, table of processes, the chosen process, keys.
//!
//! Drawing is a function of the dashboard and never queries a terminal, so tests draw into memory.

pub mod appearance;
pub mod chart;
pub mod columns;
mod detail;

use gpuwhy_report::text_format::duration;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Clear, Paragraph, Widget as _};

use self::appearance::Appearance;
use self::columns::{Columns, cells};
use super::dashboard::{Dashboard, Overlay};
use super::process::{Presence, ProcessView};
use crate::terminal::cut;

/// Minimum size; smaller terminals show only a message.
const SMALLEST: (u16, u16) = (40, 10);
const KEYS: &str = "s start/stop  n report  h page  p pause  / filter  tab table  ? help  q quit";

pub fn draw(frame: &mut Frame<'_>, dashboard: &Dashboard, appearance: Appearance) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        line(buffer, area, "the terminal is too small: 80x24 is enough", appearance.warning());
        return;
    }
    let processes: Vec<&ProcessView> = dashboard.visible();
    let notices = usize::from(dashboard.unreachable().next().is_some());
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
    draw_title(buffer, title, dashboard, processes.len(), appearance);
    let unreachable: Vec<_> =
        dashboard.unreachable().map(|(host, why)| format!("{host} cannot be reached: {why}")).collect();
    line(buffer, notice, &unreachable.join("; "), appearance.warning());
    draw_table(buffer, table, dashboard, &processes, appearance);
    match dashboard.chosen() {
        Some(process) => detail::draw(buffer, detail, dashboard, process, appearance),
        None => draw_nothing(buffer, detail, dashboard),
    }
    draw_keys(buffer, keys, dashboard, appearance);
    if let Some(overlay) = &dashboard.overlay {
        draw_overlay(buffer, area, overlay, appearance);
    }
}

fn draw_title(buffer: &mut Buffer, area: Rect, dashboard: &Dashboard, processes: usize, appearance: Appearance) {
    let mut parts = vec![format!("gpuwhy top  {}", dashboard.source)];
    match dashboard.played {
        Some((at, of)) => parts.push(format!("{} of {}", duration(at), duration(of))),
        None if processes == 1 => parts.push("1 process".to_owned()),
        None => parts.push(format!("{processes} processes")),
    }
    if !dashboard.filter.is_empty() || dashboard.filtering {
        let cursor = if dashboard.filtering { "_" } else { "" };
        parts.push(format!("filter: {}{cursor}", dashboard.filter));
    }
    if dashboard.paused {
        parts.push("PAUSED".to_owned());
    }
    line(buffer, area, &parts.join("   "), appearance.strong());
}

fn draw_table(
    buffer: &mut Buffer,
    area: Rect,
    dashboard: &Dashboard,
    processes: &[&ProcessView],
    appearance: Appearance,
) {
    let width = usize::from(area.width).saturating_sub(1);
    let columns = Columns::fitting(width, processes);
    row(buffer, Rect { height: 1, ..area }, " ", &columns.titles(), &columns, appearance.quiet());
    let room = usize::from(area.height).saturating_sub(1);
    let chosen = dashboard.chosen().map(|process| &process.key);
    let place = processes.iter().position(|process| Some(&process.key) == chosen).unwrap_or(0);
    // Scroll so that the chosen row is visible.
    let first = place.saturating_sub(room.saturating_sub(1)).min(processes.len().saturating_sub(room));
    for (index, process) in processes.iter().skip(first).take(room).enumerate() {
        let is_chosen = first + index == place;
        let style = match (&process.presence, is_chosen) {
            (_, true) => appearance.chosen(),
            (Presence::Here, false) => Style::new(),
            (Presence::Silent(_), false) => appearance.warning(),
            (Presence::Ended, false) => appearance.quiet(),
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

fn draw_nothing(buffer: &mut Buffer, area: Rect, dashboard: &Dashboard) {
    let text = match (dashboard.is_empty(), dashboard.playback) {
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

fn draw_keys(buffer: &mut Buffer, area: Rect, dashboard: &Dashboard, appearance: Appearance) {
    match &dashboard.message {
        Some(message) => line(buffer, area, message, appearance.strong()),
        None if dashboard.playback => {
            line(buffer, area, "h page  p pause  tab table  g GPU  ? help  q quit", appearance.quiet())
        }
        None => line(buffer, area, KEYS, appearance.quiet()),
    }
}

fn draw_overlay(buffer: &mut Buffer, area: Rect, overlay: &Overlay, appearance: Appearance) {
    let area = Rect { y: area.y + 1, height: area.height.saturating_sub(2), ..area };
    Clear.render(area, buffer);
    rule(
        buffer,
        Rect { height: 1, ..area },
        &format!("{}  (up, down; any other key closes)", overlay.title),
        appearance,
    );
    let room = usize::from(area.height) - 1;
    for (index, text) in overlay.lines.iter().skip(overlay.top).take(room).enumerate() {
        line(buffer, Rect { y: area.y + 1 + index as u16, height: 1, ..area }, text, Style::new());
    }
}

/// Draws a horizontal rule with a title.
fn rule(buffer: &mut Buffer, area: Rect, title: &str, appearance: Appearance) {
    let width = usize::from(area.width);
    line(buffer, area, &appearance.rule().repeat(width), appearance.quiet());
    let title = format!(" {} ", cut(title, width.saturating_sub(6)));
    line(buffer, Rect { x: area.x + 2, width: area.width.saturating_sub(4), ..area }, &title, appearance.strong());
}

/// Draws one line of text, cut to the width.
fn line(buffer: &mut Buffer, area: Rect, text: &str, style: Style) {
    if area.height > 0 && area.width > 0 {
        buffer.set_stringn(area.x, area.y, text, usize::from(area.width), style);
    }
}

#[cfg(test)]
mod tests;
