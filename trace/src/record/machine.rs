//! Data that is constant during a run: devices and their links, contexts, names of threads.

use super::{ContextId, DeviceId, NameId, StreamId, ThreadId};

/// A device as described by the tracing library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Ordinal in this process.
    pub id: DeviceId,
    /// Product name, for example `NVIDIA H200`.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: [u32; 2],
    /// Number of SMs.
    pub multiprocessors: u32,
    /// Maximum resident threads of an SM (warps times 32).
    pub threads_per_multiprocessor: u32,
    /// Maximum resident blocks of an SM.
    pub blocks_per_multiprocessor: u32,
    /// 32-bit registers of an SM.
    pub registers_per_multiprocessor: u32,
    /// Shared memory of an SM, bytes.
    pub shared_bytes_per_multiprocessor: u32,
    /// Core clock, kHz.
    pub core_clock_khz: u32,
    /// Global memory, bytes.
    pub memory_bytes: u64,
    /// Global memory bandwidth, kB/s, as reported by the tracing library.
    pub memory_bandwidth_kbps: u64,
    /// UUID.
    pub uuid: [u8; 16],
}

impl Device {
    /// The UUID in the notation of NVML and `nvidia-smi -L`, such as
    /// `GPU-00010203-0405-0607-0809-0a0b0c0d0e0f`; `None` if unknown.
    pub fn uuid_text(&self) -> Option<String> {
        let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let parts = [&self.uuid[..4], &self.uuid[4..6], &self.uuid[6..8], &self.uuid[8..10], &self.uuid[10..]];
        self.uuid.iter().any(|&byte| byte != 0).then(|| format!("GPU-{}", parts.map(hex).join("-")))
    }
}

/// Link of a device to the host: PCI Express as described by the tracing library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieLink {
    /// Ordinal of the device.
    pub device: DeviceId,
    /// PCI Express generation.
    pub generation: u32,
    /// Transfers per lane, millions per second: 32000 for generation 5.
    pub megatransfers: u32,
    /// Number of lanes.
    pub lanes: u32,
}

impl PcieLink {
    /// Raw bandwidth in one direction, bytes per second, after line coding but before protocol overhead. A
    /// transfer is one bit on each lane; the line code is 8b/10b up to generation 2, 128b/130b up to 5, and
    /// 242 of 256 bytes of a flit from 6 on (PCI Express Base Specification). Large copies reach 80 to 90 %
    /// of this bandwidth: 55.5 of 63.0 GB/s from pinned memory to an H200 (generation 5, 16 lanes).
    pub fn bytes_per_second(&self) -> f64 {
        let code = match self.generation {
            0..=2 => 8.0 / 10.0,
            3..=5 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        f64::from(self.megatransfers) * 1e6 * f64::from(self.lanes) / 8.0 * code
    }

    /// Shortest realistic time of copying `bytes` from or to pinned memory over the link, nanoseconds: at 90
    /// % of [`bytes_per_second`](Self::bytes_per_second), the upper end of the usual range. `None` if the
    /// link is not described.
    pub fn shortest_copy_nanos(&self, bytes: u64) -> Option<u64> {
        let rate = 0.9 * self.bytes_per_second();
        (rate > 0.0).then(|| (bytes as f64 / rate * 1e9) as u64)
    }
}

/// A context as described by the tracing library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Id in this process.
    pub id: ContextId,
    /// Device of the context.
    pub device: DeviceId,
    /// Null stream of the context.
    pub null_stream: StreamId,
}

/// Name of a thread: given by the program with NVTX, or the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ThreadName {
    /// The thread.
    pub thread: ThreadId,
    /// Its name.
    pub name: NameId,
}

#[cfg(test)]
mod tests {
    use super::PcieLink;

    #[test]
    fn links_carry_what_their_generation_says() {
        let gigabytes = |generation, megatransfers, lanes| {
            let link = PcieLink { generation, megatransfers, lanes, ..PcieLink::default() };
            (link.bytes_per_second() / 1e8).round() / 10.0
        };
        let lanes = 16;
        let all = [(2, 5_000), (3, 8_000), (4, 16_000), (5, 32_000), (6, 64_000)];
        let found = all.map(|(generation, megatransfers)| gigabytes(generation, megatransfers, lanes));
        assert_eq!(found, [8.0, 15.8, 31.5, 63.0, 121.0], "NVIDIA's and PCI-SIG's own figures");
        assert_eq!(gigabytes(4, 16_000, 8), 15.8);
    }
}
