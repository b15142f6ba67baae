// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// ValidateTemplate returns the mistakes in a CleanerTemplate, whose body may have all that a ClusterCleaner may have. Options.Compiled
// are the errors of its expressions, compiled as those of a ClusterCleaner; parameters are the errors of its parameters.
func ValidateTemplate(t *v1alpha1.CleanerTemplate, parameters field.ErrorList, o Options) Findings {
	var found Findings
	spec, body, path := &t.Spec, &t.Spec.Template, field.NewPath("spec")
	checkSize(&found, spec, path)
	if len(body.Targets) == 0 && len(body.Rules) == 0 {
		found.addError(path.Child("template"), "a template needs something to clean: add targets or rules")
	}
	for i, p := range spec.Parameters {
		if !identifier.MatchString(p.Name) {
			found.addError(path.Child("parameters").Index(i).Child("name"), "is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as onReadyNode")
		}
	}
	found.addFieldErrors(parameters)
	o.isTemplate = true
	work := &v1alpha1.Work{Cluster: true, Targets: v1alpha1.ResolveTargets(body.Targets), Declared: []string{}} // it is of a template
	work.Variables, work.Conditions, work.Rules = body.Variables, body.Conditions, body.Rules
	checkExpressionSize(&found, work, path)
	checkBody(&found, work, path.Child("template"), o)
	found.addFieldErrors(moveIntoTemplate(o.Compiled))
	found.addUnknownFields(moveIntoTemplate(o.UnknownFields), body.Validation)
	return found
}

// moveIntoTemplate returns errors of the spec that a template makes as errors of the template.
func moveIntoTemplate(of field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	for _, err := range of {
		moved := *err
		if rest, ok := strings.CutPrefix(err.Field, "spec."); ok && isBodyField(rest) {
			moved.Field = "spec.template." + rest
		}
		errs = append(errs, &moved)
	}
	return errs
}
