//! Checks whether this system provides the registers of running threads, which host samples need for native
//! functions.
//!
//! Reads only files in `/proc`. Whether a seccomp filter blocks perf events shows only when they are opened;
//! `libprof.so` does that and records the result in the report.

use std::fs;

use super::check::Check;

const NAME: &str = "native stacks";
/// Greatest `kernel.perf_event_paranoid` that lets every user sample their threads. Distributions add 3 and
/// 4.
const ALLOWED_FOR_ALL: i32 = 2;
/// `CAP_SYS_ADMIN` and `CAP_PERFMON`, either of which overrides that limit.
const CAPABILITIES: u64 = 1 << 21 | 1 << 38;

/// Adds the check. It never fails: gpuwhy works without native stacks.
pub fn check(checks: &mut Vec<Check>) {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    checks.push(Check::ok(NAME, finding(paranoid.as_deref(), &status)));
}

fn finding(paranoid: Option<&str>, status: &str) -> String {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let capabilities = field("CapEff:").and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    let is_filtered = field("Seccomp:") == Some("2");
    let waiting = "of waiting threads only";
    if !cfg!(target_arch = "x86_64") {
        return "none on this processor".to_owned();
    }
    let Some(level) = paranoid.and_then(|text| text.trim().parse::<i32>().ok()) else {
        return format!("{waiting}: this kernel has no perf events");
    };
    if level > ALLOWED_FOR_ALL && capabilities & CAPABILITIES == 0 {
        return format!("{waiting}: kernel.perf_event_paranoid is {level}; 2 would give those of running threads too");
    }
    let filter = if is_filtered {
        ", unless the filter of system calls of this container refuses perf_event_open (the report says so)"
    } else {
        ""
    };
    format!("of waiting and of running threads{filter}; GPUWHY_NATIVE_STACKS=auto switches them on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_allows_is_said() {
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        let user = "CapEff:\t0000000000000000\nSeccomp:\t0\n";
        let root = "CapEff:\t000001ffffffffff\nSeccomp:\t0\n";
        let container = "CapEff:\t00000000a80425fb\nSeccomp:\t2\n";
        assert!(finding(Some("2\n"), user).starts_with("of waiting and of running threads; "));
        assert!(finding(Some("4\n"), user).contains("is 4; 2 would"));
        assert!(finding(Some("4\n"), root).starts_with("of waiting and of running threads; "));
        assert!(finding(Some("-1\n"), container).contains("filter"));
        assert!(finding(None, user).contains("has no perf events"));
    }
}
