{{/*
The parts of a container that runs fencepost. Each takes a dict, with the chart's values as `values`.
*/}}

{{- define "fencepost.image" -}}
{{- $image := .values.image }}
{{- $registry := (.values.global).imageRegistry | default "" }}
{{- if $registry }}{{ trimSuffix "/" $registry }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag }}{{ end }}
{{- end }}

{{/* Everything that Pod Security "restricted" asks of a container, and a read-only root. */}}
{{- define "fencepost.securityContext" -}}
runAsNonRoot: true
{{- with .values.runAsUser }}
runAsUser: {{ int64 . }}
{{- end }}
{{- with .values.runAsGroup }}
runAsGroup: {{ int64 . }}
{{- end }}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
privileged: false
capabilities:
  drop:
    - ALL
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* How to reach the store and the authority; for `serve` and `check` alike. No secrets: only their files. */}}
{{- define "fencepost.connectionArgs" -}}
{{- $values := .values }}
{{- if $values.store.secretName }}
- --store-file=/etc/fencepost/store/url
{{- end }}
- {{ printf "--authority=%s" $values.authority | quote }}
{{- with $values.etcd }}
{{- if .prefix }}
- {{ printf "--etcd-prefix=%s" .prefix | quote }}
{{- end }}
{{- if .user }}
- {{ printf "--etcd-user=%s" .user | quote }}
{{- end }}
{{- if .passwordSecretName }}
- --etcd-password-file=/etc/fencepost/etcd-password/password
{{- end }}
{{- if .tlsSecretName }}
- --etcd-ca=/etc/fencepost/etcd-tls/ca.crt
{{- if .clientCertificate }}
- --etcd-cert=/etc/fencepost/etcd-tls/tls.crt
- --etcd-key=/etc/fencepost/etcd-tls/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the shared proxy lets itself be convinced by. */}}
{{- define "fencepost.accessArgs" -}}
{{- $values := .values }}
{{- if $values.tls.secretName }}
- --tls-cert=/etc/fencepost/tls/tls.crt
- --tls-key=/etc/fencepost/tls/tls.key
{{- if $values.tls.clientCertificates }}
- --tls-client-ca=/etc/fencepost/tls/ca.crt
{{- end }}
{{- end }}
{{- with $values.auth }}
{{- if .tokensSecretName }}
- --tokens-file=/etc/fencepost/tokens/tokens
{{- end }}
{{- if .serviceAccounts.issuer }}
- --jwt-keys=https://kubernetes.default.svc/openid/v1/jwks
- --jwt-keys-ca=/etc/fencepost/issuer/ca.crt
- --jwt-keys-token-file=/etc/fencepost/issuer/token
- {{ printf "--jwt-issuer=%s" .serviceAccounts.issuer | quote }}
- {{ printf "--jwt-audience=%s" .serviceAccounts.audience | quote }}
{{- end }}
{{- if .policyConfigMapName }}
- --policy=/etc/fencepost/policy/policy.toml
{{- end }}
{{- end }}
{{- if $values.insecure }}
- --insecure
{{- end }}
{{- end }}

{{/* It would refuse to start. Better to hear of it before that. */}}
{{- define "fencepost.mustBeGuarded" -}}
{{- $values := .values }}
{{- $known := or $values.auth.tokensSecretName $values.auth.serviceAccounts.issuer $values.tls.clientCertificates (hasKey $values.settings "jwt-keys") }}
{{- if and .shared (not $values.insecure) (not (and $values.tls.secretName $known)) }}
{{- fail "fencepost: whoever reaches the shared proxy could read, write and lock everything. Set tls.secretName and one of auth.tokensSecretName, auth.serviceAccounts.issuer and tls.clientCertificates; or insecure=true if you accept that (docs/access.md)" }}
{{- end }}
{{- end }}

{{- define "fencepost.serveArgs" -}}
{{- $values := .values }}
{{- $everywhere := ternary "[::]" "0.0.0.0" $values.ipv6 }}
- serve
- {{ printf "--listen=%s:7420" (ternary $everywhere "127.0.0.1" .shared) | quote }}
- {{ printf "--admin-listen=%s:7421" $everywhere | quote }}
{{ include "fencepost.connectionArgs" . | trim }}
{{- if .shared }}
{{- with include "fencepost.accessArgs" . | trim }}
{{ . }}
{{- end }}
{{- end }}
- --drain={{ int64 $values.drainSeconds }}s
{{- range $name, $value := $values.settings }}
{{- /* Helm reads whole numbers as floating point ones. */}}
- {{ printf "--%s=%s" $name (kindIs "string" $value | ternary $value (toString (int64 $value))) | quote }}
{{- end }}
{{- end }}

{{- define "fencepost.ports" -}}
- name: fencepost-admin
  containerPort: 7421
  protocol: TCP
{{- if .shared }}
- name: fencepost
  containerPort: 7420
  protocol: TCP
{{- end }}
{{- end }}

{{- define "fencepost.volumeMounts" -}}
{{- $values := .values }}
{{- if $values.store.secretName }}
- name: fencepost-store
  mountPath: /etc/fencepost/store
  readOnly: true
{{- end }}
{{- if $values.store.tlsSecretName }}
- name: fencepost-postgres-tls
  mountPath: /etc/fencepost/postgres-tls
  readOnly: true
{{- end }}
{{- if $values.etcd.passwordSecretName }}
- name: fencepost-etcd-password
  mountPath: /etc/fencepost/etcd-password
  readOnly: true
{{- end }}
{{- if $values.etcd.tlsSecretName }}
- name: fencepost-etcd-tls
  mountPath: /etc/fencepost/etcd-tls
  readOnly: true
{{- end }}
{{- if .shared }}
{{- if $values.tls.secretName }}
- name: fencepost-tls
  mountPath: /etc/fencepost/tls
  readOnly: true
{{- end }}
{{- if $values.auth.tokensSecretName }}
- name: fencepost-tokens
  mountPath: /etc/fencepost/tokens
  readOnly: true
{{- end }}
{{- if $values.auth.policyConfigMapName }}
- name: fencepost-policy
  mountPath: /etc/fencepost/policy
  readOnly: true
{{- end }}
{{- if $values.auth.serviceAccounts.issuer }}
- name: fencepost-issuer
  mountPath: /etc/fencepost/issuer
  readOnly: true
{{- end }}
{{- else }}
{{- /* A pod's token goes into every container, unless something is there already. */}}
- name: fencepost-no-token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}
{{- with $values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The files are for this container alone; it is not root, and a pod's group is not ours to set. */}}
{{- define "fencepost.secretVolumes" -}}
{{- $values := .values }}
{{- if $values.store.secretName }}
- name: fencepost-store
  secret:
    secretName: {{ $values.store.secretName | quote }}
    defaultMode: 0444
    items:
      - key: {{ $values.store.secretKey | quote }}
        path: url
{{- end }}
{{- if $values.store.tlsSecretName }}
- name: fencepost-postgres-tls
  secret:
    secretName: {{ $values.store.tlsSecretName | quote }}
    defaultMode: 0444
{{- end }}
{{- if $values.etcd.passwordSecretName }}
- name: fencepost-etcd-password
  secret:
    secretName: {{ $values.etcd.passwordSecretName | quote }}
    defaultMode: 0444
    items:
      - key: {{ $values.etcd.passwordSecretKey | quote }}
        path: password
{{- end }}
{{- if $values.etcd.tlsSecretName }}
- name: fencepost-etcd-tls
  secret:
    secretName: {{ $values.etcd.tlsSecretName | quote }}
    defaultMode: 0444
{{- end }}
{{- if .shared }}
{{- if $values.tls.secretName }}
- name: fencepost-tls
  secret:
    secretName: {{ $values.tls.secretName | quote }}
    defaultMode: 0444
{{- end }}
{{- if $values.auth.tokensSecretName }}
- name: fencepost-tokens
  secret:
    secretName: {{ $values.auth.tokensSecretName | quote }}
    defaultMode: 0444
    items:
      - key: {{ $values.auth.tokensSecretKey | quote }}
        path: tokens
{{- end }}
{{- if $values.auth.policyConfigMapName }}
- name: fencepost-policy
  configMap:
    name: {{ $values.auth.policyConfigMapName | quote }}
    items:
      - key: {{ $values.auth.policyKey | quote }}
        path: policy.toml
{{- end }}
{{- if $values.auth.serviceAccounts.issuer }}
{{- /* The API server wants to know who asks for its keys. Nothing else is done with this token. */}}
- name: fencepost-issuer
  projected:
    defaultMode: 0444
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
{{- end }}
{{- else }}
- name: fencepost-no-token
  emptyDir:
    sizeLimit: 1Mi
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fencepost.probe" -}}
httpGet:
  path: {{ .path }}
  port: fencepost-admin
periodSeconds: {{ .period }}
timeoutSeconds: 3
failureThreshold: {{ .failures }}
{{- end }}

{{/* Sleeping is the kubelet's work: the image has no shell. */}}
{{- define "fencepost.preStop" -}}
{{- if and (gt (int .seconds) 0) (not (include "fencepost.isOlderThan" (dict "capabilities" .capabilities "version" "1.30.0"))) }}
preStop:
  sleep:
    seconds: {{ int .seconds }}
{{- end }}
{{- end }}

{{/*
Everything of the container but its name, restartPolicy, probes and hooks, which differ. `shared`
says which of the two it is.
*/}}
{{- define "fencepost.container" -}}
{{- $values := .values }}
{{- include "fencepost.mustHaveStore" . -}}
{{- include "fencepost.mustBeGuarded" . -}}
image: {{ include "fencepost.image" . | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args:
  {{- include "fencepost.serveArgs" . | trim | nindent 2 }}
{{- with $values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  {{- include "fencepost.ports" . | nindent 2 }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  {{- include "fencepost.securityContext" . | nindent 2 }}
{{- with include "fencepost.volumeMounts" . | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Without an address it would quietly serve a file that is gone with the container. */}}
{{- define "fencepost.mustHaveStore" -}}
{{- if not .values.store.secretName }}
{{- $named := false }}
{{- range .values.extraEnv }}
{{- if has .name (list "FENCEPOST_STORE" "FENCEPOST_STORE_FILE") }}{{ $named = true }}{{ end }}
{{- end }}
{{- if not $named }}
{{- fail "fencepost: where is the database? Set store.secretName, or FENCEPOST_STORE in extraEnv" }}
{{- end }}
{{- end }}
{{- end }}
