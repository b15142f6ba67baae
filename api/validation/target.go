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
	maxNamespaces    = 256
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

// ourWords mean something of ours in expressions.
func ourWords() []string {
	return []string{"time", "params", "variables", "item", "items", "object", "key"}
}

func (f *Findings) targets(spec *v1alpha1.Work, p *field.Path, o Options) {
	targets := spec.Targets
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
		k := o.kindOf(spec, i)
		if len(o.Served) > i {
			f.served(spec, &t.Reference, o.Served[i], path.Child("reference", "kind"))
		}
		f.namespaces(spec, &t.Reference, k, path.Child("reference"), o)
		f.deletion(spec, t, k, path.Child("delete"), o)
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
	f.selector(&metav1.LabelSelector{MatchLabels: r.MatchLabels, MatchExpressions: r.MatchExpressions}, p)
	f.fieldSelector(r.FieldSelector, p.Child("fieldSelector"))
}

// selector looks at a label selector, whose fields lie at p.
func (f *Findings) selector(s *metav1.LabelSelector, p *field.Path) {
	if len(s.MatchLabels) > maxLabels {
		f.refuse(p.Child("matchLabels"), fmt.Sprintf("are %d; at most %d are allowed", len(s.MatchLabels), maxLabels))
	}
	if len(s.MatchExpressions) > maxLabels {
		f.refuse(p.Child("matchExpressions"), fmt.Sprintf("are %d; at most %d are allowed", len(s.MatchExpressions), maxLabels))
	}
	operators := []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
	}
	for i, e := range s.MatchExpressions {
		if !slices.Contains(operators, e.Operator) {
			f.refuse(p.Child("matchExpressions").Index(i).Child("operator"), fmt.Sprintf("%q is no operator: write In, NotIn, Exists or DoesNotExist", e.Operator))
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
func (f *Findings) served(spec *v1alpha1.Work, r *v1alpha1.ClusterReference, s Served, p *field.Path) {
	if s.Resource == "" {
		gv := schema.GroupVersion{Group: r.APIGroup, Version: r.Version}
		f.warn(p, fmt.Sprintf("the API server does not serve kind %q of %s, and the %s waits until it does: check apiGroup, version and kind, as kubectl api-resources shows them", r.Kind, gv, noun(spec)))
	}
}

// deletion says whether the target may be deleted at all, as far as its kind and its reference tell.
func (f *Findings) deletion(spec *v1alpha1.Work, t *v1alpha1.ClusterTarget, k kind, p *field.Path, o Options) {
	if !t.Delete {
		return
	}
	r := &t.Reference
	if r.Name == "" && r.MatchLabels == nil && len(r.MatchExpressions) == 0 && r.FieldSelector == "" {
		f.refuse(p, "delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind")
	}
	switch because := o.undeletable(spec, k); {
	case because != "":
		f.refuse(p, "must be false: "+because)
	case k.name() == "secrets" && strings.HasPrefix(r.Name, releaseSecretPrefix):
		f.refuse(p, "must be false: this Secret is the record of a Helm release; to uninstall the release, write helm: {release: NAME, delete: true}")
	case !spec.IncludeProtected && slices.Contains(protectedNamespaces(), r.Namespace):
		f.warn(p, fmt.Sprintf("nothing is deleted in namespace %s, which is protected: add includeProtected: true if it is meant", r.Namespace))
	}
}

// protectedNamespaces are those of every cluster. Operators protect more.
func protectedNamespaces() []string {
	return []string{metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease"}
}

// undeletable says why objects of a kind can never be deleted. Empty if they can, or if nothing is known of the kind.
func (o *Options) undeletable(spec *v1alpha1.Work, k kind) string {
	switch {
	case k.clusterScoped && !spec.Cluster:
		return k.outOfReach("deletes")
	case k.group == v1alpha1.GroupVersion.Group:
		return k.untouchable()
	case k.protected && !slices.Contains(o.AllowProtectedKinds, k.name()):
		return fmt.Sprintf("%s are protected unless the operator runs with --allow-protected-kinds=%s", k.name(), k.name())
	}
	return ""
}

// untouchable says why nothing is ever done to our own kinds: the API server would ask what the operator may do, and not
// what the author may.
func (k kind) untouchable() string {
	return fmt.Sprintf("%s are never touched by a Cleaner", k.name())
}

// outOfReach says why a Cleaner cannot act on what is cluster-scoped.
func (k kind) outOfReach(does string) string {
	return fmt.Sprintf("%s are cluster-scoped, and a Cleaner %s in its own namespace only", k.name(), does)
}

// namespaces looks at the part of a reference that only ClusterCleaners have.
func (f *Findings) namespaces(spec *v1alpha1.Work, r *v1alpha1.ClusterReference, k kind, p *field.Path, o Options) {
	chosen := r.Namespaces != nil || r.NamespaceSelector != nil || r.ExcludeNamespaces != nil
	switch {
	case !spec.Cluster && (chosen || r.Namespace != ""):
		f.refuse(p, "chooses namespaces, and a Cleaner sees its own only: write a ClusterCleaner, or remove namespace, namespaces, namespaceSelector and excludeNamespaces")
		return
	case r.Name == "" && r.Namespace != "":
		f.refuse(p, "namespace requires name: add name, or use namespaces: [...]")
	case r.Name != "" && chosen:
		f.refuse(p, "an object of a given name lives in one namespace: write namespace instead of namespaces, namespaceSelector and excludeNamespaces")
	case k.clusterScoped && (chosen || r.Namespace != ""):
		f.refuse(p, fmt.Sprintf("chooses namespaces, and %s are cluster-scoped: remove namespace, namespaces, namespaceSelector and excludeNamespaces", k.name()))
	case spec.Cluster && !o.unused && r.Name != "" && r.Namespace == "" && k.resource != "" && !k.clusterScoped:
		f.refuse(p.Child("namespace"), fmt.Sprintf("is missing: %s live in namespaces, so write the one in which the object of this name lives", k.name()))
	}
	f.namespaceNames([]string{r.Namespace}, func(int) *field.Path { return p.Child("namespace") })
	f.namespaceNames(r.Namespaces, p.Child("namespaces").Index)
	f.namespaceNames(r.ExcludeNamespaces, p.Child("excludeNamespaces").Index)
	if len(r.Namespaces) > 0 && !slices.ContainsFunc(r.Namespaces, func(n string) bool { return !slices.Contains(r.ExcludeNamespaces, n) }) {
		f.refuse(p.Child("namespaces"), "are all in excludeNamespaces too, so nothing is left: remove them from one of the two")
	}
	if r.NamespaceSelector != nil {
		f.selector(r.NamespaceSelector, p.Child("namespaceSelector"))
	}
}

func (f *Findings) namespaceNames(names []string, at func(int) *field.Path) {
	if len(names) > maxNamespaces {
		f.refuse(at(maxNamespaces), fmt.Sprintf("is one too many: at most %d are allowed; choose them by namespaceSelector", maxNamespaces))
		return
	}
	for i, name := range names {
		if name != "" && (len(name) > maxTargetName || !version.MatchString(name)) {
			f.refuse(at(i), fmt.Sprintf("%q is not the name of a namespace: write one as kubectl get namespaces shows them", name))
		}
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
