//! Checks the prerequisites of gpuwhy itself: its library, unset injection variables, a writable output
//! folder.
//!
//! Does not check ptrace permissions: the driver loads the library, and no process attaches to the program.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::check::Check;
use crate::install_paths;

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
    checks.push(output_folder(&output_pattern()));
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

/// Output pattern of the next trace.
fn output_pattern() -> PathBuf {
    let set = env::var_os("GPUWHY_OUTPUT").filter(|value| !value.is_empty());
    set.map_or_else(|| PathBuf::from("gpuwhy-%p.gpuwhy"), PathBuf::from)
}

/// Checks whether a file can be created in the folder of `pattern`. Creates one and removes it: only that
/// reveals permissions, quotas and read-only mounts.
fn output_folder(pattern: &Path) -> Check {
    const NAME: &str = "output folder";
    if pattern == Path::new("off") {
        return Check::ok(NAME, "GPUWHY_OUTPUT=off: no trace is written");
    }
    let folder = pattern.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let shown = folder.display();
    if folder.to_string_lossy().contains('%') {
        return Check::ok(NAME, format!("{shown} depends on the process; not checked"));
    }
    // libprof.so creates missing folders.
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    match try_write(existing) {
        Ok(()) if existing == folder => Check::ok(NAME, format!("{shown} is writable")),
        Ok(()) => Check::ok(NAME, format!("{shown} will be made")),
        Err(error) => Check::fail(
            NAME,
            format!("{}: {error}", existing.display()),
            "start in another folder, or name one with `gpuwhy run --output`",
        ),
    }
}

fn try_write(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".gpuwhy-doctor-{}", std::process::id()));
    // Never follows a link that another user put there.
    File::create_new(&path)?.write_all(b"gpuwhy\n")?;
    fs::remove_file(path)
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
        assert_eq!(output_folder(&folder.path().join("x-%p.gpuwhy")).status, Status::Ok);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");

        let missing = output_folder(&folder.path().join("missing/x-%p.gpuwhy"));
        assert!(
            missing.status == Status::Ok && missing.finding.ends_with("missing will be made"),
            "{}",
            missing.finding
        );
        fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(output_folder(&folder.path().join("file/x.gpuwhy")).status, Status::Fail);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        let link = folder.path().join(format!(".gpuwhy-doctor-{}", std::process::id()));
        std::os::unix::fs::symlink(folder.path().join("file"), link).unwrap();
        assert_eq!(output_folder(&folder.path().join("x.gpuwhy")).status, Status::Fail);
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"", "what a link names is left alone");

        assert_eq!(output_folder(Path::new("/nowhere/%h/x")).status, Status::Ok);
        assert_eq!(output_folder(Path::new("off")).status, Status::Ok);
    }
}
