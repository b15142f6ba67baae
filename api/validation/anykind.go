// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

const (
	maxAnnotationKey  = 317
	maxAnyAnnotations = 16
	maxExcludedKinds  = 256
)

var (
	annotationKey = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$`)
	excludedKind  = regexp.MustCompile(`^([a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?|\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// checkAnyKindOwner checks that targets of kind "*" are those of a Recurring ClusterCleaner: a kind that cannot be read for a while is read the next
// time. Of one namespace they would watch kinds of the whole cluster.
func checkAnyKindOwner(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	for i := range spec.Targets {
		at := p.Index(i).Child("reference", "kind")
		switch {
		case !spec.Targets[i].IsOfAnyKind():
		case !spec.Cluster:
			f.addError(at, "only a ClusterCleaner selects objects of kind \"*\": use one, with namespaces in its reference, or write a target for each kind")
		case !spec.IsRecurring():
			f.addError(at, "kind \"*\" requires lifecycle: Recurring, because kinds may be missing from it for a while: write lifecycle: Recurring, or a target for each kind")
		}
	}
}

// warnNamespacedOnly warns that excludeNamespaces leaves out all cluster-scoped objects of kind "*", which its name does not say, unless another target
// selects such objects.
func warnNamespacedOnly(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	selectsClusterScoped := func(t v1alpha1.ClusterTarget) bool {
		r := &t.Reference
		return t.IsOfAnyKind() && r.Namespaces == nil && r.NamespaceSelector == nil && r.ExcludeNamespaces == nil
	}
	if !spec.Cluster || slices.ContainsFunc(spec.Targets, selectsClusterScoped) {
		return
	}
	for i := range spec.Targets {
		if r := &spec.Targets[i].Reference; r.Kind == v1alpha1.AnyKind && r.ExcludeNamespaces != nil && r.Namespaces == nil && r.NamespaceSelector == nil {
			f.addWarning(p.Index(i).Child("reference", "excludeNamespaces"), "with kind: \"*\", a target that selects namespaces has no cluster-scoped objects: "+
				"to select these too, add a target without excludeNamespaces, or remove it and leave namespaces out in when")
		}
	}
}

// checkOneKind checks that a reference to one kind has none of the fields that kind "*" has.
func checkOneKind(f *Findings, r *v1alpha1.ClusterReference, p *field.Path) {
	if r.HasAnnotation != "" || r.HasAnyAnnotation != nil || r.ExcludeKinds != nil {
		f.addError(p, "hasAnnotation, hasAnyAnnotation and excludeKinds require kind: \"*\": remove them, or write kind: \"*\" without apiGroup and version")
	}
}

// checkAnyKind checks a reference to all kinds.
func checkAnyKind(f *Findings, r *v1alpha1.ClusterReference, p *field.Path) {
	if r.APIGroup != "" || r.Version != "" || r.Name != "" || r.FieldSelector != "" {
		f.addError(p, "kind: \"*\" stands for all kinds: remove apiGroup, version, name and fieldSelector")
	}
	required := slices.ContainsFunc(r.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool {
		return e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpExists
	})
	if len(r.ListAnnotations()) == 0 && len(r.MatchLabels) == 0 && !required {
		f.addError(p, "kind: \"*\" needs hasAnnotation, or a label that the objects have: add hasAnnotation or matchLabels")
	}
	checkAnnotations(f, r, p)
	checkExcludedKinds(f, r.ExcludeKinds, p.Child("excludeKinds"))
	checkLabelSelector(f, &metav1.LabelSelector{MatchLabels: r.MatchLabels, MatchExpressions: r.MatchExpressions}, p)
}

// checkAnnotations checks the annotations by which a reference selects.
func checkAnnotations(f *Findings, r *v1alpha1.ClusterReference, p *field.Path) {
	if r.HasAnnotation != "" && r.HasAnyAnnotation != nil {
		f.addError(p.Child("hasAnnotation"), "and hasAnyAnnotation exclude each other: add the key to hasAnyAnnotation, and remove hasAnnotation")
	}
	if n := len(r.HasAnyAnnotation); n > maxAnyAnnotations {
		f.addError(p.Child("hasAnyAnnotation"), fmt.Sprintf("has %d entries; at most %d are allowed: write another target", n, maxAnyAnnotations))
	}
	for _, key := range r.ListAnnotations() {
		if !annotationKey.MatchString(key) || len(key) > maxAnnotationKey {
			f.addError(p.Child("hasAnnotation"), fmt.Sprintf("%q is not the key of an annotation: write the key alone, such as janitor/ttl", key))
		}
	}
}

// checkExcludedKinds checks the kinds that a reference leaves out.
func checkExcludedKinds(f *Findings, kinds []string, p *field.Path) {
	if n := len(kinds); n > maxExcludedKinds {
		f.addError(p, fmt.Sprintf("has %d entries; at most %d are allowed: leave out groups, such as *.example.com", n, maxExcludedKinds))
	}
	for i, kind := range kinds {
		if !excludedKind.MatchString(kind) || len(kind) > maxAnnotationKey {
			f.addError(p.Index(i), fmt.Sprintf("%q is not a kind: write one such as secrets, deployments.apps or *.example.com", kind))
		}
	}
}

// checkAnyKindUse checks what expressions do with targets of kind "*": each object is decided on by itself, because kinds that cannot be read are
// left out.
func checkAnyKindUse(f *Findings, spec *v1alpha1.Work, root *field.Path) {
	targets := spec.ListAnyKind()
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		u := anyKindUse{f, name, matchUses(name)}
		for i, c := range spec.Conditions {
			u.refuseReading(c, root.Child("conditions").Index(i))
		}
		u.refuseInVariables(spec.Variables, root.Child("variables"))
		u.refuseReading(spec.CloudEventData, root.Child("cloudEventData"))
		for i := range spec.Rules {
			u.checkRule(spec, &spec.Rules[i], targets[name], root.Child("rules").Index(i))
		}
	}
}

// matchUses returns what matches expressions that name a target: also with a dot before it, as CEL writes what no loop may hide, and which is no
// field of what stands before the dot.
func matchUses(target string) *regexp.Regexp {
	name := regexp.QuoteMeta(target)
	return regexp.MustCompile(`(^|[^.\w])` + name + `($|\W)|(^|[^\w)\]}"'])\.` + name + `($|\W)|(^|\W)in\.` + name + `($|\W)`)
}

// anyKindUse checks the uses of one target.
type anyKindUse struct {
	*Findings
	target string
	named  *regexp.Regexp
}

// refuseReading refuses an expression that reads the target as a whole.
func (u anyKindUse) refuseReading(expression string, p *field.Path) {
	if u.named.MatchString(expression) {
		u.addError(p, fmt.Sprintf("reads target %q, of kind \"*\", and kinds may be missing from it: read item in a rule with forEach: %s.items, or use a target of one kind", u.target, u.target))
	}
}

func (u anyKindUse) refuseInVariables(all []v1alpha1.Variable, p *field.Path) {
	for i := range all {
		u.refuseReading(all[i].Expression, p.Index(i).Child("expression"))
	}
}

// checkRule checks a rule: about the target if its forEach is all objects of it, and otherwise without it.
func (u anyKindUse) checkRule(spec *v1alpha1.Work, r *v1alpha1.Rule, target int, p *field.Path) {
	own := false
	if at, ok := findWholeTarget(spec, r.ForEach); ok && at == target {
		own = true
	} else if u.named.MatchString(r.ForEach) {
		u.addError(p.Child("forEach"), fmt.Sprintf("must be %s.items alone, because target %q is of kind \"*\": write the rest into when", u.target, u.target))
	}
	for _, e := range listRuleExpressions(r) {
		u.refuseReading(e.text, p.Child(e.field))
	}
	u.refuseInVariables(r.Variables, p.Child("variables"))
	for i := range r.Confirm {
		if r.Confirm[i].Target == u.target {
			u.addError(p.Child("confirm").Index(i).Child("target"), fmt.Sprintf("is %q, of kind \"*\", whose items need no confirmation: remove the entry", u.target))
		}
	}
	if own {
		u.checkOwnRule(r, p)
	}
}

// checkOwnRule checks a rule about the objects of the target.
func (u anyKindUse) checkOwnRule(r *v1alpha1.Rule, p *field.Path) {
	if r.GroupBy != "" || r.Keep != nil || r.Leave != nil || r.Key != "" || r.ForKey != "" {
		u.addError(p, fmt.Sprintf("decides on each item of target %q by itself, because it is of kind \"*\", and kinds may be missing from it: remove groupBy, keep, leave, key and forKey, or use a target of one kind", u.target))
	}
	for i := range r.Actions {
		if a := &r.Actions[i]; a.Object != "" || a.Delete == nil && a.Report == nil {
			u.addError(p.Child("actions").Index(i), fmt.Sprintf("must be delete or report of the item itself, because target %q is of kind \"*\": use a target of one kind for others", u.target))
		}
	}
}

// ruleExpression is an expression of a rule, and the field that has it.
type ruleExpression struct{ field, text string }

// listRuleExpressions lists the expressions of a rule besides forEach and its variables.
func listRuleExpressions(r *v1alpha1.Rule) []ruleExpression {
	all := []ruleExpression{{"when", r.When}, {"for", r.For}, {"forKey", r.ForKey}, {"groupBy", r.GroupBy}, {"unless", r.Unless}, {"key", r.Key}, {"reason", r.Reason}}
	for i := range r.OrderBy {
		all = append(all, ruleExpression{"orderBy", r.OrderBy[i].Expression})
	}
	if r.Keep != nil {
		all = append(all, ruleExpression{"keep", r.Keep.StrVal})
	}
	if r.Leave != nil {
		all = append(all, ruleExpression{"leave", r.Leave.StrVal})
	}
	for i := range r.Confirm {
		all = append(all, ruleExpression{"confirm", r.Confirm[i].Name}, ruleExpression{"confirm", r.Confirm[i].Namespace})
	}
	for i := range r.Actions {
		a := &r.Actions[i]
		all = append(all, ruleExpression{"actions", a.When}, ruleExpression{"actions", a.Object})
		if a.Patch != nil {
			all = append(all, ruleExpression{"actions", a.Patch.Expression})
		}
	}
	return all
}
