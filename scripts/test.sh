#!/usr/bin/env bash
# Set-up, format check, lints, every test; in the optimised profile, as a call has deadlines to keep. A table of what each
# of these took comes last.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
times=$(mktemp)
trap 'told_times; rm -f "$log" "$times"' EXIT

# timed NAME COMMAND…: runs the command and notes its seconds under the name.
timed() {
    local name=$1 began=$SECONDS
    shift
    "$@"
    echo "$((SECONDS - began)) $name" >>"$times"
}

# The seconds of each step and of each test binary, slowest first.
told_times() {
    {
        cat "$times"
        awk '
            /^ +Running / { binary = $NF; sub(/.*\//, "", binary); sub(/-[0-9a-f]+\)$/, "", binary) }
            /^ +Doc-tests / { binary = "doc tests of " $2 }
            /^test result: / { seconds = $NF; sub(/s$/, "", seconds); printf "%.0f   tests: %s\n", seconds, binary }' "$log"
    } | sort -rn | awk 'BEGIN { print "== seconds" } $1 > 0 { first = $1; $1 = ""; printf "%6d %s\n", first, $0 }'
}

# Every test. What runs beside real peers keeps real deadlines, and a machine that others share stalls now and then: a
# test of these that failed is run once more, alone, and told of. One that fails twice is red, as is any other failure.
every_test() {
    if cargo test --release --workspace --no-fail-fast 2>&1 | tee -a "$log"; then
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

timed "set-up" bash scripts/setup.sh test
cargo fmt --all --check
timed "lints" cargo clippy --release --workspace --all-targets -- -D warnings
# The fuzz targets are no members of the workspace: nothing else tells that they compile no more (make fuzz runs them).
cargo fmt --manifest-path fuzz/Cargo.toml --check
timed "lints of fuzz/" cargo clippy --release --locked --manifest-path fuzz/Cargo.toml \
    --target-dir "${CARGO_TARGET_DIR:-target}/fuzz-check" -- -D warnings
# The binary itself: tests with real peers start it. All packages are named each time, so that all crates have the same
# features and nothing is compiled twice.
timed "build of the binary" cargo build --release --workspace --bin sidetone
timed "build of the tests" cargo test --release --workspace --no-run
timed "all tests" every_test
# The API once more, on the other database.
once_more_on_postgres() {
    SIDETONE_TEST_DATABASE=postgres cargo test --release --workspace --test api 2>&1 | tee -a "$log"
}
timed "the API on PostgreSQL" once_more_on_postgres
