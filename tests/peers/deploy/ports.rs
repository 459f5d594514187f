//! Whether what the nodes of `deploy/` listen on can be reached from outside, and whether they and the TURN server know
//! and reach each other: ports and settings of the files against the program's own reading of them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use control::config::Config;
use serde_json::Value;

use crate::manifests::{
    MACHINE, documents, expanded, filled, interpolated, manifests, pod_environment,
    pod_environment_on, text,
};
use crate::read;
use crate::relay::Peers;

/// Where Kubernetes gives ports to Services.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// Machines in private networks that nodes may run on, behind a router or in a cloud: of compose any, as `PUBLIC_ADDRESS`
/// says; of Kubernetes the first, the last and one between of the range that `turn.yaml` and `config.yaml` name.
const AT_HOME: [&str; 4] = ["192.168.7.5", "10.20.30.40", "172.20.0.9", "100.100.1.1"];
const IN_THE_CLUSTER: [&str; 3] = ["10.0.0.1", "10.0.3.20", "10.0.255.254"];

/// A range of ports of one protocol, of somebody.
#[derive(Clone, Debug)]
struct Ports {
    whose: String,
    protocol: &'static str,
    ports: RangeInclusive<u16>,
}

impl Ports {
    fn covers(&self, other: &Self) -> bool {
        self.protocol == other.protocol
            && self.ports.start() <= other.ports.start()
            && self.ports.end() >= other.ports.end()
    }

    fn meets(&self, other: &Self) -> bool {
        self.protocol == other.protocol
            && self.ports.start() <= other.ports.end()
            && self.ports.end() >= other.ports.start()
    }
}

impl std::fmt::Display for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last) = (self.ports.start(), self.ports.end());
        write!(f, "{} {first}-{last}/{}", self.whose, self.protocol)
    }
}

/// What a node listens on for telephones and browsers, and what is wrong with that.
fn listened(node: &str, config: &Config, faults: &mut Vec<String>) -> Vec<Ports> {
    let of = |what: &str, protocol, ports| Ports {
        whose: format!("{node} {what}"),
        protocol,
        ports,
    };
    let mut all: Vec<Ports> = Vec::new();
    for listen in &config.sip.listen {
        let protocol = match listen.transport {
            sip::message::Transport::Udp => "udp",
            sip::message::Transport::Tcp | sip::message::Transport::Tls => "tcp",
        };
        if listen.addr.ip().is_loopback() {
            faults.push(format!("{node}: sip.listen is the loopback"));
        }
        let port = listen.addr.port();
        all.push(of("sip.listen", protocol, port..=port));
    }
    for transport in ["Udp", "Tcp", "Tls"] {
        let has = |listen: &sip::shell::Listen| format!("{:?}", listen.transport) == transport;
        if !config.sip.listen.iter().any(has) {
            faults.push(format!("{node}: sip.listen has no {transport}"));
        }
    }
    if config.sip.public_addresses.is_empty() {
        faults.push(format!("{node}: sip.public_address is not set"));
    }
    let (first, last) = config.sip.ports;
    all.push(of("rtp.ports", "udp", first..=last));
    match (config.webrtc.listen, config.engine.media_threads) {
        (None, _) => faults.push(format!("{node}: webrtc.listen is not set")),
        (_, 0) => faults.push(format!(
            "{node}: engine.media_threads goes by the cores, and so do webrtc's ports"
        )),
        (Some(listen), threads) => {
            let last = listen.port() + u16::try_from(threads).unwrap() - 1;
            all.push(of("webrtc.listen", "udp", listen.port()..=last));
        }
    }
    if config.webrtc.public_addresses.is_empty() {
        faults.push(format!("{node}: webrtc.public_addresses is not set"));
    }
    all
}

/// The addresses at which browsers, and so their relay, are told to reach a node.
fn told(config: &Config) -> Vec<IpAddr> {
    let addresses = config.webrtc.public_addresses.iter();
    addresses.map(std::net::SocketAddr::ip).collect()
}

/// A coturn, by its options.
struct Turn {
    options: BTreeMap<String, String>,
}

impl Turn {
    fn new(arguments: &[String]) -> Self {
        let option = |argument: &String| {
            let option = argument.strip_prefix("--")?;
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            Some((name.to_owned(), value.to_owned()))
        };
        Self {
            options: arguments.iter().filter_map(option).collect(),
        }
    }

    fn get(&self, name: &str) -> &str {
        self.options.get(name).map_or("", String::as_str)
    }

    fn port(&self, name: &str) -> Option<u16> {
        self.get(name).parse().ok()
    }

    /// What it listens on and relays with.
    fn ports(&self) -> Vec<Ports> {
        let of = |protocol, first: Option<u16>, last: Option<u16>| {
            let ports = first?..=last?;
            let whose = "turn".to_owned();
            Some(Ports {
                whose,
                protocol,
                ports,
            })
        };
        let own = self.port("listening-port");
        let relayed = of("udp", self.port("min-port"), self.port("max-port"));
        [of("udp", own, own), of("tcp", own, own), relayed]
            .into_iter()
            .flatten()
            .filter(|ports| ports.ports.start() <= ports.ports.end())
            .collect()
    }

    /// What is wrong between it and a node.
    fn serves(&self, node: &str, config: &Config, faults: &mut Vec<String>) {
        let Some(turn) = &config.webrtc.turn else {
            faults.push(format!("{node}: webrtc.turn_urls is not set"));
            return;
        };
        let uses_secret = self.options.contains_key("use-auth-secret");
        if !uses_secret || self.get("static-auth-secret") != turn.secret.expose() {
            faults.push(format!(
                "{node}: webrtc.turn_secret is not the TURN server's"
            ));
        }
        let port = self.get("listening-port");
        for url in turn.urls.iter().chain(&config.webrtc.stun_urls) {
            let address = url.split('?').next().unwrap_or_default();
            let is_plain = !url.starts_with("turns:") && !url.starts_with("stuns:");
            if address.rsplit(':').next() != Some(port) || !is_plain {
                faults.push(format!("{node}: nobody listens at {url}"));
            }
        }
        for transport in ["udp", "tcp"] {
            let wanted = format!("transport={transport}");
            if !turn.urls.iter().any(|url| url.ends_with(&wanted)) {
                faults.push(format!("{node}: webrtc.turn_urls has no {transport}"));
            }
        }
        if self.get("external-ip").is_empty() || self.ports().len() != 3 {
            faults.push("turn: its ports and external-ip are not set".to_owned());
        }
    }
}

/// Ports of two that would be taken on the same machine.
fn twice(all: &[Ports], faults: &mut Vec<String>) {
    for (at, one) in all.iter().enumerate() {
        for other in all[at + 1..].iter().filter(|other| one.meets(other)) {
            faults.push(format!("{one} and {other} are the same"));
        }
    }
}

/// What of a service `ports` publishes: `[address:]outside:inside[/protocol]`.
fn published(name: &str, service: &Value, faults: &mut Vec<String>) -> Vec<Ports> {
    let mut all = Vec::new();
    for entry in service["ports"].as_array().into_iter().flatten() {
        let entry = text(entry);
        let (place, protocol) = entry.split_once('/').unwrap_or((&entry, "tcp"));
        let parts: Vec<&str> = place.split(':').collect();
        let [outside, inside] = parts[..] else {
            faults.push(format!("{name}: {entry} is not published to everybody"));
            continue;
        };
        let is_own = service["environment"]["SIDETONE_CLUSTER__NODE"].is_string();
        if is_own && outside != inside {
            faults.push(format!(
                "{name}: {entry} is another port outside, of which nobody is told"
            ));
        }
        let (first, last) = outside.split_once('-').unwrap_or((outside, outside));
        all.push(Ports {
            whose: name.to_owned(),
            protocol: if protocol == "udp" { "udp" } else { "tcp" },
            ports: first.parse().unwrap()..=last.parse().unwrap(),
        });
    }
    all
}

/// What is wrong with a compose file.
fn compose_faults(compose: &Value) -> Vec<String> {
    let variables = filled();
    let mut faults = Vec::new();
    let mut outside = Vec::new();
    let services = compose["services"].as_object().unwrap();
    let command = services["turn"]["command"].as_array().unwrap();
    let arguments = |variables: &BTreeMap<String, String>| -> Vec<String> {
        let arguments = command.iter().map(text);
        arguments
            .map(|argument| interpolated(&argument, variables))
            .collect()
    };
    let turn = Turn::new(&arguments(&variables));
    for address in AT_HOME {
        let mut variables = variables.clone();
        variables.insert("PUBLIC_ADDRESS".to_owned(), address.to_owned());
        let node: IpAddr = address.parse().unwrap();
        Peers::new(&arguments(&variables)).faults(&[node], &mut faults);
    }
    if services["turn"]["network_mode"] != "host" {
        faults.push("turn: its ports are not published".to_owned());
    }
    let mut nodes = 0;
    for (name, service) in services {
        let public = published(name, service, &mut faults);
        if let Some(given) = service["environment"].as_object()
            && given.contains_key("SIDETONE_CLUSTER__NODE")
        {
            nodes += 1;
            let environment = given
                .iter()
                .map(|(n, v)| (n.clone(), interpolated(&text(v), &variables)));
            match Config::load(Some(&read("sidetone.toml")), &environment.collect()) {
                Ok(config) => {
                    let listened = listened(name, &config, &mut faults);
                    for ports in listened
                        .iter()
                        .filter(|l| !public.iter().any(|p| p.covers(l)))
                    {
                        faults.push(format!("{ports} is not published"));
                    }
                    for ports in public
                        .iter()
                        .filter(|p| !listened.iter().any(|l| l.covers(p)))
                    {
                        faults.push(format!("{ports} is published and nobody listens there"));
                    }
                    turn.serves(name, &config, &mut faults);
                    Peers::new(&arguments(&variables)).faults(&told(&config), &mut faults);
                    if config.webrtc.turn.is_some_and(|of| {
                        !of.urls
                            .iter()
                            .all(|url| url.contains(turn.get("external-ip")))
                    }) {
                        faults.push(format!(
                            "{name}: the TURN server tells another address than webrtc.turn_urls"
                        ));
                    }
                    let volumes: Vec<String> = service["volumes"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(text)
                        .collect();
                    let tls = config.sip.tls.expect("set with tls: in sip.listen");
                    let folder = format!(":{}:ro", tls.certificate.parent().unwrap().display());
                    if !volumes.iter().any(|volume| volume.ends_with(&folder)) {
                        faults.push(format!("{name}: sip.tls_certificate is in no volume"));
                    }
                }
                Err(error) => faults.push(format!("{name}: {error}")),
            }
        }
        outside.extend(public);
    }
    if nodes != 2 {
        faults.push(format!("{nodes} nodes"));
    }
    outside.extend(turn.ports());
    twice(&outside, &mut faults);
    faults
}

/// What is wrong with the manifests for Kubernetes.
fn kubernetes_faults(all: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    let find = |kind: &str, name: &str| {
        let mut found = all.iter().filter(|one| one["kind"] == kind);
        let found = found.find(|one| one["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let pod = &find("StatefulSet", "sidetone")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let relay = &find("Deployment", "sidetone-turn")["spec"]["template"]["spec"];
    let coturn = &relay["containers"][0];
    for (what, pod) in [("sidetone", pod), ("turn", relay)] {
        if pod["hostNetwork"] != true {
            faults.push(format!(
                "{what}: its UDP ports are not those of the machine"
            ));
        }
    }
    if pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        .is_null()
    {
        faults.push("two pods of one machine would want the same ports".to_owned());
    }
    let arguments = coturn["args"].as_array().unwrap();
    let environment = pod_environment(all, coturn);
    let arguments: Vec<String> = arguments
        .iter()
        .map(|argument| expanded(&text(argument), &environment))
        .collect();
    let turn = Turn::new(&arguments);
    if turn.get("external-ip") != MACHINE {
        faults.push("turn: external-ip is not its machine's".to_owned());
    }
    let config = match Config::load(None, &pod_environment(all, container)) {
        Ok(config) => config,
        Err(error) => return vec![error.to_string()],
    };
    // Every machine of the cluster may have a node.
    for machine in IN_THE_CLUSTER {
        let environment = pod_environment_on(all, container, machine);
        match Config::load(None, &environment) {
            Ok(config) => Peers::new(&arguments).faults(&told(&config), &mut faults),
            Err(error) => faults.push(error.to_string()),
        }
    }
    Peers::new(&arguments).faults(&told(&config), &mut faults);
    let mut taken = listened("sidetone", &config, &mut faults);
    turn.serves("sidetone", &config, &mut faults);
    if config
        .webrtc
        .turn
        .is_some_and(|of| of.urls.iter().any(|url| url.contains(MACHINE)))
    {
        faults.push("webrtc.turn_urls names the node's own machine".to_owned());
    }
    let declared = |container: &Value, whose: &str| -> Vec<Ports> {
        let ports = container["ports"].as_array().unwrap().iter();
        let of = |port: &Value| {
            let number = u16::try_from(port["containerPort"].as_u64().unwrap()).unwrap();
            Ports {
                whose: format!("{whose} {}", text(&port["name"])),
                protocol: if port["protocol"] == "UDP" {
                    "udp"
                } else {
                    "tcp"
                },
                ports: number..=number,
            }
        };
        ports.map(of).collect()
    };
    let http = config.server.listen.port();
    taken.push(Ports {
        whose: "sidetone server.listen".to_owned(),
        protocol: "tcp",
        ports: http..=http,
    });
    for port in declared(container, "sidetone") {
        if !taken.iter().any(|listened| listened.covers(&port)) {
            faults.push(format!("{port} is declared and nobody listens there"));
        }
    }
    let told: Vec<Ports> = declared(container, "sidetone");
    let lines = taken
        .iter()
        .filter(|listened| !listened.whose.ends_with("rtp.ports"));
    for listened in lines {
        for port in listened.ports.clone() {
            let single = Ports {
                ports: port..=port,
                ..listened.clone()
            };
            if !told.iter().any(|told| told.covers(&single)) {
                faults.push(format!("{single} is not declared"));
            }
        }
    }
    for port in declared(coturn, "turn") {
        if !turn.ports().iter().any(|own| own.covers(&port)) {
            faults.push(format!("{port} is declared and nobody listens there"));
        }
    }
    // They may run on one machine.
    taken.extend(turn.ports());
    twice(&taken, &mut faults);
    let services = |protocol| Ports {
        whose: String::new(),
        protocol,
        ports: NODE_PORTS,
    };
    for ports in taken
        .iter()
        .filter(|ports| ports.meets(&services(ports.protocol)))
    {
        faults.push(format!(
            "{ports} is where Kubernetes gives ports to Services"
        ));
    }
    faults
}

fn all_manifests() -> String {
    let texts = manifests()
        .into_iter()
        .map(|path| std::fs::read_to_string(path).unwrap());
    texts.collect::<Vec<_>>().join("\n---\n")
}

#[test]
fn every_port_that_a_node_listens_on_is_reached_and_turn_is_wired_to_every_node() {
    let texts = [read("compose.yaml"), all_manifests()];
    let read = documents(&texts);
    assert_eq!(compose_faults(&read[0][0]), [""; 0]);
    assert_eq!(kubernetes_faults(&read[1]), [""; 0]);
}

/// A copy with this text in place of that, which is there.
fn broken(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from:?} is not in the file");
    text.replacen(from, to, 1)
}

#[test]
fn a_compose_file_with_one_thing_wrong_is_found_out() {
    let right = read("compose.yaml");
    let breaks = [
        (
            "      - \"5060:5060/udp\"\n",
            "",
            "node-a sip.listen 5060-5060/udp is not published",
        ),
        (
            "5061:5061/tcp",
            "5061:5061/udp",
            "node-a sip.listen 5061-5061/tcp is not published",
        ),
        (
            "20000-20199:20000-20199/udp",
            "20000-20198:20000-20198/udp",
            "rtp.ports 20000-20199/udp is not published",
        ),
        (
            "20200-20399:20200-20399/udp",
            "20200-20399:20200-20399",
            "rtp.ports 20200-20399/udp is not published",
        ),
        (
            "RTP__PORTS: 20200-20399",
            "RTP__PORTS: 20100-20399",
            "is not published",
        ),
        (
            "7000-7003:7000-7003/udp",
            "7000-7001:7000-7001/udp",
            "webrtc.listen 7000-7003/udp is not published",
        ),
        (
            "MEDIA_THREADS: \"4\"",
            "MEDIA_THREADS: \"0\"",
            "goes by the cores",
        ),
        (
            "\"5062:5062/udp\"",
            "\"127.0.0.1:5062:5062/udp\"",
            "is not published to everybody",
        ),
        (
            "\"5062:5062/tcp\"",
            "\"5064:5062/tcp\"",
            "another port outside",
        ),
        (
            "7004-7007:7004-7007/udp",
            "7003-7007:7003-7007/udp",
            "are the same",
        ),
        (
            "  SIDETONE_SIP__PUBLIC_ADDRESS: ${PUBLIC_ADDRESS:?}\n",
            "",
            "sip.public_address is not set",
        ),
        (
            "  SIDETONE_WEBRTC__PUBLIC_ADDRESSES: ${PUBLIC_ADDRESS:?}\n",
            "",
            "webrtc.public_addresses is not set",
        ),
        (
            "WEBRTC__TURN_SECRET: ${TURN_SECRET:?}",
            "WEBRTC__TURN_SECRET: ${REDIS_PASSWORD:?}",
            "turn_secret is not",
        ),
        (
            ":3478?transport=udp",
            ":3479?transport=udp",
            "nobody listens at turn:",
        ),
        (
            "stun:${PUBLIC_ADDRESS:?}:3478",
            "stun:${PUBLIC_ADDRESS:?}",
            "nobody listens at stun:",
        ),
        (
            "--listening-port=3478",
            "--listening-port=5349",
            "nobody listens at turn:",
        ),
        (
            "      - --external-ip=${PUBLIC_ADDRESS:?}\n",
            "",
            "external-ip",
        ),
        ("--min-port=49160", "--min-port=20300", "are the same"),
        (
            "    network_mode: host\n",
            "    networks: [inside]\n",
            "turn: its ports are not published",
        ),
        (
            "      - ${TLS_FOLDER:?}:/tls:ro\n",
            "",
            "sip.tls_certificate is in no volume",
        ),
        ("tls:0.0.0.0:5063", "tls:127.0.0.1:5063", "is the loopback"),
        (
            "      - --allowed-peer-ip=${PUBLIC_ADDRESS:?}\n",
            "",
            "does not relay to the node at 192.168.7.5",
        ),
        (
            "--allowed-peer-ip=${PUBLIC_ADDRESS:?}",
            "--allowed-peer-ip=172.16.0.0-172.31.255.255",
            "relays to 172.29.76.2, which is no node",
        ),
        (
            "      - --denied-peer-ip=169.254.0.0-169.254.255.255\n",
            "",
            "relays to 169.254.169.254, which is no node",
        ),
        (
            "      - --denied-peer-ip=::ffff:0.0.0.0-::ffff:255.255.255.255\n",
            "",
            "relays to ::ffff:169.254.169.254, which is no node",
        ),
        (
            "      - --denied-peer-ip=::-::ffff:ffff\n",
            "      - --denied-peer-ip=::1\n",
            "relays to ::, which is no node",
        ),
    ];
    let copies: Vec<String> = breaks
        .iter()
        .map(|(from, to, _)| broken(&right, from, to))
        .collect();
    for (copy, (from, _, wanted)) in documents(&copies).iter().zip(breaks) {
        let faults = compose_faults(&copy[0]);
        assert!(
            faults.iter().any(|fault| fault.contains(wanted)),
            "{from:?}: {faults:?}"
        );
    }
}

#[test]
fn manifests_with_one_thing_wrong_are_found_out() {
    let right = all_manifests();
    let breaks = [
        (
            "      hostNetwork: true\n      dnsPolicy",
            "      dnsPolicy",
            "not those of the machine",
        ),
        (
            "requiredDuringScheduling",
            "preferredDuringScheduling",
            "want the same ports",
        ),
        (
            "containerPort: 5060, protocol: UDP",
            "containerPort: 5060, protocol: TCP",
            "sip.listen 5060-5060/udp is not declared",
        ),
        (
            "{name: webrtc-3, containerPort: 7003",
            "{name: webrtc-3, containerPort: 7009",
            "7009-7009/udp is declared",
        ),
        (
            "RTP__PORTS: 20000-21999",
            "RTP__PORTS: 20000-30999",
            "gives ports to Services",
        ),
        (
            "MEDIA_THREADS: \"4\"",
            "MEDIA_THREADS: \"5\"",
            "7004-7004/udp is not declared",
        ),
        (
            "key: SIDETONE_WEBRTC__TURN_SECRET",
            "key: SIDETONE_ADMIN_TOKEN",
            "turn_secret is not",
        ),
        (
            "turn:turn.example.com:3478?transport=tcp",
            "turn:turn.example.com:3477?transport=tcp",
            "nobody listens at turn:",
        ),
        ("--max-port=49400", "--max-port=9400", "are not set"),
        (
            "--external-ip=$(PUBLIC_ADDRESS)",
            "--external-ip=10.0.0.9",
            "external-ip is not its machine's",
        ),
        (
            "SIDETONE_SIP__PUBLIC_ADDRESS\n",
            "SIDETONE_SIP__ACCOUNT\n",
            "sip.public_address is not set",
        ),
        (
            "            - --allowed-peer-ip=10.0.0.0-10.0.255.255\n",
            "",
            "does not relay to the node at 10.0.3.20",
        ),
        (
            "--allowed-peer-ip=10.0.0.0-10.0.255.255",
            "--allowed-peer-ip=10.0.0.0-10.255.255.255",
            "relays to 10.244.0.7, which is no node",
        ),
        (
            "            - --denied-peer-ip=127.0.0.0-127.255.255.255\n",
            "",
            "relays to 127.0.0.1, which is no node",
        ),
        (
            "            - --denied-peer-ip=::ffff:0.0.0.0-::ffff:255.255.255.255\n",
            "",
            "relays to ::ffff:10.1.0.1, which is no node",
        ),
        (
            "            - --denied-peer-ip=64:ff9b::-64:ff9b::ffff:ffff\n",
            "",
            "relays to 64:ff9b::a9fe:a9fe, which is no node",
        ),
    ];
    let copies: Vec<String> = breaks
        .iter()
        .map(|(from, to, _)| broken(&right, from, to))
        .collect();
    for (copy, (from, _, wanted)) in documents(&copies).iter().zip(breaks) {
        let faults = kubernetes_faults(copy);
        assert!(
            faults.iter().any(|fault| fault.contains(wanted)),
            "{from:?}: {faults:?}"
        );
    }
}

/// The tables for firewalls name the ports that the files have.
#[test]
fn the_tables_of_ports_are_those_of_the_files() {
    let spans = |document: &str| -> Vec<RangeInclusive<u16>> {
        let rows = document
            .lines()
            .filter(|line| line.starts_with("| ") && line.contains("UDP"));
        let cells = rows.flat_map(|row| row.split('|').nth(1).unwrap().split(','));
        let span = |cell: &str| {
            let mut numbers = cell
                .split("to")
                .map(|number| number.trim().parse().unwrap());
            let first = numbers.next().unwrap();
            first..=numbers.next().unwrap_or(first)
        };
        cells.map(span).collect()
    };
    let told = spans(&read("README.md"));
    let compose = &documents(&[read("compose.yaml")])[0][0];
    let mut ignored = Vec::new();
    for node in ["node-a", "node-b"] {
        for ports in published(node, &compose["services"][node], &mut ignored) {
            let udp = ports.protocol == "udp";
            let is_told = told
                .iter()
                .any(|span| span.contains(ports.ports.start()) && span.contains(ports.ports.end()));
            assert!(is_told || !udp, "{ports} is not in README.md");
        }
    }
    let told = spans(&read("kubernetes/README.md"));
    assert_eq!(told, [5060..=5060, 20_000..=21_999, 7000..=7003]);
    let all = documents(&[all_manifests()]).remove(0);
    let set = all.iter().find(|one| one["kind"] == "StatefulSet").unwrap();
    let environment = pod_environment(&all, &set["spec"]["template"]["spec"]["containers"][0]);
    let config = Config::load(None, &environment).unwrap();
    for ports in listened("sidetone", &config, &mut ignored) {
        let is_told = told
            .iter()
            .any(|span| span.contains(ports.ports.start()) && span.contains(ports.ports.end()));
        assert!(
            is_told || ports.protocol == "tcp",
            "{ports} is not in kubernetes/README.md"
        );
    }
}
