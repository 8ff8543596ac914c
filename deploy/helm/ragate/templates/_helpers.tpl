{{- define "ragate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ragate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "ragate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ragate.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ragate.selector" -}}
app.kubernetes.io/name: {{ include "ragate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ragate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "ragate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "ragate.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ragate.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "ragate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "%s%s" .Chart.AppVersion (ternary "-gpu" "" .Values.gpu.enabled)) }}
{{- end -}}
{{- end -}}

{{- define "ragate.secret" -}}
{{- default (include "ragate.fullname" .) .Values.auth.existingSecret -}}
{{- end -}}

{{- define "ragate.claim" -}}
{{- default (include "ragate.fullname" .) .Values.persistence.existingClaim -}}
{{- end -}}

{{/* Whether there are files for /etc/ragate. */}}
{{- define "ragate.hasFiles" -}}
{{- if or .Values.config .Values.gates.policies .Values.gates.references .Values.gates.rules -}}true{{- end -}}
{{- end -}}

{{/* What the chart refuses: two settings that would contradict each other, or a pod that could not start. */}}
{{- define "ragate.check" -}}
{{- if and (not .Values.auth.keys) (not .Values.auth.existingSecret) (not .Values.auth.allowNoKey) -}}
{{- fail "auth: set auth.keys, or auth.existingSecret: the pod listens beyond loopback, and ragate does not start there without a key (auth.allowNoKey serves whoever comes)" -}}
{{- end -}}
{{- if and .Values.auth.allowNoKey (or .Values.auth.keys .Values.auth.existingSecret) -}}
{{- fail "auth.allowNoKey is set beside keys: choose one" -}}
{{- end -}}
{{- if .Values.settings.RAGATE_TLS_CLIENT_CA -}}
{{- fail "settings.RAGATE_TLS_CLIENT_CA: the kubelet's probes carry no certificate, so the pod would never be ready; ask for client certificates in a proxy before it" -}}
{{- end -}}
{{- if and .Values.auth.keys .Values.auth.existingSecret -}}
{{- fail "auth: auth.keys and auth.existingSecret are both set: choose one" -}}
{{- end -}}
{{- if and (eq .Values.models.source "claim") (not .Values.models.claim.name) -}}
{{- fail "models.source is claim: name it in models.claim.name" -}}
{{- end -}}
{{- if and (eq .Values.models.source "hub") (eq (include "ragate.pull" .) "[]") -}}
{{- fail "models.source is hub: name the models in settings.RAGATE_EMBEDDER, RAGATE_RERANKER, RAGATE_GATE_EMBEDDER, RAGATE_GATE_RERANKER or RAGATE_MODELS, or in models of config" -}}
{{- end -}}
{{- $claimed := and .Values.persistence.enabled (ne .Values.persistence.accessMode "ReadWriteMany") -}}
{{- if and $claimed (or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1)) -}}
{{- fail (printf "persistence: one claim with accessMode %s cannot serve several pods: set persistence.accessMode to ReadWriteMany, replicaCount to 1, or persistence.enabled to false" .Values.persistence.accessMode) -}}
{{- end -}}
{{- range $name, $_ := .Values.settings -}}
{{- if has $name (list "RAGATE_LISTEN" "RAGATE_API_KEY" "RAGATE_DATA_DIR" "RAGATE_MODELS_DIR" "RAGATE_SHUTDOWN_GRACE" "RAGATE_CONFIG" "RAGATE_TLS_CERT" "RAGATE_TLS_KEY" "RAGATE_ALLOW_NO_KEY" "RAGATE_POLICIES" "RAGATE_REFERENCES" "RAGATE_RULES") -}}
{{- fail (printf "settings.%s: the chart sets it itself; values.yaml says by which value" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Where files are, for the init container and the server alike. What an init container takes out of a package lies on the data volume. */}}
{{- define "ragate.dataEnv" -}}
- name: RAGATE_DATA_DIR
  value: /data
- name: RAGATE_MODELS_DIR
  value: {{ ternary "/models" "/data/models" (ne .Values.models.source "setup") }}
- name: HF_HOME
  value: /data/huggingface
{{- if eq .Values.models.source "hub" }}
{{- range $name, $value := .Values.models.hub.env }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- with .Values.models.hub.tokenSecret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: token
{{- end }}
{{- end }}
{{- end -}}

{{/* The models that an init container fetches from the hub, as JSON. */}}
{{- define "ragate.pull" -}}
{{- $named := list "none" -}}
{{- $pull := list -}}
{{- range $part := regexSplit "[,;\n]" (get $.Values.settings "RAGATE_MODELS" | toString) -1 -}}
{{- if hasPrefix "model=" (trim $part) -}}
{{- $pull = append $pull (trimPrefix "model=" (trim $part)) -}}
{{- else if hasPrefix "name=" (trim $part) -}}
{{- $named = append $named (trimPrefix "name=" (trim $part)) -}}
{{- end -}}
{{- end -}}
{{- range $entry := (fromYaml $.Values.config).models -}}
{{- $named = append $named (get $entry "name") -}}
{{- $pull = append $pull (get $entry "model") -}}
{{- end -}}
{{- range $name := list "RAGATE_EMBEDDER" "RAGATE_RERANKER" "RAGATE_GATE_EMBEDDER" "RAGATE_GATE_RERANKER" -}}
{{- with get $.Values.settings $name -}}
{{- if not (has . $named) -}}
{{- $pull = append $pull . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $pull | uniq | toJson -}}
{{- end -}}
