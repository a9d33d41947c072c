//! What servers of language models do between two iterations, by the Python functions of their loops.
//!
//! A thread that waits for requests leaves the device without work, asleep or spinning: that is nobody's cost. Only the
//! function tells it from a scheduler that is too slow. The table is data: a row that no longer matches costs evidence
//! but never produces a wrong name. `tests/server_names.sh` looks for its functions in released packages.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::named;
use gpuwhy_trace::record::Frame;

named! {
    /// Purpose of what a server's loop does between two iterations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Meaning: name {
        /// Waits for requests.
        NoRequests "no_requests",
        /// Receives requests and chooses the next batch.
        Scheduler "scheduler",
        /// Prepares the inputs of the model.
        Inputs "inputs",
        /// Handles the tokens of the iteration before.
        Outputs "outputs",
        /// Restricts the tokens to a grammar: structured output.
        Grammar "grammar",
    }
}

/// What a stack shows of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Doing {
    /// Name of the server; empty for a wait of unknown code, which is one for requests if the device serves
    /// ([`DeviceAccount::serves`](super::DeviceAccount::serves)).
    pub server: &'static str,
    /// Purpose of its work there.
    pub meaning: Meaning,
}

/// Significance of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Works for the next iteration.
    Works(Meaning),
    /// Asleep in a wait that it calls itself, it waits for requests; otherwise it looks for them.
    Waits,
    /// Runs only while there is nothing to do, round after round.
    Idles,
    /// No function of the table, asleep until something comes: in a server, a request.
    Receives,
}

impl Role {
    /// Purpose of what a thread does there while it does not wait for requests.
    pub(crate) const fn meaning(self) -> Meaning {
        match self {
            Self::Works(meaning) => meaning,
            Self::Waits => Meaning::Scheduler,
            Self::Idles | Self::Receives => Meaning::NoRequests,
        }
    }
}

/// Functions of a server: its name, the end of the file's path, last components of qualified names.
type Row = (&'static str, &'static str, &'static [&'static str], Role);

// Behind each: the releases in whose source its functions were read.
const VLLM: &str = "vLLM"; // 0.24.0, 0.33.0
const SGLANG: &str = "SGLang"; // 0.5.23
const TRANSFORMERS: &str = "transformers continuous batching"; // 5.17.0, 5.24.0
const TENSORRT_LLM: &str = "TensorRT-LLM"; // repository, 2025 and 2026
const TGI: &str = "Text Generation Inference"; // repository, 2025

const SCHEDULER: Role = Role::Works(Meaning::Scheduler);
const INPUTS: Role = Role::Works(Meaning::Inputs);
const OUTPUTS: Role = Role::Works(Meaning::Outputs);
const GRAMMAR: Role = Role::Works(Meaning::Grammar);

/// Functions that name the time between iterations; of a stack, the innermost one counts.
const SERVERS: [Row; 32] = [
    // The worker of one GPU runs in the thread of the engine.
    (VLLM, "/vllm/v1/engine/core.py", &["_process_input_queue"], Role::Waits),
    (VLLM, "/vllm/v1/engine/core.py", &["_handle_client_request", "preprocess_add_request"], SCHEDULER),
    (VLLM, "/vllm/v1/core/sched/scheduler.py", &["schedule"], SCHEDULER),
    (VLLM, "/vllm/v1/core/sched/scheduler.py", &["update_from_output"], OUTPUTS),
    (VLLM, "/vllm/v1/core/sched/scheduler.py", &["get_grammar_bitmask"], GRAMMAR),
    (VLLM, "/vllm/v1/structured_output/utils.py", &["apply_grammar_bitmask"], GRAMMAR),
    // Other workers: they spin for a second after a message, then sleep.
    (VLLM, "/vllm/distributed/device_communicators/shm_broadcast.py", &["wait"], Role::Waits),
    (VLLM, "/vllm/distributed/device_communicators/shm_broadcast.py", &["acquire_read"], SCHEDULER),
    (VLLM, "/vllm/v1/worker/gpu_model_runner.py", &["_update_states", "_prepare_inputs", "_preprocess"], INPUTS),
    (VLLM, "/vllm/v1/worker/gpu_model_runner.py", &["_build_attention_metadata"], INPUTS),
    (VLLM, "/vllm/v1/worker/gpu_model_runner.py", &["_bookkeeping_sync", "get_output"], OUTPUTS),
    (VLLM, "/vllm/v1/worker/gpu/model_runner.py", &["prepare_inputs", "prepare_attn"], INPUTS),
    (VLLM, "/vllm/v1/worker/gpu/model_runner.py", &["postprocess_sampled"], OUTPUTS),
    (VLLM, "/vllm/v1/worker/gpu/structured_outputs.py", &["apply_grammar_bitmask"], GRAMMAR),
    (VLLM, "/vllm/v1/worker/gpu/async_utils.py", &["get_output"], OUTPUTS),
    (SGLANG, "/sglang/srt/managers/scheduler.py", &["on_idle"], Role::Idles),
    (SGLANG, "/sglang/srt/managers/scheduler.py", &["ingest_requests", "get_next_batch_to_run"], SCHEDULER),
    (SGLANG, "/sglang/srt/managers/scheduler.py", &["process_batch_result"], OUTPUTS),
    (SGLANG, "/sglang/srt/managers/schedule_batch.py", &["prepare_for_extend", "prepare_for_decode"], INPUTS),
    (SGLANG, "/sglang/srt/model_executor/forward_batch_info.py", &["init_new"], INPUTS),
    (SGLANG, "/sglang/srt/constrained/grammar_manager.py", &["get_ready_grammar_requests"], GRAMMAR),
    (SGLANG, "/sglang/srt/constrained/xgrammar_backend.py", &["fill_vocab_mask", "apply_vocab_mask"], GRAMMAR),
    (TRANSFORMERS, "/generation/continuous_batching/continuous_api.py", &["_generation_loop_body"], Role::Waits),
    (TRANSFORMERS, "/generation/continuous_batching/continuous_api.py", &["prepare_next_batch"], SCHEDULER),
    (TRANSFORMERS, "/generation/continuous_batching/continuous_api.py", &["update_batch"], OUTPUTS),
    (TRANSFORMERS, "/generation/continuous_batching/input_outputs.py", &["prepare_batch_tensors"], INPUTS),
    // Its first worker waits in the queue, the others for its message.
    (TENSORRT_LLM, "/_torch/pyexecutor/executor_request_queue.py", &["get_from_request_queue"], Role::Waits),
    (TENSORRT_LLM, "/_torch/pyexecutor/py_executor.py", &["_prepare_and_schedule_batch", "_schedule"], SCHEDULER),
    (TENSORRT_LLM, "/_torch/pyexecutor/model_engine.py", &["_prepare_tp_inputs"], INPUTS),
    (TENSORRT_LLM, "/_torch/pyexecutor/py_executor.py", &["_process_previous_batch", "_handle_responses"], OUTPUTS),
    // The event loop between two calls of the router.
    (TGI, "/text_generation_server/server.py", &["serve"], Role::Waits),
    (TGI, "/text_generation_server/server.py", &["FilterBatch"], SCHEDULER),
];

/// Calls that return when something comes: file and last component of the function.
const RECEIVE: [(&str, &str); 8] = [
    ("/queue.py", "get"),
    ("/threading.py", "wait"),
    ("/threading.py", "wait_for"),
    ("/selectors.py", "select"),
    ("/asyncio/runners.py", "run"),
    ("/asyncio/base_events.py", "run_forever"),
    ("/multiprocessing/queues.py", "get"),
    ("/multiprocessing/connection.py", "poll"),
];

/// What the innermost row of the table says about a stack, whose first `waiting` frames are in files that wait.
pub(crate) fn role_of(frames: &[Frame], waiting: usize, dictionary: &Dictionary) -> Option<(&'static str, Role)> {
    let last = |frame: &Frame| dictionary.name(frame.function).rsplit('.').next().unwrap_or_default();
    let called = waiting.checked_sub(1).map(|index| &frames[index]);
    // This function of `Barrier.wait` waits for threads of the program.
    let meets = frames[..waiting].iter().any(|frame| last(frame) == "_wait");
    let receives = called.filter(|_| !meets).is_some_and(|frame| {
        RECEIVE.iter().any(|&(file, name)| dictionary.name(frame.file).ends_with(file) && last(frame) == name)
    });
    let of_table = frames.iter().enumerate().find_map(|(index, frame)| {
        let named = SERVERS.iter().filter(|row| row.2.contains(&last(frame)));
        let mut here = named.filter(|row| dictionary.name(frame.file).ends_with(row.1));
        // Whatever else it calls is no wait for requests.
        here.find(|row| row.3 != Role::Waits || index == waiting).map(|row| (row.0, row.3))
    });
    of_table.or(receives.then_some(("", Role::Receives)))
}
