{{/*
What values may be by themselves but not together. Each message begins with the key to change.
The container and the ConfigMaps call it, so that nothing is rendered without it.
*/}}
{{- define "sluice.check" -}}
{{- $s := .sluice -}}
{{- $native := include "sluice.isNative" . -}}
{{- if and (eq $s.nativeSidecar "always") (semverCompare "<1.29.0-0" .root.Capabilities.KubeVersion.Version) -}}
{{- fail (printf "nativeSidecar: always needs Kubernetes 1.29, this is %s; say auto" .root.Capabilities.KubeVersion.Version) -}}
{{- end -}}

{{- $drain := (default dict $s.config.drain).deadline_s -}}
{{- if kindIs "invalid" $drain -}}{{- $drain = 25 -}}{{- end -}}
{{- $before := $s.lifecycle.preStopSleepSeconds | default 0 | float64 -}}
{{- if $native -}}{{- $before = addf $before (float64 ($s.lifecycle.mainContainersSeconds | default 0)) -}}{{- end -}}
{{/* After the drain the access log is closed, which may take as long as it says; 1 s for the snapshot and the admin port. */}}
{{- $close := (default dict $s.config.access_log).close_deadline_s -}}
{{- if kindIs "invalid" $close -}}{{- $close = 4 -}}{{- end -}}
{{- $end := addf (float64 $close) 1 -}}
{{- if not $s.config.access_log -}}{{- $end = float64 5 -}}{{- end -}}
{{- $needed := addf $before (float64 $drain) $end -}}
{{- if lt (float64 $s.lifecycle.terminationGracePeriodSeconds) $needed -}}
{{- fail (printf "lifecycle.terminationGracePeriodSeconds: %v s are not enough: %v s until the proxy gets SIGTERM, config.drain.deadline_s of %v s and %v s to end make %v s" $s.lifecycle.terminationGracePeriodSeconds $before $drain $end $needed) -}}
{{- end -}}

{{- $admin := default dict $s.config.admin -}}
{{- if has (default "0.0.0.0" $admin.bind_host) (list "127.0.0.1" "localhost" "::1") -}}
{{- fail (printf "config.admin.bind_host: the kubelet's probes and Prometheus come from outside the pod; %s lets none of them in" $admin.bind_host) -}}
{{- end -}}
{{- if not (include "sluice.adminPort" . | int) -}}
{{- fail "config.admin.bind_port: Prometheus needs a port that is known; 0 is not" -}}
{{- end -}}
{{- $probes := default dict $admin.probes -}}
{{- if has (default "" $probes.bind_host) (list "127.0.0.1" "localhost" "::1") -}}
{{- fail (printf "config.admin.probes.bind_host: the kubelet's probes come from outside the pod; %s lets none of them in" $probes.bind_host) -}}
{{- end -}}
{{- if not (include "sluice.probePort" . | int) -}}
{{- fail "config.admin.probes.bind_port: probes need a port that is known; 0 is not" -}}
{{- end -}}
{{- range $i, $listener := $s.config.listeners -}}
{{- if not (int $listener.bind_port) -}}
{{- fail (printf "config.listeners[%d].bind_port: clients need a port that is known; 0 is not" $i) -}}
{{- end -}}
{{- end -}}

{{- $names := list -}}
{{- range $i, $file := $s.files -}}
{{- if has $file.name $names -}}
{{- fail (printf "files[%d].name: %s is named twice" $i $file.name) -}}
{{- end -}}
{{- $names = append $names $file.name -}}
{{- end -}}
{{- range regexFindAll "/etc/sluice/files/[^/\"]+" (toJson $s.config) -1 -}}
{{- if not (has (base .) $names) -}}
{{- fail (printf "files: config names a file below %s, but no entry of files is called %s" . (base .)) -}}
{{- end -}}
{{- end -}}

{{- $log := default dict (default dict $s.config.access_log).directory -}}
{{- if and $log.path (hasPrefix "/var/log/sluice" $log.path) (not $s.accessLog.persistentVolumeClaim) -}}
{{- fail (printf "accessLog.persistentVolumeClaim: is missing, and config.access_log.directory.path is %s" $log.path) -}}
{{- end -}}

{{- $quotas := default dict $s.config.quotas -}}
{{- $inFile := list -}}
{{- range $key, $value := $s.quotaFile -}}
{{- if $value -}}{{- $inFile = append $inFile (printf "quotaFile.%s" $key) -}}{{- end -}}
{{- end -}}
{{- if and $s.existingQuotasConfigMap $inFile -}}
{{- fail (printf "existingQuotasConfigMap: there is %s too; only one of them can be in force" (join " and " $inFile)) -}}
{{- end -}}
{{- if and (not $quotas.file) (or $inFile $s.existingQuotasConfigMap) -}}
{{- fail "config.quotas.file: is null, so that quotaFile and existingQuotasConfigMap mean nothing" -}}
{{- end -}}

{{- include "sluice.checkPlaces" . -}}
{{- end -}}
