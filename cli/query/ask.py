"""Runs a query with DuckDB, and prints a line of JSON for each row of the result.

gpuwhy sends the request as a line of JSON on standard input: views (statements) and sql.
"""

import decimal
import json
import math
import os
import sys

import duckdb

request = json.loads(sys.stdin.readline())
# Other output of the engine goes to stderr.
answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def plain(value):
    if isinstance(value, decimal.Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


connection = duckdb.connect()
for statement in filter(str.strip, request["views"].split(";\n")):
    connection.execute(statement)
asked = connection.execute(request["sql"])
names = [column[0] for column in asked.description]
for row in asked.fetchall():
    answer.write(json.dumps(dict(zip(names, map(plain, row))), ensure_ascii=False) + "\n")
answer.flush()
