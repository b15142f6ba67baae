// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"fmt"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/rights"
)

// kindRegister allows to clean some resources, and counts what it is asked.
type kindRegister struct {
	allowed map[string]bool // by resource
	err     error
	asked   int
}

func (r *kindRegister) reviews(clock *clocktesting.FakeClock) *KindReviews {
	client := fake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		r.asked++
		review.Status.Allowed = r.allowed[review.Spec.ResourceAttributes.Resource]
		return true, review, r.err
	})
	return NewKindReviews(client.AuthorizationV1().SubjectAccessReviews(), clock)
}

// kindsNamed are namespaced kinds with these resources.
func kindsNamed(resources ...string) (kinds []anykind.Kind) {
	for _, r := range resources {
		kinds = append(kinds, anykind.Kind{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: r}, Namespaced: true})
	}
	return kinds
}

var toDelete = []string{"delete"}

// A kind that is denied is not asked about again for minutes, and what an author loses is noticed within the time of every right.
func TestDeniedKindsAreNotAskedAboutAgain(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := &kindRegister{allowed: map[string]bool{"a": true}}
	k, alice := r.reviews(clock), rights.Subject{User: "alice"}
	split := func(may, asked int) {
		t.Helper()
		got, denied, err := k.SplitKinds(t.Context(), "shop", alice, kindsNamed("a", "b"), "shop", toDelete)
		if err != nil || len(got) != may || len(denied) != 2-may || r.asked != asked {
			t.Errorf("%v may be cleaned, %v not (%v), after %d reviews; want %d after %d", got, denied, err, r.asked, may, asked)
		}
	}
	split(1, 2)
	for range 10 {
		clock.Step(time.Second)
		split(1, 2)
	}
	r.allowed = map[string]bool{"b": true}
	clock.Step(authorAllowedTTL)
	split(0, 3) // what was allowed is asked about, what was denied not yet
	clock.Step(KindDeniedTTL - authorAllowedTTL)
	split(1, 4)
	r.allowed = map[string]bool{"*": true} // which says nothing of each
	clock.Step(KindDeniedTTL)
	split(0, 6)
}

// Others are asked about for themselves, and what could not be asked is an error.
func TestKindsAreThoseOfASubject(t *testing.T) {
	r := &kindRegister{allowed: map[string]bool{"a": true}}
	k := r.reviews(clocktesting.NewFakeClock(time.Now()))
	for n, who := range []rights.Subject{{User: "alice"}, {User: "bob"}, SubjectOfAccount(Account{"shop", "alice"}), {User: "alice", Groups: []string{"team"}}} {
		if _, _, err := k.SplitKinds(t.Context(), "shop", who, kindsNamed("a"), "shop", toDelete); err != nil || r.asked != n+1 {
			t.Errorf("%+v: %d reviews: %v", who, r.asked, err)
		}
	}
	r.err = errNotAsked
	if may, denied, err := k.SplitKinds(t.Context(), "shop", rights.Subject{User: "carol"}, kindsNamed("a"), "shop", toDelete); err == nil || may != nil || denied != nil {
		t.Errorf("%v, %v: %v", may, denied, err)
	}
	if s := SubjectOfAccount(Account{"shop", "cleaner"}); s.User != "system:serviceaccount:shop:cleaner" || len(s.Groups) != 3 {
		t.Errorf("an account is %+v", s)
	}
}

var errNotAsked = fmt.Errorf("the API server is away")

// What is remembered is bounded. A namespace that asks about more than there is room for forgets its own answers, and none of others.
func TestKindAnswersAreBoundedAndFair(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := &kindRegister{allowed: map[string]bool{}}
	k := r.reviews(clock)
	if _, _, err := k.SplitKinds(t.Context(), "modest", rights.Subject{User: "alice"}, kindsNamed("a", "b"), "modest", toDelete); err != nil {
		t.Fatal(err)
	}
	var many []anykind.Kind
	for n := range anykind.MaxKinds {
		many = append(many, kindsNamed(fmt.Sprint("r", n))...)
	}
	for n := range maxAnswers/anykind.MaxKinds + 2 {
		if _, _, err := k.SplitKinds(t.Context(), "greedy", rights.Subject{User: fmt.Sprint("u", n)}, many, "greedy", toDelete); err != nil {
			t.Fatal(err)
		}
	}
	if k.answers.kept != maxAnswers {
		t.Errorf("%d answers are kept, want %d", k.answers.kept, maxAnswers)
	}
	before := r.asked
	if _, _, err := k.SplitKinds(t.Context(), "modest", rights.Subject{User: "alice"}, kindsNamed("a", "b"), "modest", toDelete); err != nil || r.asked != before {
		t.Errorf("another namespace is asked about again %d times: %v", r.asked-before, err)
	}
	if _, _, err := k.SplitKinds(t.Context(), "greedy", rights.Subject{User: "u0"}, many[:1], "greedy", toDelete); err != nil || r.asked == before {
		t.Errorf("what was forgotten is not asked about: %v", err)
	}
}
