SELECT device, context, start_ns, end_ns, correlation FROM kernels
  UNION ALL
  SELECT device, context, start_ns, end_ns, correlation FROM copies
  UNION ALL
  SELECT device, context, start_ns, end_ns, correlation FROM memsets
