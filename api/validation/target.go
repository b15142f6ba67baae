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

	"github.com/vtex/cleaner/api/facts"
	"github.com/vtex/cleaner/api/v1alpha1"
)

// releaseSecretPrefix begins the name of each Secret in which Helm records a revision of a release.
const releaseSecretPrefix = "sh.helm.release.v1."

const (
	maxTargetName    = 63
	maxObjectName    = 253
	maxFieldSelector = 1024
	maxLabels        = 64
	// maxLabelValues is how many values the expressions of a selector may have: each object is compared with them.
	maxLabelValues = 1000
	maxNamespaces  = 256
)

var (
	identifier = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	groupName  = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`)
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	kindName   = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`)
)

// reservedWords are reserved in CEL.
func reservedWords() []string {
	return []string{
		"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
		"namespace", "null", "package", "return", "true", "var", "void", "while",
	}
}

// declaredNames mean something of ours in expressions.
func declaredNames() []string {
	return []string{"time", "params", "variables", "item", "items", "object", "key"}
}

func checkTargets(f *Findings, spec *v1alpha1.Work, p *field.Path, o Options) {
	targets := spec.Targets
	if len(targets) > maxTargets {
		f.addError(p, fmt.Sprintf("are %d; at most %d are allowed: join some by label, or write another Cleaner", len(targets), maxTargets))
	}
	first := map[string]int{}
	for i := range targets {
		t, path := &targets[i], p.Index(i)
		checkTargetName(f, t.Name, path.Child("name"))
		if j, ok := first[t.Name]; ok && t.Name != "" {
			f.addError(path.Child("name"), fmt.Sprintf("%q is the name of %s too: give each target a name of its own", t.Name, p.Index(j)))
		} else {
			first[t.Name] = i
		}
		checkReference(f, &t.Reference, path.Child("reference"))
		k := o.findTargetKind(spec, i)
		if len(o.Served) > i {
			checkServed(f, spec, &t.Reference, o.Served[i], path.Child("reference", "kind"))
		}
		checkNamespaces(f, spec, &t.Reference, k, path.Child("reference"), o)
		checkDeletion(f, spec, t, k, path.Child("delete"), o)
		checkOnMissing(f, t, path.Child("onMissing"))
	}
}

func checkTargetName(f *Findings, name string, p *field.Path) {
	switch {
	case name == "":
		f.addError(p, "must not be empty: write the name under which expressions see the target, such as pods")
	case len(name) > maxTargetName:
		f.addError(p, fmt.Sprintf("is longer than the %d characters that are allowed", maxTargetName))
	case !identifier.MatchString(name):
		f.addError(p, fmt.Sprintf("%q is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as %s", name, suggestIdentifier(name)))
	case slices.Contains(reservedWords(), name):
		f.addError(p, fmt.Sprintf("%q is a reserved word of CEL: choose another name", name))
	case slices.Contains(declaredNames(), name):
		f.addError(p, fmt.Sprintf("%q means something else in expressions: choose another name", name))
	}
}

// suggestIdentifier makes an identifier of a name.
func suggestIdentifier(name string) string {
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

func checkReference(f *Findings, r *v1alpha1.ClusterReference, p *field.Path) {
	if !groupName.MatchString(r.APIGroup) || len(r.APIGroup) > maxObjectName {
		f.addError(p.Child("apiGroup"), fmt.Sprintf("%q is not an API group: write the group alone, such as apps or serving.knative.dev, and the version in version", r.APIGroup))
	}
	if !dnsLabel.MatchString(r.Version) {
		f.addError(p.Child("version"), fmt.Sprintf("%q is not an API version: write the version alone, such as v1, and the group in apiGroup", r.Version))
	}
	if !kindName.MatchString(r.Kind) {
		f.addError(p.Child("kind"), fmt.Sprintf("%q is not a kind: write one kind alone, such as Pod, and its group and version in apiGroup and version", r.Kind))
	}
	if r.Name == "." || r.Name == ".." || strings.ContainsAny(r.Name, "/%") || len(r.Name) > maxObjectName {
		f.addError(p.Child("name"), fmt.Sprintf("%q is not the name of one object: write its metadata.name, without namespace or resource", r.Name))
	}
	if r.Name != "" && (r.MatchLabels != nil || len(r.MatchExpressions) > 0) {
		f.addError(p, "a name and label selectors exclude each other: remove name, or matchLabels and matchExpressions")
	}
	checkLabelSelector(f, &metav1.LabelSelector{MatchLabels: r.MatchLabels, MatchExpressions: r.MatchExpressions}, p)
	checkFieldSelector(f, r.FieldSelector, p.Child("fieldSelector"))
}

// checkLabelSelector looks at a label selector, whose fields lie at p.
func checkLabelSelector(f *Findings, s *metav1.LabelSelector, p *field.Path) {
	if len(s.MatchLabels) > maxLabels {
		f.addError(p.Child("matchLabels"), fmt.Sprintf("are %d; at most %d are allowed", len(s.MatchLabels), maxLabels))
	}
	if len(s.MatchExpressions) > maxLabels {
		f.addError(p.Child("matchExpressions"), fmt.Sprintf("are %d; at most %d are allowed", len(s.MatchExpressions), maxLabels))
	}
	values := 0
	for i, e := range s.MatchExpressions {
		if values += len(e.Values); values > maxLabelValues {
			f.addError(p.Child("matchExpressions").Index(i).Child("values"), fmt.Sprintf("brings the values of the selector to %d; at most %d are allowed: give the objects a label that they share", values, maxLabelValues))
			return
		}
	}
	operators := []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
	}
	for i, e := range s.MatchExpressions {
		if !slices.Contains(operators, e.Operator) {
			f.addError(p.Child("matchExpressions").Index(i).Child("operator"), fmt.Sprintf("%q is no operator: write In, NotIn, Exists or DoesNotExist", e.Operator))
		}
	}
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, p)
	slices.SortStableFunc(errs, func(a, b *field.Error) int { // labels come in the order of a map
		return cmp.Compare(a.Error(), b.Error())
	})
	for _, err := range errs {
		*f = append(*f, Finding{Path: err.Field, Message: err.ErrorBody(), Severity: Error})
	}
}

func checkFieldSelector(f *Findings, text string, p *field.Path) {
	if text == "" {
		return
	}
	if len(text) > maxFieldSelector {
		f.addError(p, fmt.Sprintf("is longer than the %d characters that are allowed", maxFieldSelector))
		return
	}
	selector, err := fields.ParseSelector(text)
	// An empty selector would match everything, where something narrower was meant.
	if err != nil || selector.Empty() || slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool { return r.Field == "" }) {
		f.addError(p, fmt.Sprintf("%q is not a field selector: write one such as status.phase=Failed or status.phase!=Running,spec.nodeName=a", text))
	}
}

// checkServed says that nothing will happen before the kind is served.
func checkServed(f *Findings, spec *v1alpha1.Work, r *v1alpha1.ClusterReference, s ServedKind, p *field.Path) {
	if s.Resource == "" {
		gv := schema.GroupVersion{Group: r.APIGroup, Version: r.Version}
		f.addWarning(p, fmt.Sprintf("the API server does not serve kind %q of %s, and the %s waits until it does: check apiGroup, version and kind, as kubectl api-resources shows them", r.Kind, gv, ownerKind(spec)))
	}
}

// checkDeletion says whether the target may be deleted at all, as far as its kind and its reference tell.
func checkDeletion(f *Findings, spec *v1alpha1.Work, t *v1alpha1.ClusterTarget, k kindInfo, p *field.Path, o Options) {
	if !t.Delete {
		return
	}
	r := &t.Reference
	if r.Name == "" && r.MatchLabels == nil && len(r.MatchExpressions) == 0 && r.FieldSelector == "" {
		f.addError(p, "delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind")
	}
	switch because := o.explainUndeletable(spec, k); {
	case because != "":
		f.addError(p, "must be false: "+because)
	case k.resourceName() == "secrets" && strings.HasPrefix(r.Name, releaseSecretPrefix):
		f.addError(p, "must be false: this Secret is the record of a Helm release; to uninstall the release, write helm: {release: NAME, delete: true}")
	case !spec.IncludeProtected && slices.Contains(facts.ProtectedNamespaces(), r.Namespace):
		f.addWarning(p, fmt.Sprintf("nothing is deleted in namespace %s, which is protected: add includeProtected: true if it is meant", r.Namespace))
	}
}

// explainUndeletable says why objects of a kind can never be deleted. Empty if they can, or if nothing is known of the kind.
func (o *Options) explainUndeletable(spec *v1alpha1.Work, k kindInfo) string {
	switch {
	case k.clusterScoped && !spec.Cluster:
		return k.explainOutOfReach("deletes")
	case k.group == v1alpha1.GroupVersion.Group:
		return k.explainUntouchable()
	case k.isProtected() && !slices.Contains(o.AllowProtectedKinds, k.resourceName()):
		return fmt.Sprintf("%s are protected unless the operator runs with --allow-protected-kinds=%s", k.resourceName(), k.resourceName())
	}
	return ""
}

// explainUntouchable says why nothing is ever done to our own kinds: the API server would ask what the operator may do, and not
// what the author may.
func (k kindInfo) explainUntouchable() string {
	return fmt.Sprintf("%s are never touched by a Cleaner", k.resourceName())
}

// explainOutOfReach says why a Cleaner cannot act on what is cluster-scoped.
func (k kindInfo) explainOutOfReach(does string) string {
	return fmt.Sprintf("%s are cluster-scoped, and a Cleaner %s in its own namespace only", k.resourceName(), does)
}

// checkNamespaces looks at the part of a reference that only ClusterCleaners have.
func checkNamespaces(f *Findings, spec *v1alpha1.Work, r *v1alpha1.ClusterReference, k kindInfo, p *field.Path, o Options) {
	chosen := r.Namespaces != nil || r.NamespaceSelector != nil || r.ExcludeNamespaces != nil
	if !spec.Cluster {
		if chosen || r.Namespace != "" {
			f.addError(p, "chooses namespaces, and a Cleaner sees its own only: write a ClusterCleaner, or remove namespace, namespaces, namespaceSelector and excludeNamespaces")
			return
		}
	} else {
		checkNamespaceScope(f, r, chosen, k, p, o)
	}
	checkNamespaceNames(f, []string{r.Namespace}, func(int) *field.Path { return p.Child("namespace") })
	checkNamespaceNames(f, r.Namespaces, p.Child("namespaces").Index)
	checkNamespaceNames(f, r.ExcludeNamespaces, p.Child("excludeNamespaces").Index)
	if len(r.Namespaces) > 0 && !slices.ContainsFunc(r.Namespaces, func(n string) bool { return !slices.Contains(r.ExcludeNamespaces, n) }) {
		f.addError(p.Child("namespaces"), "are all in excludeNamespaces too, so nothing is left: remove them from one of the two")
	}
	if r.NamespaceSelector != nil {
		checkLabelSelector(f, r.NamespaceSelector, p.Child("namespaceSelector"))
	}
}

// checkNamespaceScope looks at whether the namespaces of a ClusterCleaner's target fit its kind and its name.
func checkNamespaceScope(f *Findings, r *v1alpha1.ClusterReference, chosen bool, k kindInfo, p *field.Path, o Options) {
	switch {
	case r.Name == "" && r.Namespace != "":
		f.addError(p, "namespace requires name: add name, or use namespaces: [...]")
	case r.Name != "" && chosen:
		f.addError(p, "an object of a given name lives in one namespace: write namespace instead of namespaces, namespaceSelector and excludeNamespaces")
	case k.clusterScoped && (chosen || r.Namespace != ""):
		f.addError(p, fmt.Sprintf("chooses namespaces, and %s are cluster-scoped: remove namespace, namespaces, namespaceSelector and excludeNamespaces", k.resourceName()))
	case !o.isTemplate && r.Name != "" && r.Namespace == "" && k.resource != "" && !k.clusterScoped:
		f.addError(p.Child("namespace"), fmt.Sprintf("is missing: %s live in namespaces, so write the one in which the object of this name lives", k.resourceName()))
	}
}

func checkNamespaceNames(f *Findings, names []string, at func(int) *field.Path) {
	if len(names) > maxNamespaces {
		f.addError(at(maxNamespaces), fmt.Sprintf("is one too many: at most %d are allowed; choose them by namespaceSelector", maxNamespaces))
		return
	}
	for i, name := range names {
		if name != "" && (len(name) > maxTargetName || !dnsLabel.MatchString(name)) {
			f.addError(at(i), fmt.Sprintf("%q is not the name of a namespace: write one as kubectl get namespaces shows them", name))
		}
	}
}

func checkOnMissing(f *Findings, t *v1alpha1.ClusterTarget, p *field.Path) {
	switch t.OnMissing {
	case "":
	case v1alpha1.OnMissingWait, v1alpha1.OnMissingAsNull:
		if !t.Included() {
			f.addWarning(p, "has no effect: with includeWhenEvaluating: false no expression sees the target, and nothing waits for it")
		}
	default:
		f.addError(p, fmt.Sprintf("%q is no answer: write Wait or AsNull", t.OnMissing))
	}
}
