// Two kernels that wait for one thing each: random reads of device memory, at the line with the mark, and a barrier
// before which one warp works.
extern "C" __global__ void k_gather(const float *from, float *to, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = i * 2654435761u;
    float sum = 0;
    for (int k = 0; k < 64; k++) {
        at = at * 1664525u + 1013904223u;
        sum += from[at % count]; // HOT k_gather
        at += sum > 1e30f;
    }
    to[i] = sum;
}

extern "C" __global__ void k_barrier(float *to, int loops) {
    float a = threadIdx.x;
    for (int k = 0; k < 16; k++) {
        if (threadIdx.x < 32)
            for (int i = 0; i < loops; i++)
                a = a * 1.0001f + 0.5f;
        __syncthreads();
    }
    to[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
