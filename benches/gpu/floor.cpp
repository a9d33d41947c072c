// Lower bound for a tracer: an injected library that has CUPTI record the same activity as libprof.so and discards
// every buffer. Its overhead is that of CUPTI; the overhead of gpuwhy beyond it is caused by gpuwhy.
//
//   g++ -O2 -shared -fPIC -I$CUDA/extras/CUPTI/include -I$CUDA/include -o libfloor.so floor.cpp -L... -lcupti
//   CUDA_INJECTION64_PATH=$PWD/libfloor.so program
//
// The calls are those of inject/src/interest.rs, selected by the same name prefixes; a launch of a CUDA graph is one record.
// FLOOR_RECORDS changes the records: `nodes` for each node of CUDA graphs, or `nothing` for the overhead of CUPTI's mere
// presence. FLOOR_FLUSH_MS=N makes CUPTI deliver its records every N milliseconds, as needed by a tool that reports
// while the program runs; without it buffers arrive when they are full. FLOOR_SUBSCRIBES=1 also takes CUPTI's one subscriber slot,
// as needed by a tool that keeps others out, or that gets callbacks for contexts and graphs.

#include <cupti.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr size_t kBufferBytes = 1 << 20;
const char *const kBeginnings[] = {
    "Launch", "GraphLaunch", "GraphInstantiate", "GraphUpload", "GraphExecUpdate", "Memcpy", "Memset", "MemPrefetch",
    "EventRecord", "StreamWaitEvent", "StreamBeginCapture", "StreamEndCapture", "Malloc", "Free", "MemAlloc", "MemFree",
    "MemHostAlloc", "MemHostRegister", "MemHostUnregister", "HostAlloc", "HostRegister", "HostUnregister", "MemCreate",
    "MemMap", "MemUnmap", "MemRelease", "ModuleLoad", "LibraryLoad", "LinkComplete", "DeviceReset", "CtxCreate",
    "CtxDestroy"};

std::mutex mutex;
std::vector<uint8_t *> spare;

// Buffers are reused, as in any tool with low overhead: fresh ones would cause page faults.
void requested(uint8_t **buffer, size_t *bytes, size_t *records) {
  *buffer = nullptr;
  {
    std::lock_guard<std::mutex> guard(mutex);
    if (!spare.empty()) {
      *buffer = spare.back();
      spare.pop_back();
    }
  }
  if (*buffer == nullptr) *buffer = static_cast<uint8_t *>(std::aligned_alloc(8, kBufferBytes));
  *bytes = kBufferBytes;
  *records = 0;
}

void completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t) {
  std::lock_guard<std::mutex> guard(mutex);
  spare.push_back(buffer);
}

bool wanted(const char *name) {
  const char *rest = std::strncmp(name, "cuda", 4) == 0 ? name + 4 : std::strncmp(name, "cu", 2) == 0 ? name + 2 : nullptr;
  if (rest == nullptr) return false;
  if (std::strstr(rest, "Synchronize") != nullptr) return true;
  for (const char *beginning : kBeginnings)
    if (std::strncmp(rest, beginning, std::strlen(beginning)) == 0) return true;
  return false;
}

// Two concurrent flushes deadlock.
std::mutex flushing;
bool ended = false;

void flush_every(std::chrono::milliseconds period) {
  for (;;) {
    std::this_thread::sleep_for(period);
    std::lock_guard<std::mutex> guard(flushing);
    if (ended) return;
    cuptiActivityFlushAll(0);
  }
}

void called(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *) {}

void subscribe() {
  CUpti_SubscriberHandle handle;
  if (cuptiSubscribe(&handle, called, nullptr) == CUPTI_SUCCESS)
    cuptiEnableCallback(1, handle, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
}

void at_exit() {
  std::lock_guard<std::mutex> guard(flushing);
  ended = true;
  cuptiActivityFlushAll(1);
}

}  // namespace

extern "C" int InitializeInjection() {
  const char *asked = std::getenv("FLOOR_RECORDS");
  const std::string_view records = asked != nullptr ? asked : "";
  if (std::getenv("FLOOR_SUBSCRIBES") != nullptr) subscribe();
  cuptiActivityRegisterCallbacks(requested, completed);
  if (records == "nothing") return 1;
  if (records != "nodes") cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  for (CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_DEVICE, CUPTI_ACTIVITY_KIND_CONTEXT, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_OVERHEAD, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL})
    cuptiActivityEnable(kind);
  for (uint32_t id = 1; id < 1200; id++) {
    const char *name = nullptr;
    if (cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, id, &name) == CUPTI_SUCCESS && name && wanted(name))
      cuptiActivityEnableRuntimeApi(id, 1);
    if (cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) == CUPTI_SUCCESS && name && wanted(name))
      cuptiActivityEnableDriverApi(id, 1);
  }
  std::atexit(at_exit);
  const char *period = std::getenv("FLOOR_FLUSH_MS");
  if (period != nullptr && std::atoi(period) > 0) std::thread(flush_every, std::chrono::milliseconds(std::atoi(period))).detach();
  return 1;
}
