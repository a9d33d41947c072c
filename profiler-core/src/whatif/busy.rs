//! Work of the device that a change leaves as it is: no step becomes shorter than that.
//!
//! A simulated step may. Where launches are late, no record shows that a stream also waits for another one, so the
//! simulation lets such streams run at once when the CPU's delays are gone; and it has a part of the steps, while the
//! accounts have all. Work that ran at the same time as other work counts once.

use super::scenario::ScenarioKind;
use super::variants::Removed;
use crate::leaf::{BUSY_COUNT, Leaf, Leaves};
use gpuwhy_trace::record::CopyKind;

/// Shares of a step without tracing in which the device works, by leaf, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    leaves: [f64; BUSY_COUNT],
    /// Part of computation that only finds selections, 0 to 1.
    selections: f64,
}

impl Busy {
    /// The work of steps with these leaves. `untraced`: the fraction of them that remains without tracing, which takes
    /// idle time.
    pub(crate) fn of(leaves: &Leaves, selections: f64, untraced: f64) -> Self {
        let busy: u64 = leaves[..BUSY_COUNT].iter().sum();
        let whole = (leaves.iter().sum::<u64>() as f64 * untraced).max(busy as f64).max(1.0);
        Self { leaves: std::array::from_fn(|leaf| leaves[leaf] as f64 / whole), selections }
    }

    /// Largest speedup of a step without `removed`, at least 1. Infinite if no work remains.
    pub fn most(&self, removed: Removed) -> f64 {
        let stays: f64 =
            Leaf::ALL[..BUSY_COUNT].iter().map(|&leaf| self.leaves[leaf as usize] * self.kept(leaf, removed)).sum();
        if stays > 0.0 { (1.0 / stays).max(1.0) } else { f64::INFINITY }
    }

    /// Part of the work of a leaf that remains without `removed`.
    fn kept(&self, leaf: Leaf, removed: Removed) -> f64 {
        use ScenarioKind::{
            CommunicationHidden, CopiesJoined, CopiesOverlapped, DeviceCopiesGone, GridsFilled, KernelsAtRoof,
            NoReadbacks, ReadsReduced,
        };
        let any = |kinds: &[ScenarioKind]| kinds.iter().any(|&kind| removed.has(kind));
        let gone = match leaf {
            Leaf::Compute if any(&[GridsFilled, KernelsAtRoof]) => true,
            Leaf::Compute if any(&[NoReadbacks]) => return 1.0 - self.selections,
            Leaf::Compute => false,
            Leaf::Communication => any(&[CommunicationHidden]),
            Leaf::Memset => false,
            Leaf::CopyD2d => any(&[CopiesOverlapped, DeviceCopiesGone]),
            _ if leaf.copy_kind() == Some(CopyKind::DeviceToHost) => {
                any(&[CopiesOverlapped, CopiesJoined, NoReadbacks, ReadsReduced])
            }
            _ => any(&[CopiesOverlapped, CopiesJoined]),
        };
        if gone { 0.0 } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::LEAF_COUNT;

    #[test]
    fn a_step_takes_no_less_than_the_work_that_stays() {
        let mut leaves = [0; LEAF_COUNT];
        for (leaf, nanos) in [
            (Leaf::Compute, 40),
            (Leaf::CopyH2dPinned, 8),
            (Leaf::CopyD2hPageable, 6),
            (Leaf::CopyD2d, 6),
            (Leaf::HostCpu, 40),
        ] {
            leaves[leaf as usize] = nanos;
        }
        let stays = |kinds: &[ScenarioKind], selections: f64, untraced: f64| {
            let removed = kinds.iter().fold(Removed::default(), |set, &kind| set.and(kind));
            (1e3 / Busy::of(&leaves, selections, untraced).most(removed)).round()
        };
        assert_eq!(stays(&[ScenarioKind::NoHostWork], 0.0, 1.0), 600.0);
        assert_eq!(stays(&[ScenarioKind::LaunchesFree], 0.0, 0.8), 750.0, "of a step that is a fifth shorter");
        assert_eq!(stays(&[ScenarioKind::NoSyncs], 0.0, 0.5), 1_000.0, "no longer than the step");
        assert_eq!(stays(&[ScenarioKind::ReadsReduced], 0.0, 1.0), 540.0);
        assert_eq!(stays(&[ScenarioKind::NoHostWork, ScenarioKind::CopiesOverlapped], 0.0, 1.0), 400.0);
        assert_eq!(stays(&[ScenarioKind::NoReadbacks], 0.5, 1.0), 340.0);
        assert_eq!(stays(&[ScenarioKind::DeviceCopiesGone], 0.0, 1.0), 540.0);
        assert_eq!(stays(&[ScenarioKind::GridsFilled, ScenarioKind::CopiesOverlapped], 0.0, 1.0), 0.0);
        assert_eq!(Busy::default().most(Removed::default()), f64::INFINITY);
    }
}
