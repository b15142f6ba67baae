{{- define "type" -}}
{{- $type := . -}}
{{- /* CommonSpec is inlined where it is used. */ -}}
{{- if and (markdownShouldRenderType $type) (ne $type.Name "CommonSpec") }}
## {{ $type.Name }}
{{ if $type.IsAlias }}
Is a {{ markdownRenderTypeLink $type.UnderlyingType }}.
{{ end }}
{{ $type.Doc }}
{{- $in := list }}
{{- range $type.SortedReferences }}
{{- if not (has .Name (list "CommonSpec" "Work")) }}{{ $in = append $in (markdownRenderTypeLink .) }}{{ end }}
{{- end }}
{{- if $in }}

It is in {{ join ", " $in }}.
{{ end }}
{{- if $type.Members }}
| Field | What it says | Default | Validation |
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
| Value | What it says |
| --- | --- |
{{- range $type.EnumValues }}
| `{{ .Name }}` | {{ markdownRenderFieldDoc .Doc }} |
{{- end }}
{{ end }}
{{- end }}
{{- end -}}
