//! Parser for history lines.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use profiler_core::leaf::Cause;
use serde::Deserialize;

use super::{DeviceRun, MOST_DURATIONS, Run, VERSION};

/// Reason to skip a line.
#[derive(Debug)]
pub enum BadLine {
    /// Its version is unknown.
    Version(u64),
    /// It is not a history line, or is truncated.
    Malformed(String),
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(found) => write!(f, "version {found}, known is {VERSION}"),
            Self::Malformed(why) => write!(f, "no line of a history: {why}"),
        }
    }
}

impl Error for BadLine {}

#[derive(Deserialize)]
struct Line {
    gpuwhy_history: u64,
    start_ns: u64,
    observed_ns: u64,
    host: String,
    process_id: u32,
    world_size: Option<u32>,
    version: String,
    driver: String,
    mode: String,
    command: Vec<String>,
    trace: Option<String>,
    // The aliases are names in lines of earlier builds.
    #[serde(alias = "verdict")]
    bottleneck: String,
    #[serde(alias = "verdict_share")]
    bottleneck_share: f64,
    executions: u64,
    kernels: Vec<(u64, u64)>,
    devices: Vec<DeviceLine>,
}

#[derive(Deserialize)]
struct DeviceLine {
    name: String,
    step_ns: Option<u64>,
    steps: u64,
    operations: u64,
    causes_ns: BTreeMap<String, u64>,
    durations_ns: Vec<u64>,
}

impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let line = Line::deserialize(deserializer)?;
        if line.gpuwhy_history != VERSION {
            return Err(serde::de::Error::custom(BadLine::Version(line.gpuwhy_history)));
        }
        Ok(Self {
            start_ns: line.start_ns,
            observed_ns: line.observed_ns,
            host: line.host,
            process_id: line.process_id,
            world_size: line.world_size,
            version: line.version,
            driver: line.driver,
            mode: line.mode,
            command: line.command,
            trace: line.trace,
            bottleneck: line.bottleneck,
            bottleneck_share: line.bottleneck_share,
            executions: line.executions,
            kernels: line.kernels,
            devices: line.devices.into_iter().map(DeviceRun::from).collect(),
        })
    }
}

impl From<DeviceLine> for DeviceRun {
    fn from(line: DeviceLine) -> Self {
        // Unknown causes of a later version are ignored.
        let known = |name: &str| Cause::ALL.into_iter().find(|cause| cause.name() == name);
        let mut durations_ns = line.durations_ns;
        durations_ns.truncate(MOST_DURATIONS);
        Self {
            name: line.name,
            step_ns: line.step_ns,
            steps: line.steps,
            operations: line.operations,
            causes: line.causes_ns.iter().filter_map(|(name, &ns)| Some((known(name)?, ns))).collect(),
            durations_ns,
        }
    }
}
