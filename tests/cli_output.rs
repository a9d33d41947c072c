//! Files that `export` and `merge` write, files that they must not touch, and that no file is left when they
//! are interrupted.

use std::fs::{self, File};
use std::io::{BufWriter, Read as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{CorrelationId, DeviceId, Kernel, LaunchConfig, Loss, Record, StreamId, Timestamp};
use tempfile::TempDir;

const START: u64 = 1_790_000_000_000_000_000;
const FEW: u32 = 100;
/// Number of records that a debug build needs more than a second to write.
const MANY: u32 = 400_000;
/// Longer than any step here; a test that waits forever would not report anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a trace of kernels.
struct Place {
    folder: TempDir,
    trace: PathBuf,
}

impl Place {
    fn new(kernels: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace.gpuwhy");
        write_trace(&trace, kernels, None).unwrap();
        Self { folder, trace }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, command: &[&str]) -> Command {
        // `nohup` starts this test with SIGHUP ignored. The option needs coreutils 8.31.
        let mut gpuwhy = Command::new("env");
        gpuwhy.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_gpuwhy")]).args(command);
        gpuwhy.current_dir(self.folder.path()).stdin(Stdio::null());
        gpuwhy
    }

    fn run(&self, command: &[&str]) -> Output {
        self.command(command).output().unwrap()
    }

    /// Message of a command that must fail.
    fn refused(&self, command: &[&str]) -> String {
        let output = self.run(command);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {}", text(&output.stderr));
        text(&output.stderr)
    }

    fn succeeds(&self, command: &[&str]) -> Output {
        let output = self.run(command);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", text(&output.stderr));
        output
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write_trace(path: &Path, kernels: u32, rank: Option<u32>) -> std::io::Result<()> {
    let mut dictionary = Dictionary::new();
    let name = dictionary.intern_name("_Z4gemmPfS_i");
    let config = dictionary.intern_launch_config(LaunchConfig { name, block: [256, 1, 1], ..LaunchConfig::default() });
    let rank_variables = rank.map(|rank| ("RANK".to_owned(), rank.to_string())).into_iter().collect();
    let start = Timestamp::from_nanos(START);
    let session = ProcessInfo { start, process_id: 1, rank_variables, ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(BufWriter::new(File::create(path)?), &session)?;
    let mut end = start;
    for number in 0..kernels {
        // Fibonacci hashing: scattered, so that the data is not compressible, and the same in every run.
        let jitter = u64::from(number.wrapping_mul(0x9e37_79b9) >> 19);
        let begin = START + u64::from(number) * 20_000 + jitter;
        end = Timestamp::from_nanos(begin + 1_000 + jitter);
        let kernel = Kernel {
            start: Timestamp::from_nanos(begin),
            end,
            device: DeviceId(0),
            stream: StreamId(7),
            correlation: CorrelationId(number + 1),
            config,
            ..Kernel::default()
        };
        writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary)?;
        if number % 10_000 == 9_999 {
            writer.event(&Event::Flush(end), &dictionary)?;
        }
    }
    writer.finish(End::Clean, end, &Loss::default(), &dictionary).map(drop)
}

/// Every command that writes a file, without its output argument.
const COMMANDS: [&[&str]; 6] = [
    &["export", "--to", "chrome", "trace.gpuwhy"],
    &["export", "--to", "json", "trace.gpuwhy"],
    &["export", "--to", "perfetto", "trace.gpuwhy"],
    &["export", "--to", "sqlite", "trace.gpuwhy"],
    &["export", "--to", "gpuwhy", "trace.gpuwhy"],
    &["merge", "rank0.gpuwhy"],
];

/// A folder for all commands, with `kernels` kernels in each trace.
fn for_all(kernels: u32) -> Place {
    let place = Place::new(kernels);
    write_trace(&place.path("rank0.gpuwhy"), kernels, Some(0)).unwrap();
    place
}

fn to<'a>(command: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [command, more].concat()
}

/// Permission bits of the file.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode()
}

#[test]
fn a_file_that_exists_is_replaced_on_demand_only() {
    let place = for_all(FEW);
    let out = place.path("out");
    for command in COMMANDS {
        fs::write(&out, "precious").unwrap();
        let message = place.refused(&to(command, &["-o", "out"]));
        assert!(message.contains("out: this file exists") && message.contains("--force"), "{command:?}: {message}");
        assert_eq!(fs::read(&out).unwrap(), b"precious", "{command:?}");
        place.succeeds(&to(command, &["-o", "out", "--force"]));
        assert!(fs::read(&out).unwrap() != b"precious", "{command:?}");
        fs::remove_file(&out).unwrap();
        place.succeeds(&to(command, &["-o", "out"]));
        assert_eq!(mode(&out) & 0o777, 0o600, "{command:?}: for its user alone");
    }
    fs::write(place.path("trace.sqlite"), "precious").unwrap();
    place.refused(&["export", "--to", "sqlite", "trace.gpuwhy"]);
    assert_eq!(place.names(), ["out", "rank0.gpuwhy", "trace.gpuwhy", "trace.sqlite"]);
}

#[test]
fn a_trace_that_is_read_is_never_replaced_under_any_of_its_names() {
    let place = for_all(FEW);
    for command in COMMANDS {
        let trace = *command.last().unwrap();
        let before = fs::read(place.path(trace)).unwrap();
        fs::hard_link(place.path(trace), place.path("same")).unwrap();
        symlink(trace, place.path("link")).unwrap();
        for out in [trace, "./same", "link"] {
            let message = place.refused(&to(command, &["--force", "-o", out]));
            assert!(message.contains("traces to read") || message.contains("symbolic link"), "{command:?}: {message}");
            assert_eq!(fs::read(place.path(trace)).unwrap(), before, "{command:?}");
        }
        fs::remove_file(place.path("same")).unwrap();
        fs::remove_file(place.path("link")).unwrap();
    }
    // The output overwrites the second of two input traces.
    fs::copy(&place.trace, place.path("other.gpuwhy")).unwrap();
    place.refused(&["export", "--to", "json", "--force", "-o", "other.gpuwhy", "trace.gpuwhy", "other.gpuwhy"]);
    assert_eq!(fs::read(place.path("other.gpuwhy")).unwrap(), fs::read(&place.trace).unwrap());
}

#[test]
fn links_are_not_followed_to_other_files() {
    let place = for_all(FEW);
    fs::write(place.path("notes.txt"), "precious").unwrap();
    symlink("notes.txt", place.path("out")).unwrap();
    symlink("nowhere", place.path("dangling")).unwrap();
    // A likely name for an unfinished file.
    symlink("notes.txt", place.path("free.partial")).unwrap();
    for command in COMMANDS {
        for out in ["out", "dangling"] {
            let message = place.refused(&to(command, &["--force", "-o", out]));
            assert!(message.contains("symbolic link"), "{command:?}: {message}");
        }
        place.succeeds(&to(command, &["--force", "-o", "free"]));
        assert_eq!(fs::read(place.path("notes.txt")).unwrap(), b"precious", "{command:?}");
        assert!(place.path("out").is_symlink() && place.path("dangling").is_symlink(), "{command:?}");
        assert!(place.path("free.partial").is_symlink() && !place.path("nowhere").exists(), "{command:?}");
    }
}

/// Bytes that a reader of the pipe `path` gets from a command that writes to it.
fn through_pipe(place: &Place, command: &[&str], path: &Path) -> (Output, Vec<u8>) {
    let child = place.command(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    (child.wait_with_output().unwrap(), bytes)
}

#[test]
fn pipes_and_standard_output_get_the_bytes_of_the_file() {
    let place = for_all(FEW);
    let pipe = place.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for command in COMMANDS {
        let is_stream = !command.contains(&"sqlite");
        if !is_stream {
            for out in ["pipe", "-", "/dev/stdout"] {
                let message = place.refused(&to(command, &["--force", "-o", out]));
                assert!(message.contains("cannot be written to standard output, a device or a pipe"), "{message}");
            }
            continue;
        }
        place.succeeds(&to(command, &["-o", "file"]));
        let (output, bytes) = through_pipe(&place, &to(command, &["-o", "pipe"]), &pipe);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", text(&output.stderr));
        // Chrome's JSON ends with the name of the file.
        let without_name = |bytes: &[u8]| bytes[..bytes.len() - 60].to_vec();
        let wanted = without_name(&fs::read(place.path("file")).unwrap());
        assert!(bytes.starts_with(&wanted), "{command:?}");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo(), "{command:?}");
        for out in ["-", "/dev/stdout"] {
            assert!(place.succeeds(&to(command, &["-o", out])).stdout.starts_with(&wanted), "{command:?}");
        }
        fs::remove_file(place.path("file")).unwrap();
    }
    assert!(place.refused(&["export", "--to", "parquet", "trace.gpuwhy", "-o", "pipe"]).contains("not a folder"));
    assert!(place.refused(&["merge", "rank0.gpuwhy", "--json", "-o", "-"]).contains("standard output"));
    assert_eq!(place.names(), ["pipe", "rank0.gpuwhy", "trace.gpuwhy"]);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let place = Place::new(50_000);
    let command = to(COMMANDS[1], &["-o", "-"]);
    let mut child = place.command(&command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut line).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn a_device_is_written_to_and_stays_a_device() {
    let place = for_all(FEW);
    let device = place.path("null");
    // A second device node for /dev/null. Creating nodes needs a privilege.
    let made = Command::new("mknod").arg(&device).args(["c", "1", "3"]).stderr(Stdio::null()).status();
    if !made.is_ok_and(|made| made.success()) || File::options().write(true).open(&device).is_err() {
        eprintln!("SKIPPED: this user cannot make a device node");
        return;
    }
    for command in COMMANDS {
        let command = to(command, &["--force", "-o", "null"]);
        let wanted = if command.contains(&"sqlite") { 2 } else { 0 };
        let output = place.run(&command);
        assert_eq!(output.status.code(), Some(wanted), "{command:?}: {}", text(&output.stderr));
        assert!(fs::metadata(&device).unwrap().file_type().is_char_device(), "{command:?}");
    }
}

#[test]
fn a_missing_folder_is_named_and_no_folder_gets_the_name_of_a_file() {
    let place = for_all(FEW);
    for command in COMMANDS {
        let message = place.refused(&to(command, &["-o", "no/where/out"]));
        assert!(message.contains("no/where: this folder does not exist"), "{command:?}: {message}");
    }
    let message = place.refused(&["export", "--to", "parquet", "trace.gpuwhy", "-o", "no/where"]);
    assert!(message.contains("no: this folder does not exist"), "{message}");
    let both = ["export", "--to", "json", "trace.gpuwhy", "rank0.gpuwhy", "-o"];
    let message = place.refused(&to(&both, &["two.json"]));
    assert!(message.contains("two.json: this is one file"), "{message}");
    assert_eq!(place.names(), ["rank0.gpuwhy", "trace.gpuwhy"]);
    place.succeeds(&to(&both, &["two/"]));
    assert!(place.path("two/trace.jsonl.gz").is_file() && place.path("two/rank0.jsonl.gz").is_file());
}

#[test]
fn a_rank_of_a_run_is_replaced_on_demand_only_and_never_with_other_files() {
    let place = Place::new(FEW);
    let command = ["export", "--to", "parquet", "--run", "a", "trace.gpuwhy", "-o", "out"];
    place.succeeds(&command);
    let rank = place.path("out/run=a/rank=0");
    let tables = fs::read_dir(&rank).unwrap().count();
    fs::write(rank.join("kernels.parquet"), "old").unwrap();
    assert!(place.refused(&command).contains("rank=0: this run has this rank already"));
    assert_eq!(fs::read(rank.join("kernels.parquet")).unwrap(), b"old");
    place.succeeds(&to(&command, &["--force"]));
    assert!(fs::read(rank.join("kernels.parquet")).unwrap().starts_with(b"PAR1"));
    assert_eq!(fs::read_dir(&rank).unwrap().count(), tables);
    fs::write(rank.join("notes.txt"), "precious").unwrap();
    assert!(place.refused(&to(&command, &["--force"])).contains("files other than tables"));
    assert_eq!(fs::read(rank.join("notes.txt")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(place.path("out/run=a")).unwrap().count(), 1);
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let place = for_all(50_000);
    let before = place.names();
    let limited = |command: &[&str]| {
        // At most 16 KiB, in any unit that the shell uses.
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -f 16; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_gpuwhy")]);
        shell.args(command).current_dir(place.folder.path()).output().unwrap()
    };
    for command in COMMANDS {
        let output = limited(&to(command, &["-o", "out"]));
        assert_eq!(output.status.code(), Some(2), "{command:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("gpuwhy: out: "), "{command:?}: {}", text(&output.stderr));
        assert_eq!(place.names(), before, "{command:?}");
    }
    let output = limited(&["export", "--to", "parquet", "trace.gpuwhy", "-o", "out"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(place.names(), before);
}

/// Sends the signal once an unfinished file exists in the folder.
fn interrupted(place: &Place, mut child: Child, signal: &str) -> Option<i32> {
    started(place, &mut child);
    send(&child, signal);
    ended(&mut child)
}

fn started(place: &Place, child: &mut Child) {
    let since = Instant::now();
    while !unfinished(place.folder.path()) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before anything unfinished was there");
        assert!(since.elapsed() < PATIENCE, "nothing unfinished appears");
        thread::sleep(Duration::from_millis(1));
    }
}

fn send(child: &Child, signal: &str) {
    assert!(Command::new("kill").arg(signal).arg(child.id().to_string()).status().unwrap().success());
}

fn ended(child: &mut Child) -> Option<i32> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(since.elapsed() < PATIENCE, "it does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

fn unfinished(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().ends_with(".partial") || unfinished(&entry.path()))
    })
}

#[test]
fn an_interrupted_command_leaves_nothing_behind_and_its_exit_code_says_so() {
    let place = for_all(MANY);
    fs::write(place.path("old"), "precious").unwrap();
    let before = place.names();
    let parquet: &[&str] = &["export", "--to", "parquet", "trace.gpuwhy"];
    for (number, command) in COMMANDS.into_iter().chain([parquet]).enumerate() {
        // A shell without job control starts background jobs, including this test, with SIGINT ignored.
        let (signal, code) = [("-HUP", 129), ("-TERM", 143)][number % 2];
        let mut child = place.command(&to(command, &["-o", "out"]));
        let child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(interrupted(&place, child, signal), Some(code), "{command:?}");
        assert_eq!(place.names(), before, "{command:?}");
    }
    let mut child = place.command(&to(COMMANDS[1], &["--force", "-o", "old"]));
    let child = child.stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(interrupted(&place, child, "-TERM"), Some(143));
    assert_eq!((place.names(), fs::read(place.path("old")).unwrap()), (before, b"precious".to_vec()));
}

#[test]
fn a_signal_that_the_command_inherits_as_ignored_stays_ignored() {
    // Like `nohup`, and the background jobs of a script.
    for signal in ["HUP", "INT"] {
        let place = Place::new(50_000);
        let mut shell = Command::new("sh");
        let script = format!("trap '' {signal}; exec \"$@\"");
        shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_gpuwhy")]);
        shell.args(to(COMMANDS[1], &["-o", "out"])).current_dir(place.folder.path()).stderr(Stdio::null());
        assert_eq!(interrupted(&place, shell.spawn().unwrap(), &format!("-{signal}")), Some(0));
        assert_eq!(place.names(), ["out", "trace.gpuwhy"]);
    }
}

#[test]
fn a_second_signal_ends_the_command_at_once() {
    let place = Place::new(50_000);
    let mut child = place.command(&to(COMMANDS[1], &["-o", "out"])).stderr(Stdio::null()).spawn().unwrap();
    started(&place, &mut child);
    // Both signals arrive before the work polls for an interruption again.
    for signal in ["-STOP", "-HUP", "-TERM", "-CONT"] {
        send(&child, signal);
    }
    assert_eq!(ended(&mut child), None, "no exit code: it was killed");
    assert!(!place.path("out").exists());
}

#[test]
fn what_is_made_of_a_trace_is_for_its_user_alone_whatever_the_umask_is() {
    let place = Place::new(FEW);
    write_trace(&place.path("rank0.gpuwhy"), FEW, Some(0)).unwrap();
    let umasked = |arguments: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask 000; exec \"$0\" {arguments}"), env!("CARGO_BIN_EXE_gpuwhy")]);
        shell.current_dir(place.folder.path()).env("XDG_CACHE_HOME", place.path("cache")).env_remove("DISPLAY");
        let output = shell.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments}: {}", text(&output.stderr));
    };
    umasked("export --to gpuwhy trace.gpuwhy -o compact.gpuwhy");
    umasked("report trace.gpuwhy --html page.html");
    umasked("diff trace.gpuwhy trace.gpuwhy --html diff.html");
    umasked("merge rank0.gpuwhy -o merged.perfetto-trace");
    umasked("report --open trace.gpuwhy");
    for format in ["chrome", "json", "perfetto", "sqlite", "parquet"] {
        umasked(&format!("export --to {format} trace.gpuwhy -o out/"));
    }
    let mut folders = vec![place.path("out"), place.path("cache")];
    let mut files: Vec<_> =
        ["compact.gpuwhy", "page.html", "diff.html", "merged.perfetto-trace"].map(|name| place.path(name)).into();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    assert!(files.len() > 4 + 4 + 1 + 20, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}
