/* A program without Python that loads the profiler as the driver does and plays a recorded session, while its first
   thread spins, sleeps, and runs code of a library that is loaded and unloaded each time. With DENY it blocks perf
   events for itself, as containers do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALONE __attribute__((noipa))

static volatile int over;
volatile int sink;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

ALONE void spin(void) { for (double end = now() + 0.1; now() < end;) for (int i = 0; i < 10000; i++) sink++; }
ALONE void rest(void) { usleep(50000); sink++; }
ALONE void inner(void (*work)(void)) { work(); sink++; }
ALONE void middle(void (*work)(void)) { inner(work); sink++; }
ALONE void outer(void (*work)(void)) { middle(work); sink++; }

static void *play(void *none) {
    void *replay = dlopen(getenv("GPUWHY_CUPTI_PATH"), RTLD_NOW);
    ((void (*)(uint64_t))dlsym(replay, "gpuwhy_replay_play"))(strtoull(getenv("UNTIL"), 0, 10));
    over = 1;
    return none;
}

static void deny(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) exit(3);
}

int main(void) {
    if (getenv("DENY")) deny();
    void *injection = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
    if (!injection) return 1;
    ((int (*)(void))dlsym(injection, "InitializeInjection"))();
    pthread_t player;
    pthread_create(&player, 0, play, 0);
    while (!over) {
        outer(spin);
        outer(rest);
        void *plugin = dlopen(getenv("PLUGIN"), RTLD_NOW);
        if (!plugin) return 2;
        ((void (*)(void (*)(void)))dlsym(plugin, "plugin_entry"))(spin);
        dlclose(plugin);
    }
    pthread_join(player, 0);
    return 0;
}
