// Launches of empty kernels for measured_programs.py, as a library, so that forks of one process can take turns.
#include <chrono>

#include <cuda_runtime.h>

static __global__ void empty_kernel() {}

// Nanoseconds of a launch, of `count` of them, synchronized every 1000 to keep the queue (1024 deep) from filling; negative on error.
extern "C" double time_of_launch(long count) {
  const auto begun = std::chrono::steady_clock::now();
  for (long i = 0; i < count; i++) {
    empty_kernel<<<1, 1>>>();
    if (i % 1000 == 999 && cudaDeviceSynchronize() != cudaSuccess) return -1;
  }
  if (cudaDeviceSynchronize() != cudaSuccess) return -1;
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begun).count() / count;
}
