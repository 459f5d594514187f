#!/usr/bin/env bash
# Proves what README and CONTRIBUTING.md promise: `make run` (argument `run`) or `make test` (argument `test`) works in a
# bare Debian with a Rust toolchain, gcc, make and git, and nothing else. Needs root and debootstrap.
#
# The root is made anew in $BARE_ROOT (default: a temporary folder) and left there when BARE_KEEP=1.
# The Rust toolchain is this machine's, bound read-only, for the project does not install compilers.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-run}
if [ "$(id -u)" != 0 ]; then
    echo "scripts/bare.sh needs root, for debootstrap and chroot." >&2
    exit 1
fi
if ! command -v debootstrap >/dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
fi

root=${BARE_ROOT:-$(mktemp -d)}
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
# The package source of this machine, whatever it is.
mirror=$(awk '/^deb / { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }' \
    /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true)
if [ -z "$mirror" ]; then
    mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
fi

mounted=()
finish() {
    local at
    for ((at = ${#mounted[@]} - 1; at >= 0; at--)); do
        umount -l "${mounted[at]}" || true
    done
    [ "${BARE_KEEP:-}" = 1 ] || rm -rf --one-file-system "$root"
}
trap finish EXIT

bind() {
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    mounted+=("$root$2")
    [ "${3:-}" != ro ] || mount -o remount,bind,ro "$root$2"
}

# Servers that run as somebody else come in, too.
chmod 755 "$root"
debootstrap --variant=minbase --include=gcc,libc6-dev,make,git,ca-certificates "$suite" "$root" "$mirror" >/dev/null
# The same package sources, keys and proxies as this machine has.
cp -aT /etc/apt "$root/etc/apt"
if [ -d /usr/lib/apt/methods ]; then
    cp -an /usr/lib/apt/methods/. "$root/usr/lib/apt/methods/"
fi
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
cp -L /etc/hosts "$root/etc/hosts"
[ ! -e /etc/pip.conf ] || cp -L /etc/pip.conf "$root/etc/pip.conf"
for place in /usr/local/share/ca-certificates /etc/ssl/certs /usr/share/keyrings; do
    [ ! -d "$place" ] || { mkdir -p "$root$place" && cp -a "$place/." "$root$place/"; }
done

bind /dev /dev
bind /proc /proc
bind /sys /sys ro
bind "$(rustc --print sysroot)" /opt/rust ro

# A fresh clone of what is committed, and a registry cache of its own.
git clone -q . "$root/srv/sidetone"
mkdir -p "$root/opt/cargo"
for file in config.toml credentials.toml; do
    [ ! -e "${CARGO_HOME:-$HOME/.cargo}/$file" ] || cp "${CARGO_HOME:-$HOME/.cargo}/$file" "$root/opt/cargo/"
done

command="make $purpose"
[ "$purpose" != run ] || command="bash scripts/setup.sh run && bash scripts/run.sh --once"
passed=$(env | sed -n 's/^\([a-zA-Z_]*_proxy\|[A-Z_]*_PROXY\|CARGO_[A-Z_]*\|SSL_CERT_[A-Z]*\|PIP_[A-Z_]*\|NODE_EXTRA_CA_CERTS\|[nN][pP][mM]_[a-zA-Z_]*\)=.*/\1/p' \
    | grep -v -e '^CARGO_HOME$' -e '^CARGO_TARGET_DIR$' || true)
keep=()
for name in $passed; do keep+=("$name=${!name}"); done

began=$SECONDS
# A root as a machine has it: within a chroot the kernel makes no namespaces, of which the tests need some.
unshare --mount --propagation private bash -euc '
    mount --rbind "$1" "$1"
    cd "$1"
    mkdir -p .outside
    pivot_root . .outside
    umount -l .outside
    shift
    exec env -i PATH=/opt/rust/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 \
        CARGO_HOME=/opt/cargo "${@:2}" bash -c "cd /srv/sidetone && $1"
' bare "$root" "$command" "${keep[@]}"
echo "make $purpose in a bare root: $(((SECONDS - began) / 60)) min $(((SECONDS - began) % 60)) s"
