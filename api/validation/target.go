// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/protection"
	"github.com/vtex/cleaner/api/v1alpha1"
)

const (
	maxTargetName    = 63
	maxObjectName    = 253
	maxFieldSelector = 1024
	maxLabels        = 64
	// maxLabelValues bounds the values of a selector's expressions, because each object is compared with all of them.
	maxLabelValues = 1000
	maxNamespaces  = 256
)

var (
	identifier = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	groupName  = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`)
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	kindName   = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`)
)

// reservedWords returns the reserved words of CEL.
func reservedWords() []string {
	return []string{
		"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
		"namespace", "null", "package", "return", "true", "var", "void", "while",
	}
}

// declaredNames returns the names that Cleaner declares in expressions.
func declaredNames() []string {
	return []string{"time", "params", "variables", "item", "items", "object", "key"}
}

func checkTargets(f *Findings, spec *v1alpha1.Work, p *field.Path, o Options) {
	targets := spec.Targets
	if len(targets) > maxTargets {
		f.addError(p, fmt.Sprintf("has %d entries; at most %d are allowed: select several objects with one target, or write another Cleaner", len(targets), maxTargets))
	}
	first := map[string]int{}
	for i := range targets {
		t, path := &targets[i], p.Index(i)
		checkTargetName(f, t.Name, path.Child("name"))
		if j, ok := first[t.Name]; ok && t.Name != "" {
			f.addError(path.Child("name"), fmt.Sprintf("%q is also the name of %s: rename one of them", t.Name, p.Index(j)))
		} else {
			first[t.Name] = i
		}
		reference := path.Child("reference")
		switch {
		case t.IsOfReleases():
			reference = path.Child("helmReleases")
			checkReleases(f, t, path)
		case reflect.ValueOf(t.Reference).IsZero():
			f.addError(path, "needs exactly one of reference and helmReleases: write reference: {version: v1, kind: Pod} for objects of a kind, or helmReleases: {} for Helm releases")
			continue
		}
		checkReference(f, &t.Reference, reference)
		k := o.findTargetKind(spec, i)
		if len(o.Served) > i {
			checkServed(f, spec, t, o.Served[i], path.Child("reference", "kind"))
		}
		checkNamespaces(f, spec, &t.Reference, k, reference, o)
		checkDeletion(f, spec, t, k, path.Child("delete"), o)
		checkOnMissing(f, t, path.Child("onMissing"))
	}
}

func checkTargetName(f *Findings, name string, p *field.Path) {
	switch {
	case name == "":
		f.addError(p, "must not be empty: write the name by which expressions read the target, such as pods")
	case len(name) > maxTargetName:
		f.addError(p, fmt.Sprintf("is longer than the %d characters that are allowed", maxTargetName))
	case !identifier.MatchString(name):
		f.addError(p, fmt.Sprintf("%q is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as %s", name, suggestIdentifier(name)))
	case slices.Contains(reservedWords(), name):
		f.addError(p, fmt.Sprintf("%q is a reserved word of CEL: choose another name", name))
	case slices.Contains(declaredNames(), name):
		f.addError(p, fmt.Sprintf("%q is a built-in name of expressions: choose another name", name))
	}
}

// suggestIdentifier returns an identifier that resembles a name.
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
	if v1alpha1.ListsByRequester(r.APIGroup) {
		f.addError(p.Child("apiGroup"), fmt.Sprintf("the API server of %s lists only what the requesting user may see, and would list everything to the operator: select kind Namespace of version v1 instead, without apiGroup", r.APIGroup))
	}
	if r.Kind == v1alpha1.AnyKind {
		checkAnyKind(f, r, p)
		return
	}
	checkOneKind(f, r, p)
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

// checkLabelSelector checks a label selector whose fields are at p.
func checkLabelSelector(f *Findings, s *metav1.LabelSelector, p *field.Path) {
	if len(s.MatchLabels) > maxLabels {
		f.addError(p.Child("matchLabels"), fmt.Sprintf("has %d entries; at most %d are allowed", len(s.MatchLabels), maxLabels))
	}
	if len(s.MatchExpressions) > maxLabels {
		f.addError(p.Child("matchExpressions"), fmt.Sprintf("has %d entries; at most %d are allowed", len(s.MatchExpressions), maxLabels))
	}
	values := 0
	for i, e := range s.MatchExpressions {
		if values += len(e.Values); values > maxLabelValues {
			f.addError(p.Child("matchExpressions").Index(i).Child("values"), fmt.Sprintf("raises the number of values of the selector to %d; at most %d are allowed: give the objects a label that they share", values, maxLabelValues))
			return
		}
	}
	operators := []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
	}
	for i, e := range s.MatchExpressions {
		if !slices.Contains(operators, e.Operator) {
			f.addError(p.Child("matchExpressions").Index(i).Child("operator"), fmt.Sprintf("%q is not an operator: write In, NotIn, Exists or DoesNotExist", e.Operator))
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
	// An empty selector would match everything, although the author meant something narrower.
	if err != nil || selector.Empty() || slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool { return r.Field == "" }) {
		f.addError(p, fmt.Sprintf("%q is not a field selector: write one such as status.phase=Failed or status.phase!=Running,spec.nodeName=a", text))
	}
}

// checkServed warns if the kind is not served: the target waits until it is, or is null until then.
func checkServed(f *Findings, spec *v1alpha1.Work, t *v1alpha1.ClusterTarget, s ServedKind, p *field.Path) {
	if s.Resource != "" || t.IsOfAnyKind() {
		return
	}
	gv, until := schema.GroupVersion{Group: t.Reference.APIGroup, Version: t.Reference.Version}, fmt.Sprintf("and the %s waits until it does", ownerKind(spec))
	if t.IsIncluded() && t.OnMissing == v1alpha1.OnMissingAsNull {
		until = fmt.Sprintf("and %s is null until it does", t.Name)
	}
	f.addWarning(p, fmt.Sprintf("the API server does not serve kind %q of %s, %s: check apiGroup, version and kind with kubectl api-resources", t.Reference.Kind, gv, until))
}

// checkDeletion checks whether the objects of a target may be deleted, as far as its kind and reference tell.
func checkDeletion(f *Findings, spec *v1alpha1.Work, t *v1alpha1.ClusterTarget, k kindInfo, p *field.Path, o Options) {
	if t.IsOfAnyKind() && (t.Delete || !t.IsIncluded()) {
		f.addError(p, "only rules act on the objects of kind \"*\": remove delete and includeWhenEvaluating, and write a rule with forEach: "+t.Name+".items and actions: [{delete: {}}]")
		return
	}
	if !t.Delete || t.IsOfReleases() {
		return
	}
	r := &t.Reference
	if r.Name == "" && r.MatchLabels == nil && len(r.MatchExpressions) == 0 && r.FieldSelector == "" {
		f.addError(p, "delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind")
	}
	switch because := o.explainUndeletable(spec, k); {
	case because != "":
		f.addError(p, "must be false: "+because)
	case k.resourceName() == "secrets" && strings.HasPrefix(r.Name, v1alpha1.ReleaseSecretPrefix):
		f.addError(p, "must be false: this Secret is the record of a Helm release; to uninstall the release, write helm: {release: NAME, delete: true}")
	case !spec.IncludeProtected && slices.Contains(protection.ProtectedNamespaces(), r.Namespace):
		f.addWarning(p, fmt.Sprintf("nothing is deleted in namespace %s, which is protected: add includeProtected: true if you want that", r.Namespace))
	}
}

// explainUndeletable returns why objects of a kind can never be deleted; empty if they can, or if the kind is unknown.
func (o *Options) explainUndeletable(spec *v1alpha1.Work, k kindInfo) string {
	switch {
	case k.clusterScoped && !spec.Cluster:
		return k.explainOutOfReach("deletes")
	case k.group == v1alpha1.GroupVersion.Group:
		return k.explainUntouchable()
	case k.isProtected() && !slices.Contains(o.AllowProtectedKinds, k.resourceName()):
		return protection.DescribeProtected(k.groupResource())
	}
	return ""
}

// explainUntouchable returns the message that no Cleaner acts on the operator's own kinds: the API server would check the rights of
// the operator, and not those of the author.
func (k kindInfo) explainUntouchable() string {
	return fmt.Sprintf("%s are never touched by a Cleaner", k.resourceName())
}

// explainOutOfReach returns why a Cleaner cannot act on objects of a cluster-scoped kind.
func (k kindInfo) explainOutOfReach(does string) string {
	return fmt.Sprintf("%s are cluster-scoped, and a Cleaner %s only in its own namespace", k.resourceName(), does)
}

// checkNamespaces checks the fields of a reference that only ClusterCleaners have.
func checkNamespaces(f *Findings, spec *v1alpha1.Work, r *v1alpha1.ClusterReference, k kindInfo, p *field.Path, o Options) {
	chosen := r.Namespaces != nil || r.NamespaceSelector != nil || r.ExcludeNamespaces != nil
	if !spec.Cluster {
		if chosen || r.Namespace != "" {
			f.addError(p, "selects namespaces, but a Cleaner can read only its own: write a ClusterCleaner, or remove namespace, namespaces, namespaceSelector and excludeNamespaces")
			return
		}
	} else {
		checkNamespaceScope(f, r, chosen, k, p, o)
	}
	checkNamespaceNames(f, []string{r.Namespace}, func(int) *field.Path { return p.Child("namespace") })
	checkNamespaceNames(f, r.Namespaces, p.Child("namespaces").Index)
	checkNamespaceNames(f, r.ExcludeNamespaces, p.Child("excludeNamespaces").Index)
	if len(r.Namespaces) > 0 && !slices.ContainsFunc(r.Namespaces, func(n string) bool { return !slices.Contains(r.ExcludeNamespaces, n) }) {
		f.addError(p.Child("namespaces"), "are all in excludeNamespaces too, so the target selects nothing: remove some of them from one of the two")
	}
	if r.NamespaceSelector != nil {
		checkLabelSelector(f, r.NamespaceSelector, p.Child("namespaceSelector"))
	}
}

// checkNamespaceScope checks that the namespaces of a ClusterCleaner's target fit its kind and name.
func checkNamespaceScope(f *Findings, r *v1alpha1.ClusterReference, chosen bool, k kindInfo, p *field.Path, o Options) {
	switch {
	case r.Name == "" && r.Namespace != "":
		f.addError(p, "namespace requires name: add name, or use namespaces: [...]")
	case r.Name != "" && chosen:
		f.addError(p, "a reference with a name selects one object: write namespace instead of namespaces, namespaceSelector and excludeNamespaces")
	case k.clusterScoped && (chosen || r.Namespace != ""):
		f.addError(p, fmt.Sprintf("selects namespaces, but %s are cluster-scoped: remove namespace, namespaces, namespaceSelector and excludeNamespaces", k.resourceName()))
	case !o.isTemplate && r.Name != "" && r.Namespace == "" && k.resource != "" && !k.clusterScoped:
		f.addError(p.Child("namespace"), fmt.Sprintf("is missing: %s are namespaced, so write the namespace of the object", k.resourceName()))
	}
}

func checkNamespaceNames(f *Findings, names []string, at func(int) *field.Path) {
	if len(names) > maxNamespaces {
		f.addError(at(maxNamespaces), fmt.Sprintf("is one too many: at most %d are allowed; select them with namespaceSelector", maxNamespaces))
		return
	}
	for i, name := range names {
		if name != "" && (len(name) > maxTargetName || !dnsLabel.MatchString(name)) {
			f.addError(at(i), fmt.Sprintf("%q is not the name of a namespace: write one that kubectl get namespaces shows", name))
		}
	}
}

func checkOnMissing(f *Findings, t *v1alpha1.ClusterTarget, p *field.Path) {
	switch t.OnMissing {
	case "":
	case v1alpha1.OnMissingWait, v1alpha1.OnMissingAsNull:
		if !t.IsIncluded() {
			f.addWarning(p, "has no effect with includeWhenEvaluating: false, because expressions cannot read the target: remove one of the two")
		}
	default:
		f.addError(p, fmt.Sprintf("%q is not valid: write Wait or AsNull", t.OnMissing))
	}
}
