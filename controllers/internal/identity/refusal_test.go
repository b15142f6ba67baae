// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/signing"
)

// TestAccountBySpec shows as whom the operator acts, and that a run's record names the same account.
func TestAccountBySpec(t *testing.T) {
	named := func(namespace, name string) *v1alpha1.ServiceAccountReference {
		return &v1alpha1.ServiceAccountReference{Namespace: namespace, Name: name}
	}
	for name, tc := range map[string]struct {
		cluster   bool
		named     *v1alpha1.ServiceAccountReference
		byDefault string
		want      Account
		recorded  string
	}{
		"Operator":         {},
		"Named":            {named: named("", "mine"), want: Account{"shop", "mine"}, recorded: "mine"},
		"Default":          {byDefault: "cleaning", want: Account{"shop", "cleaning"}, recorded: "cleaning"},
		"NamedAndDefault":  {named: named("", "mine"), byDefault: "cleaning", want: Account{"shop", "mine"}, recorded: "mine"},
		"Cluster":          {cluster: true, named: named("ops", "mine"), want: Account{"ops", "mine"}, recorded: "ops/mine"},
		"ClusterNoDefault": {cluster: true, byDefault: "cleaning"},
	} {
		t.Run(name, func(t *testing.T) {
			var c v1alpha1.Owner = &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
			if tc.cluster {
				c = &v1alpha1.ClusterCleaner{}
			}
			got := Policy{DefaultServiceAccount: tc.byDefault}.AccountBySpec(c, &v1alpha1.Work{Cluster: tc.cluster, ServiceAccount: tc.named})
			if got != tc.want {
				t.Fatalf("acts as %s, want %s", got, tc.want)
			}
			recorded := got.RecordedName(c)
			if recorded != tc.recorded || ParseRecorded(c, recorded) != got {
				t.Errorf("recorded as %q, want %q, and read as %s", recorded, tc.recorded, ParseRecorded(c, recorded))
			}
		})
	}
}

// A record of a Cleaner never names an account of another namespace.
func TestRecordedAccountsStayInTheirNamespace(t *testing.T) {
	c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
	if got := ParseRecorded(c, "kube-system/admin"); got.Namespace != "shop" {
		t.Errorf("it is read as %s", got)
	}
}

// TestFindAuthor shows who has to have the rights, and what is said where nobody is known.
func TestFindAuthor(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	ringOf := func(key signing.Key) signing.Ring {
		ring, err := signing.NewRing([]signing.Key{key}, signing.RotationPolicy{Propagation: time.Minute, Overlap: time.Hour}, now.Add(30*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return ring
	}
	ring, other := ringOf(signing.NewKey(now)), ringOf(signing.NewKey(now.Add(time.Second)))
	signed := func() *v1alpha1.Cleaner {
		c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", CreationTimestamp: metav1.NewTime(now)}}
		value, err := author.Sign(ring, c, author.Author{Username: "alice"}, now)
		if err != nil {
			t.Fatal(err)
		}
		c.UID, c.Annotations = "1", map[string]string{v1alpha1.AnnotationAuthor: value}
		return c
	}
	edited := signed()
	edited.Spec.Conditions = []string{"true"}
	unsigned := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}}
	mine := Account{"shop", "mine"}
	for name, tc := range map[string]struct {
		c       *v1alpha1.Cleaner
		ring    signing.Ring
		account Account
		anyone  bool
		known   bool
		says    string
	}{
		"Signed":                   {c: signed(), ring: ring, known: true},
		"Edited":                   {c: edited, ring: ring, says: "the author annotation is not signed for this spec"},
		"EditedWithAccount":        {c: edited, ring: ring, account: mine, says: "the author annotation is not signed for this spec"},
		"Unsigned":                 {c: unsigned, ring: ring, says: "no author is stored"},
		"UnsignedMayAct":           {c: unsigned, ring: ring, anyone: true},
		"KeyLost":                  {c: signed(), ring: other, says: "signed with a key that the operator no longer has"},
		"KeyLostWithAccount":       {c: signed(), ring: other, account: mine, known: true},
		"KeyLostWithAccountMayAct": {c: signed(), ring: other, account: mine, anyone: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, known, refusal := Policy{ActWithoutAuthor: tc.anyone}.FindAuthor(tc.ring, tc.c, tc.account)
			if known != tc.known || refusal.IsRefusal() != (tc.says != "") || !strings.Contains(refusal.Message, tc.says) {
				t.Errorf("known %v, %q, want %v, %q", known, refusal.Message, tc.known, tc.says)
			}
			if tc.says != "" && (refusal.Reason != v1alpha1.ReasonAuthorMissing || !strings.HasSuffix(refusal.AsPhrase(), `"kubectl cleaner run cleaner/c -n shop --become-author"`)) {
				t.Errorf("%s: %s", refusal.Reason, refusal.AsPhrase())
			}
		})
	}
}

// TestReviewAuthor shows what is said of rights that are missing, however many there are.
func TestReviewAuthor(t *testing.T) {
	var needed []rights.Right
	for _, namespace := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		needed = append(needed, rights.Right{Verb: "delete", Resource: "pods", Namespace: namespace})
	}
	r := &register{allowed: map[string]bool{"alice": true}}
	a := r.authors(clocktesting.NewFakeClock(time.Now()))
	if refusal := a.ReviewAuthor(t.Context(), "shop", author.Stored{Author: author.Author{Username: "alice"}}, needed); refusal.IsRefusal() {
		t.Errorf("alice may not: %s", refusal.Message)
	}
	refusal := a.ReviewAuthor(t.Context(), "shop", author.Stored{Author: author.Author{Username: "bob"}}, needed)
	if refusal.Reason != v1alpha1.ReasonAuthorLacksRights || strings.Count(refusal.Message, "delete") != shownRights ||
		!strings.HasPrefix(refusal.Message, "The author of the spec, ") || !strings.HasSuffix(refusal.Message, "; and 2 more.") {
		t.Errorf("%s: %s", refusal.Reason, refusal.Message)
	}
}
