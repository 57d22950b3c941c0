{{- define "decamp.labels" -}}
app.kubernetes.io/name: decamp
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "decamp.selector" -}}
app.kubernetes.io/name: decamp
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "decamp.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The URL of the database. $(…) is replaced by the variables of decamp.env. */}}
{{- define "decamp.database" -}}
{{- if .Values.database.cloudNativePG -}}
postgres://$(DATABASE_USER)@$(DATABASE_HOST):$(DATABASE_PORT)/$(DATABASE_NAME)?sslrootcert=/run/postgresql-ca/ca.crt
{{- else -}}
{{- $url := required "database.url or database.cloudNativePG is required" .Values.database.url -}}
{{- $url -}}{{- if .Values.database.caSecret }}{{ if contains "?" $url }}&{{ else }}?{{ end }}sslrootcert=/run/postgresql-ca/ca.crt{{ end -}}
{{- end -}}
{{- end }}

{{- define "decamp.env" -}}
- {name: HOME, value: /var/lib/decamp}
- {name: USER, value: decamp}
- {name: CREDENTIALS_DIRECTORY, value: /run/credentials/decamp}
- {name: PGPASSFILE, value: /run/postgresql/pgpass}
{{- with .Values.database.cloudNativePG }}
{{- range $name, $key := dict "DATABASE_USER" "username" "DATABASE_HOST" "host" "DATABASE_PORT" "port" "DATABASE_NAME" "dbname" }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $.Values.database.cloudNativePG }}-app, key: {{ $key }}}}
{{- end }}
{{- end }}
{{- end }}

{{- define "decamp.mounts" -}}
- {name: state, mountPath: /var/lib/decamp}
- {name: tmp, mountPath: /tmp}
- {name: credentials, mountPath: /run/credentials/decamp, readOnly: true}
- {name: database, mountPath: /run/postgresql, readOnly: true}
{{- if or .Values.database.cloudNativePG .Values.database.caSecret }}
- {name: database-ca, mountPath: /run/postgresql-ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "decamp.volumes" -}}
- {name: tmp, emptyDir: {}}
- name: credentials
  projected:
    defaultMode: 0440
    sources:
      - secret: {name: {{ .Values.secrets.fleetKey }}, items: [{key: fleet.key, path: fleet.key}]}
      - secret: {name: {{ .Values.secrets.access }}, items: [{key: access.yaml, path: access.yaml}]}
      {{- range .Values.secrets.credentials }}
      - secret: {name: {{ . }}}
      {{- end }}
- name: database
  secret: {secretName: {{ if .Values.database.cloudNativePG }}{{ .Values.database.cloudNativePG }}-app{{ else }}{{ .Values.database.passwordSecret }}{{ end }}, defaultMode: 0440, items: [{key: pgpass, path: pgpass}]}
{{- if .Values.database.cloudNativePG }}
- name: database-ca
  secret: {secretName: {{ .Values.database.cloudNativePG }}-ca, items: [{key: ca.crt, path: ca.crt}]}
{{- else if .Values.database.caSecret }}
- name: database-ca
  secret: {secretName: {{ .Values.database.caSecret }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- end }}

{{/* What the pod security standard restricted requires. */}}
{{- define "decamp.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "decamp.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "decamp.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- end }}
