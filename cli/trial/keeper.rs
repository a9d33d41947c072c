//! Ends the program and removes its folder if gpuwhy itself is killed, as by a second Ctrl-C.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of its input, which is that of this process. A line is the process group that runs, or empty.
const SCRIPT: &str = "trap '' HUP INT TERM
while read -r group; do last=$group; done
[ -z \"$last\" ] || kill -s KILL -- \"-$last\" 2>/dev/null
for again in 1 2 3 4 5; do rm -rf -- \"$0\" 2>/dev/null && break; sleep 0.2; done";

/// A shell beside this process.
#[derive(Debug)]
pub struct Keeper(Option<Child>);

impl Keeper {
    /// Starts it. Without a shell there is none, and a kill leaves the folder.
    pub fn of(folder: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(shell.current_dir("/").process_group(0).spawn().ok())
    }

    /// Says which process group runs, if any.
    pub fn runs(&mut self, group: Option<u32>) {
        let input = self.0.as_mut().and_then(|shell| shell.stdin.as_mut());
        // It may have been killed.
        let _ = input.map(|input| writeln!(input, "{}", group.map_or_else(String::new, |group| group.to_string())));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(mut shell) = self.0.take() {
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }
}
