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

/// A time after the end of any recording, milliseconds.
pub const END: u64 = 3_600_000;

/// Makes a program of [`Stage::host`] pause at a time of its recording, milliseconds, until its stage
/// releases it by this name. Several pauses must be in time order.
pub fn stays<'a>(host: &'a mut Command, at: u64, name: &str) -> &'a mut Command {
    host.args(["--call", &format!("{at}:waitFor={name}")])
}

/// Makes a program of [`Stage::host`] wait at each of these times of its recording, milliseconds, until the
/// data played by then are flushed, so that the profiler keeps up even on a busy machine.
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
        // The folder is used only with this mode.
        std::fs::set_permissions(sockets.path(), Permissions::from_mode(0o700)).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), sockets }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Folder of the control sockets, only for programs of this stage.
    pub fn sockets(&self) -> &Path {
        self.sockets.path()
    }

    /// Socket of a process.
    pub fn socket(&self, process: u32) -> PathBuf {
        self.sockets().join(format!("{process}.sock"))
    }

    /// Releases a program that [`stays`].
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
            // A debug build on a busy machine is slow, and the tests do not check its speed.
            .env("GPUWHY_EXIT_TIMEOUT", "60s")
            // Large enough that the simulation is never skipped because of a backlog.
            .env("GPUWHY_BUFFER_MEMORY", "4G")
            // As recorded; modes.rs tests the default.
            .env("GPUWHY_CUDA_GRAPH_TRACE", "node")
            .env("GPUWHY_OUTPUT", "trace.gpuwhy")
            // No command reaches the programs of another test, or of this machine's user.
            .env("GPUWHY_CONTROL", self.sockets())
            // A calibration of this machine does not apply to the recordings.
            .env("XDG_CACHE_HOME", self.folder.path());
        command
    }

    /// A recorded session, played by a libcupti version that can safely record CUDA graphs as a whole.
    pub fn with_whole_graphs(&self, fixture: &str) -> Command {
        let mut host = self.host(fixture);
        host.env("GPUWHY_REPLAY_VERSION", "130200");
        host
    }

    /// A fake driver with one device, for preloading.
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

/// A file that cargo built next to the binary: libraries of dependencies are in `deps`.
pub fn built(file: &str) -> PathBuf {
    let folder = Path::new(GPUWHY).parent().unwrap();
    let places = [folder.join("deps").join(file), folder.join(file)];
    let found = places.iter().find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{file} was not built: run `cargo test --workspace`")).clone()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Sum of an object's numbers.
pub fn sum(object: &Value) -> u64 {
    object.as_object().unwrap().values().map(|value| value.as_u64().unwrap()).sum()
}

/// A count of the replay library, from its output for `--counts`.
pub fn counted(text: &str, what: &str) -> u64 {
    let rest = text.split(&format!("{what}: ")).nth(1).unwrap();
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}
