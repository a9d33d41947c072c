-- CUDA Kernel Summary by Line
-- Estimated from host samples certainly within launches, which last 100 us or more; kernels without a sample are
-- not here. If the lines of less than half of kernel time are known, there are no rows. nvtx_kern_sum is exact, for
-- programs with ranges.
SELECT 100 * estimated_ns / (SELECT TOTAL(duration_ns) FROM kernel_libraries) AS "Time (%)",
  CAST(ROUND(estimated_ns) AS INTEGER) AS "Estimated Time (ns)", CAST(ROUND(low_ns) AS INTEGER) AS "95% Low (ns)",
  CAST(ROUND(high_ns) AS INTEGER) AS "95% High (ns)", samples AS "Samples", kernel_samples AS "Kernel Samples",
  kernel_ns AS "Kernel Time (ns)", library AS "Library", module AS "Module", operator AS "Operator", file AS "File",
  NULLIF(line, 0) AS "Line", function AS "Function", kernel AS "Kernel"
FROM kernel_lines
ORDER BY estimated_ns DESC
-- lacks kernels at lines are left out: the smallest, or all if the lines of less than half of kernel time are known
SELECT IFNULL(MAX(value), 0) FROM completeness WHERE counter = 'kernel_lines_left_out'
