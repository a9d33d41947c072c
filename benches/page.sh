#!/usr/bin/env bash
# Speed, size and memory of writing an HTML page, and how long a browser takes to open it.
#
#   benches/page.sh               # a generated run of 10 million records, in Chromium and Firefox
#   benches/page.sh 1000000       # another number of records
#   benches/page.sh TRACE         # of a trace
#
# Uses the browsers of tests/browser.sh; a missing one is SKIPPED. Times vary with the load of the machine.
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
