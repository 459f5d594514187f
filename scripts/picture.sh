#!/usr/bin/env bash
# Makes docs/call.png, the picture on README: the console's page of a call that this script has just placed.
# Needs Chromium and Node, which `bash scripts/setup.sh test` installs. With `--built` the server is not built first.
#   bash scripts/picture.sh [--built] [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/server.sh

[ "${1:-}" = --built ] && shift || cargo build --release --workspace --bin sidetone
picture=$(realpath -m "${1:-docs/call.png}")
data=$(mktemp -d)
trap 'stop_server; rm -rf "$data"' EXIT

export SIDETONE_SERVER__LISTEN=127.0.0.1:0
export SIDETONE_SERVER__DATA_DIR=$data
start_server "$data/server.out" "$data/server.log"
trap 'stop_server; rm -rf "$data"' EXIT
export SIDETONE_API_KEY=$key

# What the caller says, with the seconds of silence after it: the agent answers the first two questions, is
# interrupted by the third, and answers that.
say() { flite -voice slt -t "$2" -o "$data/$1.wav"; }
say 1 "What time is breakfast?"
say 2 "Is there an elevator?"
say 3 "Can I bring my dog?"
node scripts/picture.js join "$data/caller.wav" "$data/1.wav" 7 "$data/2.wav" 2.7 "$data/3.wav" 0
"$sidetone" call --url "$url" --agent demo --wav "$data/caller.wav" --out "$data/reply.wav"

node scripts/picture.js take "$url" "$picture"
echo "$picture: $(stat -c %s "$picture") bytes"
