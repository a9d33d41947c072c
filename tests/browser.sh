#!/usr/bin/env bash
# The HTML page in Chromium: the main functions, on recorded runs; and a smoke test in Firefox. Needs Node.js; tests
# without their tools are SKIPPED.
#
#   tests/browser.sh             # downloads a Chromium and a Firefox if there is none, and runs the tests
#   tests/browser.sh --fetch     # only downloads
#   tests/browser.sh --pictures  # makes the pictures of the README (docs/page-*.png) from a recorded run
#
# Chromium is the program that CHROMIUM names, else the one for the playwright-core of page/ui/package-lock.json, in
# target/chromium, else that of the system. It is downloaded from the servers of Playwright, or as root from Debian.
# Firefox is the program that FIREFOX names, else that of the system, from Debian.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_INCREMENTAL=0
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
export PLAYWRIGHT_BROWSERS_PATH=$target/chromium

skip() {
    echo "SKIPPED: $1"
    exit 0
}
command -v npm >/dev/null || skip "npm is not installed (Node.js 20 or newer has it)"
# The packages are in the target folder, where the tests search for them too.
modules=$target/tmp/page/ui
if [ -d page/ui/node_modules ]; then
    modules=$PWD/page/ui
elif ! cmp -s page/ui/package-lock.json "$modules/package-lock.json" || [ ! -d "$modules/node_modules" ]; then
    mkdir -p "$modules"
    cp page/ui/package.json page/ui/package-lock.json "$modules/"
    (cd "$modules" && npm ci --silent) || { rm "$modules/package-lock.json"; skip "npm ci cannot get the packages of page/ui"; }
fi

# True if there is a Chromium.
have() {
    for program in "${CHROMIUM:-}" /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome; do
        [ -n "$program" ] && [ -x "$program" ] && return
    done
    compgen -G "$PLAYWRIGHT_BROWSERS_PATH/chromium-*/INSTALLATION_COMPLETE" >/dev/null
}
if ! have; then
    (cd "$modules" && node node_modules/playwright-core/cli.js install --no-shell chromium) || true
fi
if ! have && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends chromium || true
fi
for program in "${FIREFOX:-}" /usr/bin/firefox-esr /usr/bin/firefox; do
    [ -n "$program" ] && [ -x "$program" ] && firefox=$program
done
if [ -z "${firefox:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends firefox-esr || true
fi
have || skip "Chromium cannot be fetched; CHROMIUM names one that you have"
case "${1:-}" in
--fetch) ;;
--pictures)
    cargo build --quiet --package gpuwhy
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trace=testing/fixtures/traces/sleeper.gpuwhy
    "$target/debug/gpuwhy" report --html "$work/page.html" "$trace"
    "$target/debug/gpuwhy" report --json "$trace" >"$work/report.json"
    [ "$modules" = "$PWD/page/ui" ] || cp page/ui/browser.mjs "$modules/"
    (cd "$modules" && node browser.mjs "$work/page.html" "$work/report.json" "$work/pictures") | { ! grep "NOT OK"; }
    for name in timeline whatif; do
        cp "$work/pictures/readme-$name.png" "docs/page-$name.png"
    done
    ;;
"") exec cargo test --package gpuwhy --test main page:: -- --nocapture ;;
*)
    echo "tests/browser.sh: unknown option $1 (--fetch or --pictures)" >&2
    exit 2
    ;;
esac
