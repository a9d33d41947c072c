//! The source lines that a report names, and where.

use profiler_core::attribution::{CallKind, is_library};
use profiler_core::sorting::SortRows as _;

use super::{Remedy, Report, SourceRow};
use crate::text_format::names::short_path;

/// Maximum number of places that a report suggests for reading.
const PLACES: usize = 64;

impl Report {
    /// Lines that the report can name, those of the program's own files first: of calls, of idle time, and of launches
    /// and captures of kernels, those with the most time or samples first.
    #[must_use]
    pub fn places(&self) -> Vec<(&str, u32)> {
        let calls = |kind| {
            let rows = self.host.iter().flat_map(|host| &host.calls).filter(move |row| row.calls == kind);
            rows.map(|row| (row.file.as_str(), row.line)).collect::<Vec<_>>()
        };
        let idle = self.host.iter().flat_map(|host| &host.lines).map(|row| (row.file.as_str(), row.line));
        let holders = self.host.iter().flat_map(|host| &host.lock_holders).map(|row| (row.file.as_str(), row.line));
        let mut launches: Vec<_> = self.kernel_lines.iter().flat_map(|lines| &lines.launches).collect();
        launches.sort_rows_by(|a, b| b.estimated_ns.total_cmp(&a.estimated_ns));
        let launches = launches.into_iter().map(|row| (row.place.file.as_str(), row.place.line));
        let captured = self.graph_origins.iter().flat_map(|origins| &origins.rows);
        let captured = captured.map(|row| (row.place.file.as_str(), row.place.line));
        let mut lists = vec![idle.collect::<Vec<_>>(), launches.collect(), captured.collect(), holders.collect()];
        lists.extend(CallKind::ALL.map(calls));
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        let mut places: Vec<(&str, u32)> = Vec::new();
        // Line 0 means code without lines, such as native functions.
        for place in (0..longest).flat_map(|rank| lists.iter().filter_map(move |list| list.get(rank))) {
            if place.1 > 0 && !places.contains(place) && places.len() < PLACES {
                places.push(*place);
            }
        }
        places.sort_rows_by_key(|(file, _)| is_library(file));
        places
    }

    /// Named lines whose text the trace has, in the order of [`places`](Self::places).
    #[must_use]
    pub fn source_rows(&self) -> Vec<SourceRow> {
        self.places().into_iter().filter_map(|(file, line)| self.sources.row(file, line)).collect()
    }

    /// The line that a remedy names, if the trace has its text.
    #[must_use]
    pub fn source_of(&self, remedy: &Remedy) -> Option<SourceRow> {
        let (file, line) = self.sources.find(remedy.at.as_deref()?)?;
        self.sources.row(file, line)
    }

    /// The line that the recommendation names, if the trace has its text.
    #[must_use]
    pub fn first_source(&self) -> Option<SourceRow> {
        self.source_in(&self.bottleneck.recommendation)
    }

    /// The line that is named first in a sentence, if the trace has its text.
    #[must_use]
    pub fn source_in(&self, sentence: &str) -> Option<SourceRow> {
        let named = |row: &SourceRow| {
            let place = format!("{}:{} (", short_path(&row.file), row.line);
            // `train.py` is not `pretrain.py`.
            let begins = |at: &usize| sentence[..*at].chars().next_back().is_none_or(char::is_whitespace);
            sentence.match_indices(&place).map(|(at, _)| at).find(begins)
        };
        let mut found: Vec<_> = self.source_rows().into_iter().filter_map(|row| Some((named(&row)?, row))).collect();
        found.sort_rows_by_key(|(at, _)| *at);
        // Two files of one name at one place could both be meant.
        let is_clear = found.windows(2).next().is_none_or(|pair| pair[0].0 != pair[1].0);
        found.into_iter().next().filter(|_| is_clear).map(|(_, row)| row)
    }
}
