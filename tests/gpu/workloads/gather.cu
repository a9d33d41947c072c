// Kernels that wait at known lines, launched in turns: gather ROUNDS. The time goes to stderr.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#include "gather_kernels.cuh"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error = (call);                                                                \
        if (error != cudaSuccess) {                                                                \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    const unsigned count = 128u << 20, threads = 1u << 20;
    float *from, *to;
    CHECK(cudaMalloc(&from, count * sizeof(float)));
    CHECK(cudaMalloc(&to, threads * sizeof(float)));
    CHECK(cudaMemset(from, 0, count * sizeof(float)));
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; i++) {
        k_gather<<<threads / 256, 256>>>(from, to, count);
        k_barrier<<<threads / 1024, 1024>>>(to, 200);
        CHECK(cudaDeviceSynchronize());
    }
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    printf("%d rounds\n", rounds);
    fprintf(stderr, "took %.4f s\n", seconds.count());
    return 0;
}
