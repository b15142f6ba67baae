// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// MaxExpressionBytes is how long the expressions of one spec may be together.
const MaxExpressionBytes = 128 << 10

// ExpressionBytes is how long the expressions of the spec are together.
func (w *Work) ExpressionBytes() int {
	n := len(w.CloudEventData) + bytesOfVariables(w.Variables)
	for _, expression := range w.Conditions {
		n += len(expression)
	}
	for i := range w.Rules {
		n += w.Rules[i].expressionBytes()
	}
	return n
}

func (r *Rule) expressionBytes() int {
	n := len(r.ForEach) + len(r.When) + len(r.For) + len(r.ForKey) + len(r.GroupBy) + len(r.Unless) + len(r.Key) + len(r.Reason)
	n += bytesOfVariables(r.Variables)
	for _, count := range []*intstr.IntOrString{r.Keep, r.Leave} {
		if count != nil {
			n += len(count.StrVal)
		}
	}
	for i := range r.OrderBy {
		n += len(r.OrderBy[i].Expression)
	}
	for i := range r.Confirm {
		n += len(r.Confirm[i].Name) + len(r.Confirm[i].Namespace)
	}
	for i := range r.Actions {
		a := &r.Actions[i]
		if n += len(a.When) + len(a.Object); a.Patch != nil {
			n += len(a.Patch.Expression)
		}
	}
	return n
}

func bytesOfVariables(variables []Variable) int {
	n := 0
	for i := range variables {
		n += len(variables[i].Expression)
	}
	return n
}
