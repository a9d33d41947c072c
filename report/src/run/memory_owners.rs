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

/// Smallest part of the peak that the sentence names.
const NAMED_PART: f64 = 0.005;

/// `At the peak: PyTorch 1.34 GB, context 0.60 GB, unnamed 0.02 GB (up to 0.03 GB in the run).`; `None` without owners.
pub(crate) fn sentence(rows: &[OwnerRow]) -> Option<String> {
    let peak: i64 = rows.iter().map(|row| row.peak_bytes).fold(0, i64::saturating_add);
    let counts = |bytes: i64| bytes.unsigned_abs() as f64 >= NAMED_PART * peak as f64 && bytes != 0;
    let further = |row: &OwnerRow| row.most.filter(|most| counts(most.saturating_sub(row.peak_bytes)));
    let (shown, others): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| counts(row.peak_bytes) || further(row).is_some());
    let before = rows.iter().any(|row| row.owner == Owner::Before);
    let part = |row: &OwnerRow| {
        let words = if row.owner == Owner::Context && !before { "context and before" } else { row.owner.words() };
        let most = further(row).map(|most| format!(" (up to {} in the run)", gigabytes(most)));
        format!("{words} {}{}", gigabytes(row.peak_bytes), most.unwrap_or_default())
    };
    let mut parts: Vec<_> = shown.into_iter().map(part).collect();
    let others = gigabytes(others.iter().map(|row| row.peak_bytes).fold(0, i64::saturating_add));
    if others != gigabytes(0) {
        parts.push(format!("others {others}"));
    }
    (!parts.is_empty()).then(|| format!("At the peak: {}.", parts.join(", ")))
}

fn gigabytes(bytes: i64) -> String {
    let text = format!("{:.2} GB", bytes as f64 / 1e9);
    if text == "-0.00 GB" { "0.00 GB".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_what_counts_and_how_far_the_unnamed_went() {
        let row = |owner, peak_bytes| OwnerRow { owner, peak_bytes, bytes: 0, least: None, most: None, near: None };
        let unnamed = |most| OwnerRow { least: Some(-4_000_000), most: Some(most), ..row(Owner::Unnamed, 20_000_000) };
        let mut rows = vec![
            row(Owner::PyTorch, 1_338_000_000),
            row(Owner::Context, 600_000_000),
            row(Owner::Modules, 8_000_000),
            row(Owner::CuDnn, 6_000_000),
            row(Owner::Nccl, 0),
            unnamed(30_000_000),
        ];
        let expected = "At the peak: PyTorch 1.34 GB, context and before 0.60 GB, unnamed 0.02 GB (up to 0.03 GB in the \
                        run), others 0.01 GB.";
        assert_eq!(sentence(&rows).as_deref(), Some(expected));
        rows[4] = row(Owner::Before, 30_000_000);
        rows[5] = unnamed(21_000_000);
        let expected =
            "At the peak: PyTorch 1.34 GB, context 0.60 GB, in use before 0.03 GB, unnamed 0.02 GB, others 0.01 GB.";
        assert_eq!(sentence(&rows).as_deref(), Some(expected));
        assert_eq!(sentence(&[]), None);
        let small = OwnerRow { peak_bytes: 3_000_000, ..unnamed(3_000_000) };
        assert_eq!(sentence(&[row(Owner::Xla, 1_000_000_000), small]).as_deref(), Some("At the peak: XLA 1.00 GB."));
    }
}
