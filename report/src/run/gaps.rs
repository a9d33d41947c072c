//! Idle time of a device by attributed subject: the rows from which the sentences about the bottleneck are
//! built.
//!
//! Leaves classify idle time; these rows name the call, kernel or copy. Like the bottleneck, they cover the
//! time after start-up. Leaves that are about the launch itself have no other subject and no row. The exact
//! position of a gap is in the trace, not here.

use gpuwhy_trace::dictionary::Dictionary;
use profiler_core::attribution::{DeviceAccount, GapTotals, Subject};
use profiler_core::leaf::Leaf;
use profiler_core::sorting::SortRows as _;

use super::names;
use super::waits::waited_for;
use super::{GapRow, GapSubject};
use crate::text_format::names::short_names;
use crate::text_format::{counted, duration, printable};
use crate::words;

/// Maximum length of a kernel name in a sentence.
const NAME_WIDTH: usize = 56;
/// Maximum number of rows per leaf except those of the host; the largest are kept. Gaps before each of
/// hundreds of kernels would be as many rows.
const ROWS: usize = 8;

impl GapSubject {
    fn of(subject: Subject, dictionary: &Dictionary) -> Self {
        match subject {
            Subject::None => Self::None,
            Subject::Call(function) => Self::Call(names::function(dictionary, function)),
            Subject::Kernel(name) => Self::Kernel(names::kernel(dictionary, name)),
            Subject::HostToDevice => Self::HostToDevice,
            Subject::OtherTransfer => Self::OtherTransfer,
            Subject::Awaited(producer) => Self::Awaited(producer),
            Subject::Host(cause, _) => Self::Host(cause),
        }
    }
}

impl GapRow {
    /// One phrase per row. Different kernels get different names.
    pub(super) fn sentences(rows: &[&Self]) -> Vec<String> {
        let name = |row: &&Self| if let GapSubject::Kernel(name) = &row.subject { name.clone() } else { String::new() };
        let names: Vec<String> = rows.iter().map(name).collect();
        let short = short_names(names.iter().map(String::as_str), NAME_WIDTH);
        rows.iter().zip(&short).map(|(row, name)| row.sentence(name)).collect()
    }

    fn sentence(&self, kernel: &str) -> String {
        let what = match &self.subject {
            GapSubject::None => "at various calls".to_owned(),
            GapSubject::Call(function) => format!("in or after {}", printable(function)),
            GapSubject::Kernel(_) => format!("before kernel {kernel}"),
            GapSubject::HostToDevice => "before a copy from the host".to_owned(),
            GapSubject::OtherTransfer => "before a copy or memset".to_owned(),
            GapSubject::Awaited(producer) => format!("for an event after {}", waited_for(*producer)),
            GapSubject::Host(cause) => format!("while the launching thread was {}", words::activity(*cause)),
        };
        let GapTotals { count, total_ns, longest_ns } = self.totals;
        let longest = if count > 1 { format!(", the longest {}", duration(longest_ns)) } else { String::new() };
        format!("The GPU was idle {what} {}: {} in all{longest}.", counted(count, "time"), duration(total_ns))
    }
}

/// Returns the idle time of a device after start-up, at most eight rows per leaf except those of the host,
/// the largest total first.
pub(super) fn gaps(account: &DeviceAccount, dictionary: &Dictionary) -> Vec<GapRow> {
    let mut host: Vec<GapRow> = Vec::new();
    let mut rows_of = [0; Leaf::ALL.len()];
    let mut rows = Vec::new();
    for (leaf, subject, totals) in account.all_causes() {
        let of_leaf = &mut rows_of[leaf as usize];
        if let Subject::Host(cause, _) = subject {
            // All lines of a host cause share one row.
            let subject = GapSubject::Host(cause);
            match host.iter_mut().find(|row| row.leaf == leaf && row.subject == subject) {
                Some(row) => row.totals.add(totals),
                None => host.push(GapRow { leaf, subject, totals }),
            }
        } else if *of_leaf < ROWS {
            *of_leaf += 1;
            rows.push(GapRow { leaf, subject: GapSubject::of(subject, dictionary), totals });
        }
    }
    rows.extend(host);
    rows.sort_rows_by_key(|row| std::cmp::Reverse(row.totals.total_ns));
    rows
}
