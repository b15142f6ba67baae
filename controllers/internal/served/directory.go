// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// AllResources lists what an API server serves, each resource in the version that its group prefers. client-go's discovery client implements it.
type AllResources interface {
	ServerPreferredResourcesWithContext(ctx context.Context) ([]*metav1.APIResourceList, error)
}

const (
	// directoryServes is how old a list of all kinds may be while no CustomResourceDefinition changes: an aggregated API server announces no kinds.
	directoryServes = 5 * time.Minute
	// lookAgain is when a caller looks again that had no time left.
	lookAgain = time.Second
	// fetchTimeout is how long the API server may take to list all kinds, and lastRetry bounds the wait after it could not, doubled each time.
	fetchTimeout = 5 * time.Second
	lastRetry    = time.Minute
)

// Directory knows all kinds that an API server serves. It is safe for concurrent use.
type Directory struct {
	discovery AllResources
	clock     clock.PassiveClock

	// turn is held by the one who asks or reads what follows.
	turn chan struct{}
	// of sums up the definitions that there were when the kinds were listed.
	of    [sha256.Size]byte
	kinds []anykind.Kind
	// unknown are the groups whose kinds could not be listed.
	unknown []schema.GroupResource
	until   time.Time
	wait    time.Duration
	// failed is why the kinds could not be listed the last time, and retry until when they are not listed again; nil if they were.
	failed    error
	retry     time.Time
	retryWait time.Duration
}

// NewDirectory returns a Directory that asks through a client.
func NewDirectory(c clock.PassiveClock, d AllResources) *Directory {
	return &Directory{discovery: d, clock: c, turn: make(chan struct{}, 1)}
}

// ListKinds returns all kinds that may be cleaned by targets of all kinds, the groups whose kinds are not known, and until when that serves. It asks
// again when the definitions have changed, which are the CustomResourceDefinitions as they are watched. While the API server cannot list them, those
// that were known stay.
func (d *Directory) ListKinds(ctx context.Context, definitions observed.Target) (kinds []anykind.Kind, unknown []schema.GroupResource, until time.Time, err error) {
	of := sumDefinitions(definitions)
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return nil, nil, d.clock.Now().Add(lookAgain), fmt.Errorf("cannot list the kinds that the API server serves: another Cleaner waits for it: %w", ctx.Err())
	}
	now := d.clock.Now()
	if !d.until.IsZero() && d.of == of && now.Before(d.until) {
		return d.kinds, d.unknown, d.until, nil
	}
	if d.failed != nil && now.Before(d.retry) {
		return d.listKnown()
	}
	if d.of != of {
		d.wait = 0
	}
	if d.failed = d.fetchKinds(ctx, definitions, now); d.failed != nil {
		if err := d.failed; ctx.Err() != nil { // this caller has no time left; others may
			d.failed = nil
			return nil, nil, d.clock.Now().Add(lookAgain), err
		}
		d.retryWait = min(backoff.DoubleWait(d.retryWait), lastRetry)
		d.retry = d.clock.Now().Add(d.retryWait)
		return d.listKnown()
	}
	d.of, d.retryWait = of, 0
	return d.kinds, d.unknown, d.until, nil
}

// listKnown returns the kinds that were known before the API server could not list them, until it is asked again: all groups are unknown then.
func (d *Directory) listKnown() (kinds []anykind.Kind, unknown []schema.GroupResource, until time.Time, err error) {
	if len(d.kinds) == 0 {
		return nil, nil, d.retry, d.failed
	}
	return d.kinds, []schema.GroupResource{{Group: observed.Everything, Resource: observed.AllResources}}, d.retry, nil
}

func sumDefinitions(definitions observed.Target) [sha256.Size]byte {
	h := sha256.New()
	for i := range definitions.Objects {
		o := &definitions.Objects[i]
		fmt.Fprintf(h, "%q %q %q\n", o.Name, o.UID, o.ResourceVersion)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// fetchKinds asks the API server.
func (d *Directory) fetchKinds(ctx context.Context, definitions observed.Target, now time.Time) error {
	var lists []*metav1.APIResourceList
	var err error
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if p := contain.CatchPanic(func() { lists, err = d.discovery.ServerPreferredResourcesWithContext(ctx) }); p != nil {
		err = p
	}
	kinds, unknown, failed := anykind.ListServed(lists, err)
	switch {
	case failed != nil:
		return failed
	case err == nil && len(lists) == 0:
		return errors.New("the API server returned an empty list of kinds")
	}
	d.kinds, d.unknown, d.until = anykind.Merge(kinds, d.kinds, unknown), unknown, now.Add(directoryServes)
	if len(unknown) == 0 && !lacksDefined(lists, definitions) {
		d.wait = 0
		return nil
	}
	d.wait = backoff.DoubleWait(d.wait)
	d.until = now.Add(d.wait)
	return nil
}

// lacksDefined reports whether there is a definition whose kind is not served yet.
func lacksDefined(lists []*metav1.APIResourceList, definitions observed.Target) bool {
	served := map[string]bool{}
	for _, list := range lists {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		for i := range list.APIResources {
			served[schema.GroupResource{Group: gv.Group, Resource: list.APIResources[i].Name}.String()] = true
		}
	}
	for i := range definitions.Objects {
		if o := &definitions.Objects[i]; !o.Terminating && !served[o.Name] {
			return true
		}
	}
	return false
}
