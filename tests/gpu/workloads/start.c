// How long a profiler's library takes to load and to hook in, before the first CUDA call of a program.
//
//   cc -O2 -o start start.c -ldl [-lcupti]
//   start LIBRARY
//
// Linked with CUPTI, that is loaded when the program starts and is not in the figures. It prints nanoseconds: loading
// LIBRARY, and its InitializeInjection, which is what the CUDA driver calls within cuInit.
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int count, char **words) {
    if (count != 2) {
        fprintf(stderr, "start: give the library, as in: start libprof.so\n");
        return 2;
    }
    const long long begin = now();
    void *library = dlopen(words[1], RTLD_NOW);
    const long long loaded = now();
    if (!library) {
        fprintf(stderr, "start: %s\n", dlerror());
        return 1;
    }
    int (*initialize)(void) = (int (*)(void))dlsym(library, "InitializeInjection");
    const int answer = initialize ? initialize() : 0;
    const long long hooked = now();
    printf("load_ns=%lld hook_ns=%lld answer=%d\n", loaded - begin, hooked - loaded, answer);
    fflush(stdout);
    return answer == 1 ? 0 : 1;
}
