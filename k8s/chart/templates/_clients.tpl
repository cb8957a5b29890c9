{{/*
The pods of a group of clients: agents or attackers. Takes (list $ GROUP).

The client of a pod sees only its own join tokens. The container before it mounts the whole Secret, and
runs a shell that only waits: a mount of a single key would not show a key that is added later. A pod may
start long before the job has made its tokens. A Secret that a volume needs is looked for again only after
one or two minutes, but a Secret that a variable needs after ten seconds: so the first container has such a
variable, and then waits for its file.
*/}}
{{- define "rampart.clients.service" -}}
{{- $root := index . 0 -}}
{{- $name := include "rampart.name" . -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  labels:
    {{- include "rampart.labels" . | nindent 4 }}
spec:
  clusterIP: None
  selector:
    {{- include "rampart.selector" . | nindent 4 }}
{{- end }}

{{- define "rampart.clients.set" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
{{- if not $values.slots }}
{{- fail (printf "%s.enabled needs %s.slots: the slots of the pods" (index . 1) (index . 1)) }}
{{- end -}}
serviceName: {{ include "rampart.name" . }}
replicas: {{ len (splitList " " $values.slots) }}
podManagementPolicy: Parallel
selector:
  matchLabels:
    {{- include "rampart.selector" . | nindent 4 }}
volumeClaimTemplates:
  - metadata: {name: state}
    spec:
      accessModes: [ReadWriteOnce]
      {{- include "rampart.storageClass" $values.storage.className | nindent 6 }}
      resources: {requests: {storage: {{ $values.storage.size }}}}
{{- end }}

{{- define "rampart.clients.pod" -}}
{{- $root := index . 0 -}}
automountServiceAccountToken: false
{{ include "rampart.pod" (list $root 10001) }}
initContainers:
  - name: join-tokens
    {{- include "rampart.image" (list $root "cpu") | nindent 4 }}
    command:
      - sh
      - -ec
      - until test -s "/run/secrets/join-tokens/$POD_NAME"; do sleep 1; done
    env:
      - name: POD_NAME
        valueFrom: {fieldRef: {fieldPath: metadata.name}}
      - name: MADE
        valueFrom:
          secretKeyRef: {name: {{ include "rampart.name" (list $root "join-tokens") }}, key: {{ include "rampart.name" . }}-0}
    resources:
      requests: {cpu: 10m, memory: 16Mi}
      limits: {memory: 64Mi}
    {{- include "rampart.container" $root | nindent 4 }}
    volumeMounts:
      - {name: join-tokens, mountPath: /run/secrets/join-tokens, readOnly: true}
{{- end }}

{{- define "rampart.clients.env" -}}
{{- $root := index . 0 -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
# The slots of all pods, and the position of this pod's list.
- {name: RAMPART_SLOTS, value: {{ (index $root.Values (index . 1)).slots | quote }}}
- name: RAMPART_ORDINAL
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
- {name: RAMPART_AGGREGATOR, value: "{{ include "rampart.url" $root }}"}
- {name: RAMPART_STATE, value: /var/lib/rampart/state}
- {name: RAMPART_JOIN_TOKENS, value: /run/secrets/join-tokens}
# Kubernetes restarts every process of a StatefulSet that exits, whatever its exit code.
- {name: RAMPART_STAY_WHEN_BARRED, value: "true"}
{{- if $root.Values.tls.enabled }}
- {name: RAMPART_CA_CERTIFICATE, value: /run/secrets/tls/ca.crt}
{{- end }}
{{- if $root.Values.data.existingClaim }}
- {name: RAMPART_DATA_DIR, value: /var/lib/rampart/data}
{{- end }}
{{- end }}

{{- define "rampart.clients.mounts" -}}
# The volume contains only the pod's own tokens.
- {name: join-tokens, mountPath: /run/secrets/join-tokens, subPathExpr: $(POD_NAME), readOnly: true}
- {name: state, mountPath: /var/lib/rampart/state}
- {name: cache, mountPath: /var/lib/rampart/cache}
- {name: tmp, mountPath: /tmp}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /run/secrets/tls, readOnly: true}
{{- end }}
{{- if .Values.data.existingClaim }}
- {name: data, mountPath: /var/lib/rampart/data, readOnly: true}
{{- end }}
{{- end }}

{{- define "rampart.clients.volumes" -}}
- name: join-tokens
  secret: {secretName: {{ include "rampart.name" (list . "join-tokens") }}, defaultMode: 0440, optional: true}
- name: cache
  emptyDir: {sizeLimit: 1Gi}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- with include "rampart.caVolume" . }}
{{ . }}
{{- end }}
{{- with .Values.data.existingClaim }}
- name: data
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- end }}
