#!/usr/bin/env bash
# Records CUPTI's buffers for a set of small programs, to be replayed on hosts without a GPU.
#
#   tests/gpu/record.sh [--bin DIR] [--out DIR] [--only NAME]... [--pack FILE.tar.gz]
#
# Writes NAME.cupti.zst (NAME.cupti if zstd is not available) and NAME.report.json, the report of the recorded run
# itself, so that a replay can be compared with the result on the GPU. Step counts are chosen for a second or so of
# steady work and at most about 16 MB before compression: a kernel takes some 260 bytes with its API call.
# Exit status: 0 all recorded, 1 some failed, 2 could not start.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
bin=$repository/target/release
out=recordings
pack=
only=()
seconds=120 # maximum run of one program

usage() { sed -n '2,/^set -u/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --bin | --out | --only | --pack)
            [ $# -ge 2 ] || { echo "record.sh: $1 needs a value" >&2; exit 2; }
            case $1 in
                --bin) bin=$2 ;;
                --out) out=$2 ;;
                --only) only+=("$2") ;;
                --pack) pack=$2 ;;
            esac
            shift 2 ;;
        *) echo "record.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
    esac
done

for file in "$bin/libprof.so" "$bin/gpuwhy"; do
    [ -e "$file" ] || { echo "record.sh: $file does not exist: build it, or give --bin" >&2; exit 2; }
done
mkdir -p "$out" || exit 2
bin=$(cd "$bin" && pwd)
out=$(cd "$out" && pwd)
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
export PYTHONDONTWRITEBYTECODE=1

# Paths with spaces would be split below.
case "$here$scratch" in *\ *) echo "record.sh: the path of the repository must hold no spaces" >&2; exit 2 ;; esac
train="python3 $here/workloads/train.py"
lessons=$repository/examples/python
# name | command
cases=(
    "gpt|$train gpt --batch 16 --warmup 3 --steps 20 --repetitions 1"
    "mlp|$train mlp --warmup 10 --steps 180 --repetitions 1"
    "resnet_workers0|$train resnet --loader-ms 3 --workers 0 --warmup 3 --steps 15 --repetitions 1"
    "resnet_workers4|$train resnet --loader-ms 1 --workers 4 --pin --warmup 5 --steps 45 --repetitions 1"
    "copy_pageable|python3 $lessons/03_pageable_copies.py --steps 150"
    "sync_item|python3 $lessons/02_sync_item.py --steps 8000"
    "graph_torch|python3 $lessons/04_launch_bound.py --graph --layers 20 --width 1024 --batch 2048 --steps 500"
    "graph_dense|$scratch/microbench graph 200 100 --reps 1"
    "multi_stream|python3 $lessons/05_multi_stream.py --steps 400"
    "managed|$scratch/microbench managed 24 --reps 1"
)

wanted() {
    [ ${#only[@]} -eq 0 ] && return 0
    local name
    for name in "${only[@]}"; do [ "$name" = "$1" ] && return 0; done
    return 1
}

# Compresses a file in place with any zstd that is available, or reports that it stays uncompressed.
compress() {
    if command -v zstd >/dev/null; then
        zstd -q -19 --rm -f "$1"
    elif python3 -c 'import zstandard' 2>/dev/null; then
        python3 - "$1" <<'PYTHON' && rm "$1"
import sys, zstandard
with open(sys.argv[1], "rb") as plain, open(sys.argv[1] + ".zst", "wb") as packed:
    zstandard.ZstdCompressor(level=19).copy_stream(plain, packed)
PYTHON
    else
        echo "    neither zstd nor python's zstandard is here: $(basename "$1") stays uncompressed"
    fi
}

# record NAME COMMAND...: runs the program under recording in a separate folder.
record() {
    local name=$1 folder status=0 trace
    shift
    folder=$(mktemp -d "$scratch/$name.XXXX") || return 1
    echo "== $name: $*"
    (
        cd "$folder" || exit 1
        CUDA_INJECTION64_PATH=$bin/libprof.so GPUWHY_OUTPUT=trace.gpuwhy GPUWHY_REPORT=summary \
            GPUWHY_RAW_RECORDING=$folder/$name.cupti GPUWHY_DEPENDENCIES=on GPUWHY_CUDA_GRAPH_TRACE=node \
            timeout --kill-after=10 "$seconds" "$@"
    ) 2>&1 | sed 's/^/    /'
    status=${PIPESTATUS[0]}
    if [ "$status" -ne 0 ]; then
        echo "FAIL    $name: exit status $status"
        return 1
    fi
    if [ ! -s "$folder/$name.cupti" ]; then
        echo "FAIL    $name: no recording was written"
        return 1
    fi
    for trace in "$folder"/*.gpuwhy; do
        [ -e "$trace" ] && "$bin/gpuwhy" report --json "$trace" >"$out/$name.report.json"
    done
    local raw
    raw=$(stat -c %s "$folder/$name.cupti")
    mv "$folder/$name.cupti" "$out/$name.cupti"
    compress "$out/$name.cupti"
    echo "PASS    $name: $raw bytes, $(stat -c '%s bytes as %n' "$out/$name".cupti* | sed "s|$out/||")"
}

if wanted graph_dense || wanted managed; then
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    timeout "$seconds" "$nvcc" -O2 -arch=native -o "$scratch/microbench" "$here/workloads/microbench.cu" ||
        echo "record.sh: microbench was not built; graph_dense and managed will fail" >&2
fi

failed=0
recorded=0
for entry in "${cases[@]}"; do
    name=${entry%%|*}
    wanted "$name" || continue
    read -r -a words <<<"${entry#*|}"
    if record "$name" "${words[@]}"; then recorded=$((recorded + 1)); else failed=$((failed + 1)); fi
done

if [ -n "$pack" ]; then
    mkdir -p "$(dirname "$pack")"
    tar -C "$out" -czf "$pack" . && echo "packed: $(stat -c '%s bytes in %n' "$pack")"
fi
echo "$recorded recorded, $failed failed"
[ $((recorded + failed)) -gt 0 ] || { echo "record.sh: no case is called ${only[*]}" >&2; exit 2; }
[ "$failed" -eq 0 ]
