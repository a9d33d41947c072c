-- Missing data of each run: lost records, ranks without a trace, traces without a clean end
-- parameter rows 100 1 1000000 Rows to show
WITH counted AS (
  SELECT run, counter AS what, SUM(value) AS amount, SUM(CASE WHEN value > 0 THEN 1 ELSE 0 END) AS ranks
  FROM completeness
  WHERE counter IN ('activities_without_launch', 'bad_timestamps', 'broken_buffers', 'broken_bytes', 'dictionary_overflow',
    'dropped_by_cupti', 'dropped_by_gpuwhy', 'dropped_ranges', 'kernel_table_overflow', 'launches_without_activity',
    'steps_left_out', 'undelivered_buffers', 'unknown_kinds', 'unobserved_ns')
  GROUP BY run, counter
), about AS (
  SELECT run, COUNT(*) AS ranks, MAX(world_size) AS world_size,
    SUM(CASE WHEN ending = 'clean' THEN 0 ELSE 1 END) AS unclean
  FROM processes GROUP BY run
), together AS (
  SELECT run, what, amount, ranks FROM counted
  UNION ALL
  SELECT run, 'ranks_without_trace' AS what, world_size - ranks AS amount, world_size - ranks AS ranks FROM about
  WHERE world_size IS NOT NULL
  UNION ALL
  SELECT run, 'without_clean_end' AS what, unclean AS amount, unclean AS ranks FROM about
)
SELECT run, what, amount, ranks FROM together
WHERE amount > 0
ORDER BY run, what
LIMIT {rows}
