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

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Result;

use self::context::{Context, Permission};
use self::folder::Folder;
use crate::args::mcp::McpArgs;
use crate::message;

/// How a coding agent uses the commands; also in the wheel.
const SKILL: &str = include_str!("SKILL.md");

/// Exit code when the folder cannot be read, or stdin fails.
pub const FAILED: u8 = 1;

/// Serves until stdin ends, and returns the exit code. Fails when the folder cannot be read, or stdin or stdout fails.
pub fn run(args: &McpArgs) -> Result<u8> {
    if args.skill {
        write!(io::stdout(), "{SKILL}")?;
        return Ok(0);
    }
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::SKILL;
    use crate::args::Cli;

    #[test]
    fn each_command_of_the_skill_is_one() {
        let indented = SKILL.lines().filter_map(|line| line.strip_prefix("    "));
        let inline = SKILL.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let commands: Vec<_> = indented.chain(inline).filter(|text| text.starts_with("gpuwhy ")).collect();
        assert!(commands.len() > 10, "{commands:?}");
        for command in commands {
            let command = command.split("  #").next().unwrap_or(command);
            let quoted = command.split('"').enumerate();
            let words = quoted.flat_map(|(index, part)| match index % 2 {
                0 => part.split_whitespace().collect(),
                _ => vec![part],
            });
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{command}: {error}");
            }
        }
    }

    #[test]
    fn each_tool_of_the_skill_is_one() {
        let tools: Vec<_> = super::tools::TOOLS.iter().map(|tool| tool.name).collect();
        let line = SKILL.lines().find(|line| line.starts_with("With the MCP server")).unwrap();
        let named: Vec<_> = line.split('`').skip(1).step_by(2).skip(1).collect();
        assert!(named.len() > 4, "{named:?}");
        for name in named {
            assert!(tools.contains(&name), "{name} is none of {tools:?}");
        }
    }
}
