//! A framework's operators: calls, time on the host and of their device work, memory and floating point operations.
//!
//! [`Operators`] has the rows, [`OperatorNames`] what the records of them refer to. The sums and their definitions are
//! in `profiler_core::operators`.

mod flops;
pub(crate) mod text;

use std::sync::Arc;

use gpuwhy_trace::named;
use gpuwhy_trace::record::Device;
use profiler_core::attribution::template;
use profiler_core::operators::{OperatorPaths, Span};
use profiler_core::sorting::SortRows as _;
use rustc_hash::FxHashMap;

use crate::kernels::{DataType, Peaks};
use crate::run::remedies::product_types;

/// Operators that PyTorch's `key_averages()` leaves out (`_filter_name` in `torch/autograd/profiler_util.py`).
const LEFT_OUT: [&str; 6] = [
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
];
/// Maximum number of distinct operators with shapes, and of modules or lines.
const NAME_LIMIT: usize = 65_536;
/// Maximum number with those whose shapes are left out. All further ones are [`FURTHER`].
const NAME_LIMIT_WITHOUT_SHAPES: usize = 2 * NAME_LIMIT;
const FURTHER: &str = "<one of more names>";

named! {
    /// What a row of operators is about.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum OperatorsBy: name {
        /// An operator.
        #[default]
        Operator "operator",
        /// An operator with inputs of the same shapes.
        Shapes "shapes",
        /// An operator in a module.
        Module "module",
        /// An operator called by a function of the program.
        Line "line",
    }
}

named! {
    /// Where the operators are from.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum OperatorSource: name {
        /// Ranges of PyTorch (`gpuwhy run --pytorch`, `emit_nvtx`).
        Ranges "ranges",
        /// A trace of `torch.profiler`.
        TorchProfiler "torch_profiler",
        /// The names of kernels, and the places of their launches: a guess.
        Kernels "kernels",
    }
}

/// Operators of a process.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Operators {
    /// Where they are from.
    pub source: OperatorSource,
    /// What a row is about.
    pub by: OperatorsBy,
    /// Time of all device work, of guesses that of kernels, nanoseconds.
    pub device_ns: u64,
    /// The part of it launched outside of operators.
    pub outside_ns: u64,
    /// Operators that began beyond the limit of distinct paths; their time is that of the enclosing ones.
    pub beyond: u64,
    /// The rows with the most own device time first, then those with the most own host time.
    pub rows: Vec<OperatorRow>,
    /// Peak rates of the device at its highest clock.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) peaks: Option<Peaks>,
    /// True if the report has kernels of PyTorch; of guesses only.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) is_pytorch: bool,
}

/// Sums of the calls of an operator. Times are nanoseconds; those of an operator in one of its name count twice.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OperatorRow {
    /// Name.
    pub name: String,
    /// Shapes of its inputs: `[[2, 3], []]`; empty unless rows are by shapes.
    pub shapes: String,
    /// The innermost module or function around it; empty unless rows are by these.
    pub place: String,
    /// Calls; of guesses the kernels, 0 if unknown.
    pub calls: u64,
    /// Time on the host; 0 for guesses.
    pub host_ns: u64,
    /// The part of it outside operators and CUDA calls directly inside.
    pub own_host_ns: u64,
    /// Time of the device work that it and operators inside launched.
    pub device_ns: u64,
    /// The part of it that no operator inside launched.
    pub own_device_ns: u64,
    /// Device memory allocated in it, less what was freed, bytes; `None` if that was not recorded.
    pub memory_bytes: Option<i64>,
    /// Floating point operations; `None` if the operator has no formula or its inputs were not recorded.
    pub flops: Option<u64>,
    /// Part of the device's peak for its products' type that `flops` in `device_ns` are, 0 to 1; `None` if unknown.
    pub peak_share: Option<f64>,
    /// [`type_flags`] of the kernels in `device_ns`.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) types: u8,
}

impl OperatorRow {
    /// Adds the sums of another row.
    fn add(&mut self, of: &Self) {
        for (sum, more) in [
            (&mut self.calls, of.calls),
            (&mut self.host_ns, of.host_ns),
            (&mut self.own_host_ns, of.own_host_ns),
            (&mut self.device_ns, of.device_ns),
            (&mut self.own_device_ns, of.own_device_ns),
        ] {
            *sum = sum.saturating_add(more);
        }
        let memory = [self.memory_bytes, of.memory_bytes].into_iter().flatten();
        self.memory_bytes = memory.reduce(i64::saturating_add);
        self.flops = [self.flops, of.flops].into_iter().flatten().reduce(u64::saturating_add);
        self.types |= of.types;
    }

    /// Above the peak, the types of the products were not recognized.
    fn share_of(&self, peaks: &Peaks) -> Option<f64> {
        let peak = peaks.operations_per_second(product_type(self.types)?, peaks.clock_hz)?;
        let share = self.flops? as f64 / (self.device_ns as f64 * 1e-9) / peak;
        (share <= 1.0).then_some(share)
    }
}

/// Distinct texts, by number.
#[derive(Debug, Default)]
struct Texts {
    texts: Vec<Arc<str>>,
    known: FxHashMap<Arc<str>, u32>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u32 {
        self.known.get(text).copied().unwrap_or_else(|| {
            let (new, number) = (Arc::<str>::from(text), self.texts.len() as u32);
            self.texts.push(Arc::clone(&new));
            self.known.insert(new, number);
            number
        })
    }
}

/// Names of operators, and of the modules and functions around them, by the numbers of their [`Span`]s.
#[derive(Debug, Default)]
pub struct OperatorNames {
    /// Shapes and values after the name.
    keys: Texts,
    /// Of each key the number of its name, and the operations.
    operators: Vec<(u32, Option<u64>)>,
    names: Texts,
    places: Texts,
    key: String,
}

impl OperatorNames {
    /// The operator of this name with inputs of these `shapes` and `values`, as texts of lists; both may be empty.
    /// `None` for those that only mark something.
    pub fn operator(&mut self, name: &str, shapes: &str, values: &str) -> Option<Span> {
        let name = if name.starts_with("ProfilerStep#") { "ProfilerStep*" } else { name };
        // Only the formula of convolutions needs values.
        let values = if name == "aten::conv2d" { values } else { "" };
        self.key.clear();
        self.key.extend([name, "\0", shapes, "\0", values]);
        if let Some(&known) = self.keys.known.get(&*self.key) {
            return Some(self.span(known));
        }
        if LEFT_OUT.contains(&name) {
            return None;
        }
        // Names of the program may count: `batch #7`.
        if let Some(name) = template(name) {
            return self.operator(&name, shapes, values);
        }
        match self.operators.len() {
            NAME_LIMIT.. if shapes.len() + values.len() > 0 => return self.operator(name, "", ""),
            NAME_LIMIT_WITHOUT_SHAPES.. if name != FURTHER => return self.operator(FURTHER, "", ""),
            _ => {}
        }
        self.operators.push((self.names.number(name), flops::flops(name, shapes, values)));
        let number = self.keys.number(&self.key);
        Some(self.span(number))
    }

    /// The operator of this number.
    #[must_use]
    pub fn span(&self, number: u32) -> Span {
        Span::Operator { number, name: self.operators[number as usize].0 }
    }

    /// A module or a function around operators.
    pub fn around(&mut self, place: &str) -> Span {
        let place = if self.places.texts.len() < NAME_LIMIT { place } else { "" };
        Span::Around(self.places.number(place))
    }

    fn shapes(&self, number: u32) -> &str {
        let (name, _) = self.operators[number as usize];
        let rest = &self.keys.texts[number as usize][self.names.texts[name as usize].len() + 1..];
        rest.split('\0').next().unwrap_or_default()
    }
}

/// What was recorded of the operators of a process.
#[derive(Clone, Copy, Debug)]
pub struct RecordedOperators<'a> {
    /// Their sums.
    pub paths: &'a OperatorPaths,
    /// Their names.
    pub names: &'a OperatorNames,
    /// Where they are from.
    pub source: OperatorSource,
    /// Time of all device work, nanoseconds.
    pub device_ns: u64,
    /// The part of it launched outside of operators.
    pub outside_ns: u64,
    /// True if allocations were recorded.
    pub has_memory: bool,
    /// The device that ran; `None` if they differ.
    pub device: Option<&'a Device>,
}

impl Operators {
    /// Rows of what was recorded.
    #[must_use]
    pub fn of(recorded: &RecordedOperators<'_>, by: OperatorsBy) -> Self {
        let RecordedOperators { paths, names, source, device_ns, outside_ns, has_memory, device } = *recorded;
        let peaks = device.and_then(|device| {
            let mut peaks = Peaks::of(device)?;
            peaks.clock_hz = highest_clock(device)?;
            Some(peaks)
        });
        let mut rows: Vec<OperatorRow> = Vec::new();
        let mut known = FxHashMap::default();
        for (path, place, inside) in paths.paths() {
            let Span::Operator { number, .. } = path.span else { continue };
            if path.calls == 0 && inside.device_ns == 0 {
                continue;
            }
            let (name, flops) = names.operators[number as usize];
            let shapes = if by == OperatorsBy::Shapes { names.shapes(number) } else { "" };
            let place = place.filter(|_| matches!(by, OperatorsBy::Module | OperatorsBy::Line));
            let at = *known.entry((name, shapes, place)).or_insert_with(|| {
                let name = names.names.texts[name as usize].to_string();
                let place = place.map_or("", |place| &names.places.texts[place as usize]).to_owned();
                rows.push(OperatorRow { name, place, shapes: shapes.to_owned(), ..OperatorRow::default() });
                rows.len() - 1
            });
            rows[at].add(&OperatorRow {
                calls: path.calls,
                host_ns: path.host_ns,
                own_host_ns: path.own_host_ns,
                device_ns: inside.device_ns,
                own_device_ns: path.device_ns,
                memory_bytes: has_memory.then_some(inside.memory_bytes),
                flops: flops.map(|flops| flops.saturating_mul(path.calls)),
                types: inside.flags,
                ..OperatorRow::default()
            });
        }
        Self { source, by, device_ns, outside_ns, beyond: paths.beyond(), rows, peaks, is_pytorch: false }.finished()
    }

    /// Rows by shapes as rows by operator; itself for anything else.
    #[must_use]
    pub fn regrouped(&self, by: OperatorsBy) -> Self {
        if (self.by, by) != (OperatorsBy::Shapes, OperatorsBy::Operator) {
            return self.clone();
        }
        let mut rows: FxHashMap<&str, OperatorRow> = FxHashMap::default();
        for of in &self.rows {
            let new = || OperatorRow { name: of.name.clone(), ..OperatorRow::default() };
            rows.entry(&of.name).or_insert_with(new).add(of);
        }
        Self { by, rows: rows.into_values().collect(), ..*self }.finished()
    }

    pub(crate) fn finished(mut self) -> Self {
        for row in &mut self.rows {
            row.peak_share = self.peaks.and_then(|peaks| row.share_of(&peaks));
        }
        self.rows.sort_rows_by(|a, b| {
            (b.own_device_ns, b.own_host_ns)
                .cmp(&(a.own_device_ns, a.own_host_ns))
                .then_with(|| (&a.name, &a.place, &a.shapes).cmp(&(&b.name, &b.place, &b.shapes)))
        });
        self
    }
}

/// Highest clock, Hz. Traces of `torch.profiler` lack it; there it is that of NVIDIA's data sheet, by product name.
fn highest_clock(device: &Device) -> Option<f64> {
    let listed = || CLOCKS_KHZ.into_iter().find(|(name, _)| device.name.contains(name)).map(|(_, clock)| clock);
    let clock = Some(device.core_clock_khz).filter(|&clock| clock > 0).or_else(listed)?;
    Some(f64::from(clock) * 1e3)
}

const CLOCKS_KHZ: [(&str, u32); 5] =
    [("A100", 1_410_000), ("H100 80GB HBM3", 1_980_000), ("H200", 1_980_000), ("L40S", 2_520_000), ("L4", 2_040_000)];

/// Types of the products of a kernel of this name, as flags of device work.
#[must_use]
pub fn type_flags(kernel: &str) -> u8 {
    let types = product_types(kernel);
    TYPES.iter().enumerate().map(|(bit, of)| u8::from(types.contains(of)) << bit).sum()
}

const TYPES: [DataType; 5] = [DataType::Fp32, DataType::Tf32, DataType::Fp16, DataType::Fp8, DataType::TensorFp64];

/// The type, if there is only one.
fn product_type(flags: u8) -> Option<DataType> {
    (flags.count_ones() == 1).then(|| TYPES.get(flags.trailing_zeros() as usize).copied())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_names_and_shapes_are_bounded() {
        let mut names = OperatorNames::default();
        let first = names.operator("step #1", "", "");
        assert_eq!(names.operator("step #2", "", ""), first);
        let with_shapes =
            |names: &mut OperatorNames, size: usize| names.operator("aten::mm", &format!("[[{size}]]"), "");
        for size in 0..NAME_LIMIT {
            with_shapes(&mut names, size);
        }
        let without = with_shapes(&mut names, NAME_LIMIT);
        assert_eq!((with_shapes(&mut names, NAME_LIMIT + 1), names.operator("aten::mm", "", "")), (without, without));
        for number in 0..NAME_LIMIT_WITHOUT_SHAPES {
            names.operator(&format!("{number}.f"), "", "");
        }
        assert_eq!(names.operator("new", "[[1]]", ""), names.operator(FURTHER, "", ""));
        assert_eq!(names.operators.len(), NAME_LIMIT_WITHOUT_SHAPES + 1);
        assert_eq!(with_shapes(&mut names, 0), Some(names.span(1)), "known ones stay");
    }
}
