//! Comparison of two runs: the time of a step by cause, and its operations aligned by position. It needs no
//! script.

use std::fmt::Write as _;

use gpuwhy_compare::diff::{ChangedPlace, DeviceDiff, Diff, DiffRow, Fate};
use gpuwhy_report::run::Report;
use gpuwhy_report::text_format::{Style, duration};
use gpuwhy_report::words;

use super::palette::{ROWS, bar, signed};
use super::step_operations::{self, BY_NAME};
use super::table::{Table, marked};
use crate::escape::escaped;

/// Renders the comparison of `a` and `b` with their names.
pub(crate) fn diff(of: &Diff, (a, b): (&Report, &Report), (name_a, name_b): (&str, &str)) -> String {
    let mut page = String::from("<header>\n");
    for device in &of.devices {
        let (a, b) = device.ids;
        let gpu = if of.devices.len() > 1 { format!(" (GPU {a} of A, GPU {b} of B)") } else { String::new() };
        let _ = writeln!(page, "<h1>{}{gpu}</h1>", escaped(&device.answer()));
        if let Some(changes) = device.largest_changes() {
            let _ = writeln!(page, "<p>Largest changes: {}.</p>", escaped(&changes));
        }
    }
    let _ =
        writeln!(page, "<p class=\"run\"><span>A: {}</span> <span>B: {}</span></p>", escaped(name_a), escaped(name_b));
    page.push_str("</header>\n<main>\n");
    for device in &of.devices {
        device_section(&mut page, device);
        let sequence = |report: &Report, id| {
            let device = report.devices.iter().find(|device| device.device.id == id);
            device.and_then(|device| device.sequence.clone())
        };
        let sequences = sequence(a, device.ids.0).zip(sequence(b, device.ids.1));
        if let Some((a, b)) = &sequences {
            let changed = device.places.as_ref().map_or(&[][..], |places| &places.changed);
            step_operations::ribbons(&mut page, a, b, changed);
        }
        places(&mut page, device);
        if let Some((a, b)) = &sequences {
            step_operations::by_name(&mut page, a, b);
        } else {
            rows(&mut page, "Kernels", &device.kernels);
            rows(&mut page, "Copies", &device.copies);
        }
    }
    let _ = writeln!(page, "<section><h2>What the comparison rests on</h2><ul>");
    for warning in &of.warnings {
        let _ = writeln!(page, "<li>{}</li>", escaped(warning));
    }
    let _ = writeln!(
        page,
        "<li>{:.1} % of the kernel launches have the same names in A and B.</li></ul></section>",
        of.similarity * 100.0
    );
    let text = of.text_within(ROWS, Style::default());
    let lines: Vec<String> = text.lines().map(escaped).collect();
    let _ = writeln!(page, "<section class=\"raw\"><h2>As text</h2><pre>{}</pre></section>\n</main>", lines.join("\n"));
    page
}

/// Appends bars on one scale, and a table that sums to the change.
fn device_section(page: &mut String, device: &DeviceDiff) {
    let (a, b) = (&device.a, &device.b);
    let whole = a.unit_ns.max(b.unit_ns);
    let (ids, of) = (device.ids, device.unit());
    let _ = writeln!(page, "<section><h2>GPU {} of A, GPU {} of B: {of} by cause</h2>", ids.0, ids.1);
    for (name, unit) in [("A", a), ("B", b)] {
        let _ = writeln!(page, "<p>{name}: {}</p>", duration(unit.unit_ns));
        bar(page, &unit.leaves, whole, &format!("{name}: {of} by cause"));
    }
    let mut table = Table::new("Cause:html|A:n|B:n|Change:n");
    for &(leaf, change) in &device.leaves {
        let [a, b] = [a, b].map(|unit| duration(unit.leaves[leaf as usize]));
        table.row(&[&marked(leaf.cause(), words::cause(leaf)), &a, &b, &signed(change)]);
    }
    let sum = format!(
        "<tfoot><tr><th>Step</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr></tfoot>\
         </table>\n",
        duration(a.unit_ns),
        duration(b.unit_ns),
        signed(device.change_ns()),
    );
    table.write(page, "<table><caption>Changes by cause; the rows sum to the change</caption>", &sum);
    if let Some(prediction) = &device.prediction {
        let _ = writeln!(page, "<p>{}</p>", escaped(&prediction.sentences()));
    }
    page.push_str("</section>\n");
}

fn places(page: &mut String, device: &DeviceDiff) {
    let changed: &[ChangedPlace] = match &device.places {
        Ok(places) => &places.changed,
        Err(why) => {
            let _ = writeln!(page, "<p>Operations are not compared by place: {}.</p>", escaped(why));
            return;
        }
    };
    let mut table = Table::new("Operation:long|What|Place in A:n|Place in B:n|A:n|B:n");
    for place in changed.iter().take(ROWS * 2) {
        let fate = match place.fate {
            Fate::Added => "added",
            Fate::Removed => "removed",
            Fate::Slower => "slower",
            Fate::Faster => "faster",
        };
        let [a, b] = [place.a_ns, place.b_ns].map(|nanos| duration(nanos as u64));
        table.row(&[&place.name, &fate, &place.at_a, &place.at_b, &a, &b]);
    }
    let title = "Places of the step that changed";
    table.write_wide(page, &format!("<h2>{title}</h2>"), title, "");
}

fn rows(page: &mut String, title: &str, rows: &[DiffRow]) {
    let mut table = Table::new(BY_NAME);
    for row in rows.iter().take(ROWS) {
        let [times_a, times_b] = [&row.a, &row.b].map(|usage| format!("{:.1}", usage.per_unit));
        let [a, b] = [&row.a, &row.b].map(|usage| duration(usage.unit_ns as u64));
        table.row(&[&row.name, &times_a, &times_b, &a, &b, &signed(row.change_ns() as i64)]);
    }
    table.write_wide(page, &format!("<h2>{title} in one step, as a mean of the whole run</h2>"), title, "");
}
