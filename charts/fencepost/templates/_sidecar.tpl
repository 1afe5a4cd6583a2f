{{/*
For your own chart. Make this chart a dependency named `fencepost`, set its values below `fencepost`,
and put into the pod's template:

    metadata:
      labels:
        {{- include "fencepost.podLabels" . | nindent 8 }}
    spec:
      terminationGracePeriodSeconds: {{ include "fencepost.terminationGracePeriodSeconds" . }}
      initContainers:
        {{- include "fencepost.sidecar" . | nindent 8 }}
      volumes:
        {{- include "fencepost.volumes" . | nindent 8 }}

With `sidecar.native=false` the container goes to `containers`, before your own, instead.
*/}}

{{- define "fencepost.sidecar" -}}
{{- include "fencepost.mustBeDependency" . }}
{{- $values := .Values.fencepost }}
{{- $given := dict "values" $values "shared" false "capabilities" .Capabilities }}
{{- if and $values.sidecar.native (include "fencepost.isOlderThan" (dict "capabilities" .Capabilities "version" "1.29.0")) }}
{{- fail "fencepost: a native sidecar needs Kubernetes 1.29; set fencepost.sidecar.native=false and include it in containers" }}
{{- end -}}
- name: fencepost
  {{- if $values.sidecar.native }}
  restartPolicy: Always
  {{- end }}
  {{- include "fencepost.container" $given | trim | nindent 2 }}
  startupProbe:
    {{- include "fencepost.probe" (dict "path" "/startupz" "period" 1 "failures" (int $values.sidecar.startupSeconds)) | nindent 4 }}
  {{- if $values.sidecar.readiness }}
  readinessProbe:
    {{- include "fencepost.probe" (dict "path" "/readyz" "period" 5 "failures" 2) | nindent 4 }}
  {{- end }}
  livenessProbe:
    {{- include "fencepost.probe" (dict "path" "/livez" "period" 10 "failures" 6) | nindent 4 }}
  {{- if not $values.sidecar.native }}
  lifecycle:
    {{- /* The kubelet starts the next container when this is done. */}}
    postStart:
      exec:
        command: [/fencepost, healthcheck, --wait={{ int $values.sidecar.startupSeconds }}s]
    {{- with include "fencepost.preStop" (dict "seconds" $values.sidecar.preStopSeconds "capabilities" .Capabilities) | trim }}
    {{- . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end }}

{{- define "fencepost.volumes" -}}
{{- include "fencepost.mustBeDependency" . }}
{{- include "fencepost.secretVolumes" (dict "values" .Values.fencepost "shared" false) | trim }}
{{- end }}

{{/* By these, PodMonitor finds the pod. */}}
{{- define "fencepost.podLabels" -}}
fencepost/proxy: sidecar
{{- end }}

{{/* A native sidecar ends after the application, a plain one beside it: the pod has to last for both. */}}
{{- define "fencepost.terminationGracePeriodSeconds" -}}
{{- include "fencepost.mustBeDependency" . }}
{{- $values := .Values.fencepost }}
{{- $application := int $values.sidecar.applicationGraceSeconds }}
{{- $drain := add $values.drainSeconds 5 }}
{{- if $values.sidecar.native }}
{{- add $application $drain }}
{{- else }}
{{- max $application (add $values.sidecar.preStopSeconds $drain) }}
{{- end }}
{{- end }}

{{- define "fencepost.mustBeDependency" -}}
{{- if not (hasKey .Values "fencepost") }}
{{- fail "fencepost: no values named `fencepost` here: Chart.yaml must have the chart as a dependency of that name" }}
{{- end }}
{{- end }}
