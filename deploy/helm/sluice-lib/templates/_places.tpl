{{/*
Files and ports that the proxy could not use in this pod: what is mounted in it decides for files, for ports what else it
binds, as `sluice check` does (proxy/config/ports.py). Else the new pod ends at its start, and the upgrade hangs.
*/}}
{{- define "sluice.checkPlaces" -}}
{{- include "sluice.checkQuotaFile" . -}}
{{- include "sluice.checkWritten" . -}}
{{- include "sluice.checkPorts" . -}}
{{- end -}}

{{- define "sluice.checkQuotaFile" -}}
{{- $s := .sluice -}}
{{- $file := (default dict $s.config.quotas).file -}}
{{- if and $file (ne (clean $file) "/etc/sluice/quotas/quotas.yaml") -}}
{{- $isOwn := hasPrefix "/etc/sluice/files/" (clean $file) -}}
{{- if and $s.existingQuotasConfigMap (hasPrefix "/etc/sluice/quotas/" (clean $file)) -}}{{- $isOwn = true -}}{{- end -}}
{{- if and $s.state.persistentVolumeClaim (hasPrefix "/var/lib/sluice/" (clean $file)) -}}{{- $isOwn = true -}}{{- end -}}
{{- if not $isOwn -}}
{{- fail (printf "config.quotas.file: quotaFile becomes /etc/sluice/quotas/quotas.yaml in the pod; there is no %s" $file) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The root of the container's file system is read-only. Of an emptyDir no folder below is there at the start. */}}
{{- define "sluice.checkWritten" -}}
{{- $s := .sluice -}}
{{- $log := default dict $s.config.access_log -}}
{{- $quotas := default dict $s.config.quotas -}}
{{- $files := list
  (list "config.admin.socket" (default dict $s.config.admin).socket)
  (list "config.producer_ids.snapshot_file" (default dict $s.config.producer_ids).snapshot_file)
  (list "config.quotas.topic.copy_file" (default dict $quotas.topic).copy_file)
-}}
{{- range $files -}}
{{- if index . 1 -}}
{{- include "sluice.checkFolder" (dict "sluice" $s "key" (first .) "path" (index . 1) "folder" (dir (index . 1)) "isMade" false) -}}
{{- end -}}
{{- end -}}
{{- with (default dict $log.directory).path -}}
{{- include "sluice.checkFolder" (dict "sluice" $s "key" "config.access_log.directory.path" "path" . "folder" (clean .) "isMade" false) -}}
{{- end -}}
{{- with $log.journal_folder -}}
{{- include "sluice.checkFolder" (dict "sluice" $s "key" "config.access_log.journal_folder" "path" . "folder" (clean .) "isMade" true) -}}
{{- end -}}
{{- end -}}

{{/* `isMade`: the proxy makes the folder itself. */}}
{{- define "sluice.checkFolder" -}}
{{- $s := .sluice -}}
{{- $folder := .folder -}}
{{- $volumes := dict "/var/lib/sluice" (not (empty $s.state.persistentVolumeClaim)) "/tmp" false "/dev/shm" false -}}
{{- if $s.accessLog.persistentVolumeClaim -}}{{- $_ := set $volumes "/var/log/sluice" true -}}{{- end -}}
{{- $fits := hasKey $volumes $folder -}}
{{- $isBelow := false -}}
{{- range $mount, $isClaim := $volumes -}}
{{- if hasPrefix (printf "%s/" $mount) $folder -}}
{{- $isBelow = true -}}
{{- if or $isClaim $.isMade -}}{{- $fits = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $isBelow (not $fits) -}}
{{- fail (printf "%s: %s lies in a folder of an emptyDir, in which no folder is there at the start; name %s without it" .key .path (ternary "/tmp" (ternary "/dev/shm" "/var/lib/sluice" (hasPrefix "/dev/shm/" $folder)) (hasPrefix "/tmp/" $folder))) -}}
{{- end -}}
{{- if not $fits -}}
{{- fail (printf "%s: %s cannot be written in the pod, of which only %s can" .key .path (keys $volumes | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}

{{- define "sluice.checkPorts" -}}
{{- $binds := list -}}
{{- range $i, $listener := .sluice.config.listeners -}}
{{- $host := default "0.0.0.0" $listener.bind_host -}}
{{- $binds = append $binds (dict "key" (printf "config.listeners[%d].bind_port" $i) "of" (printf "listener %s" $listener.name) "host" $host "first" (int $listener.bind_port) "last" (int $listener.bind_port)) -}}
{{- $gateway := default dict $listener.gateway -}}
{{- if $gateway.first_broker_port -}}
{{- $last := sub (add (int $gateway.first_broker_port) (int (default 32 $gateway.max_brokers))) 1 -}}
{{- if gt (int $last) 65535 -}}
{{- fail (printf "config.listeners[%d].gateway.max_brokers: the last broker's port would be %d; there is none above 65535" $i $last) -}}
{{- end -}}
{{- $binds = append $binds (dict "key" (printf "config.listeners[%d].gateway.first_broker_port" $i) "of" (printf "listener %s for a broker" $listener.name) "host" $host "first" (int $gateway.first_broker_port) "last" (int $last)) -}}
{{- end -}}
{{- end -}}
{{- $admin := default dict .sluice.config.admin -}}
{{- $adminHost := default "0.0.0.0" $admin.bind_host -}}
{{- $adminPort := include "sluice.adminPort" . | int -}}
{{- $probePort := include "sluice.probePort" . | int -}}
{{- $binds = append $binds (dict "key" "config.admin.bind_port" "of" "the admin port" "host" $adminHost "first" $adminPort "last" $adminPort) -}}
{{- $binds = append $binds (dict "key" "config.admin.probes.bind_port" "of" "the probe port" "host" (default $adminHost (default dict $admin.probes).bind_host) "first" $probePort "last" $probePort) -}}
{{- $any := list "0.0.0.0" "::" "*" -}}
{{- range $i, $bind := $binds -}}
{{- range $other := slice $binds 0 $i -}}
{{- if and (le $bind.first $other.last) (le $other.first $bind.last) (or (eq $bind.host $other.host) (has $bind.host $any) (has $other.host $any)) -}}
{{- fail (printf "%s: port %d is taken by %s already; give each its own" $bind.key (max $bind.first $other.first) $other.of) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $i, $listener := .sluice.config.listeners -}}
{{- if and $listener.upstream_port (has $listener.upstream_host (list "127.0.0.1" "localhost" "::1")) -}}
{{- range $bind := $binds -}}
{{- if and (le $bind.first (int $listener.upstream_port)) (le (int $listener.upstream_port) $bind.last) (or (eq $bind.host $listener.upstream_host) (has $bind.host $any)) -}}
{{- fail (printf "config.listeners[%d].upstream_port: %s:%d is %s of this proxy itself; name the broker's own" $i $listener.upstream_host (int $listener.upstream_port) $bind.of) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
