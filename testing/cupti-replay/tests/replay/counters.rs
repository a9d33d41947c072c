//! Counters as `cupti-sys` reads them: the order of calls, one owner, one pass, an old first sample,
//! incomplete samples.

use std::fs;

use cupti_sys::counters::Counters;
use cupti_sys::counters::abi::{Function, PmDecodeData, PmEnable, PmStart, PmStop};
use cupti_sys::counters::host::{Collection, Configuration, Host, MetricNames};
use cupti_sys::counters::sampling::{Decoded, Interval, SampleTime, Sampler, Settings};
use cupti_sys::counters::sets::{self, Links};
use cupti_sys::{Cupti, CuptiResult, Error, Search};
use tempfile::tempdir;

use crate::client::Client;
use crate::recording::{START, kernels};

const METRICS: [&str; 3] = [
    "gpc__cycles_elapsed.avg.per_second",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
];
const SILENT: &str = "nvlrx__bytes.sum.per_second";
const SETTINGS: Settings = Settings { interval: Interval::Time(10), hardware_buffer: 1 << 20, samples: 3 };

/// Ten samples of 10 ns: a clock of 1 GHz, and percentages equal to their number.
fn recorded() -> String {
    let samples: String = (0..10).map(|n| format!("sample {} {} 1e9 {n} nan\n", n * 10, n * 10 + 10)).collect();
    format!("chip GH100\ninterval 10\nmetrics {}\nsilent {SILENT}\n{samples}", METRICS.join(" "))
}

fn set(counters: &'static Counters, names: &[&str]) -> (Host, MetricNames, Configuration) {
    let mut host = Host::open(counters, Collection::Samples, "GH100", None).unwrap();
    let names = MetricNames::new(names);
    let configuration = host.configure(&names).unwrap();
    (host, names, configuration)
}

fn open(counters: &'static Counters, names: &[&str]) -> Result<Sampler, Error> {
    let (host, names, configuration) = set(counters, names);
    Sampler::open(counters, 0, host, names, configuration, SETTINGS)
}

fn decode(sampler: &mut Sampler) -> (Decoded, Vec<(SampleTime, Vec<f64>)>) {
    let mut samples = Vec::new();
    let decoded = sampler.decode(|time, values| samples.push((time, values.to_vec()))).unwrap();
    (decoded, samples)
}

fn code<T>(result: Result<T, Error>) -> CuptiResult {
    result.err().map_or(CuptiResult::SUCCESS, |error| error.code)
}

/// Calls a function with an object of CUPTI's.
fn call<P>(function: &Function<P>, parameters: &mut P) -> CuptiResult {
    // SAFETY: the only pointer in the structs is an object, which the replay library looks up.
    code(unsafe { function.call(parameters) })
}

#[test]
fn counters_are_played_in_their_order() {
    let folder = tempdir().unwrap();
    let path = kernels(40, 7).save(folder.path());
    fs::write(format!("{}.counters", path.display()), recorded()).unwrap();
    let client = Client::<50>::open(folder.path(), &path, "max").unwrap();
    // `cupti-sys` allows one libcupti per process, so all of this is one test.
    let search = Search { override_path: Some(client.file()), ..Search::default() };
    let counters = Counters::of(Cupti::load(&search).unwrap());
    counters.initialize().unwrap();
    assert_eq!(
        (counters.chip_name(0).unwrap(), code(counters.chip_name(1))),
        ("GH100".into(), CuptiResult::INVALID_DEVICE)
    );
    assert_eq!(counters.supported_chips().unwrap(), ["GH100"]);

    // Sets: all metrics of the chip, in one pass; a second call opens another pass.
    let links = Links { pcie: true, nvlink: true, engine: false };
    assert_eq!(sets::choose(counters, "GH100", links).unwrap().unwrap().quantities.len(), 4);
    assert_eq!(code(sets::choose(counters, "GA100", links).map(drop)), CuptiResult::INVALID_PARAMETER);
    let (mut host, names, _) = set(counters, &METRICS);
    let twice = host.configure(&names).unwrap();
    assert_eq!(twice.passes(), 2);
    let refused = Sampler::open(counters, 0, host, names, twice, SETTINGS);
    assert_eq!(code(refused.map(drop)), CuptiResult::NOT_SUPPORTED);
    let mut host = Host::open(counters, Collection::Samples, "GH100", None).unwrap();
    assert_eq!(code(host.configure(&MetricNames::new(&["there_is_no_such.sum"])).map(drop)), CuptiResult::UNKNOWN);

    // The order: configure before start, start before decode and stop.
    let functions = counters.functions();
    let mut enable = PmEnable::new();
    assert_eq!(call(&functions.pm_enable, &mut enable), CuptiResult::SUCCESS);
    let object = enable.object;
    assert_eq!(call(&functions.pm_start, &mut PmStart { object, ..PmStart::new() }), CuptiResult::INVALID_OPERATION);
    assert_eq!(call(&functions.pm_stop, &mut PmStop { object, ..PmStop::new() }), CuptiResult::INVALID_OPERATION);
    assert_eq!(
        call(&functions.pm_decode, &mut PmDecodeData { object, ..PmDecodeData::new() }),
        CuptiResult::INVALID_PARAMETER
    );
    let short = &mut PmStart { struct_size: 16, object, ..PmStart::new() };
    assert_eq!(call(&functions.pm_start, short), CuptiResult::INVALID_PARAMETER);

    // Only one sampler can own the device: enabling a second one succeeds, configuring it fails.
    let mut sampler = open(counters, &METRICS).unwrap();
    assert_eq!(code(counters.sampling_availability(0)), CuptiResult::HARDWARE_BUSY);
    assert_eq!(code(open(counters, &METRICS).map(drop)), CuptiResult::HARDWARE_BUSY);
    assert!(sampler.decode(|_, _| ()).is_err(), "it was not started");

    sampler.start().unwrap();
    assert_eq!(decode(&mut sampler).0, Decoded::default());
    client.play(35);
    let (decoded, samples) = decode(&mut sampler);
    assert!(decoded.dropped_first && decoded.full && decoded.taken == 2, "{decoded:?}");
    let times: Vec<_> = samples.iter().map(|(time, _)| (time.begin - START, time.end - START)).collect();
    assert_eq!(times, [(10, 20), (20, 30)]);
    assert_eq!(samples[1].1[..2], [1e9, 2.0]);
    assert!(samples[1].1[2].is_nan());
    assert_eq!(decode(&mut sampler).0.taken, 0, "the fourth is not over");
    client.play(u64::MAX);
    sampler.stop().unwrap();
    let mut rest = 0;
    while let taken @ 1.. = decode(&mut sampler).0.taken {
        rest += taken;
    }
    assert!(rest > 0 && rest <= 7, "{rest}");
    drop(sampler);
    assert_eq!(code(counters.sampling_availability(0)), CuptiResult::SUCCESS);

    // A unit that delivers no counters keeps every sample from completing. Play is over, so no new sample
    // begins.
    let mut silent = open(counters, &[METRICS[0], SILENT]).unwrap();
    silent.start().unwrap();
    assert_eq!(decode(&mut silent).0.taken, 0);
    assert_eq!(client.violations(), [""; 0]);
}
