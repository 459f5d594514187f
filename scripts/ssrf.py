"""Run by ssrf.sh inside a network namespace: a name server whose answers flip, a server under a user of
its own, a thousand webhooks to names that are public at one look-up and private at the next, and one to each
address of tests/api/addresses.rs, put into the database behind the server's back."""

import ipaddress, json, os, re, shutil, socket, sqlite3, subprocess, sys, tempfile, threading, time
import urllib.error, urllib.request

PROGRAM = sys.argv[1]
TRIES = 1000
INSIDE = open("tests/api/addresses.rs").read().split("const INSIDE", 1)[1].split("];", 1)[0]
INSIDE = re.findall(r'^    "(.+)",$', INSIDE, re.M)
NOBODY = 65534
PUBLIC = "93.184.215.14"
PRIVATE = [
    "127.0.0.1", "0.0.0.0", "10.0.0.1", "100.64.0.1", "169.254.169.254", "172.16.0.1", "192.168.0.1",
    "198.18.0.1", "224.0.0.1", "::1", "::", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::a00:1",
    "2002:7f00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "fd00:ec2::254", "fe80::1",
]
RULES = f"""
table inet watch {{
  counter private {{}}
  counter public {{}}
  chain out {{
    type filter hook output priority 0;
    meta skuid {NOBODY} tcp flags & (syn|ack) == syn ip daddr {PUBLIC} counter name public reject with tcp reset
    meta skuid {NOBODY} tcp flags & (syn|ack) == syn counter name private
  }}
}}
"""


def names(server):
    """fN.example.com flips between public and private, mN has both at once, pN is private."""
    asked = {}
    while True:
        packet, sender = server.recvfrom(512)
        end = packet.index(0, 12) + 5
        kind, name = packet[end - 3], packet[13 : 13 + packet[12]].decode()
        number = int(name[1:])
        private = ipaddress.ip_address(PRIVATE[number % len(PRIVATE)])
        turn = asked[name, kind] = asked.get((name, kind), -1) + 1
        public = ipaddress.ip_address(PUBLIC)
        if name[0] == "f":
            answers = [public] if (turn + number) % 2 else [private]
        else:
            answers = [public, private] if name[0] == "m" else [private]
        answers = [one for one in answers if one.version == (4 if kind == 1 else 6)]
        body = b"".join(
            b"\xc0\x0c" + bytes([0, kind, 0, 1, 0, 0, 0, 0, 0, len(one.packed)]) + one.packed
            for one in answers
        )
        head = packet[:2] + b"\x81\x80\0\1" + bytes([0, len(answers)]) + b"\0\0\0\0"
        server.sendto(head + packet[12:end] + body, sender)


def main():
    for command in ["ip link set lo up", f"ip addr add {PUBLIC}/32 dev lo", "ip route add default dev lo",
                    "ip -6 route add default dev lo"]:
        subprocess.run(command.split(), check=True)
    subprocess.run(["nft", "-f", "-"], input=RULES.encode(), check=True)
    dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    dns.bind(("127.0.0.1", 5353))
    threading.Thread(target=names, args=(dns,), daemon=True).start()

    folder = tempfile.mkdtemp(prefix="sidetone-ssrf")
    os.chown(folder, NOBODY, NOBODY)
    program = shutil.copy(PROGRAM, folder)
    key = "ssrf-test-key-of-the-first-account"
    settings = {
        "SERVER__LISTEN": "127.0.0.1:18080", "SERVER__DATA_DIR": folder, "EGRESS__DNS": "127.0.0.1:5353",
        "SPEECH__RECOGNISER": "scripted", "LIMITS__WRITES_PER_MINUTE": "1000000",
        "LIMITS__READS_PER_MINUTE": "1000000", "LIMITS__CALL_CREATIONS_PER_MINUTE": "1000000",
        "LIMITS__ACCOUNT_CALLS": "1000", "WEBHOOKS__SHORT_PAUSE_MS": "10", "WEBHOOKS__FIRST_ROUND_MS": "10",
        "WEBHOOKS__LONGEST_PAUSE_MS": "100", "WEBHOOKS__PER_ACCOUNT": "64",
    }
    env = {"PATH": os.environ["PATH"], "SIDETONE_BOOTSTRAP_API_KEY": key}
    env |= {f"SIDETONE_{name}": value for name, value in settings.items()}
    log = open(f"{folder}/server.log", "wb")
    server = subprocess.Popen(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", program, "serve"],
        env=env, cwd=folder, stdout=log, stderr=log)

    def call(method, path, body=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:18080{path}", method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"x-api-key": key, "content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    try:
        for _ in range(600):
            try:
                call("GET", "/readyz")
                break
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None, open(f"{folder}/server.log").read()
                time.sleep(0.1)
        rows = sqlite3.connect(f"{folder}/sidetone.db", timeout=30, isolation_level=None)

        def ended_call(webhook_url, stored=None):
            agent = call("POST", "/api/v1/agents", {
                "name": "Line", "system_prompt": "Talk.", "voice_id": "scripted-tone", "llm_model": "echo",
                "webhook_url": webhook_url})
            if stored:
                rows.execute("update agents set settings = json_set(settings, '$.webhook_url', ?) where id = ?",
                             (stored, agent["id"]))
            session = call("POST", "/api/v1/conversation/connect",
                           {"agent_id": agent["id"], "transport": "websocket"})
            call("POST", f"/api/v1/calls/{session['session_id']}/end")

        assert len(INSIDE) >= 60, INSIDE
        for address in INSIDE:
            ended_call("https://example.com/in", address)
        for number in range(TRIES):
            kind = "ffffffmp"[number % 8]
            ended_call(f"https://{kind}{number}.example.com/in")
        until = time.time() + 300
        while True:
            states = dict(rows.execute("select status, count(*) from events group by status"))
            if not {"pending", "failed", "delivering"} & states.keys() or time.time() > until:
                break
            time.sleep(0.5)
        counters = subprocess.run(["nft", "-j", "list", "counters"], capture_output=True, check=True)
        found = {one["counter"]["name"]: one["counter"]["packets"]
                 for one in json.loads(counters.stdout)["nftables"] if "counter" in one}
        print(f"{TRIES} webhooks to names, {len(INSIDE)} to addresses: {states}; connections begun to the public address {found['public']}, "
              f"to any other {found['private']}")
        assert states == {"unsafe": TRIES + len(INSIDE)}, states
        assert found["private"] == 0 and found["public"] > 0, found
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


main()
