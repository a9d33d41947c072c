//! Rows of operators, of allocations in them, and of modules and functions around them.

use gpuwhy_report::run::operators::{OperatorNames, OperatorsBy};
use gpuwhy_trace::record::Timestamp;
use serde_json::value::RawValue;

use super::builder::{thread, times};
use super::lenient::Lenient;
use super::processes::LabelId;
use super::python::own_function;
use super::row::{Category, KinetoRow, OperatorArguments};
use super::time;
use crate::operators::OperatorRow;

/// Name of the rows of allocations.
const MEMORY: &str = "[memory]";
/// `c10::DeviceType::CUDA`.
const CUDA: i64 = 1;

/// Rows of a file, in its order; times relative to [`Builder::base_ns`](super::builder::Builder::base_ns).
#[derive(Debug, Default)]
pub(super) struct OperatorRows {
    pub(super) by: OperatorsBy,
    pub(super) names: OperatorNames,
    pub(super) rows: Vec<OperatorRow>,
}

impl OperatorRows {
    /// Takes a row about operators. Those without usable times are left to the caller, which counts them.
    pub(super) fn take(&mut self, row: &KinetoRow, process: LabelId) {
        let Ok(on) = thread(row) else { return };
        let arguments = || {
            let raw = row.of_operator.as_ref()?;
            serde_json::from_str::<Lenient<OperatorArguments>>(raw.get()).ok()?.0
        };
        if row.category == Category::Instant {
            let start = row.start.as_ref().and_then(|raw| time::nanoseconds(raw.get()));
            let at = start.and_then(|start| u64::try_from(start).ok()).map(Timestamp::from_nanos);
            if let (MEMORY, Some(at), Some(arguments)) = (&*row.name, at, arguments())
                && arguments.device_type.integer() == Some(CUDA)
                && let Some(bytes) = arguments.bytes.integer()
            {
                self.rows.push(OperatorRow::memory(on, at, bytes, process.0));
            }
            return;
        }
        let Ok((start, end)) = times(row) else { return };
        let span = match (row.category, self.by) {
            (Category::Range, _) => {
                let arguments = arguments().unwrap_or_default();
                let list = |value: &Option<Box<RawValue>>| {
                    let text = value.as_ref().map(|raw| raw.get()).filter(|text| text.starts_with('['));
                    text.unwrap_or_default().to_owned()
                };
                self.names.operator(&row.name, &list(&arguments.shapes), &list(&arguments.values))
            }
            (_, OperatorsBy::Module) => row.name.strip_prefix("nn.Module: ").map(|module| self.names.around(module)),
            (_, OperatorsBy::Line) => own_function(&row.name).map(|function| self.names.around(&function)),
            _ => None,
        };
        self.rows.extend(span.map(|span| OperatorRow::span(on, (start, end), span, process.0)));
    }
}
