//! Choice of the kernels worth measuring.
//!
//! A kernel's weight is its share of the time of all kernels times its distance from its nearest roofline, if
//! hardware samples show that; otherwise its share alone. Some kernels are never measured, because a
//! measurement runs the kernel alone: one that waits for another kernel would hang.

use gpuwhy_trace::named;
use std::cmp::Reverse;

use gpuwhy_trace::record::{DeviceId, LaunchConfig, LaunchConfigId};
use profiler_core::sorting::SortRows as _;

/// A launch configuration of a kernel on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchConfiguration {
    /// Device on which it runs.
    pub device: DeviceId,
    /// Id of its name, shape and resources.
    pub config: LaunchConfigId,
    /// The configuration with this id.
    pub launch: LaunchConfig,
    /// Mangled name.
    pub name: String,
    /// Demangled name.
    pub demangled: String,
    /// True if it counts as communication.
    pub communication: bool,
    /// Number of launches.
    pub launches: u64,
    /// Total time of the launches, nanoseconds.
    pub total_ns: u64,
    /// Share of the time of kernels of this name that was launched by CUDA graphs, 0 to 1.
    pub graph_share: f64,
    /// Utilization of the unit that it uses most, 0 to 1; `None` if unknown.
    pub nearest_roof: Option<f64>,
}

named! {
    /// Reason not to measure a kernel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Excluded: name words {
        /// It exchanges data with other GPUs and waits for them.
        Communication "communication" "communicates with other GPUs and would wait for them",
        /// It was launched cooperatively: its blocks wait for each other.
        Cooperative "cooperative" "is launched cooperatively",
        /// It runs for longer than a second; such kernels often wait for the host or another kernel.
        Persistent "persistent" "runs for a second or longer and may wait for other work",
        /// It is launched by CUDA graphs, and a graph node cannot be measured alone.
        InGraph "in_graph" "is launched by CUDA graphs; launching a node alone could change results; ncu --graph-profiling node measures it",
        /// It ran only once.
        RanOnce "ran_once" "ran once only; measuring takes several launches",
    }
}

/// Mean duration above which kernels count as persistent, nanoseconds.
pub const LONGEST_NANOS: u64 = 1_000_000_000;

/// Lower-case parts of the names of communication kernels of any library.
const COMMUNICATING: [&str; 6] = ["nccl", "nvshmem", "rccl", "deep_ep", "allreduce", "all_to_all"];

/// Minimum share of a kernel's time in CUDA graphs for it to count as launched by them.
const GRAPH_SHARE: f64 = 0.5;

impl LaunchConfiguration {
    /// Returns the reason not to measure it; `None` if it may be measured.
    pub fn excluded(&self) -> Option<Excluded> {
        let name = self.name.to_ascii_lowercase();
        if self.communication || COMMUNICATING.iter().any(|word| name.contains(word)) {
            Some(Excluded::Communication)
        } else if self.launch.launch_type != 0 {
            Some(Excluded::Cooperative)
        } else if self.total_ns / self.launches.max(1) >= LONGEST_NANOS {
            Some(Excluded::Persistent)
        } else if self.graph_share > GRAPH_SHARE {
            Some(Excluded::InGraph)
        } else if self.launches < 2 {
            Some(Excluded::RanOnce)
        } else {
            None
        }
    }

    fn score(&self) -> f64 {
        let distance = self.nearest_roof.map_or(1.0, |roof| (1.0 - roof).clamp(0.0, 1.0));
        self.total_ns as f64 * distance
    }
}

/// A kernel chosen for measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The kernel.
    pub candidate: LaunchConfiguration,
    /// Its share of the time of all candidates, 0 to 1.
    pub share: f64,
}

/// Returns the `most` most valuable kernels, and the excluded ones that would have been among them. Considers
/// only kernels whose demangled or mangled name `is_wanted` accepts.
pub fn choose(
    candidates: &[LaunchConfiguration],
    most: usize,
    is_wanted: impl Fn(&str) -> bool,
) -> (Vec<Choice>, Vec<(LaunchConfiguration, Excluded)>) {
    let all: u64 = candidates.iter().map(|candidate| candidate.total_ns).fold(0, u64::saturating_add);
    let wanted = |candidate: &&LaunchConfiguration| is_wanted(&candidate.demangled) || is_wanted(&candidate.name);
    let mut ranked: Vec<_> = candidates.iter().filter(wanted).collect();
    ranked.sort_rows_by(|a, b| {
        b.score()
            .total_cmp(&a.score())
            .then_with(|| (Reverse(a.total_ns), a.config).cmp(&(Reverse(b.total_ns), b.config)))
    });
    let (mut chosen, mut excluded) = (Vec::new(), Vec::new());
    for candidate in ranked {
        if chosen.len() == most {
            break;
        }
        match candidate.excluded() {
            Some(why) => excluded.push((candidate.clone(), why)),
            None => {
                let share = candidate.total_ns as f64 / all.max(1) as f64;
                chosen.push(Choice { candidate: candidate.clone(), share });
            }
        }
    }
    (chosen, excluded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(config: u32, name: &str, total_ns: u64) -> LaunchConfiguration {
        LaunchConfiguration {
            device: DeviceId(0),
            config: LaunchConfigId(config),
            launch: LaunchConfig::default(),
            name: name.to_owned(),
            demangled: name.to_owned(),
            communication: false,
            launches: 100,
            total_ns,
            graph_share: 0.0,
            nearest_roof: None,
        }
    }

    fn names(chosen: &[Choice]) -> Vec<&str> {
        chosen.iter().map(|choice| choice.candidate.name.as_str()).collect()
    }

    #[test]
    fn share_and_distance_from_the_roof_decide() {
        let at_roof = LaunchConfiguration { nearest_roof: Some(0.95), ..candidate(1, "gemm", 1_000) };
        let far = LaunchConfiguration { nearest_roof: Some(0.2), ..candidate(2, "softmax", 300) };
        let all = [at_roof, far, candidate(3, "small", 20)];
        let (chosen, excluded) = choose(&all, 2, |_| true);
        assert_eq!(names(&chosen), ["softmax", "gemm"]);
        assert!((chosen[0].share - 300.0 / 1_320.0).abs() < 1e-12 && excluded.is_empty());
        let without: Vec<_> = all.iter().map(|of| LaunchConfiguration { nearest_roof: None, ..of.clone() }).collect();
        assert_eq!(names(&choose(&without, 2, |_| true).0), ["gemm", "softmax"], "by share alone");
    }

    #[test]
    fn kernels_that_wait_for_others_are_never_chosen() {
        let all = [
            candidate(1, "ncclDevKernel_AllReduce_Sum_bf16", 9_000),
            LaunchConfiguration { communication: true, ..candidate(2, "my_exchange", 8_000) },
            candidate(3, "nvshmemi_transfer", 7_000),
            LaunchConfiguration {
                launch: LaunchConfig { launch_type: 1, ..LaunchConfig::default() },
                ..candidate(4, "coop", 6_000)
            },
            LaunchConfiguration { launches: 3, ..candidate(5, "server_loop", 3 * LONGEST_NANOS) },
            LaunchConfiguration { graph_share: 0.9, ..candidate(6, "node", 5_000) },
            LaunchConfiguration { launches: 1, ..candidate(7, "set_up", 4_000) },
            candidate(8, "plain", 10),
        ];
        let (chosen, excluded) = choose(&all, 5, |_| true);
        assert_eq!(names(&chosen), ["plain"]);
        let why: Vec<_> = excluded.iter().map(|(of, why)| (of.config.0, *why)).collect();
        assert_eq!(
            why,
            [
                (5, Excluded::Persistent),
                (1, Excluded::Communication),
                (2, Excluded::Communication),
                (3, Excluded::Communication),
                (4, Excluded::Cooperative),
                (6, Excluded::InGraph),
                (7, Excluded::RanOnce)
            ]
        );
        assert!(choose(&all, 5, |name| name.contains("nccl")).0.is_empty(), "also not on request");
    }

    #[test]
    fn kernels_are_chosen_by_name() {
        let all = [candidate(1, "gemm_a", 10), candidate(2, "gemm_b", 20), candidate(3, "copy", 99)];
        assert_eq!(names(&choose(&all, 9, |name| name.starts_with("gemm")).0), ["gemm_b", "gemm_a"]);
        assert!(choose(&all, 0, |_| true).0.is_empty());
    }
}
