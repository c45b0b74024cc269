{{- define "hotbed.selector" -}}
app.kubernetes.io/name: hotbed
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hotbed.labels" -}}
{{ include "hotbed.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "hotbed.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "hotbed.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "hotbed.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{/* Readiness and liveness; the startup probes of the two daemons differ. */}}
{{- define "hotbed.probes" -}}
readinessProbe:
  httpGet:
    path: /readyz
    port: admin
  periodSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet:
    path: /healthz
    port: admin
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}

{{/* The daemon's identity, which hooks of its pod have as well. The environment goes before the configuration. */}}
{{- define "hotbed.tlsEnvironment" -}}
{{- if .Values.tls.secret }}
- name: HOTBED_SECURE
  value: "on"
- name: HOTBED_TLS_CA
  value: /etc/hotbed-tls/ca.crt
- name: HOTBED_TLS_CERT
  value: /etc/hotbed-tls/tls.crt
- name: HOTBED_TLS_KEY
  value: /etc/hotbed-tls/tls.key
{{- end }}
{{- end }}

{{- define "hotbed.tlsMount" -}}
{{- if .Values.tls.secret }}
- name: tls
  mountPath: /etc/hotbed-tls
  readOnly: true
{{- end }}
{{- end }}

{{- define "hotbed.tlsVolume" -}}
{{- with .Values.tls.secret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 288
{{- end }}
{{- end }}

{{/* The variables of an object store (docs/checkpoints.md), if there is such a Secret. */}}
{{- define "hotbed.objectStore" -}}
envFrom:
  - secretRef:
      name: {{ .Release.Name }}-object-store
      optional: true
{{- end }}

{{- define "hotbed.failureDomain" -}}
{{- if eq .Values.servers.failureDomain "zone" }}
- name: NODE_ZONE
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['topology.kubernetes.io/zone']
- name: HOTBED_FAILURE_DOMAIN
  value: "zone-$(NODE_ZONE)"
{{- else if eq .Values.servers.failureDomain "node" }}
- name: HOTBED_FAILURE_DOMAIN
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- else }}
{{- fail (printf "servers.failureDomain is %q; allowed: node, zone" .Values.servers.failureDomain) }}
{{- end }}
{{- end }}

{{- define "hotbed.serverConfig" -}}
log-format: json
drain-ms-max: {{ .Values.servers.drainSeconds }}s
{{ .Values.servers.config }}
{{- end }}

{{- define "hotbed.servingConfig" -}}
log-format: json
drain-ms-max: {{ .Values.serving.drainSeconds }}s
{{ .Values.serving.config }}
{{- end }}

{{- define "hotbed.coordinatorConfig" -}}
log-format: json
{{ .Values.coordinator.config }}
{{- end }}
