//! Options of `gpuwhy mcp`.

use std::path::PathBuf;

use clap::Args;

pub(super) const MCP_HELP: &str = "\
Speaks the Model Context Protocol on stdin and stdout, so that a coding agent or an editor, which starts it, can ask about
traces and running programs. Paths of tools are relative to FOLDER, and nothing outside of it is read. Nothing is written
or changed; with --allow-control the tools start_capture and stop_capture are there too, with --allow-run the tool try, which
runs any command in FOLDER. docs/guide/agents.md shows how to add it to an agent. --skill prints a skill for agents that
run commands: record, read, change, measure.

EXIT CODES:
  0  the client closed the connection
  1  FOLDER cannot be read, or stdin failed

EXAMPLES:
  gpuwhy mcp
  gpuwhy mcp runs/
  gpuwhy mcp --skill >.claude/skills/gpuwhy/SKILL.md
  claude mcp add gpuwhy -- gpuwhy mcp";

#[derive(Args, Debug)]
pub struct McpArgs {
    /// Folder of traces and sources that tools may read
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub folder: PathBuf,
    /// Let tools start and stop captures in running programs
    #[arg(long)]
    pub allow_control: bool,
    /// Let tools run commands in FOLDER, to measure changes
    #[arg(long)]
    pub allow_run: bool,
    /// Print a skill for coding agents (SKILL.md)
    #[arg(long)]
    pub skill: bool,
    /// Answer one call of another server and end with it
    #[arg(long, hide = true)]
    pub worker: bool,
}
