{{- define "type_members" -}}
{{- $field := . -}}
{{- if eq $field.Name "metadata" -}}
The metadata of any Kubernetes object.
{{- else -}}
{{ $field.Doc | replace "<" "&lt;" | markdownRenderFieldDoc }}
{{- end -}}
{{- end -}}
