#!/usr/bin/env bash
# What failed, by the log ($1) of `cargo test --no-fail-fast`: a line each failed test of a target with real peers, of
# its target and its name; and a line `red` for whatever else failed, or ended without telling.
set -euo pipefail

awk '
    /^ +Running / { source = $2; target = $NF; sub(/.*\//, "", target); sub(/-[0-9a-f]+\)$/, "", target) }
    /^ +Doc-tests / { source = "" }
    /^failures:$/ { count = 0 }
    /^    [^ ]+$/ { names[count++] = $1 }
    /^test result: FAILED/ {
        told++
        with_peers = source ~ /^peers\// || source == "tests/sipp.rs"
        if (!with_peers || !count) print "red"
        else for (at = 0; at < count; at++) print target, names[at]
        count = 0
    }
    /^error: (test|doctest) failed/ { failed++ }
    /^== cargo failed/ { print "red" }
    END { if (!told || told != failed) print "red" }' "$1"
