//! Options of `gpuwhy exporter`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::interval;

pub(super) const EXPORTER_HELP: &str = "\
Serves metrics of every process of this user that runs with gpuwhy on this node: device time by cause, steps, loss,
cost. One exporter on a node is enough. It polls the processes through their control sockets; they open no port. Numbers
of a process that has ended are kept for five minutes.

--textfile works without a port; name --listen too to have both.

EXIT CODES:
  0  it was interrupted; with --once: the metrics were printed
  1  the address is unavailable, or the folder of --textfile cannot be written

EXAMPLES:
  gpuwhy exporter
  curl http://127.0.0.1:9477/metrics
  gpuwhy exporter --listen 0.0.0.0:9477
  gpuwhy exporter --textfile /var/lib/prometheus/node-exporter
  gpuwhy exporter --once";

/// Where it listens unless told otherwise.
const LISTEN: &str = "127.0.0.1:9477";

#[derive(Args, Debug)]
pub struct ExporterArgs {
    /// Serve the metrics here; port 0 takes a free one [default: 127.0.0.1:9477]
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once")]
    pub listen: Option<SocketAddr>,
    /// Write gpuwhy.prom into this folder, for node_exporter
    #[arg(long, value_name = "DIR", conflicts_with = "once")]
    pub textfile: Option<PathBuf>,
    /// Polling interval for --textfile, from 1s to 1h
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = interval)]
    pub interval: Duration,
    /// Divide device time by leaf too: 27 more metrics for each GPU
    #[arg(long)]
    pub leaves: bool,
    /// Print the metrics once
    #[arg(long)]
    pub once: bool,
}

impl ExporterArgs {
    /// Address of the HTTP server: the given one, or the default if there is no other output.
    pub fn address(&self) -> Option<SocketAddr> {
        let goes_elsewhere = self.once || self.textfile.is_some();
        self.listen.or_else(|| if goes_elsewhere { None } else { LISTEN.parse().ok() })
    }
}
