//! Processes of a file. There are several if files of ranks were merged.
//!
//! A row of the host names its process, and a row of a device the ordinal of the device in its place. Mergers
//! put a prefix for each rank before both (`[TP00] 100`, `[TP00] 0`) or keep the numbers. Ids of calls, and
//! possibly of devices and threads, are those of each rank, so they are made distinct here.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{CorrelationId, DeviceId, Record, ThreadId, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use super::correlation::Correlations;
use super::scalar::Scalar;

/// Processes that a note names; the rest are counted.
const NAMED: usize = 8;

/// Index of what a row has as its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LabelId(pub(super) u32);

/// What a row has as its process.
#[derive(Debug)]
struct Label {
    /// As written.
    text: String,
    /// Text before the number at the end.
    prefix: String,
    number: Option<u32>,
    /// True if rows of CUDA calls have it.
    calls: bool,
}

#[derive(Debug, Default)]
pub(super) struct Processes {
    labels: Vec<Label>,
    ids: FxHashMap<String, LabelId>,
    /// Nearly all rows have that of the row before.
    newest: Option<(Scalar, LabelId)>,
}

/// Everything of a file that has numbers of a process. `labels`: one for each record.
pub(super) struct Contents<'a> {
    pub(super) records: &'a mut [Record],
    pub(super) labels: &'a [LabelId],
    pub(super) threads: Box<dyn Iterator<Item = (LabelId, &'a mut ThreadId)> + 'a>,
    pub(super) dictionary: &'a mut Dictionary,
    pub(super) correlations: &'a mut Correlations,
}

/// One of several processes.
pub(super) struct Chosen {
    pub(super) process: LabelId,
    /// The process of each record.
    pub(super) owners: Vec<LabelId>,
    pub(super) note: Option<String>,
}

impl Processes {
    /// Label of a row.
    pub(super) fn of(&mut self, process: &Scalar) -> LabelId {
        if let Some((_, id)) = self.newest.as_ref().filter(|(newest, _)| newest == process) {
            return *id;
        }
        let text = process.integer().map_or_else(|| process.text().to_owned(), |number| number.to_string());
        let next = LabelId(self.labels.len() as u32);
        let id = *self.ids.entry(text.clone()).or_insert(next);
        if id == next {
            let prefix = text.trim_end_matches(|letter: char| letter.is_ascii_digit());
            let number = text[prefix.len()..].parse().ok();
            self.labels.push(Label { prefix: prefix.to_owned(), number, calls: false, text });
        }
        self.newest = Some((process.clone(), id));
        id
    }

    /// A CUDA call has this label.
    pub(super) fn called(&mut self, id: LabelId) {
        self.labels[id.0 as usize].calls = true;
    }

    /// Number of the first process with CUDA calls; 0 if it has none.
    pub(super) fn first(&self) -> u32 {
        self.labels.iter().find(|label| label.calls).and_then(|label| label.number).unwrap_or(0)
    }

    /// Makes the numbers of several processes distinct. Returns their number and a note; `None` if there is only one.
    pub(super) fn separate(&self, contents: Contents<'_>) -> Option<(usize, String)> {
        let Contents { records, labels, threads, dictionary, correlations } = contents;
        let hosts = self.hosts();
        if hosts.len() < 2 {
            return None;
        }
        let owners = self.owners(&hosts, records, labels);
        let (mut ids, mut devices, mut tids) = (Numbers::default(), Numbers::default(), Numbers::default());
        let mut correlation = |host: LabelId, id: CorrelationId, numbers: &mut Numbers| {
            let is_own = host == hosts[0] || matches!(id.0, 0 | u32::MAX);
            if is_own {
                id
            } else {
                CorrelationId(*numbers.given.entry((host, id.0)).or_insert_with(|| correlations.fresh().0))
            }
        };
        let mut work: FxHashMap<(LabelId, DeviceId), u64> = FxHashMap::default();
        for (record, &host) in records.iter_mut().zip(&owners) {
            let (id, device, thread) = numbers_of(record);
            if let Some(id) = id {
                *id = correlation(host, *id, &mut ids);
            }
            if let Some(device) = device {
                let was = *device;
                *device = DeviceId(devices.of(host, device.0));
                *work.entry((host, *device)).or_default() += 1;
                if was != *device
                    && dictionary.device(*device).is_none()
                    && let Some(description) = dictionary.device(was).cloned()
                {
                    dictionary.add_device(gpuwhy_trace::record::Device { id: *device, ..description });
                }
            }
            if let Some(thread) = thread {
                *thread = ThreadId(tids.of(host, thread.0));
            }
        }
        for (label, thread) in threads {
            *thread = ThreadId(tids.of(label, thread.0));
        }
        let processes = self.described(&hosts, work);
        let note =
            format!("the file has {} processes, all read as one program (--pid chooses one): {processes}", hosts.len());
        Some((hosts.len(), note))
    }

    /// The process with this number, the process that each record belongs to, and a note on the processes that are left
    /// out, if there are others. If there is not exactly one such process, the error lists those in the file.
    pub(super) fn choose(&self, pid: u32, records: &[Record], labels: &[LabelId]) -> Result<Chosen, String> {
        let hosts = self.hosts();
        let owners = if hosts.is_empty() { Vec::new() } else { self.owners(&hosts, records, labels) };
        let described = |of: &[LabelId]| {
            let mut work: FxHashMap<(LabelId, DeviceId), u64> = FxHashMap::default();
            for (record, &host) in records.iter().zip(&owners) {
                if let Some(operation) = record.device_work() {
                    *work.entry((host, operation.device)).or_default() += 1;
                }
            }
            self.described(of, work)
        };
        let (chosen, others): (Vec<LabelId>, Vec<LabelId>) =
            hosts.iter().partition(|host| self.labels[host.0 as usize].number == Some(pid));
        match chosen[..] {
            [process] => {
                let note = (!others.is_empty()).then(|| {
                    format!("other processes in the file are left out (--pid chooses one): {}", described(&others))
                });
                Ok(Chosen { process, owners, note })
            }
            [] if hosts.is_empty() => {
                Err(format!("there is no process {pid} in this file: no row of a CUDA call names one"))
            }
            [] => Err(format!("there is no process {pid} in this file, but {}", described(&hosts))),
            _ => Err(format!(
                "{} processes of this file have the number {pid}, so it chooses none of them: {}",
                chosen.len(),
                described(&hosts)
            )),
        }
    }

    /// Processes with CUDA calls.
    fn hosts(&self) -> Vec<LabelId> {
        (0..self.labels.len() as u32).map(LabelId).filter(|id| self.labels[id.0 as usize].calls).collect()
    }

    /// The process that each record belongs to.
    fn owners(&self, hosts: &[LabelId], records: &[Record], labels: &[LabelId]) -> Vec<LabelId> {
        let label = |id: LabelId| &self.labels[id.0 as usize];
        let candidates = |id: LabelId| -> Vec<LabelId> {
            let of_rank = hosts.iter().copied().filter(|&host| label(host).prefix == label(id).prefix);
            let of_rank: Vec<LabelId> = if label(id).calls { vec![id] } else { of_rank.collect() };
            if of_rank.is_empty() { hosts.to_vec() } else { of_rank }
        };
        let candidates: Vec<Vec<LabelId>> = (0..self.labels.len() as u32).map(|id| candidates(LabelId(id))).collect();
        let mut launches: FxHashMap<(LabelId, CorrelationId), Timestamp> = FxHashMap::default();
        for (record, &label) in records.iter().zip(labels) {
            if let Record::Api(call) = record {
                launches.entry((label, call.correlation)).or_insert(call.start);
            }
        }
        // Calls before work of the device, and the time between them: of one's own, there are more, and it is less.
        let mut matched: FxHashMap<(LabelId, DeviceId, LabelId), (u64, u64)> = FxHashMap::default();
        for (record, &label) in records.iter().zip(labels) {
            let (Some(work), of) = (record.device_work(), &candidates[label.0 as usize]) else { continue };
            for &host in of.iter().filter(|_| of.len() > 1) {
                if let Some(launched) = launches.get(&(host, work.correlation)).filter(|&&start| start <= work.start) {
                    let (count, nanos) = matched.entry((label, work.device, host)).or_default();
                    *count += 1;
                    *nanos = nanos.saturating_add(work.start.since(*launched));
                }
            }
        }
        let owner = |record: &Record, label: LabelId| {
            let of = &candidates[label.0 as usize];
            let fit = |host: LabelId| match record.device_work() {
                Some(work) => matched.get(&(label, work.device, host)).map(|&(count, nanos)| (count, u64::MAX - nanos)),
                None => record.correlation().filter(|&id| launches.contains_key(&(host, id))).map(|_| (1, 0)),
            };
            // Of equals, the first.
            of.iter().rev().copied().max_by_key(|&host| fit(host)).unwrap_or(hosts[0])
        };
        records.iter().zip(labels).map(|(record, &label)| owner(record, label)).collect()
    }

    fn described(&self, hosts: &[LabelId], work: FxHashMap<(LabelId, DeviceId), u64>) -> String {
        let mut work: Vec<_> = work.into_iter().collect();
        work.sort_unstable();
        let one = |host: &LabelId| {
            let of_devices = work.iter().filter(|((of, _), _)| of == host);
            let devices: Vec<_> =
                of_devices.map(|((_, device), count)| format!("{count} operations of GPU {}", device.0)).collect();
            let devices = if devices.is_empty() { "no GPU operations".to_owned() } else { devices.join(", ") };
            format!("{} ({devices})", gpuwhy_report::text_format::printable(&self.labels[host.0 as usize].text))
        };
        let named: Vec<_> = hosts.iter().take(NAMED).map(one).collect();
        let more = hosts.len() - named.len();
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        format!("{}{more}", named.join(", "))
    }
}

/// Numbers that stay if no other process has them.
#[derive(Default)]
struct Numbers {
    given: FxHashMap<(LabelId, u32), u32>,
    used: FxHashSet<u32>,
}

impl Numbers {
    fn of(&mut self, host: LabelId, number: u32) -> u32 {
        let Self { given, used } = self;
        *given.entry((host, number)).or_insert_with(|| {
            let free = (number..=u32::MAX).chain(0..number).find(|number| !used.contains(number)).unwrap_or(number);
            used.insert(free);
            free
        })
    }
}

/// Call, device and thread of a record.
fn numbers_of(record: &mut Record) -> (Option<&mut CorrelationId>, Option<&mut DeviceId>, Option<&mut ThreadId>) {
    match record {
        Record::Kernel(row) => (Some(&mut row.correlation), Some(&mut row.device), None),
        Record::Copy(row) => (Some(&mut row.correlation), Some(&mut row.device), None),
        Record::Memset(row) => (Some(&mut row.correlation), Some(&mut row.device), None),
        Record::Api(row) => (Some(&mut row.correlation), None, Some(&mut row.thread)),
        Record::Sync(row) => (Some(&mut row.correlation), None, None),
        _ => (None, None, None),
    }
}
