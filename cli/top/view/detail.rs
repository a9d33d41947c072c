//! The chosen process: its time by cause, evidence, advice, and the rows with the most time.

use gpuwhy_report::state::{DeviceState, IterationsOfKind, Live, MemoryState, Steps, sanitized};
use gpuwhy_report::text_format::{duration, lines};
use profiler_core::leaf::Cause;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;

use super::appearance::{Appearance, letter};
use super::columns::{cut_inside, program};
use super::{chart, line, rule};
use crate::terminal::cut;
use crate::top::answer::{CAUSES, Window, windows};
use crate::top::dashboard::Dashboard;
use crate::top::process::{Presence, ProcessTable, ProcessView, Recent, last_minute, sums};

/// Minimum width for three tables side by side.
const WIDE: u16 = 120;
/// Minimum width of a table whose rows have a count.
const ROOMY: usize = 60;
/// Columns before the chart: `GPU 0 `.
const LABEL: u16 = 7;

pub fn draw(buffer: &mut Buffer, area: Rect, dashboard: &Dashboard, process: &ProcessView, appearance: Appearance) {
    let Some(live) = &process.live else {
        draw_short(buffer, area, process, appearance);
        return;
    };
    let height = area.height;
    let chart_rows = (height / 5).clamp(1, 10);
    let width = usize::from(area.width);
    let reasons = reasons(live, width, if height < 20 { 3 } else { 8 });
    let advice = wrapped("fix: ", &live.advice, width, if height < 20 { 2 } else { 5 });
    let steps = live.steps.as_ref().map(steps_text);
    let [title, chart, now, step, why, fix, tables] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(chart_rows),
        Constraint::Length(1),
        Constraint::Length(u16::from(steps.is_some())),
        Constraint::Length(reasons.len() as u16),
        Constraint::Length(advice.len() as u16),
        Constraint::Min(0),
    ])
    .areas(area);
    let device = live.devices.get(dashboard.device(process));
    rule(buffer, title, &title_of(process, live, device), appearance);
    if let Some(device) = device {
        let windows = windows(live, device);
        let newest = last_minute(&windows);
        draw_chart(buffer, chart, device, newest, live.devices.len() as u64 + live.devices_beyond, appearance);
        draw_shares(buffer, now, newest, appearance);
    } else {
        line(buffer, chart, "no GPU work yet", appearance.quiet());
    }
    line(buffer, step, &steps.unwrap_or_default(), Style::new());
    for (rows, texts) in [(why, reasons), (fix, advice)] {
        for (index, text) in texts.iter().enumerate().take(usize::from(rows.height)) {
            line(buffer, Rect { y: rows.y + index as u16, height: 1, ..rows }, text, Style::new());
        }
    }
    draw_tables(buffer, tables, dashboard, process, appearance);
}

/// Number of steps, and durations of the most recent ones.
fn steps_text(steps: &Steps) -> String {
    if !steps.kinds.is_empty() {
        let kind = |of: &IterationsOfKind| {
            let rate = of.tokens_per_second.map(|rate| format!(", {rate:.0} tokens/s")).unwrap_or_default();
            format!("{}: {}, p50 {}, p99 {}{rate}", of.kind, of.count, duration(of.median_ns), duration(of.p99_ns))
        };
        return steps.kinds.iter().map(kind).collect::<Vec<_>>().join(" | ");
    }
    let noun = if steps.noun.is_empty() { "step" } else { &steps.noun };
    let mut text = format!("{noun}s: {}, median {}", steps.seen, duration(steps.median_ns));
    if let (Some(&shortest), Some(&longest)) = (steps.newest_ns.iter().min(), steps.newest_ns.iter().max()) {
        let (count, from, to) = (steps.newest_ns.len(), duration(shortest), duration(longest));
        text.push_str(&format!(", the newest {count} from {from} to {to}"));
    }
    text
}

/// Draws the little that is known about a process whose library does not know `live`.
fn draw_short(buffer: &mut Buffer, area: Rect, process: &ProcessView, appearance: Appearance) {
    rule(buffer, Rect { height: 1, ..area }, &format!("{}  {}", process.key, process.status.command), appearance);
    let why = match &process.presence {
        Presence::Silent(why) => why.clone(),
        _ => process.status.line.clone(),
    };
    for (index, text) in wrapped("", &why, usize::from(area.width), 4).iter().enumerate() {
        line(buffer, Rect { y: area.y + 1 + index as u16, height: 1, ..area }, text, Style::new());
    }
}

/// Title of the process: identity and state.
fn title_of(process: &ProcessView, live: &Live, device: Option<&DeviceState>) -> String {
    let mut parts = vec![format!("{}  {}", process.key, cut(&program(&process.status.command), 50))];
    match &process.presence {
        Presence::Here => {}
        Presence::Silent(why) => parts.push(why.clone()),
        Presence::Ended => parts.push("ended".to_owned()),
    }
    if let Some(rank) = live.rank {
        parts.push(format!("rank {rank}"));
    }
    let shown = device.map(|device| device.id);
    parts.extend(live.memory.iter().find(|of| shown.is_none_or(|id| id == of.id)).map(MemoryState::text));
    if let Some(mode) = &live.mode {
        parts.push(format!("mode {mode}"));
        parts.extend(live.bursts.map(|bursts| format!("{bursts} burst{}", if bursts == 1 { "" } else { "s" })));
    }
    parts.push(duration(live.observed_ns));
    if process.status.captures > 1 && live.bursts.is_none() {
        parts.push(format!("capture {}", process.status.captures));
    }
    if let (Presence::Ended, Some(trace)) = (&process.presence, &process.status.trace) {
        parts.push(format!("trace: {}", sanitized(trace)));
    }
    parts.join(", ")
}

fn draw_chart(
    buffer: &mut Buffer,
    area: Rect,
    device: &DeviceState,
    windows: &[Window],
    devices: u64,
    appearance: Appearance,
) {
    let label = format!("GPU {}", device.id);
    line(buffer, Rect { width: LABEL.min(area.width), height: 1, ..area }, &label, appearance.strong());
    if devices > 1 && area.height > 1 {
        let of = format!("of {devices}");
        line(buffer, Rect { y: area.y + 1, width: LABEL.min(area.width), height: 1, ..area }, &of, appearance.quiet());
    }
    let area = Rect { x: area.x + LABEL, width: area.width.saturating_sub(LABEL + 1), ..area };
    if windows.is_empty() {
        line(buffer, area, "less than a second of GPU time so far", appearance.quiet());
    }
    chart::draw(buffer, area, &chart::columns(windows, area.width), appearance);
}

/// Draws the causes of the last minute in whole percent.
fn draw_shares(buffer: &mut Buffer, area: Rect, windows: &[Window], appearance: Appearance) {
    if windows.is_empty() {
        return;
    }
    let mut x = area.x;
    let lead =
        format!("last {} s: ", windows.iter().map(|window| window.causes.iter().sum::<u64>()).sum::<u64>() / 1_000_000);
    x = put(buffer, area, x, &lead, appearance.strong());
    for (cause, percent) in percents(&sums(windows)) {
        x = put(buffer, area, x, &letter(cause).to_string(), appearance.cause(cause));
        x = put(buffer, area, x, &format!(" {} {percent} %  ", cause.name()), Style::new());
    }
}

/// Writes text at `x` and returns the position after it.
fn put(buffer: &mut Buffer, area: Rect, x: u16, text: &str, style: Style) -> u16 {
    let room = area.right().saturating_sub(x);
    if area.height == 0 || room == 0 {
        return x;
    }
    buffer.set_stringn(x, area.y, text, usize::from(room), style).0
}

/// Whole percent that sum to 100, the largest first; causes below 1 are omitted.
fn percents(times: &[u64; CAUSES]) -> Vec<(Cause, u64)> {
    let total: u64 = times.iter().sum();
    if total == 0 {
        return Vec::new();
    }
    let exact = |time: u64| time as f64 / total as f64 * 100.0;
    let mut rows: Vec<_> = Cause::ALL
        .into_iter()
        .zip(times)
        .map(|(cause, &time)| (cause, exact(time).floor() as u64, exact(time)))
        .collect();
    rows.sort_by(|a, b| (b.2.fract()).total_cmp(&a.2.fract()));
    let missing = 100 - rows.iter().map(|row| row.1).sum::<u64>();
    rows.iter_mut().take(missing as usize).for_each(|row| row.1 += 1);
    rows.sort_by(|a, b| b.2.total_cmp(&a.2));
    rows.into_iter().filter(|row| row.1 > 0).map(|(cause, percent, _)| (cause, percent)).collect()
}

/// Lost data, then the evidence for the bottleneck, in at most `most` lines.
fn reasons(live: &Live, width: usize, most: usize) -> Vec<String> {
    let missing = live.missing.iter().map(|sentence| ("lost: ", sentence));
    let evidence = live.evidence.iter().map(|sentence| ("why: ", sentence));
    let mut lines = Vec::new();
    for (lead, sentence) in missing.take(1).chain(evidence) {
        let room = most - lines.len();
        if room == 0 {
            break;
        }
        lines.extend(wrapped(lead, sentence, width, room));
    }
    lines
}

/// Wraps a sentence to at most `most` lines; `~` marks the cut.
fn wrapped(lead: &str, sentence: &str, width: usize, most: usize) -> Vec<String> {
    if sentence.is_empty() || width < lead.len() + 10 {
        return Vec::new();
    }
    let mut lines = lines(lead, lead.len(), sentence, width);
    if let Some(next) = lines.get(most).and_then(|line| line.split_whitespace().next()) {
        let more = cut(&format!("{} {next}", lines[most - 1]), width);
        lines.truncate(most);
        lines[most - 1] = if more.ends_with('~') { more } else { cut(&more, width - 1) + "~" };
    }
    lines.into_iter().map(|line| cut(&line, width)).collect()
}

fn draw_tables(buffer: &mut Buffer, area: Rect, dashboard: &Dashboard, process: &ProcessView, appearance: Appearance) {
    if area.height < 2 {
        return;
    }
    if area.width < WIDE {
        draw_rows(buffer, area, dashboard.table, process, appearance, true);
        return;
    }
    let areas: [Rect; 3] = Layout::horizontal([Constraint::Fill(1); 3]).spacing(2).areas(area);
    for (area, table) in areas.into_iter().zip([ProcessTable::Kernels, ProcessTable::Lines, ProcessTable::Ranges]) {
        draw_rows(buffer, area, table, process, appearance, false);
    }
}

/// Draws a table of the last minute. `alone`: the other tables are reached with a key.
fn draw_rows(
    buffer: &mut Buffer,
    area: Rect,
    table: ProcessTable,
    process: &ProcessView,
    appearance: Appearance,
    alone: bool,
) {
    let span =
        if process.is_complete() { "so far".to_owned() } else { format!("last {}", duration(process.recent_ns())) };
    let (name, of) = match table {
        ProcessTable::Kernels => ("kernels", "share of elapsed time"),
        ProcessTable::Lines => ("lines of code", "GPU time lost"),
        ProcessTable::Ranges => ("ranges", "GPU time within"),
    };
    let title = if alone { format!("{name}, {of}, {span}  (tab: others)") } else { format!("{name}, {of}") };
    rule(buffer, Rect { height: 1, ..area }, &title, appearance);
    let rows = process.recent(table);
    let room = usize::from(area.height) - 1;
    if rows.is_empty() {
        let area = Rect { y: area.y + 1, height: 1, ..area };
        line(buffer, area, nothing(table, process), appearance.quiet());
        return;
    }
    for (index, row) in rows.iter().take(room).enumerate() {
        let area = Rect { y: area.y + 1 + index as u16, height: 1, ..area };
        line(buffer, area, &row_text(row, usize::from(area.width)), Style::new());
    }
}

fn row_text(row: &Recent, width: usize) -> String {
    let share = row.share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let share = format!("{share:>7}  {:>8}", duration(row.nanos));
    let count = row.count.filter(|_| width >= ROOMY).map(|count| format!("  {count:>7}x")).unwrap_or_default();
    let lead = format!("{share}{count}  ");
    let room = width.saturating_sub(lead.chars().count());
    lead + &cut_inside(&row.name, room)
}

/// Reason why a table is empty.
fn nothing(table: ProcessTable, process: &ProcessView) -> &'static str {
    let before = process.live.as_ref().is_some_and(|live| match table {
        ProcessTable::Kernels => !live.top_kernels.is_empty(),
        ProcessTable::Lines => !live.lines.is_empty(),
        ProcessTable::Ranges => !live.ranges.is_empty(),
    });
    match (before, table) {
        (true, _) => "none in this time",
        (false, ProcessTable::Kernels) => "no kernel has run",
        (false, ProcessTable::Lines) => "no GPU time was lost outside of CUDA calls",
        (false, ProcessTable::Ranges) => "the program names no ranges (NVTX)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_sum_to_a_hundred() {
        let mut times = [0; CAUSES];
        assert!(percents(&times).is_empty());
        (times[Cause::Launch as usize], times[Cause::GpuCompute as usize], times[Cause::Sync as usize]) = (617, 382, 1);
        assert_eq!(percents(&times), [(Cause::Launch, 62), (Cause::GpuCompute, 38)]);
        times = [1; CAUSES];
        times[0] = 3;
        assert_eq!(percents(&times).iter().map(|row| row.1).sum::<u64>(), 100);
    }

    #[test]
    fn sentences_keep_to_their_lines() {
        let lines = wrapped("why: ", "one two three four five six", 16, 2);
        assert_eq!(lines, ["why: one two", "     three four~"]);
        assert_eq!(wrapped("", "a bc", 40, 1), ["a bc"]);
        assert!(wrapped("fix: ", "", 40, 2).is_empty());
        for line in wrapped("why: ", &"incomprehensibilities".repeat(9), 40, 3) {
            assert!(line.chars().count() <= 40, "{line}");
        }
    }
}
