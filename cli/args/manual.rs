//! Manual pages and shell completions, from the same definition as the help.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

use super::Cli;

/// Exit code when a file cannot be written.
pub const FAILED: u8 = 1;
/// What packages are built with; no verb for users.
pub(super) const SUBCOMMAND: &str = "manual-pages";

#[derive(Args)]
pub struct ManualArgs {
    /// The folder for man1 and completions
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes `man1/gpuwhy.1`, a page for each subcommand, and `completions/gpuwhy.bash`, `_gpuwhy` (zsh) and
/// `gpuwhy.fish`. Fails when a file cannot be written.
pub fn write(args: &ManualArgs) -> Result<u8> {
    let failed = || format!("cannot write to {}", args.folder.display());
    let pages = args.folder.join("man1");
    let completions = args.folder.join("completions");
    [&pages, &completions].into_iter().try_for_each(fs::create_dir_all).with_context(failed)?;
    let mut command = Cli::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "gpuwhy", &completions).with_context(failed)?;
    }
    command.build();
    page(&command, &pages).with_context(failed)?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        page(verb, &pages).with_context(failed)?;
    }
    Ok(0)
}

/// Writes a page. The part after the options keeps its line breaks, because it has tables and examples.
fn page(command: &clap::Command, folder: &Path) -> io::Result<()> {
    let rest = command.get_after_help().map(ToString::to_string);
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).replace(' ', "-");
    let without = command.clone().after_help("");
    let page = Man::new(without)
        .title(name.to_uppercase())
        .manual("gpuwhy")
        .source(concat!("gpuwhy ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(rest) = rest {
        text.extend_from_slice(b".SH NOTES\n.nf\n");
        for line in rest.lines() {
            // roff treats a line that starts this way as an instruction.
            let start = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            text.extend_from_slice(format!("{start}{}\n", line.replace('\\', "\\e").replace('-', "\\-")).as_bytes());
        }
        text.extend_from_slice(b".fi\n");
    }
    fs::write(folder.join(format!("{name}.1")), text)
}
