{{- define "type" -}}
{{- $type := . -}}
{{- /* CommonSpec is inlined where it is used. */ -}}
{{- if and (markdownShouldRenderType $type) (ne $type.Name "CommonSpec") }}
## {{ $type.Name }}
{{ if $type.IsAlias }}
Underlying type: {{ markdownRenderTypeLink $type.UnderlyingType }}.
{{ end }}
{{ $type.Doc }}
{{- $in := list }}
{{- range $type.SortedReferences }}
{{- if not (has .Name (list "CommonSpec" "Work")) }}{{ $in = append $in (markdownRenderTypeLink .) }}{{ end }}
{{- end }}
{{- if $in }}

Appears in: {{ join ", " $in }}.
{{ end }}
{{- if $type.Members }}
| Field | Description | Default | Validation |
| --- | --- | --- | --- |
{{- if $type.GVK }}
| `apiVersion` _string_ | `{{ $type.GVK.Group }}/{{ $type.GVK.Version }}` | | |
| `kind` _string_ | `{{ $type.GVK.Kind }}` | | |
{{- end }}
{{- range $type.Members }}
| `{{ .Name }}` _{{ markdownRenderType .Type }}_ | {{ template "type_members" . }} | {{ markdownRenderDefault .Default }} | {{ range $i, $v := .Validation }}{{ if $i }}; {{ end }}{{ $v | replace ": {}" "" | markdownRenderFieldDoc }}{{ end }} |
{{- end }}
{{ end }}
{{- if $type.EnumValues }}
| Value | Description |
| --- | --- |
{{- range $type.EnumValues }}
{{- /* The comment begins with the name of the constant in Go, which no manifest has. */ -}}
{{- $doc := regexReplaceAll "^\\S+ (means that |is )?" (trim .Doc) "" }}
| `{{ .Name }}` | {{ if $doc }}{{ $doc | substr 0 1 | upper }}{{ $doc | substr 1 -1 | markdownRenderFieldDoc }}{{ end }} |
{{- end }}
{{ end }}
{{- end }}
{{- end -}}
