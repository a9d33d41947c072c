//! The table of operators, and what it says of its source.

use std::fmt::Write as _;

use gpuwhy_trace::demangle::demangled;

use super::{OperatorRow, OperatorSource, Operators, OperatorsBy};
use crate::library::Library;
use crate::text_format::names::short_name;
use crate::text_format::table::Table;
use crate::text_format::{Page, Style, bytes, counted, duration, percent, shortened, wrapped};

/// Maximum length of a name in a row, and of the shapes after it.
const NAME_WIDTH: usize = 60;
const SHAPES_WIDTH: usize = 80;
/// Parts of the names of PyTorch's kernels that many operators share.
const SHARED: [&str; 10] = [
    "elementwise_kernel",
    "reduce_kernel",
    "ReduceOp",
    "UnaryFunctor",
    "BinaryFunctor",
    "func_wrapper",
    "OpaqueType",
    "multi_tensor",
    "TensorListMetadata",
    "gpu_kernel_impl",
];

/// PyTorch's function that names the work of a kernel, else the library, else the kernel.
pub(crate) fn guess(kernel: &str) -> String {
    let name = demangled(kernel);
    // Of `binary_internal::MulFunctor<float>` the last part.
    let word = |rest: &str| -> String {
        let path: String = rest.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':')).collect();
        path.trim_end_matches(':').rsplit("::").next().unwrap_or_default().to_owned()
    };
    let functions =
        name.split("at::native::").skip(1).map(|rest| word(rest.trim_start_matches("(anonymous namespace)::")));
    let own = functions.filter(|word| !word.is_empty()).find(|word| !SHARED.iter().any(|part| word.contains(part)));
    own.map(|function| format!("at::native::{function}"))
        .or_else(|| Library::of_kernel(&name).map(|library| format!("{} kernels", library.name())))
        .unwrap_or_else(|| short_name(&name, NAME_WIDTH))
}

impl Operators {
    /// The table, with at most `limit` rows.
    #[must_use]
    pub fn table(&self, limit: usize, style: Style) -> String {
        let mut out = Page::new(style);
        let _ = writeln!(out);
        wrapped(&mut out, "Operators: ", &self.about());
        let is_guess = self.source == OperatorSource::Kernels;
        let mut table = Table::new(match is_guess {
            true => "Kernels:8|GPU time:10|GPU:7|Guess",
            false => {
                "Calls:8|CPU self:10|CPU total:10|GPU self:10|GPU:7|GPU total:10|Memory:10|GFLOP:10|Peak:7|Operator"
            }
        });
        for row in self.rows.iter().take(limit) {
            let share = tenths(row.own_device_ns as f64 / self.device_ns.max(1) as f64);
            let [host, own_host, device, own_device] =
                [row.host_ns, row.own_host_ns, row.device_ns, row.own_device_ns].map(duration);
            let calls = if is_guess && row.calls == 0 { "-".to_owned() } else { row.calls.to_string() };
            if is_guess {
                table.row(&[&calls, &own_device, &share, &row.label()]);
                continue;
            }
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let memory = or_none(row.memory());
            let flops = or_none(row.gflop());
            let peak = or_none(row.peak_share.map(tenths));
            table.row(&[&calls, &own_host, &host, &own_device, &share, &device, &memory, &flops, &peak, &row.label()]);
        }
        if !self.rows.is_empty() {
            table.write(&mut out, "\n");
        }
        let more = self.rows.len().saturating_sub(limit);
        if more > 0 {
            let _ = writeln!(out, "... and {} (--full)", counted(more as u64, "more row"));
        }
        out.into_text()
    }

    /// Source of the rows, and what they leave out.
    fn about(&self) -> String {
        let is_guess = self.source == OperatorSource::Kernels;
        let mut text = match self.source {
            OperatorSource::Ranges => {
                "from the NVTX ranges of PyTorch. CPU times contain their cost: steps full of small kernels took 1.2 times \
                 as long, with shapes 1.5 to 1.6 times (measured on an H200)."
            }
            OperatorSource::TorchProfiler => {
                "from torch.profiler. CPU times contain its cost: steps full of small kernels took 1.4 to 1.5 times as long \
                 (measured on an H200)."
            }
            OperatorSource::Kernels if self.rows.is_empty() => "not recorded.",
            OperatorSource::Kernels => "not recorded. These are guesses from the names of kernels.",
        }
        .to_owned();
        if is_guess && self.is_pytorch && self.by != OperatorsBy::Line {
            text.push_str(" gpuwhy run --pytorch autograd-shapes-nvtx records operators.");
        }
        let lacks_places = self.rows.iter().all(|row| row.place.is_empty());
        let missing = match self.by {
            OperatorsBy::Module if lacks_places => {
                Some("module was recorded: torch.profiler does that with with_stack=True")
            }
            OperatorsBy::Line if lacks_places => {
                Some("function was recorded: torch.profiler does that with with_stack=True")
            }
            OperatorsBy::Shapes if self.rows.iter().all(|row| row.shapes.is_empty()) => {
                Some("shape was recorded: --pytorch autograd-shapes-nvtx or record_shapes=True does that")
            }
            _ => None,
        };
        if let Some(missing) = missing.filter(|_| !is_guess || self.is_pytorch) {
            let _ = write!(text, " No {missing}.");
        }
        if self.outside_ns > 0 && !self.rows.is_empty() {
            let share = percent(self.outside_ns as f64 / self.device_ns as f64);
            let _ = write!(text, " {} of GPU time ({share}) belongs to no operator.", duration(self.outside_ns));
        }
        if self.beyond > 0 {
            let _ = write!(text, " Calls without a row of their own: {}.", self.beyond);
        }
        if self.unjoined > 0 && !lacks_places {
            let nodes = counted(self.unjoined, "node");
            let place = if self.by == OperatorsBy::Line { "function" } else { "module" };
            let _ = write!(
                text,
                " {nodes} of the backward pass could not be joined with a forward operator, and so not with its {place}."
            );
        }
        text
    }
}

impl OperatorRow {
    /// The place, the name and the shapes, each shortened.
    #[must_use]
    pub fn label(&self) -> String {
        let place =
            if self.place.is_empty() { String::new() } else { format!("{} / ", shortened(&self.place, NAME_WIDTH)) };
        let shapes =
            if self.shapes.is_empty() { String::new() } else { format!("  {}", shortened(&self.shapes, SHAPES_WIDTH)) };
        format!("{place}{}{shapes}", shortened(&self.name, NAME_WIDTH))
    }

    /// The memory in readable units; `None` if it was not recorded.
    #[must_use]
    pub fn memory(&self) -> Option<String> {
        let sign = if self.memory_bytes? < 0 { "-" } else { "" };
        Some(format!("{sign}{}", bytes(self.memory_bytes?.unsigned_abs())))
    }

    /// The floating point operations in 10^9, with two significant digits if they are few; `None` if unknown.
    #[must_use]
    pub fn gflop(&self) -> Option<String> {
        let gflop = self.flops? as f64 / 1e9;
        let decimals = if gflop > 0.0 && gflop < 0.05 { 1 - gflop.log10().floor() as i32 } else { 1 };
        Some(format!("{gflop:.*}", decimals as usize))
    }
}

/// A percentage in a column, in which small ones count as well.
fn tenths(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_operations_have_two_significant_digits() {
        let of = |flops| OperatorRow { flops, ..OperatorRow::default() }.gflop();
        assert_eq!(of(None), None);
        for (flops, expected) in [
            (0, "0.0"),
            (1, "0.0000000010"),
            (1_234_000, "0.0012"),
            (49_900_000, "0.050"),
            (50_000_000, "0.1"),
            (7_552_892_928, "7.6"),
        ] {
            assert_eq!(of(Some(flops)).as_deref(), Some(expected));
        }
    }

    #[test]
    fn kernels_are_named_by_their_function_or_library() {
        for (kernel, expected) in [
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, \
                 at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 2> >(int)",
                "at::native::MulFunctor",
            ),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::launch_clamp_scalar(\
                 at::TensorIteratorBase&)::{lambda()#1}, at::detail::Array<char*, 2> >(int)",
                "at::native::launch_clamp_scalar",
            ),
            (
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous \
                 namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, \
                 2, 2, 0>, std::plus<float>, float>(int)",
                "at::native::BinaryOpListAlphaFunctor",
            ),
            (
                "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::\
                 CUDAFunctor_add<float> >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)",
                "at::native::CUDAFunctor_add",
            ),
            ("volta_sgemm_64x64_nt", "cuBLAS kernels"),
            ("my_kernel", "my_kernel"),
        ] {
            assert_eq!(guess(kernel), expected, "{kernel}");
        }
    }
}
