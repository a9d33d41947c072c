// Kernels whose limit is known by construction, for nvcc (kernels.cu) and nvrtc (known_kernels.py).
// copy: device memory; fma: issue; bank: conflicts in shared memory (32 ways); stride: uncoalesced loads; tail: one block
// more than fit; few: a grid smaller than the GPU; spill: local memory; diverge: one thread in 32 works at a time.
extern "C" __global__ void k_copy(float4 *to, const float4 *from, size_t count) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x) to[i] = from[i];
}

extern "C" __global__ void k_fma(float *out, int loops) {
    float a = threadIdx.x, b = 1.0001f, c = 0.5f, d = 2.0f;
    for (int i = 0; i < loops; i++) {
        a = a * b + c; b = b * c + d; c = c * d + a; d = d * a + b;
    }
    if (a + b + c + d == 12345.0f) out[0] = a;
}

extern "C" __global__ void k_bank(float *out, int loops) {
    __shared__ float tile[1024];
    float sum = 0;
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    for (int i = 0; i < loops; i++) sum += ((volatile float *)tile)[(threadIdx.x * 32 + i) & 1023];
    if (sum == 12345.0f) out[0] = sum;
}

extern "C" __global__ void k_stride(float *to, const float *from, size_t count) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count / 32) to[i] = from[i * 32];
}

extern "C" __global__ void k_tail(float *out, int loops) {
    float a = threadIdx.x;
    for (int i = 0; i < loops; i++) a = a * 1.0001f + 0.5f;
    if (a == 12345.0f) out[0] = a;
}

extern "C" __global__ void k_few(float *out, int loops) {
    float a = threadIdx.x;
    for (int i = 0; i < loops; i++) a = a * 1.0001f + 0.5f;
    if (a == 12345.0f) out[0] = a;
}

extern "C" __global__ void __launch_bounds__(256) k_spill(float *out, int loops, int at) {
    float values[64];
    for (int i = 0; i < 64; i++) values[i] = threadIdx.x + i;
    for (int i = 0; i < loops; i++) values[(i * at) & 63] += values[(i + at) & 63];
    out[blockIdx.x * blockDim.x + threadIdx.x] = values[at & 63];
}

extern "C" __global__ void k_diverge(float *out, int loops) {
    float a = threadIdx.x;
    for (int lane = 0; lane < 32; lane++)
        if ((threadIdx.x & 31) == lane)
            for (int i = 0; i < loops; i++) a = a * 1.0001f + lane;
    if (a == 12345.0f) out[0] = a;
}
