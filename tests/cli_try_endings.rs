//! All ways in which `gpuwhy try` and its programs end: nothing of theirs is left.

use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::cli_try::{Place, TRAIN, is_alive, written};
use crate::support::stderr;

const OPTIONS: [&str; 5] = ["--json", "--allow=all", "--pairs=2", "--remedy=tf32", "--budget=10m"];
/// Starts a process, one without variables, one in another session, and a daemon; none of them ends by SIGINT or
/// SIGTERM. Says SIGTERM.
const PROCESSES: &str = "trap '' INT TERM
sleep 1000 & echo $! > child
env -i sleep 1000 & echo $! > cleared
setsid sleep 1000 >/dev/null 2>&1 & echo $! > session
(setsid sh -c 'cd /; sleep 1000 & echo $! > \"$0\"' \"$PWD/daemon\" >/dev/null 2>&1 &)
trap 'echo term > told' TERM
while :; do sleep 1; done";

fn signal(gpuwhy: &Child, name: &str) {
    let process = gpuwhy.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &process]).status().unwrap().success());
}

/// `first`, which becomes `command`.
fn through<'a>(first: &'a mut Command, command: &Command) -> &'a mut Command {
    first.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => first.env(name, value),
            None => first.env_remove(name),
        };
    }
    first.current_dir(command.get_current_dir().unwrap())
}

/// Waits until the processes have ended and there are no temporary files.
fn wait_for_the_end(place: &Place, processes: &[String]) {
    while processes.iter().any(|process| is_alive(process)) || place.left_behind() > 0 {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn however_gpuwhy_is_ended_no_process_and_no_file_is_left() {
    // As in a shell: 128 and the number of the signal. The second one ends it at once if it comes within the second in
    // which the program may end.
    for (signals, code) in
        [(&["KILL"][..], 137), (&["TERM"], 143), (&["HUP"], 129), (&["INT"], 130), (&["INT", "INT"], 130)]
    {
        let Some(place) = Place::new() else { return };
        let gpuwhy = place.command(&OPTIONS, &["sh", "-c", PROCESSES]);
        // The jobs of a script ignore SIGINT.
        let mut command = Command::new("env");
        let command = through(command.arg("--default-signal=INT,HUP"), &gpuwhy);
        let mut gpuwhy = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let processes = ["child", "cleared", "session", "daemon"].map(|name| written(&place.path().join(name)));
        assert!(processes.iter().all(|process| is_alive(process)));
        // A shell of the user's, with a command, in the temporary folder.
        let temporary = fs::read_dir(place.path().join("tmp")).unwrap().next().unwrap().unwrap().path();
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000; true"]).env("PWD", &temporary).env("OLDPWD", &temporary).process_group(0);
        let mut shell = shell.current_dir(&temporary).spawn().unwrap();
        for (at, name) in signals.iter().enumerate() {
            if at > 0 {
                written(&place.path().join("told"));
            }
            signal(&gpuwhy, name);
        }
        let status = gpuwhy.wait().unwrap();
        assert_eq!(status.code().or_else(|| Some(128 + status.signal()?)), Some(code), "{signals:?}");
        wait_for_the_end(&place, &processes);
        assert_eq!(shell.try_wait().unwrap(), None, "{signals:?}");
        assert!(Command::new("kill").args(["--", &format!("-{}", shell.id())]).status().unwrap().success());
        shell.wait().unwrap();
    }
}

#[test]
fn programs_of_a_background_job_end_by_ctrl_c() {
    let Some(place) = Place::new() else { return };
    // A shell cannot trap a signal that it inherited as ignored.
    let gpuwhy = place.command(&OPTIONS, &["sh", "-c", "trap 'exit 0' INT; kill -s INT $$; exit 3"]);
    let mut command = Command::new("env");
    let output = through(command.arg("--ignore-signal=INT"), &gpuwhy).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn folders_of_killed_processes_are_removed_by_the_next_one() {
    let Some(place) = Place::new() else { return };
    for name in ["gpuwhy-try-dead", "gpuwhy-try-live", "gpuwhy-try-new", "other"] {
        fs::create_dir(place.path().join("tmp").join(name)).unwrap();
    }
    let locked = "import fcntl, time
dead = open('tmp/gpuwhy-try-dead/lock', 'w')
live = open('tmp/gpuwhy-try-live/lock', 'w')
fcntl.flock(live, fcntl.LOCK_EX)
print('locked', file=open('ready', 'w'), flush=True)
time.sleep(1000)";
    let mut holder = Command::new("python3").args(["-c", locked]).current_dir(place.path()).spawn().unwrap();
    written(&place.path().join("ready"));
    assert!(place.command(&OPTIONS, &["true"]).output().unwrap().status.success());
    let left = fs::read_dir(place.path().join("tmp")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["gpuwhy-try-live", "gpuwhy-try-new", "other"]);
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn programs_end_in_all_ways() {
    let Some(place) = Place::new() else { return };
    fs::write(place.path().join("file"), "of the user").unwrap();
    for script in [
        "cd /; exec true",
        "read line && exit 1; test -z \"$line\"",
        "exec >&- 2>&-; sleep 0.2",
        "(sleep 1000 >/dev/null &) ; exec true",
        "exec 0<&-; ulimit -n 16; exec true",
    ] {
        let mut command = place.command(&OPTIONS, &["sh", "-c", script]);
        // A relative folder, and an input that never ends.
        let output = command.env("TMPDIR", "tmp").stdin(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{script}: {}", stderr(&output));
        assert_eq!(place.left_behind(), 0, "{script}");
    }
    assert!(Command::new("mkfifo").arg(place.path().join("fifo")).status().unwrap().success());
    // Prints without end; waits in a system call without end.
    for script in ["exec yes", "exec yes >&2", "exec cat fifo"] {
        let options = [&OPTIONS[..4], &["--budget=1s"]].concat();
        let output = place.command(&options, &["sh", "-c", script]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{script}: {}", stderr(&output));
        assert!(stderr(&output).contains("took longer than the time for everything"), "{}", stderr(&output));
        assert_eq!(place.left_behind(), 0, "{script}");
    }
    assert_eq!(fs::read_to_string(place.path().join("file")).unwrap(), "of the user");
}

#[test]
fn a_full_folder_for_temporary_files_is_said() {
    let Some(place) = Place::new() else { return };
    let mut can = Command::new("unshare");
    if !can.args(["-rm", "true"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: no user namespaces");
        return;
    }
    let fills = format!(
        "import os\nfile = open(os.environ['TMPDIR'] + '/fill', 'wb')\ntry:\n    while True: file.write(bytes(4096)); file.flush()\nexcept OSError: pass\n{TRAIN}"
    );
    fs::write(place.path().join("train.py"), fills).unwrap();
    let full = "no space is left in the folder for temporary files (TMPDIR)";
    for (size, said) in [("16k", format!("{full}: ")), ("256k", full.to_owned())] {
        let gpuwhy = place.command(&OPTIONS, &["python3", "train.py"]);
        let mut command = Command::new("unshare");
        let mount = format!("mount -t tmpfs -o size={size} none tmp && exec \"$@\"");
        let output = through(command.args(["-rm", "sh", "-c", &mount, "sh"]), &gpuwhy).output().unwrap();
        let text = stderr(&output);
        assert!(output.status.code() == Some(125) && text.contains(&said), "{size}: {:?} {text}", output.status);
    }
}

#[test]
fn a_folder_for_temporary_files_that_is_not_there_is_named_once() {
    let Some(place) = Place::new() else { return };
    let output = place.command(&OPTIONS, &["true"]).env("TMPDIR", "/nonexistent").output().unwrap();
    let text = stderr(&output);
    assert!(output.status.code() == Some(125) && text.contains("(TMPDIR)"), "{:?} {text}", output.status);
    assert_eq!(text.matches("/nonexistent").count(), 1, "{text}");
}
