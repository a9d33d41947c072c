// An injected library that does parts of what libprof.so does while it waits for its first capture, to tell what each of
// them costs a launch. WAITING_PARTS names them, with commas; nothing is recorded that anybody looks at.
//
//   subscribe     the subscriber, with the callback that libprof.so has for new contexts
//   profiler      and callbacks for cudaProfilerStart and cudaProfilerStop, in both domains
//   door          buffer callbacks, and one API function of each domain that programs hardly call
//   descriptions  records of devices and contexts
//   links         records of links, which libprof.so never asks for
//   thread        a thread that wakes up ten times a second
#include <cupti.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <thread>

namespace {

void requested(uint8_t **buffer, size_t *bytes, size_t *records) {
  *bytes = 1 << 20;
  *buffer = static_cast<uint8_t *>(std::aligned_alloc(8, *bytes));
  *records = 0;
}

void completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t) { std::free(buffer); }

void called(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *) {}

bool has(const char *part) {
  const char *parts = std::getenv("WAITING_PARTS");
  return parts != nullptr && std::strstr(parts, part) != nullptr;
}

// Calls `use` with each function whose name begins so.
template <typename Use>
void functions(CUpti_CallbackDomain domain, const char *beginning, Use use) {
  for (uint32_t id = 1; id < 1200; id++) {
    const char *name = nullptr;
    if (cuptiGetCallbackName(domain, id, &name) == CUPTI_SUCCESS && name != nullptr &&
        std::strncmp(name, beginning, std::strlen(beginning)) == 0)
      use(id);
  }
}

}  // namespace

extern "C" int InitializeInjection() {
  static CUpti_SubscriberHandle subscriber;
  if (has("subscribe") || has("profiler")) {
    cuptiSubscribe(&subscriber, called, nullptr);
    cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
  }
  if (has("profiler")) {
    auto listen = [](CUpti_CallbackDomain domain) {
      return [domain](uint32_t id) { cuptiEnableCallback(1, subscriber, domain, id); };
    };
    functions(CUPTI_CB_DOMAIN_RUNTIME_API, "cudaProfilerSt", listen(CUPTI_CB_DOMAIN_RUNTIME_API));
    functions(CUPTI_CB_DOMAIN_DRIVER_API, "cuProfilerSt", listen(CUPTI_CB_DOMAIN_DRIVER_API));
  }
  if (has("door") || has("descriptions") || has("links")) cuptiActivityRegisterCallbacks(requested, completed);
  if (has("door")) {
    functions(CUPTI_CB_DOMAIN_RUNTIME_API, "cudaProfilerStop", [](uint32_t id) { cuptiActivityEnableRuntimeApi(id, 1); });
    functions(CUPTI_CB_DOMAIN_DRIVER_API, "cuProfilerStop", [](uint32_t id) { cuptiActivityEnableDriverApi(id, 1); });
  }
  if (has("descriptions")) {
    for (CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_DEVICE, CUPTI_ACTIVITY_KIND_CONTEXT}) cuptiActivityEnable(kind);
  }
  if (has("links")) cuptiActivityEnable(CUPTI_ACTIVITY_KIND_PCIE);
  if (has("thread")) {
    std::thread([] {
      for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }).detach();
  }
  return 1;
}
