//! Cost of the causes of a run, and savings by its fixes, in money per day.
//!
//! A GPU costs the same at work and idle, so the cost of a cause is its share of the time. A fix that speeds
//! a program up by a factor `s` does the same work in `1/s` of the time, and saves `1 - 1/s` of the cost.
//! Both assume a program that runs all day as it did in this run.

use profiler_core::leaf::Cause;
use profiler_core::sorting::SortRows as _;

use crate::run::Report;
use crate::text_format::{Page, Style, wrapped};
use crate::words;

/// Hours per day.
const HOURS: f64 = 24.0;
/// Causes below this share of the cost are omitted from the text.
const SMALL: f64 = 0.005;

/// Cost of a run in money.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunCost {
    /// Cost of all GPUs of the run per day.
    pub a_day: f64,
    /// Cost of each cause per day, the largest first.
    pub causes: Vec<(Cause, f64)>,
    /// Savings per day by the fixes of the plan, each including those before it.
    pub fixes: Vec<Saving>,
}

/// Savings per day by a fix, for the same work.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Saving {
    /// Recommended change.
    pub action: String,
    /// Expected savings per day.
    pub a_day: f64,
    /// Savings at the ends of the gain's interval.
    pub interval: (f64, f64),
}

/// Returns the cost of the run, at `per_hour` for each GPU and hour.
pub(super) fn priced(report: &Report, per_hour: f64) -> RunCost {
    let each = per_hour * HOURS;
    let a_day = each * report.devices.len() as f64;
    let cost = |cause| report.devices.iter().map(|device| report.share_of(device, cause) * each).sum::<f64>();
    let mut causes: Vec<_> = Cause::ALL.into_iter().map(|cause| (cause, cost(cause))).collect();
    causes.retain(|&(_, cost)| cost > 0.0);
    causes.sort_rows_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let saved = |speedup: f64| a_day * (1.0 - 1.0 / speedup.max(1.0));
    let fixes = report.bottleneck.plan.iter().map(|fix| Saving {
        action: fix.action.clone(),
        a_day: saved(fix.speedup),
        interval: (saved(fix.interval.0), saved(fix.interval.1)),
    });
    RunCost { a_day, causes, fixes: fixes.collect() }
}

/// Formats [`priced`] in sentences; `unit` is the currency, which may be empty.
pub(super) fn price_text(report: &Report, per_hour: f64, unit: &str, style: Style) -> String {
    let mut out = Page::new(style);
    let priced = priced(report, per_hour);
    let money = |amount: f64| format!("{amount:.2}{}{unit}", if unit.is_empty() { "" } else { " " });
    let gpus = match report.devices.len() {
        1 => "One GPU".to_owned(),
        count => format!("{count} GPUs"),
    };
    let small = priced.a_day * SMALL;
    let shown = priced.causes.iter().filter(|&&(_, cost)| cost >= small);
    let causes: Vec<_> = shown.map(|&(cause, cost)| format!("{} {}", words::spent(cause), money(cost))).collect();
    let by = if causes.is_empty() { String::new() } else { format!(": {}", causes.join(", ")) };
    let text = format!("{gpus} at {} an hour: {} a day{by}.", money(per_hour), money(priced.a_day));
    wrapped(&mut out, "Price: ", &text);
    for (index, fix) in priced.fixes.iter().enumerate() {
        let with = if index == 0 { "saves" } else { "saves, with those before," };
        let (low, high) = (money(fix.interval.0), money(fix.interval.1));
        let text = format!("{with} about {} a day for the same work ({low} to {high}).", money(fix.a_day));
        wrapped(&mut out, &format!("Fix {} ", index + 1), &text);
    }
    out.into_text()
}
