#!/usr/bin/env bash
# The long bars. Each is told whether it was met; red when one was not. With arguments only those bars
# whose name holds one of them:
#   bash scripts/soak.sh "200 calls" bare
set -uo pipefail
cd "$(dirname "$0")/.."

wanted=("$@")
failed=()
table=()
bar() {
    local name=$1 word
    shift
    if [ ${#wanted[@]} -gt 0 ]; then
        for word in "${wanted[@]}"; do [[ $name != *"$word"* ]] || break; done
        [[ $name == *"$word"* ]] || return 0
    fi
    echo "== $name"
    local began=$SECONDS
    if "$@"; then
        table+=("met     $((SECONDS - began)) s  $name")
    else
        table+=("MISSED  $((SECONDS - began)) s  $name")
        failed+=("$name")
    fi
    echo "== ${table[-1]}"
}

# What else runs on the machine (or on its host) adds to times and never takes from them: the bars of
# speed are met when one run of three meets all of them. Each run prints its figures.
best_of_three() {
    local run
    for run in 1 2 3; do
        echo "-- run $run of at most 3"
        ! "$@" || return 0
    done
    return 1
}

# The table of bad networks (docs/testing.md) with other seeds than the normal test's. The seed is compiled in, for the
# engine's code reads no environment.
bad_networks() {
    local seed
    for seed in 2 3 4; do
        SIDETONE_SEED=$seed cargo test --release -p sidetone-media --lib bad_networks -- --nocapture || return 1
    done
}

cargo build --release --workspace --bin sidetone || exit 1

bar "the question set in three voices over the socket: 90 % right at 16 kHz, 80 % through a telephone" \
    env SIDETONE_SOAK=1 cargo test --release --workspace --test peers -- --nocapture --exact \
    questions::questions_at_16_khz_are_answered questions::questions_by_telephone_are_answered
bar "ten thousand random conversations" \
    env SIDETONE_CASES=10000 cargo test --release --workspace --test turns -- properties talks
cargo test --release --workspace --test sim --no-run || exit 1
bar "100,000 storms over nodes, leases and outbox in virtual time, within eight minutes" \
    env SIDETONE_SEEDS=100000 timeout 480 \
    cargo test --release --workspace --test sim -- --nocapture whatever_breaks
bar "a thousand of them at a real Redis and PostgreSQL" \
    env SIDETONE_REAL_SEEDS=1000 cargo test --release --workspace --test sim -- --nocapture real_stores
bar "100,000 storms over two SIP endpoints and a network that loses, doubles and reorders" \
    env SIDETONE_SEEDS=100000 cargo test --release -p sidetone-sip --lib -- many_calls_over_a_bad_network
bar "60,000 SIPp calls at 3,000 a second of signalling over UDP, none of them failed" \
    best_of_three env SIDETONE_SIPP_RATE=3000 SIDETONE_SIPP_CALLS=60000 \
    cargo test --release -p sidetone-sip --test sipp -- --nocapture calls_a_second
bar "floods, idle sockets, racing connects and ends at full volume" \
    env SIDETONE_SOAK=1 cargo test --release --workspace --test calls
bar "an unknown id and another account's take the same time, to the millisecond" \
    env SIDETONE_SOAK=1 cargo test --release --workspace --test api -- isolation --nocapture
bar "10,000 ends of calls, 100 kills, a receiver that fails 30 % of the time" \
    env SIDETONE_SOAK=1 cargo test --release --workspace --test api -- webhook_delivery
bar "schemathesis: every check, 100 examples an operation" \
    env SIDETONE_SOAK=1 cargo test --release --workspace --test document -- --nocapture schemathesis
bar "webhooks to names that turn private and to 64 addresses: the kernel counts no connection" bash scripts/ssrf.sh
bar "three servers on one Redis, with kill -9, FLUSHALL and SIGSTOP, at full volume" \
    env SIDETONE_SOAK=1 cargo test --release --workspace --test cluster -- --test-threads 1
bar "browsers' calls: strangers, floods and races at full volume, offers and answers of other stacks" \
    env SIDETONE_SOAK=1 cargo test --release --workspace --test webrtc -- --test-threads 1
bar "browsers' calls by webrtc-rs" \
    cargo test --release --workspace --features sidetone-tests/webrtc-rs --test webrtc -- webrtc_rs
bar "browsers' calls in a real browser: blackouts, changed addresses, relays" \
    env SIDETONE_SOAK=1 cargo test --release --workspace --test peers -- --test-threads 1 rtc::
bar "browsers' calls over bad networks: what losses leave, with three more seeds" bad_networks
bar "200 calls on one core" best_of_three bash scripts/load.sh
bar "50 browsers' calls on one core" best_of_three env SESSIONS=50 TRANSPORT=webrtc bash scripts/load.sh
bar "browsers' calls: a tenth of the CPU of aiortc's" best_of_three env SESSIONS=4 bash scripts/load_aiortc.sh
bar "400 RTP calls at once, keypad events agreed on and nothing recorded: half a millisecond of CPU a call-second" \
    best_of_three env RECORDED=false KEYS=events SESSIONS=400 bash scripts/load_sip.sh
bar "400 RTP calls at once, recorded and searched for keys: half a millisecond of CPU a call-second" \
    best_of_three env SESSIONS=400 bash scripts/load_sip.sh
bar "make run in a bare root" bash scripts/bare.sh run
bar "make test in a bare root" bash scripts/bare.sh test

echo
printf '%s\n' "${table[@]}"
if [ ${#failed[@]} -gt 0 ]; then
    echo "Missed: ${failed[*]}"
    exit 1
fi
echo "Every bar was met."
