//! Comparison of the ranks of a job: time by cause, a rank-over-time map, and waiting between ranks. It needs
//! no script.

use std::fmt::Write as _;

use gpuwhy_compare::ranks::RanksReport;
use gpuwhy_report::text_format::{Style, duration};
use gpuwhy_report::words;
use profiler_core::leaf::{Cause, Leaf};

use super::palette::bar;
use super::table::{Table, marked};
use crate::escape::escaped;
use crate::rank_map::RankTime;

/// Maximum number of ranks in the matrix of waits.
const MATRIX: usize = 64;

pub(crate) fn ranks(of: &RanksReport, maps: &[RankTime]) -> String {
    let mut page = String::from("<header>\n");
    let _ = writeln!(
        page,
        "<p class=\"run\"><span>ranks: {}</span> <span>hosts: {}</span></p>",
        of.rows.len(),
        of.clocks.len()
    );
    let headline = match &of.straggler {
        Some(straggler) if straggler.communication.is_some() => {
            format!("Rank {} communicates least: the others wait for it.", of.rows[straggler.row].rank)
        }
        Some(straggler) => format!(
            "{:.0} % of all waiting in collectives is for rank {}.",
            straggler.share * 100.0,
            of.rows[straggler.row].rank
        ),
        None if of.collectives > 0 => "No rank causes more than half of the waiting in collectives.".to_owned(),
        None => "No collective was found on all ranks.".to_owned(),
    };
    let _ = writeln!(page, "<h1>{}</h1>\n</header>\n<main>", escaped(&headline));
    bars(&mut page, of);
    map(&mut page, of, maps);
    matrix(&mut page, of);
    if !of.doubts.is_empty() {
        page.push_str("<section id=\"completeness\"><h2>Not known</h2><ul>\n");
        of.doubts.iter().for_each(|doubt| {
            let _ = writeln!(page, "<li>{}</li>", escaped(doubt));
        });
        page.push_str("</ul></section>\n");
    }
    let text = of.text_within(Style::default());
    let lines: Vec<String> = text.lines().map(escaped).collect();
    let _ = writeln!(page, "<section><h2>As text</h2><pre>{}</pre></section>\n</main>", lines.join("\n"));
    page
}

/// Appends bars for each rank: as measured, and without waiting in collectives.
fn bars(page: &mut String, of: &RanksReport) {
    let whole = of.rows.iter().map(|row| row.window_ns).max().unwrap_or(1);
    let mut table = Table::new("Rank|Time:bars|Run:n|Waited:n|Moving data:n|Others waited for it:n|Bottleneck:html");
    for row in &of.rows {
        let communication = row.leaves[Leaf::Communication as usize];
        let waiting = row.waited_ns.min(communication);
        let mut without = row.leaves;
        without[Leaf::Communication as usize] -= waiting;
        let mut bars = String::new();
        bar(&mut bars, &row.leaves, whole, &format!("Rank {} by cause", row.rank));
        bar(&mut bars, &without, whole, &format!("Rank {} without waiting in collectives", row.rank));
        let [run, waited, moving, awaited] =
            [row.window_ns, row.waited_ns, communication - waiting, row.awaited_ns].map(duration);
        let cause = row.bottleneck.0;
        table.row(&[&row.rank, &bars, &run, &waited, &moving, &awaited, &marked(cause, words::bottleneck(cause))]);
    }
    table.write(
        page,
        "<section><h2>Time of each rank by cause</h2><p>The GPU of a rank that communicates most. The second bar of a rank \
         is what is left of the first if it waited for no other rank in collectives, while nothing but communication ran.\
         </p><table>",
        "</table></section>\n",
    );
}

/// Appends the map of ranks over time, each column stacked by cause, on one clock.
fn map(page: &mut String, of: &RanksReport, maps: &[RankTime]) {
    let spans = maps.iter().filter_map(RankTime::span);
    let Some((first, last)) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else { return };
    let whole = (last - first).max(1) as f64;
    let high = 22 * of.rows.len();
    let _ = write!(
        page,
        "<section><h2>Ranks over time</h2><p>{} from left to right, on the clock of the first host. A row is a rank; each \
         column is stacked by cause and sums exactly.</p><svg class=\"map\" viewBox=\"0 0 1000 {high}\" \
         preserveAspectRatio=\"none\" height=\"{high}\" role=\"img\" aria-label=\"Ranks over time by cause\">",
        duration((last - first).unsigned_abs()),
    );
    for (number, (row, map)) in of.rows.iter().zip(maps).enumerate() {
        for column in map.columns() {
            let x = (column.from - first) as f64 / whole * 1000.0;
            let width = column.nanos as f64 / whole * 1000.0;
            let mut y = (22 * number + 20) as f64;
            for (cause, nanos) in Cause::ALL.into_iter().zip(column.causes) {
                let part = nanos as f64 / column.nanos.max(1) as f64 * 20.0;
                y -= part;
                if nanos > 0 {
                    let class = cause.name();
                    let _ = write!(
                        page,
                        "<rect class=\"f-{class}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{part:.2}\"/>"
                    );
                }
            }
        }
        let _ = write!(page, "<title>ranks from top to bottom, the last is {}</title>", row.rank);
    }
    page.push_str("</svg></section>\n");
}

/// Appends the time that each rank waited for each other one in collectives.
fn matrix(page: &mut String, of: &RanksReport) {
    let most = of.waits.iter().flatten().max().copied().unwrap_or(0);
    if most == 0 || of.rows.len() > MATRIX {
        return;
    }
    page.push_str("<section><h2>Who waited for whom in collectives</h2><table><thead><tr><th>Waited</th>");
    for row in &of.rows {
        let _ = write!(page, "<th class=\"n\">for {}</th>", row.rank);
    }
    page.push_str("</tr></thead><tbody>\n");
    for (row, waits) in of.rows.iter().zip(&of.waits) {
        let _ = write!(page, "<tr><th>{}</th>", row.rank);
        for &nanos in waits {
            let strength = nanos * 4 / most;
            let text = if nanos == 0 { String::new() } else { duration(nanos) };
            let _ = write!(page, "<td class=\"n w-{strength}\">{text}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></section>\n");
}
