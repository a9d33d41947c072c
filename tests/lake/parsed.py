"""Checks the text of every recipe against the grammars of the engines, with sqlglot; runs none of them.

usage: parsed.py GPUWHY

For Trino, which gpuwhy does not start, this is the only evidence. A recipe must parse as a query of each engine, use
only known functions and columns of the documented tables, compare only equal types (Trino has no implicit
conversions), and be the same text in SQLite's dialect and in that of each other engine.
"""

import subprocess
import sys

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

gpuwhy = sys.argv[1]
DIALECTS = ["trino", "sqlite", "duckdb", "spark"]
TYPES = {"text": "VARCHAR", "integer": "BIGINT", "real": "DOUBLE", "flag": "BOOLEAN"}
TEXTS, FLAGS = exp.DataType.TEXT_TYPES, {exp.DataType.Type.BOOLEAN}
failures = []


def said(*words):
    return subprocess.run([gpuwhy, *words], capture_output=True, text=True, check=True).stdout


def documented():
    """The tables with their columns, from `gpuwhy query --tables`."""
    tables, columns, common = {}, {}, {"date": "VARCHAR"}
    for line in said("query", "--tables").splitlines():
        if line and not line.startswith(" "):
            name = line.partition(":")[0]
            columns = common if name == "every table" else tables.setdefault(name, {})
        elif line.split()[1:2] and line.split()[1] in TYPES:
            columns[line.split()[0]] = TYPES[line.split()[1]]
    return {name: common | own for name, own in tables.items()}


def family(node):
    kind = node.type.this if node.type else None
    if kind in (None, exp.DataType.Type.UNKNOWN, exp.DataType.Type.NULL):
        return None
    return "text" if kind in TEXTS else "flag" if kind in FLAGS else "number"


def faults(sql, dialect, schema):
    """Errors of a recipe in a dialect, as sentences."""
    tree = sqlglot.parse_one(sql, read=dialect, error_level=ErrorLevel.RAISE)
    for node in tree.find_all(exp.Anonymous):
        yield f"the function {node.name} is not known"
    for node in tree.find_all(exp.Cast, exp.TryCast):
        yield f"a conversion: {node.sql()}"
    tree = annotate_types(qualify(tree, schema=schema, dialect=dialect, quote_identifiers=False), schema=schema)
    for node in tree.find_all(exp.Binary):
        sides = {family(node.left), family(node.right)} - {None}
        if isinstance(node, (exp.Predicate, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)) and len(sides) > 1:
            yield f"{' with '.join(sorted(sides))}: {node.sql(dialect)}"
    for node in tree.find_all(exp.In):
        sides = {family(side) for side in [node.this, *node.expressions]} - {None}
        if len(sides) > 1:
            yield f"{' with '.join(sorted(sides))}: {node.sql(dialect)}"
    for node in tree.find_all(exp.Case):
        results = [branch.args["true"] for branch in node.args["ifs"]] + [node.args.get("default")]
        if None in results:
            yield f"CASE without ELSE: {node.sql(dialect)}"
        elif len({family(result) for result in results} - {None}) > 1:
            yield f"results of several types: {node.sql(dialect)}"


def main():
    schema = documented()
    # Test of this check: each of these is wrong in Trino, and each must be found.
    for wrong in (
        "SELECT run FROM processes WHERE rank = '3' ORDER BY run LIMIT 3",
        "SELECT leaf FROM leaves WHERE busy = 1 ORDER BY leaf LIMIT 3",
        "SELECT arg_biggest(run, rank) AS x FROM processes LIMIT 3",
        "SELECT CASE WHEN rank > 1 THEN 'x' ELSE 0 END AS x FROM processes LIMIT 3",
    ):
        if not list(faults(wrong, "trino", schema)):
            failures.append(f"this is wrong, and nothing was found: {wrong}")
    text = said("query", "--list").partition("\nRecipes")[2].partition("\n\n")[0]
    recipes = [line.split()[0] for line in text.splitlines()[1:]]
    for recipe in recipes:
        sql = said("query", recipe, "--engine", "print")
        for dialect in DIALECTS:
            try:
                failures.extend(f"{recipe} as {dialect}: {fault}" for fault in faults(sql, dialect, schema))
                if dialect != "sqlite":
                    own = sqlglot.transpile(sql, read=dialect, write=dialect, comments=False)
                    shared = sqlglot.transpile(sql, read="sqlite", write="sqlite", comments=False)
                    if own != shared:
                        failures.append(f"{recipe}: another text as {dialect}:\n  {own[0]}\n  {shared[0]}")
            except sqlglot.errors.SqlglotError as error:
                failures.append(f"{recipe} as {dialect}: {error}")
    print(f"{len(recipes)} recipes, the grammars of {', '.join(DIALECTS)}: {len(failures)} faults")
    print("\n".join(failures[:40]))
    return bool(failures)


sys.exit(main())
