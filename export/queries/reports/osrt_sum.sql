-- OS Runtime Summary
-- Waits found in host samples of the launching threads, not calls: short ones are missing, and a row is what the
-- thread slept in. Looks that follow each other in the same wait count as one.
WITH looks AS (
  SELECT thread, state, at_ns, MAX(at_ns - since_ns - on_cpu_ns - runnable_ns, 0) AS off_ns,
    state = LAG(state) OVER by_thread AND since_ns = LAG(at_ns) OVER by_thread AS goes_on
  FROM host_samples
  WHERE at_ns >= :from AND since_ns <= :until
  WINDOW by_thread AS (PARTITION BY thread ORDER BY at_ns)
),
numbered AS (
  SELECT thread, state, off_ns,
    SUM(NOT IFNULL(goes_on, 0)) OVER (PARTITION BY thread ORDER BY at_ns ROWS UNBOUNDED PRECEDING) AS wait
  FROM looks
),
waits AS (
  SELECT state, SUM(off_ns) AS duration_ns FROM numbered WHERE state NOT IN ('running', 'unknown') GROUP BY thread, wait
)
SELECT {share}, COUNT(*) AS "Num Calls", {spread},
  CASE state WHEN 'futex' THEN 'futex (lock, condition, queue)' WHEN 'poll' THEN 'poll, select, epoll_wait'
    WHEN 'io' THEN 'read, write' WHEN 'disk' THEN 'storage' WHEN 'sleep' THEN 'nanosleep' WHEN 'child' THEN 'waitpid'
    WHEN 'memory' THEN 'page fault, mmap' WHEN 'driver' THEN 'ioctl' ELSE state END AS "Name"
FROM waits
WHERE duration_ns > 0
GROUP BY state
ORDER BY "Total Time (ns)" DESC, "Name"
