//! A roofline as a picture (SVG), on logarithmic axes.

use std::fmt::Write as _;

use super::{KernelsReport, Level, Point, Roofline};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 50.0;
const TOP: f64 = 20.0;
const RIGHT: f64 = 20.0;

/// Plot rectangle of the axes, as powers of ten.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn place(&self, intensity: f64, performance: f64) -> (f64, f64) {
        let along = |value: f64, (from, to): (f64, f64)| (value.log10() - from) / (to - from);
        let x = LEFT + along(intensity, self.x) * (WIDTH - LEFT - RIGHT);
        let y = HEIGHT - BOTTOM - along(performance, self.y) * (HEIGHT - BOTTOM - TOP);
        (x, y)
    }
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// Smallest range of full decades that contains `values`.
fn decades(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let logs = values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10);
    let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| (low.min(log), high.max(log)));
    (low <= high).then(|| (low.floor(), (high.ceil()).max(low.floor() + 1.0)))
}

/// Draws all measured kernels with their rooflines; `None` without a point. Points show the data type with
/// the most work of each kernel, by memory level.
pub fn svg(report: &KernelsReport) -> Option<String> {
    let drawn: Vec<(usize, &Roofline, &Point)> = report
        .measured
        .iter()
        .enumerate()
        .flat_map(|(number, view)| {
            let first = view.roofline.points.first().map(|point| point.of);
            let points = view.roofline.points.iter().filter(move |point| Some(point.of) == first);
            points.map(move |point| (number + 1, &view.roofline, point))
        })
        .collect();
    let roofline = drawn.first()?.1;
    let ridges =
        roofline.peaks.iter().flat_map(|(_, peak)| roofline.bandwidths.iter().map(move |(_, rate)| peak / rate));
    let x = decades(drawn.iter().map(|(_, _, point)| point.intensity).chain(ridges))?;
    let tops = drawn.iter().flat_map(|(_, roofline, _)| roofline.peaks.iter().map(|&(_, peak)| peak));
    let y = decades(drawn.iter().map(|(_, _, point)| point.performance).chain(tops))?;
    let axes = Axes { x, y };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    grid(&mut out, &axes);
    roofs(&mut out, &axes, &drawn);
    for (number, _, point) in &drawn {
        let (x, y) = axes.place(point.intensity, point.performance);
        let color = color(point.level);
        let name = escaped(&report.measured[number - 1].name);
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{color}\"><title>{name} ({}, {})</title></circle>\
             <text x=\"{:.1}\" y=\"{:.1}\">{number}</text>",
            point.of.name(),
            point.level.name(),
            x + 6.0,
            y - 6.0
        );
    }
    out.push_str("</svg>\n");
    Some(out)
}

fn color(level: Level) -> &'static str {
    match level {
        Level::Dram => "#c0392b",
        Level::L2 => "#2471a3",
        Level::L1 => "#1e8449",
    }
}

fn grid(out: &mut String, axes: &Axes) {
    for decade in axes.x.0 as i32..=axes.x.1 as i32 {
        let (x, _) = axes.place(10f64.powi(decade), 10f64.powf(axes.y.0));
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">1e{decade}</text>",
            bottom + 14.0
        );
    }
    for decade in axes.y.0 as i32..=axes.y.1 as i32 {
        let (_, y) = axes.place(10f64.powf(axes.x.0), 10f64.powi(decade));
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">1e{decade}</text>",
            WIDTH - RIGHT,
            LEFT - 5.0,
            y + 4.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">operations for each byte (red: device memory, blue: L2, \
         green: L1)</text>\n<text x=\"14\" y=\"{:.1}\" transform=\"rotate(-90 14 {:.1})\" text-anchor=\"middle\">\
         operations a second</text>",
        WIDTH / 2.0,
        HEIGHT - 12.0,
        HEIGHT / 2.0,
        HEIGHT / 2.0
    );
}

/// Draws the roofline of each data type and level once: that of the first kernel with one.
fn roofs(out: &mut String, axes: &Axes, drawn: &[(usize, &Roofline, &Point)]) {
    let (mut levels, mut types) = (Vec::new(), Vec::new());
    let highest = 10f64.powf(axes.y.1);
    let (first, last) = (10f64.powf(axes.x.0), 10f64.powf(axes.x.1));
    for (_, roofline, _) in drawn {
        let top = roofline.peaks.iter().map(|&(_, peak)| peak).fold(0.0, f64::max);
        for &(level, rate) in &roofline.bandwidths {
            if levels.contains(&level) {
                continue;
            }
            levels.push(level);
            let end = if top > 0.0 { top / rate } else { highest / rate }.min(last);
            let begin = first.max(10f64.powf(axes.y.0) / rate);
            line(out, axes, (begin, begin * rate), (end, end * rate), color(level), level.name());
        }
        for &(of, peak) in &roofline.peaks {
            if types.contains(&of) {
                continue;
            }
            types.push(of);
            let ridge = roofline.bandwidths.iter().map(|&(_, rate)| peak / rate).fold(last, f64::min);
            line(out, axes, (ridge.max(first), peak), (last, peak), "#555555", of.name());
        }
    }
}

fn line(out: &mut String, axes: &Axes, from: (f64, f64), to: (f64, f64), color: &str, name: &str) {
    let ((x1, y1), (x2, y2)) = (axes.place(from.0, from.1), axes.place(to.0, to.1));
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{color}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{color}\">{name}</text>",
        (x1 + x2) / 2.0,
        (y1 + y2) / 2.0 - 4.0
    );
}
