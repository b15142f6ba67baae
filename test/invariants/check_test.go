// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/sink"
)

const us, them = "operator", "somebody"

// story is a record in the making: one thing after the other, a second apart.
type story struct {
	*testing.T
	Record
	now time.Time
	c   v1alpha1.Cleaner
	rv  int
}

func newStory(t *testing.T) *story {
	s := &story{T: t, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	s.Operator, s.Protected = us, []string{"kube-system"}
	s.Namespaces, s.Elsewhere = []string{"shop"}, []string{"other"}
	s.c = v1alpha1.Cleaner{
		TypeMeta:   metav1.TypeMeta{APIVersion: "cleaner.vtex.dev/v1alpha1", Kind: "Cleaner"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "uid-c", CreationTimestamp: metav1.NewTime(s.now)},
		Spec: v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{TTL: "2s"}, Targets: []v1alpha1.Target{{
			Name: "evidence", Delete: true, Reference: v1alpha1.Reference{Version: "v1", Kind: "ConfigMap", Name: "evidence"},
		}}},
	}
	return s
}

func raw(v any) *runtime.Unknown {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return &runtime.Unknown{Raw: text}
}

func (s *story) event(user, verb, group, resource, name string, code int32, request, response any) {
	s.now = s.now.Add(time.Second)
	e := cluster.Event{Event: auditv1.Event{
		Verb: verb, RequestURI: "/" + resource + "/" + url.PathEscape(name), User: authenticationv1.UserInfo{Username: user},
		ObjectRef:                &auditv1.ObjectReference{APIGroup: group, Resource: resource, Namespace: s.c.Namespace, Name: name},
		ResponseStatus:           &metav1.Status{Code: code},
		RequestReceivedTimestamp: metav1.NewMicroTime(s.now), StageTimestamp: metav1.NewMicroTime(s.now.Add(time.Millisecond)),
		Annotations: map[string]string{"authorization.k8s.io/decision": "allow"},
	}}
	if request != nil {
		e.RequestObject = raw(request)
	}
	if response != nil {
		e.ResponseObject = raw(response)
	}
	s.Audit = append(s.Audit, e)
}

// cleaner is a write to the Cleaner.
func (s *story) cleaner(user, verb string, change func(c *v1alpha1.Cleaner)) {
	change(&s.c)
	old := s.c.ResourceVersion
	s.rv++
	s.c.ResourceVersion = fmt.Sprint(s.rv)
	s.event(user, verb, "cleaner.vtex.dev", "cleaners", "c", 200, map[string]any{"metadata": map[string]any{"resourceVersion": old}}, s.c)
}

func (s *story) created()     { s.cleaner(them, "create", func(*v1alpha1.Cleaner) {}) }
func (s *story) wait()        { s.now = s.now.Add(5 * time.Second) }
func (s *story) read(c int32) { s.event(us, "get", "", "configmaps", s.evidence(), c, nil, nil) }

// named gives the object that is deleted another name.
func (s *story) named(name string) { s.c.Spec.Targets[0].Reference.Name = name }

func (s *story) evidence() string { return s.c.Spec.Targets[0].Reference.Name }

// asked is another read of ConfigMaps.
func (s *story) asked(verb, uri string, code int32) {
	s.event(us, verb, "", "configmaps", "", code, nil, nil)
	s.Audit[len(s.Audit)-1].RequestURI = uri
}

func (s *story) held() {
	s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) { c.Finalizers = []string{v1alpha1.Finalizer} })
}

func (s *story) committed() {
	s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) {
		c.Status.Runs, c.Status.Run = 1, &v1alpha1.Run{Number: 1, Rows: []string{"targets.evidence configmaps/v1 shop/" + s.evidence() + " uid-e 7"}}
	})
}

func (s *story) intent(uid string) {
	s.Log = append(s.Log, Line{Time: s.now.Add(500 * time.Millisecond), Message: "Intent", Namespace: "shop", Name: "c", Run: 1, Verb: "delete", UID: uid, Version: "7"})
}

// deleted is a granted DELETE that demanded and hit these UIDs.
func (s *story) deleted(resource, demanded, hit string) {
	options := map[string]any{"kind": "DeleteOptions"}
	if demanded != "" {
		options["preconditions"] = map[string]any{"uid": demanded, "resourceVersion": "7"}
	}
	s.event(us, "delete", "", resource, s.evidence(), 200, options, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status"}, Details: &metav1.StatusDetails{UID: types.UID(hit)},
	})
}

// lost is a DELETE that was aborted half-way.
func (s *story) lost() {
	s.deleted("configmaps", "uid-e", "uid-e")
	e := &s.Audit[len(s.Audit)-1]
	e.ResponseStatus, e.ResponseObject = &metav1.Status{Code: http.StatusInternalServerError}, nil
}

// leaveUnanswered makes the last request one that recorded a run and was not answered.
func leaveUnanswered(s *story) {
	e := &s.Audit[len(s.Audit)-1]
	e.RequestObject, e.ResponseObject, e.ResponseStatus.Code = raw(map[string]any{
		"metadata": map[string]any{"resourceVersion": "2"}, "status": map[string]any{"run": s.c.Status.Run},
	}), nil, http.StatusGatewayTimeout
}

// deletedAgain is a second DELETE, which is told of as such.
func (s *story) deletedAgain() {
	s.intent("uid-e")
	line := &s.Log[len(s.Log)-1]
	line.Version, line.Again = "8", true
	s.event(us, "delete", "", "configmaps", s.evidence(), 200, map[string]any{"preconditions": map[string]any{"uid": "uid-e", "resourceVersion": "8"}},
		metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Details: &metav1.StatusDetails{UID: "uid-e"}})
}

// twoAtATime are the DELETEs of two Cleaners, of which the second one is answered first, with a conflict.
func twoAtATime(s *story) {
	s.deleted("configmaps", "uid-e", "uid-e")
	s.intent("uid-e")
	s.deleted("configmaps", "uid-e", "uid-e")
	first, second := &s.Audit[len(s.Audit)-2], &s.Audit[len(s.Audit)-1]
	second.ResponseStatus, second.ResponseObject = &metav1.Status{Code: http.StatusConflict}, nil
	first.StageTimestamp = metav1.NewMicroTime(second.StageTimestamp.Add(time.Millisecond))
}

// astray is a DELETE with its preconditions and its Intent, in a namespace or in none.
func (s *story) astray(namespace, resource string) {
	group := ""
	if resource == "cleaners" {
		group = v1alpha1.GroupVersion.Group
	}
	s.intent("uid-a")
	s.event(us, "delete", group, resource, "evidence", 200,
		map[string]any{"preconditions": map[string]any{"uid": "uid-a", "resourceVersion": "7"}},
		metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Details: &metav1.StatusDetails{UID: "uid-a"}})
	s.Audit[len(s.Audit)-1].ObjectRef.Namespace = namespace
}

func (s *story) finished() {
	s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) { c.Status.Run = &v1alpha1.Run{Number: 1, Result: v1alpha1.ResultCompleted} })
}

func (s *story) gone() { s.goneAt(s.c.ResourceVersion) }

// goneAt is gone by a DELETE that demanded another version.
func (s *story) goneAt(version string) {
	uid := s.c.UID
	s.c.DeletionTimestamp = &metav1.Time{Time: s.now}
	s.rv++
	s.c.ResourceVersion = fmt.Sprint(s.rv)
	s.event(us, "delete", "cleaner.vtex.dev", "cleaners", "c", 200, map[string]any{"preconditions": map[string]any{"uid": uid, "resourceVersion": version}}, s.c)
	s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) { c.Finalizers = nil })
}

// stays is a Cleaner that is there at the end, at a generation, and says why for that or another one.
func (s *story) stays(generation, says int64) {
	s.c.Generation = generation
	s.c.Status.Conditions = append(s.c.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Reason: "Suspended", Message: "It is suspended.", ObservedGeneration: says,
	})
	s.Cleaners = []v1alpha1.Owner{&s.c}
}

// steps are a whole life, one thing after the other.
func steps() []string {
	return []string{"created", "wait", "read", "held", "committed", "intent", "deleted", "finished", "gone"}
}

func (s *story) play(name string) {
	map[string]func(){
		"created": s.created, "wait": s.wait, "read": func() { s.read(200) }, "held": s.held, "committed": s.committed,
		"intent": func() { s.intent("uid-e") }, "deleted": func() { s.deleted("configmaps", "uid-e", "uid-e") }, "finished": s.finished, "gone": s.gone,
	}[name]()
}

func TestCheckFindsEachBrokenPromise(t *testing.T) {
	set := func(s *story) {
		s.c.Spec.Targets[0].Reference = v1alpha1.Reference{
			Version: "v1", Kind: "ConfigMap", FieldSelector: "metadata.namespace=shop", MatchLabels: map[string]string{"app": "shop"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"b", "a"}}},
		}
	}
	suspend := func(s *story) { s.cleaner(them, "update", func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }) }
	cases := map[string]struct {
		// instead of a step, something else; before the first one, with the name "".
		instead map[string]func(s *story)
		want    []string
	}{
		"Sound":              {},
		"ANameWithSpaces":    {instead: map[string]func(*story){"": func(s *story) { s.named(" evi  dence ") }}},
		"ANameLikeADryRun":   {instead: map[string]func(*story){"": func(s *story) { s.named("?dryRun=All") }, "deleted": func(s *story) { s.deleted("configmaps", "uid-x", "uid-x") }}, want: []string{"I2", "I2"}},
		"TwoAtATime":         {instead: map[string]func(*story){"deleted": twoAtATime}},
		"NoPreconditions":    {instead: map[string]func(*story){"deleted": func(s *story) { s.deleted("configmaps", "", "uid-e") }}, want: []string{"I1", "I2"}},
		"ACollection":        {instead: map[string]func(*story){"deleted": func(s *story) { s.event(us, "deletecollection", "", "configmaps", "", 200, nil, nil) }}, want: []string{"I1"}},
		"AnotherObject":      {instead: map[string]func(*story){"deleted": func(s *story) { s.deleted("configmaps", "uid-e", "uid-new") }}, want: []string{"I2"}},
		"NotInTheRows":       {instead: map[string]func(*story){"deleted": func(s *story) { s.deleted("configmaps", "uid-x", "uid-x") }}, want: []string{"I2", "I2"}},
		"AnotherResource":    {instead: map[string]func(*story){"deleted": func(s *story) { s.deleted("secrets", "uid-e", "uid-e") }}, want: []string{"I2"}},
		"NoIntent":           {instead: map[string]func(*story){"intent": func(*story) {}}, want: []string{"I2"}},
		"Again":              {instead: map[string]func(*story){"deleted": func(s *story) { s.lost(); s.deletedAgain() }}},
		"AgainWithoutAFirst": {instead: map[string]func(*story){"deleted": (*story).deletedAgain}, want: []string{"I13"}},
		"AThird":             {instead: map[string]func(*story){"deleted": func(s *story) { s.lost(); s.deletedAgain(); s.deletedAgain() }}, want: []string{"I13"}},
		"AgainThoughHeld": {instead: map[string]func(*story){"deleted": func(s *story) {
			s.lost()
			s.event(them, "patch", "", "configmaps", "evidence", 200, nil, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "uid-e", Finalizers: []string{"example.test/hold"}}})
			s.deletedAgain()
		}}, want: []string{"I13"}},
		"TwiceForOneIntent":      {instead: map[string]func(*story){"deleted": func(s *story) { s.play("deleted"); s.play("deleted") }}, want: []string{"I2"}},
		"RecordedAfterwards":     {instead: map[string]func(*story){"committed": func(*story) {}, "finished": func(s *story) { s.committed(); s.finished() }}, want: []string{"I2"}},
		"RecordedBySomebodyElse": {instead: map[string]func(*story){"committed": func(s *story) { s.committed(); s.Audit[len(s.Audit)-1].User.Username = them }}, want: []string{"I2"}},
		"ForgedInVain": {instead: map[string]func(*story){"committed": func(s *story) {
			s.cleaner(them, "patch", func(c *v1alpha1.Cleaner) { c.Status.Run = &v1alpha1.Run{Number: 7, Rows: []string{"forged"}} })
			s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) { c.Labels = map[string]string{"kept": "as it was"} })
			s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) { c.Status.Run = nil })
			s.committed()
		}}},
		"RecordedBlindly": {instead: map[string]func(*story){"committed": func(s *story) { s.committed(); s.Audit[len(s.Audit)-1].RequestObject = raw(map[string]any{}) }}, want: []string{"I2"}},
		"GoneUnfinished":  {instead: map[string]func(*story){"finished": func(*story) {}}, want: []string{"I2", "I9"}},
		"NotRead":         {instead: map[string]func(*story){"read": func(*story) {}}, want: []string{"I3"}},
		"ReadAsAList": {instead: map[string]func(*story){"read": func(s *story) {
			s.asked("list", "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Devidence&resourceVersion=0", 200)
		}}, want: []string{"I3"}},
		"AnotherRead":          {instead: map[string]func(*story){"read": func(s *story) { s.read(200); s.Audit[len(s.Audit)-1].ObjectRef.Name = "other" }}, want: []string{"I3"}},
		"ReadAndMissing":       {instead: map[string]func(*story){"read": func(s *story) { s.read(404) }}, want: []string{"I3"}},
		"ReadAndMissingAsNull": {instead: map[string]func(*story){"": func(s *story) { s.c.Spec.Targets[0].OnMissing = v1alpha1.OnMissingAsNull }, "read": func(s *story) { s.read(404) }}},
		"ASetRead": {instead: map[string]func(*story){"": set, "read": func(s *story) {
			s.asked("list", "/api/v1/namespaces/shop/configmaps?labelSelector=app%3Dshop%2Ctier+in+%28a%2Cb%29&fieldSelector=metadata.namespace%3Dshop&limit=500", 200)
		}}},
		"ASetReadFromTheCache": {instead: map[string]func(*story){"": set, "read": func(s *story) {
			s.asked("list", "/api/v1/namespaces/shop/configmaps?labelSelector=app%3Dshop%2Ctier+in+%28a%2Cb%29&fieldSelector=metadata.namespace%3Dshop&resourceVersion=0", 200)
		}}, want: []string{"I3"}},
		"ASetReadByAnotherSelector": {instead: map[string]func(*story){"": set, "read": func(s *story) {
			s.asked("list", "/api/v1/namespaces/shop/configmaps?labelSelector=app%3Dshop&fieldSelector=metadata.namespace%3Dshop", 200)
		}}, want: []string{"I3"}},
		"ASetReadByOtherFields": {instead: map[string]func(*story){"": set, "read": func(s *story) {
			s.asked("list", "/api/v1/namespaces/shop/configmaps?labelSelector=app%3Dshop%2Ctier+in+%28a%2Cb%29", 200)
		}}, want: []string{"I3"}},
		"ASetOfWhichOneWasRead": {instead: map[string]func(*story){"": set}, want: []string{"I3"}},
		"NotReadLately":         {instead: map[string]func(*story){"held": func(s *story) { s.wait(); s.wait(); s.wait(); s.held() }}, want: []string{"I3"}},
		"ReadAndForbidden":      {instead: map[string]func(*story){"read": func(s *story) { s.read(403) }}, want: []string{"I3"}},
		"BeforeTheTTL":          {instead: map[string]func(*story){"": func(s *story) { s.c.Spec.TTL = "1h" }}, want: []string{"I4", "I4"}},
		"Suspended":             {instead: map[string]func(*story){"intent": func(s *story) { suspend(s); s.wait(); s.intent("uid-e") }}, want: []string{"I5"}},
		"SuspendedInFlight":     {instead: map[string]func(*story){"deleted": func(s *story) { suspend(s); s.wait(); s.play("deleted") }}},
		"SuspendedAndResumed": {instead: map[string]func(*story){"intent": func(s *story) {
			suspend(s)
			s.wait()
			s.cleaner(them, "update", func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false })
			s.intent("uid-e")
		}}},
		"Edited": {instead: map[string]func(*story){"intent": func(s *story) {
			s.cleaner(them, "update", func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"false"} })
			s.wait()
			s.intent("uid-e")
		}}, want: []string{"I5"}},
		"Deleted": {instead: map[string]func(*story){"intent": func(s *story) {
			s.cleaner(them, "delete", func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &metav1.Time{Time: s.now} })
			s.wait()
			s.intent("uid-e")
		}}, want: []string{"I5"}},
		"ProtectedNamespace":           {instead: map[string]func(*story){"": func(s *story) { s.Protected = []string{"shop"} }}, want: []string{"I6"}},
		"ClusterScoped":                {instead: map[string]func(*story){"gone": func(s *story) { s.astray("", "nodes"); s.gone() }}, want: []string{"I2", "I6"}},
		"ANamespace":                   {instead: map[string]func(*story){"gone": func(s *story) { s.astray("evidence", "namespaces"); s.gone() }}, want: []string{"I2", "I6"}},
		"AProtectedNamespaceElsewhere": {instead: map[string]func(*story){"gone": func(s *story) { s.astray("kube-system", "configmaps"); s.gone() }}, want: []string{"I2", "I6"}},
		"AnotherNamespace":             {instead: map[string]func(*story){"gone": func(s *story) { s.astray("stock", "configmaps"); s.gone() }}, want: []string{"I2"}},
		"ACleanerInAnotherNamespace":   {instead: map[string]func(*story){"gone": func(s *story) { s.astray("stock", "cleaners"); s.gone() }}, want: []string{"I2"}},
		"ACollectionInAnotherNamespace": {instead: map[string]func(*story){"gone": func(s *story) {
			s.event(us, "deletecollection", "", "configmaps", "", 200, nil, nil)
			s.Audit[len(s.Audit)-1].ObjectRef.Namespace = "stock"
			s.gone()
		}}, want: []string{"I1"}},
		"WhereAnotherTestIs": {instead: map[string]func(*story){"gone": func(s *story) { s.astray("other", "configmaps"); s.gone() }}},
		"BySomebodyElseElsewhere": {instead: map[string]func(*story){"gone": func(s *story) {
			s.astray("stock", "configmaps")
			s.Audit[len(s.Audit)-1].User.Username = them
			s.gone()
		}}},
		"ProtectedObject": {instead: map[string]func(*story){"intent": func(s *story) {
			s.event(them, "patch", "", "configmaps", "evidence", 200, nil, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "uid-e", Labels: map[string]string{v1alpha1.ProtectKey: "true"}}})
			s.intent("uid-e")
		}}, want: []string{"I6"}},
		"RowsChanged": {instead: map[string]func(*story){"intent": func(s *story) {
			s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) { c.Status.Run.Rows = append(slices.Clone(c.Status.Run.Rows), "another") })
			s.intent("uid-e")
		}}, want: []string{"I9"}},
		"Dropped": {instead: map[string]func(*story){"finished": func(s *story) { s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) { c.Status.Run = nil }) }}, want: []string{"I2", "I9"}},
		"ResultChanged": {instead: map[string]func(*story){"gone": func(s *story) {
			s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) { c.Status.Run = &v1alpha1.Run{Number: 1, Result: v1alpha1.ResultPartial} })
			s.gone()
		}}, want: []string{"I2", "I9"}},
		"GoneByAnOlderVersion": {instead: map[string]func(*story){"gone": func(s *story) { s.goneAt("2") }}, want: []string{"I2"}},
		"GoneInTheNextRun": {instead: map[string]func(*story){"gone": func(s *story) {
			s.play("read")
			s.cleaner(us, "patch", func(c *v1alpha1.Cleaner) { c.Status.Runs, c.Status.Run = 2, &v1alpha1.Run{Number: 2} })
			s.gone()
		}}, want: []string{"I2", "I9"}},
		"StaysSilently": {instead: map[string]func(*story){"gone": func(s *story) { s.Cleaners = []v1alpha1.Owner{&s.c} }}, want: []string{"I12"}},
		"StaysAndSaysWhy": {instead: map[string]func(*story){"gone": func(s *story) {
			s.stays(2, 2)
		}}},
		"StaysAndSaysWhyItWasThere": {instead: map[string]func(*story){"gone": func(s *story) { s.stays(2, 1) }}, want: []string{"I12"}},
		"StaysForOthers": {instead: map[string]func(*story){"gone": func(s *story) {
			s.c.DeletionTimestamp, s.c.Finalizers = &metav1.Time{Time: s.now}, []string{"example.test/theirs"}
			s.Cleaners = []v1alpha1.Owner{&s.c}
		}}},
		"KilledBeforeTheAnswerToTheResult": {instead: map[string]func(*story){"finished": func(s *story) { // stored all the same
			s.finished()
			e := &s.Audit[len(s.Audit)-1]
			e.RequestObject, e.ResponseObject, e.ResponseStatus.Code = raw(map[string]any{
				"status": map[string]any{"run": map[string]any{"result": "Completed"}},
			}), nil, 504
		}}},
		"KilledBeforeTheAnswer": {instead: map[string]func(*story){"committed": func(s *story) { // stored all the same
			s.committed()
			leaveUnanswered(s)
		}}},
		"KilledBeforeTwoAnswers": {instead: map[string]func(*story){"committed": func(s *story) { // only the second one was stored
			before := s.c
			s.named("other")
			s.committed()
			leaveUnanswered(s)
			s.c = before
			s.named("evidence")
			s.committed()
			leaveUnanswered(s)
		}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			if first := tc.instead[""]; first != nil {
				first(s)
			}
			for _, step := range steps() {
				if other := tc.instead[step]; other != nil {
					other(s)
					continue
				}
				s.play(step)
			}
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

func TestCheckJudgesDelivery(t *testing.T) {
	post := func(t *testing.T, s *sink.Sink, id, data string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Ce-Id", id)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
		resp.Body.Close()
	}
	cases := map[string]struct {
		sent func(t *testing.T, s *sink.Sink)
		// kept says that the Cleaner is there, and what it says of the delivery.
		kept metav1.ConditionStatus
		want []string
	}{
		"Kept":            {sent: func(*testing.T, *sink.Sink) {}, kept: metav1.ConditionFalse},
		"KeptAndDenied":   {sent: func(*testing.T, *sink.Sink) {}, kept: metav1.ConditionTrue, want: []string{"I8"}},
		"KeptAndNotAsked": {sent: func(*testing.T, *sink.Sink) {}, kept: metav1.ConditionUnknown, want: []string{"I8"}},
		"Delivered": {sent: func(t *testing.T, s *sink.Sink) {
			s.Answer(sink.Codes(503)...)
			post(t, s, "uid-c-1", "a")
			post(t, s, "uid-c-1", "a")
		}},
		"NotSent":    {sent: func(*testing.T, *sink.Sink) {}, want: []string{"I8"}},
		"NotTaken":   {sent: func(t *testing.T, s *sink.Sink) { s.Answer(sink.Codes(503)...); post(t, s, "uid-c-1", "a") }, want: []string{"I8"}},
		"AnotherRun": {sent: func(t *testing.T, s *sink.Sink) { post(t, s, "uid-c-2", "a") }, want: []string{"I8"}},
		"Different":  {sent: func(t *testing.T, s *sink.Sink) { post(t, s, "uid-c-1", "a"); post(t, s, "uid-c-1", "b") }, want: []string{"I8"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			to := sink.Start(t)
			tc.sent(t, to)
			s := newStory(t)
			s.Sinks, s.c.Spec.CloudEventSink = []*sink.Sink{to}, to.URL
			for _, step := range steps() {
				if step == "gone" && tc.kept != "" {
					s.c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDelivered, Status: tc.kept}}
					s.stays(1, 1)
					continue
				}
				s.play(step)
			}
			var got []string
			for _, v := range Check(&s.Record) {
				got = append(got, v.Invariant)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("broken are %v, want %v", got, tc.want)
			}
		})
	}
}
