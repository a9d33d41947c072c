-- Ranges of the program by their text, one rank after the other in the order of occurrence
-- parameter occurrences 10 1 1000000 Occurrences of a cell
-- parameter rows 1000 1 1000000 Rows to show
WITH numbered AS (
  SELECT run, rank, domain, text, duration_ns,
    ROW_NUMBER() OVER (PARTITION BY run, rank, domain, text ORDER BY start_ns, end_ns, thread) - 1 AS place
  FROM nvtx
  WHERE kind <> 'mark'
)
SELECT run, rank, domain, text, place - place % {occurrences} AS first_occurrence, COUNT(*) AS ranges,
  AVG(duration_ns) AS mean_ns, MAX(duration_ns) AS most_ns
FROM numbered
GROUP BY run, rank, domain, text, place - place % {occurrences}
ORDER BY run, domain, text, first_occurrence, rank
LIMIT {rows}
