//! Options of `gpuwhy completions`, which prints shell completions, and for packages writes them with the manual pages;
//! all from the same definition as the help.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate, generate_to};
use clap_mangen::Man;

use super::Cli;

/// Exit code when a file cannot be written.
pub const FAILED: u8 = 1;
const NAME: &str = "gpuwhy";

pub(super) const COMPLETIONS_HELP: &str = "\
The Debian package has installed them. Open a new shell after one of the examples.

EXIT CODES:
  0  printed
  1  the output could not be written

EXAMPLES:
  gpuwhy completions bash > ~/.local/share/bash-completion/completions/gpuwhy
  gpuwhy completions zsh > ~/.zfunc/_gpuwhy          with ~/.zfunc in fpath
  gpuwhy completions fish > ~/.config/fish/completions/gpuwhy.fish";

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(required_unless_present = "packages")]
    shell: Option<Shell>,
    /// Write manual pages to man1, and completions, in this folder
    #[arg(long, value_name = "DIR", hide = true, conflicts_with = "shell")]
    packages: Option<PathBuf>,
}

/// Prints the completions of a shell, or writes the files of packages. Fails when the output cannot be written.
pub fn run(args: &CompletionsArgs) -> Result<u8> {
    match (args.shell, &args.packages) {
        (Some(shell), _) => {
            let mut text = Vec::new();
            generate(shell, &mut Cli::command(), NAME, &mut text);
            io::stdout().write_all(&text)?;
        }
        (None, Some(folder)) => {
            write(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
        }
        (None, None) => unreachable!("clap requires one"),
    }
    Ok(0)
}

/// Writes `man1/gpuwhy.1`, a page for each subcommand, and `completions/gpuwhy.bash`, `_gpuwhy` (zsh) and
/// `gpuwhy.fish`.
fn write(folder: &Path) -> io::Result<()> {
    let pages = folder.join("man1");
    let completions = folder.join("completions");
    [&pages, &completions].into_iter().try_for_each(fs::create_dir_all)?;
    let mut command = Cli::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, NAME, &completions)?;
    }
    command.build();
    page(&command, &pages)?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        page(verb, &pages)?;
    }
    Ok(())
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
