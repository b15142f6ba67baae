// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	celgo "github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// expression is one of a policy, with what it may be.
type expression struct {
	name, text string
	types      []*celgo.Type
}

// GetExpression, ReturnTypes and GetName are what the API server asks of it.
func (e expression) GetExpression() string      { return e.text }
func (e expression) ReturnTypes() []*celgo.Type { return e.types }
func (e expression) GetName() string            { return e.name }

// What the policies say compiles in the oldest Kubernetes that serves them, 1.30, whose API server takes from new objects what
// 1.29 knows.
func TestPoliciesCompileInTheOldestKubernetes(t *testing.T) {
	i := &installed{T: t, objects: build(t, "../../config/default")}
	policies := all[admissionregistrationv1.ValidatingAdmissionPolicy](i, "ValidatingAdmissionPolicy")
	if len(policies) != 3 {
		t.Errorf("there are %d policies", len(policies))
	}
	for _, p := range policies {
		compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 29)))
		if err != nil {
			t.Fatal(err)
		}
		compile := func(where string, e expression) {
			if r := compiler.CompileCELExpression(e, cel.OptionalVariableDeclarations{}, environment.NewExpressions); r.Error != nil {
				t.Errorf("%s of %s: %v", where, p.Name, r.Error)
			}
		}
		for _, v := range p.Spec.Variables {
			e := expression{name: v.Name, text: v.Expression, types: []*celgo.Type{celgo.AnyType, celgo.DynType}}
			compile("variable "+v.Name, e)
			compiler.CompileAndStoreVariable(e, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
		}
		for _, v := range p.Spec.Validations {
			compile("expression", expression{text: v.Expression, types: []*celgo.Type{celgo.BoolType}})
			if v.MessageExpression != "" {
				compile("messageExpression", expression{text: v.MessageExpression, types: []*celgo.Type{celgo.StringType}})
			}
		}
	}
}
