//! `gpuwhy mcp`: a server of the Model Context Protocol on stdin and stdout.
//!
//! Reading order: `protocol` (messages), `server` (threads, cancellation), `tools` (what a client may call),
//! `arguments` and `answer` (what goes in and out of a tool, bounded), `context` (what tools share), `folder` (which
//! files they may read), `worker` (a process for one call). The tools use the code of the other subcommands.
//!
//! The official SDK, `rmcp` 3.11, is not used: a server of two tools with it is 3.2 MB larger than one with
//! `serde_json`, and has 37 crates more than the command, among them an event loop and sockets (tokio, socket2), which
//! `deny.toml` keeps out. That is much for five methods on one pair of pipes.

mod answer;
mod arguments;
mod context;
mod folder;
mod protocol;
mod server;
mod tools;
mod worker;

use std::io::{self, IsTerminal as _};

use anyhow::Result;

use self::context::{Context, Permission};
use self::folder::Folder;
use crate::args::mcp::McpArgs;
use crate::message;

/// Exit code when the folder cannot be read, or stdin fails.
pub const FAILED: u8 = 1;

/// Serves until stdin ends, and returns the exit code. Fails when the folder cannot be read, or stdin or stdout fails.
pub fn run(args: &McpArgs) -> Result<u8> {
    let folder = Folder::open(&args.folder)?;
    if io::stdin().is_terminal() {
        message::note("waiting for a client's messages on stdin; docs/guide/agents.md shows how to add it to an agent");
    }
    // Texts that the terminal's subcommands color are for a program here.
    console::set_colors_enabled(false);
    let allowed = [(args.allow_control, Permission::Control), (args.allow_run, Permission::Run)];
    let allowed = allowed.into_iter().filter(|(is_given, _)| *is_given).map(|(_, permission)| permission);
    let mut context = Context::new(folder, allowed.collect());
    if args.worker {
        worker::limit_memory()?;
        context.is_worker = true;
        server::serve(worker::UntilServerEnds(io::stdin()), io::stdout(), context)?;
    } else {
        server::serve(io::stdin(), io::stdout(), context)?;
    }
    Ok(0)
}
