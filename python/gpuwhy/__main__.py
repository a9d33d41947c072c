"""`python -m gpuwhy`: the command, or a Python program under it.

    python -m gpuwhy train.py --lr 3e-4                    gpuwhy run -- python train.py --lr 3e-4
    python -m gpuwhy --live 2s -m torch.distributed.run train.py
    python -m gpuwhy report run.gpuwhy                     any subcommand

This process becomes the command: the same process id, signals and exit status.
"""

from __future__ import annotations

import os
import sys

from . import _find
from ._errors import NotFound, VersionMismatch

# Exit code when gpuwhy fails before the program starts, the same as that of the command.
OWN_FAILURE = 125


def subcommands() -> set[str]:
    """Subcommands of the command, from its help."""
    import subprocess

    said = subprocess.run([str(_find.command()), "--help"], capture_output=True, text=True, check=False).stdout
    found, within = {"help"}, False
    for line in said.splitlines():
        if line.startswith("Commands:"):
            within = True
        elif within and not line.strip():
            break
        elif within and line.startswith("  ") and not line.startswith("   "):
            found.add(line.split()[0])
    return found


def command_line(arguments: list[str], known: set[str], takes_value: set[str]) -> list[str]:
    """Arguments for `gpuwhy`."""
    if not arguments or arguments[0] in ("-h", "--help", "-V", "--version") or arguments[0] in known:
        return arguments
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "--"):
        option = rest.pop(0)
        options.append(option)
        if option in takes_value and rest:
            options.append(rest.pop(0))
    if rest and rest[0] == "--":
        return ["run", *options, *rest]
    if rest and rest[0] in known and not options:
        return rest
    return ["run", *options, "--", sys.executable, *rest]


def options_with_value() -> set[str]:
    """Options of `gpuwhy run` that take a value, from its help."""
    import re
    import subprocess

    said = subprocess.run([str(_find.command()), "run", "--help"], capture_output=True, text=True, check=False).stdout
    found: set[str] = set()
    for line in said.splitlines():
        match = re.match(r"\s+(?:(-\w), )?(--[\w-]+)? <", line)
        if match:
            found.update(name for name in match.groups() if name)
        match = re.match(r"\s+(-\w) <", line)
        if match:
            found.add(match.group(1))
    return found


def main() -> int:
    arguments = sys.argv[1:]
    try:
        command = str(_find.command())
        # Command and library must be from the same wheel, anywhere that pip puts them.
        if _find.LIBRARY_VARIABLE not in os.environ:
            try:
                os.environ[_find.LIBRARY_VARIABLE] = str(_find.library())
            except NotFound:
                # Reading traces needs no library; `run` reports the paths that it tried.
                pass
        simple = not arguments or not arguments[0].startswith("-") or arguments[0] in ("-h", "--help", "-V", "--version")
        takes_value = set[str]() if simple else options_with_value()
        line = [command, *command_line(arguments, subcommands(), takes_value)]
    except (NotFound, VersionMismatch) as error:
        print(f"gpuwhy: {error}", file=sys.stderr)
        return OWN_FAILURE
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command, line)


if __name__ == "__main__":
    sys.exit(main())
