// A driver with one device, for gpuwhy's queries about a device that CUPTI has not described. The replay library gets
// a callback for the one call that gpuwhy repeats, as CUPTI does.
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int cuDriverGetVersion(int *version) {
    const char *path = getenv("GPUWHY_CUPTI_PATH");
    void *replay = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void (*called)(const char *) = replay ? (void (*)(const char *))dlsym(replay, "gpuwhy_replay_call_aside") : NULL;
    if (called) called("cuDriverGetVersion");
    *version = 13000;
    return 0;
}
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal != 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 150ul << 30; return device; }
int cuDeviceGetUuid(unsigned char *uuid, int device) { memset(uuid, 0x5a, 16); return device; }

int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active) {
    *flags = 0;
    *active = 1;
    return device;
}

int cuDeviceGetName(char *name, int length, int device) {
    strncpy(name, "NVIDIA Test Device", length);
    return device;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 16: *value = 132; break;
    case 39: *value = 2048; break;
    case 75: *value = 9; break;
    case 81: *value = 233472; break;
    case 82: *value = 65536; break;
    case 106: *value = 32; break;
    default: return 1;
    }
    return device;
}
