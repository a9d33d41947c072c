//! The operations of a typical step of two runs: aligned in a picture, and summed by name.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use gpuwhy_compare::diff::{ChangedPlace, Fate, align};
use gpuwhy_report::run::Sequence;
use gpuwhy_report::text_format::duration;
use gpuwhy_report::words;
use profiler_core::attribution::Subject;

use super::palette::{ROWS, signed};
use super::table::Table;
use crate::escape::escaped;

/// Maximum number of operations drawn per step.
const DRAWN: usize = 4_000;
/// Smallest width of a box with a name, percent of the picture.
const NAMED: f64 = 2.5;

/// What became of an operation: class of its color, sign in front of its name, and words.
type Change = (&'static str, &'static str, &'static str);
const SAME: Change = ("same", "", "not noticeably changed");
const SLOWER: Change = ("slower", "\u{25b2} ", "slower in B");
const FASTER: Change = ("faster", "\u{25bc} ", "faster in B");
const REMOVED: Change = ("alone", "\u{2212} ", "only in A");
const ADDED: Change = ("alone", "+ ", "only in B");

/// Columns of a table of operations by name.
pub(super) const BY_NAME: &str = "Name:long|Times in A:n|Times in B:n|A:n|B:n|Change:n";

/// Name of a kernel, else what the operation does.
fn name(sequence: &Sequence, place: usize) -> String {
    match sequence.places[place].1 {
        operation if matches!(operation.subject, Subject::Kernel(_)) => sequence.name(place).to_owned(),
        operation => words::cause(operation.leaf).to_owned(),
    }
}

/// Mean duration of each operation, nanoseconds.
fn means(sequence: &Sequence) -> impl Iterator<Item = f64> {
    let steps = sequence.steps.max(1) as f64;
    sequence.places.iter().map(move |(_, operation)| operation.total_ns as f64 / steps)
}

/// A row of boxes.
struct Boxes<'a> {
    sequence: &'a Sequence,
    /// Start of each operation and end of the last one, nanoseconds.
    edges: Vec<f64>,
    changes: Vec<Change>,
}

impl<'a> Boxes<'a> {
    fn new(sequence: &'a Sequence, unpaired: Change) -> Self {
        let mut at = 0.0;
        let ends = means(sequence).map(|mean| {
            at += mean;
            at
        });
        let edges = std::iter::once(0.0).chain(ends).collect();
        Self { sequence, edges, changes: vec![unpaired; sequence.places.len()] }
    }

    fn nanos(&self, place: usize) -> f64 {
        self.edges[place + 1] - self.edges[place]
    }

    /// Appends the boxes; `x` maps nanoseconds to percent of the picture.
    fn write(&self, page: &mut String, top: u32, x: impl Fn(f64) -> f64) {
        for (place, &(class, sign, what)) in self.changes.iter().enumerate() {
            let width = x(self.nanos(place));
            let name = escaped(&name(self.sequence, place));
            let label =
                if width < NAMED { String::new() } else { format!("<text x=\"4\" y=\"20\">{sign}{name}</text>") };
            let _ = write!(
                page,
                "<svg x=\"{:.3}%\" y=\"{top}\" width=\"{:.3}%\" height=\"30\"><rect class=\"r-box r-{class}\" \
                 width=\"100%\" height=\"30\"/>{label}<title>{name}: {}, {what}</title></svg>",
                x(self.edges[place]),
                width.max(0.03),
                duration(self.nanos(place) as u64),
            );
        }
    }
}

/// Draws the operations of both steps in two rows, connected where both steps have them. `changed` are those that
/// the table names.
pub(super) fn ribbons(page: &mut String, a: &Sequence, b: &Sequence, changed: &[ChangedPlace]) {
    let mut ids: HashMap<String, u32> = HashMap::new();
    let [keys_a, keys_b] = [a, b].map(|sequence| -> Vec<u32> {
        let names = (0..sequence.places.len()).map(|place| name(sequence, place));
        names
            .map(|name| {
                let next = ids.len() as u32;
                *ids.entry(name).or_insert(next)
            })
            .collect()
    });
    let most = keys_a.len().max(keys_b.len());
    let Some(pairs) = align(&keys_a, &keys_b).filter(|_| most <= DRAWN && most > 0) else {
        let _ =
            writeln!(page, "<p>The operations of a step, up to {most}, are too many or too different to be drawn.</p>");
        return;
    };
    let (mut row_a, mut row_b) = (Boxes::new(a, REMOVED), Boxes::new(b, ADDED));
    let end = |row: &Boxes<'_>| row.edges.last().copied().unwrap_or(0.0);
    let whole = end(&row_a).max(end(&row_b)).max(1.0);
    let x = |nanos: f64| nanos / whole * 100.0;
    let fates: HashMap<(usize, usize), Fate> = changed.iter().map(|row| ((row.at_a, row.at_b), row.fate)).collect();
    page.push_str(
        "<section><h2>Operations of a step, aligned by place</h2><p>Kernels and copies in the order of their launches, \
         each as wide as it is long on average; pauses are left out. Joined: in both steps. The pointer shows names and \
         times.</p>\n<p class=\"fates\">",
    );
    for (class, sign, what) in [SAME, SLOWER, FASTER, REMOVED, ADDED] {
        let _ = write!(page, "<span><i class=\"r-box r-{class}\"></i> {sign}{what}</span> ");
    }
    page.push_str(
        "</p>\n<svg class=\"ribbons\" role=\"img\" aria-label=\"Operations of a step of A and B, aligned\">\
         <svg y=\"50\" width=\"100%\" height=\"60\" viewBox=\"0 0 100 60\" preserveAspectRatio=\"none\">",
    );
    for &(i, j) in &pairs {
        let (was, is) = (row_a.nanos(i), row_b.nanos(j));
        let change = match fates.get(&(i, j)) {
            Some(Fate::Slower) => SLOWER,
            Some(Fate::Faster) => FASTER,
            _ => SAME,
        };
        (row_a.changes[i], row_b.changes[j]) = (change, change);
        let [a0, a1] = [row_a.edges[i], row_a.edges[i + 1]].map(x);
        let [b0, b1] = [row_b.edges[j], row_b.edges[j + 1]].map(x);
        let _ = write!(
            page,
            "<path class=\"r-{}\" d=\"M{a0:.3} 0L{a1:.3} 0L{b1:.3} 60L{b0:.3} 60Z\"><title>{}: {} -> {}, {}</title></path>",
            change.0,
            escaped(&name(a, i)),
            duration(was as u64),
            duration(is as u64),
            change.2,
        );
    }
    page.push_str("</svg>");
    for (title, row, top) in [("A", &row_a, 20), ("B", &row_b, 110)] {
        let label = if top == 20 { 14 } else { 156 };
        let _ = write!(page, "<text x=\"0\" y=\"{label}\">{title}: {}</text>", duration(end(row) as u64));
        row.write(page, top, x);
    }
    page.push_str("</svg></section>\n");
}

/// Appends the operations of a step by name: how many there are, and how long they take together.
pub(super) fn by_name(page: &mut String, a: &Sequence, b: &Sequence) {
    let mut rows: BTreeMap<String, [(u64, f64); 2]> = BTreeMap::new();
    for (run, sequence) in [a, b].into_iter().enumerate() {
        for (place, mean) in means(sequence).enumerate() {
            let (count, nanos) = &mut rows.entry(name(sequence, place)).or_default()[run];
            *count += 1;
            *nanos += mean;
        }
    }
    let change = |[a, b]: &[(u64, f64); 2]| (b.1 - a.1).round() as i64;
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(change(row).unsigned_abs()));
    let mut table = Table::new(BY_NAME);
    for (name, row) in rows.iter().take(ROWS) {
        let [(count_a, nanos_a), (count_b, nanos_b)] = row;
        let [in_a, in_b] = [nanos_a, nanos_b].map(|nanos| duration(nanos.round() as u64));
        table.row(&[name, count_a, count_b, &in_a, &in_b, &signed(change(row))]);
    }
    let more = match rows.len().saturating_sub(ROWS) {
        0 => "\n".to_owned(),
        more => format!("\n<p>{more} more names changed less.</p>\n"),
    };
    let title = "Kernels and copies in one step";
    let (a, b) = (a.steps, b.steps);
    let of = format!("<h2>{title}</h2><p>Of the steps that launch exactly this: {a} of A, {b} of B.</p>");
    table.write_wide(page, &of, title, &more);
}
