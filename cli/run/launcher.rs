//! Commands that start a program in a way that the driver cannot load libprof.so into it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use gpuwhy_inject::config::CUDA_INJECTION as INJECTION;

/// Programs that start another one with this environment.
const TRANSPARENT: [&str; 16] = [
    "chrt", "env", "exec", "ionice", "nice", "nohup", "numactl", "setsid", "srun", "stdbuf", "strace", "taskset",
    "time", "timeout", "uv", "xvfb-run",
];
/// Programs that start another one with another environment, unless an option says otherwise.
const OTHER_ENVIRONMENT: [&str; 6] = ["doas", "pkexec", "runuser", "su", "sudo", "systemd-run"];
/// Programs that start another one in a container or on another machine.
const ELSEWHERE: [&str; 13] = [
    "apptainer",
    "crictl",
    "docker",
    "enroot",
    "kubectl",
    "mpiexec",
    "mpirun",
    "nerdctl",
    "podman",
    "sbatch",
    "singularity",
    "srun",
    "ssh",
];
/// Those of them that keep the environment.
const KEEP: [&str; 5] = ["apptainer", "mpiexec", "mpirun", "singularity", "srun"];

fn name(word: &OsStr) -> &str {
    Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// Words of the command that may be programs, in order: the first one, and those behind transparent programs.
fn programs(command: &[OsString]) -> impl Iterator<Item = (usize, &str)> {
    let first = command.first().map(|word| name(word)).unwrap_or_default();
    let all = if TRANSPARENT.contains(&first) { command.len() } else { 1 };
    command.iter().take(all).enumerate().map(|(at, word)| (at, name(word)))
}

/// True if the command starts the program in a container or on another machine: its files may lie there.
pub fn is_elsewhere(command: &[OsString]) -> bool {
    programs(command).any(|(_, name)| ELSEWHERE.contains(&name))
}

/// Why the driver cannot load libprof.so into the program, if the command shows that.
pub fn obstacle(command: &[OsString]) -> Option<String> {
    // Passed on by hand.
    if command.iter().any(|word| word.as_bytes().windows(INJECTION.len()).any(|part| part == INJECTION.as_bytes())) {
        return None;
    }
    let behind = |name: &str| {
        format!("`{name}` starts programs without {INJECTION}: put `gpuwhy run --` directly before the program")
    };
    for (at, program) in programs(command) {
        let options: Vec<_> = command[at + 1..].iter().take_while(|word| word.as_bytes().starts_with(b"-")).collect();
        let has =
            |names: &[&str]| options.iter().any(|word| names.iter().any(|name| word.as_bytes() == name.as_bytes()));
        if program == "env" && has(&["-", "-i", "--ignore-environment"]) {
            return Some(behind("env -i"));
        }
        if OTHER_ENVIRONMENT.contains(&program) && !has(&["-E", "--preserve-env", "-m", "-p"]) {
            return Some(behind(program));
        }
        if ELSEWHERE.contains(&program) && !KEEP.contains(&program) {
            return Some(behind(program));
        }
    }
    let program = command.first().map(Path::new).and_then(found)?;
    let about = program.metadata().ok()?;
    let shown = program.display();
    if about.permissions().mode() & 0o6000 != 0 {
        return Some(format!("{shown} runs with the rights of another user (setuid), for which variables are ignored"));
    }
    is_static(&program).then(|| format!("{shown} is statically linked, so that it cannot load a library"))
}

/// The file of a program, as the shell finds it.
fn found(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned());
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// True for an ELF program without a dynamic linker.
fn is_static(path: &Path) -> bool {
    const PROGRAM_INTERPRETER: u32 = 3;
    let read = || {
        let mut file = File::open(path).ok()?;
        let mut header = [0; 64];
        file.read_exact(&mut header).ok()?;
        // 64 bit, little-endian.
        header.starts_with(b"\x7fELF\x02\x01").then_some(())?;
        let start = u64::from_le_bytes(header[32..40].try_into().ok()?);
        let [size, count] = [54, 56].map(|at| u16::from_le_bytes([header[at], header[at + 1]]));
        let mut table = vec![0; usize::from(size) * usize::from(count)];
        file.read_exact_at(&mut table, start).ok()?;
        let mut kinds = table
            .chunks_exact(usize::from(size).max(4))
            .map(|entry| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]));
        Some(count > 0 && !kinds.any(|kind| kind == PROGRAM_INTERPRETER))
    };
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Option<String> {
        obstacle(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn commands_that_clear_the_environment_are_named() {
        for (line, program) in [
            ("env -i python train.py", "`env -i`"),
            ("env - python train.py", "`env -i`"),
            ("timeout 9 env -i A=b python", "`env -i`"),
            ("sudo -u other python", "`sudo`"),
            ("nice -n 5 /usr/bin/sudo python", "`sudo`"),
            ("su - other -c python", "`su`"),
            ("docker run image python", "`docker`"),
            ("ssh host python", "`ssh`"),
        ] {
            assert!(said(line).is_some_and(|text| text.contains(program)), "{line}: {:?}", said(line));
        }
    }

    #[test]
    fn commands_that_keep_the_variable_are_no_obstacle() {
        for line in [
            "env A=b sh train.py",
            "sudo -E python",
            "sudo --preserve-env python",
            "docker run -e CUDA_INJECTION64_PATH=/libprof.so image",
            "sh train.sh sudo docker",
            "srun sh",
            "mpirun -n 2 sh",
        ] {
            assert_eq!(said(line), None, "{line}");
        }
    }

    #[test]
    fn a_static_program_and_one_with_other_rights_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let source = folder.path().join("program.c");
        std::fs::write(&source, "void _start(void) { for (;;); }").unwrap();
        let mut compiler = std::process::Command::new("cc");
        compiler.args(["-static", "-nostdlib", "-o"]).arg(&program).arg(&source);
        assert!(compiler.status().unwrap().success());
        let text = program.to_str().unwrap();
        assert!(said(text).is_some_and(|said| said.contains("statically linked")), "{:?}", said(text));
        std::fs::copy("/bin/sh", &program).unwrap();
        assert_eq!(said(text), None);
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(said(text).is_some_and(|said| said.contains("setuid")), "{:?}", said(text));
    }
}
