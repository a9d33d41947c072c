//! What a change takes from this machine: libraries that are installed, and the CPU cores beside the GPU.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use gpuwhy_report::run::remedies::{How, Trial};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Folders of libraries that the loader searches, or that distributions use.
const LIBRARIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/opt/conda/lib",
];
const PRELOAD: &str = "LD_PRELOAD";

/// Variables that a remedy sets or unsets, empty if all are as it wants.
pub fn environment(remedy: &Trial) -> Vec<(&'static str, Option<OsString>)> {
    let How::Preload(names) = remedy.how else { return remedy.environment(|name| std::env::var_os(name)) };
    let value = preloaded(names, &LIBRARIES, std::env::var_os(PRELOAD).unwrap_or_default());
    value.map(|value| (PRELOAD, Some(value))).into_iter().collect()
}

/// The setting that a change is on this machine, as on a command line; `None` where the catalog has it.
pub fn setting(remedy: &Trial) -> Option<String> {
    match remedy.how {
        How::Preload(_) => {
            let value = environment(remedy).pop()?.1?;
            Some(format!("{PRELOAD}={}", value.to_string_lossy()))
        }
        How::Cores => cores().map(|cores| format!("taskset --cpu-list {}", list(&cores))),
        _ => None,
    }
}

/// Cores as `0-3,8`.
fn list(cores: &CpuSet) -> String {
    let mut ranges = Vec::<[usize; 2]>::new();
    for core in (0..CpuSet::MAX_CPU).filter(|&core| cores.is_set(core)) {
        match ranges.last_mut() {
            Some([_, last]) if *last + 1 == core => *last = core,
            _ => ranges.push([core, core]),
        }
    }
    let words =
        ranges.iter().map(|[first, last]| if first == last { format!("{first}") } else { format!("{first}-{last}") });
    words.collect::<Vec<_>>().join(",")
}

/// The first of these libraries in one of the folders before what is loaded already; `None` without one, or if one is.
fn preloaded(names: &[&str], folders: &[&str], old: OsString) -> Option<OsString> {
    let is_loaded = names.iter().any(|name| old.to_string_lossy().contains(name.split('.').next().unwrap_or(name)));
    let mut paths = names.iter().flat_map(|name| folders.iter().map(move |folder| Path::new(folder).join(name)));
    let mut value = paths.find(|path| !is_loaded && path.is_file())?.into_os_string();
    if !old.is_empty() {
        value.push(":");
        value.push(old);
    }
    Some(value)
}

/// The cores that this process may use and that are beside the GPU, if these are not all.
pub fn cores() -> Option<CpuSet> {
    near(Path::new("/sys"), std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(), &sched_getaffinity(None).ok()?)
}

/// Runs `start` on these cores, so that the process it starts is on them from its start.
pub fn on<T>(cores: Option<CpuSet>, start: impl FnOnce() -> T) -> T {
    let Some((old, cores)) = sched_getaffinity(None).ok().zip(cores) else { return start() };
    // What cannot be pinned runs everywhere: the pair shows no difference.
    let _ = sched_setaffinity(None, &cores);
    let started = start();
    let _ = sched_setaffinity(None, &old);
    started
}

fn near(sys: &Path, visible: Option<&str>, allowed: &CpuSet) -> Option<CpuSet> {
    let read = |path: &Path| Some(fs::read_to_string(path).ok()?.trim().to_owned());
    let is_gpu = |path: &Path| {
        let class = read(&path.join("class")).unwrap_or_default();
        // Display controllers: VGA and 3D.
        read(&path.join("vendor")).as_deref() == Some("0x10de") && class.starts_with("0x03")
    };
    let mut gpus: Vec<_> =
        fs::read_dir(sys.join("bus/pci/devices")).ok()?.filter_map(|one| Some(one.ok()?.path())).collect();
    gpus.retain(|path| is_gpu(path));
    gpus.sort();
    let mut nodes = gpus.iter().map(|path| read(&path.join("numa_node"))?.parse::<u32>().ok());
    // A UUID does not say which it is; nor a number if the driver sorts other models first.
    let are_alike = gpus.windows(2).all(|pair| read(&pair[0].join("device")) == read(&pair[1].join("device")));
    let first = visible.and_then(|list| list.split(',').next()?.trim().parse::<usize>().ok());
    let node = match (nodes.clone().next()?, first) {
        (node, _) if nodes.clone().all(|other| other == node) => node,
        (_, Some(first)) if are_alike => nodes.nth(first)?,
        _ => None,
    }?;
    let mut near = CpuSet::new();
    for range in read(&sys.join(format!("devices/system/node/node{node}/cpulist")))?.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        for core in first.parse().ok()?..=last.parse::<usize>().ok()? {
            if core < CpuSet::MAX_CPU && allowed.is_set(core) {
                near.set(core);
            }
        }
    }
    (near.count() > 0 && near.count() < allowed.count()).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_installed_is_loaded_before_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let names = ["libtcmalloc.so.4", "libjemalloc.so.2"];
        let value = |old: &str| preloaded(&names, &["/no/such/folder", path], old.into());
        assert_eq!(value(""), None);
        fs::write(folder.path().join("libjemalloc.so.2"), "").unwrap();
        assert_eq!(value(""), Some(format!("{path}/libjemalloc.so.2").into()));
        assert_eq!(value("/a.so"), Some(format!("{path}/libjemalloc.so.2:/a.so").into()));
        assert_eq!(value("/opt/libtcmalloc.so"), None);
    }

    #[test]
    fn the_cores_are_those_of_the_node_of_the_gpu() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let gpu = |address: &str, vendor: &str, class: &str, node: &str| {
            for (file, text) in [("vendor", vendor), ("class", class), ("numa_node", node)] {
                write(&format!("bus/pci/devices/{address}/{file}"), &format!("{text}\n"));
            }
        };
        let mut allowed = CpuSet::new();
        (0..8).for_each(|core| allowed.set(core));
        let cores = |visible: Option<&str>| {
            let found = near(folder.path(), visible, &allowed)?;
            Some(list(&found))
        };
        assert_eq!(cores(None), None);
        write("devices/system/node/node0/cpulist", "0-3\n");
        write("devices/system/node/node1/cpulist", "4-5,7,9-10\n");
        gpu("0000:01:00.0", "0x8086", "0x030000", "0");
        gpu("0000:41:00.0", "0x10de", "0x030200", "1");
        assert_eq!(cores(None), Some("4-5,7".to_owned()));
        // With several, the variable says which.
        gpu("0000:11:00.0", "0x10de", "0x030200", "0");
        gpu("0000:11:00.1", "0x10de", "0x040300", "0");
        assert_eq!(cores(None), None);
        assert_eq!(cores(Some("1,0")), Some("4-5,7".to_owned()));
        assert_eq!(cores(Some("GPU-1234")), None);
        write("bus/pci/devices/0000:11:00.0/device", "0x2335\n");
        assert_eq!(cores(Some("1,0")), None);
        gpu("0000:11:00.0", "0x10de", "0x030200", "-1");
        assert_eq!(cores(Some("0")), None);
    }
}
