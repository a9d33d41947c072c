//! The first pass: the time span of the page, the amount of data, and the longest gaps.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuwhy_import::Observer;
use gpuwhy_report::capture::Captures;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{CaptureMark, Record};
use profiler_core::attribution::Attributor;
use profiler_core::attribution::segments::Segment;
use profiler_core::leaf::Cause;

use crate::redact::{RangeTexts, redacted};

/// Number of longest gaps kept in total and per cause.
const GAPS: usize = 10;
/// Maximum number of separate captures.
const CAPTURES: usize = 1 << 16;

/// Capture that receives the records of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selected {
    number: u32,
}

impl Default for Selected {
    /// As in [`Captures`]: records before the first mark are of capture 1.
    fn default() -> Self {
        Self { number: 1 }
    }
}

impl Selected {
    pub(crate) fn follow(&mut self, mark: CaptureMark) {
        match mark {
            CaptureMark::Begin { number, .. } | CaptureMark::Select { number } => self.number = number,
            CaptureMark::End { .. } => {}
        }
    }

    /// True if records currently belong to the capture `shown`; always true in a run that was not split.
    pub(crate) fn is(self, shown: Option<u32>) -> bool {
        shown.is_none_or(|shown| shown == self.number)
    }
}

/// Time span and size of one capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Nanoseconds since the Unix epoch.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Number of records that become events of the page.
    pub(crate) events: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Prescan {
    selected: Selected,
    /// By the number of the capture, as the next.
    extents: BTreeMap<u32, Extent>,
    times: BTreeMap<u32, DeviceTimes>,
    /// Texts to replace by placeholders, if requested.
    secrets: Option<RangeTexts>,
    /// All names, with placeholders.
    marked: Option<Arc<Dictionary>>,
}

impl Prescan {
    /// Creates a scan; `redact` replaces private texts by placeholders.
    pub(crate) fn new(redact: bool) -> Self {
        Self { secrets: redact.then(RangeTexts::default), ..Self::default() }
    }

    /// Names that the page uses instead of those of the trace.
    pub(crate) fn marked(&self) -> Option<&Arc<Dictionary>> {
        self.marked.as_ref()
    }

    /// Extent of the capture `shown`, or of the run, with `observed_ns` observed nanoseconds; `None` without
    /// any record with times.
    pub(crate) fn extent(&self, shown: Option<u32>, observed_ns: u64) -> Option<Extent> {
        let extent = match shown {
            Some(number) => self.extents.get(&number).copied(),
            None => self.extents.values().copied().reduce(|a, b| Extent {
                first: a.first.min(b.first),
                last: a.last.max(b.last),
                events: a.events + b.events,
            }),
        };
        // Records with impossible times, as in a damaged trace, are not part of the observed time.
        let within = self.times_of(shown).filter_map(|times| times.within);
        let within = within.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        // Without device work, as in mode monitor, there is no observed time.
        let Some((begin, end)) = within else { return extent };
        extent.map(|extent| Extent {
            first: extent.first.max(end.saturating_sub(observed_ns)).min(end),
            last: extent.last.min(begin.saturating_add(observed_ns)).max(begin),
            ..extent
        })
    }

    /// The longest gaps of the capture `shown`, or of the run, and the longest idle intervals of one cause,
    /// nanoseconds since the Unix epoch.
    pub(crate) fn gaps(&self, shown: Option<u32>, cause: Cause) -> impl Iterator<Item = (u64, u64)> {
        self.times_of(shown).flat_map(move |times| {
            let of_cause = times.idle.get(&cause).into_iter().flat_map(|longest| longest.0.iter().copied());
            times.gaps.0.iter().copied().chain(of_cause)
        })
    }

    fn times_of(&self, shown: Option<u32>) -> impl Iterator<Item = &DeviceTimes> {
        self.times.iter().filter(move |&(&number, _)| shown.is_none_or(|shown| shown == number)).map(|(_, times)| times)
    }
}

/// Device time of one capture.
#[derive(Debug, Default)]
struct DeviceTimes {
    /// First start and last end, nanoseconds since the Unix epoch.
    within: Option<(u64, u64)>,
    gaps: Longest,
    /// Idle time by its cause.
    idle: BTreeMap<Cause, Longest>,
}

impl DeviceTimes {
    fn take(&mut self, segment: Segment) {
        match segment {
            Segment::Time(time) => {
                let (from, to) = self.within.get_or_insert((time.from.nanos(), time.to.nanos()));
                (*from, *to) = ((*from).min(time.from.nanos()), (*to).max(time.to.nanos()));
                if !time.leaf.is_busy() {
                    self.idle.entry(time.leaf.cause()).or_default().take(time.from.nanos(), time.to.nanos());
                }
            }
            Segment::Gap(gap) => self.gaps.take(gap.from.nanos(), gap.to.nanos()),
            Segment::Moved { .. } => {}
        }
    }
}

/// The longest of many intervals: start and end, the longest first.
#[derive(Debug, Default)]
struct Longest(Vec<(u64, u64)>);

impl Longest {
    fn take(&mut self, from: u64, to: u64) {
        if self.0.len() < GAPS || self.0.last().is_some_and(|(a, b)| b - a < to - from) {
            let index = self.0.partition_point(|(a, b)| b - a >= to - from);
            self.0.insert(index, (from, to));
            self.0.truncate(GAPS);
        }
    }
}

impl Observer for Prescan {
    fn begin(&mut self, captures: &mut Captures) {
        captures.options.segments = true;
    }

    fn event(&mut self, event: &Event, _: &Dictionary) {
        match event {
            Event::Capture(mark) => self.selected.follow(*mark),
            Event::Record(record) => {
                if let (Record::Range(range), Some(secrets)) = (record, &mut self.secrets) {
                    secrets.take(range);
                }
                let Some((start, end)) = record.span() else { return };
                let (start, end) = (start.nanos(), end.nanos());
                // Without a start or an end it has no position; the report counts it.
                if start == 0 || end < start || end == u64::MAX {
                    return;
                }
                let number = self.selected.number;
                if self.extents.len() >= CAPTURES && !self.extents.contains_key(&number) {
                    return;
                }
                let extent = self.extents.entry(number).or_insert(Extent { first: start, last: end, events: 0 });
                extent.first = extent.first.min(start);
                extent.last = extent.last.max(end);
                let shown = !matches!(record, Record::Sync(_) | Record::Overhead(_) | Record::Managed(_));
                extent.events += u64::from(shown);
            }
            _ => {}
        }
    }

    fn taken(&mut self, captures: &mut Captures, _: &Dictionary, _: bool) {
        for (number, _, segments) in captures.take(Attributor::take_segments) {
            if self.times.len() < CAPTURES || self.times.contains_key(&number) {
                let times = self.times.entry(number).or_default();
                segments.into_iter().for_each(|segment| times.take(segment));
            }
        }
    }
    fn words(&mut self, session: &ProcessInfo, dictionary: &Dictionary) -> Option<(ProcessInfo, Arc<Dictionary>)> {
        let (process, marked) = redacted(session, dictionary, self.secrets.as_ref()?);
        let marked = Arc::new(marked);
        self.marked = Some(Arc::clone(&marked));
        Some((process, marked))
    }
}
