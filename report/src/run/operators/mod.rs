//! A framework's operators: calls, time on the host and of their device work, memory and floating point operations.
//!
//! [`Operators`] has the rows of what was recorded, [`RecordedOperators`]. The sums and their definitions are in
//! `profiler_core::operators`.

mod flops;
pub(crate) mod text;

use std::cmp::Reverse;
use std::hash::BuildHasher as _;

use gpuwhy_trace::named;
use gpuwhy_trace::record::Device;
use profiler_core::attribution::template;
use profiler_core::operators::{OperatorPaths, Span};
use profiler_core::sorting::SortRows as _;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

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
/// Maximum number of distinct names, of lists of shapes, of places, and of operators with these and their operations.
const LIMIT: usize = 65_536;
/// Maximum length of all texts of one kind, bytes: a list of tensors may have a thousand shapes.
const TEXT_LIMIT: usize = 16 << 20;
/// Texts of hashes that follow each other, beyond which a further one is not kept: a file may have any number of them.
const CHAIN_LIMIT: u64 = 64;
/// What the names beyond a limit become.
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
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum OperatorSource: name {
        /// Ranges of PyTorch (`gpuwhy run --pytorch`, `emit_nvtx`).
        #[default]
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
    /// Nodes of the backward pass whose forward operator is unknown; 0 unless rows are by module or line.
    pub unjoined: u64,
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
    /// Floating point operations; `None` if the operator has no formula, its inputs were not recorded, or there are too
    /// many distinct ones.
    pub flops: Option<u64>,
    /// Part of the device's peak for its products' type that `flops` in `device_ns` are, 0 to 1; `None` if unknown.
    pub peak_share: Option<f64>,
    /// [`type_flags`] of the kernels in `device_ns`.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) types: u8,
}

impl OperatorRow {
    /// What tells it apart from other rows.
    fn about(&self) -> (&str, &str, &str) {
        (&self.name, &self.place, &self.shapes)
    }

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

/// Distinct texts, by number. The first one stands for all beyond the limits.
#[derive(Debug)]
struct Texts {
    all: String,
    ends: Vec<u32>,
    known: FxHashMap<u64, u32>,
}

impl Texts {
    fn new(first: &str) -> Self {
        let mut new = Self { all: String::new(), ends: Vec::new(), known: FxHashMap::default() };
        new.number(first);
        new
    }

    fn text(&self, number: u32) -> &str {
        let at = number as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[start as usize..self.ends[at] as usize]
    }

    /// Its number, or the hash that a new one gets: the first free one.
    fn find(&self, text: &str) -> Result<u32, u64> {
        let first = FxBuildHasher.hash_one(text);
        for hash in (0..CHAIN_LIMIT).map(|step| first.wrapping_add(step)) {
            let Some(&number) = self.known.get(&hash) else { return Err(hash) };
            if self.text(number) == text {
                return Ok(number);
            }
        }
        Ok(0)
    }

    fn number(&mut self, text: &str) -> u32 {
        let (new, length) = (self.ends.len(), self.all.len() + text.len());
        self.find(text).unwrap_or_else(|hash| {
            if new >= LIMIT || length > TEXT_LIMIT {
                return 0;
            }
            self.all.push_str(text);
            self.ends.push(length as u32);
            self.known.insert(hash, new as u32);
            new as u32
        })
    }
}

/// What was recorded of the operators of a process.
#[derive(Debug)]
pub struct RecordedOperators {
    /// What a row is about.
    pub by: OperatorsBy,
    /// Where they are from.
    pub source: OperatorSource,
    /// Their sums.
    pub paths: OperatorPaths,
    /// Time of all device work, nanoseconds.
    pub device_ns: u64,
    /// The part of it launched outside of operators.
    pub outside_ns: u64,
    /// True if allocations were recorded.
    pub has_memory: bool,
    names: Texts,
    shapes: Texts,
    places: Texts,
    /// Name, shapes and operations of a call.
    operators: Vec<(u32, u32, Option<u64>)>,
    known: FxHashMap<(u32, u32, Option<u64>), u32>,
    /// Names of operators of whose calls some lost their operations.
    without_flops: FxHashSet<u32>,
}

impl RecordedOperators {
    /// None yet.
    #[must_use]
    pub fn new(by: OperatorsBy, source: OperatorSource) -> Self {
        Self {
            by,
            source,
            paths: OperatorPaths::default(),
            device_ns: 0,
            outside_ns: 0,
            has_memory: false,
            names: Texts::new(FURTHER),
            shapes: Texts::new(""),
            places: Texts::new(""),
            operators: Vec::new(),
            known: FxHashMap::default(),
            without_flops: FxHashSet::default(),
        }
    }

    /// Number of the operator of this name with inputs of these `shapes` and `values`, as texts of lists; both may be
    /// empty. `None` for those that only mark something.
    pub fn operator(&mut self, name: &str, shapes: &str, values: &str) -> Option<u32> {
        let name = if name.starts_with("ProfilerStep#") { "ProfilerStep*" } else { name };
        let number = match self.names.find(name) {
            Ok(known) => known,
            Err(_) if LEFT_OUT.contains(&name) => return None,
            // Names of the program may count: `batch #7`.
            Err(_) => self.names.number(template(name).as_deref().unwrap_or(name)),
        };
        let flops = flops::flops(name, shapes, values);
        let shapes = if self.by == OperatorsBy::Shapes { self.shapes.number(shapes) } else { 0 };
        let mut operator = (number, shapes, flops);
        if self.operators.len() >= LIMIT && !self.known.contains_key(&operator) {
            operator = (number, 0, None);
            if flops.is_some() {
                self.without_flops.insert(number);
            }
        }
        Some(*self.known.entry(operator).or_insert_with(|| {
            self.operators.push(operator);
            self.operators.len() as u32 - 1
        }))
    }

    /// What begins with a call of the operator of this number: the span and its operations.
    #[must_use]
    pub fn call(&self, number: u32) -> (Span, Option<u64>) {
        let (name, shapes, flops) = self.operators[number as usize];
        (Span::Operator { name, shapes }, flops)
    }

    /// Number of a module or a function around operators.
    pub fn place(&mut self, text: &str) -> u32 {
        self.places.number(text)
    }

    /// The rows. `device`: the one that ran; `None` if they differ.
    #[must_use]
    pub fn rows(self, device: Option<&Device>) -> Operators {
        let peaks = device.and_then(|device| {
            let mut peaks = Peaks::of(device)?;
            peaks.clock_hz = highest_clock(device)?;
            Some(peaks)
        });
        let mut rows: Vec<OperatorRow> = Vec::new();
        let mut known = FxHashMap::default();
        let Self { by, source, device_ns, outside_ns, .. } = self;
        let (beyond, unjoined) = (self.paths.beyond(), self.paths.unjoined());
        for path in self.paths.finish() {
            let Span::Operator { name, shapes } = path.span else { continue };
            if path.calls == 0 && path.device_ns == 0 {
                continue;
            }
            let at = *known.entry((name, shapes, path.place)).or_insert_with(|| {
                rows.push(OperatorRow {
                    name: self.names.text(name).to_owned(),
                    shapes: self.shapes.text(shapes).to_owned(),
                    place: self.places.text(path.place).to_owned(),
                    ..OperatorRow::default()
                });
                rows.len() - 1
            });
            rows[at].add(&OperatorRow {
                calls: path.calls,
                host_ns: path.host_ns,
                own_host_ns: path.own_host_ns,
                device_ns: path.device_ns,
                own_device_ns: path.own_device_ns,
                memory_bytes: self.has_memory.then_some(path.memory_bytes),
                flops: path.flops.filter(|_| !self.without_flops.contains(&name)),
                types: path.flags,
                ..OperatorRow::default()
            });
        }
        Operators { source, by, device_ns, outside_ns, beyond, unjoined, rows, peaks, is_pytorch: false }.finished()
    }
}

impl Operators {
    /// Rows by shapes as rows by operator; itself for anything else.
    #[must_use]
    pub fn regrouped(&self, by: OperatorsBy) -> Self {
        if (self.by, by) != (OperatorsBy::Shapes, OperatorsBy::Operator) {
            return self.clone();
        }
        let rows = self.rows.iter().map(|row| OperatorRow { shapes: String::new(), ..row.clone() });
        Self { by, rows: rows.collect(), ..*self }.finished()
    }

    /// Adds up the rows about the same, and sorts them.
    pub(crate) fn finished(mut self) -> Self {
        self.rows.sort_rows_by(|a, b| a.about().cmp(&b.about()));
        self.rows.dedup_by(|more, sum| {
            let is_same = more.about() == sum.about();
            if is_same {
                sum.add(more);
            }
            is_same
        });
        for row in &mut self.rows {
            row.peak_share = self.peaks.and_then(|peaks| row.share_of(&peaks));
        }
        self.rows.sort_rows_by_key(|row| Reverse((row.own_device_ns, row.own_host_ns)));
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
    use gpuwhy_trace::record::ThreadId;

    use super::*;

    #[test]
    fn distinct_names_and_shapes_are_bounded() {
        let mut recorded = RecordedOperators::new(OperatorsBy::Shapes, OperatorSource::Ranges);
        let first = recorded.operator("step #1", "", "");
        assert_eq!(recorded.operator("step #2", "", ""), first);
        let mut of_size = |size: usize| {
            let number = recorded.operator("aten::mm", &format!("[[{size}, 1], [1, 1]]"), "").unwrap();
            (number, recorded.call(number))
        };
        let known: Vec<_> = (1..LIMIT).map(&mut of_size).collect();
        let beyond = of_size(LIMIT);
        assert_eq!(of_size(LIMIT + 1), beyond, "without shapes");
        assert_eq!((of_size(1), known[1].1.1), (known[0], Some(4)), "known ones stay");
        let without = recorded.operator("aten::mm", "", "").unwrap();
        assert_eq!(beyond.1, recorded.call(without));
        for number in 0..LIMIT {
            recorded.operator(&format!("{number}.f"), "", "");
        }
        assert_eq!(recorded.operator("new", "[[1]]", ""), recorded.operator(FURTHER, "", ""));
        assert!(recorded.operators.len() <= 2 * LIMIT);
        for (number, span) in [known[0], beyond] {
            recorded.paths.begin(ThreadId(1), (number.into(), u64::MAX), span.0, span.1);
            recorded.paths.end(ThreadId(1), number.into());
        }
        let long = "x".repeat(TEXT_LIMIT - recorded.names.all.len());
        let mut texts = Texts::new("");
        assert_eq!([texts.number("a"), texts.number(&long), texts.number(&"x".repeat(TEXT_LIMIT))], [1, 2, 0]);
        assert_eq!((texts.text(1), texts.text(2) == long), ("a", true));
        let rows = recorded.rows(None).rows;
        let flops: Vec<_> = rows.iter().map(|row| (&*row.name, row.shapes.is_empty(), row.flops)).collect();
        assert!(flops.contains(&("aten::mm", true, None)), "{flops:?}");
        assert!(flops.contains(&("aten::mm", false, None)), "the sum of both would be too low: {flops:?}");
    }

    #[test]
    fn texts_of_one_hash_are_bounded() {
        let mut texts = Texts::new("");
        let hash = FxBuildHasher.hash_one("last");
        texts.known.extend((0..CHAIN_LIMIT - 1).map(|step| (hash.wrapping_add(step), 0)));
        assert_eq!([texts.number("last"), texts.number("last")], [1, 1]);
        let hash = FxBuildHasher.hash_one("beyond");
        texts.known.extend((0..CHAIN_LIMIT).map(|step| (hash.wrapping_add(step), 0)));
        assert_eq!((texts.number("beyond"), texts.ends.len()), (0, 2));
    }
}
