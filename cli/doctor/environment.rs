//! Checks the prerequisites of gpuwhy itself: its library, unset injection variables, a writable output
//! folder; and whether the system provides the registers of running threads, which host samples need for
//! native functions.
//!
//! Does not check ptrace permissions: the driver loads the library, and no process attaches to the program.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpuwhy_inject::config::{Pattern, Settings};

use super::check::Check;
use crate::install_paths;
use crate::output;

/// Greatest `kernel.perf_event_paranoid` that lets every user sample their threads. Distributions add 3 and
/// 4.
const ALLOWED_FOR_ALL: i32 = 2;
/// `CAP_SYS_ADMIN` and `CAP_PERFMON`, either of which overrides that limit.
const CAPABILITIES: u64 = 1 << 21 | 1 << 38;

pub fn check(checks: &mut Vec<Check>) {
    let library = install_paths::library();
    checks.push(match &library {
        Ok(path) => match loading_error(path) {
            None => Check::ok("libprof.so", path.display().to_string()),
            Some(error) => Check::fail(
                "libprof.so",
                format!("{} cannot be loaded: {error}", path.display()),
                "build gpuwhy on this machine, or on one with an older C library",
            ),
        },
        Err(missing) => {
            let text = missing.to_string();
            let advice = text.lines().last().unwrap_or_default().to_owned();
            let looked: Vec<String> = missing.looked.iter().map(|path| path.display().to_string()).collect();
            Check::fail("libprof.so", format!("not found in {}", looked.join(", ")), advice)
        }
    });
    // Without our own library, any library that is set belongs to another tool.
    let own = library.unwrap_or_else(|_| PathBuf::new());
    checks.push(match install_paths::other_library(install_paths::INJECTION, &own) {
        Some(other) => Check::fail(
            "injection",
            format!(
                "{} is set to {}; the driver loads only one library",
                install_paths::INJECTION,
                Path::new(&other).display()
            ),
            "unset it, or start with `gpuwhy run --force`",
        ),
        None => Check::ok("injection", format!("{} is free", install_paths::INJECTION)),
    });
    if let Some(other) = install_paths::other_library(install_paths::NVTX_INJECTION, &own) {
        checks.push(Check::warn(
            "NVTX injection",
            format!("{} is set to {}", install_paths::NVTX_INJECTION, Path::new(&other).display()),
            "NVTX ranges go to that library, and another profiler may also take CUPTI: unset the variable",
        ));
    }
    let (settings, _) = Settings::from_variables(&env::vars_os().collect::<Vec<_>>());
    checks.push(output_folder(settings.output.as_ref()));
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    checks.push(Check::ok("native stacks", native_stacks(paranoid.as_deref(), &status)));
}

/// Error of the dynamic loader for `library`, for example that the C library is too old.
///
/// Preloads the library into `--version` of this program: a dynamic loader that cannot preload a library
/// prints the reason on stderr and continues. So no foreign code runs in this process.
fn loading_error(library: &Path) -> Option<String> {
    let output = Command::new(env::current_exe().ok()?)
        .arg("--version")
        .env("LD_PRELOAD", library)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    match preload_complaint(&stderr) {
        // A missing symbol version terminates the program instead.
        None if !output.status.success() => Some(stderr.lines().next().unwrap_or("no reason given").to_owned()),
        complaint => complaint,
    }
}

/// Extracts the reason from a message such as `ERROR: ld.so: object 'a.so' from LD_PRELOAD cannot be
/// preloaded (reason): ignored.`
fn preload_complaint(stderr: &str) -> Option<String> {
    let line = stderr.lines().find(|line| line.contains("cannot be preloaded"))?;
    let reason = line.split_once("cannot be preloaded").map_or(line, |(_, reason)| reason);
    Some(reason.trim_end_matches('.').trim_end_matches(": ignored").trim_matches([' ', ':']).to_owned())
}

/// Checks whether a trace can be written, as `gpuwhy run` does.
fn output_folder(pattern: Option<&Pattern>) -> Check {
    const NAME: &str = "output folder";
    let Some(pattern) = pattern else { return Check::ok(NAME, "GPUWHY_OUTPUT=off: no trace is written") };
    match output::problem(pattern) {
        Some(problem) => Check::fail(NAME, problem, "start in another folder, or name one with `gpuwhy run --output`"),
        None => Check::ok(NAME, format!("{} can be written", pattern.shown())),
    }
}

/// What native stacks of host samples this system allows. Whether a filter of system calls blocks perf events
/// shows only when they are opened; libprof.so does that and records the result in the report.
fn native_stacks(paranoid: Option<&str>, status: &str) -> String {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let capabilities = field("CapEff:").and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0);
    let is_filtered = field("Seccomp:") == Some("2");
    let waiting = "of waiting threads only";
    if !cfg!(target_arch = "x86_64") {
        return "not available on Arm: they are read on x86-64 only".to_owned();
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
    use crate::doctor::check::Status;

    #[test]
    fn the_reason_of_the_loader_is_kept() {
        let line = "ERROR: ld.so: object '/a/libprof.so' from LD_PRELOAD cannot be preloaded \
                    (cannot open shared object file): ignored.\n";
        assert_eq!(preload_complaint(line).unwrap(), "(cannot open shared object file)");
        assert_eq!(preload_complaint("something else\n"), None);
    }

    #[test]
    fn the_folder_of_the_pattern_is_tried() {
        let folder = tempfile::tempdir().unwrap();
        let status =
            |name: &str| output_folder(Some(&Pattern::new(&folder.path().join(name).to_string_lossy()))).status;
        assert_eq!([status("x-%p.gpuwhy"), status("missing/%h/x.gpuwhy")], [Status::Ok; 2]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
        fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(status("file/x.gpuwhy"), Status::Fail);
        assert_eq!(output_folder(None).status, Status::Ok);
    }

    #[test]
    fn what_the_system_allows_is_said() {
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        let user = "CapEff:\t0000000000000000\nSeccomp:\t0\n";
        let root = "CapEff:\t000001ffffffffff\nSeccomp:\t0\n";
        let container = "CapEff:\t00000000a80425fb\nSeccomp:\t2\n";
        assert!(native_stacks(Some("2\n"), user).starts_with("of waiting and of running threads; "));
        assert!(native_stacks(Some("4\n"), user).contains("is 4; 2 would"));
        assert!(native_stacks(Some("4\n"), root).starts_with("of waiting and of running threads; "));
        assert!(native_stacks(Some("-1\n"), container).contains("filter"));
        assert!(native_stacks(None, user).contains("has no perf events"));
    }
}
