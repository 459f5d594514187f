#!/usr/bin/env bash
# What telephone calls cost: SIPp calls, and each of its callers speaks two fifths of the time over a quiet
# noise (G.711, both ways all the time). They agree on no keypad events, so that their sound is searched for keys, and
# are recorded. The same callers first call SIPp's own echo (-rtp_echo), which does nothing to the sound: what this
# machine takes for the packets alone. The server has the first core for itself, SIPp's callers the last. Red when a
# bar is missed.
#   SESSIONS=200 SECONDS_MEASURED=30 bash scripts/load_sip.sh
#   RECORDED=false bash scripts/load_sip.sh      nothing is recorded
#   KEYS=events bash scripts/load_sip.sh         keypad events are agreed on
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/server.sh

sessions=${SESSIONS:-200}
seconds=${SECONDS_MEASURED:-30}
# CPU of the server in ms for each second of each call.
most=${MOST:-0.5}
port=${SIP_PORT:-25060}
recorded=${RECORDED:-true}
case ${KEYS:-sound} in
    events) formats='0 101' events=$'a=rtpmap:101 telephone-event/8000\na=fmtp:101 0-15\n' ;;
    sound) formats=0 events= ;;
    *) echo "KEYS is events or sound" >&2; exit 2 ;;
esac

${CARGO:-cargo} build --release --workspace --bin sidetone
data=$(mktemp -d)
sipp_pid= echo_pid=
finish() {
    [ -z "$sipp_pid" ] || kill "$sipp_pid" 2>/dev/null || true
    [ -z "$echo_pid" ] || kill "$echo_pid" 2>/dev/null || true
    stop_server
    rm -rf "$data"
}
trap finish EXIT

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
# SIPp is ended in the middle of its calls: nobody says goodbye.
export SIDETONE_SERVER__DRAIN_SECONDS=1
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

# What a caller says, in μ-law: 3 s of a tone, which the energy detector takes for a voice, then 4.5 s of noise
# at about -50 dBFS.
LC_ALL=C awk 'BEGIN {
    split("255 182 168 161 159 161 168 182 255 54 40 33 31 33 40 54", tone, " ")
    split("237 239 244 250 122 116 111 109", noise, " ")
    for (i = 0; i < 24000; i++) printf "%c", tone[i % 16 + 1] + 0
    for (i = 0; i < 36000; i++) printf "%c", noise[int(rand() * 8) + 1] + 0
}' >"$data/caller.ulaw"
[ "$(wc -c <"$data/caller.ulaw")" = 60000 ] || { echo "awk does not write bytes" >&2; exit 1; }

cat >"$data/caller.xml" <<SCENARIO
<?xml version="1.0" encoding="ISO-8859-1"?>
<scenario name="a caller who speaks">
<send retrans="500"><![CDATA[
INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:caller@[local_ip]:[local_port]>;tag=[pid]load[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>
Call-ID: [call_id]
CSeq: 1 INVITE
Contact: <sip:caller@[local_ip]:[local_port]>
Max-Forwards: 70
Content-Type: application/sdp
Content-Length: [len]

v=0
o=caller 1 1 IN IP[local_ip_type] [local_ip]
s=-
c=IN IP[media_ip_type] [media_ip]
t=0 0
m=audio [rtpstream_audio_port] RTP/AVP $formats
a=rtpmap:0 PCMU/8000
$events]]></send>
<recv response="100" optional="true"/>
<recv response="180" optional="true"/>
<recv response="200" rrs="true"/>
<send><![CDATA[
ACK [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
[routes]
From: <sip:caller@[local_ip]:[local_port]>;tag=[pid]load[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
CSeq: 1 ACK
Max-Forwards: 70
Content-Length: 0

]]></send>
<nop><action><exec rtp_stream="$data/caller.ulaw,-1,0"/></action></nop>
<pause/>
<send retrans="500"><![CDATA[
BYE [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
[routes]
From: <sip:caller@[local_ip]:[local_port]>;tag=[pid]load[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
CSeq: 2 BYE
Max-Forwards: 70
Content-Length: 0

]]></send>
<recv response="200"/>
</scenario>
SCENARIO

# ticks PID: its user and system time.
ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{print $12 + $13}'; }

# Sets sipp_pid: all callers call the port, and speak for as long as is measured, and 20 s more.
warm=10
call() {
    $generator_pin sipp -sf "$data/caller.xml" -i 127.0.0.1 -mi 127.0.0.1 -rtp_threadtasks 500 -s 100 -m "$sessions" -r 50 -l "$sessions" -d $(((seconds + warm + 20) * 1000)) \
        -nostdin -bg "127.0.0.1:$1" >"$data/sipp.out" 2>&1 || true
    sipp_pid=$(grep -o 'PID=\[[0-9]*\]' "$data/sipp.out" | tr -dc 0-9) || { cat "$data/sipp.out" >&2; exit 1; }
    sleep $((warm + sessions / 50))
}

${server_pin:-} sipp -sn uas -rtp_echo -i 127.0.0.1 -mi 127.0.0.1 -p $((port + 1)) -mp 28000 -nostdin -bg >"$data/echo.out" 2>&1 || true
echo_pid=$(grep -o 'PID=\[[0-9]*\]' "$data/echo.out" | tr -dc 0-9) || { cat "$data/echo.out" >&2; exit 1; }
call $((port + 1))
from=$(ticks "$echo_pid")
sleep "$seconds"
echo_ticks=$(($(ticks "$echo_pid") - from))
kill "$sipp_pid" "$echo_pid"
sipp_pid= echo_pid=
[ "$echo_ticks" -gt 0 ] || { echo "SIPp's echo was not called" >&2; exit 1; }

start_server "$data/server.out" "$data/server.log"
trap finish EXIT
# The voice without a synthesiser behind it, and an agent that its own echo does not interrupt.
voice=$(ask GET '/api/v1/voices?limit=500' | tr '{' '\n' | grep scripted | id_of)
agent=$(ask POST /api/v1/agents "{\"name\":\"load\",\"system_prompt\":\"Repeat.\",\"voice_id\":\"$voice\",\"llm_model\":\"echo\",\"first_message\":\"Hello.\",\"recording_enabled\":$recorded,\"interruption_enabled\":false,\"idle_check_in_after_secs\":600,\"max_duration_seconds\":3600}" | id_of)
[ -n "$agent" ] || { echo "no agent could be made" >&2; exit 1; }
stop_server
export SIDETONE_SIP__SOURCES=127.0.0.1 SIDETONE_SIP__AGENT=$agent
start_server "$data/server.out" "$data/server.log"
trap finish EXIT

metric() { ask GET /metrics | awk -v name="$1" '$1 == name {print $2}'; }
live() { metric sidetone_live_calls; }

call "$port"
before=$(live)
[ "$before" = "$sessions" ] || { echo "MISSED: $before of $sessions calls are up" >&2; exit 1; }
heard=$(metric sidetone_engine_bytes_in_total)
turns=$(metric 'sidetone_turns_total{role="user",source="speech"}')
from=$(ticks "$server_pid")
sleep "$seconds"
to=$(ticks "$server_pid")
after=$(live)
heard=$(($(metric sidetone_engine_bytes_in_total) - heard))
turns=$(($(metric 'sidetone_turns_total{role="user",source="speech"}') - turns))
late=$(metric 'sidetone_engine_lateness_seconds{quantile="0.99"}')
rss=$(awk '/VmRSS/ {print $2}' "/proc/$server_pid/status")
awk -v ticks=$((to - from)) -v echo_ticks="$echo_ticks" -v hz="$(getconf CLK_TCK)" -v calls="$sessions" -v seconds="$seconds" \
    -v most="$most" -v after="$after" -v rss="$rss" -v heard="$heard" -v late="$late" -v turns="$turns" -v recorded="$recorded" 'BEGIN {
    cost = ticks * 1000 / hz / calls / seconds
    # 160 bytes of sound under 12 of header, fifty times a second.
    share = heard / (calls * seconds * 50 * 172)
    printf "%d calls over SIP and RTP (G.711, energy detector, %s) for %d s, %.1f turns a minute each\n", calls, recorded == "true" ? "recorded" : "not recorded", seconds, turns * 60 / seconds / calls
    printf "CPU %.3f ms a call-second, %.1f times SIPp'"'"'s echo (%.3f); %d MiB resident, %d calls up at the end\n", cost, ticks / echo_ticks, cost * echo_ticks / ticks, rss / 1024, after
    printf "%.1f %% of what SIPp should send arrived; passes of the media thread late by %.1f ms, p99\n", 100 * share, late * 1000
    if (cost > most) { printf "MISSED: more than %.3f ms a call-second\n", most; exit 1 }
    if (share < 0.97) { print "MISSED: SIPp did not send enough for the figure to tell"; exit 1 }
    if (after != calls) { print "MISSED: calls were lost"; exit 1 }
}'
