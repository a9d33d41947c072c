#!/usr/bin/env bash
# `gpuwhy exporter` with Prometheus itself: promtool checks rules, their tests and the text of a scrape; then a Prometheus
# scrapes an exporter over recorded programs, and its values are compared with the reports. SKIPPED without Prometheus.
#
#   tests/prometheus.sh    # uses prometheus in the PATH, or unpacks Debian's package into target/prometheus
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_INCREMENTAL=0

case "${1:-}" in
"") ;;
*) sed -n '2,6s/^# \?//p' "$0"; exit 2 ;;
esac
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
tools=$target/prometheus
if ! command -v promtool >/dev/null && [ ! -x "$tools/usr/bin/promtool" ] && command -v apt-get >/dev/null; then
    mkdir -p "$tools"
    (cd "$tools" && apt-get download --quiet prometheus 2>/dev/null &&
        for package in *.deb; do dpkg-deb --extract "$package" .; done) || true
fi
export PATH="$PATH:$tools/usr/bin"
if ! command -v promtool >/dev/null; then
    echo "SKIPPED: promtool is not installed and cannot be fetched"
    exit 0
fi
promtool check rules docs/monitoring/rules.yml
promtool test rules docs/monitoring/rules_test.yml
promtool check config docs/monitoring/prometheus.yml

cargo build --quiet --package gpuwhy --package gpuwhy-inject --package cupti-replay
exec python3 tests/prometheus.py "$target/debug"
