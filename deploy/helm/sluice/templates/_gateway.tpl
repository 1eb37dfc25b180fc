{{/*
What the library's templates are told, but for `root`, as JSON: a template can hand back text alone.
Clients of a gateway that names no advertised_host are told its Service.
*/}}
{{- define "gateway.context" -}}
{{- include "gateway.check" . -}}
{{- $named := dict "root" . "sluice" .Values.proxy -}}
{{- $host := printf "%s.%s.svc" (include "sluice.fullname" $named) .Release.Namespace -}}
{{- dict "sluice" .Values.proxy "placement" "deployment" "advertisedHost" $host | toJson -}}
{{- end -}}

{{- define "gateway.podLabels" -}}
{{ include "sluice.selectorLabels" . }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "gateway.serviceAccountName" -}}
{{- default (include "sluice.fullname" (dict "root" . "sluice" .Values.proxy)) .Values.serviceAccount.name -}}
{{- end -}}

{{/* Of the pod; the containers say the same for themselves. */}}
{{- define "gateway.podSecurity" -}}
runAsNonRoot: true
{{- with .runAsUser }}
runAsUser: {{ int . }}
{{- end }}
{{- with .runAsGroup }}
runAsGroup: {{ int . }}
fsGroup: {{ int . }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* What values may be by themselves but not together, of a gateway. Nothing of it is rendered without. */}}
{{- define "gateway.check" -}}
{{- $values := .Values -}}
{{- if ne $values.proxy.config.mode "gateway" -}}
{{- fail (printf "proxy.config.mode: is %s; this chart runs gateways. A broker's sidecar comes into the broker's own chart, by sluice-lib" $values.proxy.config.mode) -}}
{{- end -}}
{{- range $i, $listener := $values.proxy.config.listeners -}}
{{- if not $listener.gateway -}}
{{- fail (printf "proxy.config.listeners[%d].gateway: is missing" $i) -}}
{{- end -}}
{{- if not (or $listener.gateway.first_broker_port $listener.gateway.sni_domain) -}}
{{- fail (printf "proxy.config.listeners[%d].gateway.first_broker_port: is missing, and there is no sni_domain" $i) -}}
{{- end -}}
{{- if and $listener.gateway.first_broker_port (gt (int (default 32 $listener.gateway.max_brokers)) 100) -}}
{{- fail (printf "proxy.config.listeners[%d].gateway.max_brokers: a Service with more than 100 ports for brokers is asking for trouble; use sni_domain" $i) -}}
{{- end -}}
{{- end -}}
{{- if and $values.proxy.state.persistentVolumeClaim (gt (int $values.gateway.replicas) 1) -}}
{{- fail "proxy.state.persistentVolumeClaim: one claim is for one gateway; gateway.replicas is more" -}}
{{- end -}}
{{- if and $values.serviceMonitor.enabled $values.proxy.podMonitor.enabled -}}
{{- fail "serviceMonitor.enabled: proxy.podMonitor.enabled scrapes the same pods; samples would come twice" -}}
{{- end -}}
{{- end -}}
