//! Finds the libcupti that a program would get, and tests it with the driver.
//!
//! A program that has already mapped its own libcupti (PyTorch) keeps that one. This process cannot see it
//! unless it lies in the active Python environment, so finding none is only a warning. A library that the
//! user named and that does not work is a failure.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cupti_sys::counters::refusal::{CounterError, restricted_to_administrators};
use cupti_sys::{FoundBy, Location, Search, Skip, discover};
use gpuwhy_report::cupti::all_of;

use super::check::Check;
use super::driver;
use super::probe::{self, ProbeResult};
use crate::install_paths;

const NAME: &str = "libcupti";
const BUGS: &str = "known bugs";
const COUNTERS: &str = "GPU counters";

/// Adds the checks: a line for each libcupti up to the first that loads, then the skipped ones.
pub fn check(named: Option<&Path>, cuda_version: Option<u32>, checks: &mut Vec<Check>) {
    let named = named.map(Path::to_owned).or_else(override_path);
    if let Some(path) = named {
        let path = path.canonicalize().unwrap_or(path);
        let outcome = probed(&path);
        checks.push(assess(&path, &FoundBy::Override, &outcome, cuda_version));
        checks.extend(bugs(&outcome).into_iter().chain(counters(&outcome)));
        return;
    }
    let search = Search { driver_cuda_version: cuda_version, ..search() };

    let mut chosen = false;
    let mut passed_over = Vec::new();
    for candidate in discover(&search) {
        match &candidate.skip {
            Some(Skip::NoLibraryInFolder | Skip::Duplicate) => {}
            Some(skip @ Skip::NewerThanDriver { .. }) => {
                // A bare name does not identify a file, so skipping it is not worth a line.
                if candidate.found_by != FoundBy::Linker {
                    passed_over.push(Check::ok(NAME, format!("{} skipped: {skip}", described(&candidate))));
                }
            }
            None if chosen => {
                if candidate.found_by != FoundBy::Linker {
                    passed_over.push(Check::ok(NAME, format!("{} not needed", described(&candidate))));
                }
            }
            None => {
                let outcome = probed(&candidate.path);
                if outcome.loaded.is_some() || candidate.found_by != FoundBy::Linker {
                    checks.push(assess(&candidate.path, &candidate.found_by, &outcome, cuda_version));
                    checks.extend(bugs(&outcome).into_iter().chain(counters(&outcome)));
                }
                // The program uses the first one that loads, even if it does not work.
                chosen = outcome.loaded.is_some();
            }
        }
    }
    if !chosen {
        checks.push(Check::warn(
            NAME,
            "none found; a program that ships its own, such as PyTorch, is not affected",
            "install the nvidia-cuda-cupti package or a CUDA toolkit, or name the file with --cupti-path",
        ));
    }
    checks.extend(passed_over);
}

fn override_path() -> Option<PathBuf> {
    env::var_os("GPUWHY_CUPTI_PATH").filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Where a program's libcupti is looked for, for any version of CUDA.
pub fn search() -> Search {
    let mut search = Search { override_path: override_path(), ..Search::for_this_process() };
    search.environments.extend(own_environment().into_iter().chain(python_environments()));
    search
}

fn described(candidate: &Location) -> String {
    format!("{} ({})", candidate.path.display(), candidate.found_by)
}

/// Outcome of the child process, including a failure to start it.
fn probed(path: &Path) -> ProbeResult {
    probe::probe(path)
        .unwrap_or_else(|error| ProbeResult { error: Some(format!("{error:#}")), ..ProbeResult::default() })
}

/// Describes an outcome.
fn assess(path: &Path, found_by: &FoundBy, outcome: &ProbeResult, cuda_version: Option<u32>) -> Check {
    let shown = match &outcome.loaded {
        Some(loaded) => loaded.clone(),
        None => path.display().to_string(),
    };
    let version = outcome.version.as_ref().map(|version| format!(", API version {version}")).unwrap_or_default();
    let shown = format!("{shown} ({found_by}{version})");
    let Some(error) = &outcome.error else {
        return Check::ok(NAME, format!("{shown} loads and its subscriber slot is free"));
    };
    let advice = match (outcome.busy, outcome.loaded.is_some(), cuda_version) {
        (true, ..) => "another profiler or debugger holds CUPTI: end it, or start the program outside of it".to_owned(),
        (_, false, _) => "name a libcupti that this machine can load with --cupti-path".to_owned(),
        (_, true, None) => "CUPTI needs the driver: see the lines above".to_owned(),
        (_, true, Some(version)) => {
            format!("use the libcupti of CUDA {} or older, which fits this driver", driver::cuda(version))
        }
    };
    let finding = format!("{shown}: {error}");
    // A library that cannot be loaded is skipped, unless the user named it.
    if outcome.loaded.is_none() && *found_by != FoundBy::Override {
        Check::warn(NAME, finding, advice)
    } else {
        Check::fail(NAME, finding, advice)
    }
}

/// Known bugs of this version, each with its condition.
fn bugs(outcome: &ProbeResult) -> Option<Check> {
    let version = outcome.version.as_ref()?.parse().ok()?;
    let (finding, advice) = all_of(version, outcome.loaded.as_ref()?)?;
    Some(Check::warn(BUGS, finding, advice))
}

/// Check of the counters; `None` when CUPTI itself does not work.
fn counters(outcome: &ProbeResult) -> Option<Check> {
    outcome.counters.as_ref().map(|counters| counter_access(counters, restricted_to_administrators()))
}

/// Check whether hardware counters can be sampled (`GPUWHY_GPU_METRICS`), which the child process tried. A parameter of
/// the kernel module shows in advance whether they are `restricted` to administrators. Readings of power, clocks and
/// temperature need none of this.
fn counter_access(counters: &Result<String, String>, restricted: Option<bool>) -> Check {
    let parameters = match restricted {
        Some(true) => " (RmProfilingAdminOnly is 1: other users may not)",
        Some(false) => " (RmProfilingAdminOnly is 0: all users may)",
        None => "",
    };
    match counters {
        Ok(found) => Check::ok(COUNTERS, format!("{found}{parameters}")),
        Err(why) => {
            // The reason and the advice are in one sentence.
            let (finding, advice) = why.split_once("; ").unwrap_or((why, "see docs/guide/troubleshooting.md"));
            let is_permission = CounterError::Permission.to_string() == *why;
            let parameters = if is_permission { "" } else { parameters };
            Check::warn(COUNTERS, format!("{finding}{parameters}; NVML readings still work"), advice)
        }
    }
}

/// Virtual environment that this command is installed in; it may be called by its path, without activation.
fn own_environment() -> Option<PathBuf> {
    let prefix = install_paths::executable_folder()?.parent()?.to_owned();
    prefix.join("pyvenv.cfg").is_file().then_some(prefix)
}

/// Package prefixes of the `python3` in the PATH: that of its environment and that of the user.
///
/// Most users get libcupti through `pip install`, and a terminal without an activated environment does not
/// show where. An empty list is not an error.
fn python_environments() -> Vec<PathBuf> {
    let output = Command::new("python3")
        .args(["-I", "-c", "import site, sys; print(sys.prefix); print(site.getuserbase())"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let Ok(output) = output else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Status;

    fn assessed(outcome: &ProbeResult, cuda_version: Option<u32>) -> Check {
        assess(Path::new("/x/libcupti.so.13"), &FoundBy::Override, outcome, cuda_version)
    }

    fn loaded(error: Option<&str>) -> ProbeResult {
        ProbeResult {
            loaded: Some("/x/libcupti.so.13".into()),
            version: Some("130001".into()),
            subscribed: error.is_none(),
            error: error.map(str::to_owned),
            busy: false,
            counters: None,
        }
    }

    #[test]
    fn a_working_library_is_fine() {
        let check = assessed(&loaded(None), Some(13_000));
        assert_eq!(check.status, Status::Ok);
        assert!(check.finding.contains("/x/libcupti.so.13") && check.finding.contains("130001"));
    }

    #[test]
    fn the_advice_fits_the_cause() {
        let advice = |outcome: &ProbeResult, cuda_version| assessed(outcome, cuda_version).advice.unwrap();
        let busy = ProbeResult { busy: true, ..loaded(Some("cuptiSubscribe answered 39")) };
        assert!(advice(&busy, Some(13_000)).contains("another profiler"));
        assert!(advice(&loaded(Some("answered 999")), None).contains("needs the driver"));
        assert!(advice(&loaded(Some("answered 15")), Some(12_080)).contains("12.8 or older"));
        let not_loaded = ProbeResult { error: Some("invalid ELF header".into()), ..ProbeResult::default() };
        assert!(advice(&not_loaded, Some(13_000)).contains("--cupti-path"));
    }

    #[test]
    fn what_was_found_and_what_to_do_are_distinguished() {
        let good = counter_access(&Ok("of GH100: 12 quantities".into()), Some(false));
        assert!(good.status == Status::Ok && good.finding.ends_with("is 0: all users may)"), "{good:?}");
        let busy = counter_access(&Err(CounterError::Busy.to_string()), None);
        assert_eq!(busy.status, Status::Warn);
        assert!(busy.finding.starts_with("another tool has the GPU's counters; NVML readings"), "{busy:?}");
        assert!(busy.advice.unwrap().contains("dcgmi profile --pause"));
        let forbidden = counter_access(&Err(CounterError::Permission.to_string()), Some(true));
        assert!(!forbidden.finding.contains("RmProfiling"), "{forbidden:?}");
        assert!(forbidden.advice.unwrap().contains("NVreg_RestrictProfilingToAdminUsers=0"));
    }
}
