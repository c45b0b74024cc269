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

{{- define "hotbed.serverConfig" -}}
log-format: json
drain-ms-max: {{ .Values.servers.drainSeconds }}s
{{ .Values.servers.config }}
{{- end }}

{{- define "hotbed.coordinatorConfig" -}}
log-format: json
{{ .Values.coordinator.config }}
{{- end }}
