{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "starling.selector" -}}
app.kubernetes.io/name: starling
app.kubernetes.io/component: controller
{{- end }}

{{- define "starling.api.selector" -}}
app.kubernetes.io/name: starling
app.kubernetes.io/component: api
{{- end }}

{{- define "starling.labels" -}}
{{ include "starling.selector" . }}
{{ include "starling.commonLabels" . }}
{{- end }}

{{- define "starling.api.labels" -}}
{{ include "starling.api.selector" . }}
{{ include "starling.commonLabels" . }}
{{- end }}

{{- define "starling.commonLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "starling.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What the controller does with jobs and what they consist of: in all namespaces, or in one. */}}
{{- define "starling.jobRules" -}}
- apiGroups: [starling.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [starling.dev]
  resources: [trainingjobs/status]
  verbs: [update]
# To block a job's deletion until its pods are gone; clusters that enforce owner references ask.
- apiGroups: [starling.dev]
  resources: [trainingjobs/finalizers]
  verbs: [update]
# What a job that names a template is given when it is made.
- apiGroups: [starling.dev]
  resources: [trainingtemplates]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, patch, delete]
# Some clusters (OpenShift) let nobody else say that a name leads to a pod.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices/restricted]
  verbs: [create]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Of gang schedulers and queues, where they are installed.
- apiGroups: [scheduling.x-k8s.io, scheduling.volcano.sh, scheduling.k8s.io]
  resources: [podgroups]
  verbs: [get, create, patch]
# Kubernetes 1.35's own gangs.
- apiGroups: [scheduling.k8s.io]
  resources: [workloads]
  verbs: [get, create]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, patch]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end }}

{{- define "starling.subject" }}
subjects:
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- define "starling.api.subject" }}
subjects:
- kind: ServiceAccount
  name: {{ .Values.api.serviceAccount.name }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* The Secret with a certificate that is not the service's own; empty: it keeps one itself. */}}
{{- define "starling.api.tlsSecret" -}}
{{- if .Values.api.tls.secretName }}{{ .Values.api.tls.secretName }}
{{- else if .Values.api.tls.certManager.issuerRef }}starling-api-tls{{ end -}}
{{- end }}

{{/* A CEL expression: who made the object of this name; '' where nobody knows. */}}
{{- define "starling.creatorOf" -}}
(has({{ . }}.metadata.annotations) && 'starling.dev/created-by' in {{ . }}.metadata.annotations ? {{ . }}.metadata.annotations['starling.dev/created-by'] : '')
{{- end }}

{{/* A CEL expression: what is noted in the job of this name of its template; '' where nothing is. */}}
{{- define "starling.templateNoteOf" -}}
(has({{ . }}.metadata.annotations) && 'starling.dev/template' in {{ . }}.metadata.annotations ? {{ . }}.metadata.annotations['starling.dev/template'] : '')
{{- end }}
