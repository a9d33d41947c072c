//! Elements shared by the charts and tables of the static report.

use std::fmt::Write as _;

use gpuwhy_report::text_format::duration;
use gpuwhy_report::words;
use profiler_core::leaf::{Cause, Leaves};

use crate::escape::escaped;

/// Maximum number of kernels, copies, calls and lines in the static tables; the page with scripts shows all.
pub(super) const ROWS: usize = 20;

/// Two letters for a cause: color is never the only mark.
pub(crate) const fn mark(cause: Cause) -> &'static str {
    match cause {
        Cause::DataLoading => "DL",
        Cause::HostCpu => "HC",
        Cause::Copy => "CP",
        Cause::Launch => "LA",
        Cause::GpuCompute => "GC",
        Cause::Sync => "SY",
        Cause::Communication => "CM",
        Cause::Allocator => "AL",
        Cause::KernelBuild => "KB",
        Cause::OtherProcess => "OP",
        Cause::NoWork => "NW",
        Cause::CannotTell => "--",
    }
}

/// A change of a time, with its sign.
pub(super) fn signed(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "+" };
    format!("{sign}{}", duration(nanos.unsigned_abs()))
}

/// Hatch patterns of the causes, for all charts of the page.
pub(crate) fn patterns() -> String {
    let mut svg = String::from("<svg width=\"0\" height=\"0\" aria-hidden=\"true\" class=\"defs\"><defs>");
    for (index, cause) in Cause::ALL.into_iter().enumerate() {
        // Computation is plain; each other cause has lines with a separate direction and distance.
        let lines = match index % 5 {
            0 => "M0 8L8 0",
            1 => "M0 0L8 8",
            2 => "M0 4L8 4",
            3 => "M4 0L4 8",
            _ => "M0 8L8 0M0 0L8 8",
        };
        let size = if index < 5 { 8 } else { 5 };
        let lines = if cause == Cause::GpuCompute { "" } else { lines };
        let _ = write!(
            svg,
            "<pattern id=\"h-{name}\" width=\"{size}\" height=\"{size}\" patternUnits=\"userSpaceOnUse\" \
             viewBox=\"0 0 8 8\"><rect width=\"8\" height=\"8\" class=\"f-{name}\"/><path d=\"{lines}\" \
             class=\"hatch\"/></pattern>",
            name = cause.name(),
        );
    }
    svg.push_str("</defs></svg>");
    svg
}

/// Appends a bar of `leaves`, stacked by cause; its full width is `whole` nanoseconds.
pub(super) fn bar(page: &mut String, leaves: &Leaves, whole: u64, label: &str) {
    let _ = write!(
        page,
        "<svg class=\"bar\" viewBox=\"0 0 1000 40\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        escaped(label)
    );
    let total = leaves.iter().sum::<u64>().max(1) as f64;
    let mut at = 0.0;
    for cause in Cause::ALL {
        let nanos = cause.total(leaves);
        let width = nanos as f64 / whole.max(1) as f64 * 1000.0;
        if nanos > 0 {
            let _ = write!(
                page,
                "<rect x=\"{at:.3}\" y=\"0\" width=\"{width:.3}\" height=\"40\" fill=\"url(#h-{})\"><title>{}: {} \
                 ({:.1} %)</title></rect>",
                cause.name(),
                words::bottleneck(cause),
                duration(nanos),
                nanos as f64 / total * 100.0,
            );
        }
        at += width;
    }
    page.push_str("</svg>\n");
}
