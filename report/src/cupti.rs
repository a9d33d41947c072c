//! Known bugs of CUPTI by version: when they matter, and what to do.
//!
//! Only those that a recording of gpuwhy can meet. Left out are bugs of functions that it never calls: hardware event
//! tracing, several subscribers, a clock of its own, `cuptiFinalize`.

use gpuwhy_trace::process_info::ProcessInfo;

/// The result of `cuptiGetVersion`, and the version in the package index.
type Package = (u32, &'static str);
/// The first package without a bug of this table but [`Bug::NO_TURNS`], and the newest one without that.
const GOOD_PACKAGE: Package = (130_401, "13.4.92");
const TURNS_PACKAGE: Package = (130_202, "13.2.86");
/// Recording time from which on [`When::Hours`] holds, nanoseconds. NVIDIA names no time ("long-running").
const HOURS: u64 = 3_600_000_000_000;

/// The runs in which a bug matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// All that record device work.
    Always,
    /// Recording is switched off before the end: captures, mode auto, GPUWHY_CUPTI_SHARING=yield.
    Switched,
    /// GPUWHY_CUPTI_SHARING=yield.
    Yielded,
    /// Whole CUDA graphs are requested.
    WholeGraphs,
    /// CUDA graphs are launched.
    Graphs,
    /// The program uses managed memory.
    Managed,
    /// At least an hour is recorded.
    Hours,
    /// Modules are unloaded and others loaded, which records do not show.
    Reloads,
}

/// A bug of CUPTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bug {
    /// First version with it, as `cuptiGetVersion` returns it; 0: unknown, so all versions.
    pub from: u32,
    /// First version without it.
    pub before: u32,
    /// Where it matters.
    pub when: When,
    /// What CUPTI does, and under which condition; follows its name.
    pub effect: &'static str,
    /// The source of all of this.
    pub source: Source,
}

/// The source of a [`Bug`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// NVIDIA's release notes of the first version without it.
    ReleaseNotes,
    /// Measured with gpuwhy: a section of its documentation.
    Measured(&'static str),
}

impl Bug {
    /// Kernel records stay on once they were on.
    pub const KERNELS_STAY_ON: Self = Self {
        from: 0,
        before: 130_001,
        when: When::Switched,
        effect: "can hang when kernel records are switched off, so gpuwhy leaves them on between and after captures",
        source: Source::ReleaseNotes,
    };

    /// CUDA graphs are recorded by nodes. The first launch of a graph that copies memory fails
    /// (`CUDA_ERROR_LAUNCH_FAILED`) if CUPTI was flushed before it; seen with 12.9 to 13.1.
    pub const WHOLE_GRAPHS_FAIL: Self = Self {
        from: 0,
        before: 130_200,
        when: When::WholeGraphs,
        effect: "can crash programs when it records whole CUDA graphs, so gpuwhy records their nodes",
        source: Source::Measured("docs/design/overhead.md#whole-graphs-and-crashes"),
    };

    /// gpuwhy keeps CUPTI. With 13.5.25 neither gpuwhy nor torch.profiler got a record, with 13.0.85 and 13.2.86 both
    /// did; 13.3 and 13.4 were not tried.
    pub const NO_TURNS: Self = Self {
        from: 130_300,
        before: u32::MAX,
        when: When::Yielded,
        effect: "can leave both tools without records with GPUWHY_CUPTI_SHARING=yield, so gpuwhy keeps it as by default",
        source: Source::Measured("docs/design/reliability.md#other-tools"),
    };

    /// All known bugs, by the version that has no longer the bug.
    pub const ALL: [Self; 9] = [
        Self::KERNELS_STAY_ON,
        Self::of_notes((0, 130_001), When::Graphs, "can crash programs that launch CUDA graphs for long"),
        Self::WHOLE_GRAPHS_FAIL,
        Self::of_notes(
            (130_200, 130_300),
            When::Always,
            "slows programs down when its functions are called repeatedly",
        ),
        Self::of_notes((0, 130_300), When::Graphs, "leaks host memory when CUDA graphs copy or set memory"),
        Self::of_notes(
            (0, 130_400),
            When::Managed,
            "can block for 2 s when a recording of page faults of managed memory ends",
        ),
        Self::of_notes((0, 130_401), When::Hours, "uses more and more CPU time when it records for hours"),
        Self::of_notes(
            (0, 130_401),
            When::Reloads,
            "can give kernels old names after modules were unloaded and loaded",
        ),
        Self::NO_TURNS,
    ];

    const fn of_notes((from, before): (u32, u32), when: When, effect: &'static str) -> Self {
        Self { from, before, when, effect, source: Source::ReleaseNotes }
    }

    /// True if a version has it. An unknown one, 0, has none.
    pub const fn is_in(&self, version: u32) -> bool {
        version != 0 && self.from <= version && version < self.before
    }

    /// What this version does, the source, and what to do for a program with the library at `path`.
    pub fn sentence(&self, version: u32, path: &str) -> String {
        let remedy = remedy_by(if self.when == When::Yielded { TURNS_PACKAGE } else { GOOD_PACKAGE }, path);
        format!("CUPTI {} {} ({}); {remedy}", name(version), self.effect, self.sourced())
    }

    fn sourced(&self) -> String {
        match self.source {
            Source::ReleaseNotes => format!("NVIDIA's release notes of CUDA {}", name(self.before)),
            Source::Measured(section) => section.to_owned(),
        }
    }
}

/// All bugs of a version in one sentence, and what to do; `None` if none is known.
pub fn all_of(version: u32, path: &str) -> Option<(String, String)> {
    let bugs: Vec<_> = Bug::ALL.iter().filter(|bug| bug.is_in(version)).collect();
    let effects: Vec<_> = bugs.iter().map(|bug| format!("{} ({})", bug.effect, bug.sourced())).collect();
    let package = if bugs.iter().all(|bug| bug.when == When::Yielded) { TURNS_PACKAGE } else { GOOD_PACKAGE };
    (!bugs.is_empty()).then(|| (format!("CUPTI {} {}", name(version), effects.join("; ")), remedy_by(package, path)))
}

/// How a program with the libcupti at `path` gets one with fewer bugs. A library that a program has loaded stays in
/// use, so naming another one for gpuwhy does not help; PyTorch loads the one beside it.
pub fn remedy(path: &str) -> String {
    remedy_by(GOOD_PACKAGE, path)
}

fn remedy_by((version, package): Package, path: &str) -> String {
    let install = format!("pip install 'nvidia-cuda-cupti=={package}'");
    if path.contains("/nvidia/cu13/lib/") {
        install
    } else if path.contains("/nvidia/cuda_cupti/lib/") {
        format!("use packages for CUDA 13 (PyTorch 2.11 has them) and {install}")
    } else {
        format!("start the program with LD_PRELOAD=FILE, a libcupti.so.13 of CUDA {}", name(version))
    }
}

/// Version of CUDA with the CUPTI that `cuptiGetVersion` describes.
pub fn name(version: u32) -> String {
    match version {
        ..20 => "11.8 to 12.1".to_owned(),
        20..=28 => format!("12.{}", [2, 3, 4, 5, 6, 6, 8, 9, 9][version as usize - 20]),
        _ => {
            let update = match version % 100 {
                0 => String::new(),
                update => format!(" update {update}"),
            };
            format!("{}.{}{update}", version / 10_000, version / 100 % 100)
        }
    }
}

/// What a run shows that [`When`] asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// CUDA graphs were launched.
    pub graphs: bool,
    /// Number of captures.
    pub captures: usize,
    /// There are records of managed memory.
    pub managed: bool,
    /// Recorded time, nanoseconds.
    pub observed_ns: u64,
}

/// Sentences about the bugs that matter in this run. Those that a setting leads to are in the notes of the process.
pub(crate) fn sentences(process: &ProcessInfo, seen: Seen) -> Vec<String> {
    let holds = |when| match when {
        When::Always => true,
        When::Switched => seen.captures > 1,
        When::Yielded | When::WholeGraphs | When::Reloads => false,
        When::Graphs => seen.graphs,
        When::Managed => seen.managed,
        When::Hours => seen.observed_ns >= HOURS,
    };
    let version = process.cupti_version;
    let bugs = Bug::ALL.iter().filter(|bug| bug.is_in(version) && holds(bug.when));
    bugs.map(|bug| bug.sentence(version, &process.cupti_path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions of `cuptiGetVersion` with their packages, those of PyTorch 2.7 to 2.15 and the newest ones.
    const CHECKED: [(u32, &str); 6] = [
        (24, "12.6"),
        (26, "12.8"),
        (130_001, "13.0 update 1"),
        (130_202, "13.2 update 2"),
        (GOOD_PACKAGE.0, "13.4 update 1"),
        (130_500, "13.5"),
    ];

    fn said(version: u32, seen: Seen) -> Vec<String> {
        sentences(&ProcessInfo { cupti_version: version, ..ProcessInfo::default() }, seen)
    }

    #[test]
    fn each_bug_is_said_where_it_matters_and_nowhere_else() {
        let everything = Seen { graphs: true, captures: 2, managed: true, observed_ns: HOURS };
        let nothing = Seen { captures: 1, observed_ns: HOURS - 1, ..Seen::default() };
        for bug in Bug::ALL {
            let seen = match bug.when {
                When::Always => nothing,
                When::Switched => Seen { captures: 2, ..nothing },
                When::Graphs => Seen { graphs: true, ..nothing },
                When::Managed => Seen { managed: true, ..nothing },
                When::Hours => Seen { observed_ns: HOURS, ..nothing },
                // Not by the report: a setting leads to it, or only the user knows.
                When::Yielded | When::WholeGraphs | When::Reloads => everything,
            };
            let by_the_report = !matches!(bug.when, When::Yielded | When::WholeGraphs | When::Reloads);
            let says = |version, seen| said(version, seen).iter().any(|line| line.contains(bug.effect));
            assert_eq!(says(bug.before - 1, seen), by_the_report, "{bug:?}");
            assert!(!says(bug.before, everything), "{bug:?}");
            assert!(bug.from == 0 || !says(bug.from - 1, everything), "{bug:?}");
            assert!(bug.when == When::Always || !says(bug.before - 1, nothing), "{bug:?}");
            assert!(!says(0, everything), "the version is unknown: {bug:?}");
            assert!(all_of(bug.before - 1, "").unwrap().0.contains(bug.effect), "{bug:?}");
        }
        assert!(said(GOOD_PACKAGE.0, everything).is_empty());
        assert_eq!(all_of(GOOD_PACKAGE.0, "").unwrap().0.matches(';').count(), 0, "only turns with other tools");
        assert!(all_of(0, "").is_none());
    }

    #[test]
    fn a_version_is_named_as_its_cuda() {
        for (version, named) in CHECKED {
            assert_eq!(name(version), named);
        }
        assert_eq!([18, 20, 28, 130_000].map(name), ["11.8 to 12.1", "12.2", "12.9", "13.0"]);
    }

    #[test]
    fn the_remedy_is_for_the_library_that_the_program_loads() {
        let site = "/venv/lib/python3.12/site-packages/nvidia";
        assert_eq!(remedy(&format!("{site}/cu13/lib/libcupti.so.13")), "pip install 'nvidia-cuda-cupti==13.4.92'");
        assert!(remedy(&format!("{site}/cuda_cupti/lib/libcupti.so.12")).starts_with("use packages for CUDA 13"));
        assert!(remedy("/usr/local/cuda/lib64/libcupti.so.13").starts_with("start the program with LD_PRELOAD=FILE"));
        assert!(!remedy("").contains("GPUWHY_CUPTI_PATH"), "a program with its own libcupti ignores it");
    }
}
