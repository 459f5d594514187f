#!/usr/bin/env bash
# Builds, starts the server, places one demo call and prints its transcript; then serves until Ctrl-C.
# With `--once` it ends after the demo call, and fails if that was not what it should be.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/server.sh

data=${SIDETONE_SERVER__DATA_DIR:-data}
export SIDETONE_SERVER__DATA_DIR=$data

cargo build --release --workspace --bin sidetone
mkdir -p "$data"
chmod 700 "$data"
start_server "$data/server.out" "$data/server.log"

# The first start printed a key; it is kept here, readable by this user only, for the next one.
stored=$data/console.key
if [ -n "$key" ]; then
    (umask 077 && echo "$key" >"$stored")
elif [ -s "$stored" ]; then
    key=$(cat "$stored")
else
    key=$("$sidetone" keys create console --scopes all)
    (umask 077 && echo "$key" >"$stored")
fi

# The caller of the demo call is made here: a question in a synthetic voice.
question="What time is breakfast?"
flite -voice slt -t "$question" -o "$data/question.wav"

echo
echo "A demo call, in which the caller asks: $question"
echo
SIDETONE_API_KEY=$key "$sidetone" call --url "$url" --agent demo --wav "$data/question.wav" --out "$data/reply.wav" \
    | tee "$data/transcript.txt"

if [ "${1:-}" = --once ]; then
    # The greeting, what the caller was heard to ask, and the sentence of the prompt that answers it.
    for line in 'Agent .*Harbor House' 'Caller .*breakfast' 'Agent .*Breakfast is served from seven to ten thirty' 'answered in '; do
        if ! grep -q "$line" "$data/transcript.txt"; then
            echo "The demo call's transcript has no line with: $line" >&2
            exit 1
        fi
    done
    exit 0
fi

cat <<END

Serving. The log is in $data/server.log; Ctrl-C ends it.

  Talk to the agent   $url/#key=$key
  API key             $key
  API                 $url/docs
  Try it              curl -H 'X-API-Key: $key' $url/api/v1/agents

END
trap 'exit 0' INT TERM
wait "$server_pid"
