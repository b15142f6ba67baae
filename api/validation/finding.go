// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Severity says how bad a Finding is.
type Severity string

const (
	// Error means that the Cleaner is refused: it cannot work, or would do what no user can want.
	Error Severity = "Error"
	// Warning means that the Cleaner works, but probably does not do what its author wants.
	Warning Severity = "Warning"
)

// Finding is one mistake in a Cleaner.
type Finding struct {
	// Path is the field, such as "spec.targets[0].name".
	Path string
	// Message says what is wrong with it and what to write instead.
	Message string
	// Severity is Error or Warning.
	Severity Severity
}

// String returns the finding in one line.
func (f Finding) String() string { return f.Path + ": " + f.Message }

// Findings are in the order of the spec.
type Findings []Finding

// FromFieldErrors returns errors as findings. It leaves out values: one may be a whole expression.
func FromFieldErrors(errs field.ErrorList) Findings {
	var out Findings
	for _, err := range errs {
		message := err.Detail
		if message == "" {
			message = err.ErrorBody()
		}
		out = append(out, Finding{Path: err.Field, Message: message, Severity: Error})
	}
	return out
}

// Errors returns the findings for which the Cleaner is refused.
func (f Findings) Errors() Findings { return f.filterBySeverity(Error) }

// Warnings returns the findings with which the Cleaner still works.
func (f Findings) Warnings() Findings { return f.filterBySeverity(Warning) }

// SpecErrors returns the errors that are about the spec as a whole.
func (f Findings) SpecErrors() Findings {
	return slices.DeleteFunc(f.Errors(), func(finding Finding) bool { return finding.Path != "spec" })
}

func (f Findings) filterBySeverity(s Severity) Findings {
	var out Findings
	for _, finding := range f {
		if finding.Severity == s {
			out = append(out, finding)
		}
	}
	return out
}

// blameTemplate turns findings about fields that come from a template into findings about the template: the Cleaner has no such field.
func (f *Findings) blameTemplate(template string) {
	for i := range *f {
		finding := &(*f)[i]
		rest, ok := strings.CutPrefix(finding.Path, "spec.")
		if !ok || !isBodyField(rest) {
			continue
		}
		finding.Path = "spec.templateRef.name"
		what := "does not work here"
		if finding.Severity == Warning {
			what = "may not do here what is meant"
		}
		finding.Message = fmt.Sprintf("the template %q %s: its spec.template.%s: %s", template, what, rest, finding.Message)
	}
}

// isBodyField reports whether a field below spec comes from a template, if there is one.
func isBodyField(path string) bool {
	top := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' })
	return len(top) > 0 && slices.Contains([]string{"targets", "variables", "conditions", "rules", "parameters"}, top[0])
}

func (f *Findings) addError(p *field.Path, message string) {
	*f = append(*f, Finding{Path: p.String(), Message: message, Severity: Error})
}

func (f *Findings) addWarning(p *field.Path, message string) {
	*f = append(*f, Finding{Path: p.String(), Message: message, Severity: Warning})
}
