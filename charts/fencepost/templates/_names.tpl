{{/* Names and labels of the chart's own objects. */}}

{{- define "fencepost.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "fencepost.fullname" -}}
{{- $name := include "fencepost.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "fencepost.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fencepost.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fencepost.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "fencepost.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Whether the shared proxy is wanted: "true" or nothing. */}}
{{- define "fencepost.isShared" -}}
{{- if eq (toString .Values.shared.enabled) "auto" }}
{{- if .Chart.IsRoot }}true{{ end }}
{{- else if .Values.shared.enabled }}true{{ end }}
{{- end }}

{{- define "fencepost.serviceAccountName" -}}
{{- if .Values.serviceAccount.name }}
{{- .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create }}
{{- include "fencepost.fullname" . }}
{{- else }}default
{{- end }}
{{- end }}

{{/*
The account of what runs before the others are there: the one that this release makes does not
exist yet.
*/}}
{{- define "fencepost.hookServiceAccountName" -}}
{{- if .Values.serviceAccount.create }}default{{ else }}{{ include "fencepost.serviceAccountName" . }}{{ end }}
{{- end }}

{{/*
Whether the cluster is known to be older than `.version`. Without a cluster (`helm template`) Helm
makes up a version, and an old Helm an old one; only a real cluster has this API.
*/}}
{{- define "fencepost.isOlderThan" -}}
{{- if and (.capabilities.APIVersions.Has "apiregistration.k8s.io/v1") (semverCompare (printf "<%s-0" .version) .capabilities.KubeVersion.Version) }}true{{ end }}
{{- end }}
