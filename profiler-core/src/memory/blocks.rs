//! Blocks of PyTorch's allocator, from the marks of `gpuwhy run --pytorch memory` (`cli/run/memory.py` writes them).
//!
//! A state has the blocks of a device by class and line. That of the highest peak is kept; when memory runs out, only
//! the sums. At step ends there are the bytes of each line that changed, and their number, because marks may be lost.

use std::collections::BTreeMap;
use std::str::Split;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::named;
use gpuwhy_trace::own_marks::memory_text;
use gpuwhy_trace::record::{DeviceId, RangeEvent, Timestamp};
use rustc_hash::FxHashMap;

use super::readings::slopes;
use crate::sorting::SortRows as _;

/// A state within one percent of the highest one is a peak as well; the newest of these counts, because it tells the
/// blocks of the step from older ones.
const SAME_PEAK: f64 = 1.01;
/// Limits for damaged marks, above what is written: sites, rows of a state, step ends, changes of lines at these, times
/// out of memory, devices.
const SITES: u32 = 4_096 + FIRST_SITE;
const ROWS: usize = 1_024;
const STEP_ENDS: usize = 4_096;
const CHANGES: usize = 1 << 17;
/// Largest number of a step, and bytes of a line: sums and products of them fit into 64 bits.
const STEP: u64 = 1 << 48;
const BYTES: u64 = 1 << 50;
const TIMES_OUT: usize = 64;
const DEVICES: usize = 256;
/// Number of the first site that is a line.
const FIRST_SITE: u32 = 2;
/// Fewest step ends, behind the first quarter of the steps, from which growth is judged.
const FEWEST_STEP_ENDS: usize = 20;
/// Equal parts of these steps, in each of which there is more than in the one before.
const PARTS: u64 = 6;
/// Lines with the largest rise, of which the one with the most growth is told.
const RISING: usize = 64;
/// Least growth over these step ends, bytes: the granularity of large blocks.
const LEAST_GROWTH: i64 = 1 << 20;

named! {
    /// What holds a block.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum BlockClass: name words {
        /// Parameter of a module or an optimizer.
        Parameters "parameters" "parameters",
        /// Gradient of a parameter.
        Gradients "gradients" "gradients",
        /// State of an optimizer.
        OptimizerState "optimizer_state" "optimizer state",
        /// Buffer of a module.
        Buffers "buffers" "buffers of modules",
        /// Allocated since the last step end, at the start of the backward pass or when memory ran out.
        Activations "activations" "activations and temporaries",
        /// Allocated where a server makes its KV cache.
        KvCache "kv_cache" "KV cache",
        /// Freed by the program, and still used by another stream.
        AwaitingFree "awaiting_free" "freed but awaiting a stream",
        /// Everything else.
        Other "other" "other",
    }
}

named! {
    /// When the blocks were looked at.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum BlockMoment: name words {
        /// The program calls `backward`.
        BeforeBackward "before_backward" "before backward",
        /// The program calls `optimizer.step`.
        BeforeOptimizer "before_optimizer_step" "before optimizer.step",
        /// `optimizer.step` has returned.
        AfterOptimizer "after_optimizer_step" "after optimizer.step",
        /// An allocation failed.
        OutOfMemory "out_of_memory" "when memory ran out",
        /// The program ends.
        End "end" "at the end",
    }
}

impl BlockMoment {
    /// True if it belongs to a step.
    #[must_use]
    pub const fn is_of_step(self) -> bool {
        matches!(self, Self::BeforeBackward | Self::BeforeOptimizer | Self::AfterOptimizer)
    }
}

impl BlockClass {
    fn of(code: &str) -> Self {
        match code {
            "p" => Self::Parameters,
            "g" => Self::Gradients,
            "o" => Self::OptimizerState,
            "b" => Self::Buffers,
            "a" => Self::Activations,
            "k" => Self::KvCache,
            "w" => Self::AwaitingFree,
            _ => Self::Other,
        }
    }
}

/// The innermost line outside PyTorch that allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlockSite {
    /// The function.
    pub function: String,
    /// Its file.
    pub file: String,
    /// The line.
    pub line: u32,
}

/// Blocks of one class that one line allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlockRow {
    /// What holds them.
    pub class: BlockClass,
    /// The line; `None` if no Python function allocated them, or for the sum of the smallest rows.
    pub site: Option<BlockSite>,
    /// Their size.
    pub bytes: u64,
    /// Their number; 0 if it is unknown.
    pub count: u64,
}

/// Blocks of a device at one moment, bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlockState {
    /// When.
    #[cfg_attr(feature = "serde", serde(rename = "unix_ns"))]
    pub at: Timestamp,
    /// At which moment of a step.
    pub moment: BlockMoment,
    /// Number of steps that had ended.
    pub step: u64,
    /// In use by the program.
    pub allocated_bytes: u64,
    /// That, and the cache.
    pub reserved_bytes: u64,
    /// Free in PyTorch's cache.
    pub free_bytes: u64,
    /// The largest part of it.
    pub largest_gap_bytes: u64,
    /// The most that was in use at any time, by PyTorch's own count.
    pub peak_bytes: u64,
    /// True if a segment is expandable.
    pub expandable: bool,
    /// By class and line, the largest first.
    pub rows: Vec<BlockRow>,
}

/// Memory that stays in use from step to step, bytes per step.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlockGrowth {
    /// Median of the slopes between step ends that are at least half of the steps apart.
    pub bytes: f64,
    /// 5 % of these slopes are lower.
    pub low: f64,
    /// 5 % of them are higher.
    pub high: f64,
    /// The line with the most of it; `None` if no line grows by itself.
    pub site: Option<BlockSite>,
    /// Its part.
    pub site_bytes: Option<f64>,
}

/// An allocation that failed, also after PyTorch had emptied its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OutOfMemory {
    /// When.
    #[cfg_attr(feature = "serde", serde(rename = "unix_ns"))]
    pub at: Timestamp,
    /// Number of steps that had ended.
    pub step: u64,
    /// Bytes that were asked of the device.
    pub asked_bytes: u64,
    /// Bytes that were free on the device.
    pub free_bytes: u64,
    /// The line that asked.
    pub site: Option<BlockSite>,
    /// Bytes free in PyTorch's cache; `None` if that was not looked at.
    pub cache_bytes: Option<u64>,
    /// The largest part of it.
    pub largest_gap_bytes: Option<u64>,
    /// True if a segment is expandable.
    pub expandable: bool,
}

/// Blocks of one device.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DeviceBlocks {
    /// The most that was in use when they were looked at.
    pub peak: Option<BlockState>,
    /// Growth over the steps; `None` if there is none or too little to judge.
    pub growth: Option<BlockGrowth>,
    /// Each time that memory ran out, up to 64.
    pub out_of_memory: Vec<OutOfMemory>,
}

/// The looks at the blocks of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlockLooks {
    /// Number of steps that were seen.
    pub steps: u64,
    /// Why blocks are missing.
    pub note: Option<String>,
    /// Number of looks that were left out to bound their cost; `None` if the program did not end by itself.
    pub skipped: Option<u64>,
    /// Time that the looks took in the program; likewise.
    #[cfg_attr(feature = "serde", serde(rename = "total_ns"))]
    pub cost_ns: Option<u64>,
}

/// The marks. See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    sites: FxHashMap<u32, BlockSite>,
    devices: BTreeMap<DeviceId, Device>,
    step_ends: Vec<StepEnd>,
    /// Bytes by device and site from the step end with this index on.
    changes: FxHashMap<(DeviceId, u32), Vec<(u32, u64)>>,
    changed: usize,
    looks: BlockLooks,
}

#[derive(Debug, Default)]
struct Device {
    peak: Option<State>,
    highest: u64,
    /// By PyTorch's count.
    most: u64,
    newest: Option<Cache>,
    out_of_memory: Vec<OutOfMemory>,
}

/// PyTorch's cache in the newest state, bytes.
#[derive(Clone, Copy, Debug)]
struct Cache {
    number: u64,
    free: u64,
    gap: u64,
    expandable: bool,
}

#[derive(Debug)]
struct State {
    number: u64,
    head: BlockState,
    rows: Vec<(BlockClass, u32, u64, u64)>,
}

/// The end of a step at which the blocks were looked at.
#[derive(Debug)]
struct StepEnd {
    number: u64,
    step: u64,
    /// Rows that are still missing.
    missing: u64,
}

impl Blocks {
    /// Processes a range event. True if it is a mark about blocks.
    pub(crate) fn push(&mut self, event: &RangeEvent, dictionary: &Dictionary) -> bool {
        let Some(text) = memory_text(event, dictionary) else { return false };
        // A damaged mark is left out: the heads tell what is missing.
        let _ = self.mark(event.at, text);
        true
    }

    fn mark(&mut self, at: Timestamp, text: &str) -> Option<()> {
        let mut fields = Fields(text.split('\t'));
        match fields.text()? {
            "site" => {
                let id = fields.id().filter(|id| (FIRST_SITE..SITES).contains(id))?;
                let line = fields.id()?;
                let (function, file) = (fields.text()?.to_owned(), fields.text()?.to_owned());
                self.sites.insert(id, BlockSite { function, file, line });
            }
            "state" => {
                let number = fields.number()?;
                let (device, head) = fields.state(at)?;
                self.looks.steps = self.looks.steps.max(head.step);
                self.device(device)?.state(number, head);
            }
            "live" => {
                let (number, step, missing) = (fields.number()?, fields.step()?, fields.number()?);
                self.looks.steps = self.looks.steps.max(step);
                if let Some(last) = self.step_ends.last_mut().filter(|last| last.step >= step) {
                    last.missing = last.missing.saturating_add(1);
                } else if self.step_ends.len() < STEP_ENDS {
                    self.step_ends.push(StepEnd { number, step, missing });
                }
            }
            "rows" => {
                let number = fields.number()?;
                while let Some(row) = fields.text() {
                    let _ = self.row(number, row);
                }
            }
            "oom" => self.ran_out(at, &mut fields)?,
            "note" => self.looks.note = Some(fields.text()?.to_owned()),
            "end" => {
                self.looks.steps = self.looks.steps.max(fields.step()?);
                (self.looks.skipped, self.looks.cost_ns) = (fields.number(), fields.number());
            }
            _ => {}
        }
        Some(())
    }

    fn device(&mut self, id: DeviceId) -> Option<&mut Device> {
        let is_room = self.devices.len() < DEVICES || self.devices.contains_key(&id);
        is_room.then(|| self.devices.entry(id).or_default())
    }

    fn ran_out(&mut self, at: Timestamp, fields: &mut Fields<'_>) -> Option<()> {
        let (state, device) = (fields.number()?, DeviceId(fields.id()?));
        let (asked_bytes, free_bytes) = (fields.number()?, fields.number()?);
        let site = self.sites.get(&fields.id()?).cloned();
        let step = fields.number()?;
        let device = self.device(device)?;
        let newest = device.newest.filter(|newest| newest.number == state);
        if device.out_of_memory.len() < TIMES_OUT {
            device.out_of_memory.push(OutOfMemory {
                at,
                step,
                asked_bytes,
                free_bytes,
                site,
                cache_bytes: newest.map(|newest| newest.free),
                largest_gap_bytes: newest.map(|newest| newest.gap),
                expandable: newest.is_some_and(|newest| newest.expandable),
            });
        }
        Some(())
    }

    fn row(&mut self, number: u64, row: &str) -> Option<()> {
        let mut fields = Fields(row.split(':'));
        let first = fields.text()?;
        let site = fields.id().filter(|site| *site < SITES)?;
        let bytes = fields.number().filter(|bytes| *bytes <= BYTES)?;
        let index = self.step_ends.len().wrapping_sub(1) as u32;
        if let Some(end) = self.step_ends.last_mut().filter(|end| end.number == number) {
            let device = DeviceId(first.parse().ok()?);
            if self.changed < CHANGES {
                self.changed += 1;
                self.changes.entry((device, site)).or_default().push((index, bytes));
                end.missing = end.missing.saturating_sub(1);
            }
            return Some(());
        }
        let count = fields.number()?;
        let peaks = self.devices.values_mut().filter_map(|device| device.peak.as_mut());
        if let Some(state) = peaks.into_iter().find(|state| state.number == number && state.rows.len() < ROWS) {
            state.rows.push((BlockClass::of(first), site, bytes, count));
        }
        Some(())
    }

    /// The looks; `None` if there was none.
    pub(crate) fn looks(&self) -> Option<&BlockLooks> {
        let is_any = !self.devices.is_empty() || !self.step_ends.is_empty() || self.looks.note.is_some();
        is_any.then_some(&self.looks)
    }

    /// Devices with blocks.
    pub(crate) fn ids(&self) -> impl Iterator<Item = DeviceId> {
        self.devices.keys().copied()
    }

    /// Blocks of a device.
    pub(crate) fn of_device(&self, id: DeviceId) -> Option<DeviceBlocks> {
        let device = self.devices.get(&id)?;
        let peak = device.peak.as_ref().map(|state| BlockState { peak_bytes: device.most, ..self.resolved(state) });
        Some(DeviceBlocks { peak, growth: self.growth(id), out_of_memory: device.out_of_memory.clone() })
    }

    fn resolved(&self, state: &State) -> BlockState {
        let mut rows: Vec<_> = state
            .rows
            .iter()
            .map(|&(class, site, bytes, count)| BlockRow { class, site: self.sites.get(&site).cloned(), bytes, count })
            .collect();
        let in_use = rows.iter().filter(|row| row.class != BlockClass::AwaitingFree).map(|row| row.bytes);
        let lost = state.head.allocated_bytes.saturating_sub(in_use.fold(0, u64::saturating_add));
        if lost > 0 {
            rows.push(BlockRow { class: BlockClass::Other, site: None, bytes: lost, count: 0 });
        }
        rows.sort_rows_by(|a, b| b.bytes.cmp(&a.bytes));
        BlockState { rows, ..state.head.clone() }
    }

    /// Growth of the blocks of a device that are in use at step ends, from a quarter of the steps on; the median has to
    /// be larger in each following part of these.
    fn growth(&self, device: DeviceId) -> Option<BlockGrowth> {
        let last = self.step_ends.last()?.step;
        let first = self.step_ends.partition_point(|end| end.step < last.div_ceil(4));
        if self.step_ends.len() - first < FEWEST_STEP_ENDS || self.step_ends.iter().any(|end| end.missing > 0) {
            return None;
        }
        let lines = || self.changes.iter().filter(|((of, _), _)| *of == device);
        let [low, bytes, high] = self.judged(first, &self.series(lines().map(|(_, changes)| changes)))?;
        let mut rising: Vec<_> = lines()
            .filter_map(|((_, site), changes)| {
                let before = changes.iter().take_while(|change| change.0 as usize <= first).last();
                let rise = changes.last()?.1.checked_sub(before.map_or(0, |change| change.1))?;
                Some((rise, self.sites.get(site)?, changes))
            })
            .collect();
        rising.sort_rows_by(|a, b| b.0.cmp(&a.0));
        let most = rising
            .into_iter()
            .take(RISING)
            .filter_map(|(_, site, changes)| Some((site.clone(), self.judged(first, &self.series([changes]))?[1])))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let (site, site_bytes) = most.unzip();
        Some(BlockGrowth { bytes, low, high, site, site_bytes })
    }

    /// Bytes of these lines together at each step end.
    fn series<'a>(&self, lines: impl IntoIterator<Item = &'a Vec<(u32, u64)>>) -> Vec<i64> {
        let mut series = vec![0; self.step_ends.len()];
        for changes in lines {
            let mut before = 0;
            for &(index, bytes) in changes {
                series[index as usize] += bytes as i64 - before;
                before = bytes as i64;
            }
        }
        let mut now = 0;
        for bytes in &mut series {
            now += *bytes;
            *bytes = now;
        }
        series
    }

    /// The slopes of the bytes at these step ends from the one with index `first` on, if they grow.
    fn judged(&self, first: usize, bytes: &[i64]) -> Option<[f64; 3]> {
        let series: Vec<_> = self.step_ends.iter().map(|end| end.step).zip(bytes.iter().copied()).skip(first).collect();
        let [(start, least), (end, most)] = [*series.first()?, *series.last()?];
        if most - least <= LEAST_GROWTH {
            return None;
        }
        let medians = (0..PARTS).map(|number| {
            let is_in = |step: u64| PARTS * (step - start) / (end - start + 1) == number;
            let mut part: Vec<_> = series.iter().filter(|(step, _)| is_in(*step)).map(|&(_, bytes)| bytes).collect();
            part.sort_unstable();
            part.get(part.len() / 2).copied()
        });
        let medians: Option<Vec<_>> = medians.collect();
        if !medians?.windows(2).all(|pair| pair[0] < pair[1]) {
            return None;
        }
        slopes(&series, end - start).filter(|slopes| slopes[0] > 0.0)
    }
}

impl Device {
    fn state(&mut self, number: u64, head: BlockState) {
        let BlockState { allocated_bytes, free_bytes: free, largest_gap_bytes: gap, expandable, .. } = head;
        self.newest = Some(Cache { number, free, gap, expandable });
        self.most = self.most.max(head.peak_bytes);
        let (now, highest) = (allocated_bytes as f64, self.highest as f64);
        // The end tells the least of the step.
        let is_peak = match head.moment {
            BlockMoment::End => now > SAME_PEAK * highest,
            _ => now * SAME_PEAK >= highest,
        };
        if self.peak.is_none() || is_peak {
            self.highest = self.highest.max(allocated_bytes);
            self.peak = Some(State { number, head, rows: Vec::new() });
        }
    }
}

/// Fields of a mark.
struct Fields<'a>(Split<'a, char>);

impl<'a> Fields<'a> {
    fn text(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn number(&mut self) -> Option<u64> {
        self.text()?.parse().ok()
    }

    fn id(&mut self) -> Option<u32> {
        self.text()?.parse().ok()
    }

    fn step(&mut self) -> Option<u64> {
        self.number().filter(|step| *step <= STEP)
    }

    /// The head of a state, behind its number.
    fn state(&mut self, at: Timestamp) -> Option<(DeviceId, BlockState)> {
        let name = self.text()?;
        let moment = BlockMoment::ALL.into_iter().find(|moment| moment.name() == name)?;
        let (step, device) = (self.step()?, DeviceId(self.id()?));
        let head = BlockState {
            at,
            moment,
            step,
            allocated_bytes: self.number()?,
            reserved_bytes: self.number()?,
            free_bytes: self.number()?,
            largest_gap_bytes: self.number()?,
            peak_bytes: self.number()?,
            expandable: self.number()? != 0,
            rows: Vec::new(),
        };
        Some((device, head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::own_marks::MEMORY_DOMAIN;
    use gpuwhy_trace::record::RangeEventKind;

    const MIB: u64 = 1 << 20;

    /// What these texts say; `|` is in place of tabs.
    fn told<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Blocks {
        let (mut blocks, mut dictionary) = (Blocks::default(), Dictionary::new());
        let domain = dictionary.intern_name(MEMORY_DOMAIN);
        for (at, text) in (1..).zip(texts) {
            let message = dictionary.intern_name(&text.as_ref().replace('|', "\t"));
            let at = Timestamp::from_nanos(at);
            let mark = RangeEvent { at, kind: RangeEventKind::Mark, domain, message, ..RangeEvent::default() };
            assert!(blocks.push(&mark, &dictionary));
            assert!(!blocks.push(&RangeEvent { kind: RangeEventKind::Push, ..mark }, &dictionary));
        }
        blocks
    }

    fn first_device(texts: &[&str]) -> DeviceBlocks {
        told(texts).of_device(DeviceId(0)).unwrap()
    }

    #[test]
    fn the_highest_state_counts_and_of_equal_ones_the_newest() {
        let blocks = first_device(&[
            "site|2|44|Attention.forward|/m/attention.py",
            "state|1|before_backward|0|0|1000|1500|400|300|1004|0",
            "rows|1|p:2:900:3|x:0:100:1",
            "state|2|after_optimizer_step|1|0|700|1500|800|500|1010|0",
            "rows|2|o:2:700:1",
            "state|3|before_backward|1|0|995|1500|405|300|1010|0",
            "rows|3|p:2:500:3|a:2:300:2",
            "rows|3|a:0:100:1|w:2:77:1|damaged|g:9:80:1",
            "state|4|end|5|0|999|1500|400|300|1020|0",
        ]);
        let peak = blocks.peak.unwrap();
        assert_eq!((peak.moment, peak.step, peak.at.nanos()), (BlockMoment::BeforeBackward, 1, 6));
        assert_eq!((peak.allocated_bytes, peak.peak_bytes, peak.expandable), (995, 1020, false));
        let line = Some(BlockSite { function: "Attention.forward".into(), file: "/m/attention.py".into(), line: 44 });
        let rows: Vec<_> =
            peak.rows.iter().map(|row| (row.class.name(), row.site == line, row.bytes, row.count)).collect();
        let expected = [
            ("parameters", true, 500, 3),
            ("activations", true, 300, 2),
            ("activations", false, 100, 1),
            ("gradients", false, 80, 1),
            ("awaiting_free", true, 77, 1),
            ("other", false, 15, 0),
        ];
        assert_eq!(rows, expected, "and what is missing of the bytes in use");
    }

    #[test]
    fn out_of_memory_has_the_cache_of_its_own_state() {
        let blocks = first_device(&[
            "site|2|91|forward|model.py",
            "state|1|out_of_memory|7|0|1000|3800|2800|600|0|1",
            "oom|1|0|2000|1400|2|7",
            "oom|0|0|2000|1400|3|7",
            "end|9|4|12000",
        ]);
        let [first, second] = &blocks.out_of_memory[..] else { panic!("{blocks:?}") };
        assert_eq!((first.step, first.asked_bytes, first.free_bytes, first.expandable), (7, 2000, 1400, true));
        assert_eq!((first.cache_bytes, first.largest_gap_bytes), (Some(2800), Some(600)));
        assert_eq!(first.site.as_ref().map(|site| site.line), Some(91));
        assert_eq!((second.cache_bytes, second.site.as_ref()), (None, None));
    }

    #[test]
    fn notes_stand_alone_and_damaged_marks_say_nothing() {
        let all = told(["note|the program does", "end|9|4|12000", "state|1|never|0|0|1|1|1|1|1|0", "rows", "new|1"]);
        let looks = all.looks().unwrap();
        assert_eq!(
            (looks.note.as_deref(), looks.steps, looks.skipped, looks.cost_ns),
            (Some("the program does"), 9, Some(4), Some(12_000))
        );
        assert_eq!(told(["state|1|end|0|0|1", "site|1|4|f|x.py", "oom|x"]).looks(), None);
    }

    /// States at the end of steps 1 to 200, as they are spread. `of` is the bytes of two lines after a step.
    fn growth(of: impl Fn(u64) -> [u64; 2]) -> Option<BlockGrowth> {
        let mut texts = vec!["site|2|61|append|/t/train.py".to_owned(), "site|3|7|main|/t/train.py".to_owned()];
        let mut step = 1;
        while step <= 200 {
            let [one, other] = of(step);
            texts.push(format!("live|{step}|{step}|2"));
            texts.push(format!("rows|{step}|0:2:{one}|0:3:{other}"));
            step = if step > 20 { (step + 1).max(step * 105 / 100) } else { step + 1 };
        }
        texts.push("state|900|end|200|0|1|1|0|0|0|0".to_owned());
        told(texts).of_device(DeviceId(0)).unwrap().growth
    }

    #[test]
    fn what_stays_with_each_step_is_growth_of_its_line() {
        let growth = growth(|step| [step * 3 * MIB + step % 5 * MIB, 900 * MIB]).unwrap();
        assert!((growth.bytes / (3 * MIB) as f64 - 1.0).abs() < 0.05, "{growth:?}");
        assert!(growth.low < growth.bytes && growth.bytes < growth.high, "{growth:?}");
        assert_eq!(growth.site.map(|site| site.line), Some(61));
        assert!((growth.site_bytes.unwrap() - growth.bytes).abs() < 1.0);
    }

    #[test]
    fn other_changes_are_no_growth() {
        for (what, of) in [
            ("constant", (|_| [900 * MIB, 5]) as fn(u64) -> [u64; 2]),
            ("small", |step| [step * 4_096, 5]),
            ("up and down", |step| [step % 40 * MIB, 5]),
            ("early", |step| [step.min(150) * MIB, 5]),
            ("moves", |step| [step * MIB, (300 - step) * MIB]),
            ("falls", |step| [(300 - step) * MIB, 5]),
        ] {
            assert_eq!(growth(of), None, "{what}");
        }
    }

    #[test]
    fn a_higher_state_at_the_end_is_the_peak() {
        let blocks = first_device(&[
            "state|1|before_backward|0|0|1000|1500|400|300|1004|0",
            "state|2|end|5|0|2000|2500|400|300|2020|0",
            "rows|2|p:2:2000:3",
        ]);
        let peak = blocks.peak.unwrap();
        assert_eq!((peak.moment, peak.allocated_bytes, peak.rows.len()), (BlockMoment::End, 2000, 1));
    }

    #[test]
    fn hostile_marks_make_growth_unknown_and_take_little_memory() {
        let end = || ["state|900|end|60|0|1|1|0|0|0|0".to_owned()];
        let falling = (1..=60)
            .rev()
            .flat_map(|step| [format!("live|{step}|{step}|1"), format!("rows|{step}|0:2:{}", (61 - step) * 5 * MIB)]);
        let mut ends = (1..=60).map(|step| format!("live|{step}|{step}|0")).collect::<Vec<_>>();
        ends.push(format!("live|61|{}|0", u64::MAX));
        ends.push(format!("live|61|{}|0", STEP));
        ends.push(format!("rows|61|0:{}:5|0:{SITES}:5|0:2:{}|0:4097:5", u32::MAX, u64::MAX));
        for texts in [falling.chain(end()).collect(), ends.iter().cloned().chain(end()).collect::<Vec<_>>()] {
            let blocks = told(&texts);
            assert_eq!(blocks.of_device(DeviceId(0)).unwrap().growth, None);
            assert!(blocks.changes.len() <= 1, "{:?}", blocks.changes);
        }
        let ends = (1..=60).map(|step| format!("live|{step}|{}|0", if step == 60 { STEP } else { step }));
        let largest = (1..=60).flat_map(|step| {
            let step_of = if step == 60 { STEP } else { step };
            [format!("live|{step}|{step_of}|2"), format!("rows|{step}|0:2:{BYTES}|0:3:{}", BYTES / 60 * step)]
        });
        for texts in [ends.chain(end()).collect::<Vec<_>>(), largest.chain(end()).collect()] {
            assert_eq!(told(&texts).of_device(DeviceId(0)).unwrap().growth, None);
        }
    }

    #[test]
    fn a_lost_mark_makes_growth_unknown() {
        let texts = |lost: u64| {
            let ends = (1..=60).flat_map(move |step| {
                let rows = (step != lost).then(|| format!("rows|{step}|0:2:{}", step * 5 * MIB));
                [Some(format!("live|{step}|{step}|1")), rows]
            });
            ends.flatten().chain(["state|900|end|60|0|1|1|0|0|0|0".to_owned()])
        };
        let growth = |lost| told(texts(lost)).of_device(DeviceId(0)).unwrap().growth;
        let whole = growth(0).unwrap();
        assert_eq!((whole.bytes, whole.site), (5.0 * MIB as f64, None), "no line is known");
        assert_eq!(growth(30), None);
    }
}
