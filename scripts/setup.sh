#!/usr/bin/env bash
# Installs what `make run` (argument `run`), `make fuzz` (`fuzz`), `make test` (`test`) or `make soak` (`soak`) needs and
# is not there. On Debian and Ubuntu through apt; elsewhere it names what is missing and stops. A second argument names a
# part: `packages` (without which nothing can be built) or `peers` (of the tests, which Debian does not have).
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-run}
part=${2:-}

# What is needed, one line each: the Debian package, then a test that it is there already.
needed() {
    # The offline recogniser is linked, so its headers are needed to build.
    echo "libpocketsphinx-dev test -d /usr/include/pocketsphinx"
    echo "pkg-config          command -v pkg-config"
    echo "pocketsphinx-en-us  test -d /usr/share/pocketsphinx/model/en-us"
    # The codec of calls over WebRTC is built along.
    echo "cmake               command -v cmake"
    # Cepstra for the telephone-band transform.
    echo "sphinxbase-utils    command -v sphinx_fe"
    echo "espeak-ng           command -v espeak-ng"
    echo "flite               command -v flite"
    # Rust links with the C compiler; SQLite is compiled, too.
    echo "gcc                 command -v cc"
    echo "libc6-dev           test -e /usr/include/stdlib.h"
    if [ "$purpose" = fuzz ]; then
        # libFuzzer is compiled for the fuzz targets.
        echo "g++                 command -v c++"
    fi
    if [ "$purpose" = test ] || [ "$purpose" = soak ]; then
        # The store is tested on both engines; Debian keeps the server's programs out of the PATH.
        echo "postgresql          command -v initdb || ls /usr/lib/postgresql/*/bin/initdb"
        echo "openssl             command -v openssl"
        echo "util-linux          command -v setpriv"
        # The kernel counts the connections that the server begins (make soak).
        echo "nftables            command -v nft || test -x /usr/sbin/nft"
        # Calls over WebRTC are relayed by it.
        echo "coturn              command -v turnserver"
        # The console page is tested in a real browser, the recogniser on human voices.
        echo "chromium            command -v chromium || command -v chromium-browser || command -v google-chrome"
        # So it is in Firefox, whose sound needs a sound server, if one without a loudspeaker.
        echo "firefox-esr         command -v firefox-esr"
        echo "pulseaudio          command -v pulseaudio"
        # The signature checks of docs/webhooks.md are run in their languages.
        echo "python3             command -v python3"
        echo "nodejs              command -v node"
        # A TypeScript client is made of the OpenAPI document.
        echo "npm                 command -v npm"
        # Several nodes share one Redis; the tests start their own.
        echo "redis-server        command -v redis-server"
        echo "pocketsphinx-testdata dpkg-query -W pocketsphinx-testdata"
        # /metrics is read by Prometheus' own client library; deploy/ by those who would run it.
        echo "python3-prometheus-client /usr/bin/python3 -c 'import prometheus_client'"
        echo "python3-yaml        /usr/bin/python3 -c 'import yaml'"
        echo "docker-compose      command -v docker-compose"
        echo "nginx-light         command -v nginx || test -x /usr/sbin/nginx"
        # The wall clock jumps under live calls.
        echo "faketime            ls /usr/lib/*/faketime/libfaketimeMT.so.1"
        # The SIP stack is called by, and calls, SIPp.
        echo "sip-tester          command -v sipp"
        echo "tcpdump             command -v tcpdump || test -x /usr/sbin/tcpdump"
        # What scanners of telephone servers are made of.
        echo "sipvicious          command -v svmap"
        # A telephone with codecs, TLS and SRTP of its own.
        echo "baresip-core        command -v baresip"
        # A proxy between the two.
        echo "kamailio            command -v kamailio || test -x /usr/sbin/kamailio"
        # The requests of deploy/sip are posted as they stand.
        echo "curl                command -v curl"
        # A server of the S3 protocol comes from PyPI, see below.
        echo "python3-venv          python3 -c 'import ensurepip'"
        echo "asterisk-core-sounds-en-wav dpkg-query -W asterisk-core-sounds-en-wav"
        # What those prompts say, which their package only recommends.
        echo "asterisk-core-sounds-en dpkg-query -W asterisk-core-sounds-en"
    fi
}

if ! command -v cargo >/dev/null; then
    echo "sidetone is written in Rust: install the toolchain first (https://rustup.rs)." >&2
    exit 1
fi

missing=()
while read -r package check; do
    bash -c "$check" >/dev/null 2>&1 || missing+=("$package")
done < <(needed)

# Where peers from PyPI, npm and crates.io go, each into a folder of its own.
peers=${CARGO_TARGET_DIR:-target}/peers

# venv NAME PROGRAM PACKAGE…: a Python environment of this name, made unless the program is in it.
venv() {
    local own=$peers/$1 program=$2
    shift 2
    [ ! -e "$own/bin/$program" ] || return 0
    echo "Installing: $* (from PyPI, into $own)"
    python3 -m venv "$own"
    "$own/bin/pip" install --quiet "$@"
}

# modules NAME FOLDER PROGRAM: the npm packages that FOLDER locks, made unless they are the same.
modules() {
    local own=$peers/$1 from=$2 program=$3
    ! cmp --silent "$from/package-lock.json" "$own/package-lock.json" || [ ! -x "$own/node_modules/.bin/$program" ] || return 0
    echo "Installing: what $from/package.json names (from npm, into $own)"
    mkdir -p "$own"
    cp "$from/package.json" "$from/package-lock.json" "$own/"
    npm ci --prefix "$own" --no-audit --no-fund --loglevel=error >/dev/null
}

# crate NAME FOLDER: the Rust program of FOLDER, with the crates that it locks, built where it is not as it stands there.
crate() {
    [ -d "$peers/$1" ] || echo "Installing: what $2/Cargo.toml names (from crates.io, into $peers/$1)"
    ${CARGO:-cargo} build --quiet --locked --manifest-path "$2/Cargo.toml" --target-dir "$peers/$1"
}

# Peers of the tests that Debian does not have.
more_peers() {
    [ "$purpose" = test ] || [ "$purpose" = soak ] || return 0
    # A server of the S3 protocol.
    command -v moto_server >/dev/null || venv moto moto_server 'moto[server]==5.2.1'
    # WebRTC clients. The second one is built of more crates than its tests may cost each time.
    [ -d "$(echo "$peers"/aiortc/lib/python3*/site-packages/aiortc)" ] || venv aiortc none aiortc==1.16.0
    [ "$purpose" != soak ] || crate webrtc-rs tests/peers/webrtc/webrtc-rs
    # The schemas of Kubernetes.
    venv kubernetes kubernetes-validate kubernetes-validate==1.37.0
    # What holds the program to its OpenAPI document, and what makes clients of it.
    venv openapi openapi-python-client schemathesis==4.32.5 openapi-python-client==0.29.1
    # The rules by which the console's pages are checked, a script that a wheel carries along.
    [ -n "$(find "$peers/axe" -name axe.min.js 2>/dev/null)" ] || venv axe none axe-playwright-python==0.1.8 --no-deps
    # What makes a TypeScript client of the document; a client for browsers of another make, and its bundler.
    modules typescript tests/peers/document/typescript openapi-typescript
    # What judges the document by the rules of Redocly and of Spectral.
    modules lint tests/peers/document/lint spectral
    modules pipecat tests/peers/pipecat esbuild
}

if [ "$part" = peers ]; then
    more_peers
    exit 0
fi
if [ ${#missing[@]} = 0 ]; then
    [ "$part" = packages ] || more_peers
    exit 0
fi

if ! command -v apt-get >/dev/null; then
    echo "Missing, by their Debian names: ${missing[*]}" >&2
    echo "Please install them with your system's package manager, then run this again." >&2
    exit 1
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Missing: ${missing[*]}. Run as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "Installing: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
[ "$part" = packages ] || more_peers
