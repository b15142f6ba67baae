// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

func TestConfig(t *testing.T) {
	operator := &rest.Config{Host: "https://api.example.com", BearerToken: "secret"}
	for name, tc := range map[string]struct {
		account Account
		want    string
		fails   bool
	}{
		"Operator":    {Account{}, "", false},
		"Account":     {Account{"shop", "cleaner"}, "system:serviceaccount:shop:cleaner", false},
		"NoName":      {Account{Namespace: "shop"}, "", true},
		"NoNamespace": {Account{Name: "cleaner"}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := tc.account.NewConfig(operator)
			if (err != nil) != tc.fails {
				t.Fatalf("got error %v, want one: %t", err, tc.fails)
			}
			if err == nil && c.Impersonate.UserName != tc.want {
				t.Errorf("acts as %q, want %q", c.Impersonate.UserName, tc.want)
			}
			if operator.Impersonate.UserName != "" {
				t.Error("the operator's own configuration was changed")
			}
		})
	}
}

// pods knows one pod, whatever it is asked.
type pods struct{}

func (pods) Read(context.Context, snapshot.Query) observed.Target {
	return observed.Target{
		State: observed.Complete, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true,
		Objects: make([]observed.Object, 1),
	}
}

// reviewer answers reviews, and remembers what it was asked.
type reviewer struct {
	deny  map[string]bool // verbs
	err   error
	asked []string
	specs []authorizationv1.SubjectAccessReviewSpec
}

func (r *reviewer) access(clock *clocktesting.FakeClock) *Access {
	client := fake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		verb := review.Spec.ResourceAttributes.Verb
		r.asked, r.specs = append(r.asked, verb), append(r.specs, review.Spec)
		review.Status.Allowed = !r.deny[verb]
		return true, review, r.err
	})
	return NewAccess(client.AuthorizationV1().SubjectAccessReviews(), clock)
}

func query(name string, metadataOnly bool) snapshot.Query {
	return snapshot.Query{
		Version: "v1", Kind: "Pod", Namespace: "shop", Name: name, MetadataOnly: metadataOnly,
		Labels: labels.Everything(), Fields: fields.Everything(),
	}
}

func TestReader(t *testing.T) {
	for name, tc := range map[string]struct {
		query  snapshot.Query
		deny   []string
		err    error
		asked  []string
		state  observed.TargetState
		detail string
	}{
		"Seen":        {query("", false), nil, nil, []string{"get", "list", "watch"}, observed.Complete, ""},
		"NamedUnseen": {query("a", true), nil, nil, []string{"get"}, observed.Complete, ""},
		"SetUnseen":   {query("", true), nil, nil, []string{"list"}, observed.Complete, ""},
		"Denied": {query("a", false), []string{"list", "watch"}, nil, []string{"get", "list", "watch"}, observed.Forbidden,
			`ServiceAccount shop/cleaner is not allowed to list and watch pods "a" in namespace "shop"`},
		"NobodyKnows": {query("a", true), nil, errors.New("no answer"), []string{"get"}, observed.Failed,
			`cannot find out what ServiceAccount shop/cleaner may do: no answer`},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reviewer{err: tc.err, deny: map[string]bool{}}
			for _, verb := range tc.deny {
				r.deny[verb] = true
			}
			got := r.access(clocktesting.NewFakeClock(time.Now())).NewReader(Account{"shop", "cleaner"}, pods{}).Read(t.Context(), tc.query)
			if got.State != tc.state || got.Detail != tc.detail {
				t.Errorf("got %v %q, want %v %q", got.State, got.Detail, tc.state, tc.detail)
			}
			if shown := len(got.Objects) > 0; shown != (tc.state == observed.Complete) {
				t.Errorf("objects shown: %t", shown)
			}
			if diff := cmp.Diff(tc.asked, r.asked); diff != "" {
				t.Errorf("reviews (-want +got):\n%s", diff)
			}
			want := authorizationv1.SubjectAccessReviewSpec{
				User:   "system:serviceaccount:shop:cleaner",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: tc.asked[0], Version: "v1", Resource: "pods", Namespace: "shop", Name: tc.query.Name,
				},
			}
			if diff := cmp.Diff(want, r.specs[0]); diff != "" {
				t.Errorf("first review (-want +got):\n%s", diff)
			}
		})
	}
}

// unknown knows nothing of what it is asked, but the state that this is.
type unknown observed.TargetState

func (u unknown) Read(context.Context, snapshot.Query) observed.Target {
	return observed.Target{State: observed.TargetState(u), Detail: "as it was"}
}

// Of what nobody knows nothing is shown, and nobody is asked about it.
func TestReaderOfWhatIsNotKnown(t *testing.T) {
	for _, state := range []observed.TargetState{observed.Unknown, observed.Failed, observed.Forbidden, observed.NoSuchKind} {
		r := &reviewer{}
		got := r.access(clocktesting.NewFakeClock(time.Now())).NewReader(Account{"shop", "cleaner"}, unknown(state)).Read(t.Context(), query("", false))
		if diff := cmp.Diff(observed.Target{State: state, Detail: "as it was"}, got); diff != "" || len(r.asked) > 0 {
			t.Errorf("%v: asked for %v (-want +got):\n%s", state, r.asked, diff)
		}
	}
}

// places answers reviews by verb, resource and namespace, and remembers what it was asked.
func places(asked *[]string, allow ...string) *Access {
	client := fake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		a := review.Spec.ResourceAttributes
		*asked = append(*asked, a.Verb+" "+a.Resource+" "+a.Namespace)
		review.Status.Allowed = slices.Contains(allow, a.Resource+" "+a.Namespace)
		return true, review, nil
	})
	return NewAccess(client.AuthorizationV1().SubjectAccessReviews(), clocktesting.NewFakeClock(time.Now()))
}

func TestReaderOfNamespaces(t *testing.T) {
	dev := labels.SelectorFromSet(labels.Set{"tier": "dev"})
	for name, tc := range map[string]struct {
		reason string
		among  snapshot.Namespaces
		unseen bool
		allow  []string
		state  observed.TargetState
		detail string
		asked  []string
	}{
		"Cluster": {"it may read all", snapshot.Namespaces{Names: []string{"a", "b"}}, true, []string{"pods "}, observed.Complete, "", []string{"list pods "}},
		"Each": {"it may read each", snapshot.Namespaces{Names: []string{"a", "b"}}, true, []string{"pods a", "pods b"}, observed.Complete, "",
			[]string{"list pods ", "list pods a", "list pods b"}},
		"OneMissing": {"all or nothing", snapshot.Namespaces{Names: []string{"a", "b"}}, false, []string{"pods a"}, observed.Forbidden,
			`ServiceAccount ops/cleaner is not allowed to get and list and watch pods in namespace "b"`,
			[]string{"get pods ", "list pods ", "watch pods ", "get pods a", "list pods a", "watch pods a", "get pods b", "list pods b", "watch pods b"}},
		"Excluded": {"all the others cannot be named", snapshot.Namespaces{Except: []string{"b"}}, true, []string{"pods a"}, observed.Forbidden,
			`ServiceAccount ops/cleaner is not allowed to list pods in all namespaces`, []string{"list pods "}},
		"Chosen": {"the labels are shown by what is chosen", snapshot.Namespaces{Labels: dev}, false, []string{"pods ", "namespaces "}, observed.Complete, "",
			[]string{"get pods ", "list pods ", "watch pods ", "get namespaces ", "list namespaces ", "watch namespaces "}},
		"ChosenUnseen": {"as for the objects", snapshot.Namespaces{Labels: dev}, true, []string{"pods "}, observed.Forbidden,
			`ServiceAccount ops/cleaner is not allowed to list namespaces (cluster-scoped)`, []string{"list pods ", "list namespaces "}},
		"ChosenNamed": {"each, and the labels", snapshot.Namespaces{Names: []string{"a"}, Labels: dev}, true, []string{"pods a", "namespaces "}, observed.Complete, "",
			[]string{"list pods ", "list pods a", "list namespaces "}},
		"ChosenElsewhere": {"nobody names what is chosen", snapshot.Namespaces{Labels: dev}, true, []string{"pods a", "namespaces "}, observed.Forbidden,
			`ServiceAccount ops/cleaner is not allowed to list pods in all namespaces`, []string{"list pods "}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			q := query("", tc.unseen)
			q.Namespace, q.Namespaces = "", tc.among
			got := places(&asked, tc.allow...).NewReader(Account{"ops", "cleaner"}, pods{}).Read(t.Context(), q)
			if got.State != tc.state || got.Detail != tc.detail || (len(got.Objects) > 0) != (tc.state == observed.Complete) {
				t.Errorf("%s: got %v %q with %d objects, want %v %q", tc.reason, got.State, got.Detail, len(got.Objects), tc.state, tc.detail)
			}
			if diff := cmp.Diff(tc.asked, asked); diff != "" {
				t.Errorf("reviews (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnswersServeForAWhile(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := &reviewer{deny: map[string]bool{}}
	a := r.access(clock)
	read := func(account Account) observed.TargetState {
		return a.NewReader(account, pods{}).Read(t.Context(), query("", true)).State
	}
	one, other := Account{"shop", "one"}, Account{"shop", "other"}
	read(one)
	read(one)
	if len(r.asked) != 1 {
		t.Errorf("asked %d times within the minute that an answer serves", len(r.asked))
	}
	read(other)
	if len(r.asked) != 2 {
		t.Error("the answer for one account served another")
	}
	clock.Step(allowedTTL + time.Second)
	r.deny["list"] = true
	if got := read(one); got != observed.Forbidden {
		t.Errorf("a right that was taken away still shows objects after a minute: %v", got)
	}
	clock.Step(deniedTTL + time.Second)
	delete(r.deny, "list")
	if got := read(one); got != observed.Complete {
		t.Errorf("a right that was given is not seen: %v", got)
	}
	if got := a.NewReader(Account{}, pods{}).Read(t.Context(), query("", true)).State; got != observed.Complete {
		t.Errorf("the operator's own: %v", got)
	}
}

// TestAnAnswerServesOneQuestion shows that what was answered to one question is the answer to no other.
func TestAnAnswerServesOneQuestion(t *testing.T) {
	base := accessQuestion{account: Account{"shop", "one"}, verb: "get", group: "g", version: "v1", resource: "things", namespace: "shop", object: "a"}
	for name, other := range map[string]func(q *accessQuestion){
		"Account":          func(q *accessQuestion) { q.account.Name = "other" },
		"AccountNamespace": func(q *accessQuestion) { q.account.Namespace = "other" },
		"Verb":             func(q *accessQuestion) { q.verb = "list" },
		"Group":            func(q *accessQuestion) { q.group = "other" },
		"Version":          func(q *accessQuestion) { q.version = "v2" },
		"Resource":         func(q *accessQuestion) { q.resource = "others" },
		"Subresource":      func(q *accessQuestion) { q.resource = "things/status" },
		"Namespace":        func(q *accessQuestion) { q.namespace = "other" },
		"AllNamespaces":    func(q *accessQuestion) { q.namespace = "" },
		"Object":           func(q *accessQuestion) { q.object = "b" },
		"AllObjects":       func(q *accessQuestion) { q.object = "" },
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			client := fake.NewClientset()
			client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
				asked++
				review.Status.Allowed = asked == 1
				return true, review, nil
			})
			a := NewAccess(client.AuthorizationV1().SubjectAccessReviews(), clocktesting.NewFakeClock(time.Now()))
			q := base
			other(&q)
			may := func(q accessQuestion) bool {
				allowed, err := a.isAllowed(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				return allowed
			}
			if !may(base) {
				t.Fatal("what is allowed is not")
			}
			if may(q) {
				t.Errorf("the right to %+v shows %+v", base, q)
			}
			if !may(base) || asked != 2 {
				t.Errorf("it asked %d times, want twice", asked)
			}
		})
	}
}
