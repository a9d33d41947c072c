//! Steps of a run that the engine has dropped, stored in a temporary file.
//!
//! The engine keeps the newest steps of a series (`profiler_core::steps::REMEMBERED`) and passes older ones
//! on. The series that a device's steps belong to is known only at the end, so the steps of all series are
//! stored, and those of other series are skipped on reading. A row has the words below, little-endian,
//! followed by the leaves that are not zero:
//!
//! ```text
//! capture 32 bits, device 32 | series 32, kind 32 (0: no iteration) | sequences 32, tokens 32
//! number | start | end | operations | bits of the leaves | leaves...
//! ```

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek as _, SeekFrom, Write as _};

use gpuwhy_import::scratch;
use gpuwhy_trace::record::{DeviceId, Timestamp};
use profiler_core::leaf::{LEAF_COUNT, Leaves};
use profiler_core::steps::{Iteration, IterationKind, OverflowSeries, OverflowStep, REMEMBERED, Step, Steps};
use rustc_hash::FxHashMap;

use crate::error::ExportError;

/// Number of words before the leaves.
const HEAD: usize = 8;

const _: () = assert!(LEAF_COUNT <= u64::BITS as usize);

/// A capture, and the series of the steps of each of its devices.
pub type SeriesOfReport = (u32, Vec<OverflowSeries>);

/// Writes steps to a temporary file.
#[derive(Debug, Default)]
pub struct StepSpool {
    /// Created for the first step: most runs have no more steps than the engine keeps.
    file: Option<BufWriter<File>>,
    /// Number of steps by capture, device and series.
    counts: FxHashMap<(u32, DeviceId, u32), u64>,
}

impl StepSpool {
    /// Appends steps in the order in which the engine passes them on. Fails if the temporary file cannot be
    /// written.
    pub fn add(&mut self, steps: &[(u32, DeviceId, OverflowStep)]) -> Result<(), ExportError> {
        if steps.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufWriter::new(scratch::create()?)),
        };
        for (capture, device, OverflowStep { series, number, step }) in steps {
            let place = u64::from(*capture) << 32 | u64::from(device.0);
            let used = step.leaves.iter().enumerate().filter(|(_, nanos)| **nanos > 0);
            let bits = used.clone().fold(0, |bits: u64, (leaf, _)| bits | 1 << leaf);
            let (kind, counts) = step.iteration.map_or((0, 0), |Iteration { kind, sequences, tokens }| {
                (1 + kind as u64, u64::from(sequences) << 32 | u64::from(tokens))
            });
            let (start, end) = (step.start.nanos(), step.end.nanos());
            let head = [place, u64::from(*series) << 32 | kind, counts, *number, start, end, step.operations, bits];
            *self.counts.entry((*capture, *device, *series)).or_default() += 1;
            for word in head.into_iter().chain(used.map(|(_, nanos)| *nanos)) {
                file.write_all(&word.to_le_bytes()).map_err(scratch::failed)?;
            }
        }
        Ok(())
    }

    /// Ends writing and selects the steps of `of_report` for reading. Fails if the temporary file cannot be
    /// written.
    pub fn finish(self, of_report: Option<SeriesOfReport>) -> Result<EarlierSteps, ExportError> {
        let file = self.file.map(|file| file.into_inner().map_err(io::IntoInnerError::into_error)).transpose();
        let (capture, series) = of_report.unwrap_or_default();
        let count = |of: &OverflowSeries| self.counts.get(&(capture, of.device, of.series)).copied().unwrap_or(0);
        let devices = series.into_iter().map(|of| (count(&of), of)).collect();
        Ok(EarlierSteps { file: file.map_err(scratch::failed)?, capture, devices })
    }
}

/// Steps before those in the report.
#[derive(Debug)]
pub struct EarlierSteps {
    file: Option<File>,
    capture: u32,
    /// Number of steps in the file, and the series, for each device.
    devices: Vec<(u64, OverflowSeries)>,
}

impl EarlierSteps {
    /// Passes the earlier steps of a device to `visit` with their numbers, oldest first. Fails if the
    /// temporary file cannot be read or `visit` fails.
    pub fn of_device(
        &self,
        device: DeviceId,
        mut visit: impl FnMut(u64, &Step) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let (Some(mut file), Some((_, wanted))) = (self.file.as_ref(), self.find(device)) else { return Ok(()) };
        file.seek(SeekFrom::Start(0)).map_err(scratch::failed)?;
        let mut file = BufReader::new(file);
        while let Some((capture, of, step)) = read(&mut file).map_err(scratch::failed)? {
            if (capture, of, step.series) == (self.capture, device, wanted.series) {
                visit(step.number, &step.step)?;
            }
        }
        Ok(())
    }

    /// Number of steps of a device that were found but are neither in `remembered` nor in this file.
    pub fn left_out(&self, device: DeviceId, remembered: &Steps) -> u64 {
        let count = self.find(device).map_or(0, |(count, _)| *count);
        remembered.seen.saturating_sub(count + remembered.rows.len() as u64)
    }

    fn find(&self, device: DeviceId) -> Option<&(u64, OverflowSeries)> {
        self.devices.iter().find(|(_, of)| of.device == device)
    }

    /// Describes time that is missing from the leaves of a device's earlier steps, for the user.
    pub fn moved_too_late(&self, device: DeviceId) -> Option<String> {
        let (count, of) = self.find(device)?;
        let late_ns = Some(of.moved_too_late_ns).filter(|&late_ns| *count > 0 && late_ns > 0)?;
        Some(format!(
            "device {}: records came so late that {late_ns} ns of steps before the newest {REMEMBERED} belong to other \
             leaves than step_leaves says",
            device.0
        ))
    }
}

/// Returns the next row, or `None` at the end.
fn read(file: &mut impl Read) -> io::Result<Option<(u32, DeviceId, OverflowStep)>> {
    let mut words = [0; HEAD];
    for (place, word) in words.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        match file.read_exact(&mut bytes) {
            Err(error) if place == 0 && error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        *word = u64::from_le_bytes(bytes);
    }
    let [place, series, counts, number, start, end, operations, bits] = words;
    let mut leaves: Leaves = [0; LEAF_COUNT];
    for (leaf, nanos) in leaves.iter_mut().enumerate() {
        if bits & 1 << leaf != 0 {
            let mut bytes = [0; 8];
            file.read_exact(&mut bytes)?;
            *nanos = u64::from_le_bytes(bytes);
        }
    }
    let (start, end) = (Timestamp::from_nanos(start), Timestamp::from_nanos(end));
    let kind = (series as u32).checked_sub(1).and_then(|kind| IterationKind::ALL.get(kind as usize).copied());
    let iteration = kind.map(|kind| Iteration { kind, sequences: (counts >> 32) as u32, tokens: counts as u32 });
    let step = Step { start, end, operations, leaves, iteration };
    let step = OverflowStep { series: (series >> 32) as u32, number, step };
    Ok(Some(((place >> 32) as u32, DeviceId(place as u32), step)))
}

#[cfg(test)]
mod tests {
    use profiler_core::steps::StepSource;

    use super::*;

    fn step(series: u32, number: u64) -> OverflowStep {
        let (start, end) = (Timestamp::from_nanos(number * 10), Timestamp::from_nanos(number * 10 + 10));
        let leaves = std::array::from_fn(|leaf| if (leaf as u64 + number).is_multiple_of(3) { number + 1 } else { 0 });
        let kind = IterationKind::ALL[number as usize % IterationKind::ALL.len()];
        let iteration = Iteration { kind, sequences: number as u32, tokens: u32::MAX - number as u32 };
        let iteration = Some(iteration).filter(|_| number.is_multiple_of(2));
        OverflowStep { series, number, step: Step { start, end, operations: number + 7, leaves, iteration } }
    }

    fn series(device: u32, series: u32, moved_too_late_ns: u64) -> OverflowSeries {
        OverflowSeries { device: DeviceId(device), series, moved_too_late_ns }
    }

    #[test]
    fn the_steps_of_a_device_come_back_as_they_were() {
        let mut spool = StepSpool::default();
        for number in 0..100 {
            // Another capture, another device, and another series of the device.
            let (first, second) = (DeviceId(0), DeviceId(u32::MAX));
            let rows = [(1, first, step(2, number)), (2, second, step(5, number)), (2, first, step(2, number))];
            spool.add(&rows).unwrap();
            spool.add(&[(2, first, step(3, number))]).unwrap();
        }
        let steps = spool.finish(Some((2, vec![series(0, 2, 40), series(u32::MAX, 5, 0)]))).unwrap();
        for device in [DeviceId(0), DeviceId(u32::MAX)] {
            for _ in 0..2 {
                let mut found = Vec::new();
                let visited = steps.of_device(device, |number, step| {
                    found.push((number, *step));
                    Ok(())
                });
                visited.unwrap();
                assert!(found.into_iter().eq((0..100).map(|number| (number, step(0, number).step))), "{device:?}");
            }
        }
        let late = [0, u32::MAX, 1].map(|device| steps.moved_too_late(DeviceId(device)));
        assert!(matches!(&late, [Some(late), None, None] if late.contains("device 0: ") && late.contains(" 40 ns ")));
        let remembered = Steps { source: StepSource::Period, period: None, seen: 105, rows: vec![step(2, 9).step; 3] };
        assert_eq!([0, 1].map(|device| steps.left_out(DeviceId(device), &remembered)), [2, 102]);
        steps.of_device(DeviceId(1), |_, _| panic!("it has none")).unwrap();
    }

    #[test]
    fn without_steps_there_is_no_file() {
        let mut spool = StepSpool::default();
        spool.add(&[]).unwrap();
        let steps = spool.finish(Some((1, vec![series(0, 0, 5)]))).unwrap();
        assert!(steps.file.is_none());
        steps.of_device(DeviceId(0), |_, _| panic!("there are none")).unwrap();
        assert_eq!(steps.moved_too_late(DeviceId(0)), None);
    }
}
