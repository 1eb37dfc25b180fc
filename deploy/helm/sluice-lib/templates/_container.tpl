{{/* The item for spec.initContainers; empty where the proxy is no native sidecar. Put it first there. */}}
{{- define "sluice.initContainers" -}}
{{- if include "sluice.isNative" . -}}
- {{ include "sluice.container" . | nindent 2 | trim }}
{{- end -}}
{{- end -}}

{{/* The item for spec.containers; empty where the proxy is a native sidecar. */}}
{{- define "sluice.containers" -}}
{{- if not (include "sluice.isNative" .) -}}
- {{ include "sluice.container" . | nindent 2 | trim }}
{{- end -}}
{{- end -}}

{{- define "sluice.container" -}}
{{- include "sluice.check" . -}}
{{- $s := .sluice -}}
name: sluice
image: {{ include "sluice.image" $s.image | quote }}
imagePullPolicy: {{ $s.image.pullPolicy }}
{{- if include "sluice.isNative" . }}
restartPolicy: Always
{{- end }}
args: [run]
env:
  # Also for what `kubectl exec` starts: sluice top, sluice check.
  - {name: SLUICE_CONFIG, value: /etc/sluice/config/sluice.yaml}
ports:
  {{- range $i, $listener := $s.config.listeners }}
  - name: kafka{{ if $i }}-{{ $i }}{{ end }}
    containerPort: {{ int $listener.bind_port }}
    protocol: TCP
  {{- end }}
  - name: metrics
    containerPort: {{ include "sluice.adminPort" . }}
    protocol: TCP
  - name: probes
    containerPort: {{ include "sluice.probePort" . }}
    protocol: TCP
startupProbe:
  httpGet: {path: /startupz, port: probes}
  {{- toYaml $s.probes.startup | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: probes}
  {{- toYaml $s.probes.readiness | nindent 2 }}
livenessProbe:
  httpGet: {path: /livez, port: probes}
  {{- toYaml $s.probes.liveness | nindent 2 }}
{{- /* The image has no shell to sleep in; the kubelet's own sleep is there from 1.30 on. */}}
{{- if and $s.lifecycle.preStopSleepSeconds (semverCompare ">=1.30.0-0" .root.Capabilities.KubeVersion.Version) }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ int $s.lifecycle.preStopSleepSeconds }}
{{- end }}
resources:
  {{- toYaml $s.resources | nindent 2 }}
securityContext:
  {{- include "sluice.containerSecurity" $s.securityContext | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  # Folders, never single files of them (subPath): those would not change when the ConfigMap does.
  - {name: sluice-config, mountPath: /etc/sluice/config, readOnly: true}
  {{- if $s.config.quotas.file }}
  - {name: sluice-quotas, mountPath: /etc/sluice/quotas, readOnly: true}
  {{- end }}
  {{- range $s.files }}
  - {name: sluice-file-{{ .name }}, mountPath: /etc/sluice/files/{{ .name }}, readOnly: true}
  {{- end }}
  - {name: sluice-state, mountPath: /var/lib/sluice}
  {{- if $s.accessLog.persistentVolumeClaim }}
  - {name: sluice-access-log, mountPath: /var/log/sluice}
  {{- end }}
  - {name: sluice-tmp, mountPath: /tmp}
{{- end -}}

{{/* All that the profile *restricted* asks of a container, and a read-only root. Takes user and group. */}}
{{- define "sluice.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
{{- with .runAsUser }}
runAsUser: {{ int . }}
{{- end }}
{{- with .runAsGroup }}
runAsGroup: {{ int . }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The items for spec.volumes. */}}
{{- define "sluice.volumes" -}}
{{- $s := .sluice -}}
- name: sluice-config
  configMap:
    name: {{ include "sluice.fullname" . }}-config
{{- if $s.config.quotas.file }}
- name: sluice-quotas
  configMap:
    name: {{ default (printf "%s-quotas" (include "sluice.fullname" .)) $s.existingQuotasConfigMap }}
{{- end }}
{{- include "sluice.fileVolumes" $s.files }}
- name: sluice-state
  {{- if $s.state.persistentVolumeClaim }}
  persistentVolumeClaim:
    claimName: {{ $s.state.persistentVolumeClaim }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ $s.state.sizeLimit }}
  {{- end }}
{{- with $s.accessLog.persistentVolumeClaim }}
- name: sluice-access-log
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
- name: sluice-tmp
  emptyDir:
    sizeLimit: 16Mi
{{- end -}}

{{/* Readable by any user of the containers that mount them, so that no fsGroup is needed; nobody else mounts them. */}}
{{- define "sluice.fileVolumes" -}}
{{- range . }}
- name: sluice-file-{{ .name }}
  {{- if .secret }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0444
  {{- else }}
  configMap:
    name: {{ .configMap }}
  {{- end }}
{{- end }}
{{- end -}}
