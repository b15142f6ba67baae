// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// catalog lists what is served, and counts the requests.
type catalog struct {
	asked   int
	gadgets bool
	err     error
	panics  bool
}

func (c *catalog) ServerPreferredResourcesWithContext(context.Context) ([]*metav1.APIResourceList, error) {
	c.asked++
	if c.panics {
		panic("discovery")
	}
	verbs := metav1.Verbs{"list", "watch", "delete"}
	lists := []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: verbs}}}}
	if c.gadgets {
		lists = append(lists, &metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "gadgets", Kind: "Gadget", Namespaced: true, Verbs: verbs}}})
	}
	return lists, c.err
}

// definitions are CustomResourceDefinitions as they are watched.
func definitions(names ...string) observed.Target {
	t := observed.Target{State: observed.Complete}
	for _, name := range names {
		t.Objects = append(t.Objects, observed.Object{Ref: observed.Ref{Name: name, UID: "u", ResourceVersion: "1"}})
	}
	return t
}

func TestDirectoryAsksWhenDefinitionsChange(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	c := &catalog{}
	d := NewDirectory(clock, c)
	list := func(of observed.Target, kinds, asked int) time.Time {
		t.Helper()
		got, _, until, err := d.ListKinds(t.Context(), of)
		if err != nil || len(got) != kinds || c.asked != asked {
			t.Errorf("%d kinds after %d requests (%v), want %d after %d", len(got), c.asked, err, kinds, asked)
		}
		return until
	}
	if until := list(definitions(), 1, 1); !until.Equal(clock.Now().Add(directoryServes)) {
		t.Errorf("it serves until %s", until)
	}
	list(definitions(), 1, 1)

	// A definition is there before its kind is served: it is looked for again, less and less often.
	if until := list(definitions("gadgets.example.com"), 1, 2); !until.Equal(clock.Now().Add(time.Second)) {
		t.Errorf("it serves until %s", until)
	}
	list(definitions("gadgets.example.com"), 1, 2)
	clock.Step(time.Second)
	if until := list(definitions("gadgets.example.com"), 1, 3); !until.Equal(clock.Now().Add(2 * time.Second)) {
		t.Errorf("it serves until %s", until)
	}
	clock.Step(2 * time.Second)
	c.gadgets = true
	if until := list(definitions("gadgets.example.com"), 2, 4); !until.Equal(clock.Now().Add(directoryServes)) {
		t.Errorf("it serves until %s", until)
	}
	clock.Step(directoryServes - 1)
	list(definitions("gadgets.example.com"), 2, 4)
	clock.Step(1)
	list(definitions("gadgets.example.com"), 2, 5)

	// A definition that goes takes its kind along, and one that is terminating is not waited for.
	going := definitions("gadgets.example.com")
	going.Objects[0].Terminating = true
	going.Objects[0].ResourceVersion = "2"
	c.gadgets = false
	if until := list(going, 1, 6); !until.Equal(clock.Now().Add(directoryServes)) {
		t.Errorf("it serves until %s", until)
	}
	list(definitions(), 1, 7)
	for range 20 {
		clock.Step(backoff.LongestWait)
		d.ListKinds(t.Context(), definitions("never.example.com")) //nolint:errcheck // it is asked about below
	}
	if d.wait != backoff.LongestWait {
		t.Errorf("it waits for %s", d.wait)
	}
}

// An answer that is no answer changes nothing, and what is known of a part is known.
func TestDirectoryWithoutAnAnswer(t *testing.T) {
	c := &catalog{err: errors.New("away")}
	clock := clocktesting.NewFakeClock(time.Now())
	d := NewDirectory(clock, c)
	if _, _, until, err := d.ListKinds(t.Context(), definitions()); err == nil || !strings.Contains(err.Error(), "cannot list the kinds that the API server serves: away") || !until.Equal(clock.Now().Add(time.Second)) {
		t.Errorf("until %s: %v", until, err)
	}
	if _, _, until, err := d.ListKinds(t.Context(), definitions("another")); err == nil || c.asked != 1 || !until.Equal(clock.Now().Add(time.Second)) {
		t.Errorf("it was asked %d times within the wait, until %s: %v", c.asked, until, err)
	}
	clock.Step(time.Second)
	if _, _, until, err := d.ListKinds(t.Context(), definitions()); err == nil || c.asked != 2 || !until.Equal(clock.Now().Add(2*time.Second)) {
		t.Errorf("it was asked %d times, until %s: %v", c.asked, until, err)
	}
	clock.Step(2 * time.Second)
	c.err, c.panics = nil, true
	if _, _, _, err := d.ListKinds(t.Context(), definitions()); err == nil {
		t.Error("a panic is an answer")
	}
	clock.Step(lastRetry)
	c.panics, c.err = false, &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.example.com", Version: "v1"}: errors.New("away")}}
	kinds, unknown, until, err := d.ListKinds(t.Context(), definitions())
	if err != nil || len(kinds) != 1 || len(unknown) != 1 || unknown[0].String() != "*.metrics.example.com" || !until.Equal(clock.Now().Add(time.Second)) {
		t.Errorf("%v, %v until %s: %v", kinds, unknown, until, err)
	}
	clock.Step(time.Second)
	c.err = errors.New("away again") // what was known stays, and all of it may have changed
	kinds, unknown, until, err = d.ListKinds(t.Context(), definitions())
	if err != nil || len(kinds) != 1 || len(unknown) != 1 || unknown[0].String() != "*.*" || !until.Equal(clock.Now().Add(time.Second)) {
		t.Errorf("%v, %v until %s: %v", kinds, unknown, until, err)
	}
	if _, again, _, err := d.ListKinds(t.Context(), definitions()); err != nil || len(again) != 1 {
		t.Errorf("within the wait, unknown are %v: %v", again, err)
	}
	if _, _, _, err := NewDirectory(clock, nothing{}).ListKinds(t.Context(), definitions()); err == nil {
		t.Error("an empty list is an answer")
	}
}

// Who waits for a list of kinds that another has asked for waits no longer than it has time.
func TestDirectoryThatHangs(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	d := NewDirectory(clocktesting.NewFakeClock(time.Now()), hanging{asked, answer})
	first := make(chan error)
	go func() {
		_, _, _, err := d.ListKinds(t.Context(), definitions())
		first <- err
	}()
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := d.ListKinds(ctx, definitions()); !errors.Is(err, context.Canceled) {
		t.Errorf("it waited for the other: %v", err)
	}
	close(answer)
	if err := <-first; err == nil || !strings.Contains(err.Error(), "empty list") {
		t.Errorf("the other: %v", err)
	}
}

// hanging answers when it is let.
type hanging struct{ asked, answer chan struct{} }

func (h hanging) ServerPreferredResourcesWithContext(context.Context) ([]*metav1.APIResourceList, error) {
	close(h.asked)
	<-h.answer
	return nil, nil
}

// nothing serves no kinds.
type nothing struct{}

func (nothing) ServerPreferredResourcesWithContext(context.Context) ([]*metav1.APIResourceList, error) {
	return nil, nil
}
