#!/usr/bin/env bash
# Speed, size and memory of writing an HTML page, and how long a browser takes to open it.
#
#   benches/page.sh               # a made run of 10 million records, in Chromium and Firefox
#   benches/page.sh 1000000       # of so many
#   benches/page.sh TRACE         # of a trace
#
# Browsers as tests/browser.sh has them; without one its line is SKIPPED. Times scatter with what else the machine does.
set -euo pipefail
trace=${1:-10000000}
[ ! -e "$trace" ] || trace=$(realpath "$trace")
cd "$(dirname "$0")/.."
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo bench --quiet --package gpuwhy-page --bench page -- "$trace" "$work/page.html"
tests/browser.sh --fetch
export PLAYWRIGHT_BROWSERS_PATH=$target/chromium
modules=$target/tmp/page/ui
[ ! -d page/ui/node_modules ] || modules=$PWD/page/ui
for script in opening firefox; do
    cmp -s "page/ui/$script.mjs" "$modules/$script.mjs" || cp "page/ui/$script.mjs" "$modules/"
    (cd "$modules" && node "$script.mjs" "$work/page.html") || echo "SKIPPED: $script.mjs has no browser"
done
