/* C lesson 1: a session around the raw driver API. Bottleneck: gpu_compute, with every kernel in the report.
 *
 *   cc 01_first_session.c -I../../capi/include -L../../target/release -lgpuwhy_c -ldl -Wl,-rpath,../../target/release
 *
 * The same as lesson 1 in Rust, in plain C: gpuwhy.h together with cuLaunchKernel. The driver is loaded at run time, so
 * neither compiling nor running this needs a CUDA toolkit; a program that includes cuda.h or uses the runtime API makes
 * the same calls. Exits with 0 if it shows the expected result, with 1 if not, and with 2 if it cannot run. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuwhy.h"

enum { KERNELS = 2000, WAIT_EVERY = 100 };

/* Keeps its multiprocessor busy for a number of cycles; every driver compiles it for its device. */
static const char *const spin =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u64 cycles)\n{\n"
    ".reg .pred %goes_on;\n.reg .u64 %limit, %begin, %now;\n"
    "ld.param.u64 %limit, [cycles];\nmov.u64 %begin, %clock64;\n"
    "AGAIN:\nmov.u64 %now, %clock64;\nsub.u64 %now, %now, %begin;\n"
    "setp.lt.u64 %goes_on, %now, %limit;\n@%goes_on bra AGAIN;\nret;\n}\n";

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(2);
}

/* Checks a call of gpuwhy: 0, or an error whose reason can be queried. */
static void profiler(const char *what, enum gpuwhy_status status) {
    if (status != GPUWHY_OK) {
        char why[4096];
        gpuwhy_last_error(why, sizeof why);
        fail(what, why);
    }
}

static void cuda(const char *what, int result) {
    if (result != 0) {
        char why[64];
        snprintf(why, sizeof why, "error %d of the CUDA driver", result);
        fail(what, why);
    }
}

static void *driver;

/* Converted through a pointer to the pointer, as POSIX recommends for dlsym. */
static void find(const char *name, void *function) {
    *(void **)function = dlsym(driver, name);
    if (*(void **)function == NULL) {
        fail(name, "not in libcuda.so.1");
    }
}

static void work(void) {
    int (*init)(unsigned);
    int (*get_device)(int *, int);
    int (*retain)(void **, int);
    int (*set_current)(void *);
    int (*load)(void **, const void *);
    int (*get_function)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    int (*synchronize)(void);
    find("cuInit", &init);
    find("cuDeviceGet", &get_device);
    find("cuDevicePrimaryCtxRetain", &retain);
    find("cuCtxSetCurrent", &set_current);
    find("cuModuleLoadData", &load);
    find("cuModuleGetFunction", &get_function);
    find("cuLaunchKernel", &launch);
    find("cuCtxSynchronize", &synchronize);

    int device;
    void *context, *module, *function;
    cuda("cuInit", init(0));
    cuda("cuDeviceGet", get_device(&device, 0));
    cuda("cuDevicePrimaryCtxRetain", retain(&context, device));
    cuda("cuCtxSetCurrent", set_current(context));
    cuda("cuModuleLoadData", load(&module, spin));
    cuda("cuModuleGetFunction", get_function(&function, module, "spin"));
    profiler("gpuwhy_range_push", gpuwhy_range_push("kernels"));
    for (int kernel = 1; kernel <= KERNELS; kernel++) {
        unsigned long long cycles = 150000; /* about 100 us */
        void *parameters[] = {&cycles};
        cuda("cuLaunchKernel", launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        if (kernel % WAIT_EVERY == 0) {
            cuda("cuCtxSynchronize", synchronize());
        }
    }
    profiler("gpuwhy_range_pop", gpuwhy_range_pop());
}

static char *report(size_t (*make)(char *, size_t)) {
    size_t size = make(NULL, 0) + 1;
    char *text = malloc(size);
    if (text == NULL) {
        fail("report", "out of memory");
    }
    make(text, size);
    return text;
}

static int promise(const char *what, int holds) {
    printf("%s: %s\n", holds ? "as promised" : "not as promised", what);
    return holds;
}

int main(void) {
    profiler("gpuwhy_start", gpuwhy_start(NULL)); /* before the first CUDA call */
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fail("no CUDA driver", dlerror());
    }
    work();
    profiler("gpuwhy_stop", gpuwhy_stop());

    char *text = report(gpuwhy_report_text), *json = report(gpuwhy_report_json), records[32];
    puts(text);
    snprintf(records, sizeof records, "\"kernels\":%d,", KERNELS);
    int kept = promise("the bottleneck is gpu_compute", strstr(json, "\"bottleneck\":{\"cause\":\"gpu_compute\"") != NULL);
    kept &= promise("every kernel is in the report", strstr(json, records) != NULL);
    kept &= promise("the range is in the report", strstr(json, "\"message\":\"kernels\"") != NULL);
    free(text);
    free(json);
    return kept ? 0 : 1;
}
