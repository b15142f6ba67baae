// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"encoding/json"
	"fmt"
	"net/http"
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
	for _, line := range cluster.Violations(j.events, j.Operator) {
		j.violated("I1", "a deletion without its preconditions", line)
	}
}

// decided is I2, for objects.
func (j *judge) decided() {
	intents := map[string]int{} // how many requests an object's version had already
	for _, d := range j.deeds {
		if d.life == nil {
			j.violated("I2", "a DELETE of what no recorded run names", d.lines()...)
		}
		if d.hit != "" && d.pre.UID != nil && d.hit != *d.pre.UID {
			j.violated("I2", fmt.Sprintf("a DELETE has hit %s, and named %s", d.hit, *d.pre.UID), d.lines()...)
		}
		if d.hit != "" && d.pre.UID == nil && !j.inRows(d) {
			j.violated("I2", fmt.Sprintf("a DELETE has hit %s, which no recorded run names", d.hit), d.lines()...)
		}
		if d.pre.UID == nil || d.pre.ResourceVersion == nil {
			continue // I1
		}
		key := string(*d.pre.UID) + " " + *d.pre.ResourceVersion
		intents[key]++
		told := 0
		for i := range j.Log {
			if l := &j.Log[i]; l.Message == "Intent" && d.names(l.UID, l.Version) && !l.Time.After(d.RequestReceivedTimestamp.Add(time.Millisecond)) {
				told++
			}
		}
		if told < intents[key] {
			j.violated("I2", fmt.Sprintf("%d requests for this version, and %d lines of the log that tell of one before it arrived", intents[key], told), d.lines()...)
		}
	}
	for _, l := range j.lives {
		for _, s := range l.commits() {
			if !s.event.By(j.Operator) {
				j.violated("I2", fmt.Sprintf("the run of %s was recorded by somebody else", l), quote(s.event))
				continue
			}
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

// inRows says that what a DELETE has hit stands in the rows of a run that was recorded before.
func (j *judge) inRows(d *deed) bool {
	for _, l := range j.lives {
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
	for _, e := range j.events {
		if e.Verb != "delete" || !e.By(j.Operator) || !isCleaner(e) || isDryRun(e) {
			continue
		}
		pre, err := e.Preconditions()
		if err != nil || pre.UID == nil || pre.ResourceVersion == nil {
			continue // I1
		}
		var at *state
		if l := j.life(*pre.UID); l != nil {
			at = l.as(*pre.ResourceVersion)
		}
		switch {
		case at == nil:
			j.violated("I2", "a Cleaner was deleted at a version that nobody has seen", quote(e))
		case at.c.Status.Run == nil || at.c.Status.Run.Result != v1alpha1.ResultCompleted:
			j.violated("I2", "a Cleaner was deleted at a version at which no run had completed", quote(at.event), quote(e))
		}
	}
}

// evidence is I3.
func (j *judge) evidence() {
	for _, l := range j.lives {
		for _, s := range l.commits() {
			for i := range s.c.Spec.Targets {
				if t := &s.c.Spec.Targets[i]; t.Included() {
					j.targetWasRead(l, s, t)
				}
			}
		}
	}
}

// targetWasRead looks for the live read of a target before a commit. Cluster-scoped targets are read where the record
// may not look.
func (j *judge) targetWasRead(l *life, s *state, t *v1alpha1.Target) {
	arrived := s.event.RequestReceivedTimestamp.Time
	var last *cluster.Event
	for i := range j.Audit {
		e := &j.Audit[i]
		if e.ObjectRef == nil || !e.By(j.Operator) || !reads(e, l.namespace, t) {
			continue
		}
		if e.StageTimestamp.Time.After(arrived) || e.StageTimestamp.Time.Before(arrived.Add(-confirmationServes)) {
			continue
		}
		if last == nil || e.StageTimestamp.After(last.StageTimestamp.Time) {
			last = e
		}
	}
	switch {
	case last == nil && t.OnMissing == v1alpha1.OnMissingAsNull: // the kind may not be served, which discovery says
	case last == nil:
		j.violated("I3", fmt.Sprintf("%s was committed, and target %q was not read in the %s before", l, t.Name, confirmationServes), quote(s.event))
	case last.Code() != http.StatusOK && (last.Code() != http.StatusNotFound || t.OnMissing != v1alpha1.OnMissingAsNull):
		j.violated("I3", fmt.Sprintf("%s was committed after a read of target %q that had failed", l, t.Name), quote(*last), quote(s.event))
	}
}

// reads says that a request is the live read of a target: a GET of the one that is named, else a LIST of exactly those
// that its selectors mean. A LIST with resourceVersion=0 is how watches begin: its answer may be of any age.
func reads(e *cluster.Event, namespace string, t *v1alpha1.Target) bool {
	r := &t.Reference
	if e.ObjectRef.APIGroup != r.APIGroup || !isKind(e.ObjectRef.Resource, *r) || e.ObjectRef.Subresource != "" || e.ObjectRef.Namespace != "" && e.ObjectRef.Namespace != namespace {
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
	return e.Verb == "list" && query.Get("labelSelector") == byLabels.String() && sameFields(query.Get("fieldSelector"), want)
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
		ttl, err := s.c.Spec.TTL.Parse(0)
		if err != nil {
			return s.c.CreationTimestamp.Time
		}
		return s.c.CreationTimestamp.Add(ttl)
	}
	for _, l := range j.lives {
		for _, s := range l.commits() {
			if d := due(s); s.event.RequestReceivedTimestamp.Time.Before(d) {
				j.violated("I4", fmt.Sprintf("%s was committed before its ttl had passed at %s", l, clockTime(d)), quote(s.event))
			}
		}
	}
	for _, d := range j.deeds {
		if d.run != nil && d.RequestReceivedTimestamp.Time.Before(due(d.run)) {
			j.violated("I4", fmt.Sprintf("a DELETE before the ttl of %s had passed at %s", d.life, clockTime(due(d.run))), d.lines()...)
		}
	}
}

// orders is I5.
func (j *judge) orders() {
	for _, d := range j.deeds {
		if d.life == nil {
			continue
		}
		because, since := "", []*state(nil)
		for _, s := range d.life.between(d.when().Add(-j.Latency), d.when()) {
			because = stopped(s, d.run, d.helm)
			if because == "" {
				break
			}
			since = append(since, s)
		}
		if because != "" {
			j.violated("I5", fmt.Sprintf("a DELETE although %s was %s", d.life, because), append(d.lines(), quote(since[0].event))...)
		}
	}
}

// stopped says why nothing may be deleted for a Cleaner; empty if it may.
func stopped(s, commit *state, helm bool) string {
	switch {
	case s.c.Spec.Suspend:
		return "suspended"
	case s.c.Spec.Mode == v1alpha1.ModeDryRun:
		return "in DryRun"
	case helm: // a release that is half uninstalled is finished
		return ""
	case s.c.DeletionTimestamp != nil:
		return "deleted"
	case !reflect.DeepEqual(deciding(s.c), deciding(commit.c)):
		return "edited"
	}
	return ""
}

// deciding is the spec without what may change under an open run.
func deciding(c *v1alpha1.Cleaner) *v1alpha1.CleanerSpec {
	s := c.Spec.DeepCopy()
	s.Suspend, s.Mode, s.Retry, s.CloudEventSink, s.CloudEventData = false, "", nil, "", ""
	return s
}

// protection is I6.
func (j *judge) protection() {
	for _, d := range j.deeds {
		ref := d.ObjectRef
		name := ref.Resource
		if ref.APIGroup != "" {
			name += "." + ref.APIGroup
		}
		rbac := ref.APIGroup == "rbac.authorization.k8s.io"
		switch {
		case ref.Namespace == "", ref.Resource == "namespaces": // the reference to a namespace has it as its own
			j.violated("I6", "a DELETE of a cluster-scoped object", d.lines()...)
		case slices.Contains(j.Protected, ref.Namespace):
			j.violated("I6", fmt.Sprintf("a DELETE in the protected namespace %q", ref.Namespace), d.lines()...)
		case rbac && !d.helm && !slices.Contains(j.AllowedKinds, name):
			j.violated("I6", "a DELETE of a protected kind", d.lines()...)
		case ref.Resource == "secrets" && strings.HasPrefix(ref.Name, recordPrefix) && !d.helm:
			j.violated("I6", "a DELETE of the record of a release that no run names", d.lines()...)
		}
		if d.hit == "" || d.helm {
			continue
		}
		var last *thing
		for i, o := range j.things[d.hit] {
			if !o.at.After(d.RequestReceivedTimestamp.Time) {
				last = &j.things[d.hit][i]
			}
		}
		if last != nil && (last.meta.Labels[v1alpha1.ProtectKey] == "true" || last.meta.Annotations[v1alpha1.ProtectKey] == "true") {
			j.violated("I6", "an object was deleted that carries "+v1alpha1.ProtectKey, d.lines()...)
		}
	}
}
