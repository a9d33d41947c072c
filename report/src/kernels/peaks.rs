//! Peak rates of a device, for its rooflines.
//!
//! Sources: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions" for FP32; NVIDIA's
//! architecture white papers for the tensor pipes (dense operations of a multiprocessor per cycle: a
//! multiply-add counts as two). Consumer GPUs of capability 8.6 and 8.9 halve the tensor rate with FP32
//! accumulation, which the records do not show; their rooflines are those of the professional parts. Unlisted
//! capabilities have no compute rooflines.

use gpuwhy_trace::record::Device;

use super::DataType;

/// Operations per multiprocessor and cycle.
struct UnitRates {
    capability: [u32; 2],
    fp32: u32,
    /// BF16 and FP16. TF32 has half this rate, FP8 (from 8.9 on) and INT8 have twice this rate.
    tensor_half: u32,
    tensor_fp64: u32,
}

const fn row(capability: [u32; 2], fp32: u32, tensor_half: u32, tensor_fp64: u32) -> UnitRates {
    UnitRates { capability, fp32, tensor_half, tensor_fp64 }
}

const TABLE: [UnitRates; 5] = [
    row([8, 0], 128, 2_048, 128),
    row([8, 6], 256, 1_024, 0),
    row([8, 9], 256, 1_024, 0),
    row([9, 0], 256, 4_096, 256),
    row([10, 0], 256, 8_192, 128),
];

/// Bytes per cycle from the L1 cache of a multiprocessor: one wavefront of 32 words, on every architecture
/// since Volta (NVIDIA, "Dissecting the Volta GPU architecture through microbenchmarking", Jia et al. 2018).
const L1_BYTES_PER_CYCLE: f64 = 128.0;

/// Peak rates of one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Highest multiprocessor clock, Hz; 0 if the record lacks it.
    pub clock_hz: f64,
    /// Bandwidth of device memory, bytes per second; `None` if the record lacks it.
    pub dram_bytes_per_second: Option<f64>,
    capability: [u32; 2],
}

impl Peaks {
    /// Returns the peaks of `device`; `None` if its record lacks the number of multiprocessors.
    pub fn of(device: &Device) -> Option<Self> {
        let bandwidth = device.memory_bandwidth_kbps as f64 * 1e3;
        (device.multiprocessors > 0).then_some(Self {
            multiprocessors: device.multiprocessors,
            clock_hz: f64::from(device.core_clock_khz) * 1e3,
            dram_bytes_per_second: (bandwidth > 0.0).then_some(bandwidth),
            capability: device.compute_capability,
        })
    }

    /// Operations per second at a clock of `clock_hz`; `None` if unknown, or if the hardware does not support
    /// the type.
    pub fn operations_per_second(&self, of: DataType, clock_hz: f64) -> Option<f64> {
        let row = TABLE.iter().find(|row| row.capability == self.capability)?;
        let per_cycle = match of {
            DataType::Fp32 => row.fp32,
            DataType::Bf16 | DataType::Fp16 => row.tensor_half,
            DataType::Tf32 => row.tensor_half / 2,
            DataType::Fp8 if row.capability < [8, 9] => 0,
            DataType::Fp8 | DataType::Int8 => row.tensor_half * 2,
            DataType::TensorFp64 => row.tensor_fp64,
        };
        (per_cycle > 0 && clock_hz > 0.0).then(|| f64::from(per_cycle) * f64::from(self.multiprocessors) * clock_hz)
    }

    /// Bytes per second from all L1 caches at a clock of `clock_hz`.
    pub fn l1_bytes_per_second(&self, clock_hz: f64) -> f64 {
        L1_BYTES_PER_CYCLE * f64::from(self.multiprocessors) * clock_hz
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_those_of_the_data_sheets() {
        // NVIDIA H100/H200 SXM: 989 TFLOP/s BF16 at 1.83 GHz, 67 FP32 at 1.98 GHz; A100: 312 and 19.5 at 1.41 GHz.
        let of = |capability, multiprocessors| {
            Peaks::of(&Device { compute_capability: capability, multiprocessors, ..Device::default() }).unwrap()
        };
        let tera = |peaks: Peaks, of, clock| (peaks.operations_per_second(of, clock).unwrap() / 1e12).round();
        let (hopper, ampere) = (of([9, 0], 132), of([8, 0], 108));
        assert_eq!((tera(hopper, DataType::Bf16, 1.83e9), tera(hopper, DataType::Fp32, 1.98e9)), (989.0, 67.0));
        assert_eq!((tera(hopper, DataType::Fp8, 1.83e9), tera(hopper, DataType::Tf32, 1.83e9)), (1_979.0, 495.0));
        assert_eq!((tera(ampere, DataType::Fp16, 1.41e9), tera(ampere, DataType::Int8, 1.41e9)), (312.0, 624.0));
        assert_eq!(tera(ampere, DataType::Fp32, 1.41e9), 19.0);
        assert_eq!(ampere.operations_per_second(DataType::Fp8, 1.41e9), None, "before Ada there is none");
        assert_eq!(of([7, 5], 40).operations_per_second(DataType::Fp32, 1e9), None, "not listed");
        assert_eq!(Peaks::of(&Device::default()), None);
    }
}
