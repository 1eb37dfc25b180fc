{{/*
Every template takes a dict:
  root       $ of the calling chart
  sluice     this library's values, e.g. .Values.sluice
  placement  "sidecar" (if left out) or "deployment"
*/}}

{{/* Name of all objects. Room is left for the longest suffix within a CronJob's 52 characters. */}}
{{- define "sluice.fullname" -}}
{{- if .sluice.fullnameOverride -}}
{{- .sluice.fullnameOverride -}}
{{- else if contains "sluice" .root.Release.Name -}}
{{- .root.Release.Name | trunc 38 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-sluice" (.root.Release.Name | trunc 31 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "sluice.selectorLabels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- end -}}

{{- define "sluice.labels" -}}
{{ include "sluice.selectorLabels" . }}
app.kubernetes.io/version: {{ .sluice.image.tag | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | quote }}
{{- end -}}

{{/* repository:tag, or repository@digest. Takes the image's values alone. */}}
{{- define "sluice.image" -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository .tag -}}
{{- end -}}
{{- end -}}

{{/* "true": a native sidecar; else empty. */}}
{{- define "sluice.isNative" -}}
{{- if ne (default "sidecar" .placement) "deployment" -}}
{{- if eq .sluice.nativeSidecar "always" -}}
true
{{- else if and (eq .sluice.nativeSidecar "auto") (semverCompare ">=1.29.0-0" .root.Capabilities.KubeVersion.Version) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}
