//! Plays a recorded session through the real libprof.so, as the demo does.

pub mod captured;
pub mod play;
pub mod program;
pub mod record;
pub mod trace;

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// The `gpuwhy` binary.
pub const GPUWHY: &str = env!("CARGO_BIN_EXE_gpuwhy");

/// A time of the recording, milliseconds, at which each of them is over.
pub const END: u64 = 3_600_000;

/// Has a program of [`Stage::host`] stay at a time of its recording, milliseconds, until its stage lets it go on by
/// this name. Several in the order of time.
pub fn stays<'a>(host: &'a mut Command, at: u64, name: &str) -> &'a mut Command {
    host.args(["--call", &format!("{at}:waitFor={name}")])
}

/// Has a program of [`Stage::host`] wait at each of these times of its recording, milliseconds, until what was played
/// has been flushed: the profiler keeps up with it, however busy the machine is.
pub fn keeps_up(host: &mut Command, times: impl IntoIterator<Item = u64>) -> &mut Command {
    for at in times {
        host.args(["--call", &format!("{at}:flushes=2")]);
    }
    host
}

/// A folder to play in.
pub struct Stage {
    pub folder: TempDir,
    sockets: TempDir,
}

impl Stage {
    pub fn new() -> Self {
        let sockets = tempfile::tempdir().unwrap();
        // Only then it is used.
        std::fs::set_permissions(sockets.path(), Permissions::from_mode(0o700)).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), sockets }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of control sockets, of the programs of this stage and of no others.
    pub fn sockets(&self) -> &Path {
        self.sockets.path()
    }

    /// The socket of a process.
    pub fn socket(&self, process: u32) -> PathBuf {
        self.sockets().join(format!("{process}.sock"))
    }

    /// Lets a program go on that [`stays`].
    pub fn go_on(&self, name: &str) {
        std::fs::write(self.path(name), "").unwrap();
    }

    /// The host program with libprof.so injected, playing `fixture` as fast as possible; the trace goes to
    /// `trace.gpuwhy`.
    pub fn host(&self, fixture: &str) -> Command {
        self.program(fixture, built("gpuwhy-replay-host"))
    }

    /// The same with another program, which has to load libprof.so itself.
    pub fn program(&self, fixture: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GPUWHY_") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.folder.path())
            .env_remove("NCCL_PROFILER_PLUGIN")
            .env("CUDA_INJECTION64_PATH", built("libprof.so"))
            .env("NVTX_INJECTION64_PATH", built("libprof.so"))
            .env("GPUWHY_CUPTI_PATH", built("libcupti_replay.so"))
            .env("GPUWHY_REPLAY", self::fixture(fixture))
            // A debug build on a busy machine takes its time; what is tested is not how much.
            .env("GPUWHY_EXIT_TIMEOUT", "60s")
            // So much is never behind that the simulation would be left out.
            .env("GPUWHY_BUFFER_MEMORY", "4G")
            // As they were recorded; what is chosen where nothing is said: modes.rs.
            .env("GPUWHY_CUDA_GRAPH_TRACE", "node")
            .env("GPUWHY_OUTPUT", "trace.gpuwhy")
            // No command reaches the programs of another test, or of this machine's user.
            .env("GPUWHY_CONTROL", self.sockets())
            // What was measured on this machine is not what the recordings are about.
            .env("XDG_CACHE_HOME", self.folder.path());
        command
    }

    /// A recorded session as a libcupti plays it that records CUDA graphs as a whole without harm.
    pub fn with_whole_graphs(&self, fixture: &str) -> Command {
        let mut host = self.host(fixture);
        host.env("GPUWHY_REPLAY_VERSION", "130200");
        host
    }

    /// A driver with one device, to be preloaded.
    pub fn driver(&self) -> PathBuf {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/libcuda.c");
        let library = self.path("libcuda.so.1");
        let options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"];
        let built = Command::new("cc").args(options).arg(&library).arg(source).status().unwrap();
        assert!(built.success());
        library
    }

    /// `gpuwhy report --json` of the trace.
    pub fn report(&self) -> Value {
        report(&self.path("trace.gpuwhy")).1
    }
}

/// Exit code and JSON of `gpuwhy report --json FILE`.
pub fn report(trace: &Path) -> (i32, Value) {
    let output = Command::new(GPUWHY).args(["report", "--json"]).arg(trace).output().unwrap();
    let value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), value)
}

/// A recorded session.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testing/fixtures/{name}.cupti.zst"))
}

/// All recorded sessions.
pub fn fixtures() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".cupti.zst").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// A file that cargo built beside the binary: libraries of dependencies lie in `deps`.
pub fn built(file: &str) -> PathBuf {
    let folder = Path::new(GPUWHY).parent().unwrap();
    let places = [folder.join("deps").join(file), folder.join(file)];
    let found = places.iter().find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{file} was not built: run `cargo test --workspace`")).clone()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The sum of an object's numbers.
pub fn sum(object: &Value) -> u64 {
    object.as_object().unwrap().values().map(|value| value.as_u64().unwrap()).sum()
}

/// What the replay library itself counted, of what it prints at `--counts`.
pub fn counted(text: &str, what: &str) -> u64 {
    let rest = text.split(&format!("{what}: ")).nth(1).unwrap();
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}
