// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freshness proves that watches know all that the API server knew at a moment, so that decisions can rest on them as on a live read. One
// proof serves all Cleaners that wait for it, whatever they select. What it cannot prove is read live.
//
// A proof begins with a request that no cache may answer: it returns a resource version. The watch of the resource knows all that was there
// at that time once it has reached that version. Where changes are rare, a watch may not say so for a minute. Then the names, UIDs and
// versions of all objects are listed and compared with those that the watch knows. Where that takes long, a second watch shows whether
// anything has changed since the version that the first has reached.
//
// It never decides, never writes, and reads no content of objects but through watches.
package freshness

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/live"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// few is how many objects are as cheap to list as to wait for. Of those that a query alone asks for, so many are read live if there are at
	// least aPart times as many in all.
	few   = 500
	aPart = 8
	// patience is the longest time that a proof waits for a watch before it lists, and until the watch knows what was listed. Before it lists, it does not
	// wait longer than it would take to compare a list: pause, and listTime for each object. Nor does it wait much longer than others had to: longAgainst
	// times as long, or half as long as the last one that waited in vain, and at least leastWait, and a part of what a list takes. pause is also how long
	// it waits until it compares a list once more.
	patience    = time.Second
	pause       = 50 * time.Millisecond
	leastWait   = 25 * time.Millisecond
	listTime    = 40 * time.Microsecond
	longAgainst = 4
	leastPart   = 8
	// maxPlaces is for how many places it is known how long others had to wait.
	maxPlaces = 1000
	// maxWait is how long a caller waits for a proof, also while the one before it is made, maxDuration how long one proof may take, and pauseAfterFailure
	// for how long nothing of a place is proved after one has failed: who waits for a proof in vain has less time for a live read.
	maxWait     = 5 * time.Second
	maxDuration = 3 * time.Second
	// worthFollowing is how long a list must take for changes to be followed instead. A caller then waits longFor, and a proof takes as long at most: at
	// first changes are followed, and if the API server does not tell all of them, lists are compared.
	worthFollowing    = time.Second
	longFor           = 7 * time.Second
	pauseAfterFailure = 10 * time.Second
	// listsAtATime is how many lists arrive at a time, slotWait how long another one waits for its turn, and maxListBytes what the requests of a proof
	// may take.
	listsAtATime = 2
	slotWait     = time.Second
	maxListBytes = 64 << 20
)

// Metrics counts proofs. It may be called by several goroutines.
type Metrics interface {
	// CountProof counts a proof, or an attempt at one: "reached" says that the watch has reached the version that was read, "followed" that it knows all
	// changes up to that version, "compared" that it knows what was listed, and "failed" that nothing was proved.
	CountProof(result string)
}

const reached, followed, compared, failed = "reached", "followed", "compared", "failed"

// Prover answers queries from watches that it proves to be as new as the API server. It is safe for concurrent use.
type Prover struct {
	watches  *watches.Engine
	requests *live.Reader
	metrics  Metrics
	clock    clock.PassiveClock
	few      int
	patience time.Duration
	listTime time.Duration
	worth    time.Duration
	lists    chan struct{}

	mu    sync.Mutex
	lines map[watches.Place]*line
	// waits are how long the next proof of a place waits for its watch.
	waits map[watches.Place]time.Duration
	// resting are the places where a proof has failed, and until when nothing is proved there. lost are those where the API server has gone back to an
	// older version: their watches may have missed what came instead.
	resting map[watches.Place]time.Time
	lost    map[watches.Place]bool
}

var _ snapshot.Reader = (*Prover)(nil)

// line has the proofs of a place, one after the other. next is the one that callers join now; nil if none has.
type line struct{ next *proof }

// proof is made once for all who wait for it, and says how many these are. When done is closed, version is the one that the watch has reached; "" if nothing was proved.
// exactly means that versions have no order, so that the watch is only known to have what there was at this one.
type proof struct {
	waiting int
	done    chan struct{}
	version string
	exactly bool
}

// NewProver returns a Prover for watches, which asks the API server through requests.
func NewProver(w *watches.Engine, requests *live.Reader, m Metrics, c clock.PassiveClock) *Prover {
	return &Prover{
		watches: w, requests: requests, metrics: m, clock: c, few: few, patience: patience, listTime: listTime, worth: worthFollowing,
		lists: make(chan struct{}, listsAtATime), lines: map[watches.Place]*line{}, waits: map[watches.Place]time.Duration{}, resting: map[watches.Place]time.Time{}, lost: map[watches.Place]bool{},
	}
}

// Read answers a query with what there was at a moment after it was called. It is Unsynced where that cannot be proved, or costs no less than to read
// live.
func (p *Prover) Read(ctx context.Context, q snapshot.Query) observed.Target {
	ctx, cancel := context.WithTimeout(ctx, longFor)
	defer cancel()
	if q.Namespaces.Labels == nil || q.Namespace != "" {
		return p.readPlace(ctx, q)
	}
	before, names := q.Namespaces.ListSelected(ctx, p)
	if before.State != observed.Complete {
		return unproven()
	}
	some := q
	some.Namespaces = snapshot.Namespaces{Names: names, Except: q.Namespaces.Except}
	t := p.readPlace(ctx, some)
	if t.State != observed.Complete {
		return t
	}
	if after, _ := q.Namespaces.ListSelected(ctx, p); !snapshot.AreUnchanged(before, after) { // if they are, they were when the objects were read
		return unproven()
	}
	return t
}

func unproven() observed.Target {
	return observed.Target{State: observed.Unsynced, Detail: "it is not proved that the watch knows all"}
}

// readPlace answers a query from the watch of one place.
func (p *Prover) readPlace(ctx context.Context, q snapshot.Query) observed.Target {
	place, all, near, ok := p.watches.FindPlace(&q)
	if len(q.Namespaces.Names) > live.FewNamespaces {
		near = all // a live read lists all
	}
	if !ok || q.Name != "" || place.Name != "" || near <= p.few && near*aPart <= all && near < all || p.isResting(place) {
		return unproven()
	}
	ctx, cancel := context.WithTimeout(ctx, chooseTime(p.isWorthFollowing(all), maxWait))
	defer cancel()
	switch proved := p.awaitProof(ctx, place, all); {
	case proved == nil || proved.version == "":
		return unproven()
	case proved.exactly:
		return p.watches.ReadConfirmed(ctx, q, proved.version)
	default:
		return p.watches.ReadAt(ctx, q, proved.version)
	}
}

// awaitProof returns a proof that began after the call, of a place with so many objects; nil if none came in time.
func (p *Prover) awaitProof(ctx context.Context, place watches.Place, objects int) *proof {
	next := p.joinNext(ctx, place, objects)
	select {
	case <-ctx.Done():
		return nil
	case <-next.done:
		return next
	}
}

// joinNext returns the next proof of a place. The one that is under way may rest on what was there before the call.
func (p *Prover) joinNext(ctx context.Context, place watches.Place, objects int) *proof {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[place]
	if l == nil {
		l = &line{}
		p.lines[place] = l
		go p.proveAll(context.WithoutCancel(ctx), place, l, objects) // others may wait, too
	}
	if l.next == nil {
		l.next = &proof{done: make(chan struct{})}
	}
	l.next.waiting++
	return l.next
}

// proveAll makes the proofs of a place until no caller waits for one.
func (p *Prover) proveAll(ctx context.Context, place watches.Place, l *line, objects int) {
	for next := p.takeNext(place, l); next != nil; next = p.takeNext(place, l) {
		result := failed
		_ = contain.CatchPanic(func() { next.version, next.exactly, result = p.prove(ctx, place, objects) })
		if result == failed {
			p.startRest(place)
		}
		close(next.done)
		p.metrics.CountProof(result)
	}
}

// startRest has nothing proved of a place for some time.
func (p *Prover) startRest(place watches.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	maps.DeleteFunc(p.resting, func(_ watches.Place, until time.Time) bool { return !now.Before(until) })
	p.resting[place] = now.Add(pauseAfterFailure)
}

func (p *Prover) isResting(place watches.Place) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost[place] || p.clock.Now().Before(p.resting[place])
}

// isLost says that the API server has gone back to an older version of a place.
func (p *Prover) isLost(place watches.Place) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost[place]
}

// checkHistory says that the API server has what it had before. If not, nothing of the place is proved any longer.
func (p *Prover) checkHistory(place watches.Place, version, before string) bool {
	order, err := resourceversion.CompareResourceVersion(version, before)
	if err == nil && order < 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lost[place] = true
	}
	return err == nil && order >= 0
}

// takeNext returns the next proof to be made, and drops the line if there is none.
func (p *Prover) takeNext(place watches.Place, l *line) *proof {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := l.next
	if l.next = nil; next == nil {
		delete(p.lines, place)
	}
	return next
}

// prove makes one proof of a place with so many objects, and returns the version that was reached; "" if none was. exactly means that versions have no order.
func (p *Prover) prove(ctx context.Context, place watches.Place, objects int) (version string, exactly bool, result string) {
	ctx, cancel := context.WithTimeout(snapshot.WithMemory(ctx, &room{}), chooseTime(p.isWorthFollowing(objects), maxDuration))
	defer cancel()
	before := p.watches.ReachedVersion(place) // the API server has it, or it has lost what it knew
	ordered, known := p.checkDefinition(ctx, place)
	if !known {
		return "", false, failed
	}
	if objects > p.few && ordered {
		version, err := p.requests.ReadVersion(ctx, place.Resource, place.Namespace)
		if err != nil || !p.checkHistory(place, version, before) {
			return "", false, failed
		}
		// A kind that a CustomResourceDefinition defines may be served by another API server all the same, which may give all lists the same version.
		if version != before || wire.IsKnown(place.GVR.GroupVersion()) {
			version, result = p.awaitOrCompare(ctx, place, version, before, objects)
			return version, false, result
		}
	}
	version, result = p.compareLists(ctx, place, before, ordered)
	return version, !ordered, result
}

// awaitOrCompare waits until a place with so many objects has reached a version. If it does not soon, lists are compared while it still waits: the next
// change may be one that only those make who wait for the proof. It returns what proves first. before is the version that the place had reached.
func (p *Prover) awaitOrCompare(ctx context.Context, place watches.Place, version, before string, objects int) (proved string, result string) {
	if p.isWorthFollowing(objects) {
		switch last, came := p.awaitOrFollow(ctx, place, version, before); {
		case came:
			return version, reached
		case last != "":
			return last, followed
		}
	}
	began := p.clock.Now()
	wait, most := p.chooseWait(place, objects)
	patient, end := context.WithTimeout(ctx, most)
	defer end()
	came := p.awaitVersion(patient, place, version, wait)
	if !came {
		came = awaitBeside(ctx, p.watches, place, version, func(ctx context.Context) {
			if proved, result = p.compareLists(ctx, place, before, true); result == failed && !p.isLost(place) {
				select { // a change may still prove
				case <-ctx.Done():
				case <-patient.Done():
				}
			}
		})
	}
	p.noteWait(place, nextWait(wait, p.clock.Since(began), came))
	switch {
	case p.isLost(place): // a list may have shown that, while a change came that proves nothing then
		return "", failed
	case came:
		return version, reached
	}
	return proved, result
}

// isWorthFollowing says that to list so many objects takes longer than to follow what changes.
func (p *Prover) isWorthFollowing(objects int) bool {
	return time.Duration(objects)*p.listTime >= p.worth
}

// chooseTime returns how much time there is for what needs a proof: more than usual where changes are followed.
func chooseTime(follows bool, usual time.Duration) time.Duration {
	if follows {
		return longFor
	}
	return usual
}

// awaitOrFollow waits until a place has reached a version, which came then, or until a second watch has shown what changed up to that version since before,
// the version that the place had reached. Then last is the last of these changes, which the place has reached by then: it knows all that was there at the
// version. If neither came in time, last is "".
func (p *Prover) awaitOrFollow(ctx context.Context, place watches.Place, version, before string) (last string, came bool) {
	came = awaitBeside(ctx, p.watches, place, version, func(ctx context.Context) {
		shown, err := p.requests.FollowChanges(ctx, place.Resource, place.Namespace, place.Filter.Labels, place.Filter.Fields, before, version)
		if err == nil && p.watches.AwaitVersion(ctx, place, shown) {
			last = shown
		}
	})
	return last, came
}

// awaitBeside waits until a place has reached a version, which came then, while it does something else. Both have one context, which ends when the version
// came or the other is done.
func awaitBeside(ctx context.Context, w *watches.Engine, place watches.Place, version string, other func(context.Context)) (came bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	both := []func(){
		func() {
			if came = w.AwaitVersion(ctx, place, version); came {
				stop()
			}
		},
		func() {
			defer stop()
			other(ctx)
		},
	}
	contain.RunParallel(len(both), len(both), func(i int) { both[i]() })
	return came
}

// compareLists lists the objects of a place until its watch knows the same, and returns the version of the list; "" if that has not been proved. before is
// a version that the API server has had.
func (p *Prover) compareLists(ctx context.Context, place watches.Place, before string, ordered bool) (version string, result string) {
	list, version, err := p.listVersions(ctx, place)
	if err != nil || !p.checkHistory(place, version, before) {
		return "", failed
	}
	patient, end := context.WithTimeout(ctx, p.patience)
	defer end()
	for patient.Err() == nil {
		switch {
		case p.watches.ConfirmList(place, list, version):
			return version, compared
		case version == before || !ordered:
			return "", failed
		case p.awaitVersion(patient, place, version, pause):
			return version, reached
		}
	}
	return "", failed
}

// checkDefinition says whether the versions of a place have the order of its changes, as those of all kinds that the API server itself stores: its own, and
// those that a CustomResourceDefinition defines. Other API servers may do as they like. Several Events that expire at once have one version. It is not known
// what objects are if their definition has changed and the watch of definitions has not shown that yet: they are shown otherwise then, at the same versions.
func (p *Prover) checkDefinition(ctx context.Context, place watches.Place) (ordered, known bool) {
	if wire.IsKnown(place.GVR.GroupVersion()) {
		return place.GVR.Resource != "events", true
	}
	now, isRead := served.ReadDefinitionState(ctx, p.requests, place.GVR.GroupResource())
	seen, isSeen := served.ReadDefinitionState(ctx, p.watches, place.GVR.GroupResource()) // after now: it is newer, which ReadAt looks at
	return now != "", isRead && isSeen && now == seen
}

// chooseWait returns how long a proof of a place with so many objects waits for its watch before it lists, and how long it waits at most.
func (p *Prover) chooseWait(place watches.Place, objects int) (wait, most time.Duration) {
	takes := time.Duration(objects) * p.listTime
	most = min(p.patience, pause+takes)
	if takes > maxDuration/2 { // a list may come too late
		return most, most
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(most, max(leastWait, most/leastPart, p.waits[place])), most
}

// noteWait records how long the next proof of a place waits.
func (p *Prover) noteWait(place watches.Place, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waits) >= maxPlaces {
		clear(p.waits)
	}
	p.waits[place] = next
}

// nextWait is how long the next proof of a place waits after one that took so long, and whether a change came: shorter, little by little, where changes
// come soon, or not before a list.
func nextWait(wait, took time.Duration, came bool) time.Duration {
	if !came {
		return wait / 2
	}
	return max(wait/2, longAgainst*took)
}

// awaitVersion waits for some time until a place has reached a version. Where no watch answers, it returns after that time, too.
func (p *Prover) awaitVersion(ctx context.Context, place watches.Place, version string, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if p.watches.AwaitVersion(ctx, place, version) {
		return true
	}
	<-ctx.Done()
	return false
}

// listVersions lists which objects of a place there are, in the memory that there is for that.
func (p *Prover) listVersions(ctx context.Context, place watches.Place) ([]observed.Ref, string, error) {
	waiting, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	select {
	case <-waiting.Done():
		return nil, "", waiting.Err()
	case p.lists <- struct{}{}:
	}
	defer func() { <-p.lists }()
	return p.requests.ListVersions(ctx, place.Resource, place.Namespace, place.Filter.Labels, place.Filter.Fields)
}

// room is the memory of one proof.
type room struct{ taken atomic.Int64 }

var errNoRoom = errors.New("the list is too large to be compared")

// TakeBytes takes so many bytes more.
func (r *room) TakeBytes(bytes int64) error {
	if r.taken.Add(bytes) > maxListBytes && bytes > 0 {
		return errNoRoom
	}
	return nil
}

// Reader reads from watches what is proved, and from the API server what is not.
type Reader struct{ Proven, Live snapshot.Reader }

// Read answers a query with what there was at a moment after it was called.
func (r Reader) Read(ctx context.Context, q snapshot.Query) observed.Target {
	if q.OfAnyKind { // its watches hold what a filter selects, and a list of that is short
		return r.Live.Read(ctx, q)
	}
	if t := r.Proven.Read(ctx, q); t.State == observed.Complete {
		return t
	}
	return r.Live.Read(ctx, q)
}
