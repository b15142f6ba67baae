// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/sink"
)

// tale is the story of a Cleaner that stays, or of a ClusterCleaner.
type tale struct {
	*story
	o v1alpha1.Owner
	// decides is what it says of its spec.
	decides string
}

// newTale begins the story of a Cleaner in the namespace shop, or of a ClusterCleaner.
func newTale(t *testing.T, clusterwide bool) *tale {
	s := newStory(t)
	s.Namespaces, s.Elsewhere, s.Own = nil, nil, "cleaner-system"
	common := v1alpha1.CommonSpec{
		Lifecycle: v1alpha1.LifecycleRecurring, TTL: "2s", Limits: &v1alpha1.Limits{MaxActions: 2},
		Rules: []v1alpha1.Rule{{Name: "r", ForEach: "pods.items", When: "true", Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}}},
	}
	meta := metav1.ObjectMeta{Name: "c", UID: "uid-c", CreationTimestamp: metav1.NewTime(s.now)}
	if clusterwide {
		return &tale{story: s, decides: "v1:a", o: &v1alpha1.ClusterCleaner{ObjectMeta: meta, Spec: v1alpha1.ClusterCleanerSpec{CommonSpec: common}}}
	}
	meta.Namespace = "shop"
	return &tale{story: s, decides: "v1:a", o: &v1alpha1.Cleaner{ObjectMeta: meta, Spec: v1alpha1.CleanerSpec{CommonSpec: common}}}
}

// write is a write to the Cleaner.
func (s *tale) write(user, verb string, change func(o v1alpha1.Owner)) {
	old := s.o.GetResourceVersion()
	s.o = s.o.DeepCopyOwner()
	change(s.o)
	s.rv++
	s.o.SetResourceVersion(fmt.Sprint(s.rv))
	resource := "cleaners"
	if s.o.GetNamespace() == "" {
		resource = "clustercleaners"
	}
	s.event(user, verb, v1alpha1.GroupVersion.Group, resource, "c", 200, map[string]any{"metadata": map[string]any{"resourceVersion": old}}, s.o)
	s.Audit[len(s.Audit)-1].ObjectRef.Namespace = s.o.GetNamespace()
}

func (s *tale) create() { s.write(them, "create", func(v1alpha1.Owner) {}); s.wait() }

func (s *tale) edit(change func(c *v1alpha1.CommonSpec)) {
	s.write(them, "update", func(o v1alpha1.Owner) { change(o.Common()) })
}

// status is a write of the operator.
func (s *tale) status(change func(*v1alpha1.CleanerStatus)) {
	s.write(us, "patch", func(o v1alpha1.Owner) { change(o.State()) })
}

// selects adds a target to the spec of a Cleaner.
func (s *tale) selects(kind, fieldSelector string) {
	c := s.o.(*v1alpha1.Cleaner)
	c.Spec.Targets = append(c.Spec.Targets, v1alpha1.Target{
		Name: fmt.Sprint("t", len(c.Spec.Targets)), Reference: v1alpha1.Reference{Version: "v1", Kind: kind, FieldSelector: fieldSelector},
	})
}

// records is what Helm writes of a revision.
func (s *tale) records(o target, status string) {
	s.event(them, "update", o.group, o.resource, o.name, 200, nil, metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Name: o.name, UID: types.UID(o.uid), Labels: map[string]string{"owner": "helm", "status": status}},
	})
	s.Audit[len(s.Audit)-1].ObjectRef.Namespace = o.namespace
}

// target is an object that is acted on, at version 7.
type target struct{ group, resource, namespace, name, uid string }

func pod(name string) target { return target{"", "pods", "shop", name, "uid-" + name} }

// tells is a line of the log.
func (s *tale) tells(verb string, o target) {
	s.Log = append(s.Log, Line{
		Time: s.now.Add(500 * time.Millisecond), Message: "Intent", Namespace: s.o.GetNamespace(), Name: "c", Evaluation: float64(3), Rule: "r", Verb: verb,
		Decides: s.decides, UID: o.uid, Version: "7", Text: "Intent " + verb + " " + o.name,
	})
}

// uninstalls deletes an object of the release x, whose uninstall its rule has begun, if it has told of that.
func (s *tale) uninstalls(o target, told bool) {
	if told {
		s.tells("helmUninstall", target{"", "secrets", "shop", recordPrefix + "x.v1", "uid-x"})
	}
	s.does(verbDelete, o)
	l := &s.Log[len(s.Log)-1]
	l.Release, l.Record = "shop/x", "uid-x"
}

func demands(o target) map[string]any {
	return map[string]any{"uid": o.uid, "resourceVersion": "7"}
}

// sends is a granted request with a body.
func (s *tale) sends(verb string, o target, body any) {
	success := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Details: &metav1.StatusDetails{UID: types.UID(o.uid)}}
	switch verb {
	case verbDelete:
		s.event(us, "delete", o.group, o.resource, o.name, 200, body, success)
	case verbEvict:
		s.event(us, "create", o.group, o.resource, o.name, 201, body, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}})
		s.Audit[len(s.Audit)-1].ObjectRef.Subresource = "eviction"
	default:
		s.event(us, "patch", o.group, o.resource, o.name, 200, body, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.name, UID: types.UID(o.uid)}})
	}
	s.Audit[len(s.Audit)-1].ObjectRef.Namespace = o.namespace
}

// does is a deed as it has to be: told, and by a request that demands the object and its version.
func (s *tale) does(verb string, o target) {
	s.tells(verb, o)
	s.sends(verb, o, proper(verb, o))
}

// proper is the body of a request as it has to be.
func proper(verb string, o target) any {
	switch verb {
	case verbDelete:
		return map[string]any{"preconditions": demands(o)}
	case verbEvict:
		return map[string]any{"kind": "Eviction", "deleteOptions": map[string]any{"preconditions": demands(o)}}
	case "removeFinalizer":
		return []map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": o.uid}, {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
			{"op": "remove", "path": "/metadata/finalizers/0"},
		}
	default:
		return map[string]any{"metadata": demands(o), "status": map[string]any{"phase": "Failed"}}
	}
}

// lists is a live read of all Pods of the namespace.
func (s *tale) lists(code int32) { s.event(us, "list", "", "pods", "", code, nil, nil) }

// records has the Cleaner ask for the records of releases.
func records(s *tale) { s.selects("Secret", "type=helm.sh/release.v1") }

// gated has the Cleaner look at all Pods before it does anything.
func gated(s *tale) {
	if c, ok := s.o.(*v1alpha1.Cleaner); ok {
		c.Spec.Targets = []v1alpha1.Target{{Name: "pods", Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}}
		c.Spec.Conditions = []string{"pods.items.size() > 0"}
	}
}

// halved lets the Cleaner act on half of four Pods.
func halved(s *tale) {
	gated(s)
	s.o.Common().Conditions, s.o.Common().Limits = nil, &v1alpha1.Limits{MaxPercent: 50}
	for _, name := range []string{"a", "b", "d", "e"} {
		s.event(them, "create", "", "pods", name, 201, nil, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}})
	}
}

// confirming has its rule confirm them.
func confirming(s *tale) {
	gated(s)
	s.o.Common().Conditions = nil
	s.o.Common().Rules[0].Confirm = []v1alpha1.Confirm{{Target: "pods"}}
}

// joining has its rule look at Nodes too.
func joining(s *tale) {
	gated(s)
	s.o.Common().Conditions = nil
	if c, ok := s.o.(*v1alpha1.Cleaner); ok {
		c.Spec.Targets = append(c.Spec.Targets, v1alpha1.Target{Name: "nodes", Reference: v1alpha1.Reference{Version: "v1", Kind: "Node"}})
	}
	s.o.Common().Variables = []v1alpha1.Variable{{Name: "byName", Expression: "nodes.items.indexBy(n, n.metadata.name)"}}
	s.o.Common().Rules[0].When = "!(item.spec.nodeName in variables.byName)"
}

// selecting has a ClusterCleaner select Namespaces by their labels.
func selecting(s *tale) {
	if c, ok := s.o.(*v1alpha1.ClusterCleaner); ok {
		c.Spec.Targets = []v1alpha1.ClusterTarget{{Name: "pods", Reference: v1alpha1.ClusterReference{
			Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"clean": "yes"}},
		}}}
	}
}

// custom has the Cleaner act on objects of a custom kind.
func custom(s *tale) {
	if c, ok := s.o.(*v1alpha1.Cleaner); ok {
		c.Spec.Targets = []v1alpha1.Target{{Name: "widgets", Reference: v1alpha1.Reference{APIGroup: "example.com", Version: "v1", Kind: "Widget"}}}
		c.Spec.Rules[0].ForEach = "widgets.items"
	}
}

// reads is a read of the operator, of one object or with a query.
func (s *tale) reads(verb, group, resource, what string) {
	name, _, _ := strings.Cut(what, "?")
	s.event(us, verb, group, resource, name, 200, nil, nil)
	last := &s.Audit[len(s.Audit)-1]
	last.RequestURI = "/" + resource + what
	if group != "example.com" {
		last.ObjectRef.Namespace = ""
	}
}

// templated has a template do what gated does.
func templated(s *tale) {
	gated(s)
	body := v1alpha1.TemplateBody{Targets: s.o.Work().Targets, Conditions: s.o.Common().Conditions, Rules: s.o.Common().Rules}
	if c, ok := s.o.(*v1alpha1.Cleaner); ok {
		c.Spec.Targets, c.Spec.Conditions, c.Spec.Rules, c.Spec.TemplateRef = nil, nil, nil, &v1alpha1.TemplateRef{Name: "t"}
	}
	t := v1alpha1.CleanerTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: v1alpha1.CleanerTemplateSpec{Template: body}}
	s.event(them, "create", v1alpha1.GroupVersion.Group, "cleanertemplates", "t", 201, nil, t)
}

func TestCheckJudgesRules(t *testing.T) {
	a := pod("a")
	node, config := target{"", "nodes", "", "n", "uid-n"}, target{"", "configmaps", "stock", "m", "uid-m"}
	system, own := target{"", "pods", "kube-system", "s", "uid-s"}, target{"", "pods", "cleaner-system", "o", "uid-o"}
	record, widget := target{"", "secrets", "shop", recordPrefix + "x.v1", "uid-x"}, target{"example.com", "widgets", "shop", "w", "uid-w"}
	included := func(s *tale) {
		if c, ok := s.o.(*v1alpha1.ClusterCleaner); ok {
			c.Spec.IncludeProtected = true
		}
	}
	later := func(s *tale) {
		s.wait()
		s.does(verbDelete, a)
	}
	cases := map[string]struct {
		clusterwide bool
		first       func(s *tale)
		then        func(s *tale)
		want        []string
	}{
		"Delete":          {then: func(s *tale) { s.does(verbDelete, a) }},
		"Evict":           {then: func(s *tale) { s.does(verbEvict, a) }},
		"Patch":           {then: func(s *tale) { s.does(verbPatch, a) }},
		"RemoveFinalizer": {then: func(s *tale) { s.does("removeFinalizer", a) }},
		"Anywhere":        {clusterwide: true, then: func(s *tale) { s.does(verbDelete, config); s.does(verbPatch, node) }},
		"ByItsRun": {then: func(s *tale) {
			s.does(verbDelete, a)
			s.Log[0].Evaluation, s.Log[0].Run = nil, 1
		}},

		"PatchWithoutVersion": {then: func(s *tale) {
			s.tells(verbPatch, a)
			s.sends(verbPatch, a, map[string]any{"metadata": map[string]any{"uid": a.uid}})
		}, want: []string{"I1", "I2"}},
		"PatchWithoutObject": {then: func(s *tale) {
			s.tells(verbPatch, a)
			s.sends(verbPatch, a, map[string]any{"metadata": map[string]any{"resourceVersion": "7"}})
		}, want: []string{"I2", "I2"}},
		"EvictionWithNothing": {then: func(s *tale) { s.tells(verbEvict, a); s.sends(verbEvict, a, map[string]any{"kind": "Eviction"}) }, want: []string{"I1", "I2"}},
		"OperationBeforeTest": {then: func(s *tale) {
			s.tells(verbPatch, a)
			body, _ := proper("removeFinalizer", a).([]map[string]any)
			slices.Reverse(body)
			s.sends(verbPatch, a, body)
		}, want: []string{"I1", "I2", "I2"}},

		"Uninstall": {then: func(s *tale) { s.uninstalls(record, true) }},
		"UninstallAfterAnEdit": {then: func(s *tale) {
			s.tells("helmUninstall", record)
			s.wait()
			s.edit(func(c *v1alpha1.CommonSpec) { c.Rules[0].When = "false" })
			s.wait()
			s.wait()
			s.uninstalls(record, false)
		}},
		"UninstallNotBegun": {then: func(s *tale) { s.uninstalls(record, false) }, want: []string{"I6"}},
		"UninstallOfAnotherRule": {then: func(s *tale) {
			s.tells("helmUninstall", record)
			s.Log[0].Rule = "another"
			s.uninstalls(record, false)
		}, want: []string{"I6"}},
		"UninstallOfSomethingElse": {then: func(s *tale) {
			s.uninstalls(target{"", "secrets", "shop", recordPrefix + "y.v1", "uid-y"}, true)
		}, want: []string{"I6"}},
		"UninstallWhileSuspended": {then: func(s *tale) {
			s.tells("helmUninstall", record)
			s.edit(func(c *v1alpha1.CommonSpec) { c.Suspend = true })
			s.wait()
			s.uninstalls(record, false)
		}, want: []string{"I5"}},

		"NotTold":           {then: func(s *tale) { s.sends(verbDelete, a, proper(verbDelete, a)) }, want: []string{"I2", "I2"}},
		"ToldAfterwards":    {then: func(s *tale) { s.sends(verbDelete, a, proper(verbDelete, a)); s.tells(verbDelete, a) }, want: []string{"I2", "I2"}},
		"ToldOfAnotherVerb": {then: func(s *tale) { s.tells(verbEvict, a); s.sends(verbDelete, a, proper(verbDelete, a)) }, want: []string{"I2", "I2"}},
		"PatchNotTold":      {then: func(s *tale) { s.sends(verbPatch, a, proper(verbPatch, a)) }, want: []string{"I2", "I2"}},
		"EvictionNotTold":   {then: func(s *tale) { s.sends(verbEvict, a, proper(verbEvict, a)) }, want: []string{"I2", "I2"}},
		"ToldOnce":          {then: func(s *tale) { s.does(verbPatch, a); s.sends(verbPatch, a, proper(verbPatch, a)) }, want: []string{"I2"}},
		"ToldWithoutRule":   {then: func(s *tale) { s.does(verbDelete, a); s.Log[0].Rule = "" }, want: []string{"I2"}},
		"ToldWithoutSpec":   {then: func(s *tale) { s.does(verbDelete, a); s.Log[0].Decides = "" }, want: []string{"I2"}},
		"ToldWithoutNumber": {then: func(s *tale) { s.does(verbDelete, a); s.Log[0].Evaluation = nil }, want: []string{"I2"}},
		"ToldForAnother":    {then: func(s *tale) { s.does(verbDelete, a); s.Log[0].Name = "d" }, want: []string{"I2"}},
		"Once":              {first: func(s *tale) { s.o.Common().Lifecycle = v1alpha1.LifecycleOnce }, then: func(s *tale) { s.does(verbDelete, a) }, want: []string{"I2"}},
		"AnotherIsHit": {then: func(s *tale) {
			b := pod("b")
			s.tells(verbPatch, a)
			s.sends(verbPatch, b, proper(verbPatch, a))
		}, want: []string{"I2"}},
		"InAnotherNamespace": {then: func(s *tale) { s.does(verbDelete, config) }, want: []string{"I2"}},
		"ItDeletesItself": {then: func(s *tale) {
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Runs, c.Run = 1, &v1alpha1.Run{Number: 1, Result: v1alpha1.ResultCompleted}
			})
			s.event(us, "delete", v1alpha1.GroupVersion.Group, "cleaners", "c", 200, map[string]any{"preconditions": map[string]any{"uid": "uid-c", "resourceVersion": "2"}}, nil)
		}, want: []string{"I2"}},
		"AClusterCleanerThatStaysDeletesItself": {clusterwide: true, then: func(s *tale) {
			s.event(us, "delete", v1alpha1.GroupVersion.Group, "clustercleaners", "c", 200, map[string]any{"preconditions": map[string]any{"uid": "uid-c", "resourceVersion": "1"}}, nil)
			s.Audit[len(s.Audit)-1].ObjectRef.Namespace = ""
		}, want: []string{"I2"}},
		"EventsAreItsOwn": {then: func(s *tale) {
			s.sends(verbPatch, target{"events.k8s.io", "events", "shop", "e", "uid-ev"}, map[string]any{})
		}},
		"ADryRun": {then: func(s *tale) {
			s.sends(verbPatch, a, map[string]any{})
			s.Audit[len(s.Audit)-1].RequestURI += "?dryRun=All"
		}},

		"ConditionNotRead": {first: gated, then: func(s *tale) { s.does(verbDelete, a) }, want: []string{"I3"}},
		"ConditionRead":    {first: gated, then: func(s *tale) { s.lists(200); s.does(verbDelete, a) }},
		"ConditionReadTooEarly": {first: gated, then: func(s *tale) {
			s.lists(200)
			s.now = s.now.Add(confirmationServes)
			s.does(verbDelete, a)
		}, want: []string{"I3"}},
		"ConditionReadBeforeTheDecision": {first: gated, then: func(s *tale) {
			s.lists(200)
			s.now = s.now.Add(time.Second)
			decided := s.now
			s.does(verbDelete, a)
			s.Log[len(s.Log)-1].Evaluation = decided.Format(time.RFC3339Nano)
		}, want: []string{"I3"}},
		"ConditionReadAfterTheDecision": {first: gated, then: func(s *tale) {
			decided := s.now
			s.lists(200)
			s.does(verbDelete, a)
			s.Log[len(s.Log)-1].Evaluation = decided.Format(time.RFC3339Nano)
		}},
		"ConditionReadWithoutAnswer": {first: gated, then: func(s *tale) { s.lists(200); s.lists(500); s.does(verbDelete, a) }, want: []string{"I3"}},
		"ConditionReadThroughAVariable": {first: func(s *tale) {
			gated(s)
			s.o.Common().Variables = []v1alpha1.Variable{{Name: "n", Expression: "variables.all.size()"}, {Name: "all", Expression: "pods.items"}}
			s.o.Common().Conditions = []string{"variables.n > 0"}
		}, then: func(s *tale) { s.does(verbDelete, a) }, want: []string{"I3"}},
		"NamedOtherwise": {first: func(s *tale) { gated(s); s.o.Common().Conditions = []string{"other.pods > 0"} }, then: func(s *tale) { s.does(verbDelete, a) }},
		"Confirmed":      {first: confirming, then: func(s *tale) { s.lists(200); s.does(verbDelete, a) }},
		"JoinNotProved":  {first: joining, then: func(s *tale) { s.does(verbDelete, a) }, want: []string{"I3"}},
		"JoinProved": {first: joining, then: func(s *tale) {
			s.asked("list", "/api/v1/nodes?limit=1", 200)
			s.Audit[len(s.Audit)-1].ObjectRef = &auditv1.ObjectReference{Resource: "nodes", APIVersion: "v1"}
			s.does(verbDelete, a)
		}},
		"JoinNamed": {first: func(s *tale) {
			joining(s)
			s.o.Common().Rules[0].Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: "item.spec.nodeName"}}
		}, then: func(s *tale) { s.does(verbDelete, a) }},
		"KeptNotProved": {first: func(s *tale) {
			gated(s)
			s.o.Common().Conditions = nil
			s.o.Common().Rules[0].Keep = new(intstr.FromInt32(3))
		}, then: func(s *tale) { s.does(verbDelete, a) }, want: []string{"I3"}},
		"NamespacesNotRead": {clusterwide: true, first: selecting, then: func(s *tale) { s.does(verbDelete, a) }, want: []string{"I3"}},
		"NamespacesRead": {clusterwide: true, first: selecting, then: func(s *tale) {
			s.reads("list", "", "namespaces", "?labelSelector=clean%3Dyes")
			s.does(verbDelete, a)
		}},
		"NamespacesProved":  {clusterwide: true, first: selecting, then: func(s *tale) { s.reads("list", "", "namespaces", "?limit=1"); s.does(verbDelete, a) }},
		"DefinitionNotRead": {first: custom, then: func(s *tale) { s.does(verbDelete, widget) }, want: []string{"I3"}},
		"DefinitionRead": {first: custom, then: func(s *tale) {
			s.reads("get", "apiextensions.k8s.io", "customresourcedefinitions", "widgets.example.com")
			s.does(verbDelete, widget)
		}},
		"NoDefinition": {first: custom, then: func(s *tale) {
			s.reads("get", "apiextensions.k8s.io", "customresourcedefinitions", "widgets.example.com")
			s.Audit[len(s.Audit)-1].ResponseStatus.Code = 404
			s.does(verbDelete, widget)
		}},
		"DefinitionReadAndLaterNot": {first: custom, then: func(s *tale) {
			s.reads("get", "apiextensions.k8s.io", "customresourcedefinitions", "widgets.example.com")
			s.reads("get", "apiextensions.k8s.io", "customresourcedefinitions", "widgets.example.com")
			s.Audit[len(s.Audit)-1].ResponseStatus.Code = 504
			s.does(verbDelete, widget)
		}},
		"DefinitionNotReadable": {first: custom, then: func(s *tale) {
			s.reads("get", "apiextensions.k8s.io", "customresourcedefinitions", "widgets.example.com")
			s.Audit[len(s.Audit)-1].ResponseStatus.Code = 504
			s.does(verbDelete, widget)
		}, want: []string{"I3"}},
		"AnotherDefinitionRead": {first: custom, then: func(s *tale) {
			s.reads("get", "apiextensions.k8s.io", "customresourcedefinitions", "gadgets.example.com")
			s.does(verbDelete, widget)
		}, want: []string{"I3"}},
		"DefinitionReadBeforeTheDecision": {first: custom, then: func(s *tale) {
			s.reads("get", "apiextensions.k8s.io", "customresourcedefinitions", "widgets.example.com")
			s.now = s.now.Add(time.Second)
			decided := s.now
			s.does(verbDelete, widget)
			s.Log[len(s.Log)-1].Evaluation = decided.Format(time.RFC3339Nano)
		}, want: []string{"I3"}},
		"AllReadInstead": {first: custom, then: func(s *tale) { s.reads("list", "example.com", "widgets", ""); s.does(verbDelete, widget) }},
		"NotConfirmed":   {first: confirming, then: func(s *tale) { s.does(verbDelete, a) }, want: []string{"I3"}},
		"ByATemplate": {first: func(s *tale) { templated(s) }, then: func(s *tale) {
			s.wait()
			s.does(verbDelete, a)
		}, want: []string{"I3"}},
		"ByATemplateAndRead": {first: func(s *tale) { templated(s) }, then: func(s *tale) {
			s.wait()
			s.lists(200)
			s.does(verbDelete, a)
		}},

		"BeforeTheTTL": {first: func(s *tale) { s.o.Common().TTL = "1h" }, then: func(s *tale) { s.does(verbDelete, a) }, want: []string{"I4"}},

		"Suspended": {then: func(s *tale) { s.edit(func(c *v1alpha1.CommonSpec) { c.Suspend = true }); later(s) }, want: []string{"I5"}},
		"InDryRun":  {then: func(s *tale) { s.edit(func(c *v1alpha1.CommonSpec) { c.Mode = v1alpha1.ModeDryRun }); later(s) }, want: []string{"I5"}},
		"Deleted": {then: func(s *tale) {
			s.write(them, "delete", func(o v1alpha1.Owner) {
				o.SetDeletionTimestamp(&metav1.Time{Time: s.now})
				o.SetFinalizers([]string{"x"})
			})
			later(s)
		}, want: []string{"I5"}},
		"EditedAndStillDecidedByTheOldSpec": {then: func(s *tale) {
			s.does(verbPatch, a)
			s.wait()
			s.edit(func(c *v1alpha1.CommonSpec) { c.Rules[0].When = "false" })
			later(s)
		}, want: []string{"I5"}},
		"EditedAndDecidedAnew": {then: func(s *tale) {
			s.does(verbPatch, a)
			s.wait()
			s.edit(func(c *v1alpha1.CommonSpec) { c.Rules[0].When = "false" })
			s.decides = "v1:b"
			later(s)
		}},
		"EditedInWhatDoesNotDecide": {then: func(s *tale) {
			s.does(verbPatch, a)
			s.wait()
			s.edit(func(c *v1alpha1.CommonSpec) {
				c.Schedule, c.CloudEventSink, c.Validation = "* * * * *", "http://sink", v1alpha1.ValidationIgnore
			})
			later(s)
		}},

		"ProtectedNamespace":       {clusterwide: true, then: func(s *tale) { s.does(verbDelete, system) }, want: []string{"I6"}},
		"PatchedThere":             {clusterwide: true, then: func(s *tale) { s.does(verbPatch, system) }, want: []string{"I6"}},
		"ProtectedAndIncluded":     {clusterwide: true, first: included, then: func(s *tale) { s.does(verbDelete, system) }},
		"TheOperatorsOwn":          {clusterwide: true, first: included, then: func(s *tale) { s.does(verbPatch, own) }, want: []string{"I6"}},
		"ANodeIsPatched":           {clusterwide: true, then: func(s *tale) { s.does(verbPatch, node) }},
		"ANodeIsDeleted":           {clusterwide: true, then: func(s *tale) { s.does(verbDelete, node) }, want: []string{"I6"}},
		"ANodeThatMayBeDeleted":    {clusterwide: true, first: func(s *tale) { s.AllowedKinds = []string{"nodes"} }, then: func(s *tale) { s.does(verbDelete, node) }},
		"ANodeIsPatchedByACleaner": {then: func(s *tale) { s.does(verbPatch, node) }, want: []string{"I2", "I6"}},
		"ARecordOfARelease":        {then: func(s *tale) { s.does(verbPatch, record) }, want: []string{"I6"}},
		"ASupersededRecord":        {first: records, then: func(s *tale) { s.records(record, "superseded"); s.does(verbDelete, record) }},
		"ThatIsPatched":            {first: records, then: func(s *tale) { s.records(record, "superseded"); s.does(verbPatch, record) }, want: []string{"I6"}},
		"ThatIsDeployed": {first: records, then: func(s *tale) {
			s.records(record, "superseded")
			s.records(record, "deployed")
			s.does(verbDelete, record)
		}, want: []string{"I6"}},
		"NotAskedFor":       {then: func(s *tale) { s.records(record, "superseded"); s.does(verbDelete, record) }, want: []string{"I6"}},
		"AmongOtherSecrets": {first: func(s *tale) { records(s); s.selects("Secret", "") }, then: func(s *tale) { s.records(record, "superseded"); s.does(verbDelete, record) }, want: []string{"I6"}},
		"ProtectedPod": {then: func(s *tale) {
			s.event(them, "patch", "", "pods", "a", 200, nil, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "uid-a", Annotations: map[string]string{v1alpha1.ProtectKey: "true"}}})
			s.does(verbEvict, a)
		}, want: []string{"I6"}},

		"TooMany": {then: func(s *tale) { s.does(verbDelete, a); s.does(verbEvict, pod("b")); s.does(verbPatch, pod("d")) }, want: []string{"I7"}},
		"OneThrice": {then: func(s *tale) {
			s.does(verbPatch, a)
			s.does("removeFinalizer", a)
			s.does(verbDelete, a)
			s.does(verbDelete, pod("b"))
		}},
		"OneAnHour": {then: func(s *tale) {
			for i := range 5 {
				s.does(verbDelete, pod(fmt.Sprint(i)))
				s.now = s.now.Add(time.Hour)
			}
		}},
		"OneAMinuteIsTooMany": {then: func(s *tale) {
			for i := range 3 {
				s.does(verbDelete, pod(fmt.Sprint(i)))
				s.now = s.now.Add(time.Minute)
			}
		}, want: []string{"I7"}},
		"OneAMinute": {first: func(s *tale) { s.o.Common().Limits.Per = "90s" }, then: func(s *tale) {
			for i := range 3 {
				s.does(verbDelete, pod(fmt.Sprint(i)))
				s.now = s.now.Add(time.Minute)
			}
		}},
		"AfterARestart": {then: func(s *tale) {
			s.does(verbDelete, a)
			s.does(verbDelete, pod("b"))
			s.Log = append(s.Log, Line{Time: s.now.Add(200 * time.Millisecond), Message: begins})
			s.does(verbDelete, pod("d"))
		}},
		"RefusedOnesDoNotCount": {then: func(s *tale) {
			for i := range 3 {
				s.does(verbDelete, pod(fmt.Sprint(i)))
				s.Audit[len(s.Audit)-1].ResponseStatus.Code = 409
			}
		}},
		"HalfOfAll":    {first: halved, then: func(s *tale) { s.does(verbDelete, a); s.does(verbDelete, pod("b")) }},
		"MoreThanHalf": {first: halved, then: func(s *tale) { s.does(verbDelete, a); s.does(verbDelete, pod("b")); s.does(verbDelete, pod("d")) }, want: []string{"I7"}},
		"HalfEachTime": {first: halved, then: func(s *tale) {
			s.does(verbDelete, a)
			s.does(verbDelete, pod("b"))
			s.now = s.now.Add(time.Hour)
			s.does(verbDelete, pod("d"))
		}},
		"NoLimits": {first: func(s *tale) { s.o.Common().Limits = nil }, then: func(s *tale) {
			for i := range 3 {
				s.does(verbDelete, pod(fmt.Sprint(i)))
			}
		}},
		"TooFast": {first: func(s *tale) { s.o.Common().Limits = &v1alpha1.Limits{ActionsPerSecond: 2} }, then: func(s *tale) {
			for i := range 60 {
				s.does(verbDelete, pod(fmt.Sprint(i)))
				s.now = s.now.Add(-time.Second)
			}
		}, want: []string{"I7"}},
		"FastEnough": {first: func(s *tale) { s.o.Common().Limits = &v1alpha1.Limits{ActionsPerSecond: 2} }, then: func(s *tale) {
			for i := range 60 {
				s.does(verbDelete, pod(fmt.Sprint(i)))
				s.now = s.now.Add(-500 * time.Millisecond)
			}
		}},

		"RowsAreAdded": {then: func(s *tale) {
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Runs, c.Run = 1, &v1alpha1.Run{Lifecycle: v1alpha1.LifecycleRecurring, Number: 1, Rows: []string{"r pods/v1 shop/a uid-a 7"}}
			})
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Run.Rows = append(slices.Clone(c.Run.Rows), "r pods/v1 shop/b uid-b 7")
			})
		}},
		"RowsAreAddedToARunThatIsCommitted": {then: func(s *tale) {
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Runs, c.Run = 1, &v1alpha1.Run{Number: 1, Rows: []string{"r pods/v1 shop/a uid-a 7"}}
			})
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Run.Rows = append(slices.Clone(c.Run.Rows), "r pods/v1 shop/b uid-b 7")
			})
		}, want: []string{"I9"}},
		"FinishedAndMoved": {then: func(s *tale) {
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Runs, c.Run = 1, &v1alpha1.Run{Lifecycle: v1alpha1.LifecycleRecurring, Number: 1}
			})
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Run, c.Unsent = nil, &v1alpha1.Run{Number: 1, Result: v1alpha1.ResultCompleted}
			})
			s.status(func(c *v1alpha1.CleanerStatus) { c.Runs, c.Run = 2, &v1alpha1.Run{Number: 2} })
		}},
		"TheSinkIsRemoved": {then: func(s *tale) {
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Runs, c.Run = 1, &v1alpha1.Run{Lifecycle: v1alpha1.LifecycleRecurring, Number: 1}
			})
			s.status(func(c *v1alpha1.CleanerStatus) { c.Run = nil })
		}},
		"DroppedWithASink": {first: func(s *tale) { s.o.Common().CloudEventSink = "http://sink" }, then: func(s *tale) {
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Runs, c.Run = 1, &v1alpha1.Run{Lifecycle: v1alpha1.LifecycleRecurring, Number: 1}
			})
			s.status(func(c *v1alpha1.CleanerStatus) { c.Run = nil })
		}, want: []string{"I9"}},
		"WhatIsUnsentChanges": {then: func(s *tale) {
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Runs, c.Unsent = 1, &v1alpha1.Run{Number: 1, Result: v1alpha1.ResultCompleted}
			})
			s.status(func(c *v1alpha1.CleanerStatus) { c.Unsent = &v1alpha1.Run{Number: 1, Result: v1alpha1.ResultPartial} })
		}, want: []string{"I9"}},
		"RecordedBlindly": {then: func(s *tale) {
			s.status(func(c *v1alpha1.CleanerStatus) {
				c.Runs, c.Run = 1, &v1alpha1.Run{Lifecycle: v1alpha1.LifecycleRecurring, Number: 1}
			})
			s.Audit[len(s.Audit)-1].RequestObject = raw(map[string]any{})
		}, want: []string{"I2"}},

		"StaysSilently": {clusterwide: true, then: func(s *tale) { s.Cleaners = []v1alpha1.Owner{s.o} }, want: []string{"I12"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newTale(t, tc.clusterwide)
			if tc.first != nil {
				tc.first(s)
			}
			s.create()
			tc.then(s)
			var got []string
			violations := Check(&s.Record)
			for _, v := range violations {
				got = append(got, v.Invariant)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("broken are %v, want %v: %v", got, tc.want, violations)
			}
		})
	}
}

// What a ClusterCleaner does in a namespace is judged there, and what it does where nobody looks is judged by all.
func TestCheckJudgesClusterCleanersFromANamespace(t *testing.T) {
	for name, tc := range map[string]struct {
		at   target
		want []string
	}{
		"Here":      {pod("a"), []string{"I2", "I2"}},
		"Nowhere":   {target{"", "nodes", "", "n", "uid-n"}, []string{"I2", "I2", "I6"}},
		"Unknown":   {target{"", "pods", "stock", "a", "uid-a"}, []string{"I2", "I2"}},
		"Elsewhere": {target{"", "pods", "other", "a", "uid-a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for told, want := range map[bool][]string{true: nil, false: tc.want} {
				s := newTale(t, true)
				s.Namespaces, s.Elsewhere = []string{"shop"}, []string{"other"}
				s.create()
				if told {
					s.tells(verbPatch, tc.at)
				}
				s.sends(verbPatch, tc.at, proper(verbPatch, tc.at))
				var got []string
				for _, v := range Check(&s.Record) {
					got = append(got, v.Invariant)
				}
				if !slices.Equal(got, want) {
					t.Errorf("told %t: broken are %v, want %v", told, got, want)
				}
			}
		})
	}
}

// A run that is finished while it is moved to unsent is owed to the sink like any other.
func TestCheckJudgesWhatIsUnsent(t *testing.T) {
	for _, kept := range []bool{true, false} {
		to := sink.Start(t)
		s := newTale(t, true)
		s.Sinks, s.o.Common().CloudEventSink = []*sink.Sink{to}, to.URL
		s.create()
		s.status(func(c *v1alpha1.CleanerStatus) {
			c.Runs, c.Unsent = 1, &v1alpha1.Run{Number: 1, Result: v1alpha1.ResultCompleted}
			c.Conditions = []metav1.Condition{
				{Type: v1alpha1.ConditionReady, Reason: "r", Message: "m"}, {Type: v1alpha1.ConditionDelivered, Status: metav1.ConditionFalse},
			}
		})
		if !kept {
			s.status(func(c *v1alpha1.CleanerStatus) { c.Unsent = nil })
		}
		s.Cleaners = []v1alpha1.Owner{s.o}
		violations := Check(&s.Record)
		if broken := len(violations) == 1 && violations[0].Invariant == "I8"; broken == kept {
			t.Errorf("kept %t: %v", kept, violations)
		}
	}
}

func TestARunWithMoreObjectsThanItMayIsFound(t *testing.T) {
	s := newStory(t)
	s.c.Spec.Limits = &v1alpha1.Limits{MaxActions: 1}
	for _, step := range steps() {
		if step == "committed" {
			s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) {
				c.Status.Runs, c.Status.Run = 1, &v1alpha1.Run{Number: 1, Rows: []string{
					"targets.evidence configmaps/v1 shop/evidence uid-e 7", "targets.evidence configmaps/v1 shop/more uid-m 7",
				}}
			})
			continue
		}
		s.play(step)
	}
	if v := Check(&s.Record); len(v) != 1 || v[0].Invariant != "I7" {
		t.Errorf("broken are %v", v)
	}
}
