// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/rights"
)

// register answers reviews of whoever is in it, and counts them.
type register struct {
	allowed map[string]bool // by user
	specs   []authorizationv1.SubjectAccessReviewSpec
}

func (r *register) authors(clock *clocktesting.FakeClock, accounts ...runtime.Object) *Authors {
	client := fake.NewClientset(accounts...)
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		r.specs = append(r.specs, review.Spec)
		review.Status.Allowed = r.allowed[review.Spec.User]
		return true, review, nil
	})
	return NewAuthors(client.AuthorizationV1().SubjectAccessReviews(), client.CoreV1(), clock)
}

var deletePods = []rights.Right{{Verb: "delete", Resource: "pods", Namespace: "shop"}}

// TestAnAuthorIsReviewedAgain shows how old an answer may be: what an author loses later is noticed.
func TestAnAuthorIsReviewedAgain(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := &register{allowed: map[string]bool{"alice": true}}
	a, alice := r.authors(clock), author.Author{Username: "alice", Groups: []string{"team"}}
	missing := func() bool {
		t.Helper()
		got, err := a.FindMissingRights(t.Context(), "shop", alice, deletePods)
		if err != nil {
			t.Fatal(err)
		}
		return len(got) > 0
	}
	if missing() {
		t.Fatal("alice may not")
	}
	r.allowed["alice"] = false
	clock.Step(authorAllowedTTL - time.Second)
	if missing() || len(r.specs) != 1 {
		t.Errorf("an answer is not used again: %d reviews", len(r.specs))
	}
	clock.Step(time.Second + 1)
	if !missing() {
		t.Error("what alice has lost is not noticed")
	}
	r.allowed["alice"] = true
	if !missing() || len(r.specs) != 2 {
		t.Errorf("a refusal is asked about again at once: %d reviews", len(r.specs))
	}
	clock.Step(authorDeniedTTL + 1)
	if missing() {
		t.Error("what alice has got again is not noticed")
	}
}

// Authors of one name are two if their groups, or what else is stored of them, differ.
func TestAnAnswerIsOfOneAuthor(t *testing.T) {
	r := &register{allowed: map[string]bool{"alice": true}}
	a := r.authors(clocktesting.NewFakeClock(time.Now()))
	for _, who := range []author.Author{
		{Username: "alice"}, {Username: "alice", Groups: []string{"team"}}, {Username: "alice", Extra: map[string][]string{"scopes": {"a"}}}, {Username: "alice"},
	} {
		if _, err := a.FindMissingRights(t.Context(), "shop", who, deletePods); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.specs) != 3 {
		t.Fatalf("%d reviews", len(r.specs))
	}
	if got := r.specs[1].Groups; !slices.Equal(got, []string{"team"}) {
		t.Errorf("the review names groups %v", got)
	}
	if got := r.specs[2].Extra["scopes"]; !slices.Equal(got, []string{"a"}) {
		t.Errorf("the review names extra %v", r.specs[2].Extra)
	}
}

// A ServiceAccount that was made again is somebody else.
func TestAServiceAccountIsTheSameOne(t *testing.T) {
	bot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bot", UID: "2"}}
	who := author.Author{Username: "system:serviceaccount:shop:bot", UID: "2"}
	r := &register{allowed: map[string]bool{who.Username: true}}
	if missing, err := r.authors(clocktesting.NewFakeClock(time.Now()), bot).FindMissingRights(t.Context(), "shop", who, deletePods); err != nil || len(missing) > 0 {
		t.Fatalf("got %v, %v", missing, err)
	}
	if got := r.specs[0].Groups; !slices.Equal(got, []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"}) {
		t.Errorf("the review names groups %v", got)
	}
	for _, who.UID = range []string{"1", ""} {
		if _, err := r.authors(clocktesting.NewFakeClock(time.Now()), bot).FindMissingRights(t.Context(), "shop", who, deletePods); err == nil || !strings.Contains(err.Error(), "was deleted and created again") {
			t.Errorf("UID %q: got %v", who.UID, err)
		}
	}
	if _, err := r.authors(clocktesting.NewFakeClock(time.Now())).FindMissingRights(t.Context(), "shop", who, deletePods); err == nil {
		t.Error("an account that is gone may do something")
	}
}

// TestAnswersAreBounded shows that whoever may ask for much fills no memory: the answers that were used longest ago are asked for again.
func TestAnswersAreBounded(t *testing.T) {
	r := &register{allowed: map[string]bool{"alice": true}}
	a := r.authors(clocktesting.NewFakeClock(time.Now()))
	for n := range maxAnswers + 100 {
		if _, err := a.FindMissingRights(t.Context(), "shop", author.Author{Username: "alice"}, []rights.Right{{Verb: "get", Resource: fmt.Sprint("r", n)}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.answers.kept; n != maxAnswers {
		t.Errorf("%d answers are kept, want %d", n, maxAnswers)
	}
}

// An answer is known for as long as it serves, in its own namespace, and as it was given last.
func TestAnAnswerIsKnownWhileItServes(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	a := newAnswers[int](clock)
	is := func(namespace string, question int, allowed, known bool) {
		t.Helper()
		if gotAllowed, gotKnown := a.findAnswer(namespace, question); gotAllowed != allowed || gotKnown != known {
			t.Errorf("%d in %s is allowed: %t, and known: %t", question, namespace, gotAllowed, gotKnown)
		}
	}
	a.keepAnswer("shop", 1, true, time.Minute)
	a.keepAnswer("shop", 2, false, time.Minute)
	is("shop", 1, true, true)
	is("shop", 2, false, true)
	is("shop", 3, false, false)
	is("other", 1, false, false)
	a.keepAnswer("shop", 2, true, time.Hour)
	clock.Step(time.Minute - time.Nanosecond)
	is("shop", 1, true, true)
	clock.Step(time.Nanosecond)
	is("shop", 1, false, false)
	is("shop", 2, true, true)
	if a.kept != 1 || len(a.shares) != 1 || len(a.shares["shop"].answers) != 1 || a.shares["shop"].recent.Len() != 1 {
		t.Errorf("%d answers are kept, want 1", a.kept)
	}
	clock.Step(time.Hour)
	is("shop", 2, false, false)
	if a.kept != 0 || len(a.shares) != 0 {
		t.Errorf("%d answers are kept of %d namespaces, want none", a.kept, len(a.shares))
	}
}

// Of a namespace that has too many answers the one is dropped that was used longest ago.
func TestTheAnswerUsedLongestAgoIsDropped(t *testing.T) {
	a := newAnswers[int](clocktesting.NewFakeClock(time.Now()))
	for question := range maxAnswers {
		a.keepAnswer("shop", question, true, time.Minute)
	}
	a.findAnswer("shop", 0)
	a.keepAnswer("shop", maxAnswers, true, time.Minute)
	for question, want := range map[int]bool{0: true, 1: false, 2: true, maxAnswers: true} {
		if _, known := a.findAnswer("shop", question); known != want {
			t.Errorf("%d is known: %t", question, known)
		}
	}
}

// The namespace that has most answers loses one; of several that have as many it is always the first by name.
func TestTheLargestShareIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		kept map[string]int
		want string
	}{
		"Most":  {map[string]int{"a": 1, "b": 3, "c": 2}, "b"},
		"Equal": {map[string]int{"a": 1, "b": 2, "c": 2, "d": 2, "e": 1}, "b"},
		"One":   {map[string]int{"a": 1}, "a"},
		"None":  {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAnswers[int](clocktesting.NewFakeClock(time.Now()))
			for namespace, n := range tc.kept {
				for q := range n {
					a.keepAnswer(namespace, q, true, time.Minute)
				}
			}
			for range 100 { // namespaces come in any order
				if got := a.findLargestShare(); got != tc.want {
					t.Fatalf("it is %q, want %q", got, tc.want)
				}
			}
		})
	}
}

// TestANamespaceDropsItsOwnAnswers shows that the questions of a namespace that asks more than is kept are asked again, and no other's.
func TestANamespaceDropsItsOwnAnswers(t *testing.T) {
	r := &register{allowed: map[string]bool{"alice": true}}
	a, alice := r.authors(clocktesting.NewFakeClock(time.Now())), author.Author{Username: "alice"}
	ask := func(namespace, resource string) (asked bool) {
		t.Helper()
		before := len(r.specs)
		if _, err := a.FindMissingRights(t.Context(), namespace, alice, []rights.Right{{Verb: "get", Resource: resource}}); err != nil {
			t.Fatal(err)
		}
		return len(r.specs) > before
	}
	if !ask("calm", "pods") {
		t.Fatal("nothing is asked")
	}
	for n := range maxAnswers + 100 {
		ask("busy", fmt.Sprint("r", n))
	}
	if ask("calm", "pods") {
		t.Error("another namespace has asked so much that this one asks again")
	}
	if ask("busy", fmt.Sprint("r", maxAnswers)) || !ask("busy", "r0") {
		t.Error("it does not keep what it has used last")
	}
}
