#!/usr/bin/env bash
# Installs what `make run` (argument `run`) or `make test` (argument `test`) needs and is not there.
# On Debian and Ubuntu through apt; elsewhere it names what is missing and stops.
set -euo pipefail

purpose=${1:-run}

# What is needed, one line each: the Debian package, then a test that it is there already.
needed() {
    # The offline recogniser is linked, so its headers are needed to build.
    echo "libpocketsphinx-dev test -d /usr/include/pocketsphinx"
    echo "pocketsphinx-en-us  test -d /usr/share/pocketsphinx/model/en-us"
    # Cepstra for the telephone-band transform.
    echo "sphinxbase-utils    command -v sphinx_fe"
    echo "espeak-ng           command -v espeak-ng"
    echo "flite               command -v flite"
    # Rust links with the C compiler; one C library (SQLite) is compiled.
    echo "gcc                 command -v cc"
    echo "libc6-dev           test -e /usr/include/stdlib.h"
    if [ "$purpose" = test ]; then
        # The store is tested on both engines; Debian keeps the server's programs out of the PATH.
        echo "postgresql          command -v initdb || ls /usr/lib/postgresql/*/bin/initdb"
        echo "openssl             command -v openssl"
        echo "util-linux          command -v setpriv"
        # The console page is tested in a real browser, the recogniser on human voices.
        echo "chromium            command -v chromium || command -v chromium-browser || command -v google-chrome"
        # README's signature checks are run in their languages.
        echo "python3             command -v python3"
        echo "nodejs              command -v node"
        # Several nodes share one Redis; the tests start their own.
        echo "redis-server        command -v redis-server"
        echo "pocketsphinx-testdata dpkg-query -W pocketsphinx-testdata"
        # The wall clock jumps under live calls.
        echo "faketime            ls /usr/lib/*/faketime/libfaketimeMT.so.1"
        # The SIP stack is called by, and calls, SIPp.
        echo "sip-tester          command -v sipp"
        # A server of the S3 protocol comes from PyPI, see below.
        echo "python3-venv          python3 -c 'import ensurepip'"
        echo "asterisk-core-sounds-en-wav dpkg-query -W asterisk-core-sounds-en-wav"
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

# A server of the S3 protocol for the tests, in a folder of its own.
from_pypi() {
    local own="${CARGO_TARGET_DIR:-target}/peers/moto"
    if [ "$purpose" = test ] && ! command -v moto_server >/dev/null && [ ! -x "$own/bin/moto_server" ]; then
        echo "Installing: moto (from PyPI, into $own)"
        python3 -m venv "$own"
        "$own/bin/pip" install --quiet 'moto[server]==5.2.1'
    fi
}

[ ${#missing[@]} -gt 0 ] || { from_pypi; exit 0; }

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
from_pypi
