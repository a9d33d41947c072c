//! Owners of a device's memory: a sentence, and rows for the JSON.

use gpuwhy_trace::dictionary::Dictionary;
use profiler_core::memory::{DeviceOwners, Owner, OwnerShare};
use profiler_core::sorting::SortRows as _;

use super::{LineNear, OwnerRow};

/// The rows, the largest at the peak first and the unnamed last.
pub(super) fn rows(owners: &DeviceOwners, dictionary: &Dictionary) -> Vec<OwnerRow> {
    let row = |share: &OwnerShare| {
        let unnamed = Some(owners.unnamed).filter(|_| share.owner == Owner::Unnamed);
        OwnerRow {
            owner: share.owner,
            peak_bytes: share.peak_bytes,
            bytes: share.last_bytes,
            least: unnamed.map(|(least, _)| least),
            most: unnamed.map(|(_, most)| most),
            near: share.near.and_then(|stack| LineNear::of(stack, dictionary)),
        }
    };
    let mut rows: Vec<_> = owners.shares.iter().map(row).collect();
    rows.sort_rows_by(|a, b| {
        let key = |row: &OwnerRow| (row.owner == Owner::Unnamed, std::cmp::Reverse(row.peak_bytes), row.owner);
        key(a).cmp(&key(b))
    });
    rows
}

/// `At the peak: PyTorch 1.34 GB, context 0.60, unnamed 0.02 (0.01 to 0.03).`; `None` without owners.
pub(crate) fn sentence(rows: &[OwnerRow]) -> Option<String> {
    let shown = rows.iter().filter(|row| row.owner == Owner::Unnamed || row.peak_bytes != 0);
    let part = |(index, row): (usize, &OwnerRow)| {
        let unit = if index == 0 { " GB" } else { "" };
        let range =
            row.least.zip(row.most).map(|(least, most)| format!(" ({} to {})", gigabytes(least), gigabytes(most)));
        format!("{} {}{unit}{}", row.owner.words(), gigabytes(row.peak_bytes), range.unwrap_or_default())
    };
    let parts: Vec<_> = shown.enumerate().map(part).collect();
    (!parts.is_empty()).then(|| format!("At the peak: {}.", parts.join(", ")))
}

/// Without a unit: owners are compared with each other.
fn gigabytes(bytes: i64) -> String {
    let text = format!("{:.2}", bytes as f64 / 1e9);
    if text == "-0.00" { "0.00".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_has_all_owners_and_the_range_of_the_unnamed() {
        let row = |owner, peak_bytes| OwnerRow { owner, peak_bytes, bytes: 0, least: None, most: None, near: None };
        let unnamed = OwnerRow { least: Some(-4_000_000), most: Some(30_000_000), ..row(Owner::Unnamed, 20_000_000) };
        let rows = [row(Owner::PyTorch, 1_338_000_000), row(Owner::Context, 600_000_000), row(Owner::Nccl, 0), unnamed];
        let expected = "At the peak: PyTorch 1.34 GB, context 0.60, unnamed 0.02 (0.00 to 0.03).";
        assert_eq!(sentence(&rows).as_deref(), Some(expected));
        assert_eq!(sentence(&[]), None);
    }
}
