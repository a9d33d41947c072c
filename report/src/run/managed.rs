//! Managed memory: what its pages cost kernels.

use profiler_core::attribution::DeviceAccount;
use profiler_core::leaf::Leaf;
use profiler_core::managed::ManagedTotals;

use super::{DeviceReport, ManagedPages};
use crate::text_format::{counted, percent};

/// Least share of the time of kernels in which pages move, or faults are resolved, for that to be said.
pub(in crate::run) const MIGRATIONS: f64 = 0.1;

impl ManagedPages {
    /// Those of a device; `None` if no page moved and there was no fault.
    pub(super) fn of(account: &DeviceAccount) -> Option<Self> {
        let totals = *account.managed();
        let computing = account.leaves()[Leaf::Compute as usize];
        let ns = if totals.has_moved() { totals.in_kernels_ns } else { totals.faulting_ns };
        let share = ns as f64 / computing.max(1) as f64;
        (totals != ManagedTotals::default()).then_some(Self { totals, share: share.min(1.0) })
    }
}

/// Sentence about the device whose kernels ran most while pages moved or were missed, if they ran long enough.
pub(super) fn sentence(devices: &[DeviceReport]) -> Option<String> {
    let pages = devices.iter().filter_map(|device| device.managed.as_ref());
    let ManagedPages { totals, share } = *pages.max_by(|a, b| a.share.total_cmp(&b.share))?;
    if share < MIGRATIONS {
        return None;
    }
    let percent = percent(share);
    if !totals.has_moved() {
        let faults = counted(totals.faults, "page fault");
        return Some(format!(
            "In {percent} of the time of kernels, page faults of managed memory were being resolved: {faults}. Recording them \
             can lengthen such kernels (by 14 % in one measurement); the bytes that moved were not recorded."
        ));
    }
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let to_device =
        format!("{} to the GPU in {}", megabytes(totals.to_device.bytes), counted(totals.to_device.count, "piece"));
    let back = match totals.to_host.count {
        0 => String::new(),
        count => format!(", {} back in {}", megabytes(totals.to_host.bytes), counted(count, "piece")),
    };
    let faults = match totals.faults {
        0 => String::new(),
        faults => format!(", with {}", counted(faults, "page fault")),
    };
    Some(format!("In {percent} of the time of kernels, pages of managed memory moved: {to_device}{back}{faults}."))
}
