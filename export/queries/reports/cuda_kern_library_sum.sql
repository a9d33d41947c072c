-- CUDA Kernel Summary by Library
SELECT 100.0 * duration_ns / TOTAL(duration_ns) OVER () AS "Time (%)", duration_ns AS "Total Time (ns)",
  count AS "Instances", kernels AS "Kernels", by_samples_ns AS "Reported by Samples (ns)", library AS "Library",
  largest_kernel AS "Largest Kernel"
FROM kernel_libraries
ORDER BY duration_ns DESC
