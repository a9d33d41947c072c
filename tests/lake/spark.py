"""Runs the SQL of a recipe on Spark, or on a server that speaks its protocol, and prints a line of JSON for each row.

usage: gpuwhy query RECIPE --engine print | spark.py SERVER LAKE TABLES

SERVER is a master (local[2], spark://HOST:PORT) or sc://HOST:PORT. TABLES is a file with the output of
`gpuwhy query --tables`: a table without files in the lake is empty, and so is a column that older files lack.
"""

import decimal
import json
import os
import sys

server, lake, tables = sys.argv[1:]
# Other output of Spark goes to stderr.
answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
TYPES = {"integer": "BIGINT", "real": "DOUBLE", "flag": "BOOLEAN", "text": "STRING"}


def schemas():
    found, table = {}, None
    with open(tables, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith(" "):
                table = line.split(":")[0]
                # From the path.
                found[table] = ["rank BIGINT"]
            elif table and len(line.split()) > 1 and line.split()[1] in TYPES:
                name, kind = line.split()[:2]
                found[table].append(f"{name} {TYPES[kind]}")
    del found["every table"]
    return {name: ", ".join([*columns, "date STRING", "run STRING"]) for name, columns in found.items()}


def plain(value):
    if isinstance(value, decimal.Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    return value


if server.startswith("sc://"):
    # Imported directly: pyspark-client, which has no Java, does not find it under the usual name.
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(server).getOrCreate()
else:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master(server).getOrCreate()
sql = sys.stdin.read()
for name, schema in schemas().items():
    if name not in sql:
        continue
    folder = os.path.join(lake, name)
    frame = session.read.schema(schema).parquet(folder) if os.path.isdir(folder) else session.createDataFrame([], schema)
    frame.createOrReplaceTempView(name)
asked = session.sql(sql)
for row in asked.collect():
    answer.write(json.dumps(dict(zip(asked.columns, map(plain, row)))) + "\n")
answer.flush()
if not server.startswith("sc://"):
    session.stop()
