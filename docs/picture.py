#!/usr/bin/env python3
"""Draws the output of a command as an SVG picture of a terminal: `python3 docs/picture.py TEXT SVG`.

A line that begins with `$ ` is drawn as a command. Lines that begin as in STYLES, and the indented lines after them
that are no list, have the style of their own.
"""

import pathlib
import sys
from xml.sax.saxutils import escape

CHARACTER, LINE, MARGIN, BAR = 7.8, 18, 16, 28
BACKGROUND, FRAME, TEXT, COMMAND = "#16191f", "#2a2f3a", "#d5d9e0", "#7fd88f"
STYLES = {
    "Bottleneck:": ' fill="#ffffff" font-weight="bold"',
    "Probable bottleneck:": ' fill="#ffffff" font-weight="bold"',
    "What to do:": ' fill="#8fc7ff"',
    "GPU ": ' fill="#f0c674"',
}


def styles_of(lines: list[str]) -> list[str]:
    """The style of each line. A continued line has that of the line it continues."""
    styles, last = [], ""
    for line in lines:
        stripped = line.lstrip()
        if stripped.startswith("$ "):
            last = f' fill="{COMMAND}"'
        elif stripped == line or stripped.startswith("- "):
            last = next((style for head, style in STYLES.items() if line.startswith(head)), "")
        styles.append(last)
    return styles


def line_of(text: str, style: str, row: int) -> str:
    """One line of text. Its width is fixed, so that columns stay columns whatever font the viewer has."""
    stripped = text.lstrip()
    if not stripped:
        return ""
    x, y = MARGIN + CHARACTER * (len(text) - len(stripped)), BAR + MARGIN + LINE * row + 4
    width = CHARACTER * len(stripped)
    return f'<text x="{x:.1f}" y="{y}" textLength="{width:.1f}" xml:space="preserve"{style}>{escape(stripped)}</text>\n'


def picture(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    width = round(2 * MARGIN + CHARACTER * max(map(len, lines)))
    height = BAR + 2 * MARGIN + LINE * (len(lines) - 1) + 8
    title = escape(next((line for line in lines if line.startswith("Bottleneck:")), "gpuwhy"))
    dots = "".join(f'<circle cx="{MARGIN + 4 + 18 * i}" cy="{BAR // 2}" r="5" fill="#4a5160"/>' for i in range(3))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="13" fill="{TEXT}">\n'
            f"<title>{title}</title>\n"
            f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>\n'
            f'<path d="M0 {BAR} V8 a8 8 0 0 1 8 -8 H{width - 8} a8 8 0 0 1 8 8 V{BAR} Z" fill="{FRAME}"/>\n{dots}\n'
            + "".join(line_of(line, style, row) for row, (line, style) in enumerate(zip(lines, styles_of(lines)))) + "</svg>\n")


def main() -> int:
    arguments = [pathlib.Path(argument) for argument in sys.argv[1:]]
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source, target = arguments
    target.write_text(picture(source.read_text()))
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
