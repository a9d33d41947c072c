"""Runs every recipe on several engines and compares the results cell by cell; checks them against planted causes.

usage: compare.py [--only RECIPE] GPUWHY LAKE TRUTH ENGINE...

TRUTH is the output of the example simulated_lake for the runs that it added to the lake. An ENGINE is the options that
select it, such as "--engine duckdb --with PYTHON", or "spark PYTHON SERVER", which gets the printed SQL by spark.py; the
others are compared with the first one.
--only: only this recipe, without the check against TRUTH.
Integers and texts must be equal, fractions within a part in 10^9, because engines add them in a different order.
"""

import json
import math
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

arguments = sys.argv[1:]
only = arguments[1] if arguments[0] == "--only" else None
gpuwhy, lake, truth, *engines = arguments[2 if only else 0 :]
failures = []


def ask_spark(recipe, engine, options):
    _, python, server = engine.split()
    printed = subprocess.run([gpuwhy, "query", recipe, "--engine", "print", *options], capture_output=True, text=True, check=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as tables:
        subprocess.run([gpuwhy, "query", "--tables"], stdout=tables, check=True)
        script = pathlib.Path(__file__).with_name("spark.py")
        run = subprocess.run([python, script, server, lake, tables.name], input=printed.stdout, capture_output=True, text=True)
    if run.returncode != 0:
        failures.append(f"{recipe} by {engine}: exit code {run.returncode}\n{run.stderr[-2000:]}")
        return []
    return [json.loads(line) for line in run.stdout.splitlines()]


def ask(recipe, engine, *options):
    if engine.startswith("spark "):
        return ask_spark(recipe, engine, options)
    command = [gpuwhy, "query", recipe, lake, *shlex.split(engine), *options, "--json"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        failures.append(f"{recipe} by {engine}: exit code {run.returncode}\n{run.stderr}")
        return []
    return json.loads(run.stdout or "[]")


def same(a, b):
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or (isinstance(a, float) or isinstance(b, float)) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return a == b


def compare(recipe, options, engine, expected, found):
    if len(expected) != len(found):
        failures.append(f"{recipe} {options} by {engine}: {len(found)} rows, {len(expected)} expected")
    for number, (a, b) in enumerate(zip(expected, found)):
        wrong = [name for name in a.keys() | b.keys() if not same(a.get(name), b.get(name))]
        if wrong:
            failures.append(f"{recipe} {options} by {engine}: row {number}: {[(n, a.get(n), b.get(n)) for n in wrong]}")
            return


def listed():
    text = subprocess.run([gpuwhy, "query", "--list"], capture_output=True, text=True, check=True).stdout
    text = text.partition("\nRecipes")[2].partition("\n\n")[0]
    return [line.split()[0] for line in text.splitlines()[1:]]


def planted():
    """Checks that the results name the planted causes."""
    with open(truth) as file:
        jobs = [json.loads(line) for line in file]
    late = ask("late_because", engines[0], "--set", "excess_us=1000", "--set", "rows=1000")
    stragglers = ask("stragglers", engines[0], "--set", "rows=100000")
    for job in jobs:
        found = [(row["rank"], row["leaf"]) for row in late if row["run"] == job["run"]]
        if found != [(job["culprit"], "host_cpu")]:
            failures.append(f"{job['run']}: late_because names {found}, planted is rank {job['culprit']}, host_cpu")
        excess = [row["excess_ns"] for row in late if row["run"] == job["run"]]
        if not all(math.isclose(value, 2_000_000, rel_tol=0.01) for value in excess):
            failures.append(f"{job['run']}: the excess is {excess}, planted are 2 ms")
        first = next((row["rank"] for row in stragglers if row["run"] == job["run"]), None)
        if first != job["culprit"]:
            failures.append(f"{job['run']}: stragglers names rank {first} first, planted is rank {job['culprit']}")
        waited = sum(row["awaited_ns"] for row in stragglers if row["run"] == job["run"])
        if waited != job["waited_ns"]:
            failures.append(f"{job['run']}: {waited} ns were waited, planted are {job['waited_ns']}")


VARIANTS = {"heatmap": ["--set", "leaf=host_cpu", "--set", "steps=7"], "pace": ["--set", "milliseconds=250"]}
recipes = [only] if only else listed()
rows = 0
seconds = dict.fromkeys(engines, 0.0)
for recipe in recipes:
    for options in filter(lambda options: options is not None, ([], VARIANTS.get(recipe))):
        answers = []
        for engine in engines:
            begin = time.monotonic()
            answers.append(ask(recipe, engine, *options))
            seconds[engine] += time.monotonic() - begin
        for engine, found in zip(engines[1:], answers[1:]):
            compare(recipe, options, engine, answers[0], found)
        rows += len(answers[0])
        if not answers[0]:
            print(f"{recipe}: no rows in this lake")
if not only:
    planted()
for engine in engines:
    print(f"{seconds[engine]:6.1f} s  {engine}")
print(f"{len(recipes)} recipes, {rows} rows, {len(engines)} engines: {len(failures)} differences")
print("\n".join(failures[:40]))
sys.exit(bool(failures))
