"""Servers: their iterations, kinds, tokens and idle time are those that they wrote down, and nothing else is a server.

`examples/python/server.py` writes each iteration down; transformers' scheduler says what is in its batches.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
import statistics
import sys
from collections.abc import Iterator

from checks.lessons import EXAMPLES
from harness import Check, Mode, Result, Run, Suite, expect, skipped
from iterations import MEANINGS, Comparison, compare_trace
from trace_report import Trace, largest, single

SERVER = EXAMPLES / "python" / "server.py"
FULL, SOME, IDLE = ("--requests", "64"), ("--arrival", "20"), ("--arrival", "2")
# Name -> options: three loads, and each option at one of them.
RUNS = {
    "full": FULL, "some": SOME, "idle": IDLE, "slow": (*FULL, "--slow-scheduler", "3"), "gil": (*FULL, "--gil"),
    "no_graphs": (*FULL, "--no-graphs"), "overlap": (*FULL, "--overlap"), "ids_on_gpu": (*FULL, "--ids-on-gpu"),
    "sync": (*FULL, "--sync"), "chunk": (*SOME, "--chunk", "128"), "spin": (*IDLE, "--spin")}
# Only the host knows how many tokens an iteration has.
UNCOUNTED = ("ids_on_gpu",)
# Unknown code that spins while it waits counts as CPU work.
UNSEEN_WAITS = ("spin",)
SECONDS = "5"
BOUNDARIES, KINDS, WAITING = 0.995, 0.99, 0.02
# Options whose fix is known: the run without it.
FIXES = {"slow": "full", "gil": "full", "no_graphs": "full", "full": "overlap"}
FIX_PAIRS = 3
SERVERS = ("batching", "batching_graphs", "batching_async", "generate_1", "generate_8")
OTHERS = ("training_reads", "evaluation", "classification", "embeddings", "scores", "item_4", "item_8", "beam_search", "rollouts")
NOT_INSTALLED = 77
ROUNDS = 10
# Student's t, 9 degrees of freedom, 97.5 %: intervals of 95 % for the mean of ten rounds.
QUANTILE = 2.262
MONITOR_LIMIT = 1.01
COST_MODES = {"bare": (Mode.BARE, {}), "monitor": (Mode.VARIABLE, {"GPUWHY_MODE": "monitor"}), "light": (Mode.VARIABLE, {})}


def command(name: str, seconds: str = SECONDS) -> list[str]:
    return [sys.executable, str(SERVER), *RUNS[name], "--seconds", seconds]


def tokens_per_second(run: Run) -> float:
    """As the server printed them; 0 if it did not."""
    match = re.search(r"([\d.]+) tokens/s", run.stdout)
    return float(match[1]) if match else 0.0


def judged(name: str, found: Comparison) -> Iterator[Result]:
    yield expect(f"serving.{name}.boundaries", found.boundaries >= BOUNDARIES,
                 f"{found.matched} ends in one of {found.there} iterations, {found.found} were found")
    yield expect(f"serving.{name}.kinds", found.right_kinds >= KINDS,
                 f"{found.same_kind} of {found.matched}, {found.kinds} of {found.server_kinds}")
    counts = f"{found.exact} of {found.counted} exact, of {found.matched}; wrong: {found.wrong}"
    if name in UNCOUNTED:
        yield skipped(f"serving.{name}.tokens", f"the host copies no ids: {counts}")
    else:
        yield expect(f"serving.{name}.tokens", found.exact == found.counted == found.matched > 0, counts)
    if name not in UNSEEN_WAITS:
        yield expect(f"serving.{name}.waiting", abs(found.no_requests - found.waiting) <= WAITING,
                     f"{found.no_requests:.1%} without requests, by the server {found.waiting:.1%}")


def truth(name: str) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        written = suite.scratch / f"serving-{name}.jsonl"
        run = suite.run(f"serving-{name}", [*command(name), "--truth", str(written)], Mode.COMMAND)
        yield expect(f"serving.{name}.exit", run.code == 0, run.stdout.strip() or run.ending())
        trace = single(suite, run)
        yield expect(f"serving.{name}.server", trace.report["serving"] is not None, trace.bottleneck_line())
        yield from judged(name, compare_trace(suite.gpuwhy, trace.path, written))

    return Check(f"serving.{name}", check, exclusive=False, credit=60.0)


def started(suite: Suite, name: str) -> tuple[Run, Trace | None]:
    """A program of `workloads/serving`, and its trace; None if a library is not installed."""
    run = suite.run(f"serving-{name}", suite.python(str(pathlib.Path("serving") / "programs.py"), name), Mode.COMMAND)
    return run, None if run.code == NOT_INSTALLED else largest(suite, run)


def transformers(name: str) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        run, trace = started(suite, name)
        if trace is None:
            yield skipped(f"serving.{name}", run.stderr.strip())
            return
        told = json.loads(run.stdout.splitlines()[-1])
        kinds = {kind["name"]: kind for kind in trace.report["devices"][0]["step_kinds"]}
        counts = {kind: row["count"] for kind, row in kinds.items()}
        yield expect(f"serving.{name}.iterations", set(kinds) <= set(MEANINGS) and sum(counts.values()) == sum(told["iterations"].values()),
                     f"{counts} of {told['iterations']}")
        yield expect(f"serving.{name}.decode", counts.get("decode") == told["iterations"]["decode"], f"{counts} of {told['iterations']}")
        tokens, all_tokens = sum(row["tokens"] or 0 for row in kinds.values()), sum(row["tokens"] for row in told["sums"].values())
        yield expect(f"serving.{name}.tokens", tokens == all_tokens, f"{tokens} of {all_tokens}")

    return Check(f"serving.{name}", check, exclusive=False, credit=60.0)


def other(name: str) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        run, trace = started(suite, name)
        if trace is None:
            yield skipped(f"serving.not.{name}", run.stderr.strip())
            return
        sources = {device["steps"]["source"] for device in trace.report["devices"] if device["steps"]}
        yield expect(f"serving.not.{name}", trace.report["serving"] is None and "iteration" not in sources,
                     f"{run.ending()}, steps by {', '.join(sorted(sources)) or 'nothing'}")

    return Check(f"serving.not.{name}", check, exclusive=False, credit=60.0)


def gain(name: str) -> Check:
    """The first fix of the report brings what the run without the option shows, which is within the GPU's bound."""

    def check(suite: Suite) -> Iterator[Result]:
        rates: dict[str, list[float]] = {name: [], FIXES[name]: []}
        for number in range(FIX_PAIRS):
            for each in sorted(rates, reverse=bool(number % 2)):
                rates[each].append(tokens_per_second(suite.run(f"serving-gain-{each}-{number}", command(each))))
        before, after = (statistics.median(rates[each]) for each in (name, FIXES[name]))
        if min(before, after) <= 0:
            yield expect(f"serving.gain.{name}", False, f"no rate: {rates}")
            return
        trace = single(suite, suite.run(f"serving-gain-{name}", command(name), Mode.COMMAND))
        if bound := (trace.report["serving"] or {}).get("tokens_per_second_bound"):
            detail = f"{after:.0f} tokens/s, {bound['low']:.0f} to {bound['high']:.0f}"
            yield expect(f"serving.bound.{name}", after <= bound["high"], detail)
        fix = (trace.plan() or [{}])[0]
        low, high = fix.get("low"), fix.get("high")
        rates_said = f"{after / before:.2f}x ({before:.0f} to {after:.0f} tokens/s)"
        detail = f"{rates_said}, {fix.get('kind')} {low} to {high}; {trace.bottleneck_line()}"
        if low is None or high is None:
            yield skipped(f"serving.gain.{name}", f"the report promises no interval: {detail}")
        else:
            yield expect(f"serving.gain.{name}", low <= after / before <= high, detail)

    return Check(f"serving.gain.{name}", check, credit=120.0)


def cost(suite: Suite) -> Iterator[Result]:
    """Tokens per second without gpuwhy over those with it, by round."""
    rates: dict[str, list[float]] = {mode: [] for mode in COST_MODES}
    names = list(COST_MODES)
    for number in range(ROUNDS):
        for mode in names[number % 3:] + names[:number % 3]:
            how, extra = COST_MODES[mode]
            extra = {**extra, "GPUWHY_REPORT": "off"} if extra or how is Mode.VARIABLE else {}
            rates[mode].append(tokens_per_second(suite.run(f"serving-cost-{mode}-{number}", command("full"), how, extra=extra)))
    for mode in names[1:]:
        ratios = [bare / rate for bare, rate in zip(rates["bare"], rates[mode]) if min(bare, rate) > 0]
        if len(ratios) < ROUNDS:
            yield expect(f"serving.cost.{mode}", False, f"{len(ratios)} of {ROUNDS} rounds said a rate")
            continue
        mean, error = statistics.mean(ratios), QUANTILE * statistics.stdev(ratios) / math.sqrt(ROUNDS)
        detail = f"{mean:.4f} +- {error:.4f} of the bare time a token, {statistics.median(rates['bare']):.0f} tokens/s bare"
        # Records of graph nodes cost more; the report says how much.
        yield expect(f"serving.cost.{mode}", mode != "monitor" or mean + error < MONITOR_LIMIT, detail)


def checks() -> list[Check]:
    return [
        *(truth(name) for name in RUNS), *(transformers(name) for name in SERVERS), *(other(name) for name in OTHERS),
        *(gain(name) for name in FIXES), Check("serving.cost", cost, credit=420.0)]
