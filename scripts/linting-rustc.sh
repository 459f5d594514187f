#!/usr/bin/env bash
# A compiler of the workspace's crates that lints each before it compiles it, every warning an error. scripts/test.sh has
# cargo use it (RUSTC_WORKSPACE_WRAPPER): clippy reads the dependencies as they were built, where `cargo clippy` would
# check all of them first, which takes minutes.
#   scripts/linting-rustc.sh RUSTC ARGUMENT…
set -euo pipefail

rustc=$1
shift

# What clippy is told: the same, but that it leaves nothing behind, and no word to cargo of files that are there.
told=()
crate=
for argument in "$@"; do
    case $argument in
        --emit=*) crate=yes argument=--emit=metadata ;;
        --json=*) argument=${argument//,artifacts/} argument=${argument//artifacts,/} ;;
    esac
    told+=("$argument")
done

if [ -n "$crate" ]; then
    nowhere=$(mktemp -d)
    trap 'rm -rf "$nowhere"' EXIT
    for at in "${!told[@]}"; do
        [ "${told[at]}" != --out-dir ] || told[at + 1]=$nowhere
    done
    # Beside the compiler, where cargo names its place.
    driver=$(dirname "$rustc")/clippy-driver
    [ -x "$driver" ] || driver=clippy-driver
    CLIPPY_ARGS='-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__' "$driver" "$rustc" "${told[@]}"
    rm -rf "$nowhere"
fi
exec "$rustc" "$@"
