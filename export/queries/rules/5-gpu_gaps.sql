-- GPU Gaps
-- Intervals in which a device was idle. For the causes see rule gpu_idle_causes and gpuwhy report.
-- none No device idled for longer than the threshold.
-- parameter gap 500.0 0 1000000000 Shortest gap, milliseconds
WITH {busy_devices},
gaps AS (
  SELECT device, start_ns, MAX(end_ns) OVER (
      PARTITION BY device ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS since_ns
  FROM work
)
SELECT ROW_NUMBER() OVER (ORDER BY g.start_ns - since_ns DESC, g.start_ns) AS "Row#",
  g.start_ns - since_ns AS "Duration (ns)", since_ns - :origin AS "Start (ns)", :process AS "PID",
  g.device AS "Device ID", context AS "Context ID"
FROM gaps AS g
JOIN devices_at_work AS d ON d.device = g.device
WHERE g.start_ns > since_ns AND g.start_ns - since_ns >= {gap} * 1e6
ORDER BY "Row#"
