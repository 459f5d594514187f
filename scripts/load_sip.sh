#!/usr/bin/env bash
# What telephone calls cost: SIPp calls, and sends back all the sound it gets (G.711, both ways all the
# time). The server has the first core for itself, SIPp the last. Red when a bar is missed.
#   SESSIONS=200 SECONDS_MEASURED=30 bash scripts/load_sip.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/server.sh

sessions=${SESSIONS:-200}
seconds=${SECONDS_MEASURED:-30}
# CPU of the server in ms for each second of each call.
most=${MOST:-0.5}
port=${SIP_PORT:-25060}

${CARGO:-cargo} build --release --workspace --bin sidetone
data=$(mktemp -d)
sipp_pid=
finish() {
    [ -z "$sipp_pid" ] || kill "$sipp_pid" 2>/dev/null || true
    stop_server
    rm -rf "$data"
}

export SIDETONE_SERVER__LISTEN=127.0.0.1:0
export SIDETONE_SERVER__DATA_DIR=$data
export SIDETONE_SERVER__LOG=warn
export SIDETONE_SPEECH__RECOGNISER=scripted
export SIDETONE_ENGINE__MEDIA_THREADS=1
export SIDETONE_ENGINE__VAD=energy
export SIDETONE_LIMITS__ACCOUNT_CALLS=$sessions
export SIDETONE_LIMITS__POOL_CALLS=$sessions
export SIDETONE_LIMITS__NODE_CALLS=$sessions
export SIDETONE_RTP__PORTS=30000-39999
export SIDETONE_SIP__LISTEN=udp:127.0.0.1:$port

generator_pin=
if [ "$(nproc)" -gt 1 ]; then
    server_pin="taskset -c 0"
    generator_pin="taskset -c $(($(nproc) - 1))"
fi

# ask METHOD PATH [BODY]: the body of the answer.
ask() {
    local address=${url#http://} body=${3:-}
    exec 3<>"/dev/tcp/${address%:*}/${address##*:}"
    printf '%s %s HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %s\r\nConnection: close\r\n\r\n%s' \
        "$1" "$2" "$address" "$key" "${#body}" "$body" >&3
    sed '1,/^\r$/d' <&3
    exec 3>&-
}
id_of() { grep -o '"id":"[^"]*"' | head -1 | cut -d '"' -f 4; }

start_server "$data/server.out" "$data/server.log"
trap finish EXIT
# The voice without a synthesiser behind it, and an agent that its own echo does not interrupt.
voice=$(ask GET '/api/v1/voices?limit=500' | tr '{' '\n' | grep scripted | id_of)
agent=$(ask POST /api/v1/agents "{\"name\":\"load\",\"system_prompt\":\"Repeat.\",\"voice_id\":\"$voice\",\"llm_model\":\"echo\",\"first_message\":\"Hello.\",\"interruption_enabled\":false,\"idle_check_in_after_secs\":600,\"max_duration_seconds\":3600}" | id_of)
[ -n "$agent" ] || { echo "no agent could be made" >&2; exit 1; }
stop_server
export SIDETONE_SIP__SOURCES=127.0.0.1 SIDETONE_SIP__AGENT=$agent
start_server "$data/server.out" "$data/server.log"
trap finish EXIT

# User and system time of the server, in ticks.
ticks() { sed 's/.*) //' "/proc/$server_pid/stat" | awk '{print $12 + $13}'; }
live() { ask GET /metrics | awk '$1 == "sidetone_live_calls" {print $2}'; }

warm=10
$generator_pin sipp -sn uac -i 127.0.0.1 -mi 127.0.0.1 -mp 28000 -rtp_echo -s 100 -m "$sessions" -r 50 \
    -l "$sessions" -d $(((seconds + warm + 20) * 1000)) -nostdin -bg "127.0.0.1:$port" \
    >"$data/sipp.out" 2>&1 || true
sipp_pid=$(grep -o 'PID=\[[0-9]*\]' "$data/sipp.out" | tr -dc 0-9)
sleep $((warm + sessions / 50))
before=$(live)
[ "$before" = "$sessions" ] || { echo "MISSED: $before of $sessions calls are up" >&2; exit 1; }
from=$(ticks)
sleep "$seconds"
to=$(ticks)
after=$(live)
rss=$(awk '/VmRSS/ {print $2}' "/proc/$server_pid/status")
awk -v ticks=$((to - from)) -v hz="$(getconf CLK_TCK)" -v calls="$sessions" -v seconds="$seconds" \
    -v most="$most" -v after="$after" -v rss="$rss" 'BEGIN {
    cost = ticks * 1000 / hz / calls / seconds
    printf "%d calls over SIP and RTP (G.711, energy detector, recorded) for %d s\n", calls, seconds
    printf "CPU %.3f ms a call-second, %d MiB resident, %d calls up at the end\n", cost, rss / 1024, after
    if (cost > most) { printf "MISSED: more than %.3f ms a call-second\n", most; exit 1 }
    if (after != calls) { print "MISSED: calls were lost"; exit 1 }
}'
