# Commands for developers; CONTRIBUTING.md explains them. Needs https://just.systems, or copy the line.

# List the commands.
default:
    @just --list

# Profile a recorded session, without a GPU.
demo *options:
    cargo run --release -- demo {{options}}

# Everything that needs no GPU; FILTER runs some tests.
test *filter:
    cargo test --workspace {{filter}}

# All checks that a change must pass.
ci:
    .ci/run

# Fuzz one reader: trace, kineto, recording, walk, control or nvtx.
fuzz target='trace' *options:
    RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir testing/fuzz -s address {{target}} testing/fuzz/corpus/{{target}} testing/fuzz/seeds/{{target}} -- {{options}}

# The lock-free parts of libprof.so under a model checker.
model:
    cargo test --release -p gpuwhy-model

# The Python module over recordings; `just python --wheel FILE` tests a wheel in fresh environments.
python *options:
    tests/python.sh {{options}}

# The HTML page in Chromium.
browser *options:
    tests/browser.sh {{options}}

# The claims of the README, on a machine with an NVIDIA GPU.
gpu *options:
    tests/gpu/run.sh {{options}}

# Speed of the engine, the trace format and the exports.
bench *filter:
    cargo bench --workspace {{filter}}

# Rewrite the agreed interfaces, golden tables and limits, for review with `git diff`.
bless:
    -GPUWHY_BLESS=1 cargo test --test main
    -for guard in packages text structure; do GPUWHY_BLESS=1 python3 .ci/$guard.py; done

# The book and the API documentation.
docs:
    mdbook build docs --dest-dir target/book
    cargo doc --workspace --no-deps
