// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

// group is that of a kind that the operator may read, and delete once the test lets it.
const group = "upgrade.example.test"

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.upgrade.example.test}
spec:
  group: upgrade.example.test
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}`

// rests is a Cleaner that waits until its ConfigMap is old, and deletes that then.
const rests = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: %[1]s}
spec:%[2]s
  lifecycle: Once
  targets:
  - {name: found, reference: {version: v1, kind: ConfigMap, matchLabels: {of: %[1]s}}}
  conditions: ['found.items.exists(f, f.data.state == "old")']
  rules:
  - {name: old, forEach: found.items, when: item.data.state == "old", actions: [{delete: {}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s, labels: {of: %[1]s}}
data: {state: new}`

// remark is a field of the next version, in a spec.
const remark = "\n  remark: only the next version knows this"

// deletes is a Cleaner that deletes an object at once, and tells a sink if it has one.
const deletes = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: %[1]s}
spec:
  ttl: 0s%[4]s
  targets:
  - {name: doomed, reference: {apiGroup: "%[2]s", version: v1, kind: %[3]s, name: %[1]s}, delete: true}`

// ticks is a Cleaner that deletes ConfigMaps once a minute.
const ticks = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: ticks}
spec:
  lifecycle: Recurring
  schedule: "* * * * *"
  targets:
  - {name: due, reference: {version: v1, kind: ConfigMap, matchLabels: {of: ticks}}, delete: true}`

// everywhere is a ClusterCleaner at rest.
const everywhere = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: everywhere}
spec:
  lifecycle: Recurring
  targets:
  - {name: found, reference: {version: v1, kind: ConfigMap, namespaces: [%s], matchLabels: {of: nobody}}}
  conditions: ['found.items.size() > 0']
  rules:
  - {name: all, forEach: found.items, when: "true", actions: [{report: {message: "'found'"}}]}`

// configMap is one that a Cleaner of this name deletes.
const configMap = `
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, labels: {of: %s}}`

// TestNoAuthorIsLost has the next version follow this one, this one follow that, and the next one once more, each with its
// CRDs. Cleaners at rest keep their authors, runs that are open and events that are owed are carried on, a schedule does not
// tick again, and while both versions run one of them acts.
func TestNoAuthorIsLost(t *testing.T) {
	l := newLab(t)
	l.manager = l.run(shared.this)
	alice, bob := clientOf(l.T, "alice"), clientOf(l.T, "bob")
	l.users("alice", "bob")
	l.apply(l.Client, widgets)
	l.eventually("widgets are served", func() string {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(group + "/v1")
		list.SetKind("WidgetList")
		if err := l.List(l.Context(), list); err != nil {
			return err.Error()
		}
		return ""
	})
	operatorMay := l.lets(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: operator.Namespace, Name: operator.ServiceAccount}, "widgets",
		rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch"}})

	// What this version leaves to the next one, and what that leaves to this one again.
	l.apply(alice, fmt.Sprintf(rests, "kept", ""))
	l.apply(alice, fmt.Sprintf(rests, "edited", ""))
	l.apply(alice, fmt.Sprintf(everywhere, l.ns))
	l.apply(alice, ticks)
	l.apply(alice, fmt.Sprintf(configMap, "tick-0", "ticks"))
	refusing, taking := []*sink.Sink{sink.Start(t), sink.Start(t)}, []*sink.Sink{sink.Start(t), sink.Start(t)}
	for i := range refusing {
		refusing[i].Otherwise(sink.Answer{Status: http.StatusServiceUnavailable})
		told, open := fmt.Sprintf("told-%d", i), fmt.Sprintf("open-%d", i)
		l.apply(alice, fmt.Sprintf(configMap, told, told))
		l.apply(alice, fmt.Sprintf(deletes, told, "", "ConfigMap", "\n  cloudEventSink: "+refusing[i].URL))
		l.apply(l.Client, fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: %s}", group, open))
		l.apply(alice, fmt.Sprintf(deletes, open, group, "Widget", "\n  cloudEventSink: "+taking[i].URL))
		l.says(open, v1alpha1.ReasonDeletionRefused)
		l.gone("ConfigMap", told)
		if _, err := refusing[i].WaitFor(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	authors := map[string]string{"kept": "alice", "edited": "alice"}
	l.knows("before", alice, authors)
	keys := l.keys()
	next := buildNext(t) // while the schedule is awaited
	l.gone("ConfigMap", "tick-0")
	var first time.Time
	l.eventually("the schedule has ticked", func() string {
		last := l.cleaner("ticks").Status.LastScheduleTime
		if last == nil {
			return "status.lastScheduleTime is empty"
		}
		first = last.Time
		return ""
	})
	// handOver lets the version that follows, and not the one that has ended, bring to an end what was left.
	handOver := func(i int) func() {
		return func() {
			refusing[i].Otherwise(sink.Answer{})
			operatorMay.Rules = append(operatorMay.Rules, rbacv1.PolicyRule{
				APIGroups: []string{group}, Resources: []string{"widgets"}, ResourceNames: []string{fmt.Sprintf("open-%d", i)}, Verbs: []string{"delete"},
			})
			l.must(l.Update(t.Context(), operatorMay))
		}
	}
	ends := func(i int) {
		l.gone("Cleaner", fmt.Sprintf("told-%d", i))
		l.gone("Cleaner", fmt.Sprintf("open-%d", i))
	}

	l.apply(alice, fmt.Sprintf(configMap, "tick-1", "ticks"))
	l.serve(next)
	// What the version that runs cannot see, it cannot sign: for the next one that is a spec which nobody has written.
	l.apply(alice, fmt.Sprintf(rests, "early", remark))
	l.follow(next, alice, handOver(0))
	ends(0)
	l.says("early", v1alpha1.ReasonAuthorMissing)
	l.ask(alice, "Cleaner", "early", "answered-for")
	l.says("early", v1alpha1.ReasonConditionsNotMet)
	l.must(alice.Delete(t.Context(), l.object("Cleaner", "early")))
	l.gone("Cleaner", "early")
	l.knows("up", alice, authors)
	l.ticked(first)

	l.merge(bob, "Cleaner", "edited", `{"spec":{"ttl":"1s"}}`)
	authors["edited"] = "bob"
	l.knows("edited", alice, authors)
	// A word that only the next version knows is a part of what its author has written.
	l.apply(alice, fmt.Sprintf(rests, "remarked", remark))
	l.says("remarked", v1alpha1.ReasonConditionsNotMet)

	l.serve(shared.this)
	l.follow(shared.this, alice, handOver(1))
	ends(1)
	l.knows("down", alice, authors)
	l.ticked(first)
	// Without that word it is another spec, which nobody has written: nothing is done for it until somebody answers for it.
	l.says("remarked", v1alpha1.ReasonAuthorMissing)
	l.merge(l.Client, "ConfigMap", "remarked", `{"data":{"state":"old"}}`)

	l.serve(next)
	l.follow(next, alice, func() {})
	l.knows("up again", alice, authors)
	l.ticked(first)
	if diff := cmp.Diff(keys, l.keys()); diff != "" {
		t.Error("the signing key has changed")
	}
	for name := range authors {
		l.merge(l.Client, "ConfigMap", name, `{"data":{"state":"old"}}`)
		l.gone("ConfigMap", name)
		l.gone("Cleaner", name)
	}
	if !l.exists("ConfigMap", "remarked") {
		t.Error("something was done for a spec that nobody has written")
	}
	l.says("remarked", v1alpha1.ReasonAuthorMissing)
	l.ask(alice, "Cleaner", "remarked", "answered-for")
	l.gone("ConfigMap", "remarked")
	l.gone("Cleaner", "remarked")

	for i := range refusing {
		toldOnce(l.T, fmt.Sprintf("told-%d", i), refusing[i])
		toldOnce(l.T, fmt.Sprintf("open-%d", i), taking[i])
	}
	l.judge("early", "remarked")
}

// users lets users write Cleaners that delete ConfigMaps and widgets.
func (l *lab) users(names ...string) {
	l.Helper()
	for _, name := range names {
		role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"", group}, Resources: []string{"configmaps", "widgets"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
			{APIGroups: []string{"cleaner.vtex.dev"}, Resources: []string{"cleaners", "clustercleaners"}, Verbs: []string{"*"}},
		}}
		role.Name = name
		l.must(l.Create(l.Context(), role))
		binding := &rbacv1.ClusterRoleBinding{
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		}
		binding.Name = name
		l.must(l.Create(l.Context(), binding))
	}
}

// lets gives a subject a right in the namespace.
func (l *lab) lets(who rbacv1.Subject, name string, rule rbacv1.PolicyRule) *rbacv1.Role {
	l.Helper()
	role := &rbacv1.Role{Rules: []rbacv1.PolicyRule{rule}}
	role.Namespace, role.Name = l.ns, name
	l.must(l.Create(l.Context(), role))
	binding := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{who}}
	binding.Namespace, binding.Name = l.ns, name
	l.must(l.Create(l.Context(), binding))
	return role
}

// serve has the API server know the kinds as a version does.
func (l *lab) serve(v version) {
	l.Helper()
	l.must(cluster.InstallCRDs(l.Context(), shared.Config(), v.crds))
	l.eventually("the CRDs are those of "+v.name, func() string {
		u := l.object("Cleaner", "kept")
		l.must(l.Get(l.Context(), client.ObjectKeyFromObject(u), u))
		if got, _, _ := unstructured.NestedString(u.Object, "spec", "grade"); got != v.grade {
			return fmt.Sprintf("the grade is %q", got)
		}
		return ""
	})
}

// follow has another version, whose CRDs are there, take the place of the one that runs, as a Deployment does it: it starts and
// serves the webhook, and then the old one ends. Before the new one takes the Cleaners, something may happen.
func (l *lab) follow(v version, user client.Client, between func()) {
	l.Helper()
	owner := l.owner()
	manager := l.run(v)

	// Both run: what a user writes to the new one, the old one does, which owns them.
	name := fmt.Sprintf("overlap-%d", l.runs)
	l.apply(user, fmt.Sprintf(configMap, name, name))
	l.apply(user, fmt.Sprintf(deletes, name, "", "ConfigMap", ""))
	l.gone("Cleaner", name)
	if now := l.owner(); now != owner {
		l.Errorf("%s owns the Cleaners, while %s, which did, is there", now, owner)
	}
	l.must(l.manager.Signal(syscall.SIGTERM))
	select {
	case <-l.manager.Exited():
	case <-time.After(patience):
		l.Fatal("the operator does not end")
	}
	between()
	l.manager = manager
	l.eventually("the version "+v.name+" owns the Cleaners", func() string {
		if now := l.owner(); now == owner || now == "" {
			return fmt.Sprintf("the owner is %q", now)
		}
		return ""
	})
}

// owner is who owns the Cleaners: both versions divide them in the same way.
func (l *lab) owner() string {
	l.Helper()
	owner, err := operator.FindOwner(l.Context(), l, l.ns)
	l.must(err)
	return owner
}

// keys are the keys that authors and records are signed with.
func (l *lab) keys() map[string][]byte {
	l.Helper()
	secret := &corev1.Secret{}
	l.must(l.Get(l.Context(), client.ObjectKey{Namespace: operator.Namespace, Name: "cleaner-signing-key"}, secret))
	return secret.Data
}

// knows holds the version that runs to the authors of Cleaners at rest. It has each be evaluated once more.
func (l *lab) knows(phase string, as client.Client, authors map[string]string) {
	l.Helper()
	id := strings.ReplaceAll(phase, " ", "-")
	check := func(kind, name, want string) {
		l.ask(as, kind, name, id)
		read := func() v1alpha1.Owner {
			if kind == "Cleaner" {
				return l.cleaner(name)
			}
			c := &v1alpha1.ClusterCleaner{}
			l.must(l.Get(l.Context(), client.ObjectKey{Name: name}, c))
			return c
		}
		var c v1alpha1.Owner
		l.eventually(fmt.Sprintf("%s: %s is evaluated", phase, name), func() string {
			if c = read(); c.State().LastRequestedAt != id || c.State().ObservedGeneration != c.GetGeneration() {
				return "it says " + readyOf(c)
			}
			return ""
		})
		var stored struct {
			Author struct{ Username string }
		}
		l.must(json.Unmarshal([]byte(c.GetAnnotations()[v1alpha1.AnnotationAuthor]), &stored))
		generation := int64(1)
		if want == "bob" {
			generation = 2
		}
		if stored.Author.Username != want || readyOf(c) != v1alpha1.ReasonConditionsNotMet || c.GetGeneration() != generation {
			l.Errorf("%s: %s of %q says %s, and is generation %d: want %q, %s and %d", phase, name, stored.Author.Username, readyOf(c), c.GetGeneration(),
				want, v1alpha1.ReasonConditionsNotMet, generation)
		}
	}
	for name, want := range authors {
		check("Cleaner", name, want)
	}
	check("ClusterCleaner", "everywhere", "alice")
}

// ticked holds the schedule to its times: since the first, at most one a minute has deleted something, and the last one is
// known.
func (l *lab) ticked(first time.Time) {
	l.Helper()
	c := l.cleaner("ticks")
	if last := c.Status.LastScheduleTime; last == nil || last.Time.Before(first) {
		l.Errorf("the last time of the schedule is %v, and the first was %s", last, first)
	}
	events, err := l.audit.Events()
	l.must(err)
	var deleted int64
	for _, e := range cluster.Deletes(events, operator.User) {
		if e.ObjectRef != nil && e.ObjectRef.Namespace == l.ns && strings.HasPrefix(e.ObjectRef.Name, "tick-") {
			deleted++
		}
	}
	if minutes := int64(time.Since(first)/time.Minute) + 1; deleted > minutes || c.Status.Runs > minutes {
		l.Errorf("a schedule of once a minute has deleted %d ConfigMaps in %d runs in the %d minutes since %s", deleted, c.Status.Runs, minutes, first)
	}
}

// toldOnce holds a sink to one event that it has taken, and to the same one at each attempt.
func toldOnce(t *testing.T, name string, s *sink.Sink) {
	t.Helper()
	taken := 0
	ids := map[string]bool{}
	for _, e := range s.Events() {
		ids[e.ID] = true
		if e.Status == http.StatusAccepted {
			taken++
		}
	}
	if taken != 1 || len(ids) != 1 {
		t.Errorf("the sink of %s has taken %d events, and was sent %d", name, taken, len(ids))
	}
}

// judge holds all that either version did to the audit log: nothing was deleted twice, and of no Cleaner but these did the
// operator ever say that it knows its author or its runs no more.
func (l *lab) judge(but ...string) {
	l.Helper()
	events, err := l.audit.Events()
	l.must(err)
	deleted := map[string]bool{}
	for _, e := range cluster.Deletes(events, operator.User) {
		if e.Code() >= 300 {
			continue
		}
		pre, err := e.Preconditions()
		l.must(err)
		switch {
		case pre.UID == nil:
			l.Errorf("a DELETE without a UID: %s", e)
		case deleted[string(*pre.UID)]:
			l.Errorf("deleted twice: %s", e)
		default:
			deleted[string(*pre.UID)] = true
		}
	}
	writes := 0
	for _, e := range events {
		if !e.By(operator.User) || e.RequestObject == nil || e.ObjectRef == nil {
			continue
		}
		writes++
		for _, word := range []string{v1alpha1.ReasonAuthorMissing, v1alpha1.ReasonAuthorLacksRights, v1alpha1.ReasonRecordNotTrusted} {
			text := string(e.RequestObject.Raw)
			known := slices.ContainsFunc(but, func(name string) bool {
				return e.ObjectRef.Name == name || e.ObjectRef.Resource == "events" && strings.Contains(text, fmt.Sprintf(`"name":%q`, name))
			})
			if strings.Contains(text, word) && !known {
				l.Errorf("%s: %s", e, text)
			}
		}
	}
	if writes == 0 || len(deleted) == 0 {
		l.Error("the audit log shows nothing of the operator, so it witnesses nothing")
	}
}
