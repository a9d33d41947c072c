#!/usr/bin/env bash
# Cost of a scrape of `gpuwhy exporter` for the measured programs and the exporter. Uses recorded programs; no GPU.
#
#   benches/scrape.sh [PROCESSES] [FIXTURE] [SCRAPES]    # 8 processes of mlp, 20 scrapes, one a second
#
# PROFILE=dev measures a debug build.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_INCREMENTAL=0
profile=${PROFILE:-release}
cargo build --quiet --profile "$profile" --package gpuwhy --package gpuwhy-inject --package cupti-replay
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
exec python3 benches/scrape.py "$target/${profile/#dev/debug}" "${@}"
