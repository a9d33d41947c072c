#!/usr/bin/env bash
# libprof.so under AddressSanitizer: the recordings as they are, and two of them with every fault of the replay library in
# buffers, records and sizes (the table in tests/reliability/faults.md). Takes minutes, so it is not part of .ci/run.
#
#   tests/sanitized.sh
#
# Exit status: 0 every program ended as expected and no fault was found; else 1, with the output.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly target=x86_64-unknown-linux-gnu
export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/sanitized"
# The exit handler keeps memory that the driver may still use.
export ASAN_OPTIONS=detect_leaks=0
cargo build --quiet --target $target -p gpuwhy-inject -p cupti-replay
# The library gets the sanitizer's functions from the program.
cargo rustc --quiet --target $target -p cupti-replay --bin gpuwhy-replay-host -- \
    -Clink-arg=-Wl,--export-dynamic-symbol='__asan*'

readonly built="$CARGO_TARGET_DIR/$target/debug" stage=$(mktemp -d)
trap 'rm -r "$stage"' EXIT
plays=0 failed=0

play() { # recording, fault
    plays=$((plays + 1))
    local status=0
    CUDA_INJECTION64_PATH="$built/libprof.so" NVTX_INJECTION64_PATH="$built/libprof.so" \
        GPUWHY_CUPTI_PATH="$built/libcupti_replay.so" GPUWHY_REPLAY="$1" GPUWHY_REPLAY_FAULT="$2" \
        GPUWHY_OUTPUT="$stage/trace.gpuwhy" GPUWHY_REPORT=full GPUWHY_EXIT_TIMEOUT=60s \
        "$built/gpuwhy-replay-host" --ranges after 2> "$stage/said" || status=$?
    if [ $status -ne 0 ] || grep -q AddressSanitizer "$stage/said"; then
        failed=$((failed + 1))
        echo "$(basename "$1") ${2:-as it is}: exit status $status"
        grep -A 12 AddressSanitizer "$stage/said" || tail -3 "$stage/said"
    fi
    rm -f "$stage/trace.gpuwhy"
}

for recording in testing/fixtures/*.cupti.zst; do
    play "$recording" ""
done
for fault in $(sed -n '/<!-- lies -->/,/<!-- \/lies -->/s/^| `\(\(buffers\|records\|sizes\)=[^`]*\)`.*/\1/p' tests/reliability/faults.md); do
    for name in copy_pageable multi_stream; do
        play "testing/fixtures/$name.cupti.zst" "$fault"
    done
done
echo "$plays plays, $failed failed"
[ $plays -gt 20 ] && [ $failed -eq 0 ]
