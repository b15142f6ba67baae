// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	clocktesting "k8s.io/utils/clock/testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// newTestFactory makes a factory whose API server is not there: nothing is asked when a set is made.
func newTestFactory(t *testing.T) *Factory {
	t.Helper()
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	c := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	engine, err := watches.New(watches.Options{Config: config, Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFactory(Config{
		Operator: config, Watches: engine, Access: identity.NewAccess(nil, c), Slots: fair.NewSlots(1, c), Ahead: func() time.Duration { return 0 }, Clock: c,
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// All Cleaners of an account share what is made for it, and it goes with the last that holds it.
func TestSetsAreShared(t *testing.T) {
	f := newTestFactory(t)
	account := identity.Account{Namespace: "shop", Name: "cleaning"}
	set, err := f.SetOf(account)
	if err != nil {
		t.Fatal(err)
	}
	if set.Definitions != f.operator { // whatever the account may read
		t.Errorf("definitions are read by %T", set.Definitions)
	}
	if set.Account != account || set.Watched == nil || set.Live == nil || set.Actuator == nil || set.Helm == nil {
		t.Fatalf("something is missing: %+v", set)
	}
	if again, err := f.SetOf(account); err != nil || again != set {
		t.Errorf("the second one differs: %v", err)
	}
	if other, err := f.SetOf(identity.Account{Namespace: "shop", Name: "other"}); err != nil || other == set {
		t.Errorf("another account has the same: %v", err)
	}
	runtime.KeepAlive(set)
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		runtime.GC()
		f.mu.Lock()
		left := len(f.made)
		f.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d accounts are kept that nobody holds", left)
		}
	}
}

// TestManySets shows from when on there are many.
func TestManySets(t *testing.T) {
	f := newTestFactory(t)
	for n := range MaxSets {
		if n > 0 && f.AreMany() {
			t.Fatalf("%d are many", n)
		}
		f.made[identity.Account{Namespace: "shop", Name: fmt.Sprint(n)}] = weak.Pointer[Set]{}
	}
	if f.AreMany() {
		t.Errorf("%d are many", MaxSets)
	}
	if f.made[identity.Account{Namespace: "shop", Name: "more"}] = (weak.Pointer[Set]{}); !f.AreMany() {
		t.Errorf("%d are not many", MaxSets+1)
	}
}

// TestDescribeMissing shows what keeps a set from being used: an account that is not there has no rights, whatever RoleBindings say.
func TestDescribeMissing(t *testing.T) {
	account := identity.Account{Namespace: "shop", Name: "cleaning"}
	for name, tc := range map[string]struct {
		account identity.Account
		seen    observed.Target
		want    string
	}{
		"Operator":    {identity.Account{}, observed.Target{}, ""},
		"There":       {account, observed.Target{State: observed.Complete, Objects: []observed.Object{{}}}, ""},
		"Gone":        {account, observed.Target{State: observed.Complete}, "does not exist"},
		"Terminating": {account, observed.Target{State: observed.Complete, Objects: []observed.Object{{Terminating: true}}}, "is being deleted"},
		"Unread":      {account, observed.Target{State: observed.Unsynced, Detail: "no answer"}, "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			got := (&Set{Account: tc.account}).DescribeMissing(t.Context(), answers{tc.seen})
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("says %q, want %q", got, tc.want)
			}
		})
	}
}

// answers gives the same objects to each query.
type answers struct{ observed.Target }

// Read gives them.
func (a answers) Read(context.Context, snapshot.Query) observed.Target { return a.Target }

// TestOwnSecretsAreNeverSeen shows that no expression sees a Secret of the operator's namespace, whoever asks.
func TestOwnSecretsAreNeverSeen(t *testing.T) {
	secrets, pods := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	in := func(resource schema.GroupVersionResource, namespace string) observed.Object {
		return observed.Object{Ref: observed.Ref{Resource: resource, Namespace: namespace, Name: "a"}}
	}
	for name, tc := range map[string]struct {
		resource schema.GroupVersionResource
		want     []string
	}{
		"Secrets": {secrets, []string{"shop"}},
		"Pods":    {pods, []string{"cleaner-system", "shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			shared := observed.Target{Resource: tc.resource, Objects: []observed.Object{in(tc.resource, "cleaner-system"), in(tc.resource, "shop")}}
			var got []string
			for _, o := range (withoutOwnSecrets{answers{shared}, "cleaner-system"}).Read(t.Context(), snapshot.Query{}).Objects {
				got = append(got, o.Namespace)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("it sees objects of %v, want %v", got, tc.want)
			}
			if shared.Objects[0].Namespace != "cleaner-system" {
				t.Error("the list that others read was changed")
			}
		})
	}
}

// TestEachReaderLeavesOwnSecretsOut shows that whatever expressions see goes through what leaves those Secrets out: what is watched and
// what is read live, for the operator and for each account.
func TestEachReaderLeavesOwnSecretsOut(t *testing.T) {
	f := newTestFactory(t)
	f.config.Protection.Own = "cleaner-system"
	for _, account := range []identity.Account{{}, {Namespace: "shop", Name: "cleaning"}} {
		set, err := f.SetOf(account)
		if err != nil {
			t.Fatal(err)
		}
		for what, reader := range map[string]snapshot.Reader{"watched": set.Watched, "read live": set.Live} {
			if r, ok := reader.(withoutOwnSecrets); !ok || r.namespace != "cleaner-system" || r.Reader == nil {
				t.Errorf("as %s what is %s is shown by %T", account, what, reader)
			}
		}
	}
}

// What cannot be made is not kept.
func TestNoSetOfABadConfig(t *testing.T) {
	f := newTestFactory(t)
	f.config.Operator = &rest.Config{Host: "http://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("no certificate")}}
	if set, err := f.SetOf(identity.Account{Namespace: "shop", Name: "cleaning"}); err == nil || set != nil || len(f.made) > 0 {
		t.Errorf("got %v, %v, and %d sets are kept", set, err, len(f.made))
	}
}
