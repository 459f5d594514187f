#!/usr/bin/env bash
# Format check, lints, every test; in the optimised profile, as a call has deadlines to keep.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Every test. What runs beside real peers keeps real deadlines, and a machine that others share stalls now and then: a
# test of these that failed is run once more, alone, and told of. One that fails twice is red, as is any other failure.
every_test() {
    if cargo test --release --workspace --no-fail-fast 2>&1 | tee "$log"; then
        return 0
    fi
    local failures target name
    failures=$(bash scripts/failures.sh "$log")
    ! grep -q '^red$' <<<"$failures" || return 1
    while read -r target name; do
        echo "== once more, alone: $target $name"
        cargo test --release --workspace --test "$target" -- --exact "$name" </dev/null || return 1
        echo "== passed at the second run: $target $name"
    done <<<"$failures"
}

cargo fmt --all --check
cargo clippy --release --workspace --all-targets -- -D warnings
# The fuzz targets are no members of the workspace: nothing else tells that they compile no more (make fuzz runs them).
cargo fmt --manifest-path fuzz/Cargo.toml --check
cargo clippy --release --locked --manifest-path fuzz/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/fuzz-check" -- -D warnings
# The binary itself: tests with real peers start it. All packages are named each time, so that all crates have the same
# features and nothing is compiled twice.
cargo build --release --workspace --bin sidetone
every_test
# The API once more, on the other database.
SIDETONE_TEST_DATABASE=postgres cargo test --release --workspace --test api
