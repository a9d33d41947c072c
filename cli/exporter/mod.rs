//! `gpuwhy exporter`: metrics of this node's programs for Prometheus.
//!
//! Reading order: `numbers` (the metrics of a process), `node` (the processes over time),
//! `unreachable` (those that cannot be asked), `families` (the
//! exported metrics), `text` (the page); then the outputs: `server` (scrapes) and the text file, here.

mod families;
mod node;
mod numbers;
mod server;
mod text;
mod unreachable;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;

use self::node::Node;
use self::server::Server;
use crate::args::exporter::ExporterArgs;
use crate::{interrupt, message};

/// Exit code when the address is unavailable, or the first write of the file fails.
pub const FAILED: u8 = 1;
/// Minimum interval between queries of the processes, independent of the number of clients.
const FASTEST: Duration = Duration::from_secs(1);
/// Interval between checks for Ctrl-C.
const TICK: Duration = Duration::from_millis(100);
/// Interval between scans for processes that have ended.
const GLANCE: Duration = Duration::from_secs(1);
/// File for node_exporter.
const TEXTFILE: &str = "gpuwhy.prom";

/// State shared by the threads.
struct Exporter {
    node: Mutex<Node>,
    /// Most recent page, with the time it was made.
    page: Mutex<Option<(Instant, String)>>,
    leaves: bool,
}

impl Exporter {
    /// Text of the metrics. Queries the processes unless the last page is recent.
    fn page(&self) -> String {
        let mut page = self.page.lock();
        if let Some((made, text)) = page.as_ref().filter(|(made, _)| made.elapsed() < FASTEST) {
            tracing::debug!(age = ?made.elapsed(), "the same page again");
            return text.clone();
        }
        let mut node = self.node.lock();
        node.look();
        let text = text::text(node.processes(), &node.summary(), self.leaves);
        *page = Some((Instant::now(), text.clone()));
        text
    }
}

/// Serves metrics until interrupted and returns the exit code. Fails when the address is unavailable, or the
/// first write of the file fails.
pub fn run(args: &ExporterArgs) -> Result<u8> {
    let node = Mutex::new(Node::new(!args.once));
    let exporter = Arc::new(Exporter { node, page: Mutex::default(), leaves: args.leaves });
    if args.once {
        io::stdout().write_all(exporter.page().as_bytes())?;
        return Ok(0);
    }
    if let Some(address) = args.address() {
        let server = Server::open(address).with_context(|| format!("cannot listen on {address}"))?;
        let address = server.address()?;
        message::note(&format!("metrics are at http://{address}{}", server::PATH));
        if !address.ip().is_loopback() {
            message::say("this address can be reached from other machines, and every client can read the metrics");
        }
        let page: Arc<dyn Fn() -> String + Send + Sync> = {
            let exporter = Arc::clone(&exporter);
            Arc::new(move || exporter.page())
        };
        thread::spawn(move || server.run(&page));
    }
    if let Some(folder) = &args.textfile {
        // On the first write, a folder that is not writable is a usage error.
        write_textfile(folder, &exporter.page())?;
    } else {
        // From here on, processes that end save their last numbers.
        exporter.node.lock().scan();
    }
    interrupt::watch()?;
    let (mut asked, mut glanced) = (Instant::now(), Instant::now());
    let mut complained = false;
    while interrupt::state().is_continue() {
        thread::sleep(TICK);
        if glanced.elapsed() >= GLANCE {
            glanced = Instant::now();
            exporter.node.lock().scan();
        }
        if let Some(folder) = &args.textfile
            && asked.elapsed() >= args.interval
        {
            asked = Instant::now();
            let written = write_textfile(folder, &exporter.page());
            if let Err(error) = &written
                && !complained
            {
                message::say(&format!("{error:#}; it is tried again"));
            }
            complained = written.is_err();
        }
    }
    exporter.node.lock().withdraw();
    Ok(0)
}

/// Writes the file atomically: node_exporter may read it at any time.
fn write_textfile(folder: &Path, text: &str) -> Result<()> {
    let place = folder.join(TEXTFILE);
    let complaint = || format!("{} cannot be written", place.display());
    // node_exporter reads only `*.prom`.
    let mut unfinished = tempfile::Builder::new().prefix(".gpuwhy").tempfile_in(folder).with_context(complaint)?;
    unfinished.write_all(text.as_bytes()).with_context(complaint)?;
    // node_exporter runs as another user. Any local user may read what any client of a scrape could read.
    use std::os::unix::fs::PermissionsExt;
    unfinished.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).with_context(complaint)?;
    unfinished.persist(&place).with_context(complaint)?;
    Ok(())
}

#[cfg(test)]
mod tests;
