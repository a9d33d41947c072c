#!/usr/bin/env bash
# The GPU suite: checks gpuwhy's guarantees on a host with a CUDA device. See README.md in this folder.
#
#   tests/gpu/run.sh [--bin DIR] [--out DIR] [--only NAME]... [--skip NAME]... [--minutes M]
#
# Exit status: 0 nothing failed, 1 something failed, 2 the suite could not start.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null || { echo "run.sh: python3 is not on the PATH" >&2; exit 2; }
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/suite.py" "$@"
