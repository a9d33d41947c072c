SELECT 'CUDA_KERNEL' AS category, name AS operation, mangled_name AS key, start_ns, end_ns, duration_ns FROM kernels
  UNION ALL
  SELECT 'MEMORY_OPER', name, name, start_ns, end_ns, duration_ns FROM ({memory_operations})
