/* A program in C that measures a part of itself. Its GPU is the replay library, which libgpuprof_c.so has loaded. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuprof.h"

static void expect(const char *what, enum gpuprof_status status, enum gpuprof_status expected) {
    if (status != expected) {
        char why[4096];
        gpuprof_last_error(why, sizeof why);
        fprintf(stderr, "%s answered %d, expected %d: %s\n", what, status, expected, why);
        exit(1);
    }
}

/* Lets the recording go on to this time. */
static void play_until(uint64_t nanoseconds) {
    void *replay = dlopen(getenv("GPUPROF_CUPTI_PATH"), RTLD_LAZY | RTLD_NOLOAD);
    int (*play)(uint64_t) = 0;
    if (replay) {
        *(void **)&play = dlsym(replay, "gpuprof_replay_play");
    }
    if (!play || play(nanoseconds) != 0) {
        fprintf(stderr, "nothing is played\n");
        exit(1);
    }
}

static void repetition(void *at) {
    *(uint64_t *)at += 20000000;
    play_until(*(uint64_t *)at);
}

/* Its parts that count are 20 ms of the recording each. */
static int bench(void) {
    char json[1024], text[1024];
    uint64_t at = 0;
    expect("prepare", gpuprof_prepare(), GPUPROF_OK);
    expect("bench of nothing", gpuprof_bench("none", 0, 0, 0, 0, NULL, NULL), GPUPROF_NOT_MEASURED);
    expect("bench", gpuprof_bench("recorded", 10, 0, 1 << 20, 1e6, repetition, &at), GPUPROF_OK);
    if (gpuprof_bench_json(json, sizeof json) >= sizeof json || !gpuprof_bench_text(text, sizeof text)) {
        return 1;
    }
    fputs(text, stderr);
    puts(json);
    return 0;
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "--without-cupti") == 0) {
        char why[4096];
        expect("start", gpuprof_start(NULL), GPUPROF_NO_CUPTI);
        puts(gpuprof_last_error(why, sizeof why) < sizeof why ? why : "cut");
        return 0;
    }
    if (count > 1 && strcmp(arguments[1], "--bench") == 0) {
        return bench();
    }
    expect("pop", gpuprof_range_pop(), GPUPROF_NOT_OPEN);
    expect("start", gpuprof_start("part.gpuprof"), GPUPROF_OK);
    expect("start again", gpuprof_start(NULL), GPUPROF_BUSY);
    expect("push", gpuprof_range_push("part"), GPUPROF_OK);
    expect("step", gpuprof_step(), GPUPROF_OK);
    expect("bench in a session", gpuprof_bench("", 1, 0, 0, 0, repetition, NULL), GPUPROF_BUSY);
    play_until(UINT64_MAX);
    expect("pop", gpuprof_range_pop(), GPUPROF_OK);
    expect("flush", gpuprof_flush(), GPUPROF_OK);
    expect("stop", gpuprof_stop(), GPUPROF_OK);
    expect("stop again", gpuprof_stop(), GPUPROF_NOT_OPEN);

    size_t length = gpuprof_report_json(NULL, 0);
    char *json = malloc(length + 1);
    if (!json || gpuprof_report_json(json, length + 1) != length || strlen(json) != length) {
        return 1;
    }
    puts(json);
    char little[8];
    if (gpuprof_report_text(little, sizeof little) < 100 || strlen(little) != 7) {
        return 1;
    }
    free(json);
    return 0;
}
