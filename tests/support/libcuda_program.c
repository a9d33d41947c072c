// A driver for the program of a calibration: calls succeed and launch nothing. Like the real one, cuInit loads the
// library that CUDA_INJECTION64_PATH names; CUPTI's data about the device then come from a recording.
#include "libcuda.c"
#include <stdio.h>

int cuInit(unsigned int flags) {
    if (getenv("NO_DEVICE")) return 100;
    const char *library = getenv("CUDA_INJECTION64_PATH");
    if (!library) return 0;
    void *profiler = dlopen(library, RTLD_NOW);
    int (*initialize)(void) = profiler ? (int (*)(void))dlsym(profiler, "InitializeInjection") : NULL;
    if (!initialize || initialize() != 1) return 999;
    const char *path = getenv("GPUWHY_CUPTI_PATH");
    void *replay = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    int (*play)(unsigned long) = replay ? (int (*)(unsigned long))dlsym(replay, "gpuwhy_replay_play") : NULL;
    if (play && !getenv("NO_RECORDS")) play(~0ul);
    return 0;
}

static int handle(void **made) {
    static int things[64];
    static unsigned next;
    *made = &things[next++ % 64];
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) { return handle(context) + device; }
int cuCtxSetCurrent(void *context) { return context == NULL; }
int cuModuleLoadData(void **module, const void *image) { return image ? handle(module) : 1; }
int cuModuleGetFunction(void **kernel, void *module, const char *name) {
    return module && strstr((const char *)name, "gpuwhy_") ? handle(kernel) : 500;
}
int cuStreamCreate(void **stream, unsigned int flags) { return handle(stream); }
int cuMemAlloc_v2(unsigned long *address, size_t bytes) { *address = 4096; return 0; }
int cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags) { return (*memory = malloc(bytes)) == NULL; }

int cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    if (getenv("FAILS_AT_LAUNCH")) return 719;
    return kernel == NULL || stream == NULL || gx * gy * gz * bx * by * bz != 1;
}
int cuStreamSynchronize(void *stream) { return stream == NULL; }
int cuMemcpyHtoDAsync_v2(unsigned long to, const void *from, size_t bytes, void *stream) { return from == NULL; }
int cuMemsetD32Async(unsigned long to, unsigned value, size_t count, void *stream) { return to == 0; }
int cuStreamBeginCapture_v2(void *stream, int mode) { return stream == NULL; }
int cuStreamEndCapture(void *stream, void **graph) { return handle(graph); }
int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long flags) { return graph ? handle(made) : 1; }
int cuGraphLaunch(void *graph, void *stream) { return graph == NULL || stream == NULL; }
