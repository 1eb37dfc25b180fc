{{/*
The configuration as the proxy reads it. `advertisedHost` (of the dict): what clients of a gateway are told where
its listener names neither advertised_host nor sni_domain.
*/}}
{{- define "sluice.config" -}}
{{- $config := deepCopy .sluice.config -}}
{{- $host := .advertisedHost -}}
{{- range $config.listeners -}}
{{- if and $host .gateway -}}
{{- if not (or .gateway.advertised_host .gateway.sni_domain) -}}
{{- $_ := set .gateway "advertised_host" $host -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $limits := default dict $config.limits -}}
{{- if not (hasKey $limits "max_connections") -}}
{{- with include "sluice.connectionsOf" (dict "memory" (default dict .sluice.resources.limits).memory "buffered" $limits.max_buffered_bytes "log" $config.access_log) -}}
{{- $_ := set $config "limits" (merge (dict "max_connections" (int64 .)) $limits) -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/*
Connections that a memory limit has room for: 36 KiB each (10, and 26 with TLS and client certificates) of what
90 MiB for the process and the buffers leave; with an access log 41 KiB each, and 170 MiB. 100 at least, 100,000
at most. Empty: there is no limit.
*/}}
{{- define "sluice.connectionsOf" -}}
{{- if .memory -}}
{{- $text := toString .memory -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "" 1 -}}
{{- $unit := get $units (regexFind "[A-Za-z]*$" $text) -}}
{{- if $unit -}}
{{- $bytes := mulf (float64 (regexFind "^[0-9.]+" $text)) (float64 $unit) -}}
{{- $buffered := float64 (default 268435456 .buffered) -}}
{{- $process := ternary 178257920.0 94371840.0 (not (empty .log)) -}}
{{- $each := ternary 41984.0 36864.0 (not (empty .log)) -}}
{{- max 100 (min 100000 (int64 (floor (divf (subf $bytes $buffered $process) $each)))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Changes with every option that the running proxy cannot take. */}}
{{- define "sluice.restartHash" -}}
{{- $config := include "sluice.config" . | fromYaml -}}
{{- range splitList " " (include "sluice.liveOptions" .) -}}
{{- $path := splitList "." . -}}
{{- if eq (len $path) 1 -}}
{{- $_ := unset $config (first $path) -}}
{{- else -}}
{{- with get $config (first $path) -}}
{{- $_ := unset . (last $path) -}}
{{- if not . -}}
{{- $_ := unset $config (first $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $config | sha256sum -}}
{{- end -}}

{{- define "sluice.adminPort" -}}
{{- $admin := default dict .sluice.config.admin -}}
{{- if kindIs "invalid" $admin.bind_port -}}9308{{- else -}}{{- int $admin.bind_port -}}{{- end -}}
{{- end -}}

{{/* The port behind the admin port, as AdminOptions.probe_address has it, unless it is configured. */}}
{{- define "sluice.probePort" -}}
{{- $admin := default dict .sluice.config.admin -}}
{{- $probes := default dict $admin.probes -}}
{{- $port := include "sluice.adminPort" . | int -}}
{{- if not (kindIs "invalid" $probes.bind_port) -}}{{- int $probes.bind_port -}}
{{- else if eq $port 65535 -}}65534{{- else -}}{{- add1 $port -}}{{- end -}}
{{- end -}}

{{/* For the pod's annotations: a change that needs a restart makes one. */}}
{{- define "sluice.podAnnotations" -}}
checksum/sluice-restart: {{ include "sluice.restartHash" . }}
{{- end -}}

{{- define "sluice.configMaps" -}}
{{- include "sluice.check" . -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "sluice.fullname" . }}-config
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "sluice.labels" . | nindent 4 }}
data:
  sluice.yaml: |
    {{- include "sluice.config" . | nindent 4 }}
{{- if and .sluice.config.quotas.file (not .sluice.existingQuotasConfigMap) }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "sluice.fullname" . }}-quotas
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "sluice.labels" . | nindent 4 }}
data:
  quotas.yaml: |
    {{- toYaml .sluice.quotaFile | nindent 4 }}
{{- end }}
{{- end -}}
