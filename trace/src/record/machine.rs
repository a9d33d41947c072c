//! What does not change during a run: devices, how they are attached, contexts, names of threads.

use super::{ContextId, DeviceId, NameId, StreamId, ThreadId};

/// A device as the tracing library describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Ordinal in this process.
    pub id: DeviceId,
    /// Product name, for example `NVIDIA H200`.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: [u32; 2],
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Resident threads that fit on a multiprocessor (warps times 32).
    pub threads_per_multiprocessor: u32,
    /// Resident blocks that fit on a multiprocessor.
    pub blocks_per_multiprocessor: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Shared memory of a multiprocessor, bytes.
    pub shared_bytes_per_multiprocessor: u32,
    /// Core clock, kHz.
    pub core_clock_khz: u32,
    /// Global memory, bytes.
    pub memory_bytes: u64,
    /// Global memory bandwidth, kB/s as the tracing library gives it.
    pub memory_bandwidth_kbps: u64,
    /// UUID.
    pub uuid: [u8; 16],
}

impl Device {
    /// The UUID as NVML and `nvidia-smi -L` write it, such as `GPU-00010203-0405-0607-0809-0a0b0c0d0e0f`; `None` when
    /// it is unknown.
    pub fn uuid_text(&self) -> Option<String> {
        let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let parts = [&self.uuid[..4], &self.uuid[4..6], &self.uuid[6..8], &self.uuid[8..10], &self.uuid[10..]];
        self.uuid.iter().any(|&byte| byte != 0).then(|| format!("GPU-{}", parts.map(hex).join("-")))
    }
}

/// How a device is attached to the host: PCI Express as the tracing library describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieLink {
    /// Ordinal of the device.
    pub device: DeviceId,
    /// Generation.
    pub generation: u32,
    /// Transfers on a lane, millions a second: 32000 for generation 5.
    pub megatransfers: u32,
    /// Lanes.
    pub lanes: u32,
}

impl PcieLink {
    /// What the link carries in one direction before any protocol, bytes a second: a transfer is a bit on each lane,
    /// of which the line code takes its part (8b/10b up to generation 2, 128b/130b up to 5, 242 of 256 bytes of a flit
    /// from 6 on; PCI Express Base Specification). Large copies reach 80 to 90 % of it: 55.5 of 63.0 GB/s from
    /// page-locked memory to an H200 (generation 5, 16 lanes).
    pub fn bytes_per_second(&self) -> f64 {
        let code = match self.generation {
            0..=2 => 8.0 / 10.0,
            3..=5 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        f64::from(self.megatransfers) * 1e6 * f64::from(self.lanes) / 8.0 * code
    }

    /// The shortest time in which a copy of `bytes` from or to page-locked memory can be hoped to go over the link,
    /// nanoseconds: at 90 % of [`bytes_per_second`](Self::bytes_per_second), the upper end of what is usual. `None`
    /// when the link is not described.
    pub fn shortest_copy_nanos(&self, bytes: u64) -> Option<u64> {
        let rate = 0.9 * self.bytes_per_second();
        (rate > 0.0).then(|| (bytes as f64 / rate * 1e9) as u64)
    }
}

/// A context as the tracing library describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Id in this process.
    pub id: ContextId,
    /// Device it is on.
    pub device: DeviceId,
    /// Its null stream.
    pub null_stream: StreamId,
}

/// The name that a program gave to one of its threads.
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
