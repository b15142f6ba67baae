// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Expand returns the spec of a Cleaner or a ClusterCleaner with its template expanded: with the template's targets, variables,
// conditions and rules, a value for each of its parameters, and no templateRef. A spec without a templateRef is returned as it
// is, and the template is ignored; with one, a nil template is an error, and so is one of another name. The paths of errors
// are paths of the spec. Expand changes neither owner nor template; the result shares memory with both.
func Expand(owner v1alpha1.Owner, t *v1alpha1.CleanerTemplate) (*v1alpha1.Work, field.ErrorList) {
	work := owner.Work()
	ref := work.TemplateRef
	if ref == nil {
		return work, nil
	}
	at := field.NewPath("spec", "templateRef")
	if t == nil || t.Name != ref.Name {
		return nil, field.ErrorList{field.Invalid(at.Child("name"), ref.Name, fmt.Sprintf("there is no CleanerTemplate %q: apply it, or write the name of one that exists", ref.Name))}
	}
	errs := slices.Concat(rejectFieldsBesideTemplate(work), checkFit(work, t, at.Child("name")))
	given, err := decodeObject(ref.Parameters)
	if err != nil {
		return nil, append(errs, field.Invalid(at.Child("parameters"), "", "must be an object, such as {quarantine: 40s}"))
	}
	values, wrong := resolveParameters(t, given, at)
	if errs = append(errs, wrong...); len(errs) > 0 {
		return nil, errs
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(at.Child("parameters"), err)}
	}
	body := &t.Spec.Template
	work.TemplateRef = nil
	work.Validation = cmp.Or(work.Validation, body.Validation)
	work.Targets, work.Variables, work.Conditions, work.Rules = v1alpha1.ResolveTargets(body.Targets), body.Variables, body.Conditions, body.Rules
	work.Parameters = &runtime.RawExtension{Raw: text}
	work.Durations = listDurations(t)
	work.Declared = listParameters(t)
	return work, nil
}

// rejectFieldsBesideTemplate refuses fields that a template replaces. So does the schema, but a Cleaner may be older than the schema.
func rejectFieldsBesideTemplate(work *v1alpha1.Work) field.ErrorList {
	var errs field.ErrorList
	for _, part := range []struct {
		name  string
		there bool
	}{
		{"targets", len(work.Targets) > 0},
		{"variables", len(work.Variables) > 0},
		{"conditions", len(work.Conditions) > 0},
		{"rules", len(work.Rules) > 0},
		{"parameters", work.Parameters != nil},
	} {
		if part.there {
			errs = append(errs, field.Forbidden(field.NewPath("spec", part.name), "templateRef replaces it: remove one of the two"))
		}
	}
	return errs
}

// checkFit returns errors if a Cleaner's template selects objects outside the Cleaner's namespace.
func checkFit(work *v1alpha1.Work, t *v1alpha1.CleanerTemplate, p *field.Path) field.ErrorList {
	if work.Cluster {
		return nil
	}
	var errs field.ErrorList
	targets := v1alpha1.ResolveTargets(t.Spec.Template.Targets)
	for i := range targets {
		target := &targets[i]
		if said := reachesOut(&target.Reference); said != "" {
			errs = append(errs, field.Invalid(p, t.Name, fmt.Sprintf(
				"is a template for ClusterCleaners: its target %q has %s, and a Cleaner acts only in its own namespace; use it in a ClusterCleaner", target.Name, said)))
		}
	}
	return errs
}

// reachesOut returns the field of a reference that only a ClusterCleaner may have; empty if there is none.
func reachesOut(r *v1alpha1.ClusterReference) string {
	switch {
	case r.Namespace != "":
		return "namespace"
	case r.Namespaces != nil:
		return "namespaces"
	case r.NamespaceSelector != nil:
		return "namespaceSelector"
	case r.ExcludeNamespaces != nil:
		return "excludeNamespaces"
	}
	return ""
}

// listParameters returns the names of all parameters, sorted; never nil.
func listParameters(t *v1alpha1.CleanerTemplate) []string {
	names := make([]string, 0, len(t.Spec.Parameters))
	for _, p := range t.Spec.Parameters {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// listDurations returns the names of the parameters that expressions read as durations, sorted.
func listDurations(t *v1alpha1.CleanerTemplate) []string {
	var names []string
	for _, p := range t.Spec.Parameters {
		if p.Type == v1alpha1.ParameterDuration {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}
