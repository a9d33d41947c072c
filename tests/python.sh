#!/usr/bin/env bash
# Tests the Python module.
#
#   tests/python.sh                 the sources, over the replay library, with the binaries in target/debug; types, names;
#                                   --source with the same binaries
#   tests/python.sh --wheel FILE    a wheel, in fresh environments of every CPython that is installed or that uv can get;
#                                   further arguments are for pytest, such as -k notebook; GPUWHY_TEST_VERSIONS="3.9 3.12"
#                                   selects versions, `none` tests only the places of pip and uv
#
#   tests/python.sh --source DIR    `pip install .` and the source distribution, in fresh environments, with gpuwhy and
#                                   libprof.so of DIR; without DIR cargo builds both twice, which takes minutes
#
# Tools come from PyPI, into target/python. Tests without their tools are SKIPPED.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
export GPUWHY_TEST_BINARIES=${GPUWHY_TEST_BINARIES:-$target/debug}
tools=$target/python
unset PYTHONPATH

# A virtual environment with the packages of a list; fails where PyPI cannot be reached.
environment() { # folder, requirements
    if [ ! -f "$1/done" ] || [ "$2" -nt "$1/done" ]; then
        python3 -m venv "$1" && "$1/bin/pip" install --quiet --requirement "$2" && touch "$1/done"
    fi
}

if [ "${1:-}" = --source ]; then
    [ -z "${2:-}" ] || GPUWHY_WHEEL_BINARIES=$(realpath "$2")
    export GPUWHY_WHEEL_BINARIES=${GPUWHY_WHEEL_BINARIES-}
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    PYTHONPATH=python/build_backend python3 -c "import sys, gpuwhy_build; gpuwhy_build.build_sdist(sys.argv[1])" "$scratch"
    for source in "$PWD" "$scratch"/gpuwhy-*.tar.gz; do
        python3 -m venv "$scratch/fresh"
        "$scratch/fresh/bin/pip" install --quiet "$source"
        wanted="gpuwhy $("$scratch/fresh/bin/python" -c "import importlib.metadata as m; print(m.version('gpuwhy'))")"
        for said in "$("$scratch/fresh/bin/gpuwhy" --version)" "$("$scratch/fresh/bin/python" -m gpuwhy --version)"; do
            case $said in "$wanted"*) ;; *) echo "expected $wanted, found $said" >&2; exit 1 ;; esac
        done
        (cd "$scratch" && fresh/bin/python -c "import gpuwhy._find as f; assert f.library().is_file(), f.library()")
        (cd "$scratch" && { fresh/bin/gpuwhy doctor || true; } | grep -q "^ok    libprof.so .*site-packages/gpuwhy/_lib/libprof.so")
        echo "pip install ${source##*/}: $wanted, with libprof.so"
        rm -rf "$scratch/fresh"
    done
    exit
fi

if [ "${1:-}" != --wheel ]; then
    if environment "$tools/tests" python/tests/requirements.txt; then
        "$tools/tests/bin/python" -m pytest -q -p no:cacheprovider python/tests
    else
        echo "SKIPPED: pytest cannot be installed from PyPI"
    fi
    "$0" --source "$GPUWHY_TEST_BINARIES"
    if environment "$tools/types" python/tests/requirements-types.txt; then
        "$tools/types/bin/mypy" --python-executable "$tools/types/bin/python"
        "$tools/types/bin/pyright" --pythonpath "$tools/types/bin/python"
        # No type checker reads the scripts: some of them run only on a GPU.
        "$tools/types/bin/pyflakes" .ci benches ci examples host-sampler python tests testing
    else
        echo "SKIPPED: mypy, pyright and pyflakes cannot be installed from PyPI"
    fi
    exit
fi

wheel=$(realpath "$2")
shift 2
export GPUWHY_TEST_INSTALLED=1
[ -x "$tools/uv/bin/uv" ] || { python3 -m venv "$tools/uv" && "$tools/uv/bin/pip" install --quiet uv; }
uv=$tools/uv/bin/uv
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# uv searches the PATH; pyenv keeps its versions elsewhere.
PATH=$PATH:$(printf '%s:' "$HOME"/.pyenv/versions/*/bin)
for version in ${GPUWHY_TEST_VERSIONS:-3.9 3.10 3.11 3.12 3.13 3.14 3.14t}; do
    [ "$version" != none ] || continue
    folder=$scratch/$version
    if ! "$uv" venv --quiet --python "$version" "$folder" 2>"$scratch/said"; then
        echo "SKIPPED: CPython $version: $(tail -n 1 "$scratch/said")"
        continue
    fi
    "$uv" pip install --quiet --python "$folder/bin/python" "$wheel" pytest
    # Notebooks need further packages, which do not exist for every version.
    "$uv" pip install --quiet --python "$folder/bin/python" ipykernel nbclient 2>/dev/null || echo "$version: without notebooks"
    echo "CPython $version: $("$folder/bin/gpuwhy" --version), $("$folder/bin/python" -m gpuwhy --version)"
    PATH=/usr/bin:/bin "$folder/bin/python" -m pytest -q -p no:cacheprovider python/tests "$@"
done

# Places of pip: a folder of modules, and a prefix; and the overlay of uv.
say='import gpuwhy._find as f; print(f.command(), f.library()); import gpuwhy; print(gpuwhy.environment("x")["GPUWHY_OUTPUT"])'
cd "$scratch"
expect() { # output of a command, its expected start
    case $1 in "$2"*) ;; *) echo "expected $2, found $1" >&2; exit 1 ;; esac
}
python3 -m pip install --quiet --root-user-action ignore --no-index --no-deps --target "$scratch/target" "$wheel"
expect "$(PYTHONPATH=$scratch/target python3 -c "$say")" "$scratch/target/bin/gpuwhy $scratch/target/gpuwhy/_lib/libprof.so"
found() { # a command of gpuwhy: the library that it uses
    { "$@" doctor || true; } | sed -n 's/^ok    libprof.so *//p'
}
expect "$(found "$scratch/target/bin/gpuwhy")" "$scratch/target/gpuwhy/_lib/libprof.so"
python3 -m pip install --quiet --root-user-action ignore --no-index --no-deps --ignore-installed --prefix "$scratch/prefix" "$wheel"
modules=$(echo "$scratch"/prefix/lib/python3*/site-packages)
expect "$(PYTHONPATH=$modules python3 -c "$say")" "$scratch/prefix/bin/gpuwhy $modules/gpuwhy/_lib/libprof.so"
expect "$(found "$scratch/prefix/bin/gpuwhy")" "$modules/gpuwhy/_lib/libprof.so"
export UV_CACHE_DIR=$scratch/uv
expect "$("$uv" run --quiet --no-project --no-index --with "$wheel" python -c "$say")" "$scratch/uv/"
expect "$(found "$uv" tool run --quiet --no-index --from "$wheel" gpuwhy)" "$scratch/uv/"
echo "installed by pip, --target, --prefix, uv venv, uv run --with, uv tool run"
