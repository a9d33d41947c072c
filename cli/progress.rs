//! Progress bar on stderr while a trace is read, only on a terminal. Also cancels the work after a signal.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use gpuwhy::Report;
use gpuwhy_import::{Input, OpenError, Progress, Request};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{interrupt, message, terminal};

/// Makes the report of a trace file, with the bar while reading.
pub fn opened(file: &Path, request: Request) -> Result<Report, OpenError> {
    report(Input::open(file)?, request)
}

/// As [`opened`], for an open file.
pub fn report(input: Input, request: Request) -> Result<Report, OpenError> {
    shown(|progress| input.report(request, progress))
}

/// Runs `work`, which reports its progress, and removes the bar afterwards.
pub fn shown<T>(work: impl FnOnce(&mut Progress<'_>) -> T) -> T {
    if !io::stderr().is_terminal() || message::is_quiet() {
        return work(&mut |_, _| interrupt::state());
    }
    let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let style =
        if terminal::shows_unicode(|name| std::env::var(name).ok()) { style } else { style.progress_chars("#.") };
    let bar = ProgressBar::no_length().with_style(style);
    let outcome = work(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        interrupt::state()
    });
    bar.finish_and_clear();
    outcome
}
