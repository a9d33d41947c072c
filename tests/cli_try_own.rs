//! `gpuwhy try` with a change of the user's: in copies of the working tree, which stays as it is.
//!
//! Prints `SKIPPED` without a python3 or git.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::cli_try::{Place, document, is_alive, near, outcomes, written};
use crate::cli_try_loops::{START, stage};
use crate::support::{GPUWHY, stderr};

/// Trains in a subfolder with a space in its name: 0.1 s a step, half of which is a setting of `settings.py`.
const TRAIN: &str = "import sys, torch, settings
optimizer = torch.optim.AdamW([torch.nn.Parameter()])
torch.clock.costs.update(work=settings.work, optimizer=0.05)
print('folder', __file__)
for step in range(5000):
    print(f'step {step} loss {2.5 - step / 10000}', flush=True)
    optimizer.step()
";
const FIX: &str = "--- a/my app/settings.py\n+++ b/my app/settings.py\n@@ -1 +1 @@\n-work = 0.05\n+work = 0.0\n";

/// A repository with the program in `place`.
struct Repository(PathBuf);

impl Repository {
    fn new(place: &Place) -> Option<Self> {
        if Command::new("git").arg("--version").output().is_err() {
            println!("SKIPPED: no git");
            return None;
        }
        let repository = Self(place.path().join("repository"));
        repository.write("my app/train.py", TRAIN);
        repository.write("my app/settings.py", "work = 0.05\n");
        repository.write(".gitignore", "data\nout.txt\n");
        repository.write("data/first/batch", "7");
        repository.git(&["init", "--quiet"]);
        repository.git(&["add", "."]);
        repository.git(&["commit", "--quiet", "--message", "One"]);
        Some(repository)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments).current_dir(&self.0);
        let output = git.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    }

    /// `gpuwhy try --patch DIFF` in the subfolder; nothing of the tree changes, and nothing stays behind.
    fn tried(&self, place: &Place, diff: &str, options: &[&str], command: &[&str]) -> Output {
        fs::write(place.path().join("fix.diff"), diff).unwrap();
        let patch = place.path().join("fix.diff");
        let before = self.state();
        let mut gpuwhy =
            place.command(&[&["--patch", patch.to_str().unwrap(), "--pairs=2"], options].concat(), command);
        let output = gpuwhy.current_dir(self.path("my app")).output().unwrap();
        assert!(self.state() == before, "the tree has changed: {}", stderr(&output));
        assert_eq!(fs::read_dir(place.path().join("tmp")).unwrap().count(), 0, "{}", stderr(&output));
        output
    }

    /// Names, contents and times of all files, also of the index.
    fn state(&self) -> Vec<(PathBuf, Vec<u8>, i64)> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let about = fs::symlink_metadata(&path).unwrap();
                if about.is_dir() {
                    folders.push(path);
                } else {
                    files.push((path.clone(), fs::read(&path).unwrap_or_default(), about.mtime_nsec()));
                }
            }
        }
        files.sort();
        files
    }
}

/// Exit code and words of a command that is not tried.
fn refused(output: &Output) -> (i32, String) {
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code().unwrap(), stderr(output))
}

#[test]
fn a_diff_is_measured_in_copies_of_the_tree() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    // What is not committed is in both copies, and a path of the tree is one of the copy.
    repository.write("my app/train.py", &TRAIN.replace("optimizer=0.05", "optimizer=0.03"));
    let script = repository.path("my app/train.py");
    let output = repository.tried(&place, FIX, &["--json"], &["python3", script.to_str().unwrap()]);
    let found = document(&output);
    assert_eq!((&found["unit"], outcomes(&found)), (&"optimizer".into(), vec![("patch fix.diff", "helps")]));
    near(&found["unchanged"]["s"], 0.08);
    near(&found["remedies"][0]["gain"], 0.08 / 0.03);
    assert_eq!(found["remedies"][0]["output"], "equal");
    assert!(found["remedies"][0]["keep"].as_str().unwrap().starts_with("git apply "));
    let history = fs::read_to_string(place.path().join("history.jsonl")).unwrap();
    assert!(history.contains("\"remedy\":\"patch fix.diff "), "{history}");
    // "Measured before" is of the same diff, whatever its name.
    let before = |diff: &str| {
        let output = repository.tried(&place, diff, &["--json"], &["python3", script.to_str().unwrap()]);
        document(&output)["remedies"][0]["predicted"]["measured_before"].clone()
    };
    assert_eq!(before(&FIX.replace("+work = 0.0", "+work = 0.01")), Value::Null);
    assert!((before(FIX).as_f64().unwrap() - 0.08 / 0.03).abs() < 1e-3);
    // It stands for the remedy that is named, in the history where no condition is part of the gain.
    repository.write("my app/train.py", &TRAIN.replace("range(5000)", "range(120)"));
    let output = repository.tried(&place, FIX, &["--json", "--remedy", "file_output"], &["python3", "train.py"]);
    assert_eq!(outcomes(&document(&output)), [("file_output", "helps")]);
    let history = fs::read_to_string(place.path().join("history.jsonl")).unwrap();
    assert!(history.contains("\"remedy\":\"file_output\""), "{history}");
    let output = repository.tried(&place, FIX, &["--remedy", "zzzzz"], &["python3", "train.py"]);
    assert_eq!(refused(&output).0, 2);
}

#[test]
fn other_numbers_are_no_gain_and_a_failure_is_said() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    repository.write("my app/train.py", &TRAIN.replace("2.5 -", "settings.work + 2 -"));
    let tried = |diff: &str, options: &[&str]| {
        let options = [&["--json"], options].concat();
        document(&repository.tried(&place, diff, &options, &["python3", "train.py"]))
    };
    assert_eq!(outcomes(&tried(FIX, &[])), [("patch fix.diff", "changes_results")]);
    let said = repository.tried(&place, FIX, &[], &["python3", "train.py"]);
    let words = "faster, but it prints other numbers, so no gain is claimed (--allow behavior)";
    assert!(String::from_utf8_lossy(&said.stdout).contains(words), "{said:?}");
    assert!(!stderr(&said).contains("0 MiB"), "{said:?}");
    assert_eq!(outcomes(&tried(FIX, &["--allow", "behavior"])), [("patch fix.diff", "helps")]);
    let found = tried(&FIX.replace("+work = 0.0", "+raise OSError('no work')"), &[]);
    assert_eq!(outcomes(&found), [("patch fix.diff", "fails")]);
    assert_eq!(found["remedies"][0]["why"], "OSError: no work");
}

#[test]
fn a_change_of_the_batch_counts_by_all_of_the_work() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    let fixed = TRAIN.replace("work=settings.work", "work=0.0");
    repository.write("my app/train.py", &fixed.replace("range(5000)", "range(settings.steps)"));
    let changed = |from: &str, to: &str| {
        repository.write("my app/settings.py", &format!("{from}\n"));
        let diff = FIX.replace("work = 0.05", from).replace("work = 0.0\n", &format!("{to}\n"));
        let output = repository.tried(&place, &diff, &["--json"], &["python3", "train.py"]);
        document(&output)["remedies"][0].clone()
    };
    let row = changed("steps = 120", "steps = 60");
    assert_eq!((&row["basis"], &row["steps_of_all"]), (&"all_work".into(), &json!([120, 60])), "{row}");
    near(&row["gain"], 2.0);
    // No gain of steps that take longer.
    let twice = "steps = 60; __import__('torch').clock.costs['more'] = 0.05";
    let row = changed("steps = 120", twice);
    assert_eq!((&row["outcome"], &row["basis"]), (&"no_difference".into(), &"all_work".into()), "{row}");
}

#[test]
fn a_loop_whose_header_the_diff_changes_or_moves_is_the_same() {
    let Some((place, python)) = stage() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    fs::copy(place.path().join("libcuda.so.1"), repository.path("my app/libcuda.so.1")).unwrap();
    let old = format!("{START}cuda()\n# Train\nfor step in range(200):\n    work()\nprint('done')\n");
    repository.write("my app/loop.py", &old);
    repository.git(&["add", "."]);
    let changed = |new: &str| {
        repository.write("my app/loop.py", new);
        let diff =
            Command::new("git").args(["diff", "--", "my app/loop.py"]).current_dir(&repository.0).output().unwrap();
        repository.write("my app/loop.py", &old);
        let diff = String::from_utf8(diff.stdout).unwrap();
        let output = repository.tried(&place, &diff, &["--json"], &[python.to_str().unwrap(), "loop.py"]);
        let found = document(&output);
        assert_eq!((&found["unit"], outcomes(&found)), (&"loop".into(), vec![("patch fix.diff", "helps")]), "{found}");
        near(&found["remedies"][0]["gain"], 2.0);
    };
    changed(&old.replace("range(200):\n    work()", "iter(range(200)):\n    work(0.01)"));
    let before = "for step in range(200):\n    pass\n# Train\nfor step in range(200):\n    work(0.01)";
    changed(&old.replace("# Train\nfor step in range(200):\n    work()", before));
}

#[test]
fn files_that_the_program_does_not_load_from_its_copy_are_no_measurement() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    let tried = |program: &str, diff: &str| {
        repository.write("my app/train.py", program);
        let found = document(&repository.tried(&place, diff, &["--json"], &["python3", "train.py"]));
        assert_eq!(outcomes(&found), [("patch fix.diff", "not_applicable")]);
        found["remedies"][0]["why"].as_str().unwrap().to_owned()
    };
    // As an editable install does.
    let own = repository.path("my app");
    let path = format!("import sys\nsys.path.insert(0, {own:?})\n{TRAIN}");
    let why = tried(&path, FIX);
    assert!(why.contains("loads my app/settings.py of the user's own tree") && why.contains("PYTHONPATH"), "{why}");
    // One without steps, and one whose child loads the file.
    let why = tried(&format!("import sys\nsys.path.insert(0, {own:?})\nimport settings"), FIX);
    assert!(why.contains("of the user's own tree"), "{why}");
    repository
        .write("my app/train.py", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import settings'])");
    let found = document(&repository.tried(&place, FIX, &["--json"], &["python3", "train.py"]));
    assert_eq!(outcomes(&found), [("patch fix.diff", "no_difference")]);
    repository.write("my app/other.py", "work = 0.05\n");
    let why = tried(TRAIN, &FIX.replace("settings", "other"));
    assert_eq!(why, "the program loads none of the changed files (my app/other.py)");
}

#[test]
fn a_diff_is_shown_with_the_prediction_for_the_line_that_it_changes() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    let lines = |last: &str| (1..30).map(|line| format!("# {line}\n")).collect::<String>() + last;
    repository.write("my app/programs2.py", &lines("pass\n"));
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces/file_log.gpuwhy");
    let tried = |at: usize, new: &str| {
        let (before, old) = (at - 1, if at == 30 { "pass".to_owned() } else { format!("# {at}") });
        let after = if at == 30 { String::new() } else { format!(" # {}\n", at + 1) };
        let count = if at == 30 { 2 } else { 3 };
        let diff = format!(
            "--- a/my app/programs2.py\n+++ b/my app/programs2.py\n@@ -{before},{count} +{before},{count} @@\n # \
             {before}\n-{old}\n+{new}\n{after}"
        );
        let output = repository.tried(
            &place,
            &diff,
            &["--json", "--from", trace.to_str().unwrap()],
            &["sh", "-c", "cat programs2.py"],
        );
        document(&output)["remedies"][0].clone()
    };
    // The report names line 31.
    let row = tried(30, "pass # 30");
    assert_eq!(row["id"], "patch fix.diff");
    assert!(row["predicted"]["low"].as_f64().unwrap() > 1.0, "{row}");
    let row = tried(20, "# twenty");
    assert_eq!((&row["id"], &row["predicted"]), (&"patch fix.diff".into(), &Value::Null));
}

#[test]
fn a_diff_that_cannot_be_applied_is_refused_with_a_reason() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    let other = |name: &str| FIX.replace("my app/settings.py", name);
    symlink(place.path(), repository.path("outside")).unwrap();
    fs::write(place.path().join("settings.py"), "work = 0.05\n").unwrap();
    let cases = [
        ("", "no diff, or an empty one"),
        ("nothing", "no diff, or an empty one"),
        (
            &FIX.replace("-work = 0.05", "-work = 9"),
            "does not apply to the files as they are: patch failed: my app/settings.py:1",
        ),
        (&FIX.replace('\n', "\r\n"), "patch failed"),
        (&other("../settings.py"), "does not apply"),
        (&other("outside/settings.py"), "beyond a symbolic link"),
        (&other("data/first/batch"), "what git tracks or does not ignore"),
        ("diff --git a/x b/x\nindex 12..34 100644\nBinary files a/x and b/x differ\n", "does not apply"),
    ];
    for (diff, words) in cases {
        let (code, said) = refused(&repository.tried(&place, diff, &[], &["python3", "train.py"]));
        assert!(code == 2 && said.contains(words), "{diff}: {code} {said}");
    }
    repository.write("my app/settings.py", "work = 0.0\n");
    let (code, said) = refused(&repository.tried(&place, FIX, &[], &["python3", "train.py"]));
    assert!(code == 2 && said.contains("have this change already"), "{code} {said}");
    let none = place.command(&["--patch", "none.diff"], &["true"]).output().unwrap();
    assert!(refused(&none).1.contains("--patch none.diff: there is no such file"), "{none:?}");
    let no_git = place.command(&["--patch", "fix.diff"], &["/bin/true"]).env("PATH", "/nowhere").output().unwrap();
    assert!(refused(&no_git).1.contains("--patch and --write-patch need git"), "{no_git:?}");
}

#[test]
fn diffs_of_several_forms_apply() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    let shows = |diff: &str, script: &str| {
        let output = repository.tried(&place, diff, &["--json", "--allow=all"], &["sh", "-c", script]);
        document(&output)["remedies"][0]["output_changed"].as_str().unwrap_or_default().to_owned()
    };
    let show = "sed 's/work =/x/' settings.py";
    repository.write("my app/settings.py", "work = 3\r\nother\r\n");
    let lines = "@@ -1,2 +1,2 @@\n-work = 3\r\n+work = 5\r\n other\r\n";
    let names = [("a/my app/", "b/my app/"), ("a/", "b/"), ("my app/", "my app/"), ("", "")];
    for (from, to) in names {
        let diff = format!("--- {from}settings.py\t\n+++ {to}settings.py\t\n{lines}");
        assert_eq!(shows(&diff, show), "x 5", "{from}");
    }
    // A new file, a name that changes, and a file with a mode.
    let moved = "diff --git a/my app/settings.py b/my app/now.py\nsimilarity index 100%\nrename from my app/settings.py\n\
                 rename to my app/now.py\ndiff --git a/my app/run b/my app/run\nnew file mode 100755\n--- /dev/null\n+++ \
                 b/my app/run\n@@ -0,0 +1 @@\n+echo x 8\n";
    assert_eq!(
        shows(moved, "if [ -x run ] && [ ! -e settings.py ] && [ -e now.py ]; then ./run; else echo x 7; fi"),
        "x 8"
    );
}

#[test]
fn the_copies_have_what_git_does_not_ignore_and_what_is_linked() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    let read = ["sh", "-c", "cat ../data/first/batch; echo 1 > out.txt; echo 2 > ../data/log"];
    let output = repository.tried(&place, FIX, &[], &["cat", "../data/first/batch"]);
    let (code, said) = refused(&output);
    assert!(code == 1 && said.contains("fails in a copy of the tree") && said.contains("which --link"), "{said}");
    assert!(said.contains("they lack") && said.contains("repository/data,"), "{said}");
    let path = repository.path("data/first/batch");
    let absolute = ["python3", "-c", &format!("open({path:?})")];
    let (_, said) = refused(&repository.tried(&place, FIX, &[], &absolute));
    assert!(said.contains("repository/data,"), "{said}");
    let full = ["sh", "-c", "echo 'OSError: [Errno 28] No space left on device' >&2; exit 1"];
    let (code, said) = refused(&repository.tried(&place, FIX, &[], &full));
    assert!(code == 1 && said.contains("where the copies are, set TMPDIR to one"), "{said}");
    // What is written to a link is the user's own.
    repository.write("data/log", "2\n");
    fs::write(place.path().join("fix.diff"), FIX).unwrap();
    let options = ["--patch", "../../fix.diff", "--link", "../data", "--json"];
    let output = place.command(&options, &read).current_dir(repository.path("my app")).output().unwrap();
    assert_eq!(outcomes(&document(&output)), [("patch fix.diff", "no_difference")]);
    assert!(!repository.path("my app/out.txt").exists());
    for (link, words) in [("none", "no such file"), ("..", "names no part"), ("../../fix.diff", "names no part")] {
        let output = repository.tried(&place, FIX, &["--link", link], &read);
        let (code, said) = refused(&output);
        assert!(code == 2 && said.contains(words), "{link}: {said}");
    }
    // A program that git ignores is none of the copies, unless it is built there or of a virtual environment.
    repository.write("data/bin/tool", "#!/bin/sh\necho 5\n");
    fs::set_permissions(repository.path("data/bin/tool"), PermissionsExt::from_mode(0o755)).unwrap();
    let (code, said) = refused(&repository.tried(&place, FIX, &[], &["../data/bin/tool"]));
    assert!(code == 2 && said.contains("--build COMMAND makes it"), "{said}");
    let build = "mkdir -p ../data/bin; cp /bin/echo ../data/bin/tool";
    let output = repository.tried(&place, FIX, &["--json", "--build", build], &["../data/bin/tool", "5"]);
    assert_eq!(document(&output)["remedies"][0]["output"], "equal");
    let output = repository.tried(&place, FIX, &["--build", "echo no compiler; exit 3"], &["../data/bin/tool", "5"]);
    let (code, said) = refused(&output);
    assert!(code == 1 && said.contains("unchanged (exit status: 3): no compiler"), "{said}");
    repository.write("data/pyvenv.cfg", "");
    let output = repository.tried(&place, FIX, &["--json"], &["../data/bin/tool"]);
    assert_eq!(document(&output)["remedies"][0]["output"], "equal");
}

#[test]
fn variables_with_paths_of_the_tree_are_those_of_the_copy() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    repository.write("data/env/pyvenv.cfg", "");
    repository.write("data/env/bin/tool", "");
    fs::create_dir_all(repository.path("my app/home")).unwrap();
    let root = repository.0.display().to_string();
    let (app, installed) = (format!("{root}/my app"), format!("{root}/data/env/bin"));
    let link = place.path().join("link");
    symlink(&repository.0, &link).unwrap();
    let link = link.display().to_string();
    let copied = |value: String| (value.clone(), value.replace(&root, "COPY").replace(&link, "COPY"));
    let kept = |value: String| (value.clone(), value);
    let variables = [
        ("OUT", copied(format!("{app}/out.txt"))),
        ("LIST", copied(format!("/usr/lib:{app}/lib:{root}"))),
        ("DATABASE", copied(format!("sqlite:///{app}/rows.db"))),
        ("LINKED", copied(format!("{link}/my app/out.txt"))),
        ("TOOLS", kept(format!("{installed}:/usr/bin"))),
        ("VIRTUAL_ENV", kept(format!("{root}/data/env"))),
        ("LINKED_ENV", kept(format!("{link}/data/env"))),
        ("HOME", kept(format!("{app}/home"))),
        ("OTHER", kept("/usr/lib".to_owned())),
        // git ignores it: the program may write to a single path, and searches a list.
        ("MADE", copied(format!("{root}/data/first"))),
        ("SEARCHED", kept(format!("/usr/lib:{root}/data/first"))),
        ("RELATIVE", kept("my app/out.txt".to_owned())),
    ];
    // The copy's top folder is the parent of its working directory.
    let print = "import os, settings\ntop = os.path.dirname(os.getcwd())\nfor name in os.environ['NAMES'].split():\n    print(name, \
                 os.environ[name].replace(top, 'COPY'), file=open(os.environ['SEEN'], 'a'))";
    let seen = place.path().join("seen");
    let names = variables.each_ref().map(|(name, ..)| *name).join(" ");
    fs::write(place.path().join("fix.diff"), FIX).unwrap();
    for recorded in ["--pairs=2", "--build=true"] {
        let mut gpuwhy = place.command(&["--patch", "../../fix.diff", recorded], &["python3", "-c", print]);
        gpuwhy.current_dir(repository.path("my app")).env("NAMES", &names).env("SEEN", &seen);
        gpuwhy.envs(variables.each_ref().map(|(name, (value, _))| (name, value)));
        let output = gpuwhy.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = fs::read_to_string(&seen).unwrap();
        for (name, (_, wanted)) in &variables {
            let mut found = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            assert!(found.all(|found| found == wanted), "{name}: {text}");
        }
        assert!(text.contains("OUT COPY/") && text.contains("LIST /usr/lib:COPY/"), "{text}");
    }
}

#[test]
fn folders_to_search_that_the_copies_lack_are_those_of_the_tree() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    repository
        .write("data/tools/mytool", "#!/bin/sh\nexec python3 -c 'import settings, ignored; print(settings.work)'\n");
    repository.write("data/tools/ignored.py", "");
    fs::set_permissions(repository.path("data/tools/mytool"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(place.path().join("fix.diff"), FIX).unwrap();
    let tools = repository.path("data/tools").display().to_string();
    let path = std::env::var("PATH").unwrap();
    for tools in [tools.as_str(), "../data/tools"] {
        let options = ["--patch", "../../fix.diff", "--json", "--allow=all", "--pairs=2"];
        let mut gpuwhy = place.command(&options, &["mytool"]);
        gpuwhy.current_dir(repository.path("my app")).env("PATH", format!("{tools}:{path}")).env("PYTHONPATH", tools);
        let output = gpuwhy.output().unwrap();
        assert!(output.status.success(), "{tools}: {}", stderr(&output));
        assert_eq!(document(&output)["remedies"][0]["output_changed"], "0.0", "{tools}");
    }
    // A folder of which git ignores only the command, also where another one has its name.
    repository.write("bin/kept", "");
    repository.write(".git/info/exclude", "mytool\ntrue\n");
    for name in ["mytool", "true"] {
        let file = format!("bin/{name}");
        repository.write(&file, "#!/bin/sh\n");
        fs::set_permissions(repository.path(&file), PermissionsExt::from_mode(0o755)).unwrap();
        let mut gpuwhy = place.command(&["--patch", "../../fix.diff"], &[name]);
        let bin = repository.path("bin").display().to_string();
        let output = gpuwhy.current_dir(repository.path("my app")).env("PATH", format!("{bin}:{path}")).output();
        let (code, said) = refused(&output.unwrap());
        assert!(code == 2 && said.contains(&format!("{name}: git ignores it")), "{code} {said}");
    }
}

#[test]
fn folders_without_files_are_in_the_copies() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    for name in ["my app/results/first", "logs"] {
        fs::create_dir_all(repository.path(name)).unwrap();
    }
    let write = ["sh", "-c", "echo 1 > results/first/a && echo 2 > ../logs/b && echo x 1"];
    let tried = || document(&repository.tried(&place, FIX, &["--json"], &write))["remedies"][0]["output"].clone();
    assert_eq!(tried(), "equal");
    fs::remove_dir_all(repository.path(".git")).unwrap();
    let command = ["sh", "-c", "cd 'my app' && eval \"$0\"", write[2]];
    let mut gpuwhy = place.command(&["--patch", "../fix.diff", "--json", "--pairs=2"], &command);
    let found = document(&gpuwhy.current_dir(&repository.0).output().unwrap());
    assert_eq!(found["remedies"][0]["output"], "equal");
}

#[test]
fn trees_that_are_too_large_are_refused_before_they_are_copied() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    let diff = place.path().join("fix.diff");
    fs::write(&diff, FIX).unwrap();
    // Of which no block is written.
    let large = |name: &str, size: u64| fs::File::create(repository.path(name)).unwrap().set_len(size).unwrap();
    let said = |options: &[&str]| {
        let options = [&["--patch", diff.to_str().unwrap(), "--pairs=2"], options].concat();
        let output = place.command(&options, &["true"]).current_dir(&repository.0).output().unwrap();
        assert_eq!(fs::read_dir(place.path().join("tmp")).unwrap().count(), 0);
        (output.status.code(), stderr(&output))
    };
    let refused = |options: &[&str], words: &[&str]| {
        let (code, said) = said(options);
        assert!(code == Some(1) && words.iter().all(|part| said.contains(part)), "{words:?}: {code:?} {said}");
    };
    large("untracked.bin", 300 << 20);
    let words =
        ["1 or more files with 314.6 MB", "neither tracked nor ignored", "untracked.bin", ".gitignore", "--link"];
    refused(&[], &words);
    assert_eq!(said(&["--link", "untracked.bin"]).0, Some(0));
    repository.write(".gitignore", "data\nout.txt\nuntracked.bin\n");
    assert_eq!(said(&[]).0, Some(0));
    // What git tracks has no limit but the room.
    large("tracked.bin", 1 << 43);
    repository.git(&["add", "--intent-to-add", "tracked.bin"]);
    refused(&[], &["two copies of ", "take 17.59 TB", "are free", "TMPDIR"]);
    fs::remove_dir_all(repository.path(".git")).unwrap();
    refused(&["--link", "tracked.bin"], &["in no git repository", "314.6 MB", "`git init` there"]);
    assert_eq!(said(&["--link", "tracked.bin", "--link", "untracked.bin"]).0, Some(0));
}

#[test]
fn trees_of_all_kinds_are_copied_without_running_anything_of_git() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    let mark = place.path().join("ran");
    let run = format!("touch {}; cat", mark.display());
    repository.write(".gitattributes", "* filter=mine\n");
    for (name, value) in [("filter.mine.clean", &run), ("filter.mine.smudge", &run), ("core.fsmonitor", &run)] {
        repository.git(&["config", name, value]);
    }
    repository.write(".git/hooks/post-index-change", &format!("#!/bin/sh\n{run}\n"));
    fs::set_permissions(repository.path(".git/hooks/post-index-change"), PermissionsExt::from_mode(0o755)).unwrap();
    let inner = Repository(repository.path("module"));
    inner.write("part", "1\n");
    inner.git(&["init", "--quiet"]);
    fs::remove_file(repository.path(".gitignore")).unwrap();
    symlink("../my app/settings.py", repository.path("module/linked")).unwrap();
    let _ = fs::remove_file(&mark);
    let script = "cat ../module/part ../module/linked; [ -e ../.gitignore ] || echo none; [ -e ../.git ] || echo bare";
    let output = repository.tried(&place, FIX, &["--json", "--allow=all"], &["sh", "-c", script]);
    assert_eq!(document(&output)["remedies"][0]["output_changed"], "= 0.0");
    assert!(!mark.exists());
    repository.git(&["config", "--unset", "core.fsmonitor"]);

    // By a symbolic link, in another working tree of the repository, and without git.
    let work = repository.path("my app");
    let fix = place.path().join("fix.diff");
    let options = ["--patch", fix.to_str().unwrap(), "--json", "--pairs=2"];
    let outcome = |folder: &Path, logical: &Path| {
        let script = format!("{}/train.py", logical.display());
        let output = place.command(&options, &["python3", &script]).current_dir(folder).output().unwrap();
        document(&output)["remedies"][0]["gain"].as_f64().unwrap()
    };
    let link = place.path().join("link");
    symlink(&work, &link).unwrap();
    assert!((outcome(&work, &link) - 2.0).abs() < 1e-6);
    repository.git(&["worktree", "add", "--quiet", "../other"]);
    let other = place.path().join("other/my app");
    assert!((outcome(&other, &other) - 2.0).abs() < 1e-6);
    fs::remove_dir_all(repository.path(".git")).unwrap();
    fs::remove_dir_all(repository.path("module")).unwrap();
    assert!((outcome(&repository.0, &work) - 2.0).abs() < 1e-6);
    let bare = Repository(place.path().join("bare"));
    fs::create_dir(&bare.0).unwrap();
    bare.git(&["init", "--quiet", "--bare"]);
    let output = place.command(&["--patch", "../fix.diff"], &["true"]).current_dir(&bare.0).output().unwrap();
    assert!(refused(&output).1.contains("no working tree of its git repository"), "{output:?}");
}

#[test]
fn a_disk_that_is_full_and_a_signal_leave_nothing() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    fs::write(repository.path("large"), vec![0; 1 << 20]).unwrap();
    fs::write(place.path().join("fix.diff"), FIX).unwrap();
    let own = |script: &str| {
        let plain = place.command(&["--patch", "../../fix.diff"], &["sh", "-c", script]);
        // The jobs of a script ignore SIGINT.
        let mut shell = Command::new("env");
        shell.args(["--default-signal=INT", "sh"]);
        shell.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.current_dir(repository.path("my app")).args(["-c", "ulimit -f \"$0\"; exec \"$@\""]);
        shell
    };
    let left = || fs::read_dir(place.path().join("tmp")).unwrap().count();
    let arguments =
        ["try", "--patch", "../../fix.diff", "--", "sh", "-c", "sleep 1000 & echo $! > \"$MARK\"; sleep 1000"];
    let output = own("").args(["1", GPUWHY]).args(arguments).output().unwrap();
    let (code, said) = refused(&output);
    assert!(code == 1 && said.contains("cannot copy large to") && left() == 0, "{code} {said}");
    let mark = place.path().join("child");
    let mut gpuwhy = own("");
    gpuwhy.args(["unlimited", GPUWHY]).args(arguments).env("MARK", &mark).stdout(Stdio::null()).stderr(Stdio::null());
    let mut gpuwhy = gpuwhy.spawn().unwrap();
    let child = written(&mark);
    assert!(Command::new("kill").args(["-INT", &gpuwhy.id().to_string()]).status().unwrap().success());
    assert_eq!((gpuwhy.wait().unwrap().code(), left()), (Some(130), 0));
    while is_alive(&child) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_command_or_a_variable_is_measured_where_the_program_is() {
    let Some(place) = Place::new() else { return };
    let Some(repository) = Repository::new(&place) else { return };
    repository
        .write("my app/train.py", &TRAIN.replace("settings.work", "float(__import__('os').environ.get('WORK', .05))"));
    let tried = |options: &[&str]| {
        let mut gpuwhy = place.command(&[&["--json", "--pairs=2"], options].concat(), &["python3", "train.py"]);
        document(&gpuwhy.current_dir(repository.path("my app")).env_remove("WORK").output().unwrap())
    };
    let variable = tried(&["--env", "WORK=0.0"]);
    assert_eq!(outcomes(&variable), [("env WORK", "helps")]);
    assert_eq!(variable["remedies"][0]["keep"], "run with WORK=0.0");
    near(&variable["remedies"][0]["gain"], 2.0);
    let other = tried(&["--against", "WORK=0.0 python3 train.py"]);
    assert_eq!(outcomes(&other), [("against", "helps")]);
    let both = tried(&["--against", "python3 train.py", "--env", "WORK=0.05"]);
    assert_eq!(outcomes(&both), [("against, env WORK", "no_difference")]);
    // Another program has no such steps; how long both take is chance.
    repository
        .write("my app/train.py", &TRAIN.replace("range(5000)", "range(120)").replace("loss {2.5 - step / 10000}", ""));
    let other = tried(&["--against", "printf 'step 0 \\n'"]);
    assert_eq!((&other["unit"], &other["remedies"][0]["basis"]), (&"optimizer".into(), &"run".into()), "{other}");
    let mut same = place.command(&["--json", "--env", "WORK=1"], &["true"]);
    assert_eq!(outcomes(&document(&same.env("WORK", "1").output().unwrap())), [("env WORK", "not_applicable")]);
}
