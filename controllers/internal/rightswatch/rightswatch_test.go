// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package rightswatch

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/test/apiserver"
)

func resourceOf(kind string) schema.GroupVersionResource {
	return rbacv1.SchemeGroupVersion.WithResource(kind)
}

// rig is a Watcher of a server of roles and bindings, and what it has told.
type rig struct {
	*testing.T
	*apiserver.Server
	clock *clocktesting.FakeClock

	told atomic.Int64
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, Server: apiserver.New(t), clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	for _, kind := range listKinds() {
		r.Serve(resourceOf(kind), kind, !strings.HasPrefix(kind, "cluster"))
	}
	return r
}

func (r *rig) start() {
	r.Helper()
	config := r.Server.Config()
	m, err := metadata.NewForConfig(config)
	if err != nil {
		r.Fatal(err)
	}
	access, err := authorizationv1client.NewForConfig(config)
	if err != nil {
		r.Fatal(err)
	}
	w := New(Options{Metadata: m, Access: access.SelfSubjectAccessReviews(), Clock: r.clock, Tell: func() { r.told.Add(1) }})
	ctx, stop := context.WithCancel(r.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	r.Cleanup(func() {
		stop()
		running.Wait()
	})
}

// until lets time pass until something holds.
func (r *rig) until(what string, done func() bool) {
	r.Helper()
	for end := time.Now().Add(time.Minute); !done(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("waited in vain: %s", what)
		}
		r.clock.Step(time.Second)
	}
}

// tells waits until more is told.
func (r *rig) tells(what string) {
	r.Helper()
	before := r.told.Load()
	r.until(what, func() bool { return r.told.Load() > before })
}

// follows waits until all kinds are watched, and that is told.
func (r *rig) follows() {
	r.Helper()
	r.until("all kinds are watched", func() bool {
		for _, kind := range listKinds() {
			if r.Asked("watch "+kind) == 0 {
				return false
			}
		}
		return true
	})
	for range (burst + 1) * restAfter / time.Second { // what came one after the other
		r.clock.Step(time.Second)
		<-time.After(time.Millisecond)
	}
}

// Each change of a role or a binding is told.
func TestChangesAreTold(t *testing.T) {
	r := newRig(t)
	r.Put(resourceOf("roles"), "a", "there", nil)
	r.start()
	r.follows()
	for _, kind := range listKinds() {
		namespace := "a"
		if strings.HasPrefix(kind, "cluster") {
			namespace = ""
		}
		r.Put(resourceOf(kind), namespace, "r", nil)
		r.tells("a creation in " + kind)
		r.Put(resourceOf(kind), namespace, "r", map[string]string{"a": "b"})
		r.tells("a change in " + kind)
		r.Remove(resourceOf(kind), namespace, "r")
		r.tells("a deletion in " + kind)
	}
}

// Many changes are told at once, and then not again for some time.
func TestManyChangesAreToldAtOnce(t *testing.T) {
	r := newRig(t)
	r.start()
	r.follows()
	before := r.told.Load()
	const changes, seconds = 2000, 300
	for range seconds {
		for range changes / seconds {
			r.Put(resourceOf("rolebindings"), "a", "b", nil)
		}
		r.clock.Step(time.Second)
	}
	r.tells("the last of them")
	if told, most := r.told.Load()-before, seconds/int64(restAfter/time.Second)+burst+1; told > most {
		t.Errorf("%d changes in %d seconds are told %d times, more than %d", changes, seconds, told, most)
	}
}

// What changes while a watch fails is told when it begins again.
func TestAWatchThatFailsBeginsAgain(t *testing.T) {
	r := newRig(t)
	r.start()
	r.follows()
	var fails atomic.Bool
	fails.Store(true)
	r.SetFault(func(w http.ResponseWriter, _ string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if gvr.Resource != "roles" || !fails.Load() {
			return false
		}
		apiserver.Fail(w, http.StatusInternalServerError, "InternalError", nil)
		return true
	})
	r.CloseClientConnections()
	asked := r.Asked("watch roles")
	r.until("it is tried again", func() bool { return r.Asked("watch roles") > asked+1 })
	r.Put(resourceOf("roles"), "a", "r", nil)
	fails.Store(false)
	r.tells("the change")
}

// A right that is taken away is not asked for again.
func TestARightThatIsTakenAway(t *testing.T) {
	r := newRig(t)
	r.start()
	r.follows()
	r.Deny(apiserver.Denial{Resource: "roles"})
	asked := r.Asked("watch roles")
	r.CloseClientConnections()
	r.until("it is asked for roles", func() bool { return r.Asked("watch roles") > asked })
	asked++
	for range 100 {
		r.clock.Step(mostPause)
	}
	if more := r.Asked("watch roles") - asked; more > 0 {
		t.Errorf("it is asked %d times more", more)
	}
}

// Without the right to watch them all, none is listed, and it is asked once.
func TestWithoutTheRightNothingIsAsked(t *testing.T) {
	r := newRig(t)
	r.Deny(apiserver.Denial{Resource: "clusterroles"})
	r.start()
	r.until("it is asked", func() bool { return r.Asked("review clusterroles") == 2 })
	for range 100 {
		r.clock.Step(askEvery)
	}
	if n := r.Asked("review clusterroles"); n != 2 || r.Asked("list roles")+r.Asked("watch roles") > 0 || r.told.Load() > 0 {
		t.Errorf("it is asked %d times, roles are watched %d times, and %d changes are told", n, r.Asked("list roles")+r.Asked("watch roles"), r.told.Load())
	}
}

// Without an answer it is asked again.
func TestTheRightIsAskedForAgain(t *testing.T) {
	r := newRig(t)
	var asked atomic.Int64
	r.SetFault(func(w http.ResponseWriter, verb string, _ schema.GroupVersionResource, _ *http.Request) bool {
		if verb != "review" || asked.Add(1) > 3 {
			return false
		}
		apiserver.Fail(w, http.StatusForbidden, "Forbidden", nil)
		return true
	})
	r.start()
	r.follows()
}
