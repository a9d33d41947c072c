// A CUDA program whose number of kernels, copies and memsets is known to itself.
//
// It counts every operation where it issues it and prints the sums, so a trace can be checked against the program
// instead of against another tool. The timed part stays free of everything but the operation in question, because the
// overhead comparison reads its nanoseconds. It does no useful work on purpose: an empty kernel shows a tool's cost best.
//
//   microbench launch N          N empty kernels a repetition, synchronized every 1000
//   microbench graph NODES N     a graph of NODES empty kernels, launched N times a repetition
//   microbench copy N            N copies of 4 pinned bytes to the device a repetition, synchronized every 1000
//   microbench sm N              N kernels of about 20 us that fill the device
//   microbench managed N         N kernels, each over 64 MiB of managed memory that the CPU has just written
//   microbench threads S         8 threads, each with its own stream: kernels, copies and graphs for S seconds
//   microbench init              a context and nothing else
//   options: --reps R (default 5)   --seconds S (no repetition begins later)   --wait (graph: for each launch, before the next one)
//            --measure (launch: a line for each repetition, with its time and what the launching thread executed)
//            --spin CYCLES (graph: how long a node keeps the device; default 0: it is an empty kernel)   --quiet-times (nothing that differs between runs)   --exit-code N
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        const cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                       \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));           \
            std::exit(2);                                                                  \
        }                                                                                  \
    } while (0)

__global__ void empty_kernel(int *sink) {
    if (sink) sink[0] = 1;
}

__global__ void spin_kernel(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

__global__ void touch_kernel(float *values, size_t count) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) values[i] += 1;
}

namespace {

constexpr size_t kManaged = 64 << 20;  // bytes
constexpr long kSyncEvery = 1000;      // keeps the host from running into the full launch queue (about 1024 deep)
constexpr long long kSpin = 36000;     // cycles: about 20 us at 1.8 GHz
constexpr int kThreads = 8;
constexpr long kThreadGraphNodes = 100;

// Operations issued so far, by any thread.
std::atomic<long> kernels{0}, copies{0}, memsets{0};

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Options {
    std::string mode = "launch";
    std::vector<double> numbers;
    int repetitions = 5;
    int exit_code = 0;
    bool quiet = false, wait = false, measure = false;
    long long spin = 0;
    double limit = 0;

    Options(int count, char **words) {
        for (int i = 1; i < count; ++i) {
            const std::string word = words[i];
            if (word == "--quiet-times") quiet = true;
            else if (word == "--wait") wait = true;
            else if (word == "--measure") measure = true;
            else if (word == "--spin" && i + 1 < count) spin = std::atoll(words[++i]);
            else if (word == "--reps" && i + 1 < count) repetitions = std::atoi(words[++i]);
            else if (word == "--seconds" && i + 1 < count) limit = std::atof(words[++i]);
            else if (word == "--exit-code" && i + 1 < count) exit_code = std::atoi(words[++i]);
            else if (i == 1) mode = word;
            else numbers.push_back(std::atof(words[i]));
        }
    }
    double number(size_t index, double otherwise) const { return index < numbers.size() ? numbers[index] : otherwise; }
    long count(size_t index, long otherwise) const { return static_cast<long>(number(index, static_cast<double>(otherwise))); }
};

cudaGraphExec_t capture(cudaStream_t stream, int *sink, long nodes, long long spin = 0) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (long i = 0; i < nodes; ++i) {
        if (spin > 0) spin_kernel<<<1, 1, 0, stream>>>(spin);
        else empty_kernel<<<1, 1, 0, stream>>>(sink);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return executable;
}

// What the calling thread executes between `begin` and `end`, and how long it is on a core. The noise of a machine moves
// instructions least. Virtual machines often do not count them.
struct ThreadMeter {
    int counter = -1;
    bool runs = false;
    double begun_ns = 0, begun_instructions = 0;
    double ns = 0, instructions = 0;

    void open() {
        perf_event_attr attributes{};
        attributes.type = PERF_TYPE_HARDWARE;
        attributes.size = sizeof attributes;
        attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
        attributes.exclude_kernel = 1;
        attributes.exclude_hv = 1;
        counter = static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
    }
    double count() const {
        long long value = 0;
        const bool known = counter >= 0 && read(counter, &value, sizeof value) == sizeof value;
        return known ? static_cast<double>(value) : 0;
    }
    static double cpu_ns() {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
    }
    void begin() {
        begun_ns = cpu_ns();
        begun_instructions = count();
        runs = true;
    }
    void end() {
        if (!runs) return;
        instructions += count() - begun_instructions;
        ns += cpu_ns() - begun_ns;
        runs = false;
    }
};

// Host and device memory, a stream, and the four operations on it.
struct Bench {
    int *device = nullptr, *host = nullptr;
    cudaStream_t stream{};
    cudaGraphExec_t graph{};
    long nodes = 0;
    double launching = 0;  // seconds within cudaGraphLaunch
    ThreadMeter meter;     // of launches, without the waits between them
    bool measures = false;

    Bench() {
        CHECK(cudaMalloc(&device, 1 << 20));
        CHECK(cudaMallocHost(&host, 1 << 20));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        memset();
        launches(2 * kSyncEvery);
    }
    void sync() { CHECK(cudaStreamSynchronize(stream)); }
    void memset() {
        CHECK(cudaMemsetAsync(device, 0, 1 << 20, stream));
        memsets += 1;
        sync();
    }
    void launches(long count) {
        for (long i = 1; i <= count; ++i) {
            if (measures && i % kSyncEvery == 1) meter.begin();
            empty_kernel<<<1, 1, 0, stream>>>(device);
            if (i % kSyncEvery == 0) {
                meter.end();
                sync();
            }
        }
        meter.end();
        sync();
        kernels += count;
    }
    void graphs(long count, bool wait = false) {
        for (long i = 0; i < count; ++i) {
            const double start = seconds();
            CHECK(cudaGraphLaunch(graph, stream));
            launching += seconds() - start;
            if (wait) sync();
        }
        sync();
        kernels += count * nodes;
    }
    void transfers(long count) {
        for (long i = 1; i <= count; ++i) {
            CHECK(cudaMemcpyAsync(device, host, 4, cudaMemcpyHostToDevice, stream));
            if (i % kSyncEvery == 0) sync();
        }
        sync();
        copies += count;
    }
    void spins(long count, int multiprocessors) {
        for (long i = 0; i < count; ++i) spin_kernel<<<multiprocessors, 128, 0, stream>>>(kSpin);
        sync();
        kernels += count;
    }
};

// Launches from one of several threads until the deadline; what it issued is complete when it returns.
void thread_body(double deadline) {
    Bench bench;
    bench.nodes = kThreadGraphNodes;
    bench.graph = capture(bench.stream, bench.device, bench.nodes);
    while (seconds() < deadline) {
        bench.launches(500);
        bench.transfers(20);
        bench.graphs(5);
    }
}

// Returns nanoseconds per kernel of all threads together.
double run_threads(double duration) {
    CHECK(cudaFree(nullptr));
    const double start = seconds();
    const double deadline = start + duration;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(thread_body, deadline);
    for (std::thread &thread : threads) thread.join();
    CHECK(cudaDeviceSynchronize());
    return (seconds() - start) * 1e9 / static_cast<double>(kernels.load());
}

// Takes device memory as a program of some size has. An H200 needs 623 ns for a node of a graph in a context that holds
// next to nothing, and 707 to 725 once anything else is allocated, one block of 3 MiB, five streams or what CUPTI keeps
// there: without this a tool would seem to cost what a second allocation does. Some dependence on it stays (653 under CUPTI
// with these blocks), so compare graphs as a whole with CUPTI alone.
void occupy() {
    void *block;
    for (int i = 0; i < 64; ++i) CHECK(cudaMalloc(&block, 3 << 20));
}

// Kernels whose pages of managed memory are on the host when they begin.
void touch_managed(long count) {
    float *values;
    CHECK(cudaMallocManaged(&values, kManaged));
    for (long i = 0; i < count; ++i) {
        std::memset(values, 0, kManaged);
        touch_kernel<<<1024, 256>>>(values, kManaged / sizeof(float));
        CHECK(cudaGetLastError());
        ++kernels;
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaFree(values));
}

struct Times {
    std::vector<double> repetitions;  // nanoseconds per operation
    double launching = 0;             // nanoseconds per node within cudaGraphLaunch
    struct Measured {
        double begin, end;            // seconds of the monotonic clock
        double thread_ns, instructions;  // per operation; instructions are 0 where they are not counted
    };
    std::vector<Measured> measured;
};

Times run_repetitions(const Options &options) {
    int multiprocessors = 0;
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    if (options.mode == "graph") occupy();
    Bench bench;
    long operations = options.count(0, 100000);
    const long launches = options.count(1, 100);
    if (options.mode == "graph") {
        bench.nodes = operations;
        bench.graph = capture(bench.stream, bench.device, bench.nodes, options.spin);
        bench.graphs(1);
        bench.launching = 0;
        operations *= launches;
    }
    bench.measures = options.measure;
    if (options.measure) bench.meter.open();
    Times times;
    const double first = seconds();
    for (int i = 0; i < options.repetitions && (options.limit <= 0 || seconds() - first < options.limit); ++i) {
        bench.meter.ns = bench.meter.instructions = 0;
        const double start = seconds();
        if (options.mode == "launch") bench.launches(operations);
        else if (options.mode == "graph") bench.graphs(launches, options.wait);
        else if (options.mode == "copy") bench.transfers(operations);
        else if (options.mode == "sm") bench.spins(operations, multiprocessors);
        else if (options.mode == "managed") touch_managed(operations);
        else {
            std::fprintf(stderr, "unknown mode %s: launch, graph, copy, sm, managed, threads or init\n", options.mode.c_str());
            std::exit(2);
        }
        const double end = seconds(), count = static_cast<double>(operations);
        times.repetitions.push_back((end - start) * 1e9 / count);
        if (options.measure) times.measured.push_back({start, end, bench.meter.ns / count, bench.meter.instructions / count});
    }
    times.launching = bench.launching * 1e9 / static_cast<double>(operations * options.repetitions);
    return times;
}

}  // namespace

int main(int count, char **words) {
    const Options options(count, words);
    Times times;
    if (options.mode == "init") CHECK(cudaFree(nullptr));
    else if (options.mode == "threads") times.repetitions.push_back(run_threads(options.number(0, 3.0)));
    else times = run_repetitions(options);

    std::printf("microbench %s kernels=%ld copies=%ld memsets=%ld\n", options.mode.c_str(), kernels.load(), copies.load(),
                memsets.load());
    std::vector<double> &repetitions = times.repetitions;
    if (!options.quiet && !repetitions.empty()) {
        for (size_t i = 0; i < times.measured.size(); ++i) {
            const Times::Measured &one = times.measured[i];
            std::printf("repetition begin_s=%.6f end_s=%.6f ns=%.1f thread_ns=%.1f instructions=%.1f\n", one.begin, one.end,
                        repetitions[i], one.thread_ns, one.instructions);
        }
        std::sort(repetitions.begin(), repetitions.end());
        std::printf("time_per_operation_ns=%.1f best_ns=%.1f", repetitions[repetitions.size() / 2], repetitions[0]);
        if (options.mode == "graph") std::printf(" launching_ns=%.1f", times.launching);
        std::printf("\n");
    }
    // Now, not behind the exit handlers: what a tool does there is measured from this line on.
    std::fflush(stdout);
    return options.exit_code;
}
