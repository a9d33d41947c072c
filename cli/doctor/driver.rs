//! Checks the driver as a program sees it: its library, its kernel module, its device files.
//!
//! Reads files and the version of the driver library; does not initialize CUDA.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::check::{Check, Status};

const NO_LIBRARY: &str = "libcuda.so.1 cannot be loaded";
const CONTAINER: &str = "install NVIDIA's driver; in a container start it with --gpus all (NVIDIA Container Toolkit)";

/// Adds the checks and returns the CUDA version of the driver, `1000 * major + 10 * minor`.
pub fn check(checks: &mut Vec<Check>) -> Option<u32> {
    let cuda_version = cupti_sys::driver_cuda_version_by_loading();
    checks.push(match cuda_version {
        Some(version) => Check::ok("driver library", format!("libcuda.so.1 supports CUDA {}", cuda(version))),
        None => Check::fail("driver library", NO_LIBRARY, CONTAINER),
    });
    checks.push(match cupti_sys::kernel_driver_version() {
        Some(version) => Check::ok("kernel module", format!("driver {version}")),
        // The Linux side of WSL has no kernel module; this device leads to the Windows driver.
        None if Path::new("/dev/dxg").exists() => Check::ok("kernel module", "that of Windows (WSL)"),
        None => Check::fail("kernel module", "/proc/driver/nvidia/version is missing", CONTAINER),
    });
    if !Path::new("/dev/dxg").exists() {
        checks.push(device_files());
    }
    checks.extend(visible_devices(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref()));
    if let Ok(parameters) = fs::read_to_string("/proc/driver/nvidia/params") {
        checks.extend(restriction(&parameters));
    }
    cuda_version
}

/// Why nothing can use CUDA here, if that is known, with advice.
pub fn obstacle() -> Option<String> {
    let missing = match cupti_sys::driver_cuda_version_by_loading() {
        None => Some(NO_LIBRARY.to_owned()),
        Some(_) if Path::new("/dev/dxg").exists() => None,
        Some(_) => Some(device_files()).filter(|check| check.status == Status::Fail).map(|check| check.finding),
    };
    let missing = missing.map(|finding| format!("{finding} ({CONTAINER})"));
    let hidden = visible_devices(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref()).map(|check| check.finding);
    let all: Vec<_> = missing.into_iter().chain(hidden).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// CUDA version in the usual notation.
pub fn cuda(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn device_files() -> Check {
    const NAME: &str = "device files";
    let control = Path::new("/dev/nvidiactl");
    if let Err(error) = OpenOptions::new().read(true).write(true).open(control) {
        let path = control.display();
        return match error.kind() {
            io::ErrorKind::PermissionDenied => Check::fail(
                NAME,
                format!("{path}: {error}"),
                "join the group that owns the device files, or ask the administrator",
            ),
            io::ErrorKind::NotFound => Check::fail(NAME, format!("{path} is missing"), CONTAINER),
            _ => Check::fail(NAME, format!("{path}: {error}"), CONTAINER),
        };
    }
    match gpus(Path::new("/dev")).len() {
        0 => Check::fail(NAME, "/dev/nvidiactl is there, but no /dev/nvidia0", "give this container or job a GPU"),
        count => Check::ok(NAME, format!("{count} GPU{} in /dev", if count == 1 { "" } else { "s" })),
    }
}

/// The `nvidia<number>` files in `folder`.
fn gpus(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let is_gpu = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str()?.strip_prefix("nvidia"))
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_gpu).collect()
}

/// CUDA reads the variable up to the first entry that is not a device, so these two values hide all devices.
fn visible_devices(value: Option<&str>) -> Option<Check> {
    let value = value?;
    (value.trim().is_empty() || value.trim_start().starts_with("-1")).then(|| {
        Check::warn(
            "visible devices",
            format!("CUDA_VISIBLE_DEVICES={value:?} hides every GPU"),
            "unset it, or list the GPUs to use",
        )
    })
}

/// Checks whether hardware counters are restricted to administrators. Activity tracing needs no such
/// permission, so this is only information, but it is the first thing that users suspect.
fn restriction(parameters: &str) -> Option<Check> {
    let value = parameters.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"))?;
    Some(Check::ok(
        "counter access",
        match value.trim() {
            "0" => "hardware counters are open to all users",
            _ => "hardware counters are for administrators only; gpuwhy does not need them",
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Status;

    #[test]
    fn only_numbered_device_files_are_gpus() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia", "tty0"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(gpus(folder.path()).len(), 2);
        assert!(gpus(&folder.path().join("missing")).is_empty());
    }

    #[test]
    fn hidden_devices_are_noticed() {
        for hidden in ["", " ", "-1", "-1,0"] {
            assert_eq!(visible_devices(Some(hidden)).unwrap().status, Status::Warn, "{hidden:?}");
        }
        for visible in [None, Some("0"), Some("0,-1"), Some("GPU-8f1c")] {
            assert!(visible_devices(visible).is_none(), "{visible:?}");
        }
    }

    #[test]
    fn restricted_counters_do_not_fail_the_check() {
        let check = restriction("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n").unwrap();
        assert_eq!(check.status, Status::Ok);
        assert!(check.finding.contains("administrators"));
        assert!(restriction("RmProfilingAdminOnly: 0\n").unwrap().finding.contains("all users"));
        assert!(restriction("").is_none());
    }

    #[test]
    fn versions_are_written_as_people_do() {
        assert_eq!(cuda(13000), "13.0");
        assert_eq!(cuda(12080), "12.8");
    }
}
