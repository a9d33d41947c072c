//! `gpuwhy run` must be invisible to the command that it starts, except for the variables.
//!
//! No CUDA is needed: an empty file replaces libprof.so, because only the CUDA driver would load it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A folder with a placeholder for libprof.so.
struct Place {
    folder: TempDir,
    library: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().canonicalize().unwrap().join("libprof.so");
        std::fs::write(&library, "").unwrap();
        Self { folder, library }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `gpuwhy run` with `arguments`, including the `--`.
    fn gpuwhy(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuwhy"));
        command.arg("run").args(arguments).env("GPUWHY_LIB", &self.library).current_dir(self.path());
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            let injection =
                ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN"].contains(&&*name_text);
            if injection || (name_text.starts_with("GPUWHY_") && name_text != "GPUWHY_LIB") {
                command.env_remove(name);
            }
        }
        command
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Lines that say why there is no report: none of these programs uses CUDA.
const NO_REPORT: &str = "gpuwhy: no report";

/// What was said on stderr, without [`NO_REPORT`].
fn stderr(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    text.lines().filter(|line| !line.starts_with(NO_REPORT)).map(|line| format!("{line}\n")).collect()
}

/// The lines that [`stderr`] leaves out.
fn no_report(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    text.lines().filter(|line| line.starts_with(NO_REPORT)).map(str::to_owned).collect()
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    for code in [0, 1, 2, 37, 125, 255] {
        let output = Place::new().gpuwhy(&["--", "sh", "-c", &format!("exit {code}")]).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert!(output.stdout.is_empty() && stderr(&output).is_empty(), "{output:?}");
        assert_eq!(no_report(&output).len(), 1, "{output:?}");
    }
}

#[test]
fn a_program_without_cuda_is_said_to_have_no_report_and_why() {
    let place = Place::new();
    let said = |arguments: &[&str], variable: (&str, &str)| {
        let output = place.gpuwhy(arguments).env(variable.0, variable.1).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{output:?}");
        no_report(&output).concat()
    };
    let plain = said(&["--", "true"], ("OTHER", ""));
    assert!(plain.contains("did not use CUDA"), "{plain}");
    // This machine may have a GPU.
    let has_driver = !plain.contains("libcuda.so.1 cannot be loaded (");
    assert!(!has_driver || plain.ends_with("did not use CUDA") || plain.contains("/dev/nvidia"), "{plain}");
    for (variable, value) in [("CUDA_VISIBLE_DEVICES", ""), ("CUDA_VISIBLE_DEVICES", "-1")] {
        let text = said(&["--", "true"], (variable, value));
        assert!(text.contains(&format!("CUDA_VISIBLE_DEVICES={value:?} hides every GPU")), "{text}");
    }
    let text = said(&["--", "env", "-i", "/bin/true"], ("OTHER", ""));
    assert!(text.contains("`env -i` starts programs without CUDA_INJECTION64_PATH"), "{text}");
    // Nobody wants to read anything.
    for quiet in [&["--report", "off", "--", "true"][..], &["--log", "off", "--", "true"], &["-q", "--", "true"]] {
        assert_eq!(said(quiet, ("OTHER", "")), "", "{quiet:?}");
    }
    // In the background, it is no child of the program.
    let script = "import os\ntry: os.wait()\nexcept ChildProcessError: print('no child')";
    assert_eq!(stdout(&place.gpuwhy(&["--", "python3", "-c", script]).output().unwrap()), "no child\n");
}

#[test]
fn an_output_that_cannot_be_written_stops_the_command_before_it_starts() {
    let place = Place::new();
    std::fs::write(place.path().join("file"), "").unwrap();
    for output in ["/proc/none/x.gpuwhy", "file/x.gpuwhy", ".", "/proc/%p/x.gpuwhy"] {
        let refused = place.gpuwhy(&["-o", output, "--", "touch", "started"]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{output}: {said}");
        assert!(said.contains("--output (GPUWHY_OUTPUT)") && said.contains("not started"), "{output}: {said}");
        assert!(!place.path().join("started").exists() && no_report(&refused).is_empty(), "{output}");
        // On the machine that the command runs on, it may be writable.
        let srun = place.path().join("srun");
        std::fs::write(&srun, "#!/bin/sh\nexec \"$@\"\n").unwrap();
        std::fs::set_permissions(&srun, std::fs::Permissions::from_mode(0o755)).unwrap();
        let line = ["-o", output, "--", srun.to_str().unwrap(), "echo", "started"];
        assert_eq!(stdout(&place.gpuwhy(&line).output().unwrap()), "started\n", "{output}");
    }
    for output in ["new/er/%h-%p.gpuwhy", "file", "/dev/null"] {
        let line = ["-o", output, "--", "true"];
        assert_eq!(place.gpuwhy(&line).output().unwrap().status.code(), Some(0), "{output}");
    }
    assert!(!place.path().join("new").exists(), "only libprof.so makes it");
}

#[test]
fn a_killed_command_is_reported_as_killed() {
    let place = Place::new();
    let output = place.gpuwhy(&["--", "sh", "-c", "kill -KILL $$"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(9));

    // Exit code in a shell: 128 + signal.
    let output = Command::new("sh")
        .args(["-c", "\"$0\" run -- sh -c 'kill -TERM $$'; echo $?", env!("CARGO_BIN_EXE_gpuwhy")])
        .env("GPUWHY_LIB", &place.library)
        .env_remove("CUDA_INJECTION64_PATH")
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "143\n");
}

#[test]
fn the_command_keeps_the_process_id_and_decides_about_signals() {
    let script = "trap 'echo caught; exit 9' TERM; echo $$; while :; do sleep 0.01; done";
    let place = Place::new();
    let mut child = place.gpuwhy(&["--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The line also confirms that the trap is set.
    let process_id: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    assert_eq!(process_id, child.id());

    let killed = Command::new("kill").args(["-TERM", &process_id.to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(lines.next().unwrap().unwrap(), "caught");
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn arguments_arrive_as_they_were_given() {
    let arguments = ["a b", "*", "", "--output", "-x", "'", "\"$HOME\"", "--"];
    let mut all = vec!["--", "printf", "[%s]\\n"];
    all.extend(arguments);
    let output = Place::new().gpuwhy(&all).output().unwrap();
    let wanted: String = arguments.iter().map(|argument| format!("[{argument}]\n")).collect();
    assert_eq!(stdout(&output), wanted);
}

#[test]
fn stdin_reaches_the_command() {
    let place = Place::new();
    let mut child = place.gpuwhy(&["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"\x00\xffbytes").unwrap();
    let mut bytes = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"\x00\xffbytes");
    assert!(child.wait().unwrap().success());
}

#[test]
fn options_become_variables_and_paths_become_absolute() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("lib")).unwrap();
    std::fs::write(place.path().join("lib/libcupti.so.13"), b"\x7fELF").unwrap();
    let arguments = [
        "--output",
        "%h/r%q{RANK}-%p.gpuwhy",
        "--report",
        "full",
        "--live",
        "500ms",
        "--log",
        "debug",
        "--cuda-memory-usage",
        "--capture-range",
        "nvtx",
        "-p",
        "epoch@train",
        "--capture-range-end",
        "repeat:2",
        "--delay",
        "10",
        "-d",
        "500ms",
        "--cupti-path",
        "lib/libcupti.so.13",
        "--",
        "env",
    ];
    let output = place.gpuwhy(&arguments).output().unwrap();
    let here = place.path().canonicalize().unwrap();
    let here = here.display();
    let environment = stdout(&output);
    for wanted in [
        format!("CUDA_INJECTION64_PATH={}", place.library.display()),
        format!("GPUWHY_OUTPUT={here}/%h/r%q{{RANK}}-%p.gpuwhy"),
        "GPUWHY_REPORT=full".into(),
        "GPUWHY_LIVE=500ms".into(),
        "GPUWHY_LOG=debug".into(),
        "GPUWHY_CUDA_MEMORY_USAGE=on".into(),
        "GPUWHY_CAPTURE_RANGE=nvtx".into(),
        "GPUWHY_NVTX_CAPTURE=epoch@train".into(),
        "GPUWHY_CAPTURE_RANGE_END=repeat:2".into(),
        "GPUWHY_DELAY=10".into(),
        "GPUWHY_DURATION=500ms".into(),
        format!("GPUWHY_CUPTI_PATH={here}/lib/libcupti.so.13"),
    ] {
        assert!(environment.lines().any(|line| line == wanted), "{wanted} is missing in\n{environment}");
    }
}

#[test]
fn options_that_are_left_out_change_nothing() {
    let output = Place::new().gpuwhy(&["--", "env"]).env("GPUWHY_REPORT", "off").output().unwrap();
    let environment = stdout(&output);
    assert!(environment.lines().any(|line| line == "GPUWHY_REPORT=off"));
    for absent in ["GPUWHY_OUTPUT=", "GPUWHY_LIVE=", "GPUWHY_LOG=", "GPUWHY_CUPTI_PATH="] {
        assert!(!environment.contains(absent), "{environment}");
    }
}

#[test]
fn output_off_is_no_file_name() {
    let output = Place::new().gpuwhy(&["--output", "off", "--", "env"]).output().unwrap();
    assert!(stdout(&output).lines().any(|line| line == "GPUWHY_OUTPUT=off"));
}

#[test]
fn a_command_that_does_not_exist_gives_127() {
    let output = Place::new().gpuwhy(&["--", "no-such-command-4711"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).contains("no-such-command-4711"));
}

#[test]
fn a_file_that_cannot_be_executed_gives_126() {
    let place = Place::new();
    let file = place.path().join("data");
    std::fs::write(&file, "1\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = place.gpuwhy(&["--", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(stderr(&output).contains(file.to_str().unwrap()));
}

#[test]
fn a_missing_library_is_gpuwhys_own_failure() {
    let output = Place::new().gpuwhy(&["--", "true"]).env("GPUWHY_LIB", "/nowhere/libprof.so").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let message = stderr(&output);
    assert!(message.contains("/nowhere/libprof.so") && message.contains("GPUWHY_LIB"), "{message}");
}

#[test]
fn options_that_make_no_sense_are_named_before_the_command_starts() {
    let place = Place::new();
    std::fs::write(place.path().join("text"), "no library").unwrap();
    for (arguments, said) in [
        (&["--report", "everything"][..], "--report"),
        (&["--live", "often"], "'--live <DURATION>': expected a duration such as 500ms or 2s, or `off`"),
        (&["--log", "loud"], "--log"),
        (&["--mode", "foo"], "'--mode <MODE>': expected monitor, auto, light or full"),
        (&["-c", "sometimes"], "--capture-range"),
        (&["--cupti-sharing", "maybe"], "--cupti-sharing"),
        (&["-d", "long"], "--duration"),
        (&["--max-overhead", "much"], "--max-overhead"),
        (&["--cuda-memory-usage=maybe"], "--cuda-memory-usage"),
        (&["--cupti-path", "/nope.so"], "'--cupti-path <PATH>': No such file"),
        (&["--cupti-path", "text"], "'--cupti-path <PATH>': it is no shared library"),
        // A word that starts with a hyphen is not a command.
        (&["--mod", "full"], "a similar argument exists: '--mode'"),
        (&["--liv", "1s"], "a similar argument exists: '--live'"),
        (&["--bogus"], "unexpected argument '--bogus'"),
    ] {
        let mut all = arguments.to_vec();
        all.extend(["--", "touch", "started"]);
        let output = place.gpuwhy(&all).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
        assert!(!place.path().join("started").exists());
    }
    assert_eq!(place.gpuwhy(&[]).output().unwrap().status.code(), Some(2), "no command");
    // Arguments after the command belong to it, with or without `--` before it.
    let output = place.gpuwhy(&["printf", "%s", "--mode", "--", "-x"]).output().unwrap();
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("--mode---x", Some(0)), "{}", stderr(&output));
}

#[test]
fn settings_that_libprof_would_not_follow_stop_the_command_before_it_starts() {
    for (variable, value, said) in [
        ("GPUWHY_FLUSH", "1ms", "from 10ms to 10s; the default is 100ms"),
        ("GPUWHY_CAPTURE_RANGE", "nvtx", "-c nvtx needs -p RANGE[@DOMAIN]"),
    ] {
        let place = Place::new();
        let output = place.gpuwhy(&["--", "touch", "started"]).env(variable, value).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(said) && stderr(&output).contains("not started"), "{}", stderr(&output));
        assert!(!place.path().join("started").exists());
    }
    // An unknown variable may be for another version: it only causes a warning.
    for (variable, value, said) in [
        ("GPUWHY_LIFE", "2s", "did you mean GPUWHY_LIVE?"),
        ("GPUWHY_OUTPUT", "%z.gpuwhy", "GPUWHY_OUTPUT: %z is no placeholder"),
    ] {
        let output = Place::new().gpuwhy(&["--", "echo", "started"]).env(variable, value).output().unwrap();
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "started\n"));
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "once");
    }
    // An option replaces its variable, regardless of the variable's value.
    let place = Place::new();
    let output = place.gpuwhy(&["--live", "2s", "--", "true"]).env("GPUWHY_LIVE", "often").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn another_tools_library_is_not_replaced_silently() {
    let place = Place::new();
    let other = "/opt/tool/libother.so";
    let output = place.gpuwhy(&["--", "true"]).env("CUDA_INJECTION64_PATH", other).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let message = stderr(&output);
    assert!(message.contains(other) && message.contains("--force"), "{message}");

    let output = place
        .gpuwhy(&["--force", "--", "printenv", "CUDA_INJECTION64_PATH"])
        .env("CUDA_INJECTION64_PATH", other)
        .output()
        .unwrap();
    assert_eq!(stdout(&output).trim(), place.library.to_str().unwrap());
}

#[test]
fn a_tool_that_injects_a_library_of_its_own_is_not_started() {
    let place = Place::new();
    let tool = place.path().join("nsys");
    std::fs::write(&tool, "#!/bin/sh\necho started\n").unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let tool = tool.to_str().unwrap();
    let refused = place.gpuwhy(&["--", tool, "profile", "true"]).output().unwrap();
    assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(125), ""));
    let message = stderr(&refused);
    assert!(message.contains("nsys") && message.contains("--force"), "{message}");
    let forced = place.gpuwhy(&["--force", "--", tool, "profile", "true"]).output().unwrap();
    assert_eq!((forced.status.code(), stdout(&forced).as_str()), (Some(0), "started\n"));
}

#[test]
fn ranges_come_to_gpuwhy_unless_another_tool_wants_them() {
    let place = Place::new();
    let output = place.gpuwhy(&["--", "printenv", "NVTX_INJECTION64_PATH"]).output().unwrap();
    assert_eq!(stdout(&output).trim(), place.library.to_str().unwrap());
    assert!(stderr(&output).is_empty());

    let other = "/opt/tool/libother.so";
    let run = |arguments| place.gpuwhy(arguments).env("NVTX_INJECTION64_PATH", other).output().unwrap();
    let output = run(&["--", "printenv", "NVTX_INJECTION64_PATH"]);
    assert_eq!((stdout(&output).trim(), output.status.code()), (other, Some(0)));
    assert!(stderr(&output).contains(other) && stderr(&output).contains("--force"), "{}", stderr(&output));
    let output = run(&["--force", "--", "printenv", "NVTX_INJECTION64_PATH"]);
    assert_eq!((stdout(&output).trim(), stderr(&output).as_str()), (place.library.to_str().unwrap(), ""));
}

#[test]
fn nccl_finds_the_library_by_its_name_unless_it_has_another_plugin() {
    let place = Place::new();
    let print = ["--nccl", "--", "printenv", "NCCL_PROFILER_PLUGIN"];
    let unasked = place.gpuwhy(&print[1..]).output().unwrap();
    assert_eq!((stdout(&unasked).as_str(), unasked.status.code()), ("", Some(1)), "nobody asked for it");
    for set in ["", "libprof.so"] {
        let output = place.gpuwhy(&print).env("NCCL_PROFILER_PLUGIN", set).output().unwrap();
        assert_eq!((stdout(&output).trim(), stderr(&output).as_str()), ("libprof.so", ""), "{set:?}");
    }
    for other in ["none", "libnccl-profiler-inspector.so"] {
        let run = |arguments: &[&str]| place.gpuwhy(arguments).env("NCCL_PROFILER_PLUGIN", other).output().unwrap();
        let output = run(&print);
        assert_eq!((stdout(&output).trim(), output.status.code()), (other, Some(0)));
        assert!(stderr(&output).contains(other) && stderr(&output).contains("--force"), "{}", stderr(&output));
        let output = run(&["--nccl", "--force", "--", "printenv", "NCCL_PROFILER_PLUGIN"]);
        assert_eq!((stdout(&output).trim(), stderr(&output).as_str()), ("libprof.so", ""));
    }
}

#[test]
fn the_own_library_and_an_empty_variable_are_no_obstacle() {
    let place = Place::new();
    let same = place.path().join(".").join("libprof.so");
    for value in [same.to_str().unwrap(), ""] {
        let output = place.gpuwhy(&["--", "true"]).env("CUDA_INJECTION64_PATH", value).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{value:?}: {}", stderr(&output));
    }
}

#[test]
fn a_terminal_is_reported_once_what_to_expect() {
    // Only stderr is a terminal; its output is printed.
    let terminal = "import os, pty, subprocess, sys\n\
                    ours, theirs = pty.openpty()\n\
                    code = subprocess.call(sys.argv[1:], stderr=theirs)\n\
                    os.close(theirs)\n\
                    try: print(os.read(ours, 9999).decode(), end='')\n\
                    except OSError: pass\n\
                    sys.exit(code)";
    let place = Place::new();
    let said = |arguments: &[&str]| {
        let run = place.gpuwhy(arguments);
        let mut command = Command::new("python3");
        command.args(["-c", terminal]).arg(run.get_program()).args(run.get_args()).current_dir(place.path());
        for (name, value) in run.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        stdout(&command.output().unwrap())
    };
    let text = said(&["--", "true"]);
    assert!(text.contains("the trace is gpuwhy-<pid>.gpuwhy"), "{text}");
    assert_eq!(text.lines().filter(|line| !line.contains(NO_REPORT)).count(), 1, "{text}");
    let text = said(&["-o", "run/%h-%p.gpuwhy", "true"]);
    assert!(text.contains("/run/<host>-<pid>.gpuwhy"), "{text}");
    assert!(!said(&["-o", "off", "true"]).contains("trace"));
    for quiet in [["--report", "off"], ["--log", "off"]] {
        assert_eq!(said(&[quiet[0], quiet[1], "true"]), "");
    }
}

#[test]
fn a_value_that_needs_an_equals_sign_is_not_started_as_the_program() {
    let place = Place::new();
    let run = |arguments: &[&str]| {
        let output = place.gpuwhy(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (option, value) in [("--gpu-metrics", "auto"), ("--gpu-metrics", "on:1000"), ("--cuda-memory-usage", "on")] {
        for rest in [&["--", "echo"][..], &["echo"], &[]] {
            let (code, said) = run(&[&[option, value], rest].concat());
            assert!(
                code == Some(2) && said.contains(&format!("write '{option}={value}'")),
                "{option}: {code:?}: {said}"
            );
        }
        let name = format!("{option}={value}");
        // The program's options belong to it, and a program may have any name.
        for line in [
            &[name.as_str(), "--", "echo"][..],
            &[option, "echo"],
            &["echo", option, value],
            &["--", "echo", option, value],
        ] {
            assert_eq!(run(line).0, Some(0), "{line:?}");
        }
        assert_eq!(run(&[option, "--", value]).0, Some(127), "{option} -- {value}");
    }
}

#[test]
fn a_negative_time_is_reported_as_a_wrong_value_and_hidden_verbs_are_not_suggested() {
    for line in [
        &["run", "--live", "-1s", "--", "echo"][..],
        &["run", "--delay", "-1s", "--", "echo"],
        &["report", "--from", "-1s", "x"],
        &["report", "--to", "-1s", "x"],
        &["top", "--speed", "-1", "x"],
        &["top", "--interval", "-1s", "x"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_gpuwhy")).args(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("invalid value '-1"), "{line:?}: {said}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_gpuwhy")).arg("probe-libcupt").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("unrecognized subcommand") && !said.contains("probe-libcupti"), "{said}");
}
