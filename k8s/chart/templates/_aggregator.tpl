{{/* What api and worker share: ports, probes, mounts. Takes (list $ ROLE). */}}
{{- define "rampart.aggregator.container" -}}
{{- $root := index . 0 -}}
{{- $scheme := ternary "HTTPS" "HTTP" (and $root.Values.tls.enabled (eq (index . 1) "api")) -}}
{{ if and (eq (index . 1) "worker") (gt (int $root.Values.worker.processes) 1) -}}
command:
  [python, -m, torch.distributed.run, --standalone, --local-addr, 127.0.0.1, --nproc-per-node,
   {{ $root.Values.worker.processes | quote }}, -m, rampart_fl.services.aggregator]
{{- else -}}
command: [python, -m, rampart_fl.services.aggregator]
{{- end }}
ports:
  - {name: http, containerPort: 8440}
  - {name: metrics, containerPort: 8441}
# The process is ready once a worker has taken over the federation; it is alive long before.
startupProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{ include "rampart.container" $root }}
volumeMounts:
  - {name: secrets, mountPath: /run/secrets/rampart, readOnly: true}
  - {name: cache, mountPath: /var/lib/rampart/cache}
  - {name: tmp, mountPath: /tmp}
  {{- if not $root.Values.blobs.url }}
  - {name: blobs, mountPath: /var/lib/rampart/blobs}
  {{- end }}
  {{- if $root.Values.redis.caSecret }}
  - {name: redis-ca, mountPath: /run/secrets/redis-ca, readOnly: true}
  {{- end }}
{{- end }}

{{/* The volumes of both. Takes (list $ ROLE). */}}
{{- define "rampart.aggregator.volumes" -}}
{{- $root := index . 0 -}}
{{- $scratch := ternary $root.Values.worker.scratchGiB 0 (eq (index . 1) "worker") -}}
- name: secrets
  secret:
    secretName: {{ include "rampart.secret" $root }}
    defaultMode: 0440
    items:
      - {key: rampart_operator_token, path: rampart_operator_token}
      - {key: rampart_redis_password, path: rampart_redis_password}
      {{- if $root.Values.redis.sentinelPassword }}
      - {key: rampart_sentinel_password, path: rampart_sentinel_password}
      {{- end }}
- name: cache
  emptyDir: {sizeLimit: {{ ternary (add $root.Values.blobs.cacheGiB 1 $scratch) 1 (ne $root.Values.blobs.url "") }}Gi}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- if not $root.Values.blobs.url }}
- name: blobs
  persistentVolumeClaim: {claimName: {{ $root.Values.blobs.volume.existingClaim | default (include "rampart.name" (list $root "blobs")) }}}
{{- end }}
{{- if $root.Values.redis.caSecret }}
- name: redis-ca
  secret: {secretName: {{ $root.Values.redis.caSecret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* The settings that both read. */}}
{{- define "rampart.aggregator.envFrom" -}}
- configMapRef: {name: {{ include "rampart.name" (list . "aggregator") }}}
{{- with .Values.blobs.credentialsSecret }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- end }}
