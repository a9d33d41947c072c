// A CUDA program with one behavior that is difficult for a library inside it. It loads libprof.so as the driver does, uses
// the replay library as the GPU, and exits with 7 if it found no fault. libprof.so must print nothing else. Faults go to
// the file `wrong`, because stderr may be closed.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OK = 7, WRONG = 8, MIDDLE_MS = 600 };
#define END (~0ul)

static int (*replay_play)(unsigned long);
static int (*replay_counts)(unsigned long *);
static void *profiler;

static void wrong(const char *what) {
    int file = open("wrong", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dprintf(file, "%s (errno %d)\n", what, errno);
    _exit(WRONG);
}
static void must(int right, const char *what) {
    if (!right) wrong(what);
}

static void init(void) {
    profiler = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_LAZY);
    must(profiler != NULL, "libprof.so is loaded");
    int (*initialize)(void) = (int (*)(void))dlsym(profiler, "InitializeInjection");
    must(initialize && initialize() == 1, "libprof.so is initialized");
    void *replay = dlopen(getenv("GPUWHY_CUPTI_PATH"), RTLD_LAZY);
    must(replay != NULL, "the replay library is loaded");
    replay_play = (int (*)(unsigned long))dlsym(replay, "gpuwhy_replay_play");
    replay_counts = (int (*)(unsigned long *))dlsym(replay, "gpuwhy_replay_counts");
    must(replay_play && replay_counts, "the replay library is complete");
}
static void play(unsigned long until_ms) {
    must(replay_play(until_ms == END ? END : until_ms * 1000000ul) == 0, "the recording is played");
}
static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time)) {}
}

// The thread of this process with that name, or 0.
static int thread_called(const char *name) {
    DIR *tasks = opendir("/proc/self/task");
    int found = 0;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char path[300], text[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
        close(file);
        text[strcspn(text, "\n")] = 0;
        if (!strcmp(text, name)) found = atoi(entry->d_name);
    }
    closedir(tasks);
    return found;
}
static double cpu_seconds(int thread) {
    struct timespec time;
    must(clock_gettime((clockid_t)((~(unsigned)thread << 3) | 6), &time) == 0, "the clock of a thread is read");
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static int create(const char *name) {
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    must(file >= 0, "a file is opened");
    return file;
}
static void holds(const char *name, const char *text) {
    char found[65536] = "";
    int file = open(name, O_RDONLY);
    must(file >= 0 && read(file, found, sizeof found - 1) >= 0, "the file is read");
    close(file);
    must(!strcmp(found, text), name);
}

// Started without standard streams; files opened later get their numbers.
static void closed_streams(void) {
    for (int stream = 0; stream < 3; stream++) close(stream);
    init();
    play(MIDDLE_MS);
    // A thread of the library that opens a file uses one of these numbers for a moment, until it moves the file up.
    for (int stream = 0; stream < 3; stream++)
        for (int tries = 0; fcntl(stream, F_GETFD) != -1; tries++) {
            must(tries < 3000, "no stream is a file of the library's");
            pause_ms(1);
        }
    const char *names[] = {"zero", "one", "two"};
    for (int stream = 0, tries = 0; stream < 3; tries++) {
        must(tries < 3000, "the streams are the program's files");
        int file = create(names[stream]);
        if (file == stream) stream++;
        else close(file), pause_ms(1);
    }
    for (int line = 0; line < 200; line++) puts("out");
    fprintf(stderr, "error\n");
    fflush(stdout);
    play(END);
}

// Plays a part of the recording, and waits until the library has opened its file.
static void play_until_trace(void) {
    play(MIDDLE_MS);
    struct stat trace = {0};
    for (int tries = 0; stat("trace.gpuwhy", &trace) || trace.st_size == 0; tries++) {
        must(tries < 3000, "there is a trace with its header");
        pause_ms(10);
    }
}

// Closes all unknown descriptors, as daemons do, and opens other files.
static void closes_all(void) {
    init();
    play_until_trace();
    for (int file = 3; file < 256; file++) close(file);
    char name[32];
    int files[32];
    for (int at = 0; at < 32; at++) {
        snprintf(name, sizeof name, "data%d", at);
        files[at] = create(name);
        must(write(files[at], "DATA", 4) == 4, "the program writes");
    }
    for (int tries = 0; thread_called("gpuwhy-control"); tries++) {
        must(tries < 3000, "without its socket the control thread ends");
        pause_ms(10);
    }
    play(END);
    pid_t child = fork();
    if (child == 0) {
        for (int at = 0; at < 32; at++) {
            if (fcntl(files[at], F_GETFD) == -1) _exit(1);
        }
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    must(status == 0, "a child has all files of its parent");
    for (int at = 0; at < 32; at++) {
        must(fcntl(files[at], F_GETFD) != -1, "the program's files stay open");
        snprintf(name, sizeof name, "data%d", at);
        holds(name, "DATA");
    }
}

// Has no free descriptor while a client waits to be accepted.
static void no_descriptor_left(void) {
    init();
    play_until_trace();
    int control = thread_called("gpuwhy-control");
    must(control != 0, "there is a control thread");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%d.sock", getenv("GPUWHY_CONTROL"), getpid());
    struct rlimit limit = {64, 64};
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0, "descriptors are limited");
    int all[64], count = 0;
    // Files that our other threads open for a moment may be missing at first.
    for (int tries = 0; tries < 300; tries++) {
        for (int file; count < 64 && (file = open("/dev/null", O_RDONLY)) >= 0;) all[count++] = file;
        pause_ms(1);
    }
    must(count > 1, "descriptors are taken");
    close(all[--count]);
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    must(client >= 0 && connect(client, (struct sockaddr *)&address, sizeof address) == 0, "the socket is there");
    // CPU time that a thread which never sleeps would have had in the meantime, independent of the load of this machine.
    double before = cpu_seconds(control), own = cpu_seconds(gettid());
    while (cpu_seconds(gettid()) - own < 0.5) {}
    must(cpu_seconds(control) - before < 0.1, "the control thread rests");
    while (count > 0) close(all[--count]);
    char answer[16];
    must(write(client, "status\n", 7) == 7, "a command is sent");
    for (int tries = 0; read(client, answer, sizeof answer) <= 0; tries++) {
        must(tries < 3000, "it is answered once there are descriptors again");
        pause_ms(10);
    }
    play(END);
}

// Forks a child without the C library.
static void fork_unseen(int how) {
    init();
    play(MIDDLE_MS);
    fflush(NULL);
    pid_t child = how ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) exit(3);
    int status = -1;
    waitpid(child, &status, 0);
    must(WIFEXITED(status) && WEXITSTATUS(status) == 3, "the child's exit code is its own");
    play(END);
}

// System calls that kill the process, or are refused.
static void filter(unsigned first, unsigned second, unsigned answer) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof program / sizeof *program, program};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &all) == 0, "a filter is set");
}
static void no_connections(void) {
    init();
    play(MIDDLE_MS);
    filter(SYS_accept4, SYS_accept, SECCOMP_RET_KILL_PROCESS);
    // Longer than any wait of the control thread.
    pause_ms(1200);
    play(END);
}
static void no_threads(void) {
    filter(SYS_clone, SYS_clone3, SECCOMP_RET_ERRNO | EAGAIN);
    init();
    play(END);
    struct { unsigned long delivered, left_out, dropped, buffers, more[60]; } counts = {0};
    must(replay_counts((unsigned long *)&counts) == 0, "the records are counted");
    must(counts.left_out > 0, "there would have been some");
    must(counts.delivered + counts.dropped + counts.buffers == 0, "nothing of CUPTI's is on");
}

// Closes the library that the driver has opened, when measuring has ended and none of its threads is left to keep it.
static void *starts(void *unused) {
    (void)unused;
    init();
    play(MIDDLE_MS);
    return NULL;
}
static void unloads(void) {
    pthread_t other;
    must(pthread_create(&other, NULL, starts, NULL) == 0 && pthread_join(other, NULL) == 0, "a thread starts and ends");
    const char *names[] = {"gpuwhy-flush", "gpuwhy-sample", "gpuwhy-collect", "gpuwhy-finish"};
    for (int at = 0; at < 4; at++) {
        for (int tries = 0; thread_called(names[at]); tries++) {
            must(tries < 3000, "measuring ends");
            pause_ms(10);
        }
    }
    for (int times = 0; times < 3; times++) dlclose(profiler);
    must(dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_LAZY | RTLD_NOLOAD) != NULL, "the library stays");
    play(END);
}

// Leaves this number of MiB below the limit of its address space.
static void limit_memory(unsigned long mebibytes) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    must(file && fscanf(file, "%lu", &pages) == 1, "the address space is known");
    fclose(file);
    rlim_t bytes = pages * (unsigned long)sysconf(_SC_PAGESIZE) + (mebibytes << 20);
    struct rlimit limit = {bytes, bytes};
    must(setrlimit(RLIMIT_AS, &limit) == 0, "memory is limited");
}
static void memory_runs_out(void) {
    init();
    play(MIDDLE_MS);
    // Records decoded earlier are in the trace; on a busy machine that happens after the play.
    for (int tries = 0; access(getenv("GPUWHY_OUTPUT"), F_OK) != 0; tries++) {
        must(tries < 3000, "the trace begins");
        pause_ms(10);
    }
    limit_memory(2);
    play(END);
}
static void little_memory(void) {
    limit_memory(100);
    init();
    play(END);
}

// Initializes the library on a thread with its own stack, and writes to the file `stack` how many bytes that took.
static int (*initialize)(void);
static void *initializes(void *unused) {
    (void)unused;
    must(initialize() == 1, "libprof.so is initialized");
    return NULL;
}
static void small_stack(void) {
    enum { STACK = 1 << 20 };
    profiler = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_LAZY);
    must(profiler != NULL, "libprof.so is loaded");
    initialize = (int (*)(void))dlsym(profiler, "InitializeInjection");
    unsigned char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(stack != MAP_FAILED, "there is a stack");
    memset(stack, 0xab, STACK);
    pthread_attr_t with;
    must(pthread_attr_init(&with) == 0 && pthread_attr_setstack(&with, stack, STACK) == 0, "the stack is taken");
    pthread_t other;
    must(pthread_create(&other, &with, initializes, NULL) == 0 && pthread_join(other, NULL) == 0, "it is initialized");
    int untouched = 0;
    while (stack[untouched] == 0xab) untouched++;
    FILE *file = fopen("stack", "w");
    must(file && fprintf(file, "%d", STACK - untouched) > 0 && fclose(file) == 0, "the size is written");
    init();
    play(END);
}
static void privileged(void) {
    if (getauxval(AT_SECURE) == 0) must(creat("unprivileged", 0600) >= 0, "the file is made");
    init();
}

int main(int count, char **arguments) {
    const char *habit = count > 1 ? arguments[1] : "";
    if (!strcmp(habit, "closed-streams")) closed_streams();
    else if (!strcmp(habit, "closes-all")) closes_all();
    else if (!strcmp(habit, "no-descriptor-left")) no_descriptor_left();
    else if (!strcmp(habit, "clone")) fork_unseen(0);
    else if (!strcmp(habit, "_Fork")) fork_unseen(1);
    else if (!strcmp(habit, "no-connections")) no_connections();
    else if (!strcmp(habit, "no-threads")) no_threads();
    else if (!strcmp(habit, "unloads")) unloads();
    else if (!strcmp(habit, "memory-runs-out")) memory_runs_out();
    else if (!strcmp(habit, "little-memory")) little_memory();
    else if (!strcmp(habit, "small-stack")) small_stack();
    else if (!strcmp(habit, "privileged")) privileged();
    else wrong("no such habit");
    return OK;
}
