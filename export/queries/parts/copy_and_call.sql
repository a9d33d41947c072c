c.duration_ns AS "Duration (ns)", c.start_ns - :origin AS "Start (ns)",
  upper(substr(source, 1, 1)) || substr(source, 2) AS "Src Kind",
  upper(substr(destination, 1, 1)) || substr(destination, 2) AS "Dst Kind", bytes AS "Bytes (MB)", :process AS "PID",
  device AS "Device ID", context AS "Context ID", NULL AS "Green Context ID", stream AS "Stream ID",
  function AS "API Name"
FROM copies AS c
JOIN api AS a ON a.correlation = c.correlation
