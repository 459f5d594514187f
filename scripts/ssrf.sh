#!/usr/bin/env bash
# Webhooks to names that turn private, in a network of their own: the kernel counts every connection that
# the server begins. Red when one goes to an address that is not public. Needs root, nft and python3.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in nft python3 setpriv unshare; do
    command -v "$tool" >/dev/null || { echo "$tool is missing" >&2; exit 1; }
done
program=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/sidetone}")
exec unshare --net --mount python3 scripts/ssrf.py "$program"
