//! Comparison of two runs: the time of a step by cause, and its operations aligned by position. It needs no
//! script.

use std::collections::HashMap;
use std::fmt::Write as _;

use gpuwhy_report::diff::{ChangedPlace, DeviceDiff, Diff, DiffRow, Fate, align};
use gpuwhy_report::run::{Report, Sequence};
use gpuwhy_report::text_format::{Style, duration};
use gpuwhy_report::words;
use profiler_core::attribution::leaf::Leaf;

use super::escape::escaped;
use super::palette::{ROWS, bar, mark};

/// Maximum number of operations drawn per step.
const DRAWN: usize = 4_000;

/// Renders the comparison of `a` and `b` with their names.
pub(crate) fn diff(of: &Diff, (a, b): (&Report, &Report), (name_a, name_b): (&str, &str)) -> String {
    let mut page = String::from("<header>\n");
    let _ =
        writeln!(page, "<p class=\"run\"><span>A: {}</span> <span>B: {}</span></p>", escaped(name_a), escaped(name_b));
    for headline in of.headlines() {
        let _ = writeln!(page, "<h1>{}</h1>", escaped(&headline));
    }
    page.push_str("</header>\n<main>\n");
    for device in &of.devices {
        device_section(&mut page, device);
        let sequence = |report: &Report, id| {
            let device = report.devices.iter().find(|device| device.device.id == id);
            device.and_then(|device| device.sequence.clone())
        };
        if let (Some(a), Some(b)) = (sequence(a, device.ids.0), sequence(b, device.ids.1)) {
            ribbons(&mut page, &a, &b);
        }
        places(&mut page, device);
        rows(&mut page, "Kernels", &device.kernels);
        rows(&mut page, "Copies", &device.copies);
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
    let _ = writeln!(page, "<section><h2>As text</h2><pre>{}</pre></section>\n</main>", lines.join("\n"));
    page
}

fn signed(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "+" };
    format!("{sign}{}", duration(nanos.unsigned_abs()))
}

/// Appends bars on one scale, and a table that sums to the change.
fn device_section(page: &mut String, device: &DeviceDiff) {
    let (a, b) = (&device.a, &device.b);
    let whole = a.unit_ns.max(b.unit_ns);
    let _ = writeln!(page, "<section><h2>GPU {} of A, GPU {} of B: one step by cause</h2>", device.ids.0, device.ids.1);
    for (name, unit) in [("A", a), ("B", b)] {
        let _ = writeln!(page, "<p>{name}: {}</p>", duration(unit.unit_ns));
        bar(page, &unit.leaves, whole, &format!("One step of {name} by cause"));
    }
    page.push_str(
        "<table><caption>Changes by cause; the rows sum to the change of the step</caption><thead><tr><th>Cause</th>\
         <th class=\"n\">A</th><th class=\"n\">B</th><th class=\"n\">Change</th></tr></thead><tbody>\n",
    );
    for &(leaf, change) in &device.leaves {
        leaf_row(page, leaf, [a.leaves[leaf as usize], b.leaves[leaf as usize]], change);
    }
    let _ = writeln!(
        page,
        "</tbody><tfoot><tr><th>Step</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\
         </tfoot></table>",
        duration(a.unit_ns),
        duration(b.unit_ns),
        signed(device.change_ns()),
    );
    if let Some(prediction) = &device.prediction {
        let _ = writeln!(page, "<p>{}</p>", escaped(&prediction.sentences()));
    }
    page.push_str("</section>\n");
}

fn leaf_row(page: &mut String, leaf: Leaf, [a, b]: [u64; 2], change: i64) {
    let cause = leaf.cause();
    let _ = writeln!(
        page,
        "<tr><td><span class=\"mark m-{}\">{}</span> {}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td></tr>",
        cause.name(),
        mark(cause),
        words::cause(leaf),
        duration(a),
        duration(b),
        signed(change),
    );
}

/// Draws the operations of both steps in two rows: operations of both steps are connected, the others are
/// not.
fn ribbons(page: &mut String, a: &Sequence, b: &Sequence) {
    let mut ids: HashMap<&str, u32> = HashMap::new();
    let numbered = |sequence: &Sequence| -> Vec<String> {
        (0..sequence.places.len()).map(|place| sequence.name(place).to_owned()).collect()
    };
    let (names_a, names_b) = (numbered(a), numbered(b));
    let mut number = |name| {
        let next = ids.len() as u32;
        *ids.entry(name).or_insert(next)
    };
    let keys_a: Vec<u32> = names_a.iter().map(|name| number(name.as_str())).collect();
    let keys_b: Vec<u32> = names_b.iter().map(|name| number(name.as_str())).collect();
    let most = keys_a.len().max(keys_b.len());
    let Some(pairs) = align(&keys_a, &keys_b).filter(|_| most <= DRAWN && most > 0) else {
        let _ =
            writeln!(page, "<p>The operations of a step, up to {most}, are too many or too different to be drawn.</p>");
        return;
    };
    let edges = |sequence: &Sequence| -> Vec<f64> {
        let mut at = 0.0;
        let mean = |nanos: u64| nanos as f64 / sequence.steps.max(1) as f64;
        let ends = sequence.places.iter().map(|(_, operation)| {
            at += mean(operation.total_ns);
            at
        });
        std::iter::once(0.0).chain(ends).collect()
    };
    let (edges_a, edges_b) = (edges(a), edges(b));
    let whole = edges_a.last().copied().unwrap_or(0.0).max(edges_b.last().copied().unwrap_or(0.0)).max(1.0);
    let x = |nanos: f64| nanos / whole * 1000.0;
    page.push_str(
        "<section><h2>Operations of a step, aligned by place</h2><p>A above, B below, each as long as its mean. Joined: \
         in both steps. Not joined: added or removed.</p><svg class=\"ribbons\" viewBox=\"0 0 1000 120\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Operations of a step of A and B, aligned\">",
    );
    for &(i, j) in &pairs {
        let [a0, a1] = [x(edges_a[i]), x(edges_a[i + 1])];
        let [b0, b1] = [x(edges_b[j]), x(edges_b[j + 1])];
        let (was, is) = (a1 - a0, b1 - b0);
        let class = if is > was * 1.05 {
            "slower"
        } else if is < was * 0.95 {
            "faster"
        } else {
            "same"
        };
        let _ = write!(
            page,
            "<path class=\"r-{class}\" d=\"M{a0:.2} 30L{a1:.2} 30L{b1:.2} 90L{b0:.2} 90Z\"><title>{}: {} -> {}</title></path>",
            escaped(&names_a[i]),
            duration((edges_a[i + 1] - edges_a[i]) as u64),
            duration((edges_b[j + 1] - edges_b[j]) as u64),
        );
    }
    for (edges, names, top, joined) in [
        (&edges_a, &names_a, 0, pairs.iter().map(|pair| pair.0).collect::<Vec<_>>()),
        (&edges_b, &names_b, 90, pairs.iter().map(|pair| pair.1).collect()),
    ] {
        for (place, edge) in edges.windows(2).enumerate() {
            let alone = joined.binary_search(&place).is_err();
            let class = if alone { "r-alone" } else { "r-box" };
            let _ = write!(
                page,
                "<rect class=\"{class}\" x=\"{:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"30\"><title>{}: {}</title></rect>",
                x(edge[0]),
                (x(edge[1]) - x(edge[0])).max(0.3),
                escaped(&names[place]),
                duration((edge[1] - edge[0]) as u64),
            );
        }
    }
    page.push_str("</svg></section>\n");
}

fn places(page: &mut String, device: &DeviceDiff) {
    let changed: &[ChangedPlace] = match &device.places {
        Ok(places) => &places.changed,
        Err(why) => {
            let _ = writeln!(page, "<p>Operations are not compared by place: {}.</p>", escaped(why));
            return;
        }
    };
    if changed.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>Places of the step that changed</h2><table><thead><tr><th>Operation</th><th>What</th>\
         <th class=\"n\">Place in A</th><th class=\"n\">Place in B</th><th class=\"n\">A</th><th class=\"n\">B</th></tr></thead>\
         <tbody>\n",
    );
    for place in changed.iter().take(ROWS * 2) {
        let fate = match place.fate {
            Fate::Added => "added",
            Fate::Removed => "removed",
            Fate::Slower => "slower",
            Fate::Faster => "faster",
        };
        let _ = writeln!(
            page,
            "<tr><td class=\"name\">{}</td><td>{fate}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escaped(&place.name),
            place.at_a,
            place.at_b,
            duration(place.a_ns as u64),
            duration(place.b_ns as u64),
        );
    }
    page.push_str("</tbody></table></section>\n");
}

fn rows(page: &mut String, title: &str, rows: &[DiffRow]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "<section><h2>{title} in one step</h2><table><thead><tr><th>Name</th><th class=\"n\">Times in A</th>\
         <th class=\"n\">Times in B</th><th class=\"n\">A</th><th class=\"n\">B</th><th class=\"n\">Change</th></tr></thead>\
         <tbody>"
    );
    for row in rows.iter().take(ROWS) {
        let _ = writeln!(
            page,
            "<tr><td class=\"name\">{}</td><td class=\"n\">{:.1}</td><td class=\"n\">{:.1}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escaped(&row.name),
            row.a.per_unit,
            row.b.per_unit,
            duration(row.a.unit_ns as u64),
            duration(row.b.unit_ns as u64),
            signed(row.change_ns() as i64),
        );
    }
    page.push_str("</tbody></table></section>\n");
}
