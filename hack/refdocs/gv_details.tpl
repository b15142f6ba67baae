{{- define "gvDetails" -}}
{{- $gv := . -}}
{{- range $gv.SortedKinds }}
{{- with $gv.TypeForKind . }}
{{ template "type" . }}
{{- end }}
{{- end }}
{{- range $gv.SortedTypes }}
{{- if not .GVK }}
{{ template "type" . }}
{{- end }}
{{- end }}
{{- end -}}
