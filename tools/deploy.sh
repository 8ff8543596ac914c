#!/bin/sh
# Checks what deploy/ and the Dockerfiles hold, as far as a machine without a container engine or a cluster can: linters, schemas, rule tests,
# and that every setting and every metric that is named exists. `make test-deploy` calls it, with RAGATE_DATA_DIR set and bin/ragate built.
set -eu
cd "$(dirname "$0")/.."
HELM_VERSION=v3.20.2
KUBERNETES=1.35
tools=$RAGATE_DATA_DIR/deploy
python=${PYTHON:-python3}
work=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

say() { echo "test-deploy: $*"; }
die() { say "$*" >&2; exit 1; }

# Tools, each built or fetched once. Their modules are their own: none of what they need is in the program's go.mod.
mkdir -p "$tools/bin"
if [ "$(cat "$tools/bin/helm.version" 2>/dev/null)" != "$HELM_VERSION" ]; then
	say "building helm $HELM_VERSION (minutes, once)"
	GOBIN="$tools/bin" GOFLAGS=-mod=mod go install "helm.sh/helm/v3/cmd/helm@$HELM_VERSION"
	echo "$HELM_VERSION" >"$tools/bin/helm.version"
fi
say "building promtool and metricnames (minutes, once)"
(cd tools/promtool && go vet ./metricnames && go build -o "$tools/bin/" ./metricnames github.com/prometheus/prometheus/cmd/promtool)
cmp -s tools/deploy-requirements.txt "$tools/python/.complete" || {
	rm -rf "$tools/python"
	"$python" -m pip install --quiet --no-deps --target "$tools/python" -r tools/deploy-requirements.txt
	cp tools/deploy-requirements.txt "$tools/python/.complete"
}
PATH=$tools/bin:$tools/python/bin:$PATH
export PYTHONPATH="$tools/python" PYTHONDONTWRITEBYTECODE=1

# Dockerfiles.
hadolint Dockerfile Dockerfile.gpu
"$python" tools/deploy_check.py dockerfiles Dockerfile Dockerfile.gpu
"$python" tools/deploy_check.py dockerignore .dockerignore
say "Dockerfiles: hadolint finds nothing"

# The chart: every set of values renders to what Kubernetes accepts, and what cannot work is refused.
chart=deploy/helm/ragate
n=0
for values in "$chart"/ci/*.yaml; do
	name=$(basename "$values" -values.yaml)
	set -- -f "$values"
	[ "$name" != full ] || set -- "$@" --set-file gates.references=gates/semantic/references.yaml --set-file 'gates.rules.nl\.yaml=gates/pattern/rules/nl.yaml'
	helm lint --quiet --strict --kube-version "$KUBERNETES.0" "$@" "$chart"
	helm template "rag-$name" "$chart" --namespace rag --kube-version "$KUBERNETES.0" "$@" >"$work/$name.yaml"
	# Kinds that Kubernetes itself does not define are checked below.
	"$python" -m kubernetes_validate --quiet --no-warn -k "$KUBERNETES" --strict "$work/$name.yaml"
	n=$((n + 1))
done
[ "$n" -ge 5 ] || die "only $n sets of values in $chart/ci"
"$python" tools/deploy_check.py chart "$work"/*.yaml
refused() { # refused MESSAGE ARGS...: the chart must not render with these values, and say why
	want=$1
	shift
	if helm template rag "$chart" --kube-version "$KUBERNETES.0" "$@" >"$work/out" 2>&1; then
		die "the chart renders with $*; it should say: $want"
	fi
	grep -q "$want" "$work/out" || die "with $* the chart says $(cat "$work/out"); it should say: $want"
}
key='--set=auth.keys={k}'
refused 'set auth.keys, or auth.existingSecret'
refused 'both set' "$key" --set auth.existingSecret=s
refused 'models.claim.name' "$key" --set models.source=claim
refused 'name the models in settings' "$key" --set models.source=hub
refused 'cannot serve several pods' "$key" --set persistence.enabled=true
refused 'the chart sets it itself' "$key" --set settings.RAGATE_LISTEN=:1
refused 'replicaCont' "$key" --set replicaCont=3
refused 'choose one' "$key" --set auth.allowNoKey=true
refused 'probes carry no certificate' "$key" --set settings.RAGATE_TLS_CLIENT_CA=/ca.pem
refused 'queueTokens' "$key" --set autoscaling.queueTokens=none
say "chart: $n sets of values render to valid objects of Kubernetes $KUBERNETES"

# Alerts.
(cd deploy/prometheus && promtool check rules alerts.yaml && promtool test rules alerts_test.yaml)
"$python" tools/deploy_check.py alerts deploy/prometheus/alerts.yaml deploy/prometheus/alerts_test.yaml docs/operations.md

# The unit. systemd-analyze wants the program where the unit says it is.
command -v systemd-analyze >/dev/null || die "systemd-analyze is missing: install systemd"
sed "s#/usr/local/bin/ragate#$PWD/bin/ragate#" deploy/systemd/ragate.service >"$work/ragate.service"
mkdir -p "$work/ragate.service.d"
for dropin in '' gpu; do
	[ -z "$dropin" ] || cp "deploy/systemd/$dropin.conf" "$work/ragate.service.d/"
	systemd-analyze verify --man=no "$work/ragate.service" 2>"$work/out" || die "ragate.service: $(cat "$work/out")"
	[ ! -s "$work/out" ] || die "ragate.service${dropin:+ with $dropin.conf}: $(cat "$work/out")"
done
systemd-analyze security --offline=true --threshold=15 "$work/ragate.service" | tail -1

# Settings that are named anywhere exist.
bin/ragate serve --help >"$work/help"
"$python" tools/deploy_check.py settings "$work/help" Dockerfile Dockerfile.gpu deploy/systemd/*.service deploy/systemd/*.conf "$work"/*.yaml docs/operations.md

# Metrics that are named exist, with the labels that are asked for, on a server that has had a request of each kind.
# It speaks TLS and asks for a key, since some of the metrics are about those.
(cd "$work" && go run "$(go env GOROOT)/src/crypto/tls/generate_cert.go" --host 127.0.0.1 --ecdsa-curve P256 2>/dev/null)
bin/ragate serve --listen 127.0.0.1:0 --log-format json --tls-cert "$work/cert.pem" --tls-key "$work/key.pem" --api-key test:deploy-check-key >"$work/log" 2>&1 &
server=$!
"$python" tools/deploy_check.py scrape "$work/log" "$work/metrics"
metricnames -metrics "$work/metrics" deploy/grafana/ragate.json deploy/prometheus/alerts.yaml deploy/prometheus/adapter.yaml docs/operations.md
kill -TERM "$server"
wait "$server"
server=
say "all checks passed"
