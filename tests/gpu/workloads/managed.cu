// A CUDA program whose host and device touch the same managed memory in turn, so that all of it moves both ways.
//
// It prints what it knows: how many bytes must have moved in each direction. Managed memory is taken only when four times
// as much device memory is free.
#include <cstdio>
#include <cstring>

#include <cuda_runtime.h>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        const cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                       \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));           \
            return 1;                                                                      \
        }                                                                                  \
    } while (false)

constexpr size_t BYTES = 64u << 20;
constexpr int ROUNDS = 2;

__global__ void add(int *values, size_t count) {
    const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count; i += step) values[i] += 1;
}

int main() {
    size_t free_bytes = 0, all_bytes = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
    if (free_bytes < 4 * BYTES) {
        std::fprintf(stderr, "only %zu bytes of device memory are free\n", free_bytes);
        return 1;
    }
    int *values = nullptr;
    CHECK(cudaMallocManaged(&values, BYTES));
    const size_t count = BYTES / sizeof(int);
    for (int round = 0; round < ROUNDS; round++) {
        std::memset(values, 0, BYTES);
        add<<<132, 256>>>(values, count);
        CHECK(cudaDeviceSynchronize());
        long sum = 0;
        for (size_t i = 0; i < count; i += 16) sum += values[i];
        if (sum != static_cast<long>(count / 16)) {
            std::fprintf(stderr, "the device did not add\n");
            return 1;
        }
    }
    CHECK(cudaFree(values));
    std::printf("{\"to_device\": %zu, \"to_host\": %zu}\n", ROUNDS * BYTES, ROUNDS * BYTES);
    return 0;
}
