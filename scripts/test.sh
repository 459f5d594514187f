#!/usr/bin/env bash
# Format check, lints, every test; in the optimised profile, as a call has deadlines to keep.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
cargo clippy --release --workspace --all-targets -- -D warnings
# The binary itself: tests with real peers start it. All packages are named each time, so that all crates have the same
# features and nothing is compiled twice.
cargo build --release --workspace --bin sidetone
cargo test --release --workspace --no-fail-fast
# The API once more, on the other database.
SIDETONE_TEST_DATABASE=postgres cargo test --release --workspace --test api
