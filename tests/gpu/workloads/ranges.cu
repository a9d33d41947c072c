// Says what it does through NVTX as C programs do: the header's own copy, with a domain, a registered string, a category
// and a payload. Prints the JSON object that ranges.py prints.
#include <chrono>
#include <cstdio>

#include <nvtx3/nvToolsExt.h>

__global__ void increment(float *value) { *value += 1.0f; }

static const int STEPS = 1000;
static const int BURST = 10000;

int main() {
    nvtxRangePushA("before CUDA");
    nvtxRangePop();
    float *value;
    if (cudaMalloc(&value, sizeof *value) != cudaSuccess) return 1;
    nvtxDomainHandle_t domain = nvtxDomainCreateA("checks");
    nvtxStringHandle_t name = nvtxDomainRegisterStringA(domain, "registered");
    nvtxDomainNameCategoryA(domain, 3, "category");
    nvtxEventAttributes_t event = {0};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.category = 3;
    event.colorType = NVTX_COLOR_ARGB;
    event.color = 0xff00ff00;
    event.payloadType = NVTX_PAYLOAD_TYPE_INT32;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = name;
    for (int step = 0; step < STEPS; ++step) {
        event.payload.iValue = -step;
        nvtxDomainRangePushEx(domain, &event);
        nvtxRangePushW(L"wide");
        nvtxRangeId_t whole = nvtxRangeStartA("whole");
        increment<<<1, 1>>>(value);
        nvtxMarkA("launched");
        nvtxRangeEnd(whole);
        nvtxRangePop();
        nvtxDomainRangePop(domain);
    }
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    auto began = std::chrono::steady_clock::now();
    for (int pair = 0; pair < BURST; ++pair) {
        nvtxRangePushA("cost");
        nvtxRangePop();
    }
    std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - began;
    printf("{\"counts\": {\"push before CUDA\": 1, \"push registered\": %d, \"push wide\": %d, \"start whole\": %d, "
           "\"mark launched\": %d, \"push cost\": %d}, \"pair_ns\": %.1f, \"package\": true}\n",
           STEPS, STEPS, STEPS, STEPS, BURST, spent.count() / BURST);
    return 0;
}
