//! Native stacks of a C program without frame pointers, whose functions and waits are known.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use host_sampler::memory::Memory;
use host_sampler::native::{Cut, End, Native, NativeStack, Registers, StackCopy};
use host_sampler::process::Process;
use host_sampler::thread::Thread;

/// The program and its plugin, in a separate folder.
struct Waits {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    folder: PathBuf,
}

impl Waits {
    fn start(name: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("gpuwhy-native-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = |name| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live").join(name);
        let build = |options: &[&str], from, to: &str| {
            let mut cc = Command::new("cc");
            cc.args(["-O2", "-fomit-frame-pointer", "-Wl,--build-id"]).args(options).arg("-o").arg(folder.join(to));
            cc.arg(source(from)).args(["-pthread", "-ldl"]).status().is_ok_and(|status| status.success())
        };
        let plugin = ["-shared", "-fPIC", "-fvisibility=hidden", "-s"];
        if !cfg!(target_arch = "x86_64") || !build(&plugin, "plugin.c", "libplugin.so") {
            println!("SKIPPED: no C compiler for x86-64");
            return None;
        }
        assert!(build(&[], "waits.c", "waits"));
        let mut child = Command::new(folder.join("waits"))
            .arg(folder.join("libplugin.so"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, output, folder })
    }

    fn process(&self) -> Process {
        Process::with_id(self.child.id())
    }

    /// Thread ids by description, read up to the next full stop.
    fn threads(&mut self) -> BTreeMap<String, u32> {
        let mut threads = BTreeMap::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the program has ended");
            match line.trim_end().split_once(' ') {
                Some((name, id)) => threads.insert(name.to_owned(), id.parse().unwrap()),
                None => return threads,
            };
        }
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// The stack of a thread once it waits.
    fn stack(&self, native: &mut Native, thread: u32) -> NativeStack {
        let files = Thread::open(&self.process(), thread).unwrap();
        let deadline = Instant::now() + std::time::Duration::from_secs(60);
        loop {
            assert!(Instant::now() < deadline);
            let Some((sp, pc)) = files.place() else { continue };
            let stack = native.waiting(sp, pc, true);
            if files.place() == Some((sp, pc)) {
                return stack;
            }
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn names(stack: &NativeStack) -> Vec<&str> {
    stack.functions.iter().map(|function| &*function.name).collect()
}

/// The names from `first` on.
fn from<'a>(names: &'a [&'a str], first: &str) -> &'a [&'a str] {
    let at = names.iter().position(|name| *name == first);
    at.map_or_else(|| panic!("no {first} in {names:?}"), |at| &names[at..])
}

#[test]
fn threads_that_wait_are_seen_below_the_functions_that_they_called() {
    let Some(mut program) = Waits::start("waits") else { return };
    let threads = program.threads();
    let mut native = Native::new(&program.process()).unwrap();
    for (wait, main) in [("in_futex", "futex_thread"), ("in_sleep", "sleep_thread")] {
        let stack = program.stack(&mut native, threads[wait]);
        let names = names(&stack);
        println!("{names:?} {:?}", stack.end);
        assert_eq!(from(&names, wait)[..5], [wait, "inner", "middle", "outer", main]);
        assert_eq!(stack.end, End::Outermost);
    }
    let stack = program.stack(&mut native, threads["in_alloca"]);
    println!("{:?} {:?}", names(&stack), stack.end);
    assert_eq!(from(&names(&stack), "in_alloca"), ["in_alloca", "inner", "with_alloca"]);
    assert_eq!(stack.end, End::Cut(Cut::UnknownRegister), "nothing is guessed");
}

#[test]
fn a_library_without_names_is_reported_by_its_build_id_and_unloaded_without_harm() {
    let Some(mut program) = Waits::start("plugin") else { return };
    let threads = program.threads();
    let mut native = Native::new(&program.process()).unwrap();
    let stack = program.stack(&mut native, threads["in_plugin"]);
    let names_before = names(&stack);
    println!("{names_before:?}");
    let [_, hidden, entry, main, ..] = from(&names_before, "in_read") else { panic!("{names_before:?}") };
    assert!(hidden.starts_with("libplugin.so+0x"), "{hidden}");
    assert_eq!((*entry, *main), ("plugin_entry", "plugin_thread"));
    let file = &stack.functions.iter().find(|function| &*function.name == *hidden).unwrap().file;
    let id = file.strip_prefix("libplugin.so build-id:").unwrap();
    assert!(id.len() >= 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{file}");

    let plugin = host_sampler::maps::executable(&program.process()).unwrap();
    let plugin = plugin.into_iter().find(|code| code.path.ends_with("libplugin.so")).unwrap();
    program.go_on();
    let threads = program.threads();
    let mapped = host_sampler::maps::executable(&program.process()).unwrap();
    assert!(!mapped.iter().any(|code| code.path.ends_with("libplugin.so")));
    // The module list was read before the plugin was unloaded.
    let mut registers = Registers::of_waiting(0x1000, plugin.begin + 0x80);
    registers.set(6, Some(0x1000));
    let stack = native.copied(registers, StackCopy { begin: 0x1000, bytes: &[0; 64] }, false);
    assert_eq!(stack.end, End::Cut(Cut::NoRules));
    for thread in ["in_read", "back"] {
        let stack = program.stack(&mut native, threads[thread]);
        assert!(stack.end == End::Outermost && names(&stack).contains(&"outer"), "{:?}", names(&stack));
    }
}

/// Prints the time per stack: `cargo test -p host-sampler --test live native::the_same -- --nocapture`.
#[test]
fn the_same_stack_is_found_again_from_what_is_kept() {
    let Some(mut program) = Waits::start("cost") else { return };
    let threads = program.threads();
    let mut native = Native::new(&program.process()).unwrap();
    let stack = program.stack(&mut native, threads["in_futex"]);
    let (sp, pc) = Thread::open(&program.process(), threads["in_futex"]).unwrap().place().unwrap();
    let cost = |native: &mut Native, look: &mut dyn FnMut(&mut Native) -> NativeStack| {
        let begin = Instant::now();
        for _ in 0..1000 {
            assert_eq!(look(native), stack);
        }
        begin.elapsed() / 1000
    };
    let mut new = Native::new(&program.process()).unwrap();
    let begin = Instant::now();
    assert_eq!(new.waiting(sp, pc, true), stack);
    let first = begin.elapsed();
    let waiting = cost(&mut native, &mut |native| native.waiting(sp, pc, true));
    let mut bytes = vec![0; 16 << 10];
    let read = Memory::open(&program.process()).unwrap().read_some(sp, &mut bytes);
    let copy = StackCopy { begin: sp, bytes: &bytes[..read] };
    let copied = cost(&mut native, &mut |native| native.copied(Registers::of_waiting(sp, pc), copy, true));
    let frames = stack.functions.len();
    println!("{frames} frames: {first:?} with nothing known, then {waiting:?}, of a copy {copied:?}");
}
