"""Checks of packaging that no linter has. `tools/deploy.sh` calls them:

    dockerfiles FILE...             the two images agree in all but the GPU; they run as nobody, and hold a health check
    dockerignore FILE               what the program is built from is not left out
    chart FILE...                   rendered objects belong together: selectors, ports, volumes, probes, grace periods
    alerts RULES TESTS PAGE         each alert has a test and a section in the operator's page
    settings HELP FILE...           every RAGATE_* name is one that `ragate serve --help` lists
    scrape LOG METRICS              waits for a server, sends it a request of each kind, and keeps what /metrics answers

Exits with 1 and one line for each fault.
"""

import base64
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import yaml

faults = []


def fault(text):
    faults.append(text)


def expect(ok, text):
    if not ok:
        fault(text)


# What differs between the two Dockerfiles on purpose; all else must not drift apart.
GPU_ONLY = re.compile(r"^\s*(#|ARG CUDA_IMAGE|NVIDIA_|RAGATE_PROVIDER=|RAGATE_RUNTIME=|ENV RAGATE_DATA_DIR=/data$|ENV RAGATE_DATA_DIR=/data \\$|FROM |HEALTHCHECK |org\.opencontainers\.image\.)")


def dockerfiles(*paths):
    texts = [pathlib.Path(p).read_text() for p in paths]
    for path, text in zip(paths, texts):
        last = text[text.rindex("\nFROM "):]
        users = re.findall(r"^USER (\S+)", last, re.M)
        expect(users and users[-1].split(":")[0].isdigit() and users[-1] != "0:0", f"{path}: the last stage runs as {users}; it must be a number that is not 0, which runAsNonRoot can check")
        for word in ("HEALTHCHECK ", "STOPSIGNAL SIGTERM", "EXPOSE 8080", 'VOLUME ["/data"]', "RAGATE_LISTEN=0.0.0.0:8080", "ENTRYPOINT [", "org.opencontainers.image.title"):
            expect(word in last, f"{path}: the last stage lacks {word}")
        expect("RAGATE_API_KEY=" not in text, f"{path}: a key in an image is known to whoever has it")
        expect(re.search(r'HEALTHCHECK .*CMD \["/usr/local/bin/ragate", "health"\]', last), f"{path}: the health check is not the program's own")
    kept = []
    for text in texts:
        lines = [re.sub(r"--runtime (cpu|gpu)", "--runtime X", line).rstrip(" \\") for line in text.splitlines()]
        kept.append([line for line in lines if line.strip() and not GPU_ONLY.match(line)])
    for a, b in zip(*kept):
        expect(a == b, f"the Dockerfiles drift apart: {a!r} and {b!r}")
    expect(len(kept[0]) == len(kept[1]), f"the Dockerfiles drift apart: {len(kept[0])} and {len(kept[1])} lines")


def dockerignore(path):
    out = subprocess.run(
        ["go", "list", "-deps", "-f", '{{if not .Standard}}{{$d := .Dir}}{{if eq .Module.Path "ragate"}}{{range .GoFiles}}{{$d}}/{{.}}\n{{end}}{{range .CgoFiles}}{{$d}}/{{.}}\n{{end}}{{range .EmbedFiles}}{{$d}}/{{.}}\n{{end}}{{end}}{{end}}', "./cmd/ragate"],
        check=True, capture_output=True, text=True).stdout
    here = pathlib.Path.cwd()
    needed = [str(pathlib.Path(line).relative_to(here)) for line in out.split("\n") if line.strip()]
    expect(len(needed) > 50, f"only {len(needed)} files make the program")
    patterns = []
    for line in pathlib.Path(path).read_text().splitlines():
        if line and not line.startswith("#"):
            expression = "".join({"**/": "(.*/)?", "**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*)", line.removeprefix("!")))
            patterns.append((line, re.compile(f"^{expression}(/.*)?$")))
    for file in needed + ["go.mod", "go.sum"]:
        last = next((line for line, expression in reversed(patterns) if expression.match(file)), "!")  # the last one decides
        expect(last.startswith("!"), f"{path}: {last} leaves out {file}, which the program is built from")


def objects(path):
    return [o for o in yaml.safe_load_all(pathlib.Path(path).read_text()) if o]


def chart(*paths):
    kinds = set()
    for path in paths:
        by_kind = {}
        for o in objects(path):
            by_kind.setdefault(o["kind"], []).append(o)
            expect(o["metadata"]["labels"].get("app.kubernetes.io/name") == "ragate", f"{path}: {o['kind']} without its labels")
        kinds |= set(by_kind)
        deployment = by_kind["Deployment"][0]
        template = deployment["spec"]["template"]
        spec, labels = template["spec"], template["metadata"]["labels"]
        container = spec["containers"][0]

        def selects(selector, what):
            expect(selector and selector.items() <= labels.items(), f"{path}: {what} selects {selector}, and the pod has {labels}")

        selects(deployment["spec"]["selector"]["matchLabels"], "the Deployment")
        selects(by_kind["Service"][0]["spec"]["selector"], "the Service")
        for kind, get in {"PodDisruptionBudget": lambda s: s["selector"]["matchLabels"], "NetworkPolicy": lambda s: s["podSelector"]["matchLabels"]}.items():
            for o in by_kind.get(kind, []):
                selects(get(o["spec"]), kind)
        for o in by_kind.get("HorizontalPodAutoscaler", []):
            expect(o["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"], f"{path}: the autoscaler follows another Deployment")
            expect("replicas" not in deployment["spec"], f"{path}: replicas beside an autoscaler: each upgrade would undo its work")
        ports = {p["name"] for p in container["ports"]}
        expect(by_kind["Service"][0]["spec"]["ports"][0]["targetPort"] in ports, f"{path}: the Service's port is none of {ports}")
        for probe, want in {"startupProbe": "/ready", "readinessProbe": "/ready", "livenessProbe": "/health"}.items():
            get = container[probe]["httpGet"]
            expect(get["path"] == want and get["port"] in ports, f"{path}: {probe} asks {get}")
            expect((get["scheme"] == "HTTPS") == any(e["name"] == "RAGATE_TLS_CERT" for e in container["env"]), f"{path}: {probe} by {get['scheme']}")
        env = {e["name"]: e for e in container["env"]}
        expect(len(env) == len(container["env"]), f"{path}: a variable is set twice")
        grace = int(env["RAGATE_SHUTDOWN_GRACE"]["value"].rstrip("s"))
        stop = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        expect(spec["terminationGracePeriodSeconds"] >= grace + int(stop[1]) + 5, f"{path}: {spec['terminationGracePeriodSeconds']} s do not hold the grace of {grace} s, {stop[1]} s before it and 5 s after")
        if "RAGATE_API_KEY" in env:
            key = env["RAGATE_API_KEY"]["valueFrom"]["secretKeyRef"]
        else:
            key = {}
            expect(env["RAGATE_ALLOW_NO_KEY"]["value"] == "true", f"{path}: neither a key nor leave to go without")
        for secret in by_kind.get("Secret", []):
            expect(secret["metadata"]["name"] == key["name"] and key["key"] in secret["data"], f"{path}: the pod reads {key}, which the Secret does not hold")
        volumes = {v["name"] for v in spec["volumes"]}
        for c in spec["containers"] + spec.get("initContainers", []):
            security = c["securityContext"]
            expect(security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"] and security["capabilities"]["drop"] == ["ALL"], f"{path}: {c['name']} is not restricted: {security}")
            for m in c["volumeMounts"]:
                expect(m["name"] in volumes, f"{path}: {c['name']} mounts {m['name']}, which is no volume")
        pod = spec["securityContext"]
        expect(pod["runAsNonRoot"] and pod["runAsUser"] > 0 and pod["seccompProfile"]["type"] == "RuntimeDefault", f"{path}: the pod is not restricted: {pod}")
        mounts = {m["mountPath"] for m in container["volumeMounts"]}
        for name in ("RAGATE_CONFIG", "RAGATE_POLICIES", "RAGATE_REFERENCES", "RAGATE_RULES"):
            for file in env.get(name, {"value": ""})["value"].split(","):
                if file:
                    folder, base = file.rsplit("/", 1)
                    data = {k for o in by_kind.get("ConfigMap", []) for k in o["data"]}
                    expect(folder in mounts and base in data, f"{path}: {name} names {file}, which is not mounted")
        config_check(path, env, by_kind)
        limits = container["resources"].get("limits", {})
        expect(("gpu" in path) == ("nvidia.com/gpu" in limits), f"{path}: limits {limits}")
        for o in by_kind.get("ServiceMonitor", []):
            selector, endpoints = o["spec"]["selector"]["matchLabels"], o["spec"]["endpoints"]
            service = by_kind["Service"][0]
            expect(o["apiVersion"] == "monitoring.coreos.com/v1", f"{path}: ServiceMonitor of {o['apiVersion']}")
            expect(selector.items() <= service["metadata"]["labels"].items(), f"{path}: the ServiceMonitor does not select the Service")
            expect(set(o["spec"]) <= {"selector", "endpoints"} and all(set(e) <= {"port", "path", "interval", "scrapeTimeout", "scheme", "tlsConfig"} for e in endpoints), f"{path}: {o['spec']}")
            expect(endpoints[0]["port"] == service["spec"]["ports"][0]["name"] and endpoints[0]["path"] == "/metrics", f"{path}: the ServiceMonitor scrapes {endpoints}")
        for o in by_kind.get("PrometheusRule", []):
            expect(o["spec"] == yaml.safe_load(pathlib.Path("deploy/prometheus/alerts.yaml").read_text()), f"{path}: the PrometheusRule is not deploy/prometheus/alerts.yaml")
        for o in by_kind.get("ConfigMap", []):
            if "ragate.json" in o["data"]:
                expect(json.loads(o["data"]["ragate.json"]) == json.loads(pathlib.Path("deploy/grafana/ragate.json").read_text()), f"{path}: the dashboard's ConfigMap is not deploy/grafana/ragate.json")
    for kind in ("Deployment", "Service", "ServiceAccount", "Secret", "ConfigMap", "PersistentVolumeClaim", "PodDisruptionBudget", "HorizontalPodAutoscaler", "ServiceMonitor", "PrometheusRule", "NetworkPolicy"):
        expect(kind in kinds, f"no set of values renders a {kind}")


def config_check(path, env, by_kind):
    """Asks the program itself what it thinks of the pod's settings and files."""
    with tempfile.TemporaryDirectory() as folder:
        for o in by_kind.get("ConfigMap", []):
            for name, text in o["data"].items():
                pathlib.Path(folder, name).write_text(text)
        variables = {k: v["value"].replace("/etc/ragate/", folder + "/") for k, v in env.items() if "value" in v}
        keys = [o["data"]["api-keys"] for o in by_kind.get("Secret", [])]
        if "RAGATE_API_KEY" in env:
            variables["RAGATE_API_KEY"] = base64.b64decode(keys[0]).decode() if keys else "ops:0123456789abcdef"
        for name in ("RAGATE_TLS_CERT", "RAGATE_TLS_KEY", "RAGATE_MODELS_DIR"):  # files that only the cluster has
            variables.pop(name, None)
        variables.update(PATH=os.environ["PATH"], HOME=folder, RAGATE_DATA_DIR=os.environ["RAGATE_DATA_DIR"], HF_HUB_OFFLINE="1")
        done = subprocess.run(["bin/ragate", "config", "check"], env=variables, capture_output=True, text=True)
        for line in (done.stdout + done.stderr).splitlines():
            allowed = line.startswith("ok:") or re.search("is not on this machine: the start will fetch it|no key is asked for on", line)
            expect(allowed, f"{path}: `ragate config check` says {line}")
        expect(done.returncode == 0, f"{path}: `ragate config check` ends with {done.returncode}")


def alerts(rules, tests, page):
    names = {r["alert"] for g in yaml.safe_load(pathlib.Path(rules).read_text())["groups"] for r in g["rules"]}
    fires, silent = set(), set()
    for t in yaml.safe_load(pathlib.Path(tests).read_text())["tests"]:
        for a in t["alert_rule_test"]:
            (fires if a.get("exp_alerts") else silent).add(a["alertname"])
    text = pathlib.Path(page).read_text()
    for name in sorted(names | fires | silent):
        expect(name in names, f"{tests} tests {name}, which is no alert")
        expect(name in fires, f"{tests} has no test in which {name} fires")
        expect(name in silent, f"{tests} has no test in which {name} does not fire")
        expect(f"`{name}`" in text, f"{page} does not say what to do about {name}")
    for name in set(re.findall(r"^\| `(Ragate[A-Z]\w+)`", text, re.M)) - names:
        fault(f"{page} speaks of {name}, which is no alert")


def settings(help_file, *paths):
    known = set(re.findall(r"\$(RAGATE_[A-Z_0-9]+)", pathlib.Path(help_file).read_text()))
    expect(len(known) > 20, f"`ragate serve --help` lists only {sorted(known)}")
    for path in paths:
        for name in sorted(set(re.findall(r"\bRAGATE_[A-Z_0-9]+[A-Z0-9]", pathlib.Path(path).read_text())) - known):
            fault(f"{path} names {name}, which `ragate serve --help` does not list")


def scrape(log, metrics):
    deadline = time.time() + 600
    url = None
    while url is None:
        for line in pathlib.Path(log).read_text().splitlines():
            if line.startswith("{") and json.loads(line).get("msg") == "ready":
                url = json.loads(line)["url"]
        if time.time() > deadline:
            sys.exit("the server did not become ready:\n" + pathlib.Path(log).read_text())
        time.sleep(0.2)

    # The certificate was made for this run: what is checked here are the metrics.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))

    def post(path, body):
        request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": "Bearer deploy-check-key"})
        try:
            with opener.open(request, timeout=120) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return e.code

    chunks = [{"id": i, "text": text} for i, text in enumerate(["Employees get 25 vacation days.", "Bananas are rich in potassium."])]
    for path, body, want in [
        ("/v1/gate/query", {"query": "bedankt"}, 200),
        ("/v1/gate/query", {"query": "how many vacation days do I get"}, 200),
        ("/v1/gate/chunks", {"query": "how many vacation days do employees get", "chunks": chunks}, 200),
        ("/v1/rerank", {"query": "vacation", "documents": ["25 days", "x " * 2000]}, 200),
        ("/v1/embeddings", {"input": ["notice period"]}, 200),
        ("/v1/embeddings", {"input": 7}, 400),
        ("/v1/gate/references/reload", {}, 200),
    ]:
        expect(post(path, body) == want, f"{path} with {str(body)[:80]} did not answer {want}")
    # The probe finds the same server by its settings, over TLS.
    address = url.split("://")[1]
    done = subprocess.run(["bin/ragate", "health", "--ready"], env={**os.environ, "RAGATE_LISTEN": address, "RAGATE_TLS_CERT": "any"}, capture_output=True, text=True)
    expect(done.returncode == 0, f"`ragate health --ready` over TLS: {done.stderr}")
    with opener.open(url + "/metrics", timeout=60) as answer:
        pathlib.Path(metrics).write_bytes(answer.read())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    for text in faults:
        print("deploy_check:", text, file=sys.stderr)
    sys.exit(bool(faults))
