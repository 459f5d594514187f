//! The compose file and the Kubernetes manifests: well formed for the tools that take them, and with
//! settings that the program knows and accepts.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use control::config::Config;
use control::config::proxies::Proxies;
use serde_json::Value;

use crate::{file, read};

/// The documents of a YAML file.
fn yaml(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    documents(&[text]).remove(0)
}

/// The documents of each of these texts in YAML.
pub(crate) fn documents(texts: &[String]) -> Vec<Vec<Value>> {
    let script = "import json, sys, yaml; \
        print(json.dumps([[d for d in yaml.safe_load_all(t) if d] for t in json.load(sys.stdin)]))";
    let mut python = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is missing: run `bash scripts/setup.sh test`");
    let mut stdin = python.stdin.take().unwrap();
    stdin
        .write_all(serde_json::json!(texts).to_string().as_bytes())
        .unwrap();
    drop(stdin);
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "what is no YAML is told above");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// `example.env`, filled: each secret another one.
pub(crate) fn filled() -> BTreeMap<String, String> {
    let master = base64_simd::STANDARD.encode_to_string([7; 32]);
    read("example.env")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| {
            let value = match (name, value) {
                ("SIDETONE_MASTER_KEY", "") => master.clone(),
                (name, "") => format!("0123456789abcdef{}", name.to_lowercase().replace('_', "")),
                (_, value) => value.to_owned(),
            };
            (name.to_owned(), value)
        })
        .collect()
}

/// What the program makes of an environment, over the settings file of the image.
fn accepted(environment: BTreeMap<String, String>, settings: Option<&str>) -> Config {
    Config::load(settings, &environment)
        .unwrap_or_else(|error| panic!("the program does not take {environment:?}: {error}"))
}

pub(crate) fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Puts the variables into `${NAME:?}`.
pub(crate) fn interpolated(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = text.to_owned();
    for (name, value) in variables {
        out = out.replace(&format!("${{{name}:?}}"), value);
    }
    assert!(!out.contains("${"), "{out} is not in example.env");
    out
}

#[test]
fn the_compose_file_is_read_by_compose_and_its_nodes_by_the_program() {
    let variables = filled();
    let folder = tempfile::tempdir().unwrap();
    let env = folder.path().join("env");
    let lines: Vec<String> = variables.iter().map(|(n, v)| format!("{n}={v}")).collect();
    std::fs::write(&env, lines.join("\n")).unwrap();
    let checked = Command::new("docker-compose")
        .arg("-f")
        .arg(file("compose.yaml"))
        .arg("--env-file")
        .arg(&env)
        .args(["config", "--quiet"])
        .output()
        .expect("docker-compose is missing: run `bash scripts/setup.sh test`");
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );

    let compose = &yaml(&file("compose.yaml"))[0];
    let settings = read("sidetone.toml");
    let mut names = Vec::new();
    for node in ["node-a", "node-b"] {
        let service = &compose["services"][node];
        let given = service["environment"].as_object().unwrap();
        let environment = given
            .iter()
            .map(|(name, value)| (name.clone(), interpolated(&text(value), &variables)));
        let config = accepted(environment.collect(), Some(&settings));
        assert_eq!(config.cluster.address, format!("http://{node}:8080"));
        assert!(config.redis_url.is_some() && !config.storage.url.is_empty());
        assert_eq!(config.server.listen.port(), 8080);
        // Docker must wait for longer than the program drains.
        let grace = text(&service["stop_grace_period"]);
        let grace: u32 = grace.trim_end_matches('s').parse().unwrap();
        assert!(grace >= config.server.drain_seconds + 15, "{grace} s");
        // Visitors are told apart behind the proxy, which is of the nodes' own network.
        let network = text(&compose["networks"]["inside"]["ipam"]["config"][0]["subnet"]);
        let proxies = Proxies::parse(&[network]).unwrap();
        assert_eq!(config.server.trusted_proxies, proxies);
        names.push(config.cluster.node);
    }
    assert_eq!(names, ["node-a", "node-b"]);
    // The proxy asks the nodes there are.
    let proxy = read("nginx.conf");
    for name in names {
        assert!(proxy.contains(&format!("server {name}:8080")), "{name}");
    }
}

#[test]
fn the_manifests_fit_the_schemas_of_kubernetes() {
    let program = kit::server::program();
    let target = program.parent().and_then(Path::parent).unwrap();
    let own = target.join("peers/kubernetes/bin/kubernetes-validate");
    assert!(
        own.exists(),
        "kubernetes-validate is missing: run `bash scripts/setup.sh test`"
    );
    let checked = Command::new(own)
        .arg("--strict")
        .args(manifests())
        .output()
        .unwrap();
    let said = [checked.stdout, checked.stderr].concat();
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

pub(crate) fn manifests() -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(file("kubernetes")).unwrap().flatten();
    let mut all: Vec<_> = all
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    all.sort();
    assert!(all.len() >= 6, "{all:?}");
    all
}

/// The one document of this kind and name.
fn find(kind: &str, name: &str) -> Value {
    let all = manifests().into_iter().flat_map(|path| yaml(&path));
    let mut found = all.filter(|one| one["kind"] == kind && one["metadata"]["name"] == name);
    let one = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "{kind} {name} stands twice");
    one
}

/// The pod that the environment is made for, and the address of its machine.
const POD: &str = "sidetone-0";
pub(crate) const MACHINE: &str = "203.0.113.20";

/// The environment of a container, as Kubernetes would make it of these documents; empty secrets are filled.
pub(crate) fn pod_environment(all: &[Value], container: &Value) -> BTreeMap<String, String> {
    pod_environment_on(all, container, MACHINE)
}

/// The same on a machine at this address.
pub(crate) fn pod_environment_on(
    all: &[Value],
    container: &Value,
    machine: &str,
) -> BTreeMap<String, String> {
    let named = |kind: &str, name: &Value| {
        all.iter()
            .find(|one| one["kind"] == kind && one["metadata"]["name"] == *name)
            .unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let secrets = filled();
    let secret = |name: &str, value: &Value| match text(value) {
        empty if empty.is_empty() => secrets
            .get(name.strip_prefix("SIDETONE_WEBRTC__").unwrap_or(name))
            .cloned()
            .unwrap_or_default(),
        value => value,
    };
    let mut environment = BTreeMap::new();
    for source in container["envFrom"].as_array().into_iter().flatten() {
        let (config, sealed) = (&source["configMapRef"], &source["secretRef"]);
        let values = match (config["name"].is_string(), sealed["name"].is_string()) {
            (true, _) => &named("ConfigMap", &config["name"])["data"],
            (_, true) => &named("Secret", &sealed["name"])["stringData"],
            _ => panic!("{source}"),
        };
        for (name, value) in values.as_object().unwrap() {
            environment.insert(name.clone(), secret(name, value));
        }
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        let from = &variable["valueFrom"];
        let value = match (&variable["value"], &from["secretKeyRef"]) {
            (Value::String(value), _) => expanded(value, &environment),
            (_, Value::Object(of)) => {
                let key = text(&of["key"]);
                let values = &named("Secret", &of["name"])["stringData"];
                assert!(values.get(&key).is_some(), "the secret has no {key}");
                secret(&key, &values[&key])
            }
            _ => match from["fieldRef"]["fieldPath"].as_str() {
                Some("metadata.name") => POD.to_owned(),
                Some("status.hostIP") => machine.to_owned(),
                other => panic!("{other:?}"),
            },
        };
        environment.insert(text(&variable["name"]), value);
    }
    environment
}

/// A text with its `$(NAME)` replaced.
pub(crate) fn expanded(value: &str, environment: &BTreeMap<String, String>) -> String {
    environment
        .iter()
        .fold(value.to_owned(), |text, (name, value)| {
            text.replace(&format!("$({name})"), value)
        })
}

#[test]
fn the_manifests_hang_together_and_their_settings_are_taken_by_the_program() {
    let set = find("StatefulSet", "sidetone");
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let all: Vec<Value> = manifests().iter().flat_map(|path| yaml(path)).collect();
    let environment = pod_environment(&all, container);
    let pod_name = POD;
    let config = accepted(environment, None);
    assert_eq!(config.cluster.node, pod_name);

    // Nodes reach each other by the names that the headless service gives them.
    let nodes = text(&set["spec"]["serviceName"]);
    assert_eq!(
        config.cluster.address,
        format!("http://{pod_name}.{nodes}:8080")
    );
    let service = find("Service", &nodes);
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    for selector in [
        &service["spec"]["selector"],
        &find("Service", "sidetone")["spec"]["selector"],
        &find("PodDisruptionBudget", "sidetone")["spec"]["selector"]["matchLabels"],
        &set["spec"]["selector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }

    // The pod has its time to drain, as a user without rights, and its data where the program writes.
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace >= u64::from(config.server.drain_seconds) + 20);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let mounts = container["volumeMounts"].as_array().unwrap();
    let data = config.server.data_dir.display().to_string();
    assert!(
        mounts
            .iter()
            .any(|mount| mount["mountPath"] == data.as_str())
    );
    for (probe, path) in [
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
        ("startupProbe", "/healthz"),
    ] {
        let told = &container[probe]["httpGet"]["path"];
        assert_eq!(told, path, "{probe}");
        let mounted = control::routes::endpoints();
        assert!(
            mounted.iter().any(|route| route.full_path() == path),
            "{path}"
        );
    }
    let uid = pod["securityContext"]["runAsUser"].to_string();
    assert!(read("Dockerfile").contains(&format!("USER {uid}:{uid}")));
}

/// What the image installs is what `scripts/setup.sh run` asks for: what a build needs where it is built (on Rust's own
/// image, which has the C compiler), the rest where it runs.
#[test]
fn the_image_has_what_the_program_needs() {
    let dockerfile = read("Dockerfile");
    let (build, runs) = dockerfile
        .split_once("\nFROM debian:")
        .expect("a stage that builds and one that runs");
    let installs = |stage: &str, package: &str| {
        let (_, after) = stage.split_once("apt-get install").expect("packages");
        let (list, _) = after.split_once("&&").expect("their end");
        list.split_whitespace()
            .any(|installed| installed == package)
    };
    let script = read("../scripts/setup.sh");
    let (_, needed) = script.split_once("\nneeded() {\n").expect("what is needed");
    let (needed, _) = needed.split_once("\n}\n").expect("its end");
    // What stands under a condition is for tests and fuzzing.
    let asked: Vec<&str> = needed
        .lines()
        .filter_map(|line| line.strip_prefix("    echo \"")?.split_whitespace().next())
        .collect();
    assert!(
        asked.contains(&"cmake") && asked.contains(&"espeak-ng"),
        "{asked:?}"
    );
    for package in asked {
        let there = match package {
            "gcc" | "libc6-dev" => continue,
            "cmake" | "pkg-config" => installs(build, package),
            headers if headers.ends_with("-dev") => installs(build, headers),
            other => installs(runs, other),
        };
        assert!(there, "{package} is not installed");
    }
    for package in ["libpocketsphinx3", "ca-certificates", "curl"] {
        assert!(installs(runs, package), "{package}");
    }
    for line in ["HEALTHCHECK", "USER 10001", "STOPSIGNAL SIGTERM"] {
        assert!(dockerfile.contains(line), "{line}");
    }
    // The settings file of the image is one that the program takes.
    let config = accepted(BTreeMap::new(), Some(&read("sidetone.toml")));
    assert_eq!(config.server.data_dir, Path::new("/data"));
}
