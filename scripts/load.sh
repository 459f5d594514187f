#!/usr/bin/env bash
# A capacity run. The server has the first core for itself, the load generator the last. The speech
# providers are scripted, so the figures are the engine's. Red when a bar is missed.
#   SESSIONS=200 SECONDS_MEASURED=30 make load
#   SESSIONS=50 TRANSPORT=webrtc make load          browsers' calls in place of telephone calls
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/server.sh

sessions=${SESSIONS:-200}
seconds=${SECONDS_MEASURED:-30}
transport=${TRANSPORT:-telco}
case $transport in
    telco) bars=(--max-cpu 1.6 --max-memory 256) ;;
    webrtc) bars=(--max-cpu 3 --max-memory 512) ;;
    *) echo "TRANSPORT is telco or webrtc" >&2; exit 2 ;;
esac

cargo build --release --workspace --bin sidetone
data=$(mktemp -d)
trap 'stop_server; rm -rf "$data"' EXIT

export SIDETONE_SERVER__LISTEN=127.0.0.1:0
export SIDETONE_SERVER__DATA_DIR=$data
export SIDETONE_SERVER__LOG=warn
export SIDETONE_SPEECH__RECOGNISER=scripted
export SIDETONE_ENGINE__MEDIA_THREADS=1
export SIDETONE_LIMITS__ACCOUNT_CALLS=$sessions
export SIDETONE_LIMITS__POOL_CALLS=$sessions
export SIDETONE_LIMITS__NODE_CALLS=$sessions
export SIDETONE_LIMITS__CALL_CREATIONS_PER_MINUTE=100000
export SIDETONE_LIMITS__READS_PER_MINUTE=100000
export SIDETONE_LIMITS__WRITES_PER_MINUTE=100000

generator_pin=
if [ "$(nproc)" -gt 1 ]; then
    server_pin="taskset -c 0"
    generator_pin="taskset -c $(($(nproc) - 1))"
fi
# A generator that comes late itself measures itself.
[ "$(id -u)" != 0 ] || generator_pin="nice -n -10 $generator_pin"
start_server "$data/server.out" "$data/server.log"
trap 'stop_server; rm -rf "$data"' EXIT

SIDETONE_API_KEY=$key $generator_pin "$sidetone" load --url "$url" --pid "$server_pid" \
    --transport "$transport" --sessions "$sessions" --seconds "$seconds" \
    --max-gap-tail 3 --max-turn-p50 10 --max-turn-p99 20 --max-underruns 0 "${bars[@]}" \
    "$@"
