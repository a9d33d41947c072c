// Kernels that wait at known lines, launched in turns by one thread or several: gather ROUNDS [THREADS [PARTS]]. The
// rounds are shared out; each thread has a stream of its own. With PARTS a launch has that part of the blocks, so that no
// thread stays in a call for long. The time goes to stderr.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <thread>
#include <vector>

#include "gather_kernels.cuh"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error = (call);                                                                \
        if (error != cudaSuccess) {                                                                \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void rounds_of_a_thread(int rounds, float *from, float *to, unsigned count, unsigned threads) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < rounds; i++) {
        k_gather<<<threads / 256, 256, 0, stream>>>(from, to, count);
        k_barrier<<<threads / 1024, 1024, 0, stream>>>(to, 200);
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    const int launching = argc > 2 ? atoi(argv[2]) : 1, parts = argc > 3 ? atoi(argv[3]) : 1;
    const unsigned count = 128u << 20, threads = (1u << 20) / parts;
    float *from;
    std::vector<float *> to(launching);
    CHECK(cudaMalloc(&from, count * sizeof(float)));
    for (float *&own : to)
        CHECK(cudaMalloc(&own, threads * sizeof(float)));
    CHECK(cudaMemset(from, 0, count * sizeof(float)));
    auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (int i = 1; i < launching; i++)
        others.emplace_back(rounds_of_a_thread, rounds / launching, from, to[i], count, threads);
    rounds_of_a_thread(rounds / launching, from, to[0], count, threads);
    for (std::thread &other : others)
        other.join();
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    printf("%d rounds\n", rounds);
    fprintf(stderr, "took %.4f s\n", seconds.count());
    return 0;
}
