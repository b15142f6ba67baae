// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
)

// compilerPosition is the position at the start of a compiler's message.
var compilerPosition = regexp.MustCompile(`^\d+:\d+: `)

// redactFinding tells the author of a template what is wrong with a Cleaner that uses it: the field, the position in it, and what the
// template has to do with it. The author may not be allowed to read the Cleaner, so the message repeats nothing from it: no
// expression, no value, and only names that the old or the new template has.
func redactFinding(f validation.Finding, old, t *v1alpha1.CleanerTemplate) string {
	const parameters = "spec.templateRef.parameters"
	name, ofParameter := strings.CutPrefix(f.Path, parameters+".")
	switch {
	case ofParameter && !hasParameter(t, name) && !hasParameter(old, name):
		return parameters + ": gives a parameter that the template does not have"
	case ofParameter && parameterType(t, name) == v1alpha1.ParameterDuration: // the message of a duration repeats the value
		return fmt.Sprintf("%s: must be of type duration: write %s: \"40s\"", f.Path, name)
	case f.Path == "spec", strings.HasPrefix(f.Path, "spec.templateRef"): // these messages are about the template or about sizes
		return f.String()
	}
	said := fmt.Sprintf("%s: %sdoes not work with this template", f.Path, compilerPosition.FindString(f.Message))
	if lost := listRemovedNames(old, t); len(lost) > 0 {
		said += ", which no longer has " + strings.Join(lost, ", ")
	}
	return said
}

// hasParameter reports whether a template has a parameter. It is false for nil.
func hasParameter(t *v1alpha1.CleanerTemplate, name string) bool {
	return parameterType(t, name) != ""
}

// parameterType returns the type of a parameter of a template; empty if there is no such parameter or no template.
func parameterType(t *v1alpha1.CleanerTemplate, name string) v1alpha1.ParameterType {
	if t == nil {
		return ""
	}
	for _, p := range t.Spec.Parameters {
		if p.Name == name {
			return p.Type
		}
	}
	return ""
}

// listRemovedNames returns the names that expressions can use with the old template but not with the new one.
func listRemovedNames(old, t *v1alpha1.CleanerTemplate) []string {
	if old == nil {
		return nil
	}
	now := listExpressionNames(t)
	return slices.DeleteFunc(listExpressionNames(old), func(name string) bool { return slices.Contains(now, name) })
}

// listExpressionNames returns the names that expressions can use with a template.
func listExpressionNames(t *v1alpha1.CleanerTemplate) []string {
	var out []string
	for _, p := range t.Spec.Parameters {
		out = append(out, "params."+p.Name)
	}
	for i := range t.Spec.Template.Targets {
		if target := &t.Spec.Template.Targets[i]; target.IsIncluded() {
			out = append(out, target.Name)
		}
	}
	for _, v := range t.Spec.Template.Variables {
		out = append(out, "variables."+v.Name)
	}
	return out
}
