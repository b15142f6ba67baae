// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/internal/patched"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/internal/skew"
	"github.com/vtex/cleaner/controllers/internal/uninstallpool"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/shards"
	"github.com/vtex/cleaner/controllers/signing"
)

// cached is a client that reads Cleaners from a cache, as the operator's does. The cache has read this one.
func cached(t testing.TB, c *v1alpha1.Cleaner) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	list := &v1alpha1.CleanerList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []v1alpha1.Cleaner{*c}}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CleanerList"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case q.Get("sendInitialEvents") != "": // as of an API server that only knows how to list
			w.WriteHeader(http.StatusUnprocessableEntity)
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
		case q.Get("watch") != "":
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			_ = json.NewEncoder(w).Encode(list)
		}
	}))
	t.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Cleaner"), meta.RESTScopeNamespace)
	config := &rest.Config{Host: server.URL}
	known, err := cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- known.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if _, err := known.GetInformer(ctx, &v1alpha1.Cleaner{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	if !known.WaitForCacheSync(ctx) {
		t.Fatal("the cache does not read")
	}
	out, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper, Cache: &client.CacheOptions{Reader: known}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// mine is the tenure of a Cleaner that this process owns, and lost one of a Cleaner that it no longer owns.
var (
	mine = shards.NewTenure(1, func() bool { return true })
	lost = shards.NewTenure(1, func() bool { return false })
)

// ordered are the orders of a pass over a Cleaner with an open run of so many rows, which the cache knows as changed
// since.
func ordered(t testing.TB, rows int, change func(*v1alpha1.Cleaner)) *stepGuard {
	t.Helper()
	c := &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "uid", Generation: 1, ResourceVersion: "7"},
		Spec:       v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}},
	}
	decides, err := life.FingerprintWork(c.Work())
	if err != nil {
		t.Fatal(err)
	}
	c.Status.Run = &v1alpha1.Run{Number: 1, Decides: decides}
	for i := range rows {
		c.Status.Run.Rows = append(c.Status.Run.Rows, fmt.Sprintf("targets.pods pods/v1 shop/pod-%05d 0f6d1f1c-0000-4000-8000-%012d %d", i, i, i))
	}
	keys := newTestKeys(t)
	sign(t, keys.ring, c)
	known := c.DeepCopy()
	change(known)
	r := &CleanerReconciler{keys: keys, pool: uninstallpool.NewPool(fair.NewSlots(1, clock.RealClock{}), func(types.NamespacedName) {}), client: cached(t, known), clock: clock.RealClock{}, turns: memoryquota.NewTurns(clock.RealClock{}, nil), opts: Options{Shards: shards.Alone{}, Skew: skew.New(skew.Options{Clock: clock.RealClock{}}), FinishGrace: time.Minute}}
	mem := newMemory(c.UID, mine)
	mem.run = *life.NewMemory(1, make([]observed.Seen, rows), r.clock.Now().Add(time.Hour)) // so that no test is too slow for it
	p, err := r.openPass(t.Context(), c, types.NamespacedName{Namespace: "shop", Name: "c"}, mem)
	if err != nil {
		t.Fatal(err)
	}
	p.store.Ring = keys.ring
	return &stepGuard{executor: &executor{pass: p, run: &mem.run, in: plan.Input{Now: mem.run.ConfirmedAt}}}
}

// testKeys are the keys of a test.
type testKeys struct{ ring signing.Ring }

// CurrentRing is the ring of the key.
func (k testKeys) CurrentRing() (signing.Ring, error) { return k.ring, nil }

func newTestKeys(t testing.TB) testKeys {
	t.Helper()
	ring, err := signing.NewRing([]signing.Key{signing.NewKey(time.Now())}, signing.RotationPolicy{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return testKeys{ring}
}

// sign signs the record of a Cleaner.
func sign(t testing.TB, ring signing.Ring, c v1alpha1.Owner) {
	t.Helper()
	if err := signedrecords.SignRecord(ring, c, c.State(), time.Unix(1700000000, 0)); err != nil {
		t.Fatal(err)
	}
}

func unchanged(*v1alpha1.Cleaner) {}

func TestNothingIsDeletedAgainstTheLatestOrders(t *testing.T) {
	cases := map[string]struct {
		change func(*v1alpha1.Cleaner)
		here   func(*stepGuard)
		want   error
	}{
		"AsCommitted": {},
		"Suspended":   {change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true; c.Generation = 2 }, want: cleanerstore.ErrOutdated},
		"DryRun":      {change: func(c *v1alpha1.Cleaner) { c.Spec.Mode = v1alpha1.ModeDryRun; c.Generation = 2 }, want: cleanerstore.ErrOutdated},
		"Edited":      {change: func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"false"}; c.Generation = 2 }, want: cleanerstore.ErrOutdated},
		"OtherSink":   {change: func(c *v1alpha1.Cleaner) { c.Spec.CloudEventSink = "http://sink"; c.Generation = 2 }},
		"Deleted":     {change: func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, want: cleanerstore.ErrOutdated},
		"MadeAnew":    {change: func(c *v1alpha1.Cleaner) { c.UID = "another" }, want: cleanerstore.ErrOutdated},
		"NotOwner":    {here: func(o *stepGuard) { o.executor.pass.mem.tenure = lost }, want: cleanerstore.ErrNotOwner},
		"Unconfirmed": {here: func(o *stepGuard) { o.executor.in.Now = time.Time{} }, want: cleanerstore.ErrOutdated},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.change == nil {
				tc.change = unchanged
			}
			o := ordered(t, 1, tc.change)
			if tc.here != nil {
				tc.here(o)
			}
			if err := o.MaySend(t.Context()); !errors.Is(err, tc.want) {
				t.Errorf("May says %v, want %v", err, tc.want)
			}
		})
	}
}

// TestAskingBeforeADeletionCopiesNoRows keeps a run of n rows from costing n times n.
func TestAskingBeforeADeletionCopiesNoRows(t *testing.T) {
	o := ordered(t, plan.MaxRows, unchanged)
	const times = 100
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	for range times {
		if err := o.MaySend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	goruntime.ReadMemStats(&after)
	// The list of the rows alone has 80 KB.
	if n := (after.TotalAlloc - before.TotalAlloc) / times; n > 8<<10 {
		t.Errorf("to ask takes %d bytes with %d rows", n, plan.MaxRows)
	}
}

func BenchmarkMay(b *testing.B) {
	o := ordered(b, plan.MaxRows, unchanged)
	b.ReportAllocs()
	for b.Loop() {
		if err := o.MaySend(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAPassDoesNotWaitForItsPace shows that a step whose turn comes later than what was read live justifies is not waited for: others
// get their turn, and the next pass goes on.
func TestAPassDoesNotWaitForItsPace(t *testing.T) {
	o := ordered(t, 1, unchanged)
	o.executor.pass.mem.pace = actuate.NewRateLimiter(1)
	b := &executor{pass: o.executor.pass}
	b.in.Now = o.executor.pass.r.clock.Now()
	steps := &stepGuard{executor: b}
	ctx, end := steps.LimitWait(t.Context())
	defer end()
	if err := steps.WaitForPace(ctx); err != nil {
		t.Errorf("the first does not go at once: %v", err)
	}
	for range 20 {
		o.executor.pass.mem.pace.ReserveN(time.Now(), 1)
	}
	if err := steps.WaitForPace(ctx); err == nil {
		t.Error("a step is waited for that may not be carried out any more when its turn comes")
	}
}

// TestWhatFollowsAPatchThatStandsGoesAtOnce shows that a deed after a patch that need not be made again is one of the first requests: it
// does not wait for those on other objects, which may hang.
func TestWhatFollowsAPatchThatStandsGoesAtOnce(t *testing.T) {
	o := ordered(t, 1, unchanged)
	b := &executor{pass: o.executor.pass, versions: map[types.UID]string{}}
	on := func(name string, verb plan.Verb, after ...int) plan.Step {
		return plan.Step{
			Rule: "r", Keys: []string{name}, Verb: verb, After: after, Patch: &plan.Patch{Body: []byte("{}")},
			Object: observed.Object{Ref: observed.Ref{Namespace: name, Name: name, UID: types.UID(name), ResourceVersion: "1"}},
		}
	}
	c := life.NewCourse(plan.Plan{Steps: []plan.Step{on("a", plan.VerbPatch), on("b", plan.VerbPatch), on("b", plan.VerbDelete, 1)}})
	o.executor.pass.mem.Patches = patched.Patches{}
	o.executor.pass.mem.Patches.NotePatch(&c.Steps[1], "1", "1", o.executor.pass.r.clock.Now())
	if got := b.readySteps(t.Context(), c); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("the first requests are those of steps %v, want [0 2]", got)
	}
}
