{{/* What all names begin with. The longest that follows it has 27 characters, and a Service's name may have 63. */}}
{{- define "cleaner.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if contains $name .Release.Name }}{{ $full = .Release.Name }}{{ end -}}
{{- default $full .Values.fullnameOverride | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{/* What tells the Pods from all others. */}}
{{- define "cleaner.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: manager
{{- end -}}

{{- define "cleaner.schedulerSelector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end -}}

{{- define "cleaner.chart" -}}
{{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels of every object: (list $ component). Empty: of no part in particular. */}}
{{- define "cleaner.labels" -}}
{{- $component := index . 1 -}}
{{- with index . 0 -}}
helm.sh/chart: {{ include "cleaner.chart" . }}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: cleaner
{{- with $component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "cleaner.serviceAccountName" -}}
{{- default (printf "%s-manager" (include "cleaner.fullname" .)) .Values.serviceAccount.name -}}
{{- end -}}

{{/* The Secret with the webhook's certificate, whoever makes it. */}}
{{- define "cleaner.webhookSecret" -}}
{{ include "cleaner.fullname" . }}-webhook-cert
{{- end -}}

{{/* The reference of an image: (list $ values). */}}
{{- define "cleaner.imageOf" -}}
{{- $root := index . 0 -}}
{{- with index . 1 -}}
{{- $image := printf "%s:%s" .repository (default $root.Chart.AppVersion .tag) -}}
{{- with .digest }}{{ $image = printf "%s@%s" $image . }}{{ end -}}
{{- $image -}}
{{- end -}}
{{- end -}}

{{/* What the scheduler reads when it starts. */}}
{{- define "cleaner.schedulerConfiguration" -}}
{{- $full := printf "%s-scheduler" (include "cleaner.fullname" .) -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceNamespace: {{ .Release.Namespace | toYaml }}
  resourceName: {{ $full }}
profiles:
- schedulerName: {{ default $full .Values.scheduler.name | toYaml }}
  plugins:
    multiPoint:
      enabled:
      - name: PodAllocatableIP
  pluginConfig:
  - name: PodAllocatableIP
    args:
      reservedIPv4: {{ .Values.scheduler.reservedIPv4 }}
      reservedIPv6: {{ .Values.scheduler.reservedIPv6 }}
{{- end -}}

{{/* Whether the templates are part of this release now: (include "cleaner.templates" .) is "true" or nothing. An API server that
does not serve their kind refuses the whole release, so on a first installation they have to wait for the next upgrade. */}}
{{- define "cleaner.templates" -}}
{{- if and .Values.templates.enabled (.Capabilities.APIVersions.Has "cleaner.vtex.dev/v1alpha1/CleanerTemplate") }}true{{ end -}}
{{- end -}}

{{/* What the next revision may find of the templates of this one, as name=chart: this chart's text, or what is there now, should the
upgrade fail half way. The Deployment carries it, since a template that was given up stays, and looks like one that was not. */}}
{{- define "cleaner.templatesLeft" -}}
{{- $left := list -}}
{{- range $path, $_ := .Files.Glob "files/templates/*.yaml" -}}
{{- $name := base $path | trimSuffix ".yaml" -}}
{{- $live := lookup "cleaner.vtex.dev/v1alpha1" "CleanerTemplate" "" $name -}}
{{- $chart := include "cleaner.chart" $ -}}
{{- $left = append $left (printf "%s=%s" $name $chart) -}}
{{- $left = append $left (printf "%s=%s" $name (dig "metadata" "labels" "helm.sh/chart" $chart $live)) -}}
{{- end -}}
{{- $left | uniq | join "," -}}
{{- end -}}

{{/* Refuses to go on with a template, (list $ name), that Helm would mix up. What Helm changes in it is the difference between the
last revision's text and this one's. That is right if the last revision had it, or if what is there is this chart's text already;
else an old text would stay, or become a blend of old and new. Without a cluster to look into there is nothing to refuse. */}}
{{- define "cleaner.refuseBlend" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $live := lookup "cleaner.vtex.dev/v1alpha1" "CleanerTemplate" "" $name -}}
{{- if $live -}}
{{- $mine := eq (dig "metadata" "labels" "app.kubernetes.io/instance" "" $live) $root.Release.Name -}}
{{- $is := dig "metadata" "labels" "helm.sh/chart" "somebody else" $live -}}
{{- $deployment := lookup "apps/v1" "Deployment" $root.Release.Namespace (printf "%s-controller-manager" (include "cleaner.fullname" $root)) -}}
{{- $left := dig "metadata" "annotations" "cleaner.vtex.dev/templates" "" $deployment | splitList "," -}}
{{- $known := or (eq $is (include "cleaner.chart" $root)) (has (printf "%s=%s" $name $is) $left) -}}
{{- /* On an installation Helm itself refuses what is not the release's, or takes it over as a whole if it is told to. */ -}}
{{- if and (or $mine $root.Release.IsUpgrade) (not $known) -}}
{{- fail (printf "CleanerTemplate %s was left by %s, and Helm cannot bring it up to date: delete it, and it is made anew (kubectl delete cleanertemplate %s), or leave all templates as they are (templates.enabled=false)" $name $is $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* One manifest of files/ as an object of this release: (list $ path). Names are prefixed as kustomize does it, also where
they stand in bindings and in rules, but for the API server's own Service, and the operator's ServiceAccount is put in its place. */}}
{{- define "cleaner.manifest" -}}
{{- $root := index . 0 -}}
{{- $prefix := printf "%s-" (include "cleaner.fullname" $root) -}}
{{- $object := $root.Files.Get (index . 1) | fromYaml -}}
{{- $meta := $object.metadata -}}
{{- $_ := set $meta "name" (print $prefix $meta.name) -}}
{{- if $meta.namespace }}{{ $_ := set $meta "namespace" $root.Release.Namespace }}{{ end -}}
{{- $_ := set $meta "labels" (merge (include "cleaner.labels" (list $root "") | fromYaml) (default dict $meta.labels)) -}}
{{- if $object.roleRef }}{{ $_ := set $object.roleRef "name" (print $prefix $object.roleRef.name) }}{{ end -}}
{{- range $object.subjects }}
{{- $_ := set . "name" (include "cleaner.serviceAccountName" $root) -}}
{{- $_ := set . "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- range $rule := $object.rules }}
{{- if $rule.resourceNames }}
{{- $names := list -}}
{{- range $rule.resourceNames }}{{ $names = append $names (ternary . (print $prefix (trimPrefix "cleaner-" .)) (eq . "kubernetes")) }}{{ end -}}
{{- $_ := set $rule "resourceNames" $names -}}
{{- end -}}
{{- end -}}
{{- toYaml $object -}}
{{- end -}}

{{/* The manager's command line. What is as the manager has it anyway is left out. */}}
{{- define "cleaner.args" -}}
{{- $full := include "cleaner.fullname" . -}}
- --leader-elect
- --health-probe-bind-address=:{{ .Values.health.port }}
- --metrics-bind-address={{ if .Values.metrics.enabled }}:{{ .Values.metrics.port }}{{ else }}0{{ end }}
{{- if and .Values.metrics.enabled .Values.metrics.certificateSecret }}
- --metrics-cert-dir=/var/run/cleaner/metrics
{{- end }}
{{- if .Values.webhook.enabled }}
- --webhook-port={{ .Values.webhook.port }}
- --webhook-cert-dir=/var/run/cleaner/webhook
{{- with .Values.webhook.client }}
{{- if .authoritySecret }}
- --webhook-client-ca=/var/run/cleaner/webhook-client/ca.crt
{{- with .names }}
- {{ printf "--webhook-client-names=%s" (join "," .) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .Values.webhook.certificates.source "cert-manager" }}
- --webhook-cert=files
{{- else if ne $full "cleaner" }}
- --webhook-service={{ $full }}-webhook
- --webhook-secret={{ include "cleaner.webhookSecret" . }}
- --webhook-configuration={{ $full }}-webhook
{{- end }}
{{- else }}
- --webhook=false
{{- end }}
{{- if ne $full "cleaner" }}
- --signing-secret={{ $full }}-signing-key
{{- end }}
{{- with .Values.manager }}
{{- if .actWithoutAuthor }}
- --act-without-author
{{- end }}
{{- with .authorExtraKeys }}
- {{ printf "--author-extra-keys=%s" (join "," .) | quote }}
{{- end }}
{{- with .signingKey.rotation }}
- --signing-key-rotation={{ . }}
{{- end }}
{{- with .signingKey.overlap }}
- --signing-key-overlap={{ . }}
{{- end }}
{{- if .signingKey.new }}
- --new-signing-key
{{- end }}
{{- if kindIs "slice" .protectedNamespaces }}
- {{ printf "--protected-namespaces=%s" (join "," .protectedNamespaces) | quote }}
{{- end }}
{{- with .allowProtectedKinds }}
- {{ printf "--allow-protected-kinds=%s" (join "," .) | quote }}
{{- end }}
{{- if .requireServiceAccount }}
- --require-service-account
{{- end }}
{{- with .defaultServiceAccount }}
- {{ printf "--default-service-account=%s" . | quote }}
{{- end }}
{{- with .sink.allow }}
- {{ printf "--sink-allow=%s" (join "," .) | quote }}
{{- end }}
{{- with .sink.deny }}
- {{ printf "--sink-deny=%s" (join "," .) | quote }}
{{- end }}
{{- if .enableHTTP2 }}
- --enable-http2
{{- end }}
{{- with .minInterval }}
- --min-interval={{ . }}
{{- end }}
{{- with .settle }}
- --settle={{ . }}
{{- end }}
{{- if not .objectEvents }}
- --object-events=false
{{- end }}
{{- with .finishGrace }}
- --finish-grace={{ . }}
{{- end }}
{{- with .maxClockSkew }}
- --max-clock-skew={{ . }}
{{- end }}
{{- with .shutdownTimeout }}
- --shutdown-timeout={{ . }}
{{- end }}
{{- with .workers }}
- --workers={{ . }}
{{- end }}
{{- with .uninstalls }}
- --uninstalls={{ . }}
{{- end }}
{{- with .memoryLimit }}
- --memory-limit={{ . }}
{{- end }}
{{- with .verbosity }}
- --verbosity={{ . }}
{{- end }}
{{- end }}
{{- end -}}
