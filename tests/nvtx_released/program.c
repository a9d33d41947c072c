/* A C program with NVTX's own header. It loads the profiler itself instead of the CUDA driver, and uses the replay
 * library instead of a GPU. */
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 8
#define STEPS 100

static nvtxDomainHandle_t domain;
static nvtxStringHandle_t registered;

/* The first use of NVTX, by all threads at once. */
static void *work(void *ignored) {
    (void)ignored;
    for (int step = 0; step < STEPS; ++step) {
        if (nvtxRangePushA("step") != 0) abort();
        if (nvtxRangePushW(L"gr\u00f6\u00dfe") != 1) abort();
        if (nvtxRangePop() != 1 || nvtxRangePop() != 0 || nvtxRangePop() >= 0) abort();
    }
    return NULL;
}

static void *function(const char *library, const char *name) {
    void *handle = dlopen(getenv(library), RTLD_LAZY);
    void *found = handle ? dlsym(handle, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return found;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; ++at) pthread_create(&threads[at], NULL, work, NULL);
    for (int at = 0; at < THREADS; ++at) pthread_join(threads[at], NULL);

    nvtxRangeId_t whole = nvtxRangeStartA("whole");
    if (((int (*)(void))function("CUDA_INJECTION64_PATH", "InitializeInjection"))() != 1) return 3;
    if (((int (*)(uint64_t))function("GPUWHY_CUPTI_PATH", "gpuwhy_replay_play"))(UINT64_MAX) != 0) return 4;

    domain = nvtxDomainCreateA("library");
    registered = nvtxDomainRegisterStringA(domain, "registered");
    nvtxDomainNameCategoryA(domain, 5, "category");
    nvtxEventAttributes_t event = {0};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.category = 5;
    event.colorType = NVTX_COLOR_ARGB;
    event.color = 0xff336699;
    event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    event.payload.dValue = 0.25;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = registered;
    nvtxDomainMarkEx(domain, &event);
    nvtxNameOsThreadA(1, "ignored");
    nvtxRangeEnd(whole);
    return 0;
}
