SELECT CASE direction
      WHEN 'host_to_device' THEN '[CUDA memcpy Host-to-Device]'
      WHEN 'device_to_host' THEN '[CUDA memcpy Device-to-Host]'
      WHEN 'device_to_device' THEN '[CUDA memcpy Device-to-Device]'
      WHEN 'host_to_host' THEN '[CUDA memcpy Host-to-Host]'
      WHEN 'peer_to_peer' THEN '[CUDA memcpy Peer-to-Peer]'
      ELSE '[CUDA memcpy Unknown]' END AS name,
    start_ns, end_ns, duration_ns, bytes, correlation, device, context, stream, source, destination
  FROM copies
  UNION ALL
  SELECT '[CUDA memset]', start_ns, end_ns, duration_ns, bytes, correlation, device, context, stream, memory, NULL
  FROM memsets
  UNION ALL
  SELECT CASE event
      WHEN 'host_to_device' THEN '[CUDA memcpy Unified Host-to-Device]'
      WHEN 'device_to_host' THEN '[CUDA memcpy Unified Device-to-Host]'
      ELSE '[CUDA memcpy Unified Device-to-Device]' END,
    start_ns, end_ns, duration_ns, bytes, 0, IFNULL(destination, source), 0, 0, 'unknown', 'unknown'
  FROM managed
  WHERE event IN ('host_to_device', 'device_to_host', 'device_to_device')
