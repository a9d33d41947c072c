-- GPU Time Utilization
-- Intervals in which a device ran anything for less than the threshold. In use does not mean that it was full.
-- none Every interval is above the threshold.
-- parameter threshold 50.0 0 100 Utilization below which an interval is shown, percent
-- parameter chunks 30 1 1000000 Equal parts of the time of a device
WITH RECURSIVE {busy_devices},
divided AS (
  SELECT device, start_ns AS first_ns, end_ns AS last_ns, context,
    MAX((end_ns - start_ns + {chunks} - 1) / {chunks}, 1) AS length
  FROM devices_at_work
),
parts AS (
  SELECT device, 0 AS part, first_ns AS start_ns, MIN(first_ns + length, last_ns) AS end_ns FROM divided
  WHERE first_ns < last_ns
  UNION ALL
  SELECT p.device, part + 1, p.end_ns, MIN(p.end_ns + length, last_ns) FROM parts AS p
  JOIN divided AS d ON d.device = p.device
  WHERE p.end_ns < last_ns
),
-- Work is counted in each part that it overlaps; overlapping operations count separately.
pieces AS (
  SELECT w.device, (start_ns - first_ns) / length AS part, MIN(end_ns, first_ns + ((start_ns - first_ns) / length + 1)
    * length) AS until_ns, start_ns, end_ns, length
  FROM work AS w
  JOIN divided AS d ON d.device = w.device
  WHERE start_ns < end_ns
  UNION ALL
  SELECT device, part + 1, MIN(end_ns, until_ns + length), until_ns, end_ns, length FROM pieces WHERE until_ns < end_ns
),
used AS (SELECT device, part, SUM(until_ns - start_ns) AS ns FROM pieces GROUP BY device, part),
low AS (
  SELECT p.device, p.part, start_ns, end_ns, IFNULL(ns, 0) AS ns,
    p.part - ROW_NUMBER() OVER (PARTITION BY p.device ORDER BY p.part) AS interval
  FROM parts AS p
  LEFT JOIN used AS u ON u.device = p.device AND u.part = p.part
  WHERE 100.0 * IFNULL(ns, 0) / (end_ns - start_ns) < {threshold}
),
intervals AS (
  SELECT device, MIN(start_ns) AS start_ns, MAX(end_ns) AS end_ns,
    100.0 * SUM(ns) / (MAX(end_ns) - MIN(start_ns)) AS share
  FROM low
  GROUP BY device, interval
)
SELECT ROW_NUMBER() OVER (ORDER BY CAST(share * 1e6 AS INTEGER), end_ns - start_ns, s.device, start_ns) AS "Row#",
  share AS "In-Use (%)", end_ns - start_ns AS "Duration (ns)", start_ns - :origin AS "Start (ns)", :process AS "PID",
  s.device AS "Device ID", context AS "Context ID"
FROM intervals AS s
JOIN divided AS d ON d.device = s.device
ORDER BY "Row#"
