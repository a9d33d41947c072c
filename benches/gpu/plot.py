"""docs/design/overhead.svg from overhead.json: overhead of each tool on each program, as an SVG that needs no library to make or to show.

For publish.py. A bar is the median over the rounds; the line through it is the range.
"""

from __future__ import annotations

import statistics
from xml.sax.saxutils import escape

from measured import Measured, paired_ratios

COLORS = {"floor": "#b0b0b0", "gpuwhy": "#2a7f62", "nsys": "#c46210", "torch": "#5b5ea6"}
OTHER = "#888888"
LEFT, WIDTH, BAR, GAP, TOP = 150, 560, 14, 12, 34


def bars(rows: list[dict]) -> list[tuple[str, str, list[float]]]:
    """Programs and tools with their ratios, in the order of the measurements."""
    found = []
    for program in dict.fromkeys(row["benchmark"] for row in rows):
        mine = [row for row in rows if row["benchmark"] == program]
        for tool in dict.fromkeys(row["tool"] for row in mine if row["tool"] != "none"):
            ratios = paired_ratios(mine, tool)
            if ratios:
                found.append((program, tool, ratios))
    return found


def svg(machine: str, found: list[tuple[str, str, list[float]]]) -> str:
    limit = max([0.1, *(max(ratios) - 1 for _, _, ratios in found)]) * 1.08

    def x(ratio: float) -> float:
        return LEFT + WIDTH * max(0.0, ratio - 1) / limit

    parts, y, before = [], TOP, None
    for program, tool, ratios in found:
        if program != before:
            y += GAP
            parts.append(f'<text x="8" y="{y + BAR - 3}" font-weight="bold">{escape(program)}</text>')
            before = program
        median, color = statistics.median(ratios), COLORS.get(tool, OTHER)
        middle = y + BAR / 2
        parts += [
            f'<rect x="{LEFT}" y="{y + 1}" width="{x(median) - LEFT:.1f}" height="{BAR - 2}" fill="{color}"/>',
            f'<line x1="{x(min(ratios)):.1f}" x2="{x(max(ratios)):.1f}" y1="{middle}" y2="{middle}" stroke="black"/>',
            f'<text x="{LEFT - 6}" y="{y + BAR - 3}" text-anchor="end">{escape(tool)}</text>',
            f'<text x="{x(max(ratios)) + 5:.1f}" y="{y + BAR - 3}">{median - 1:+.1%}</text>']
        y += BAR
    height = y + GAP
    title = f"Time added to the program, {machine}; median and range of the rounds"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 70}" height="{height}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="8" y="18" font-size="13">{escape(title)}</text>' + "".join(parts) + "</svg>\n")


def document(measured: Measured) -> str:
    figures = [row for row in measured.measurements if not row.get("whole")]
    return svg(f"{measured.machine['gpu']}, {measured.dates()}", bars(figures))
