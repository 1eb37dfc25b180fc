{{/* "true" if there is to be a monitor: `enabled` is true, or auto where the cluster knows its kind. */}}
{{- define "sluice.isMonitored" -}}
{{- if eq (toString .enabled) "auto" -}}
{{- if .root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) -}}true{{- end -}}
{{- else if .enabled -}}true{{- end -}}
{{- end -}}

{{/* A PodMonitor if it is switched on. `podLabels` (of the dict): labels of the pods. */}}
{{- define "sluice.podMonitor" -}}
{{- $m := .sluice.podMonitor -}}
{{- if include "sluice.isMonitored" (dict "root" .root "enabled" $m.enabled "kind" "PodMonitor") -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "sluice.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "sluice.labels" . | nindent 4 }}
    {{- with $m.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- toYaml .podLabels | nindent 6 }}
  podMetricsEndpoints:
    - port: metrics
      path: /metrics
      interval: {{ $m.interval }}
      scrapeTimeout: {{ $m.scrapeTimeout }}
{{- end -}}
{{- end -}}

{{/* A NetworkPolicy if it is switched on. `podLabels` (of the dict): labels of the pods. */}}
{{- define "sluice.networkPolicy" -}}
{{- $n := .sluice.networkPolicy -}}
{{- if $n.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "sluice.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "sluice.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- toYaml .podLabels | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - ports:
        {{- range .sluice.config.listeners }}
        - {protocol: TCP, port: {{ int .bind_port }}}
        {{- with .gateway }}
        {{- if .first_broker_port }}
        - protocol: TCP
          port: {{ int .first_broker_port }}
          endPort: {{ sub (add (int .first_broker_port) (int (default 32 .max_brokers))) 1 }}
        {{- end }}
        {{- end }}
        {{- end }}
      {{- with $n.clients }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    - ports:
        - {protocol: TCP, port: {{ include "sluice.adminPort" . }}}
      from:
        {{- if $n.scrapers }}
        {{- toYaml $n.scrapers | nindent 8 }}
        {{- else }}
        - podSelector: {}
        {{- end }}
    {{- with $n.otherPorts }}
    - ports:
        {{- range . }}
        - {protocol: TCP, port: {{ int . }}}
        {{- end }}
    {{- end }}
{{- end -}}
{{- end -}}
