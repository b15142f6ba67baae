// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/signing"
)

// noKeys is a keyring that has lost its key.
type noKeys struct{}

// CurrentRing fails.
func (noKeys) CurrentRing() (signing.Ring, error) { return signing.Ring{}, errors.New("it is lost") }

// withRecord is a Cleaner with an open run, and an event that is owed.
func withRecord() *v1alpha1.Cleaner {
	now := metav1.NewTime(time.Unix(1700000000, 0))
	return &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "uid"},
		Status: v1alpha1.CleanerStatus{
			Runs: 2, LastScheduleTime: &now, LastRequestedAt: "1",
			Unsent: &v1alpha1.Run{Number: 1, Decides: "v1:a", DecidedAt: now, Result: v1alpha1.ResultPartial, FinishedAt: &now},
			Run: &v1alpha1.Run{
				Number: 2, Decides: "v1:a", DecidedAt: now, ServiceAccountName: "bot", Rows: []string{"targets.pods pods/v1 shop/a 1 1"},
				Helm: &v1alpha1.HelmRelease{Name: "web", Revision: 3, UID: "9", FirstDeployed: metav1.NewMicroTime(time.Unix(1700000000, 123000)), Digest: "d"},
			},
		},
	}
}

// A record is believed as the API server gives it back, and not when anything in it differs.
func TestVerifyRecord(t *testing.T) {
	keys := newTestKeys(t)
	for name, tc := range map[string]struct {
		change func(c *v1alpha1.Cleaner)
		want   error
	}{
		"AsWritten": {func(*v1alpha1.Cleaner) {}, nil},
		"AReport": {func(c *v1alpha1.Cleaner) {
			c.Status.ObservedGeneration = 7
			c.Status.Pending = []v1alpha1.Pending{{Rule: "r"}}
		}, nil},
		"AnotherSpec":       {func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"false"} }, nil},
		"AnotherUID":        {func(c *v1alpha1.Cleaner) { c.UID = "other" }, errForeignRecord},
		"AnotherName":       {func(c *v1alpha1.Cleaner) { c.Name = "d" }, errForeignRecord},
		"AnotherNamespace":  {func(c *v1alpha1.Cleaner) { c.Namespace = "other" }, errForeignRecord},
		"AnotherRow":        {func(c *v1alpha1.Cleaner) { c.Status.Run.Rows[0] = "targets.pods pods/v1 shop/b 2 2" }, errForeignRecord},
		"AnotherAccount":    {func(c *v1alpha1.Cleaner) { c.Status.Run.ServiceAccountName = "admin" }, errForeignRecord},
		"TheOperator":       {func(c *v1alpha1.Cleaner) { c.Status.Run.ServiceAccountName = "" }, errForeignRecord},
		"AnotherRelease":    {func(c *v1alpha1.Cleaner) { c.Status.Run.Helm.Name = "db" }, errForeignRecord},
		"Hooks":             {func(c *v1alpha1.Cleaner) { c.Status.Run.Helm.DisableHooks = true }, errForeignRecord},
		"AnotherSpecsRun":   {func(c *v1alpha1.Cleaner) { c.Status.Run.Decides = "v1:x" }, errForeignRecord},
		"AnotherEvent":      {func(c *v1alpha1.Cleaner) { c.Status.Unsent.Message = "all is well" }, errForeignRecord},
		"NoEvent":           {func(c *v1alpha1.Cleaner) { c.Status.Unsent = nil }, errForeignRecord},
		"EventAsRun":        {func(c *v1alpha1.Cleaner) { c.Status.Run, c.Status.Unsent = c.Status.Unsent, nil }, errForeignRecord},
		"FewerRuns":         {func(c *v1alpha1.Cleaner) { c.Status.Runs = 1 }, errForeignRecord},
		"AnotherTick":       {func(c *v1alpha1.Cleaner) { c.Status.LastScheduleTime = nil }, errForeignRecord},
		"AnotherRequest":    {func(c *v1alpha1.Cleaner) { c.Status.LastRequestedAt = "2" }, errForeignRecord},
		"ARequestAlone":     {func(c *v1alpha1.Cleaner) { c.Status = v1alpha1.CleanerStatus{LastRequestedAt: "2"} }, errForeignRecord},
		"AnotherTime":       {func(c *v1alpha1.Cleaner) { c.Status.RecordedAt.Time = c.Status.RecordedAt.Add(time.Hour) }, errForeignRecord},
		"NoTime":            {func(c *v1alpha1.Cleaner) { c.Status.RecordedAt = nil }, errForeignRecord},
		"NoSignature":       {func(c *v1alpha1.Cleaner) { c.Status.Signature = "" }, errForeignRecord},
		"AnEarlierVersions": {func(c *v1alpha1.Cleaner) { c.Status = v1alpha1.CleanerStatus{Runs: 1} }, errForeignRecord},
		"NoRecord":          {func(c *v1alpha1.Cleaner) { c.Status = v1alpha1.CleanerStatus{Signature: "forged"} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := withRecord()
			sign(t, keys.ring, c)
			text, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			read := &v1alpha1.Cleaner{}
			if err := json.Unmarshal(text, read); err != nil {
				t.Fatal(err)
			}
			tc.change(read)
			if _, got := verifyRecord(keys.ring, read); !errors.Is(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// ringOfAnEarlierVersion has the key that what is stored in these tests was signed with.
func ringOfAnEarlierVersion(t *testing.T) (signing.Ring, signing.Key) {
	t.Helper()
	key, err := signing.ParseKey("20260102T150405Z", []byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := signing.NewRing([]signing.Key{key}, signing.RotationPolicy{}, key.CreatedAt())
	if err != nil {
		t.Fatal(err)
	}
	return ring, key
}

// What an earlier version has signed is read for ever, or open runs lose their record: never change this text. It has each field
// that a record may have, in the API server's order.
func TestRecordOfAnEarlierVersion(t *testing.T) {
	const stored = `{"metadata":{"name":"c","namespace":"shop","uid":"uid"},"status":{
"lastScheduleTime":"2026-01-02T15:04:00Z","runs":2,
"run":{"data":"{\"a\":1.50}","decidedAt":"2026-01-02T15:04:05Z","decides":"v1:a",
  "helm":{"digest":"d","disableHooks":true,"firstDeployed":"2026-01-02T15:04:05.000123Z","name":"web","outcome":"unknown","revision":3,"uid":"9"},
  "lifecycle":"Recurring","number":2,"rows":["targets.pods pods/v1 shop/a 1 1","old deployments.apps/v1 shop/<b> 2 2"],"serviceAccountName":"bot",
  "withheld":[{"because":"it is protected","object":"b.pods/v1"}]},
"unsent":{"counts":[{"count":1,"outcome":"gone","resource":"pods/v1"}],"decidedAt":"2026-01-02T15:03:05Z","decides":"v1:a","finishedAt":"2026-01-02T15:03:06Z",
  "message":"it was stopped & kept","number":1,"outcomes":[{"outcome":"gone","row":"targets.pods pods/v1 shop/a 1 1"}],"result":"Partial"},
"signature":"20260102T150405Z.sDDLKiRajq23D--iM0XB_pnxjb5lzAZSgRAcmmUV6g4"}}`
	ring, key := ringOfAnEarlierVersion(t)
	c := &v1alpha1.Cleaner{}
	if err := json.Unmarshal([]byte(stored), c); err != nil {
		t.Fatal(err)
	}
	// A field that a later version adds is empty in what an earlier one has written.
	if _, err := verifyRecord(ring, c); err != nil {
		now := c.DeepCopy()
		if err := signRecord(ring, now, now.State(), key.CreatedAt()); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%v; this version writes %s", err, now.State().Signature)
	}
}

// Even a record that is signed makes no Cleaner act as an account of another namespace.
func TestNoRecordLeavesItsNamespace(t *testing.T) {
	keys := newTestKeys(t)
	c := withRecord()
	c.Status.Run.ServiceAccountName = "kube-system/admin"
	sign(t, keys.ring, c)
	if _, err := verifyRecord(keys.ring, c); !errors.Is(err, errForeignRecord) {
		t.Errorf("got %v", err)
	}
	cluster := &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "uid"}, Status: c.Status}
	sign(t, keys.ring, cluster)
	if _, err := verifyRecord(keys.ring, cluster); err != nil {
		t.Errorf("of a ClusterCleaner: %v", err)
	}
}

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
	o.r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(o.read).WithStatusSubresource(o.read).Build()
	o.r.keys, o.ring = testKeys{rings[0]}, rings[0]
	if err := o.writeStatus(t.Context(), func(*v1alpha1.CleanerStatus) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.checkOwnership(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.r.keys = testKeys{rings[1]}
	if _, err := o.checkOwnership(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored := &v1alpha1.Cleaner{}
	if err := o.r.client.Get(t.Context(), o.key, stored); err != nil {
		t.Fatal(err)
	}
	if _, err := verifyRecord(rings[2], stored); err != nil {
		t.Errorf("without the first key: %v", err)
	}
	if diff := cmp.Diff(o.read.State().Run, stored.State().Run); diff != "" || stored.State().Run == nil {
		t.Errorf("the run has changed (-own +stored):\n%s", diff)
	}
}

// Nothing of a record is used before it is believed: no clients are made for the account that it names.
func TestAForgedAccountIsNeverUsed(t *testing.T) {
	o := ordered(t, 1, unchanged)
	c := withRecord()
	c.Status.Run.Decides, c.Status.Run.ServiceAccountName = "v1:x", "admin"
	p, err := o.r.newPass(t.Context(), c, o.key, newMemory(c.UID))
	if err != nil {
		t.Fatal(err)
	}
	p.r.opts.Lease = leads(false) // so that the record cannot be dropped
	if refusal, err := p.checkOwnership(t.Context()); !errors.Is(err, errNotLeader) || refusal.isRefusal() {
		t.Errorf("got %v, %v", refusal, err)
	}
	if p.hands != nil || p.mem.hands != nil {
		t.Errorf("it has hands: %v", p.mem.hands)
	}
	if account := recordedAccount(c, "kube-system/admin"); account == (identity.Account{Namespace: "kube-system", Name: "admin"}) {
		t.Errorf("a Cleaner acts as %s", account)
	}
}

// Without a key nothing is believed, and nothing is done.
func TestNothingIsDoneWithoutAKey(t *testing.T) {
	o := ordered(t, 1, unchanged)
	o.r.keys = noKeys{}
	refusal, err := o.checkOwnership(t.Context())
	if err != nil || refusal.reason != v1alpha1.ReasonSigningKeyMissing {
		t.Fatalf("got %v, %v", refusal, err)
	}
	o.newReport().setRefused(refusal)
	if got := o.c.State().Conditions; len(got) != 2 || o.c.State().LastEvaluation.Verdict != v1alpha1.VerdictWait {
		t.Errorf("the status says %+v", got)
	}
}

// forging is an API server with a Cleaner whose status somebody has just written.
type forging struct {
	client.Reader
	now *v1alpha1.Cleaner
}

func (f forging) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	f.now.DeepCopyInto(into.(*v1alpha1.Cleaner)) //nolint:forcetypeassert // nothing else is read
	return nil
}

// A record that was emptied, or in whose place an earlier one was put back, is none, even if nothing but the state of its run
// differs: what is done must not be done again, and a sink gets no two events of one number.
func TestAnEarlierRecordIsNotBelieved(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(earlier, now *v1alpha1.Cleaner)
		want   error
	}{
		"Same":    {func(earlier, now *v1alpha1.Cleaner) { now.DeepCopyInto(earlier) }, nil},
		"Earlier": {func(*v1alpha1.Cleaner, *v1alpha1.Cleaner) {}, errForeignRecord},
		"Emptied": {func(earlier, _ *v1alpha1.Cleaner) { earlier.Status = v1alpha1.CleanerStatus{} }, errForeignRecord},
		"OfAnEarlierVersion": {func(earlier, now *v1alpha1.Cleaner) { // which noted no times
			now.DeepCopyInto(earlier)
			earlier.Status.Runs--
		}, errForeignRecord},
	} {
		t.Run(name, func(t *testing.T) {
			o := ordered(t, 1, unchanged)
			c := o.read.(*v1alpha1.Cleaner)
			sign(t, o.ring, c)
			earlier := c.DeepCopy()
			if _, err := o.believeRecord(); err != nil {
				t.Fatal(err)
			}
			sign(t, o.ring, c) // it is written once more, with the same content
			o.mem.verified = verified{}
			if _, err := o.believeRecord(); err != nil {
				t.Fatal(err)
			}
			tc.change(earlier, c)
			o.read, o.mem.verified = earlier, verified{}
			if _, err := o.believeRecord(); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	t.Run("Never", func(t *testing.T) {
		o := ordered(t, 1, unchanged)
		o.read, o.stored.mem = &v1alpha1.Cleaner{}, &persisted{}
		if _, err := o.believeRecord(); err != nil {
			t.Error(err)
		}
	})
}

// stored has an API server keep a Cleaner, and the pass read it.
func (o *stepGuard) store(t *testing.T, c *v1alpha1.Cleaner) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c.ResourceVersion = ""
	o.r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(c).WithStatusSubresource(c).Build()
	if err := o.r.client.Get(t.Context(), o.key, c); err != nil {
		t.Fatal(err)
	}
	o.read, o.c, o.mem.verified, o.r.recorder = c, c.DeepCopy(), verified{}, &heard{}
}

// While the operator runs nobody takes a record from it: the one that it has written last takes the place of any other.
func TestTheLastRecordTakesThePlaceOfAnother(t *testing.T) {
	o := ordered(t, 3, unchanged)
	last := o.read.(*v1alpha1.Cleaner)
	last.Status.LastScheduleTime, last.Status.Unsent = new(metav1.NewTime(time.Unix(1700000000, 0))), last.Status.Run.DeepCopy()
	sign(t, o.ring, last)
	if _, err := o.believeRecord(); err != nil {
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
			o.store(t, forged)
			if _, err := o.checkOwnership(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, want := recordOf(o.read.State()), recordOf(&last.Status)
			if !recordedAt(&got).After(recordedAt(&want)) || recordedAt(&got).Year() > 3000 {
				t.Errorf("written at %s, after %s", recordedAt(&got), recordedAt(&want))
			}
			if _, err := verifyRecord(o.ring, o.read); err != nil {
				t.Error(err)
			}
			got.RecordedAt, got.Signature, want.RecordedAt, want.Signature = nil, "", nil, ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-last +now):\n%s", diff)
			}
		})
	}
}

// What takes the place of a dropped record is later than all that the operator has signed, even if it has just begun.
func TestADroppedRecordDoesNotComeBack(t *testing.T) {
	o := ordered(t, 1, unchanged)
	signed := o.read.(*v1alpha1.Cleaner)
	sign(t, o.ring, signed)
	forged := signed.DeepCopy()
	forged.Status.Run.Rows = nil
	o.store(t, forged)
	if _, err := o.checkOwnership(t.Context()); err != nil {
		t.Fatal(err)
	}
	if run := o.read.State().Run; run != nil {
		t.Errorf("it takes over run %+v", run)
	}
	o.store(t, signed)
	if _, err := o.believeRecord(); !errors.Is(err, errForeignRecord) {
		t.Errorf("put back: got %v", err)
	}
}

// What is read after the operator has deleted a Cleaner is not believed either, before it is verified.
func TestARecordThatIsReadAgainIsVerified(t *testing.T) {
	o := ordered(t, 1, unchanged)
	before := o.read
	now := before.(*v1alpha1.Cleaner).DeepCopy()
	now.ResourceVersion, now.Status.Run.Number = "8", 99
	o.r.live = forging{now: now}
	if err := o.rereadCleaner(t.Context()); !errors.Is(err, errNotNow) || o.read != before {
		t.Errorf("got %v, and run %d", err, o.read.State().Run.Number)
	}
	sign(t, o.ring, now)
	if err := o.rereadCleaner(t.Context()); err != nil || o.read.State().Run.Number != 99 {
		t.Errorf("signed: got %v, and run %d", err, o.read.State().Run.Number)
	}
}
