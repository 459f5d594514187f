#!/usr/bin/env bash
# Fuzzes what strangers' bytes reach first, one target of fuzz/targets after the other; ends with the first
# that fails, and its input lies in fuzz/artifacts. The hooks of libFuzzer are put in by a pass of the
# compiler that is there: no other toolchain is needed, only a C++ compiler for libFuzzer itself.
#   SECONDS_EACH=60 make fuzz                   all
#   SECONDS_EACH=600 bash scripts/fuzz.sh sdp   one
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${SECONDS_EACH:-60}
target=$(rustc -vV | sed -n 's/^host: //p')
flags=(-Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares)
# Flags between which a unit separator stands; naming the target keeps them off build scripts.
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' "${flags[@]}")
export CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS%$'\x1f'}
built=${CARGO_TARGET_DIR:-$PWD/../target}/fuzz
${CARGO:-cargo} build --release --locked --target "$target" --target-dir "$built"

targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    for file in targets/*.rs; do
        targets+=("$(basename "$file" .rs)")
    done
fi
for name in "${targets[@]}"; do
    corpus=$built/corpus/$name
    mkdir -p "$corpus" artifacts
    seeds=()
    [ ! -d "seeds/$name" ] || seeds=("seeds/$name")
    echo "fuzzing $name for $seconds s"
    # 8 KiB: longer than a message, shorter than a datagram may be.
    "$built/$target/release/$name" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="artifacts/$name-" "$corpus" "${seeds[@]}" \
        > "$built/$name.log" 2>&1 || {
        tail -40 "$built/$name.log"
        exit 1
    }
    grep -E "number_of_executed_units|average_exec_per_sec" "$built/$name.log" || true
done
