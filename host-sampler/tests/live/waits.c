/* Threads that wait in known functions with known callers, built without frame pointers. A plugin without symbols is
   loaded, and unloaded at the first line of input. Prints its threads like the Python programs. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALONE __attribute__((noipa))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int pipes[2];
static void (*plugin)(void (*)(void));
volatile int sink;

ALONE void in_futex(void) {
    pthread_mutex_lock(&lock);
    for (;;) pthread_cond_wait(&never, &lock);
}
ALONE void in_read(void) {
    char byte;
    while (read(pipes[0], &byte, 1) != 1) sink++;
    sink++;
}
ALONE void in_sleep(void) {
    struct timespec time = {1000, 0};
    while (nanosleep(&time, 0)) sink++;
    sink++;
}
ALONE void inner(void (*wait)(void)) { wait(); sink++; }
ALONE void middle(void (*wait)(void), double a, int b) { volatile double kept[40]; kept[b] = a; inner(wait); sink += (int)kept[b]; }
ALONE void outer(void (*wait)(void)) { middle(wait, 1.5, 3); sink++; }
/* The frame size is unknown, so the caller can only be found through rbp. */
ALONE void with_alloca(void (*wait)(void), int size) { char *bytes = alloca(size); memset(bytes, 1, size); inner(wait); sink += bytes[size / 2]; }
ALONE void in_alloca(void) { in_sleep(); sink++; }
ALONE void in_plugin(void) { in_sleep(); sink++; }

static void say(const char *name) {
    static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&printing);
    printf("%s %ld\n", name, syscall(SYS_gettid));
    pthread_mutex_unlock(&printing);
}

static void *futex_thread(void *none) { say("in_futex"); outer(in_futex); return none; }
static void *read_thread(void *none) { say("in_read"); outer(in_read); return none; }
static void *sleep_thread(void *none) { say("in_sleep"); outer(in_sleep); return none; }
static void *alloca_thread(void *none) { say("in_alloca"); with_alloca(in_alloca, 64 + (int)sizeof(long)); return none; }
static void *plugin_thread(void *none) { say("in_plugin"); plugin(in_read); say("back"); outer(in_sleep); return none; }

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IOLBF, 0);
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
    if (!library || pipe(pipes)) return 1;
    plugin = (void (*)(void (*)(void)))dlsym(library, "plugin_entry");
    void *(*threads[])(void *) = {futex_thread, read_thread, sleep_thread, alloca_thread, plugin_thread};
    for (int index = 0; index < 5; index++) {
        pthread_t thread;
        if (index == 1) continue; /* The plugin has the only reader. */
        if (pthread_create(&thread, 0, threads[index], 0)) return 1;
    }
    usleep(100000);
    puts(".");
    getchar();
    if (write(pipes[1], "x", 1) != 1) return 1;
    usleep(100000);
    dlclose(library);
    pthread_t reader;
    pthread_create(&reader, 0, read_thread, 0);
    usleep(100000);
    puts(".");
    getchar();
    return 0;
}
