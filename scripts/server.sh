# Sourced by the scripts beside it: starts and ends a server, knows its address and key.

sidetone=${CARGO_TARGET_DIR:-target}/release/sidetone
server_pid=

# Starts a server with the environment as it is; its standard output goes to $1, its log to $2.
# Sets server_pid, url and, where the server printed one, key.
start_server() {
    local out=$1 log=$2 tries=0
    : >"$out"
    ${server_pin:-} "$sidetone" serve >"$out" 2>"$log" &
    server_pid=$!
    trap 'stop_server' EXIT
    until url=$(sed -n 's/^sidetone is at //p' "$out") && [ -n "$url" ] && answers "$url"; do
        tries=$((tries + 1))
        # The first start prepares the offline recogniser, which takes a while.
        if [ $tries -gt 600 ] || ! kill -0 "$server_pid" 2>/dev/null; then
            echo "The server did not start:" >&2
            tail -n 20 "$log" >&2
            exit 1
        fi
        sleep 0.2
    done
    key=$(sed -n 's/^API key .*: \(st_live_[A-Za-z0-9_]*\)$/\1/p' "$out")
}

# Ends the server as an operator would, and waits for it.
stop_server() {
    [ -n "$server_pid" ] || return 0
    kill -TERM "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
    server_pid=
}

# Whether the server at http://host:port says that it is ready. Bash opens the socket itself, so
# nothing need be installed for this.
answers() {
    local address=${1#http://} line=
    address=${address%%/*}
    (
        exec 3<>"/dev/tcp/${address%:*}/${address##*:}"
        printf 'GET /readyz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$address" >&3
        read -r -t 5 line <&3
        [[ $line == HTTP/1.1\ 200* ]]
    ) 2>/dev/null
}
