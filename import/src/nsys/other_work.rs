//! Work of the file's other processes on the devices of the chosen one, which it may wait for.

use gpuwhy_trace::counters::{CounterEvent, ProcessReading, ProgramName};
use gpuwhy_trace::record::{DeviceId, Timestamp};
use rusqlite::{Connection, Result, Rows, Statement};
use rustc_hash::FxHashMap;

use super::facts::{CUDA_DEVICES, DEVICE_WORK, ProcessFacts};
use super::schema::Schema;

/// Query of the operations of other processes in the order of their start; `None` if there are none.
pub(super) fn statement<'c>(
    connection: &'c Connection,
    schema: &Schema,
    process: &ProcessFacts,
) -> Result<Option<Statement<'c>>> {
    let Some(own) = process.global_pid.filter(|_| !process.others.is_empty()) else { return Ok(None) };
    let complete = |table: &&&str| schema.has_columns(table, &["start", "end", "deviceId", "globalPid"]);
    let one = |table: &&str| {
        // Migrations of managed memory are no work of the program.
        let copies = if schema.has_column(table, "copyKind") { " AND copyKind < 11" } else { "" };
        format!(
            "SELECT start, end, (globalPid >> 24) & 0xffffff, deviceId FROM {table}
             WHERE globalPid <> {own} AND 0 < start AND start < end{copies}"
        )
    };
    let selects: Vec<String> = DEVICE_WORK.iter().filter(complete).map(one).collect();
    if selects.is_empty() {
        return Ok(None);
    }
    connection.prepare(&format!("{} ORDER BY 1, 2", selects.join(" UNION ALL "))).map(Some)
}

/// Work of other processes in the order of time.
pub(super) struct OtherWork<'s> {
    rows: Option<Rows<'s>>,
    next: Option<ProcessReading>,
    names: FxHashMap<u32, ProgramName>,
    ordinals: Ordinals,
    start: Timestamp,
}

/// The chosen process's numbers of its devices, by the process and its own number.
struct Ordinals {
    used: Vec<u32>,
    /// Number of the device in the file, by process and CUDA's number. Empty if all processes number them alike.
    in_file: FxHashMap<(u32, u32), i64>,
    own: u32,
}

impl Ordinals {
    fn of(connection: &Connection, schema: &Schema, process: &ProcessFacts) -> Result<Self> {
        let mut in_file = FxHashMap::default();
        if schema.has_columns(CUDA_DEVICES, &["gpuId", "cudaId", "pid"]) {
            let query = format!("SELECT pid, cudaId, gpuId FROM {CUDA_DEVICES} WHERE gpuId IS NOT NULL");
            let mut statement = connection.prepare(&query)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let number = |column: usize| row.get::<_, Option<i64>>(column);
                if let (Some(Ok(pid)), Some(Ok(cuda)), Some(file)) =
                    (number(0)?.map(u32::try_from), number(1)?.map(u32::try_from), number(2)?)
                {
                    in_file.insert((pid, cuda), file);
                }
            }
        }
        Ok(Self { used: process.devices().collect(), in_file, own: process.id() })
    }

    /// The device `cuda` of the process `pid`, if the chosen process uses it.
    fn shared(&self, pid: u32, cuda: u32) -> Option<DeviceId> {
        let same = |&&used: &&u32| match self.in_file.get(&(pid, cuda)) {
            Some(file) => self.in_file.get(&(self.own, used)) == Some(file),
            None => used == cuda,
        };
        self.used.iter().find(same).copied().map(DeviceId)
    }
}

impl<'s> OtherWork<'s> {
    /// Reads the operations of `statement`, whose times are relative to `start`.
    pub(super) fn new(
        connection: &Connection,
        schema: &Schema,
        process: &ProcessFacts,
        statement: Option<&'s mut Statement<'_>>,
        start: Timestamp,
    ) -> Result<Self> {
        let name = |name: &Option<String>| ProgramName::new(name.as_deref().unwrap_or_default());
        let names = process.others.iter().map(|other| (other.id(), name(&other.name))).collect();
        let rows = statement.map(|statement| statement.query([])).transpose()?;
        let ordinals = Ordinals::of(connection, schema, process)?;
        let mut others = Self { rows, next: None, names, ordinals, start };
        others.advance()?;
        Ok(others)
    }

    fn advance(&mut self) -> Result<()> {
        self.next = None;
        let Some(rows) = &mut self.rows else { return Ok(()) };
        while let Some(row) = rows.next()? {
            let (pid, cuda) = (row.get::<_, u32>(2)?, row.get::<_, i64>(3)?);
            let device = u32::try_from(cuda).ok().and_then(|cuda| self.ordinals.shared(pid, cuda));
            if let Some(device) = device {
                let at = |since: i64| Timestamp::from_nanos(self.start.nanos().saturating_add_signed(since));
                let (at, until) = (at(row.get(0)?), Some(at(row.get(1)?)));
                let name = self.names.get(&pid).copied().unwrap_or_default();
                self.next = Some(ProcessReading { device, at, until, pid, name, ..ProcessReading::default() });
                break;
            }
        }
        Ok(())
    }

    /// Returns the next operation if it started by `until`.
    pub(super) fn next(&mut self, until: Timestamp) -> Result<Option<CounterEvent>> {
        let Some(reading) = self.next.filter(|reading| reading.at <= until) else { return Ok(None) };
        self.advance()?;
        Ok(Some(CounterEvent::Process(reading)))
    }
}
