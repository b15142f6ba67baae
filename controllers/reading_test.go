// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/passreads"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// uninstallRig is a rig with an API server that has a release.
type uninstallRig struct {
	*rig

	// corrupt says that the record of the release cannot be read.
	corrupt atomic.Bool
	// newUninstaller makes one that has read nothing.
	newUninstaller func() *helm.Uninstaller
}

// uninstalling is a Cleaner that wants release web uninstalled, in a rig whose API server has that release, of no objects.
func uninstalling(t *testing.T) *uninstallRig {
	t.Helper()
	return uninstallingOf(t, "", nil)
}

// uninstallingOf is one whose release has a manifest. Other requests than those for its record are for other.
func uninstallingOf(t *testing.T, manifest string, other http.HandlerFunc) *uninstallRig {
	t.Helper()
	c := &v1alpha1.Cleaner{Spec: v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Helm: &v1alpha1.Helm{Release: "web", Delete: true}}}
	r := &uninstallRig{rig: newRig(t, c)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.Contains(req.URL.Path, "/secrets") {
			other(w, req)
			return
		}
		release := fmt.Sprintf(`{"name":"web","namespace":"shop","version":1,"info":{"first_deployed":"2030-01-02T03:04:05Z","status":"deployed"},"manifest":%q,"hooks":[]}`, manifest)
		secret := &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sh.helm.release.v1.web.v1", UID: "record", ResourceVersion: "1"},
			Data:       map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString([]byte(release)))},
		}
		if r.corrupt.Load() {
			secret.UID, secret.ResourceVersion, secret.Data["release"] = "another", "2", []byte("?")
		}
		var answer any = secret
		if strings.HasSuffix(req.URL.Path, "/secrets") {
			answer = &metav1.PartialObjectMetadataList{
				TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
				Items:    []metav1.PartialObjectMetadata{{TypeMeta: secret.TypeMeta, ObjectMeta: secret.ObjectMeta}},
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	r.newUninstaller = func() *helm.Uninstaller {
		uninstaller, err := helm.New(helm.Options{Config: &rest.Config{Host: server.URL}, Clock: r.clock})
		must(t, err)
		return uninstaller
	}
	r.own.Helm = r.newUninstaller()
	return r
}

// readings are the slots for readings, and know how often somebody has asked for one or given one back.
type readings struct {
	clock.PassiveClock

	asked atomic.Int32
}

// Now is asked for by the slots, once each time.
func (c *readings) Now() time.Time {
	c.asked.Add(1)
	return c.PassiveClock.Now()
}

// occupyReadings has a Cleaner of another namespace read a record, until it gives the slot back.
func (r *rig) occupyReadings() (giveBack func(), asked *readings) {
	r.t.Helper()
	asked = &readings{PassiveClock: r.clock}
	r.readings = fair.NewSlots(readingsAtATime, asked)
	leave, err := r.readings.TurnOf(types.NamespacedName{Namespace: "other", Name: "c"})(r.t.Context())
	must(r.t, err)
	return leave, asked
}

// await waits until so many have asked.
func (c *readings) await(t *testing.T, n int32) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); c.asked.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
}

// While the record of another namespace is read, a pass waits for longer than it may take itself. That is not its own time, and what is
// confirmed is not as old.
func TestWaitingForAReadingIsNotTheOwnTimeOfAPass(t *testing.T) {
	r := uninstalling(t)
	giveBack, asked := r.occupyReadings()
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		r.pass()
	}()
	asked.await(t, 2)
	r.clock.Step(2 * passLimit)
	giveBack()
	<-passed
	c := r.cleaner()
	if c == nil || c.Status.Run == nil || c.Status.Run.Helm == nil || c.Status.Run.Helm.UID != "record" {
		t.Errorf("it is not committed: %+v", c.Status)
	}
}

// A reading that waits ends when its Cleaner is suspended, edited or deleted: what it would read is of no use, and the pass comes back
// at once.
func TestAReadingEndsWithItsCleaner(t *testing.T) {
	deleted := metav1.NewTime(epoch)
	for name, change := range map[string]func(c *v1alpha1.Cleaner){
		"Suspended": func(c *v1alpha1.Cleaner) { c.Spec.Suspend, c.Generation = true, 2 },
		"Edited":    func(c *v1alpha1.Cleaner) { c.Spec.Helm.Release, c.Generation = "other", 2 },
		"Deleted":   func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &deleted },
	} {
		t.Run(name, func(t *testing.T) {
			r := uninstalling(t)
			giveBack, asked := r.occupyReadings()
			defer giveBack()
			again := make(chan time.Duration)
			go func() { again <- r.pass().RequeueAfter }()
			asked.await(t, 2)
			c := r.cleaner()
			change(c)
			r.evaluations.CancelOutdated(c)
			if got := <-again; got != conflictRetry {
				t.Errorf("it comes back after %s", got)
			}
			if c := r.cleaner(); c.Status.LastEvaluation != nil || c.Status.Run != nil {
				t.Errorf("it says something that was not read: %+v", c.Status)
			}
		})
	}
}

// A reading ends when it has taken its time: an API server that does not answer, or has too much to answer, holds up no pass for longer.
// The wait for a slot does not count.
func TestAReadingHasItsTime(t *testing.T) {
	held := make(chan struct{})
	r := uninstallingOf(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", func(_ http.ResponseWriter, req *http.Request) {
		held <- struct{}{}
		<-req.Context().Done()
	})
	end := func(what string, read func()) {
		t.Helper()
		giveBack, asked := r.occupyReadings()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			read()
		}()
		asked.await(t, 2)
		r.clock.Step(2 * readingLimit)
		giveBack()
		<-held
		r.clock.Step(readingLimit)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s goes on", what)
		}
	}
	end("a reading of a run", func() {
		p, err := r.openPass(t.Context(), r.cleaner(), r.key(), newMemory("uid", mine))
		must(t, err)
		p.clients = r.own
		if _, unread, err := releaseOf(p).readCommitted(t.Context(), "web"); !errors.Is(unread, helm.ErrTooSlow) || err != nil {
			t.Errorf("got %v, %v", unread, err)
		}
	})
	r.own.Helm = r.newUninstaller() // which has not read the record
	end("a pass", func() { r.pass() })
	if c := r.cleaner(); c.Status.Run != nil || c.Status.LastEvaluation == nil || !strings.Contains(c.Status.LastEvaluation.Message, passreads.SlowReads) {
		t.Errorf("it says %+v", c.Status.LastEvaluation)
	}
}

// What is read of an open run's release ends so too, and is not taken for a release that cannot be read.
func TestAReadingOfARunEndsWithItsCleaner(t *testing.T) {
	r := uninstalling(t)
	p, err := r.openPass(t.Context(), r.cleaner(), r.key(), newMemory("uid", mine))
	must(t, err)
	p.clients = r.own
	giveBack, asked := r.occupyReadings()
	ended := make(chan error)
	go func() {
		_, unread, err := releaseOf(p).readCommitted(t.Context(), "web")
		ended <- errors.Join(err, map[bool]error{true: errors.New("nothing was in the way")}[unread == nil])
	}()
	asked.await(t, 2)
	c := r.cleaner()
	c.Generation++
	r.evaluations.CancelOutdated(c)
	if err := <-ended; !errors.Is(err, cleanerstore.ErrOutdated) {
		t.Errorf("got %v", err)
	}
	giveBack()
	rel, unread, err := releaseOf(p).readCommitted(t.Context(), "web")
	if unread != nil || err != nil || rel.State != observed.ReleaseDeployed {
		t.Errorf("after it: got %+v, %v, %v", rel, unread, err)
	}
}

// A run that was committed and then stopped by an edit tries to read its release for a while, however often it fails. Then it ends, says
// that it does not know what became of the release, and frees its Cleaner for the spec that is there now.
func TestAStoppedRunWhoseReleaseCannotBeReadEnds(t *testing.T) {
	r := uninstalling(t)
	r.pass()
	if c := r.cleaner(); c.Status.Run == nil || c.Status.Run.Helm == nil {
		t.Fatalf("no run is committed: %+v", c.Status)
	}
	r.corrupt.Store(true)
	r.edit(func(c *v1alpha1.Cleaner) { c.Spec.ServiceAccountName = "another" })
	began := r.clock.Now()
	for r.cleaner().Status.Run != nil {
		if took := r.clock.Since(began); took > 30*time.Minute {
			t.Fatalf("after %s, the run is still open: %+v", took, r.cleaner().Status.Run)
		}
		wait := r.pass().RequeueAfter
		if wait > backoff.LongestWait { // it waits for a slot, and is woken when it has one
			wait = 0
		}
		r.clock.Step(max(wait, time.Second))
	}
	if took := r.clock.Since(began); took < 5*time.Minute {
		t.Errorf("it gave up after %s", took)
	}
	const want = `the spec was edited; the state of release "web" is unknown: `
	if said := r.said(); !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "Partial") && strings.Contains(s, want) }) {
		t.Errorf("no Event says %q: %q", want, said)
	}
}

// The slot for readings is shared out among namespaces: a Cleaner of one that reads nothing else comes next, however many of another
// namespace wait before it.
func TestReadingsAreSharedOut(t *testing.T) {
	const before = 20
	r := newRig(t, done())
	giveBack, asked := r.occupyReadings()
	came := make(chan string, before+1)
	read := func(namespace, name string) {
		leave, err := r.readings.TurnOf(types.NamespacedName{Namespace: namespace, Name: name})(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		came <- namespace
		r.clock.Step(time.Second)
		leave()
	}
	var all sync.WaitGroup
	for n := range before {
		all.Go(func() { read("other", fmt.Sprint(n)) })
	}
	asked.await(t, 1+before)
	all.Go(func() { read("calm", "c") })
	asked.await(t, 2+before)
	r.clock.Step(time.Second)
	giveBack()
	if next := <-came; next != "calm" {
		t.Errorf("a Cleaner of namespace %q comes next", next)
	}
	all.Wait()
}
