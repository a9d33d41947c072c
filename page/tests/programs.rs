//! Programs with random timelines: gaps, overlap, waits, late records.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ContextId, CorrelationId, DeviceId, Kernel, LaunchConfig, Loss, Record, StreamId,
    ThreadId,
};

use crate::page::at;

/// Pseudorandom number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A trace of `count` launches from up to two threads on up to two devices.
pub fn random_program(seed: u64, count: u32) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut dictionary = Dictionary::new();
    let configs: Vec<_> = ["gemm", "ncclDevKernel_AllReduce", "softmax"]
        .map(|name| dictionary.intern_name(name))
        .map(|name| dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() }))
        .into();
    let mut function = |name, callback_id| {
        let name = dictionary.intern_name(name);
        dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id, name })
    };
    let functions = [function("cudaLaunchKernel", 211), function("cudaDeviceSynchronize", 165)];
    let session = ProcessInfo { process_id: 7, command: vec!["random".into()], start: at(0), ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    let mut host = 10;
    let mut free = [0_u64; 2];
    let mut late = Vec::new();
    for number in 0..count {
        let correlation = CorrelationId(number + 1);
        host += match random.below(20) {
            0 => random.below(3_000),
            1..6 => random.below(60),
            _ => random.below(8),
        };
        let (begin, lasted) = (host, 1 + random.below(6));
        host += lasted;
        let thread = ThreadId(1 + random.below(2) as u32);
        let call = |function| ApiCall {
            start: at(begin),
            end: at(begin + lasted),
            thread,
            correlation,
            function,
            return_value: 0,
        };
        if random.below(12) == 0 {
            host = host.max(free[0]) + 2;
            let wait = ApiCall { end: at(host), ..call(functions[1]) };
            writer.event(&Event::Record(Record::Api(wait)), &dictionary).unwrap();
            continue;
        }
        let device = usize::from(random.below(5) == 0);
        let overlaps = random.below(4) == 0;
        let start = if overlaps { begin + 3 } else { free[device].max(begin + 3) + random.below(2) };
        let end = start + 1 + random.below(40);
        free[device] = free[device].max(end);
        let kernel = Record::Kernel(Kernel {
            start: at(start),
            end: at(end),
            device: DeviceId(device as u32),
            context: ContextId(1),
            stream: StreamId(7 + u32::from(overlaps)),
            correlation,
            config: configs[random.below(3) as usize],
            ..Kernel::default()
        });
        // Some records arrive some flushes after their time; their call is omitted, so that no record waits
        // for them.
        if random.below(30) == 0 {
            late.push(kernel);
        } else {
            writer.event(&Event::Record(Record::Api(call(functions[0]))), &dictionary).unwrap();
            writer.event(&Event::Record(kernel), &dictionary).unwrap();
        }
        if number % 50 == 49 {
            writer.event(&Event::Flush(at(begin.saturating_sub(20))), &dictionary).unwrap();
            if number % 150 == 149 {
                late.drain(..).for_each(|kernel| writer.event(&Event::Record(kernel), &dictionary).unwrap());
            }
        }
    }
    late.drain(..).for_each(|kernel| writer.event(&Event::Record(kernel), &dictionary).unwrap());
    let end = at(host.max(free[0]).max(free[1]) + 10);
    writer.finish(End::Clean, end, &Loss::default(), &dictionary).unwrap()
}
