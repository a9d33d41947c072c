/* A C program that measures a part of itself. Its GPU is the replay library, which libgpuwhy_c.so has loaded. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuwhy.h"

static void expect(const char *what, enum gpuwhy_status status, enum gpuwhy_status expected) {
    if (status != expected) {
        char why[4096];
        gpuwhy_last_error(why, sizeof why);
        fprintf(stderr, "%s answered %d, expected %d: %s\n", what, status, expected, why);
        exit(1);
    }
}

/* Plays the recording up to this time. */
static void play_until(uint64_t nanoseconds) {
    void *replay = dlopen(getenv("GPUWHY_CUPTI_PATH"), RTLD_LAZY | RTLD_NOLOAD);
    int (*play)(uint64_t) = 0;
    if (replay) {
        *(void **)&play = dlsym(replay, "gpuwhy_replay_play");
    }
    if (!play || play(nanoseconds) != 0) {
        fprintf(stderr, "nothing is played\n");
        exit(1);
    }
}

static volatile int goes_on = 1;

static void *use(void *what) {
    char text[64];
    while (goes_on) {
        switch ((intptr_t)what) {
        case 0: gpuwhy_start(NULL); gpuwhy_stop(); break;
        case 1: gpuwhy_step(); gpuwhy_range_push("part"); gpuwhy_range_pop(); break;
        case 2: gpuwhy_flush(); gpuwhy_report_json(text, sizeof text); break;
        default: gpuwhy_last_error(text, sizeof text);
        }
    }
    return NULL;
}

/* Threads use all functions while children are forked, which inherit the locks that are held at that time. */
static int forks(void) {
    pthread_t threads[8];
    expect("prepare", gpuwhy_prepare(), GPUWHY_OK);
    for (intptr_t index = 0; index < 8; index++) {
        pthread_create(&threads[index], NULL, use, (void *)(index % 4));
    }
    int bad = 0;
    for (int index = 0; index < 200; index++) {
        pid_t child = fork();
        if (child == 0) {
            char text[256];
            /* Longer than any call takes: a lock that is never released. */
            alarm(60);
            int refused = gpuwhy_stop() == GPUWHY_NOT_OPEN && gpuwhy_start(NULL) == GPUWHY_NOT_OPEN;
            refused &= gpuwhy_prepare() == GPUWHY_NOT_OPEN && gpuwhy_flush() != GPUWHY_OK;
            gpuwhy_step();
            gpuwhy_range_push("part");
            gpuwhy_range_pop();
            gpuwhy_report_text(text, sizeof text);
            refused &= gpuwhy_last_error(text, sizeof text) > 0;
            _exit(refused ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0) {
            fprintf(stderr, "child %d ended with %x\n", index, status);
            bad = 1;
            break;
        }
    }
    goes_on = 0;
    for (int index = 0; index < 8; index++) {
        pthread_join(threads[index], NULL);
    }
    return bad;
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "--without-cupti") == 0) {
        char why[4096];
        expect("start", gpuwhy_start(NULL), GPUWHY_NO_CUPTI);
        puts(gpuwhy_last_error(why, sizeof why) < sizeof why ? why : "cut");
        return 0;
    }
    if (count > 1 && strcmp(arguments[1], "--fork") == 0) {
        return forks();
    }
    expect("pop", gpuwhy_range_pop(), GPUWHY_NOT_OPEN);
    expect("start", gpuwhy_start("part.gpuwhy"), GPUWHY_OK);
    expect("start again", gpuwhy_start(NULL), GPUWHY_BUSY);
    expect("push", gpuwhy_range_push("part"), GPUWHY_OK);
    expect("step", gpuwhy_step(), GPUWHY_OK);
    play_until(UINT64_MAX);
    expect("pop", gpuwhy_range_pop(), GPUWHY_OK);
    expect("flush", gpuwhy_flush(), GPUWHY_OK);
    expect("stop", gpuwhy_stop(), GPUWHY_OK);
    expect("stop again", gpuwhy_stop(), GPUWHY_NOT_OPEN);

    size_t length = gpuwhy_report_json(NULL, 0);
    char *json = malloc(length + 1);
    if (!json || gpuwhy_report_json(json, length + 1) != length || strlen(json) != length) {
        return 1;
    }
    puts(json);
    char little[8];
    if (gpuwhy_report_text(little, sizeof little) < 100 || strlen(little) != 7) {
        return 1;
    }
    free(json);
    return 0;
}
