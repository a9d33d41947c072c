//! Remedies that a line of source code opens: only beside what the GPU showed, and only at such a line.

use gpuwhy_report::run::remedies::opened_by_lines;
use gpuwhy_report::run::{Certainty, Report};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;
use gpuwhy_trace::source_line::{Source, SourceLine};

const START: u64 = 1_790_000_000_000_000_000;
const STEPS: u64 = 300;
const FILE: &str = "/home/u/train.py";
const LOADER: &str = "/v/lib/python3.12/site-packages/torch/utils/data/dataloader.py";
const THREAD: ThreadId = ThreadId(9);

const PRODUCT: &str = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT";
const MUL: &str = "void at::native::elementwise_kernel<128, 2, at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >(int)";
const EXP: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda(at::TensorIteratorBase&)>(int)";
const SUM: &str = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float> > > >(int)";
const CAT: &str = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, 64, 64>(float*)";
const FILL: &str =
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)";
const SORT: &str = "void cub::DeviceRadixSortOnesweepKernel<long>(int)";

/// What a step of a program does.
#[derive(Clone, Copy)]
struct Step {
    /// Kernels, with their microseconds and those of the calls that launch them.
    kernels: &'static [(&'static str, u64, u64)],
    /// Bytes that the CPU reads.
    reads: u64,
    /// Microseconds of work on the CPU.
    works: u64,
    /// That work is in PyTorch's data loader.
    loads: bool,
    /// Bytes that it sends to the GPU.
    sends: u64,
    /// Its kernels have 8 blocks, not 4,096.
    leaves_room: bool,
}

/// A trace under construction.
struct Program {
    dictionary: Dictionary,
    writer: TraceWriter<Vec<u8>>,
    stack: StackId,
    correlation: u32,
    sampled: u64,
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(START + micros * 1_000)
}

impl Program {
    fn record(&mut self, record: Record) {
        self.writer.event(&Event::Record(record), &self.dictionary).unwrap();
    }

    /// A call with a sample in it.
    fn call(&mut self, name: &str, from: u64, to: u64) -> CorrelationId {
        self.sample((from + to) / 2, ThreadState::Running);
        self.correlation += 1;
        let name = self.dictionary.intern_name(name);
        let function = ApiFunction { domain: ApiDomain::Runtime, callback_id: name.0, name };
        let function = self.dictionary.intern_api_function(function);
        let correlation = CorrelationId(self.correlation);
        let call = ApiCall { start: at(from), end: at(to), thread: THREAD, correlation, function, return_value: 0 };
        self.record(Record::Api(call));
        correlation
    }

    fn sample(&mut self, micros: u64, state: ThreadState) {
        let (since, now, stack) = (at(self.sampled), at(micros), self.stack);
        let (thread, on_cpu) = (THREAD, now.since(since));
        self.record(Record::Sample(HostSample {
            since,
            at: now,
            thread,
            state,
            stack,
            on_cpu,
            ..HostSample::default()
        }));
        self.sampled = micros;
    }
}

/// The report of a program whose line with `#!` does all of that; without `text` the trace has no lines.
fn report(step: Step, text: Option<&str>) -> Report {
    let mut dictionary = Dictionary::new();
    let [file, function] = [FILE, "main"].map(|name| dictionary.intern_name(name));
    let rows: Vec<&str> = text.unwrap_or("#!").lines().collect();
    let line = rows.iter().position(|row| row.contains("#!")).unwrap() as u32 + 1;
    let stack = dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line });
    let [file_of_loader, next] = [LOADER, "_next_data"].map(|name| dictionary.intern_name(name));
    let loader = Frame { caller: stack, function: next, file: file_of_loader, line: 700 };
    let loader = dictionary.intern_frame(loader);
    let name = "NVIDIA H200".to_owned();
    let device = Device { name, multiprocessors: 132, compute_capability: [9, 0], ..Device::default() };
    dictionary.add_device(device);
    let command = vec!["python".to_owned(), "train.py".to_owned()];
    let session = ProcessInfo { process_id: 7, command, start: at(0), ..ProcessInfo::default() };
    let writer = TraceWriter::new(Vec::new(), &session).unwrap();
    let mut program = Program { dictionary, writer, stack, correlation: 0, sampled: 0 };
    let (mut now, mut free) = (100, 100);
    for number in 0..STEPS {
        for &(name, lasts, called) in step.kernels {
            let correlation = program.call("cudaLaunchKernel_v7000", now, now + called);
            let name = program.dictionary.intern_name(name);
            let blocks = if step.leaves_room { 8 } else { 4_096 };
            let config = LaunchConfig { name, grid: [blocks, 1, 1], block: [256, 1, 1], ..LaunchConfig::default() };
            let config = program.dictionary.intern_launch_config(config);
            let start = free.max(now + 2);
            free = start + lasts;
            let (from, to) = (at(start), at(free));
            let kernel = Kernel { start: from, end: to, stream: StreamId(7), correlation, config, ..Kernel::default() };
            program.record(Record::Kernel(kernel));
            now += called + 1;
        }
        let (to_cpu, to_gpu) = (CopyKind::DeviceToHost, CopyKind::HostToDevice);
        for (bytes, kind) in [(step.sends, to_gpu), (step.reads, to_cpu)].into_iter().filter(|&(bytes, _)| bytes > 0) {
            // 10 GB/s.
            let begin = free.max(now) + 8;
            let end = begin + 2 + bytes / 10_000;
            let correlation = program.call("cudaMemcpyAsync_v3020", now, end + 4);
            let (from, to) = (at(begin), at(end));
            let (host, device) = (MemoryKind::Pageable, MemoryKind::Device);
            let (source, destination) = if kind == to_cpu { (device, host) } else { (host, device) };
            let copy = Copy {
                start: from,
                end: to,
                stream: StreamId(7),
                correlation,
                bytes,
                kind,
                source,
                destination,
                ..Copy::default()
            };
            program.record(Record::Copy(copy));
            now = end + 5;
            let end = now + 12;
            program.call("cudaStreamSynchronize_v3020", now, end);
            (now, free) = (end + 1, end);
        }
        if step.works > 0 {
            program.stack = if step.loads { loader } else { stack };
            for part in 1..=4 {
                program.sample(now + part * step.works / 5, ThreadState::Running);
            }
            program.stack = stack;
            now += step.works;
        }
        if number % 10 == 9 {
            program.writer.event(&Event::Flush(at(now)), &program.dictionary).unwrap();
        }
    }
    for line in Source::of(text.unwrap_or_default()).needed(line).into_iter() {
        program.dictionary.add_source_line(SourceLine { file, line, text: rows[line as usize - 1].to_owned() });
    }
    let end = at(free.max(now));
    let bytes = program.writer.finish(End::Clean, end, &Loss::default(), &program.dictionary).unwrap();
    gpuwhy_import::read(&bytes[..]).unwrap()
}

fn ids(report: &Report) -> Vec<&'static str> {
    report.bottleneck.remedies.iter().map(|remedy| remedy.id).collect()
}

const NONE: Step = Step { kernels: &[], reads: 0, works: 0, loads: false, sends: 0, leaves_room: false };
const IDLE: Step = Step { kernels: &[(PRODUCT, 300, 150)], works: 1_000, ..NONE };
const SMALL: &[(&str, u64, u64)] = &[(MUL, 3, 20), (EXP, 3, 20), (SUM, 3, 20)];

/// A remedy, a step in which it is right, a line that shows it, and one that does not.
const TABLE: &[(&str, Step, &str, &str)] = &[
    (
        "one_hot_product",
        Step { kernels: &[(PRODUCT, 300, 295), (MUL, 50, 45)], ..NONE },
        "import torch.nn.functional as F\ny = F.one_hot(ids, 50000).half() @ table #!",
        "y = x @ table #!",
    ),
    (
        "product_summed",
        Step { kernels: &[(MUL, 300, 290), (SUM, 200, 190)], ..NONE },
        "y = (a[:, :, None] * b).sum(1) #!",
        "y = (a * b).sum(1) #!",
    ),
    (
        "softmax_parts",
        Step { kernels: &[(EXP, 300, 290), (SUM, 200, 190)], ..NONE },
        "p = x.exp() / x.exp().sum(-1, keepdim=True) #!",
        "p = x / x.sum(-1, keepdim=True) #!",
    ),
    (
        "cat_grows",
        Step { kernels: &[(CAT, 300, 290)], ..NONE },
        "import torch\nfor x in xs:\n    out = torch.cat([out, x]) #!",
        "import torch\nfor x in xs:\n    y = torch.cat([out, x]) #!",
    ),
    (
        "read_to_show",
        Step { kernels: SMALL, reads: 4, ..NONE },
        "for x in loader:\n    print(loss.item()) #!",
        "for x in loader:\n    scale = loss.item() #!",
    ),
    (
        "read_to_decide",
        Step { kernels: SMALL, reads: 4, ..NONE },
        "while err.item() > 1e-3: #!\n    step()",
        "print(err.item()) #!",
    ),
    (
        "numpy_on_gpu",
        Step { kernels: &[(PRODUCT, 50, 10)], reads: 8 << 20, ..NONE },
        "import numpy as np\nbest = np.argmax(y.cpu().numpy(), 1) #!",
        "best = y.cpu() #!",
    ),
    (
        "norm_of_each",
        Step { kernels: SMALL, ..NONE },
        "for p in net.parameters():\n    total += p.grad.norm() #!",
        "for x in xs:\n    total += x.norm() #!",
    ),
    ("tensor_of_numbers", IDLE, "import torch\nx = torch.tensor(rows) #!", "x = prepare(rows) #!"),
    (
        "no_grad",
        Step { kernels: SMALL, ..NONE },
        "def main():\n    for x in xs:\n        y = model(x) #!",
        "import torch\nfor x in xs:\n    with torch.no_grad():\n        y = model(x) #!",
    ),
    (
        "deterministic",
        Step { kernels: &[(FILL, 300, 290)], ..NONE },
        "import torch\ntorch.use_deterministic_algorithms(True); x = torch.empty(9) #!",
        "import torch\ntorch.use_deterministic_algorithms(False); x = torch.zeros(9) #!",
    ),
    (
        "stay_on_gpu",
        Step { kernels: &[(PRODUCT, 50, 10)], reads: 8 << 20, sends: 3 << 20, ..NONE },
        "def handle(model, x):\n    model.to('cpu') #!",
        "y = y.to('cpu') #!",
    ),
    ("pin_in_loop", IDLE, "x = x.pin_memory() #!", "x = x.clone() #!"),
];

#[test]
fn a_line_opens_a_remedy_only_beside_what_the_gpu_showed() {
    for id in opened_by_lines() {
        assert!(TABLE.iter().any(|(of, ..)| *of == id), "{id} has no line");
    }
    for (id, step, shows, other) in TABLE {
        let found = report(*step, Some(shows));
        assert!(ids(&found).contains(id), "{id}: {:?}\n{}", ids(&found), found.full());
        let remedy = found.bottleneck.remedies.iter().find(|remedy| remedy.id == *id).unwrap();
        assert!(remedy.at.as_deref().unwrap().starts_with("train.py:"), "{remedy:?}");
        assert!(found.source_of(remedy).unwrap().text.ends_with("#!"), "{remedy:?}");
        for (text, why) in [(Some(*other), "another line"), (None, "a trace without lines")] {
            let silent = report(*step, text);
            assert!(!ids(&silent).contains(id), "{id}, {why}: {}", silent.summary());
        }
        // The line alone: a program in which the GPU shows something else.
        let elsewhere = if step.works > 900 { TABLE[0].1 } else { Step { kernels: &[(SORT, 300, 295)], ..TABLE[0].1 } };
        let silent = report(elsewhere, Some(shows));
        assert!(!ids(&silent).contains(id), "{id}, the line alone: {}", silent.summary());
    }
}

#[test]
fn a_data_loader_without_workers_is_named_where_it_is_made() {
    let step = Step { loads: true, ..IDLE };
    for (arguments, is_named) in [(", num_workers=0", true), ("", true), (", num_workers=4", false), (", **o", false)] {
        let text =
            format!("import torch\nl = torch.utils.data.DataLoader(d, 64{arguments})\nfor x in l: #!\n    f(x)\n");
        for text in [Some(&*text), None] {
            let report = report(step, text);
            let remedies = &report.bottleneck.remedies;
            let remedy =
                remedies.iter().find(|remedy| remedy.id == "workers").unwrap_or_else(|| panic!("{remedies:?}"));
            let at = remedy.at.as_deref();
            assert_eq!(at, Some("train.py:2").filter(|_| is_named && text.is_some()), "{arguments}");
            assert_eq!(remedy.text.contains("pin_memory=True) at train.py:2."), at.is_some(), "{}", remedy.text);
        }
    }
}

#[test]
fn other_lines_of_a_file_say_that_gradients_are_off() {
    let step = Step { kernels: SMALL, ..NONE };
    let call = "import torch\ndef run(x):\n    return model(x) #!\n";
    assert!(ids(&report(step, Some(call))).contains(&"no_grad"));
    for other in [
        "def main():\n    with torch.no_grad():\n        run(x)\n",
        "@torch.inference_mode()\ndef main():\n    run(x)\n",
        "torch.set_grad_enabled(False)\n",
        "def train():\n    run(x).backward()\n",
    ] {
        let found = report(step, Some(&format!("{call}{other}")));
        assert!(!ids(&found).contains(&"no_grad"), "{other}: {}", found.summary());
    }
}

#[test]
fn a_loop_over_parameters_is_no_loop_over_samples() {
    let step = Step { kernels: SMALL, leaves_room: true, ..NONE };
    let over = |what: &str| {
        let found = report(step, Some(&format!("for p in {what}:\n    p.mul_(0.9) #!")));
        (ids(&found)[0], ids(&found).contains(&"batch_loop"), found.bottleneck.recommendation)
    };
    let (first, batches, says) = over("net.parameters()");
    assert!(first == "norm_of_each" && !batches && says.contains("fused=True"), "{first}: {says}");
    assert_eq!(over("samples").0, "batch_loop");
}

#[test]
fn selections_by_the_dozen_are_of_groups_only_in_a_loop_over_parts() {
    const SELECT: &str = "void at_cuda_detail::cub::DeviceSelectSweepKernel<int>(int)";
    let step = Step { kernels: &[(SELECT, 3, 20); 64], reads: 4, ..NONE };
    for (text, groups) in [
        (None, true),
        (Some("for g in range(20):\n    out[g] = x[group == g].sum() #!"), true),
        (Some("for g in range(n):\n    mask = group == g\n    out.append(x[mask].mean()) #!"), true),
        (Some("for rows in parts:\n    for _ in range(2):\n        y = x[rows > 0] #!"), true),
        (Some("y = [x[group == g].mean() for g in range(n)] #!"), true),
        (Some("while g < n:\n    y = x[group == g].mean() #!\n    g += 1"), true),
        (Some("def take(x, mask):\n    return x[mask] #!"), true),
        (Some("for _ in range(20):\n    y = x[x > 0].sum() #!"), false),
        (Some("for step in range(20):\n    mask = x > 0\n    y = x[mask].sum() #!"), false),
    ] {
        let found = report(step, text);
        let remedy = found.bottleneck.remedies.iter().find(|remedy| remedy.id == "mask_index").unwrap();
        assert_eq!(
            remedy.text.starts_with("If these selections take the rows of one group"),
            groups,
            "{}",
            remedy.text
        );
        assert!(remedy.text.contains("eplace boolean indexing"), "{}", remedy.text);
    }
}

#[test]
fn a_line_makes_a_guess_surer() {
    let step = Step { kernels: &[(SORT, 300, 290)], ..NONE };
    let certainty = |text| {
        let report = report(step, text);
        report.bottleneck.remedies.iter().find(|remedy| remedy.id == "sort_topk").unwrap().certainty
    };
    assert_eq!(certainty(None), Certainty::Guess);
    assert_eq!(certainty(Some("import torch\ny = torch.sort(x)[0] #!\nprint(y)")), Certainty::Guess);
    assert_eq!(certainty(Some("import torch\ny = torch.sort(x)[0][:, :5] #!")), Certainty::Documented);
}
