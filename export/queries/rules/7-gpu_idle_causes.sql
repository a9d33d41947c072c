-- GPU Idle Time by Cause
-- Idle time between the first and the last operation of a device, by what kept the next one from starting
-- (docs/reference/report.md). A rule of gpuwhy: nsys has none like it.
-- none No device idled.
WITH shares AS (
  SELECT device, cause, leaf, busy, duration_ns,
    100.0 * duration_ns / SUM(duration_ns) OVER (PARTITION BY device) AS share
  FROM leaves
)
SELECT share AS "Time (%)", duration_ns AS "Total Time (ns)", :process AS "PID", device AS "Device ID",
  cause AS "Group", leaf AS "Cause"
FROM shares
WHERE NOT busy AND duration_ns > 0
ORDER BY duration_ns DESC
