#!/usr/bin/env bash
# Set-up, format check, lints, every test; in the optimised profile, as a call has deadlines to keep, but for what no frame
# passes (scripts/tested.toml). A table of what each of these took comes last.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
log=$work/tests.log
trap 'told_times; rm -rf "$work"' EXIT

# timed NAME COMMAND…: runs the command and notes its seconds under the name.
timed() {
    local name=$1 began=$SECONDS status=0
    shift
    "$@" || status=$?
    echo "$((SECONDS - began)) $name" >>"$work/times"
    return "$status"
}

# The seconds of each step and of each test binary, slowest first.
told_times() {
    {
        cat "$work/times"
        [ ! -e "$log" ] || awk '
            /^ +Running / { binary = $NF; sub(/.*\//, "", binary); sub(/-[0-9a-f]+\)$/, "", binary) }
            /^ +Doc-tests / { binary = "doc tests of " $2 }
            /^test result: / { seconds = $NF; sub(/s$/, "", seconds); printf "%.0f   tests: %s\n", seconds, binary }' "$log"
    } | sort -rn | awk -v all="$SECONDS" 'BEGIN { print "== seconds, " all " in all" }
        $1 > 0 { first = $1; $1 = ""; printf "%6d %s\n", first, $0 }'
}

# How many tests of a binary run at once, where it is not one a core. Those with real peers mostly wait: for a telephone
# that rings, for a sentence to be spoken. What must have the machine for itself asks for it, and gets it after all
# others of its binary (tests/kit/stage.rs): each of these holds a thread meanwhile.
declare -A at_once=([calls]=32 [api]=8 [peers]=4 [webrtc]=4 [document]=4 [cluster]=4 [deploy]=4)

# The names of all test targets of the workspace; a new one needs no word here.
targets() {
    cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
targets = [target for package in json.load(sys.stdin)["packages"] for target in package["targets"]]
print(*sorted({target["name"] for target in targets if target["kind"] == ["test"]}))'
}

# tests ARGUMENT…: `cargo test`, with its words kept. All packages are named each time, so that all crates have the same
# features and nothing is compiled twice.
tests() {
    local said status=0
    said=$(mktemp "$work/said.XXXXXX")
    cargo test --release --workspace --no-fail-fast "$@" 2>&1 | tee "$said" || status=$?
    # What failed without a test that did: it could not be built, linked or found.
    [ "$status" = 0 ] || grep -qE '^error: (test|doctest) failed' "$said" || echo "== cargo failed" >>"$said"
    cat "$said" >>"$log"
    return "$status"
}

# Every test. What runs beside real peers keeps real deadlines, and a machine that others share stalls now and then: a
# test of these that failed is run once more, alone, and told of. One that fails twice is red, as is any other failure.
every_test() {
    local name names others=() status=0
    # A loop over nothing would pass.
    names=$(targets) && [ -n "$names" ] || return 1
    for name in $names; do
        [ -n "${at_once[$name]:-}" ] || others+=(--test "$name")
    done
    tests --lib --bins "${others[@]}" || status=1
    tests --doc || status=1
    for name in "${!at_once[@]}"; do
        tests --test "$name" -- --test-threads "${at_once[$name]}" || status=1
    done
    [ "$status" != 0 ] || return 0
    local failures target
    failures=$(bash scripts/failures.sh "$log")
    ! grep -q '^red$' <<<"$failures" || return 1
    while read -r target name; do
        echo "== once more, alone: $target $name"
        cargo test --release --workspace --test "$target" -- --exact "$name" </dev/null || return 1
        echo "== passed at the second run: $target $name"
    done <<<"$failures"
}

# The API once more, on the other database; without what asks no database anything that an engine could answer in its own way.
once_more_on_postgres() {
    local module skipped=()
    for module in claims commands document logs metrics process providers socket_limits table traces verify_webhook webhook_readme; do
        skipped+=(--skip "$module::")
    done
    # Crowds of callers at one database want more of the machine than on SQLite.
    SIDETONE_TEST_DATABASE=postgres tests --test api -- --test-threads 4 "${skipped[@]}"
}

# The same settings each time, or the crates are compiled anew.
cargo() {
    command cargo --config scripts/tested.toml "$@"
}

timed "set-up: packages" bash scripts/setup.sh test packages
# Peers come over the network while the compiler works.
(timed "set-up: peers (beside the build)" bash scripts/setup.sh test peers) >"$work/peers.log" 2>&1 &
peers=$!
cargo fmt --all --check
cargo fmt --manifest-path fuzz/Cargo.toml --check
# What is not optimised takes more of the stack, in tests and in the servers that they start.
export RUST_MIN_STACK=8388608
# Whatever of the workspace is compiled is linted first. The benches are built for that alone.
export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/linting-rustc.sh
# The binary itself: tests with real peers start it.
timed "lints and build of the binary" cargo build --release --workspace --bin sidetone
timed "lints and build of the tests" cargo test --release --workspace --no-run
timed "lints of the benches" cargo build --release --workspace --bench '*'
wait "$peers" || { cat "$work/peers.log"; exit 1; }
cat "$work/peers.log"
timed "all tests" every_test
timed "the API on PostgreSQL" once_more_on_postgres
