// Programs whose bottleneck is known by construction, each with one parameter that must change exactly one cause.
//
// A profiler that explains time can be validated only with programs whose explanation is known in advance. Each program
// here repeats one step; `--dose` sets the amount of one cause in the step. The program itself measures the cost of that
// cause (with the host's steady clock, CUDA events, or the requested duration of a kernel), so the reference does not
// come from the tool that is validated. The last line of stdout is that reference as JSON.
//
//   dose PROGRAM [--dose X] [--steps N | --seconds S]        dose --list
//
//   compute        1   10 kernels of X us, back to back                           compute grows
//   dispatch       2   100 empty kernels, the host spins X us before each         dispatch grows
//   graph          3   a graph of X kernels of 20 us, launched at once            the cost of launching does not
//   sleep          4   a kernel of 4 ms, then the host sleeps X ms                host_blocked grows, but only beyond 4 ms
//   spin           5   a kernel of 1 ms, then the host computes X ms              host_cpu grows, but only beyond 1 ms
//   item           6   1 ms of kernels, one value read back, X us on the host     sync_drain grows
//   end_sync       7   a kernel of X us and a wait for it                         sync_drain does not
//   h2d_pageable  8a   X MiB from pageable memory, then a kernel of 1 ms          copy_h2d_pageable grows
//   h2d_pinned    8b   the same from pinned memory                                copy_h2d_pinned grows
//   h2d_hidden    8c   the same on a second stream, under a kernel of 4 ms        no copy leaf grows
//   small_copies   9   a kernel of 1 ms, then X copies of 4 KiB                   copies and their launches grow
//   malloc        10   a kernel of 1 ms, then X allocations of 64 MiB             allocator grows
//   host_func    11a   a kernel of 1 ms, then X us of a host function in stream   dependency_wait grows
//   event_wait   11b   a kernel of 1 ms that waits for one of X us elsewhere      compute grows, dependency_wait does not
//   tail          12   a block for each multiprocessor and X more, 0.5 ms each    compute grows by whole waves
//
// Build: nvcc -O2 -arch=native -o dose dose.cu. Steps before the marker kernel are start-up; the reference covers those after.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        const cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                       \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));           \
            std::exit(2);                                                                  \
        }                                                                                  \
    } while (0)

// Runs for a given time. The global timer counts nanoseconds at any clock rate of the device.
__global__ void spin_kernel(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}

// Runs once, between start-up and measurement: gpuwhy ends start-up at a kernel that it has not seen before.
__global__ void measured_from_here() {}

namespace {

constexpr double kMicro = 1e3, kMilli = 1e6;  // nanoseconds
constexpr double kMebi = 1 << 20;             // bytes

double now_ns() {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Keeps the host busy; returns the actual time.
double spin_host(double nanoseconds) {
    const double begin = now_ns();
    double now = begin;
    while (now - begin < nanoseconds) now = now_ns();
    return now - begin;
}

double sleep_host(double nanoseconds) {
    const double begin = now_ns();
    std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<long long>(nanoseconds)));
    return now_ns() - begin;
}

// Expected result of a run. `cost_ns` is the total time of `leaves`, and of the cause `cause`, in one step.
struct Truth {
    std::vector<std::string> leaves;
    std::string cause;
    double cost_ns = 0;
    double step_ns = 0;
};

struct Run {
    double dose;
    long steps;
    cudaStream_t stream{}, other{};
};

void launch(cudaStream_t stream, double nanoseconds, int blocks = 1, size_t shared = 0) {
    spin_kernel<<<blocks, 1, shared, stream>>>(static_cast<unsigned long long>(nanoseconds));
}

void wait(cudaStream_t stream) { CHECK(cudaStreamSynchronize(stream)); }

// Runs the steps. Each returns the cost of the dosed cause in it, if it can measure that itself.
Truth measure(const Run &run, std::vector<std::string> leaves, std::string cause, const std::function<double()> &step) {
    step();
    CHECK(cudaDeviceSynchronize());
    measured_from_here<<<1, 1, 0, run.stream>>>();
    wait(run.stream);
    const double begin = now_ns();
    double cost = 0;
    for (long i = 0; i < run.steps; ++i) cost += step();
    CHECK(cudaDeviceSynchronize());
    const double steps = static_cast<double>(run.steps);
    return {std::move(leaves), std::move(cause), cost / steps, (now_ns() - begin) / steps};
}

Truth compute(const Run &run) {
    constexpr int kKernels = 10;
    return measure(run, {"compute"}, "gpu_compute", [&] {
        for (int i = 0; i < kKernels; ++i) launch(run.stream, run.dose * kMicro);
        return kKernels * run.dose * kMicro;
    });
}

// The kernel ends long before the spinning does, so the device is idle for all but a constant few microseconds of it.
Truth dispatch(const Run &run) {
    constexpr int kKernels = 100;
    return measure(run, {"dispatch"}, "launch", [&] {
        double spun = 0;
        for (int i = 0; i < kKernels; ++i) {
            spun += spin_host(run.dose * kMicro);
            launch(run.stream, 0);
        }
        return spun;
    });
}

// Launched one by one, X kernels would cost X launches; as a graph they cost one, for any X.
Truth graph(const Run &run) {
    cudaGraph_t captured;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(run.stream, cudaStreamCaptureModeThreadLocal));
    for (long i = 0; i < std::lround(run.dose); ++i) launch(run.stream, 20 * kMicro);
    CHECK(cudaStreamEndCapture(run.stream, &captured));
    CHECK(cudaGraphInstantiate(&executable, captured, 0));
    return measure(run, {"dispatch", "launch_api", "launch_latency"}, "gpu_compute", [&] {
        CHECK(cudaGraphLaunch(executable, run.stream));
        return 0.0;
    });
}

// The kernel is launched before the host sleeps, so the device is idle only for the time beyond the kernel. The host
// measures from launch to launch, which is the period of the device once it is longer than the kernel.
Truth host_away(const Run &run, double kernel_ns, double (*away)(double)) {
    std::vector<double> launched;
    Truth truth = measure(run, {"host_cpu", "host_blocked"}, "host_cpu", [&] {
        launch(run.stream, kernel_ns);
        launched.push_back(now_ns());
        away(run.dose * kMilli);
        return 0.0;
    });
    // The first launch belongs to start-up.
    for (size_t i = 2; i < launched.size(); ++i)
        truth.cost_ns += std::max(0.0, launched[i] - launched[i - 1] - kernel_ns) / static_cast<double>(run.steps);
    return truth;
}

// While the host waits for the value it cannot prepare the next step. Its later work is fully exposed as long as it is
// shorter than the wait, which is the time that the host would have been ahead without reading the value.
Truth item(const Run &run) {
    int *value;
    int host = 0;
    CHECK(cudaMalloc(&value, sizeof *value));
    return measure(run, {"sync_drain"}, "sync", [&] {
        for (int i = 0; i < 10; ++i) launch(run.stream, 100 * kMicro);
        CHECK(cudaMemcpyAsync(&host, value, sizeof host, cudaMemcpyDeviceToHost, run.stream));
        wait(run.stream);
        return spin_host(run.dose * kMicro);
    });
}

// A wait that is long in a table of API calls but costs only the time of one launch: the device is busy throughout.
Truth end_sync(const Run &run) {
    return measure(run, {"sync_drain"}, "gpu_compute", [&] {
        launch(run.stream, run.dose * kMicro);
        wait(run.stream);
        return 0.0;
    });
}

// Host memory is written first, so that its pages exist.
Truth h2d_pageable(const Run &run) {
    const size_t bytes = static_cast<size_t>(run.dose * kMebi);
    std::vector<char> host(bytes, 1);
    char *device;
    CHECK(cudaMalloc(&device, bytes));
    return measure(run, {"copy_h2d_pageable"}, "copy", [&] {
        const double begin = now_ns();
        CHECK(cudaMemcpyAsync(device, host.data(), bytes, cudaMemcpyHostToDevice, run.stream));
        wait(run.stream);
        const double copied = now_ns() - begin;
        launch(run.stream, kMilli);
        wait(run.stream);
        return copied;
    });
}

// Queued without a wait, so the host cannot time it: two events around each copy do.
Truth h2d_pinned(const Run &run) {
    const size_t bytes = static_cast<size_t>(run.dose * kMebi);
    char *host, *device;
    CHECK(cudaMallocHost(&host, bytes));
    CHECK(cudaMalloc(&device, bytes));
    std::memset(host, 1, bytes);
    std::vector<cudaEvent_t> events(2 * (run.steps + 1));
    for (cudaEvent_t &event : events) CHECK(cudaEventCreate(&event));
    size_t used = 0;
    Truth truth = measure(run, {"copy_h2d_pinned"}, "copy", [&] {
        CHECK(cudaEventRecord(events[used++], run.stream));
        CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, run.stream));
        CHECK(cudaEventRecord(events[used++], run.stream));
        launch(run.stream, kMilli);
        return 0.0;
    });
    for (size_t i = 2; i < used; i += 2) {
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, events[i], events[i + 1]));
        truth.cost_ns += milliseconds * kMilli / static_cast<double>(run.steps);
    }
    return truth;
}

// The copy starts with the kernel and ends before it, so there is no wait for it.
Truth h2d_hidden(const Run &run) {
    const size_t bytes = static_cast<size_t>(run.dose * kMebi);
    char *host, *device;
    cudaEvent_t started;
    CHECK(cudaMallocHost(&host, bytes));
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaEventCreateWithFlags(&started, cudaEventDisableTiming));
    return measure(run, {"copy_h2d_pinned"}, "gpu_compute", [&] {
        CHECK(cudaEventRecord(started, run.stream));
        launch(run.stream, 4 * kMilli);
        CHECK(cudaStreamWaitEvent(run.other, started, 0));
        CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, run.other));
        return 0.0;
    });
}

// Each copy is so small that it takes only latency and no bandwidth. Whether the device or the host is slower depends on
// the machine, so the program measures it: if the host has issued all copies long before the device is done, the device
// does not wait for the host.
Truth small_copies(const Run &run) {
    constexpr size_t kBytes = 4096;
    constexpr double kHostBound = 0.9;  // share of the time in which the host was still issuing
    char *host, *device;
    CHECK(cudaMallocHost(&host, kBytes));
    CHECK(cudaMalloc(&device, kBytes));
    const std::vector<std::string> leaves = {"copy_h2d_pinned", "dispatch", "launch_api", "launch_latency", "inter_kernel"};
    double issuing = 0, copying = 0;
    Truth truth = measure(run, leaves, "copy", [&] {
        launch(run.stream, kMilli);
        wait(run.stream);
        const double begin = now_ns();
        for (long i = 0; i < std::lround(run.dose); ++i)
            CHECK(cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, run.stream));
        issuing += now_ns() - begin;
        wait(run.stream);
        const double copied = now_ns() - begin;
        copying += copied;
        return copied;
    });
    if (issuing > kHostBound * copying) truth.cause = "launch";
    return truth;
}

// The wait comes first, so that the device is idle during all allocations.
Truth allocate(const Run &run) {
    constexpr size_t kBytes = 64 << 20;
    return measure(run, {"allocator"}, "allocator", [&] {
        launch(run.stream, kMilli);
        wait(run.stream);
        double allocating = 0;
        for (long i = 0; i < std::lround(run.dose); ++i) {
            void *memory;
            const double begin = now_ns();
            CHECK(cudaMalloc(&memory, kBytes));
            CHECK(cudaFree(memory));
            allocating += now_ns() - begin;
        }
        return allocating;
    });
}

void CUDART_CB host_function(void *nanoseconds) { spin_host(*static_cast<double *>(nanoseconds)); }

// The device waits for the host in the middle of a queue: no launch is late, and only the queue shows the reason. Calling
// the function also takes time, up to 0.4 ms in a virtual machine, which it cannot measure: all but the kernel is wait.
Truth host_func(const Run &run) {
    double nanoseconds = run.dose * kMicro;
    Truth truth = measure(run, {"dependency_wait"}, "cannot_tell", [&] {
        launch(run.stream, kMilli);
        CHECK(cudaLaunchHostFunc(run.stream, host_function, &nanoseconds));
        return 0.0;
    });
    truth.cost_ns = truth.step_ns - kMilli;
    return truth;
}

// One stream waits for another, but the device is busy in the meantime: the dependency itself costs no time.
Truth event_wait(const Run &run) {
    cudaEvent_t done, drained;
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&drained, cudaEventDisableTiming));
    return measure(run, {"compute"}, "gpu_compute", [&] {
        launch(run.other, run.dose * kMicro);
        CHECK(cudaEventRecord(done, run.other));
        CHECK(cudaStreamWaitEvent(run.stream, done, 0));
        launch(run.stream, kMilli);
        CHECK(cudaEventRecord(drained, run.stream));
        CHECK(cudaStreamWaitEvent(run.other, drained, 0));
        return run.dose * kMicro + kMilli;
    });
}

// Shared memory limits a multiprocessor to one block, so one block too many costs a complete second wave.
Truth tail(const Run &run) {
    constexpr double kBlock = 500 * kMicro;
    int processors = 0, shared = 0, resident = 0;
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    CHECK(cudaFuncSetAttribute(spin_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, spin_kernel, 1, shared));
    const int blocks = processors + static_cast<int>(std::lround(run.dose));
    const int wave = processors * resident;
    const int waves = (blocks + wave - 1) / wave;
    return measure(run, {"compute"}, "gpu_compute", [&] {
        launch(run.stream, kBlock, blocks, shared);
        return waves * kBlock;
    });
}

// A program: its names, the unit of its dose, and the approximate duration of a step at dose X, to convert --seconds.
struct Program {
    const char *name, *number, *unit;
    double dose;
    Truth (*run)(const Run &);
    double (*step_us)(double);
};

const Program kPrograms[] = {
    {"compute", "1", "us", 50, compute, [](double x) { return 10 * x; }},
    {"dispatch", "2", "us", 20, dispatch, [](double x) { return 100 * (x + 5); }},
    {"graph", "3", "kernels", 100, graph, [](double x) { return 22 * x; }},
    {"sleep", "4", "ms", 8, [](const Run &run) { return host_away(run, 4 * kMilli, sleep_host); },
     [](double x) { return 1e3 * std::max(4.0, x); }},
    {"spin", "5", "ms", 2, [](const Run &run) { return host_away(run, kMilli, spin_host); },
     [](double x) { return 1e3 * std::max(1.0, x); }},
    {"item", "6", "us", 400, item, [](double x) { return 1050 + x; }},
    {"end_sync", "7", "us", 1000, end_sync, [](double x) { return 20 + x; }},
    {"h2d_pageable", "8a", "MiB", 32, h2d_pageable, [](double x) { return 1e3 + 150 * x; }},
    {"h2d_pinned", "8b", "MiB", 32, h2d_pinned, [](double x) { return 1e3 + 20 * x; }},
    {"h2d_hidden", "8c", "MiB", 32, h2d_hidden, [](double) { return 4e3; }},
    {"small_copies", "9", "copies", 400, small_copies, [](double x) { return 1e3 + 4 * x; }},
    {"malloc", "10", "allocations", 4, allocate, [](double x) { return 1e3 + 300 * x; }},
    {"host_func", "11a", "us", 1000, host_func, [](double x) { return 1020 + x; }},
    {"event_wait", "11b", "us", 1000, event_wait, [](double x) { return 1e3 + x; }},
    {"tail", "12", "blocks", 1, tail, [](double) { return 1e3; }},
};

void print(const Program &program, const Run &run, const Truth &truth) {
    std::printf("{\"program\":\"%s\",\"number\":\"%s\",\"dose\":%g,\"unit\":\"%s\",\"steps\":%ld,\"step_ns\":%.0f,\"leaves\":[",
                program.name, program.number, run.dose, program.unit, run.steps, truth.step_ns);
    for (size_t i = 0; i < truth.leaves.size(); ++i) std::printf("%s\"%s\"", i ? "," : "", truth.leaves[i].c_str());
    std::printf("],\"cost_ns\":%.0f,\"cause\":\"%s\"}\n", truth.cost_ns, truth.cause.c_str());
}

[[noreturn]] void fail(const std::string &message) {
    std::fprintf(stderr, "dose: %s\n", message.c_str());
    std::exit(2);
}

double number(const char *text, const std::string &option) {
    char *end = nullptr;
    const double value = std::strtod(text, &end);
    if (end == text || *end || !std::isfinite(value) || value < 0) fail(option + ": not a number of 0 or more: " + text);
    return value;
}

}  // namespace

int main(int count, char **words) {
    const std::string name = count > 1 ? words[1] : "--list";
    if (name == "--list") {
        for (const Program &program : kPrograms)
            std::printf("%-4s %-13s dose in %s (default %g)\n", program.number, program.name, program.unit, program.dose);
        return 0;
    }
    const auto *program = std::find_if(std::begin(kPrograms), std::end(kPrograms), [&](const Program &candidate) {
        return name == candidate.name || name == candidate.number;
    });
    if (program == std::end(kPrograms)) fail("no program is called " + name + "; see --list");

    Run run{program->dose, 0};
    double seconds = 1;
    for (int i = 2; i < count; i += 2) {
        const std::string option = words[i];
        if (i + 1 == count) fail(option + " lacks its value");
        const double value = number(words[i + 1], option);
        if (option == "--dose") run.dose = value;
        else if (option == "--steps") run.steps = std::lround(value);
        else if (option == "--seconds") seconds = value;
        else fail("unknown option " + option);
    }
    if (run.steps == 0) run.steps = std::max(20L, std::lround(seconds * 1e6 / program->step_us(run.dose)));

    // Otherwise code would be loaded at the first launch of each kernel, in the middle of a measurement.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    CHECK(cudaStreamCreateWithFlags(&run.stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&run.other, cudaStreamNonBlocking));
    print(*program, run, program->run(run));
    return 0;
}
