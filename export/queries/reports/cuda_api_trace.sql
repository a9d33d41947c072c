-- CUDA API Trace
SELECT start_ns - :origin AS "Start (ns)", duration_ns AS "Duration (ns)", {call} AS "Name", return_value AS "Result",
  correlation AS "CorrID", :process AS "Pid", thread AS "Tid", NULL AS "T-Pri", NULL AS "Thread Name"
FROM api
WHERE end_ns >= :from AND start_ns <= :until
ORDER BY start_ns
