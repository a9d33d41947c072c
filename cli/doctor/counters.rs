//! Checks whether GPU hardware counters can be sampled (`GPUWHY_GPU_METRICS`).
//!
//! The child process that tests a libcupti also tries its counters (see [`probe`](super::probe)). A parameter
//! of the kernel module shows in advance whether counters are restricted to administrators. Readings of
//! power, clocks and temperature need none of this.

use cupti_sys::counters::refusal::{CounterError, restricted_to_administrators};

use super::check::Check;
use super::probe::ProbeResult;

const NAME: &str = "GPU counters";

/// Check of the counters; `None` when CUPTI itself does not work.
pub fn assess(outcome: &ProbeResult) -> Option<Check> {
    outcome.counters.as_ref().map(|counters| words(counters, restricted_to_administrators()))
}

fn words(counters: &Result<String, String>, restricted: Option<bool>) -> Check {
    let parameters = match restricted {
        Some(true) => " (RmProfilingAdminOnly is 1: other users may not)",
        Some(false) => " (RmProfilingAdminOnly is 0: all users may)",
        None => "",
    };
    match counters {
        Ok(found) => Check::ok(NAME, format!("{found}{parameters}")),
        Err(why) => {
            // The reason and the advice are in one sentence.
            let (finding, advice) = why.split_once("; ").unwrap_or((why, "see docs/guide/troubleshooting.md"));
            let is_permission = CounterError::Permission.to_string() == *why;
            let parameters = if is_permission { "" } else { parameters };
            Check::warn(NAME, format!("{finding}{parameters}; NVML readings still work"), advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Status;

    #[test]
    fn what_was_found_and_what_to_do_are_distinguished() {
        let good = words(&Ok("of GH100: 12 quantities".into()), Some(false));
        assert!(good.status == Status::Ok && good.finding.ends_with("is 0: all users may)"), "{good:?}");
        let busy = words(&Err(CounterError::Busy.to_string()), None);
        assert_eq!(busy.status, Status::Warn);
        assert!(busy.finding.starts_with("another tool has the GPU's counters; NVML readings"), "{busy:?}");
        assert!(busy.advice.unwrap().contains("dcgmi profile --pause"));
        let forbidden = words(&Err(CounterError::Permission.to_string()), Some(true));
        assert!(!forbidden.finding.contains("RmProfiling"), "{forbidden:?}");
        assert!(forbidden.advice.unwrap().contains("NVreg_RestrictProfilingToAdminUsers=0"));
    }
}
