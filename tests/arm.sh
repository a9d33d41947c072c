#!/usr/bin/env bash
# Builds for Arm (aarch64) and runs the result under qemu-user, without a GPU.
#
#   tests/arm.sh [PROFILE]    a profile of cargo [dev]
#
# zig comes from PyPI as for the wheel, qemu-user-static and the C library from Debian, into target/arm-tools. Steps without
# their tools are SKIPPED.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-dev}
target=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target/arm-tools
export CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$target/arm
if ! rustup target list --installed 2>/dev/null | grep -q '^aarch64-unknown-linux-gnu$'; then
    echo "SKIPPED: Rust has no standard library for Arm here (rustup target add aarch64-unknown-linux-gnu)"
    exit
fi
if ! python3 -c "import sys; sys.path.insert(0, 'python'); import pathlib, wheel; wheel.installed(pathlib.Path('$target/wheel-tools'))"; then
    echo "SKIPPED: zig cannot be installed from PyPI"
    exit
fi
# Without optimization Rust's standard library needs gettid of glibc 2.30; a release build needs only that of the wheel.
[ "$profile" = dev ] && glibc=2.31 || glibc=2.17
PATH=$target/wheel-tools/bin:$PATH cargo zigbuild --profile "$profile" --target "aarch64-unknown-linux-gnu.$glibc" --locked \
    -p gpuwhy -p gpuwhy-inject -p cupti-replay
built=$CARGO_TARGET_DIR/aarch64-unknown-linux-gnu/$([ "$profile" = dev ] && echo debug || echo "$profile")
library=$built/deps/libprof.so
[ -f "$library" ] || library=$built/libprof.so
echo "built for Arm: $(readelf -h "$library" | sed -n 's/^ *Machine: *//p'), newest glibc" \
    "$(readelf -V "$library" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)"

root=$tools/root
if [ ! -x "$root/usr/bin/qemu-aarch64-static" ]; then
    mkdir -p "$tools"
    if ! (cd "$tools" && apt-get download -qq qemu-user-static libc6-arm64-cross libgcc-s1-arm64-cross 2>/dev/null); then
        echo "SKIPPED: qemu-user-static is unavailable from Debian: built, not loaded"
        exit
    fi
    for package in "$tools"/*.deb; do dpkg-deb -x "$package" "$root"; done
    rm "$tools"/*.deb
fi
qemu=("$root/usr/bin/qemu-aarch64-static" -L "$root/usr/aarch64-linux-gnu")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
replay=$built/deps/libcupti_replay.so
[ -f "$replay" ] || replay=$built/libcupti_replay.so
cd "$scratch"
# A recorded session through the real libprof.so gives a report and a trace.
env -u NVTX_INJECTION64_PATH CUDA_INJECTION64_PATH="$library" GPUWHY_CUPTI_PATH="$replay" GPUWHY_OUTPUT=arm.gpuwhy \
    GPUWHY_REPLAY="$OLDPWD/testing/fixtures/mlp.cupti.zst" GPUWHY_EXIT_TIMEOUT=5m GPUWHY_CUDA_GRAPH_TRACE=node \
    "${qemu[@]}" "$built/gpuwhy-replay-host" 2>&1 | tee said
grep -q 'Bottleneck: kernel launches' said
# The command reads the trace.
"${qemu[@]}" "$built/gpuwhy" --version
"${qemu[@]}" "$built/gpuwhy" report --recompute --json arm.gpuwhy | grep -q '"cause":"launch"'
echo "libprof.so and gpuwhy for Arm ran under qemu-user: built, not run on a GPU"
