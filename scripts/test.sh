#!/usr/bin/env bash
# Format check, lints, every test; in the optimised profile, as a call has deadlines to keep.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
cargo clippy --release --workspace --all-targets -- -D warnings
# The binary itself: tests with real peers start it.
cargo build --release -p sidetone
cargo test --release --workspace
# The API once more, on the other database.
SIDETONE_TEST_DATABASE=postgres cargo test --release -p sidetone-tests --test api
