#!/usr/bin/env bash
# What a call over WebRTC costs, beside what it costs aiortc: aiortc's clients call its own echo server, then
# sidetone: first an agent that talks all the time, so that both decode and encode every frame, then one that
# listens; half talk is the mean of the two. The servers have the first core for themselves, the clients the last. Red
# when aiortc does not cost ten times as much (LEAST).
#   SESSIONS=8 SECONDS_MEASURED=15 bash scripts/load_aiortc.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/server.sh

# aiortc's clients need a twentieth of a core each.
sessions=${SESSIONS:-8}
seconds=${SECONDS_MEASURED:-15}
python=${CARGO_TARGET_DIR:-target}/peers/aiortc/bin/python
[ -x "$python" ] || { echo "aiortc is missing: run bash scripts/setup.sh test" >&2; exit 1; }

${CARGO:-cargo} build --release --workspace --bin sidetone
data=$(mktemp -d)
echo_pid=
finish() {
    [ -z "$echo_pid" ] || kill "$echo_pid" 2>/dev/null || true
    stop_server
    rm -rf "$data"
}
trap finish EXIT

generator_pin=
if [ "$(nproc)" -gt 1 ]; then
    server_pin="taskset -c 0"
    generator_pin="taskset -c $(($(nproc) - 1))"
fi

${server_pin:-} "$python" scripts/load_aiortc.py echo >"$data/port" &
echo_pid=$!
tries=0
until [ -s "$data/port" ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { echo "aiortc's echo server did not start" >&2; exit 1; }
    sleep 0.1
done
echo 'aiortc:'
$generator_pin "$python" scripts/load_aiortc.py measure $echo_pid "$(cat "$data/port")" "$sessions" "$seconds" | tee "$data/aiortc"
kill "$echo_pid"
echo_pid=

export SIDETONE_SERVER__LISTEN=127.0.0.1:0
export SIDETONE_SERVER__DATA_DIR=$data
export SIDETONE_SERVER__LOG=warn
export SIDETONE_SPEECH__RECOGNISER=scripted
export SIDETONE_ENGINE__MEDIA_THREADS=1
# Calls of the first round may not be over when those of the second begin.
export SIDETONE_LIMITS__ACCOUNT_CALLS=$((2 * sessions))
export SIDETONE_LIMITS__POOL_CALLS=$((2 * sessions))
export SIDETONE_LIMITS__NODE_CALLS=$((2 * sessions))
export SIDETONE_LIMITS__CALL_CREATIONS_PER_MINUTE=100000
start_server "$data/server.out" "$data/server.log"
trap finish EXIT
echo 'sidetone:'
SIDETONE_API_KEY=$key $generator_pin "$python" scripts/load_aiortc.py measure $server_pid "$url" "$sessions" "$seconds" "$data/aiortc" "${LEAST:-10}"
