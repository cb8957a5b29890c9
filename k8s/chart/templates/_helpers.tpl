{{/* A component's name: RELEASE-COMPONENT. Takes (list $ COMPONENT). */}}
{{- define "rampart.name" -}}
{{ printf "%s-%s" (index . 0).Release.Name (index . 1) }}
{{- end }}

{{/* The labels that select a component's pods; they never change. Takes (list $ COMPONENT). */}}
{{- define "rampart.selector" -}}
app.kubernetes.io/name: rampart
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* A value as text. From a values file, helm reads 1000000 as a float and would print it as 1e+06. */}}
{{- define "rampart.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* An object's labels. Takes (list $ COMPONENT). */}}
{{- define "rampart.labels" -}}
{{ include "rampart.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/part-of: rampart
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
{{- end }}

{{/* An image and how it is pulled. Takes (list $ VARIANT). */}}
{{- define "rampart.image" -}}
{{- $image := (index . 0).Values.image -}}
image: {{ printf "%s:%s-%s" $image.repository ($image.tag | default (index . 0).Chart.AppVersion) (index . 1) }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{/* What holds for every pod; the user is 10001 except for Redis. Takes (list $ USER). */}}
{{- define "rampart.pod" -}}
enableServiceLinks: false
{{- with (index . 0).Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ index . 1 }}
  runAsGroup: {{ index . 1 }}
  fsGroup: {{ index . 1 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* What holds for every container. */}}
{{- define "rampart.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "rampart.secret" -}}
{{ .Values.existingSecret | default (include "rampart.name" (list . "secrets")) }}
{{- end }}

{{- define "rampart.experiment" -}}
{{ .Values.federation.experiment | default (.Files.Get "files/experiment.toml") }}
{{- end }}

{{- define "rampart.scheme" -}}
{{ ternary "https" "http" .Values.tls.enabled }}
{{- end }}

{{- define "rampart.url" -}}
{{ include "rampart.scheme" . }}://{{ include "rampart.name" (list . "api") }}:8440
{{- end }}

{{- define "rampart.tlsSecret" -}}
{{ .Values.tls.secret | default (include "rampart.name" (list . "api-tls")) }}
{{- end }}

{{- define "rampart.redis.conf" -}}
{{ .Files.Get "files/redis.conf" | replace "maxmemory 768mb" (printf "maxmemory %s" .Values.redis.maxmemory) }}
{{- end }}

{{/* The class of pods for which clients wait. */}}
{{- define "rampart.priority" -}}
{{- if or .Values.priorityClass.create .Values.priorityClass.name -}}
priorityClassName: {{ .Values.priorityClass.name | default (printf "%s-%s" .Release.Namespace .Release.Name) }}
{{- end }}
{{- end }}

{{/* Spreads a component's pods over nodes and zones, where there are several. Takes (list $ COMPONENT). */}}
{{- define "rampart.spread" -}}
topologySpreadConstraints:
  {{- range tuple "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "rampart.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}

{{/* A claim's storage class, if one is named. Takes the class's name. */}}
{{- define "rampart.storageClass" -}}
{{- with . }}
storageClassName: {{ . }}
{{- end }}
{{- end }}

{{/* A volume with only the authority's certificate, for processes that ask the api over HTTPS. */}}
{{- define "rampart.caVolume" -}}
{{- if .Values.tls.enabled -}}
- name: tls
  secret:
    secretName: {{ include "rampart.tlsSecret" . }}
    defaultMode: 0440
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end }}

{{/* The slots of every pod that hosts clients, as the job and the pods read them. */}}
{{- define "rampart.groups" -}}
{{- $groups := dict -}}
{{- if .Values.agents.enabled -}}
{{- $_ := set $groups (include "rampart.name" (list . "agents")) .Values.agents.slots -}}
{{- end -}}
{{- if .Values.attackers.enabled -}}
{{- $_ := set $groups (include "rampart.name" (list . "attackers")) .Values.attackers.slots -}}
{{- end -}}
{{ toJson $groups }}
{{- end }}
