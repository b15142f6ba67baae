// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// releaseSecretPrefix begins the name of each Secret in which Helm records a revision of a release.
const releaseSecretPrefix = "sh.helm.release.v1."

const (
	maxTargetName    = 63
	maxObjectName    = 253
	maxFieldSelector = 1024
	maxLabels        = 64
)

var (
	identifier = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	groupName  = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`)
	version    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	kindName   = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`)
)

// celWords are reserved in CEL.
func celWords() []string {
	return []string{
		"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
		"namespace", "null", "package", "return", "true", "var", "void", "while",
	}
}

// ourWords mean something of ours in expressions, now or in what is planned.
func ourWords() []string {
	return []string{"time", "params", "variables", "item", "items", "object", "key"}
}

func (f *Findings) targets(targets []v1alpha1.ClusterTarget, p *field.Path, o Options) {
	if len(targets) > maxTargets {
		f.refuse(p, fmt.Sprintf("are %d; at most %d are allowed: join some by label, or write another Cleaner", len(targets), maxTargets))
	}
	first := map[string]int{}
	for i := range targets {
		t, path := &targets[i], p.Index(i)
		f.targetName(t.Name, path.Child("name"))
		if j, ok := first[t.Name]; ok && t.Name != "" {
			f.refuse(path.Child("name"), fmt.Sprintf("%q is the name of %s too: give each target a name of its own", t.Name, p.Index(j)))
		} else {
			first[t.Name] = i
		}
		f.reference(&t.Reference, path.Child("reference"))
		k := kindOf(t.Reference.APIGroup, t.Reference.Kind)
		if len(o.Served) > i {
			f.served(&t.Reference, o.Served[i], path.Child("reference", "kind"))
			k = k.as(t.Reference.APIGroup, o.Served[i])
		}
		f.deletion(t, k, path.Child("delete"), o)
		f.missing(t, path.Child("onMissing"))
	}
}

func (f *Findings) targetName(name string, p *field.Path) {
	switch {
	case name == "":
		f.refuse(p, "must not be empty: write the name under which expressions see the target, such as pods")
	case len(name) > maxTargetName:
		f.refuse(p, fmt.Sprintf("is longer than the %d characters that are allowed", maxTargetName))
	case !identifier.MatchString(name):
		f.refuse(p, fmt.Sprintf("%q is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as %s", name, identifierLike(name)))
	case slices.Contains(celWords(), name):
		f.refuse(p, fmt.Sprintf("%q is a reserved word of CEL: choose another name", name))
	case slices.Contains(ourWords(), name):
		f.refuse(p, fmt.Sprintf("%q means something else in expressions: choose another name", name))
	}
}

// identifierLike makes an identifier of a name.
func identifierLike(name string) string {
	like := strings.Map(func(r rune) rune {
		if identifier.MatchString("_" + string(r)) {
			return r
		}
		return '_'
	}, name)
	if !identifier.MatchString(like) {
		return "_" + like
	}
	return like
}

func (f *Findings) reference(r *v1alpha1.ClusterReference, p *field.Path) {
	if !groupName.MatchString(r.APIGroup) || len(r.APIGroup) > maxObjectName {
		f.refuse(p.Child("apiGroup"), fmt.Sprintf("%q is not an API group: write the group alone, such as apps or serving.knative.dev, and the version in version", r.APIGroup))
	}
	if !version.MatchString(r.Version) {
		f.refuse(p.Child("version"), fmt.Sprintf("%q is not an API version: write the version alone, such as v1, and the group in apiGroup", r.Version))
	}
	if !kindName.MatchString(r.Kind) {
		f.refuse(p.Child("kind"), fmt.Sprintf("%q is not a kind: write one kind alone, such as Pod, and its group and version in apiGroup and version", r.Kind))
	}
	if r.Name == "." || r.Name == ".." || strings.ContainsAny(r.Name, "/%") || len(r.Name) > maxObjectName {
		f.refuse(p.Child("name"), fmt.Sprintf("%q is not the name of one object: write its metadata.name, without namespace or resource", r.Name))
	}
	if r.Name != "" && (r.MatchLabels != nil || len(r.MatchExpressions) > 0) {
		f.refuse(p, "a name and label selectors exclude each other: remove name, or matchLabels and matchExpressions")
	}
	f.labelSelector(r, p)
	f.fieldSelector(r.FieldSelector, p.Child("fieldSelector"))
}

func (f *Findings) labelSelector(r *v1alpha1.ClusterReference, p *field.Path) {
	if len(r.MatchLabels) > maxLabels {
		f.refuse(p.Child("matchLabels"), fmt.Sprintf("are %d; at most %d are allowed", len(r.MatchLabels), maxLabels))
	}
	if len(r.MatchExpressions) > maxLabels {
		f.refuse(p.Child("matchExpressions"), fmt.Sprintf("are %d; at most %d are allowed", len(r.MatchExpressions), maxLabels))
	}
	operators := []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
	}
	for i, e := range r.MatchExpressions {
		if !slices.Contains(operators, e.Operator) {
			f.refuse(p.Child("matchExpressions").Index(i).Child("operator"), fmt.Sprintf("%q is no operator: write In, NotIn, Exists or DoesNotExist", e.Operator))
		}
	}
	selector := &metav1.LabelSelector{MatchLabels: r.MatchLabels, MatchExpressions: r.MatchExpressions}
	errs := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, p)
	slices.SortStableFunc(errs, func(a, b *field.Error) int { // labels come in the order of a map
		return cmp.Compare(a.Error(), b.Error())
	})
	for _, err := range errs {
		*f = append(*f, Finding{Path: err.Field, Message: err.ErrorBody(), Severity: Error})
	}
}

func (f *Findings) fieldSelector(text string, p *field.Path) {
	if text == "" {
		return
	}
	if len(text) > maxFieldSelector {
		f.refuse(p, fmt.Sprintf("is longer than the %d characters that are allowed", maxFieldSelector))
		return
	}
	selector, err := fields.ParseSelector(text)
	// An empty selector would match everything, where something narrower was meant.
	if err != nil || selector.Empty() || slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool { return r.Field == "" }) {
		f.refuse(p, fmt.Sprintf("%q is not a field selector: write one such as status.phase=Failed or status.phase!=Running,spec.nodeName=a", text))
	}
}

// served says that nothing will happen before the kind is served.
func (f *Findings) served(r *v1alpha1.ClusterReference, s Served, p *field.Path) {
	if s.Resource == "" {
		gv := schema.GroupVersion{Group: r.APIGroup, Version: r.Version}
		f.warn(p, fmt.Sprintf("the API server does not serve kind %q of %s, and the Cleaner waits until it does: check apiGroup, version and kind, as kubectl api-resources shows them", r.Kind, gv))
	}
}

// deletion says whether the target may be deleted at all, as far as its kind and its reference tell.
func (f *Findings) deletion(t *v1alpha1.ClusterTarget, k kind, p *field.Path, o Options) {
	if !t.Delete {
		return
	}
	r := &t.Reference
	if r.Name == "" && r.MatchLabels == nil && len(r.MatchExpressions) == 0 && r.FieldSelector == "" {
		f.refuse(p, "delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind")
	}
	switch {
	case k.clusterScoped:
		f.refuse(p, fmt.Sprintf("must be false: %s are cluster-scoped, and a Cleaner deletes in its own namespace only", k.name()))
	case k.protected && !slices.Contains(o.AllowProtectedKinds, k.name()):
		f.refuse(p, fmt.Sprintf("must be false: %s are protected unless the operator runs with --allow-protected-kinds=%s", k.name(), k.name()))
	case k.name() == "secrets" && strings.HasPrefix(r.Name, releaseSecretPrefix):
		f.refuse(p, "must be false: this Secret is the record of a Helm release; to uninstall the release, write helm: {release: NAME, delete: true}")
	}
}

func (f *Findings) missing(t *v1alpha1.ClusterTarget, p *field.Path) {
	switch t.OnMissing {
	case "":
	case v1alpha1.OnMissingWait, v1alpha1.OnMissingAsNull:
		if !t.Included() {
			f.warn(p, "has no effect: with includeWhenEvaluating: false no expression sees the target, and nothing waits for it")
		}
	default:
		f.refuse(p, fmt.Sprintf("%q is no answer: write Wait or AsNull", t.OnMissing))
	}
}
