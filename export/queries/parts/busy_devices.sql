work AS (
  SELECT device, context, start_ns, end_ns FROM ({device_work})
  WHERE start_ns > 0 AND end_ns >= :from AND start_ns <= :until
),
devices_at_work AS (
  SELECT device, MIN(start_ns) AS start_ns, MAX(end_ns) AS end_ns,
    CASE WHEN MIN(context) = MAX(context) THEN MIN(context) END AS context
  FROM work
  GROUP BY device
)
