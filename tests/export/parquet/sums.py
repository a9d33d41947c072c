"""Reads a folder that `gpuwhy export --to parquet` wrote, with DuckDB and with pandas, and prints sums as JSON.

usage: sums.py FOLDER

For both readers, by run/rank: count, sum, minimum and maximum duration of every kernel; from DuckDB also the rows of
every table.
"""

import glob
import json
import os
import sys

import duckdb
import pyarrow.dataset


def by_duckdb(folder):
    connection = duckdb.connect()
    tables = sorted({os.path.basename(path).removesuffix(".parquet") for path in glob.glob(f"{folder}/*/*/*.parquet")})
    rows, kernels = {}, {}
    for table in tables:
        connection.execute(
            f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{folder}/*/*/{table}.parquet', hive_partitioning=true)"
        )
        for run, rank, count in connection.execute(f"SELECT run, rank, count(*) FROM {table} GROUP BY ALL").fetchall():
            rows.setdefault(f"{run}/{rank}", {})[table] = count
    query = """SELECT run, rank, name, count(*), sum(duration_ns)::BIGINT, min(end_ns - start_ns), max(end_ns - start_ns)
               FROM kernels GROUP BY ALL"""
    for run, rank, name, *numbers in connection.execute(query).fetchall():
        kernels.setdefault(f"{run}/{rank}", {})[name] = numbers
    return rows, kernels


def by_pandas(folder):
    # All files at once: their columns differ, so a pattern selects those of one table.
    dataset = pyarrow.dataset.dataset(
        sorted(glob.glob(f"{folder}/*/*/kernels.parquet")),
        format="parquet",
        partitioning=pyarrow.dataset.HivePartitioning.discover(infer_dictionary=True),
    )
    frame = dataset.to_table().to_pandas()
    found = {}
    for (run, rank, name), durations in frame.groupby(["run", "rank", "name"], observed=True)["duration_ns"]:
        numbers = [durations.size, durations.sum(), durations.min(), durations.max()]
        found.setdefault(f"{run}/{rank}", {})[name] = [int(number) for number in numbers]
    return found


rows, kernels = by_duckdb(sys.argv[1])
print(json.dumps({"rows": rows, "duckdb": kernels, "pandas": by_pandas(sys.argv[1])}))
