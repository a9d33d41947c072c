#!/usr/bin/env bash
# Every recipe on several SQL engines: the results are equal cell by cell, and name the planted causes.
#
#   tests/lake.sh                 SQLite, DuckDB, and Sail, a server that speaks Spark's protocol
#   tests/lake.sh --spark         also Apache Spark with two executors in separate processes
#                                 (GPUWHY_TEST_SPARK_MASTER: another master); it needs Java 17, which is downloaded from
#                                 Debian if there is none and apt works. One Spark Connect server runs all recipes,
#                                 and one recipe starts a separate Spark
#
# Engines come from PyPI, into target/lake-engines. Missing ones are SKIPPED. The lake has recorded sessions and a
# simulated job; needs target/debug/gpuwhy.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
gpuwhy=$target/debug/gpuwhy
tools=$target/lake-engines
spark='' alone=''
case ${1:-} in
    '') ;;
    --spark) spark=yes ;;
    *) sed -n '2,12s/^# \?//p' "$0"; exit 2 ;;
esac
[ -x "$gpuwhy" ] || { echo "$gpuwhy is missing: cargo build" >&2; exit 2; }
mkdir -p "$tools"

# A virtual environment with the packages of a list; fails where PyPI cannot be reached.
environment() { # folder, requirements
    if [ ! -f "$1/done" ] || [ "$2" -nt "$1/done" ]; then
        python3 -m venv "$1" && "$1/bin/pip" install --quiet --disable-pip-version-check --requirement "$2" && touch "$1/done"
    fi
}

scratch=$(mktemp -d)
lake=$scratch/lake
servers=()
cleanup() {
    for server in "${servers[@]}"; do kill "$server" 2>/dev/null || true; done
    for server in "${servers[@]}"; do wait "$server" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap cleanup EXIT

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Waits until a server listens; fails with the server's log if it ends or takes five minutes.
await() { # process, port, log
    for _ in $(seq 1500); do
        (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return
        kill -0 "$1" 2>/dev/null || break
        sleep 0.2
    done
    tail -n 40 "$3" >&2
    exit 1
}

# Complete recorded sessions, each as a rank of one run and alone; and a simulated job.
"$gpuwhy" --quiet demo --fast --all --output "$scratch/traces" >/dev/null
for fixture in gpt mlp sync_item multi_stream resnet_workers0; do
    "$gpuwhy" --quiet lake add --tier full --run "$fixture" "$scratch/traces/$fixture.gpuwhy" --to "$lake"
done
CARGO_INCREMENTAL=0 cargo build --quiet -p gpuwhy-export --example simulated_lake
"$target/debug/examples/simulated_lake" "$lake" 64 20 2 >"$scratch/truth"

engines=("--engine sqlite")
if environment "$tools/parser" tests/lake/requirements-parser.txt; then
    "$tools/parser/bin/python" tests/lake/parsed.py "$gpuwhy"
else
    echo "SKIPPED: sqlglot cannot be installed from PyPI"
fi
if environment "$tools/engines" tests/lake/requirements.txt; then
    python=$tools/engines/bin/python
    engines+=("--engine duckdb --with $python")
    port=$(free_port)
    "$tools/engines/bin/sail" spark server --port "$port" >"$scratch/sail.log" 2>&1 &
    servers+=($!)
    await $! "$port" "$scratch/sail.log"
    engines+=("spark $python sc://127.0.0.1:$port")
else
    echo "SKIPPED: DuckDB and Sail cannot be installed from PyPI"
fi
if [ -n "$spark" ]; then
    if ! command -v java >/dev/null && [ "$(id -u)" = 0 ]; then
        apt-get install --yes --quiet openjdk-17-jre-headless >/dev/null 2>&1 || true
    fi
    if command -v java >/dev/null && [ -n "${python:-}" ] && environment "$tools/spark" tests/lake/requirements-spark.txt; then
        # Executors are separate processes; they need the home of the package.
        export SPARK_HOME
        SPARK_HOME=$("$tools/spark/bin/python" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
        master=${GPUWHY_TEST_SPARK_MASTER:-local-cluster[2,1,1024]}
        port=$(free_port)
        # The command of sbin/start-connect-server.sh, as a process that can be killed. The tables are small: the default
        # of 200 partitions would mean 200 tasks for each join.
        (cd "$scratch" && exec "$SPARK_HOME/bin/spark-submit" --master "$master" \
            --class org.apache.spark.sql.connect.service.SparkConnectServer \
            --conf spark.connect.grpc.binding.address=127.0.0.1 --conf "spark.connect.grpc.binding.port=$port" \
            --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2) >"$scratch/spark.log" 2>&1 &
        servers+=($!)
        await $! "$port" "$scratch/spark.log"
        engines+=("spark $python sc://127.0.0.1:$port")
        alone="spark $tools/spark/bin/python $master"
    else
        echo "SKIPPED: Apache Spark: there is no Java, or PyPI cannot be reached"
    fi
fi
python3 tests/lake/compare.py "$gpuwhy" "$lake" "$scratch/truth" "${engines[@]}"
if [ -n "$alone" ]; then
    # As a user runs it, with a Spark that starts and ends with the recipe.
    python3 tests/lake/compare.py --only late_because "$gpuwhy" "$lake" "$scratch/truth" "--engine sqlite" "$alone"
    tasks=$(grep -oE 'Starting task .*executor [0-9]+' "$scratch/spark.log" | grep -oE 'executor [0-9]+' | sort | uniq -c)
    echo "tasks of Apache Spark: ${tasks//$'\n'/,}"
    [ -n "${GPUWHY_TEST_SPARK_MASTER:-}" ] || [ "$(grep -c . <<<"$tasks")" -ge 2 ] || { echo "one executor did it all" >&2; exit 1; }
fi
# The same after compaction.
before=$(find "$lake" -name '*.parquet' | wc -l)
"$gpuwhy" lake compact "$lake"
[ "$(find "$lake" -name '*.parquet' | wc -l)" -lt "$before" ]
[ -z "$(find "$lake" -name '_gpuwhy*' -o -name '.gpuwhy*')" ]
python3 tests/lake/compare.py "$gpuwhy" "$lake" "$scratch/truth" "${engines[@]:0:2}"
