// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/signing"
)

// noKeys is a keyring that has lost its key.
type noKeys struct{}

// CurrentRing fails.
func (noKeys) CurrentRing() (signing.Ring, error) { return signing.Ring{}, errors.New("it is lost") }

// A record of a Cleaner at rest is signed again while the key that signed it still counts.
func TestARecordOutlivesItsKey(t *testing.T) {
	o := ordered(t, 1, unchanged)
	first, second := signing.NewKey(time.Now().Add(-time.Hour)), signing.NewKey(time.Now().Add(-time.Minute))
	var rings []signing.Ring
	for _, keys := range [][]signing.Key{{first}, {first, second}, {second}} {
		ring, err := signing.NewRing(keys, signing.RotationPolicy{Overlap: time.Hour}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		rings = append(rings, ring)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	o.executor.pass.store.API.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(o.executor.pass.store.Stored).WithStatusSubresource(o.executor.pass.store.Stored).Build()
	o.executor.pass.r.keys, o.executor.pass.store.Ring = testKeys{rings[0]}, rings[0]
	if err := o.executor.pass.store.WriteStatus(t.Context(), func(*v1alpha1.CleanerStatus) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.executor.pass.authority.verifyRecord(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.executor.pass.r.keys = testKeys{rings[1]}
	if _, err := o.executor.pass.authority.verifyRecord(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored := &v1alpha1.Cleaner{}
	if err := o.executor.pass.store.API.Client.Get(t.Context(), o.executor.pass.store.Key, stored); err != nil {
		t.Fatal(err)
	}
	if _, err := signedrecords.VerifyRecord(rings[2], stored); err != nil {
		t.Errorf("without the first key: %v", err)
	}
	if diff := cmp.Diff(o.executor.pass.store.Stored.State().Run, stored.State().Run); diff != "" || stored.State().Run == nil {
		t.Errorf("the run has changed (-own +stored):\n%s", diff)
	}
}

// Nothing of a record is used before it is believed: no clients are made for the account that it names.
func TestAForgedAccountIsNeverUsed(t *testing.T) {
	o := ordered(t, 1, unchanged)
	c := o.executor.pass.store.Stored.(*v1alpha1.Cleaner).DeepCopy()
	c.Status.Run.Decides, c.Status.Run.ServiceAccountName = "v1:x", "admin"
	p, err := o.executor.pass.r.openPass(t.Context(), c, o.executor.pass.store.Key, newMemory(c.UID, lost)) // so that the record cannot be dropped
	if err != nil {
		t.Fatal(err)
	}
	if refusal, err := p.authority.verifyRecord(t.Context()); !errors.Is(err, cleanerstore.ErrNotOwner) || refusal.IsRefusal() {
		t.Errorf("got %v, %v", refusal, err)
	}
	if p.clients != nil || p.mem.clients != nil {
		t.Errorf("it has clients: %v", p.mem.clients)
	}
	if account := identity.ParseRecorded(c, "kube-system/admin"); account == (identity.Account{Namespace: "kube-system", Name: "admin"}) {
		t.Errorf("a Cleaner acts as %s", account)
	}
}

// Without a key nothing is believed, and nothing is done.
func TestNothingIsDoneWithoutAKey(t *testing.T) {
	o := ordered(t, 1, unchanged)
	o.executor.pass.r.keys = noKeys{}
	refusal, err := o.executor.pass.authority.verifyRecord(t.Context())
	if err != nil || refusal.Reason != v1alpha1.ReasonSigningKeyMissing {
		t.Fatalf("got %v, %v", refusal, err)
	}
	o.executor.pass.newReport().SetRefused(refusal)
	if got := o.executor.pass.store.Draft.State().Conditions; len(got) != 2 || o.executor.pass.store.Draft.State().LastEvaluation.Verdict != v1alpha1.VerdictWait {
		t.Errorf("the status says %+v", got)
	}
}

// storeCleaner has an API server keep a Cleaner, and the pass read it.
func (o *stepGuard) storeCleaner(t *testing.T, c *v1alpha1.Cleaner) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c.ResourceVersion = ""
	o.executor.pass.store.API.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(c).WithStatusSubresource(c).Build()
	if err := o.executor.pass.store.API.Client.Get(t.Context(), o.executor.pass.store.Key, c); err != nil {
		t.Fatal(err)
	}
	o.executor.pass.store.Stored, o.executor.pass.store.Draft, o.executor.pass.journal.To.Recorder = c, c.DeepCopy(), &heard{}
}

// While the operator runs nobody takes a record from it: the one that it has written last takes the place of any other.
func TestTheLastRecordTakesThePlaceOfAnother(t *testing.T) {
	o := ordered(t, 3, unchanged)
	last := o.executor.pass.store.Stored.(*v1alpha1.Cleaner)
	last.Status.LastScheduleTime, last.Status.Unsent = new(metav1.NewTime(time.Unix(1700000000, 0))), last.Status.Run.DeepCopy()
	sign(t, o.executor.pass.store.Ring, last)
	if _, err := o.executor.pass.store.BelieveRecord(); err != nil {
		t.Fatal(err)
	}
	for name, forge := range map[string]func(s *v1alpha1.CleanerStatus){
		"Emptied": func(s *v1alpha1.CleanerStatus) { *s = v1alpha1.CleanerStatus{} },
		"Forged":  func(s *v1alpha1.CleanerStatus) { s.Runs, s.Run.Rows, s.Unsent = 77, nil, nil },
		"Later": func(s *v1alpha1.CleanerStatus) {
			s.RecordedAt = new(metav1.NewMicroTime(time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			forged := last.DeepCopy()
			forge(&forged.Status)
			o.storeCleaner(t, forged)
			if _, err := o.executor.pass.authority.verifyRecord(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, want := signedrecords.CopyRecord(o.executor.pass.store.Stored.State()), signedrecords.CopyRecord(&last.Status)
			if !signedrecords.ReadTime(&got).After(signedrecords.ReadTime(&want)) || signedrecords.ReadTime(&got).Year() > 3000 {
				t.Errorf("written at %s, after %s", signedrecords.ReadTime(&got), signedrecords.ReadTime(&want))
			}
			if _, err := signedrecords.VerifyRecord(o.executor.pass.store.Ring, o.executor.pass.store.Stored); err != nil {
				t.Error(err)
			}
			got.RecordedAt, got.Signature, want.RecordedAt, want.Signature = nil, "", nil, ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-last +now):\n%s", diff)
			}
		})
	}
}

// A record whose key is lost is dropped with its open run and the event that it owes, so that nothing of them is carried out or sent. An
// Event says that what became of the run is unknown.
func TestARecordWhoseKeyIsLostIsDropped(t *testing.T) {
	for name, tc := range map[string]struct {
		result v1alpha1.Result
		want   string
	}{
		"Open":     {"", "the outcome of run 1 is unknown"},
		"Finished": {v1alpha1.ResultCompleted, "it had no open run"},
	} {
		t.Run(name, func(t *testing.T) {
			o := ordered(t, 1, unchanged)
			c := o.executor.pass.store.Stored.(*v1alpha1.Cleaner)
			c.Status.Runs, c.Status.Unsent, c.Status.Run.Result = 1, c.Status.Run.DeepCopy(), tc.result
			sign(t, o.executor.pass.store.Ring, c)
			o.storeCleaner(t, c)
			o.executor.pass.r.keys = newTestKeys(t)
			if refusal, err := o.executor.pass.authority.verifyRecord(t.Context()); err != nil || refusal.IsRefusal() {
				t.Fatalf("got %v, %v", refusal, err)
			}
			for what, s := range map[string]*v1alpha1.CleanerStatus{"stored": o.executor.pass.store.Stored.State(), "carried on": o.executor.pass.store.Draft.State()} {
				if s.Run != nil || s.Unsent != nil || s.Runs != 1 {
					t.Errorf("%s is run %+v, event %+v, after %d runs", what, s.Run, s.Unsent, s.Runs)
				}
			}
			if _, err := signedrecords.VerifyRecord(o.executor.pass.store.Ring, o.executor.pass.store.Stored); err != nil {
				t.Errorf("what takes its place is not signed: %v", err)
			}
			o.executor.pass.journal.RecordEvents()
			if said := o.executor.pass.journal.To.Recorder.(*heard).list; len(said) != 1 || !strings.Contains(said[0].Note, tc.want) {
				t.Errorf("it says %+v, want %q", said, tc.want)
			}
		})
	}
}

// What takes the place of a dropped record is later than all that the operator has signed, even if it has just begun.
func TestADroppedRecordDoesNotComeBack(t *testing.T) {
	o := ordered(t, 1, unchanged)
	signed := o.executor.pass.store.Stored.(*v1alpha1.Cleaner)
	sign(t, o.executor.pass.store.Ring, signed)
	forged := signed.DeepCopy()
	forged.Status.Run.Rows = nil
	o.storeCleaner(t, forged)
	if _, err := o.executor.pass.authority.verifyRecord(t.Context()); err != nil {
		t.Fatal(err)
	}
	if run := o.executor.pass.store.Stored.State().Run; run != nil {
		t.Errorf("it takes over run %+v", run)
	}
	o.storeCleaner(t, signed)
	if _, err := o.executor.pass.store.BelieveRecord(); !errors.Is(err, signedrecords.ErrForeign) {
		t.Errorf("put back: got %v", err)
	}
}
