// The kernels of known_kernels.cuh, launched in turns: kernels ROUNDS
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#include "known_kernels.cuh"

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
    size_t bytes = 512u << 20;
    float *a, *b;
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    CHECK(cudaMalloc(&a, bytes));
    CHECK(cudaMalloc(&b, bytes));
    CHECK(cudaMemset(a, 0, bytes));
    CHECK(cudaMemset(b, 0, bytes));
    int fit = 0, sms = device.multiProcessorCount;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, k_tail, 256, 0));
    for (int i = 0; i < rounds; i++) {
        k_copy<<<sms * 8, 512>>>((float4 *)b, (const float4 *)a, bytes / 16);
        k_fma<<<sms * 8, 256>>>(b, 20000);
        k_bank<<<sms * 2, 1024>>>(b, 5000);
        k_stride<<<(unsigned)(bytes / 4 / 32 / 256), 256>>>(b, a, bytes / 4);
        k_tail<<<sms * fit + 1, 256>>>(b, 60000);
        k_few<<<sms / 4, 256>>>(b, 60000);
        k_spill<<<sms * 8, 256>>>(b, 2000, 7);
        k_diverge<<<sms * 4, 256>>>(b, 1000);
        CHECK(cudaDeviceSynchronize());
    }
    printf("%d rounds\n", rounds);
    return 0;
}
