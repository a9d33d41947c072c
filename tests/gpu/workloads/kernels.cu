// Kernels whose limit is known by construction, launched in turns: kernels ROUNDS
// copy: device memory; fma: issue; bank: conflicts in shared memory (32 ways); stride: uncoalesced loads; tail: one block
// more than fit; few: a grid smaller than the GPU; spill: local memory; diverge: one thread in 32 works at a time.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error = (call);                                                                \
        if (error != cudaSuccess) {                                                                \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

__global__ void k_copy(float4 *to, const float4 *from, size_t count) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x) to[i] = from[i];
}

__global__ void k_fma(float *out, int loops) {
    float a = threadIdx.x, b = 1.0001f, c = 0.5f, d = 2.0f;
    for (int i = 0; i < loops; i++) {
        a = a * b + c; b = b * c + d; c = c * d + a; d = d * a + b;
    }
    if (a + b + c + d == 12345.0f) out[0] = a;
}

__global__ void k_bank(float *out, int loops) {
    __shared__ float tile[1024];
    float sum = 0;
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    for (int i = 0; i < loops; i++) sum += ((volatile float *)tile)[(threadIdx.x * 32 + i) & 1023];
    if (sum == 12345.0f) out[0] = sum;
}

__global__ void k_stride(float *to, const float *from, size_t count) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count / 32) to[i] = from[i * 32];
}

__global__ void k_tail(float *out, int loops) {
    float a = threadIdx.x;
    for (int i = 0; i < loops; i++) a = a * 1.0001f + 0.5f;
    if (a == 12345.0f) out[0] = a;
}

__global__ void k_few(float *out, int loops) {
    float a = threadIdx.x;
    for (int i = 0; i < loops; i++) a = a * 1.0001f + 0.5f;
    if (a == 12345.0f) out[0] = a;
}

__global__ void __launch_bounds__(256) k_spill(float *out, int loops, int at) {
    float values[64];
    for (int i = 0; i < 64; i++) values[i] = threadIdx.x + i;
    for (int i = 0; i < loops; i++) values[(i * at) & 63] += values[(i + at) & 63];
    out[blockIdx.x * blockDim.x + threadIdx.x] = values[at & 63];
}

__global__ void k_diverge(float *out, int loops) {
    float a = threadIdx.x;
    for (int lane = 0; lane < 32; lane++)
        if ((threadIdx.x & 31) == lane)
            for (int i = 0; i < loops; i++) a = a * 1.0001f + lane;
    if (a == 12345.0f) out[0] = a;
}

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
