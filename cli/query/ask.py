"""Runs a query with DuckDB or Spark, and prints a line of JSON for each row of the result.

gpuwhy sends the request as a line of JSON on standard input: engine, server, views (statements for DuckDB), tables
(name, path, schema, and true if there are files) and sql.
"""

import decimal
import json
import math
import os
import sys

request = json.loads(sys.stdin.readline())
# Other output of an engine goes to stderr.
answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def plain(value):
    if isinstance(value, decimal.Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def put(names, rows):
    for row in rows:
        answer.write(json.dumps(dict(zip(names, map(plain, row))), ensure_ascii=False) + "\n")
    answer.flush()


def duckdb():
    import duckdb

    connection = duckdb.connect()
    for statement in filter(str.strip, request["views"].split(";\n")):
        connection.execute(statement)
    asked = connection.execute(request["sql"])
    put([column[0] for column in asked.description], asked.fetchall())


def spark():
    server = request["server"] or ""
    remote = server.startswith("sc://")
    if remote:
        # Imported directly: pyspark-client, which has no Java, does not find it under the usual name.
        from pyspark.sql.connect.session import SparkSession

        builder = SparkSession.builder.remote(server)
    else:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(server) if server else SparkSession.builder
    session = builder.appName("gpuwhy query").getOrCreate()
    for table in request["tables"]:
        if table["has_files"]:
            frame = session.read.schema(table["schema"]).parquet(table["path"])
        else:
            frame = session.createDataFrame([], table["schema"])
        frame.createOrReplaceTempView(table["name"])
    asked = session.sql(request["sql"])
    put(asked.columns, asked.collect())
    if not remote:
        session.stop()


{"duckdb": duckdb, "spark": spark}[request["engine"]]()
