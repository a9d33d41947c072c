#!/usr/bin/env python3
"""Draws the output of a command as an SVG picture of a terminal: `python3 docs/picture.py [TEXT] [SVG]`.

TEXT is docs/screen.txt unless given, SVG the same name with the ending .svg. A line that begins with `$ ` is drawn as a
command. The words before the first colon of a line are bold if they are in HEADS, and lines that begin with `>` are advice.
"""

import pathlib
import re
import sys
from xml.sax.saxutils import escape

CHARACTER, LINE, MARGIN, BAR = 7.8, 18, 16, 28
BACKGROUND, FRAME, TEXT, COMMAND, HEAD, ADVICE = "#16191f", "#2a2f3a", "#d5d9e0", "#7fd88f", "#ffffff", "#8fc7ff"
HEADS = re.compile(r"^(gpuwhy|verdict|Bottleneck|Evidence|Advice|Try|Ceiling|device \d+[^:]*|complete|incomplete|Recorded)\b")


def line_of(text: str, row: int) -> str:
    """One line of text; its width is fixed, so that columns stay columns whatever font the viewer has."""
    if not text.strip():
        return ""
    stripped = text.lstrip()
    x, y = MARGIN + CHARACTER * (len(text) - len(stripped)), BAR + MARGIN + LINE * row
    style = ""
    if stripped.startswith("$ "):
        style = f' fill="{COMMAND}"'
    elif stripped.startswith(("> ", "→ ")):
        style = f' fill="{ADVICE}"'
    elif stripped == text and HEADS.match(text):
        style = f' fill="{HEAD}" font-weight="bold"'
    width = CHARACTER * len(stripped)
    return f'<text x="{x:.1f}" y="{y}" textLength="{width:.1f}" xml:space="preserve"{style}>{escape(stripped)}</text>\n'


def picture(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    width = round(2 * MARGIN + CHARACTER * max(map(len, lines)))
    height = BAR + 2 * MARGIN + LINE * (len(lines) - 1) + 4
    title = escape(next((line for line in lines if line.strip() and not line.startswith("$ ")), "gpuwhy"))
    dots = "".join(f'<circle cx="{MARGIN + 4 + 18 * i}" cy="{BAR // 2}" r="5" fill="#4a5160"/>' for i in range(3))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="13" fill="{TEXT}">\n'
            f"<title>{title}</title>\n"
            f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>\n'
            f'<path d="M0 {BAR} V8 a8 8 0 0 1 8 -8 H{width - 8} a8 8 0 0 1 8 8 V{BAR} Z" fill="{FRAME}"/>\n{dots}\n'
            + "".join(line_of(line, row) for row, line in enumerate(lines)) + "</svg>\n")


def main() -> int:
    arguments = [pathlib.Path(argument) for argument in sys.argv[1:]]
    if len(arguments) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    source = arguments[0] if arguments else pathlib.Path(__file__).with_name("screen.txt")
    target = arguments[1] if len(arguments) > 1 else source.with_suffix(".svg")
    target.write_text(picture(source.read_text()))
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
