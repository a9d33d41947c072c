launched AS (
  SELECT correlation, MIN(start_ns) AS first, MAX(end_ns) AS last FROM ({device_work}) GROUP BY correlation
),
projected AS (
  SELECT c.number, MIN(l.first) AS first, MAX(l.last) AS last, COUNT(*) AS operations
  FROM range_calls AS c
  JOIN launched AS l ON l.correlation = c.correlation
  GROUP BY c.number
),
ranges AS (
  SELECT r.number, first, last, operations, start_ns, duration_ns, kind, thread, parent, level, numbers,
    domain || ':' || text AS name, last - first AS projected_ns
  FROM nested_ranges AS r
  JOIN projected AS p ON p.number = r.number
  WHERE end_ns >= :from AND start_ns <= :until
),
children AS (SELECT parent, COUNT(*) AS ranges FROM ranges WHERE parent IS NOT NULL GROUP BY parent)
