// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Work is what a Cleaner or a ClusterCleaner asks for, in the one form in which both are decided and carried out: with
// its template expanded, with references that may say more than those of a Cleaner, and with references to the Secrets of
// Helm releases. It is never stored.
//
// It shares what it is made of, and must not be changed.
type Work struct {
	CommonSpec `json:",inline"`

	// Targets are the objects that expressions see, and those that are deleted.
	Targets []ClusterTarget `json:"targets,omitempty"`
	// Helm is the release that belongs to what is cleaned; nil for a ClusterCleaner.
	Helm *Helm `json:"helm,omitempty"`
	// ServiceAccount is the one that the spec names. Its namespace is empty for a Cleaner's: it is the Cleaner's own. Nil if
	// the spec names none.
	ServiceAccount *ServiceAccountReference `json:"serviceAccount,omitempty"`
	// CloudEventSinkAuth is how events show the sink who has sent them; nil: they do not. Its namespace is empty for a
	// Cleaner's: it is the Cleaner's own.
	CloudEventSinkAuth *ClusterSinkAuth `json:"cloudEventSinkAuth,omitempty"`
	// Durations are the names of the parameters that expressions see as durations, sorted.
	Durations []string `json:"durations,omitempty"`
	// Declared are the names of the parameters that the template has, sorted; nil without a template, where any may be given.
	Declared []string `json:"-"`
	// IncludeProtected says that protected namespaces are acted in too.
	IncludeProtected bool `json:"includeProtected,omitempty"`
	// Cluster says that it is the work of a ClusterCleaner.
	Cluster bool `json:"cluster,omitempty"`
}

// Owner is what Cleaner and ClusterCleaner have in common.
//
// +kubebuilder:object:generate=false
type Owner interface {
	object

	// Work is the spec. A templateRef in it is not expanded.
	Work() *Work
	// Common is the part of the spec that both have.
	Common() *CommonSpec
	// State is the status, which may be changed.
	State() *CleanerStatus
	// DeepCopyOwner is DeepCopyObject with its type.
	DeepCopyOwner() Owner
}

// NewOwner is an empty Cleaner of a namespace, or, with none, a ClusterCleaner.
func NewOwner(namespace string) Owner {
	if namespace == "" {
		return &ClusterCleaner{}
	}
	return &Cleaner{}
}

// object is what Kubernetes knows of each object.
//
// +kubebuilder:object:generate=false
type object interface {
	metav1.Object
	runtime.Object
}

var (
	_ Owner = (*Cleaner)(nil)
	_ Owner = (*ClusterCleaner)(nil)
)

// Work is the spec in the form that Cleaners and ClusterCleaners share.
func (c *Cleaner) Work() *Work { return c.Spec.Work() }

// Common is the part of the spec that ClusterCleaners have too.
func (c *Cleaner) Common() *CommonSpec { return &c.Spec.CommonSpec }

// State is the status.
func (c *Cleaner) State() *CleanerStatus { return &c.Status }

// DeepCopyOwner is DeepCopyObject with its type.
func (c *Cleaner) DeepCopyOwner() Owner { return c.DeepCopy() }

// Work is the spec in the form that Cleaners and ClusterCleaners share.
func (s *CleanerSpec) Work() *Work {
	w := &Work{CommonSpec: s.CommonSpec, Helm: s.Helm}
	if s.ServiceAccountName != "" {
		w.ServiceAccount = &ServiceAccountReference{Name: s.ServiceAccountName}
	}
	if a := s.CloudEventSinkAuth; a != nil {
		w.CloudEventSinkAuth = &ClusterSinkAuth{Type: a.Type, SecretRef: ClusterSecretKeyReference{SecretKeyReference: a.SecretRef}}
	}
	if s.Targets != nil {
		w.Targets = make([]ClusterTarget, len(s.Targets))
	}
	for i := range s.Targets {
		t := &s.Targets[i]
		w.Targets[i] = ClusterTarget{
			Name: t.Name, Reference: ClusterReference{Reference: t.Reference}, Delete: t.Delete,
			IncludeWhenEvaluating: t.IncludeWhenEvaluating, OnMissing: t.OnMissing,
		}
		if t.HelmReleases != nil {
			w.Targets[i].HelmReleases = &ClusterHelmReleases{HelmReleases: *t.HelmReleases}
		}
	}
	w.Targets = ResolveTargets(w.Targets)
	return w
}

// Work is the spec in the form that Cleaners and ClusterCleaners share.
func (c *ClusterCleaner) Work() *Work { return c.Spec.Work() }

// Common is the part of the spec that Cleaners have too.
func (c *ClusterCleaner) Common() *CommonSpec { return &c.Spec.CommonSpec }

// State is the status.
func (c *ClusterCleaner) State() *CleanerStatus { return &c.Status }

// DeepCopyOwner is DeepCopyObject with its type.
func (c *ClusterCleaner) DeepCopyOwner() Owner { return c.DeepCopy() }

// Work is the spec in the form that Cleaners and ClusterCleaners share.
func (s *ClusterCleanerSpec) Work() *Work {
	return &Work{
		CommonSpec: s.CommonSpec, Targets: ResolveTargets(s.Targets), ServiceAccount: s.ServiceAccount, IncludeProtected: s.IncludeProtected,
		CloudEventSinkAuth: s.CloudEventSinkAuth, Cluster: true,
	}
}

// KindOf is the kind of an Owner, which it knows even where its TypeMeta is empty.
func KindOf(c Owner) string {
	if _, ok := c.(*ClusterCleaner); ok {
		return "ClusterCleaner"
	}
	return "Cleaner"
}

// ResourceOf is the resource of an Owner.
func ResourceOf(c Owner) schema.GroupResource {
	return schema.GroupResource{Group: GroupVersion.Group, Resource: strings.ToLower(KindOf(c)) + "s"}
}

// IsRecurring says that the Cleaner stays when it has cleaned.
func (s *CommonSpec) IsRecurring() bool { return s.Lifecycle == LifecycleRecurring }

// HasSink says that events are sent: each action is then recorded before.
func (s *CommonSpec) HasSink() bool { return s.CloudEventSink != "" }

// DefaultRetryPeriod is retry.period of a spec that gives none.
const DefaultRetryPeriod = time.Hour

// RetryPeriod returns how long after an evaluation the next one is due although nothing has changed.
func (s *CommonSpec) RetryPeriod() (time.Duration, error) {
	if s.Retry == nil {
		return DefaultRetryPeriod, nil
	}
	return s.Retry.Period.Parse(DefaultRetryPeriod)
}

// IsDecidedAfter says that a rule is decided after another one of its spec, which stands before it or not: rules with leave come last.
func (r *Rule) IsDecidedAfter(other *Rule, standsBefore bool) bool {
	if (r.Leave == nil) != (other.Leave == nil) {
		return r.Leave != nil
	}
	return standsBefore
}

// ListNamespaces are the only namespaces that a reference may select: those that it names and does not exclude, each once and in order. Nil: it names
// none, and may select any.
func (r *ClusterReference) ListNamespaces() []string {
	if r.Namespaces == nil {
		return nil
	}
	names := slices.Compact(slices.Sorted(slices.Values(r.Namespaces)))
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(r.ExcludeNamespaces, name) })
	return append([]string{}, names...) // nil would be all of them
}

// ListSureAnnotations are the keys of the annotations that each object has which a target selects.
func (t *ClusterTarget) ListSureAnnotations() []string {
	if all := t.Reference.ListAnnotations(); len(all) == 1 {
		return all
	}
	return nil
}

// ListSureLabels are the keys of the labels that each object has which a target selects.
func (t *ClusterTarget) ListSureLabels() []string {
	keys := slices.Sorted(maps.Keys(t.Reference.MatchLabels))
	for _, e := range t.Reference.MatchExpressions {
		if e.Operator == metav1.LabelSelectorOpExists || e.Operator == metav1.LabelSelectorOpIn {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// KeepsFixedNumber says that a rule keeps a number of all its items that depends on nothing else: on no item, no group and no time.
func (r *Rule) KeepsFixedNumber() bool {
	return r.Keep != nil && r.GroupBy == "" && r.Key == "" && (r.Keep.Type == intstr.Int || fixedNumber.MatchString(r.Keep.StrVal))
}

var fixedNumber = regexp.MustCompile(`^\s*(\d+|params\.\w+)\s*$`)

// SelectsRecords says whether targets select Secrets, and each of them those of Helm's type by name. A rule over all Secrets means no records of
// releases: its author may not know of them.
func (w *Work) SelectsRecords() (selects bool) {
	for i := range w.Targets {
		r := &w.Targets[i].Reference
		if w.Targets[i].IsOfAnyKind() {
			return false
		}
		if r.APIGroup != "" || !strings.EqualFold(r.Kind, "secret") && !strings.EqualFold(r.Kind, "secrets") {
			continue
		}
		selector, err := fields.ParseSelector(r.FieldSelector)
		if err != nil {
			return false
		}
		if exactly, found := selector.RequiresExactMatch("type"); !found || exactly != ReleaseSecretType {
			return false
		}
		selects = true
	}
	return selects
}

// FindTarget returns the place of a target; -1 if there is none of that name.
func (w *Work) FindTarget(name string) int {
	return slices.IndexFunc(w.Targets, func(t ClusterTarget) bool { return t.Name == name })
}
