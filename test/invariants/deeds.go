// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
)

// confirmationServes is how old live reads may be at a commit: the operator's 10 s, and what the write itself takes.
const confirmationServes = 11 * time.Second

// preconditions is I1.
func (j *judge) preconditions() {
	for _, line := range cluster.Violations(j.history.events, j.history.Operator) {
		j.violated("I1", "a deletion without its preconditions", line)
	}
	for _, d := range j.history.deeds {
		if d.verb == verbPatch && (d.pre.ResourceVersion == nil || *d.pre.ResourceVersion == "") {
			j.violated("I1", "a PATCH that does not name the resourceVersion before it changes something", d.lines()...)
		}
	}
}

// decided is I2, for objects.
func (j *judge) decided() {
	intents := map[string]int{} // how many requests an object's version had already
	for _, d := range j.history.deeds {
		if d.life == nil {
			j.violated("I2", d.title()+" of what no recorded run names, and no Recurring Cleaner has told of", d.lines()...)
		}
		if d.hit != "" && d.pre.UID != nil && d.hit != *d.pre.UID {
			j.violated("I2", fmt.Sprintf("%s has hit %s, and named %s", d.title(), d.hit, *d.pre.UID), d.lines()...)
		}
		if d.hit != "" && d.pre.UID == nil && !j.inRows(d) {
			j.violated("I2", fmt.Sprintf("%s has hit %s, which no recorded run names", d.title(), d.hit), d.lines()...)
		}
		if d.recurs() && (d.intent.Rule == "" || d.intent.Decides == "" || d.intent.Run == 0 && d.intent.Evaluation == nil) {
			j.violated("I2", fmt.Sprintf("%s of %s was told of without rule, fingerprint of the spec, or number of the evaluation", d.title(), d.life), d.lines()...)
		}
		if d.pre.UID == nil || d.pre.ResourceVersion == nil {
			continue // I1
		}
		key := d.verb + " " + string(*d.pre.UID) + " " + *d.pre.ResourceVersion
		intents[key]++
		told := 0
		for i := range j.history.Log {
			if d.toldBy(&j.history.Log[i]) {
				told++
			}
		}
		if told < intents[key] {
			j.violated("I2", fmt.Sprintf("%d requests for this version, and %d lines of the log that tell of one before it arrived", intents[key], told), d.lines()...)
		}
	}
	for _, l := range j.history.lives {
		for _, s := range l.commits() {
			var patch struct {
				Metadata struct {
					ResourceVersion string `json:"resourceVersion"`
				} `json:"metadata"`
			}
			if s.event.RequestObject == nil || json.Unmarshal(s.event.RequestObject.Raw, &patch) != nil || patch.Metadata.ResourceVersion == "" {
				j.violated("I2", fmt.Sprintf("the run of %s was recorded without naming a resourceVersion", l), quote(s.event))
			}
		}
	}
}

// again is I13.
func (j *judge) again() {
	seconds := map[string]bool{}
	for n, d := range j.history.deeds {
		if d.intent == nil || !d.intent.Again {
			continue
		}
		key := fmt.Sprint(d.intent.Namespace, "/", d.intent.Name, " ", d.intent.Run, " ", d.intent.UID)
		asked := slices.ContainsFunc(j.history.deeds[:n], func(o *deed) bool {
			return o.verb == verbDelete && o.life == d.life && o.pre.UID != nil && string(*o.pre.UID) == d.intent.UID
		})
		last := j.history.lastOf(d)
		switch {
		case d.verb != verbDelete || d.recurs():
			j.violated("I13", d.title()+" was told of as the second DELETE of a run", d.lines()...)
		case !asked:
			j.violated("I13", "a second DELETE without a first one", d.lines()...)
		case seconds[key]:
			j.violated("I13", "a third DELETE", d.lines()...)
		case last != nil && len(last.meta.Finalizers) > 0:
			j.violated("I13", "a second DELETE of what finalizers hold", d.lines()...)
		}
		seconds[key] = true
	}
}

// inRows says that what a DELETE has hit stands in the rows of a run that was recorded before.
func (j *judge) inRows(d *deed) bool {
	for _, l := range j.history.lives {
		for _, s := range l.commits() {
			if !s.at.After(d.RequestReceivedTimestamp.Time) && slices.ContainsFunc(s.open().Rows, func(row string) bool { return rowIs(row, d.Event, &d.hit) }) {
				return true
			}
		}
	}
	return false
}

// selfDeletions is I2, for Cleaners: each deletes itself alone, at a version at which its run has completed.
func (j *judge) selfDeletions() {
	for _, e := range j.history.events {
		if e.Verb != "delete" || !e.By(j.history.Operator) || !isCleaner(e) || isDryRun(e) {
			continue
		}
		pre, err := e.Preconditions()
		if err != nil || pre.UID == nil || pre.ResourceVersion == nil {
			continue // I1
		}
		var at *state
		if l := j.history.life(*pre.UID); l != nil {
			at = l.as(*pre.ResourceVersion)
		}
		switch {
		case at == nil:
			j.violated("I2", "a Cleaner was deleted at a version that nobody has seen", quote(e))
		case at.c.Common().IsRecurring():
			j.violated("I2", "a Cleaner was deleted that is Recurring", quote(at.event), quote(e))
		case at.c.State().Run == nil || at.c.State().Run.Result != v1alpha1.ResultCompleted:
			j.violated("I2", "a Cleaner was deleted at a version at which no run had completed", quote(at.event), quote(e))
		}
	}
}

// reads says that a request is the live read of a target: a GET of the one that is named, else a LIST of exactly those
// that its selectors mean, or of all, by which a watch is compared or proved to be new. A LIST with resourceVersion=0 is how watches begin: its answer may be of any age.
func reads(e *cluster.Event, namespace string, t *v1alpha1.ClusterTarget) bool {
	r := &t.Reference
	if e.ObjectRef.APIGroup != r.APIGroup || !isKind(e.ObjectRef.Resource, r.Reference) || e.ObjectRef.Subresource != "" || !inScope(e.ObjectRef.Namespace, namespace, r) {
		return false
	}
	asked, err := url.ParseRequestURI(e.RequestURI)
	if err != nil {
		return false
	}
	query := asked.Query()
	if query.Get("resourceVersion") == "0" {
		return false
	}
	byLabels, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: r.MatchLabels, MatchExpressions: r.MatchExpressions})
	if err != nil {
		return false
	}
	if r.Name != "" && byLabels.Empty() && r.FieldSelector == "" {
		return e.Verb == "get" && e.ObjectRef.Name == r.Name
	}
	want := r.FieldSelector
	if r.Name != "" {
		want = strings.Trim("metadata.name="+r.Name+","+want, ",")
	}
	exactly := query.Get("labelSelector") == byLabels.String() && sameFields(query.Get("fieldSelector"), want)
	return e.Verb == "list" && (exactly || provesFresh(query, t))
}

// provesFresh says that a LIST is the beginning of a proof that a watch is as new as the API server: of all that the watch has, which is more
// than a target with selectors means. The watch of a target of Helm releases has the Secrets of all releases.
func provesFresh(query url.Values, t *v1alpha1.ClusterTarget) bool {
	if query.Get("resourceVersion") != "" || t.Reference.Name != "" {
		return false
	}
	all := query.Get("labelSelector") == "" && query.Get("fieldSelector") == ""
	return all || t.IsOfReleases() && query.Get("labelSelector") == "owner=helm" && query.Get("fieldSelector") == "type=helm.sh/release.v1"
}

// inScope says that a read was made where a target's objects may be: in the cluster as a whole, in the Cleaner's namespace,
// or, for a ClusterCleaner, where the reference says.
func inScope(read, namespace string, r *v1alpha1.ClusterReference) bool {
	switch {
	case read == "", read == namespace, r.Name != "" && read == r.Namespace:
		return true
	default:
		return namespace == "" && r.Name == "" && (len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, read))
	}
}

// sameFields says that two field selectors demand the same, in any order.
func sameFields(a, b string) bool {
	demands := func(text string) []string {
		selector, err := fields.ParseSelector(text)
		if err != nil {
			return []string{text}
		}
		var out []string
		for _, r := range selector.Requirements() {
			out = append(out, r.Field+" "+string(r.Operator)+" "+r.Value)
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(demands(a), demands(b))
}

// isKind says that a resource is what a reference calls it.
func isKind(resource string, r v1alpha1.Reference) bool {
	kind := strings.ToLower(r.Kind)
	return resource == kind || resource == pluralOf(schema.GroupVersionKind{Group: r.APIGroup, Version: r.Version, Kind: kind})
}

func pluralOf(k schema.GroupVersionKind) string {
	plural, _ := meta.UnsafeGuessKindToResource(k)
	return plural.Resource
}

// ttl is I4.
func (j *judge) ttl() {
	due := func(s *state) time.Time {
		created := s.c.GetCreationTimestamp()
		ttl, err := s.c.Common().TTL.Parse(0)
		if err != nil {
			return created.Time
		}
		return created.Add(ttl)
	}
	for _, l := range j.history.lives {
		for _, s := range l.commits() {
			if d := due(s); s.event.RequestReceivedTimestamp.Time.Before(d) {
				j.violated("I4", fmt.Sprintf("%s was committed before its ttl had passed at %s", l, clockTime(d)), quote(s.event))
			}
		}
	}
	for _, d := range j.history.deeds {
		if d.run != nil && d.RequestReceivedTimestamp.Time.Before(due(d.run)) {
			j.violated("I4", fmt.Sprintf("%s before the ttl of %s had passed at %s", d.title(), d.life, clockTime(due(d.run))), d.lines()...)
		}
	}
}

// orders is I5.
func (j *judge) orders() {
	for _, d := range j.history.deeds {
		if d.life == nil {
			continue
		}
		decided := j.history.specsOf(d)
		because, since := "", []*state(nil)
		for _, s := range d.life.between(d.when().Add(-j.history.Latency), d.when()) {
			because = stopped(s, decided, d.helm)
			if because == "" {
				break
			}
			since = append(since, s)
		}
		if because != "" {
			j.violated("I5", fmt.Sprintf("%s although %s was %s", d.title(), d.life, because), append(d.lines(), quote(since[0].event))...)
		}
	}
}

// specsOf are the specs that may have decided a deed: that of the run, or, for a Recurring Cleaner, those that were in force
// when the fingerprint that the deed was told with was told first.
func (h *history) specsOf(d *deed) []*v1alpha1.Work {
	if !d.recurs() {
		return []*v1alpha1.Work{deciding(d.run.c)}
	}
	first := d.intent
	for i := range h.Log {
		l := &h.Log[i]
		if l.Message == "Intent" && l.Namespace == d.life.namespace && l.Name == d.life.name && l.Decides == d.intent.Decides && l.Time.Before(first.Time) &&
			!l.Time.Before(d.life.states[0].event.RequestReceivedTimestamp.Time) {
			first = l
		}
	}
	var out []*v1alpha1.Work
	for _, s := range d.life.between(first.Time.Add(-h.Latency), first.Time) {
		out = append(out, deciding(s.c))
	}
	return out
}

// stopped says why nothing may be done for a Cleaner; empty if it may.
func stopped(s *state, decided []*v1alpha1.Work, helm bool) string {
	now := deciding(s.c)
	switch {
	case s.c.Common().Suspend:
		return "suspended"
	case s.c.Common().Mode == v1alpha1.ModeDryRun:
		return "in DryRun"
	case helm: // a release that is half uninstalled is finished
		return ""
	case s.c.GetDeletionTimestamp() != nil:
		return "deleted"
	case !slices.ContainsFunc(decided, func(w *v1alpha1.Work) bool { return reflect.DeepEqual(w, now) }):
		return "edited"
	}
	return ""
}

// deciding is the spec without what may change under an open run.
func deciding(c v1alpha1.Owner) *v1alpha1.Work {
	w := *c.Work()
	w.Suspend, w.Mode, w.Retry, w.CloudEventSink, w.CloudEventSinkAuth, w.CloudEventData = false, "", nil, "", nil, ""
	w.Schedule, w.TimeZone, w.StartingDeadline, w.Validation = "", "", "", ""
	return &w
}

// protectedKind says that objects of a kind are protected from being deleted.
func protectedKind(group, resource string) bool {
	switch group {
	case "":
		return slices.Contains([]string{"namespaces", "nodes", "persistentvolumes"}, resource)
	default:
		return slices.Contains([]string{
			"apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io", "rbac.authorization.k8s.io", v1alpha1.GroupVersion.Group,
		}, group)
	}
}

// lastOf returns what a request touched, as it was written last before; nil if it touched nothing, or no write is recorded.
func (h *history) lastOf(d *deed) *thing {
	var last *thing
	for i, o := range h.things[d.touched()] {
		if !o.at.After(d.RequestReceivedTimestamp.Time) {
			last = &h.things[d.touched()][i]
		}
	}
	return last
}

// prunes says whether a request deletes the record of a superseded revision for a spec that selects Secrets by the type of records, and no
// others. A request that touched nothing is not judged by the labels.
func (h *history) prunes(d *deed) bool {
	if d.verb != verbDelete || d.run == nil {
		return false
	}
	asks := false
	for _, t := range d.run.c.Work().Targets {
		if t.Reference.APIGroup != "" || !isKind("secrets", t.Reference.Reference) {
			continue
		}
		if !slices.Contains(strings.Split(t.Reference.FieldSelector, ","), "type=helm.sh/release.v1") {
			return false
		}
		asks = true
	}
	last := h.lastOf(d)
	return asks && (d.touched() == "" || last != nil && last.meta.Labels["owner"] == "helm" && last.meta.Labels["status"] == "superseded")
}

// protection is I6.
func (j *judge) protection() {
	for _, d := range j.history.deeds {
		ref := d.ObjectRef
		name := ref.Resource
		if ref.APIGroup != "" {
			name += "." + ref.APIGroup
		}
		scoped := ref.Namespace == "" || ref.Resource == "namespaces" // the reference to a namespace has it as its own
		anywhere := d.life != nil && d.life.namespace == ""
		included := anywhere && d.run.c.Work().IncludeProtected
		switch {
		case scoped && !anywhere:
			j.violated("I6", d.title()+" of a cluster-scoped object, which no ClusterCleaner has asked for", d.lines()...)
		case j.history.Own != "" && ref.Namespace == j.history.Own, !included && slices.Contains(j.history.Protected, ref.Namespace):
			j.violated("I6", fmt.Sprintf("%s in the protected namespace %q", d.title(), ref.Namespace), d.lines()...)
		case d.verb == verbDelete && protectedKind(ref.APIGroup, ref.Resource) && !d.helm && !slices.Contains(j.history.AllowedKinds, name):
			j.violated("I6", "a DELETE of a protected kind", d.lines()...)
		case ref.Resource == "secrets" && strings.HasPrefix(ref.Name, recordPrefix) && !d.helm && !j.history.prunes(d):
			j.violated("I6", d.title()+" of the record of a release that no run names", d.lines()...)
		}
		if d.touched() == "" || d.helm {
			continue
		}
		if last := j.history.lastOf(d); last != nil && (last.meta.Labels[v1alpha1.ProtectKey] == "true" || last.meta.Annotations[v1alpha1.ProtectKey] == "true") {
			j.violated("I6", d.title()+" was granted of an object that carries "+v1alpha1.ProtectKey, d.lines()...)
		}
	}
}
