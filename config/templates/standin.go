// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// StandIn returns the spec of a ClusterCleaner that uses a template, with a sample value for each parameter without a default. With
// it, a template can be validated before anybody uses it.
func StandIn(t *v1alpha1.CleanerTemplate) (*v1alpha1.Work, field.ErrorList) {
	given := map[string]any{}
	for i := range t.Spec.Parameters {
		if p := &t.Spec.Parameters[i]; p.Default == nil {
			given[p.Name] = makeSample(p)
		}
	}
	text, err := json.Marshal(given)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(field.NewPath("spec", "parameters"), err)}
	}
	c := &v1alpha1.ClusterCleaner{}
	c.Spec.Lifecycle = v1alpha1.LifecycleRecurring
	c.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: t.Name, Parameters: &runtime.RawExtension{Raw: text}}
	return Expand(c, t)
}

// makeSample returns a valid value of a parameter.
func makeSample(p *v1alpha1.TemplateParameter) any {
	switch p.Type {
	case v1alpha1.ParameterInt:
		return 0
	case v1alpha1.ParameterBool:
		return false
	case v1alpha1.ParameterDuration:
		return "0s"
	case v1alpha1.ParameterStringList:
		return []string{}
	}
	if len(p.Enum) > 0 {
		return p.Enum[0]
	}
	return ""
}
