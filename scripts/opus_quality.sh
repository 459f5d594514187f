#!/usr/bin/env bash
# How voices sound after Opus, and what encoding them costs, at several bits a second and complexities: PESQ
# (ITU-T P.862.2, wideband) of human and synthetic speech. The agent's encoder is set by what this prints.
#   bash scripts/opus_quality.sh                     what is in use, and what is beside it
#   bash scripts/opus_quality.sh 20:10 64:0          these: thousands of bits, and complexity
# What it listens to is installed by `bash scripts/setup.sh test`; it fetches PESQ from PyPI itself. The libopus is
# that of the program.
set -euo pipefail
cd "$(dirname "$0")/.."

own=${CARGO_TARGET_DIR:-target}/peers/pesq
if [ ! -x "$own/bin/python" ] || ! "$own/bin/python" -c 'import pesq' 2>/dev/null; then
    echo "Installing: pesq (from PyPI, into $own)" >&2
    python3 -m venv "$own"
    "$own/bin/pip" install --quiet pesq==0.0.4 numpy
fi

${CARGO:-cargo} build --release --workspace --bin sidetone
library=$(mktemp --suffix .so)
trap 'rm -f "$library"' EXIT
# The newest, if several are there.
built=$(ls -t "${CARGO_TARGET_DIR:-target}"/release/build/opusic-sys-*/out/lib/libopus.a | head -1)
cc -shared -o "$library" -Wl,--whole-archive "$built" -Wl,--no-whole-archive -lm
LIBOPUS=$library "$own/bin/python" scripts/opus_quality.py "$@"
