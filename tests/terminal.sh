#!/usr/bin/env bash
# `gpuwhy top` on a terminal: the main functions, with recorded programs. SKIPPED without tmux.
#
#   tests/terminal.sh            # downloads tmux from Debian if there is none, and runs the tests
#   tests/terminal.sh --picture  # makes the picture of the guide (docs/top.txt, docs/top.svg) from a recorded run
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_INCREMENTAL=0

skip() {
    echo "SKIPPED: $1"
    exit 0
}
if ! command -v tmux >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends tmux || true
fi
command -v tmux >/dev/null || skip "tmux is not installed and cannot be fetched"
case "${1:-}" in
--picture)
    cargo build --quiet --package gpuwhy
    gpuwhy=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/debug/gpuwhy
    TMUX_TMPDIR=$(mktemp -d)
    export TMUX_TMPDIR
    trap 'tmux -L picture kill-server; rm -rf "$TMUX_TMPDIR"' EXIT
    LANG=C.UTF-8 tmux -L picture -f /dev/null new-session -d -x 100 -y 30 \
        "$gpuwhy top --speed 4 testing/fixtures/gpt_counters.gpuwhy"
    until tmux -L picture capture-pane -p | grep -q finished; do sleep 0.2; done
    sleep 1
    { echo '$ gpuwhy top'; tmux -L picture capture-pane -p; } >docs/top.txt
    python3 docs/picture.py docs/top.txt docs/top.svg
    ;;
"") cargo test --package gpuwhy --test main top:: ;;
*) sed -n '2,6s/^# \?//p' "$0"; exit 2 ;;
esac
