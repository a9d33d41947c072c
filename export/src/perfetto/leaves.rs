//! Attribution of each step: a slice for the step, and a counter for each cause that occurs in any step.
//!
//! The engine stores sums per step, not the times of each cause within a step, and of a long run only the
//! newest steps. A counter therefore has the step's sum as its value from the start to the end of the step.

use std::io::{self, Write};

use gpuwhy_report::run::DeviceReport;
use profiler_core::leaf::Leaf;

use super::events::{Events, kind, track};
use super::packets::{Arrow, Note};

impl<W: Write> Events<'_, W> {
    /// Writes the steps of a device.
    pub fn steps(&mut self, device: &DeviceReport) -> io::Result<()> {
        let Some(steps) = &device.steps else { return Ok(()) };
        let ordinal = device.device.id.0;
        let parent = track(kind::DEVICE, 0, ordinal);
        let line = track(kind::STEPS, 0, ordinal);
        self.child(parent, line, &format!("gpuwhy: steps ({})", steps.source.name()))?;
        let found: Vec<Leaf> =
            Leaf::ALL.into_iter().filter(|&leaf| steps.rows.iter().any(|row| row.leaves[leaf as usize] > 0)).collect();
        for &leaf in &found {
            self.counter(
                parent,
                track(kind::LEAF, leaf as u32, ordinal),
                &format!("gpuwhy: {}", leaf.name()),
                "ns a step",
            )?;
        }
        for (number, row) in steps.rows.iter().enumerate() {
            let causes = found.iter().filter(|&&leaf| row.leaves[leaf as usize] > 0);
            let notes: Vec<_> = causes.map(|&leaf| Note::Number(leaf.name(), row.leaves[leaf as usize])).collect();
            self.packets.slice(line, (row.start, row.end), ("step", "step"), Arrow::None, &notes)?;
            let goes_on = steps.rows.get(number + 1).is_some_and(|next| next.start <= row.end);
            for &leaf in &found {
                let place = track(kind::LEAF, leaf as u32, ordinal);
                let value = i64::try_from(row.leaves[leaf as usize]).unwrap_or(i64::MAX);
                self.packets.counter(place, row.start, value)?;
                if !goes_on {
                    self.packets.counter(place, row.end, 0)?;
                }
            }
        }
        Ok(())
    }
}
