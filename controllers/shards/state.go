// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"slices"
	"time"

	"github.com/vtex/cleaner/controllers/plan/monotime"
)

// The times of a replica. Whether it may act itself it judges by the clock that says that more time has passed, and whether others may by the
// monotonic one, which is never set. One that has not renewed its Lease for renewalServes no longer acts; the others take its shards expiresAfter after
// they saw its last renewal, and so later than that.
const (
	renewalServes = 10 * time.Second
	expiresAfter  = 15 * time.Second
	// handOverAfter is how long a shard rests before its owner gives it away: as long as between renewalServes and expiresAfter.
	handOverAfter = expiresAfter - renewalServes
	// settlesAfter is how long another replica must have been there before it gets shards that have an owner: the Pod that follows another one in a
	// rollout gets all of them when that one ends, and what a process remembers is lost once.
	settlesAfter = time.Minute
)

// lease is a Lease as it was read. Those that do not exist have no version.
type lease struct{ holder, version string }

// listing is what a consistent read showed of the Leases of replicas and shards.
type listing struct {
	sent, answered time.Time
	replicas       [Count]lease
	shards         [Count]lease
}

// sighting is a Lease of a replica as it was seen first with this version, and with this holder.
type sighting struct {
	lease
	changed, arrived time.Time
}

// tenure is the ownership of one shard, from when it was taken to when it is given up. Its number is never used again; zero: there is none.
type tenure struct {
	number  int64
	version string    // of the Lease
	resting time.Time // since when it is about to be given away; zero: it is not
}

// isKept reports that the shard is owned, and not about to be given away.
func (t tenure) isKept() bool { return t.number != 0 && t.resting.IsZero() }

// write is a change of the Lease of a shard: to this process as its holder, or to none.
type write struct {
	shard int
	takes bool
	// term is that in which the write was decided on.
	term int64
}

// renewal is one of what a replica must have done lately to own anything: renewed the gate and its own Lease, and listed what is owned.
type renewal int

const (
	ofGate renewal = iota
	ofReplica
	ofListing
	renewals
)

// state is what a replica knows of its ownership. It is pure: it sends nothing and reads no clock.
type state struct {
	me      string
	renewed [renewals]time.Time // when the last renewal was sent; zero: there was none
	// leaving says that this replica takes nothing more, and stopped that it owns nothing more.
	leaving, stopped bool
	// term is a time of unbroken renewals, and tenures how many have begun.
	term, tenures int64
	held          [Count]tenure
	seen          [Count]sighting // of the Leases of replicas
	gate          gateSighting
}

// noteRenewal takes in that a renewal was answered. It counts from when it was sent. If it comes later than the last one served, others may have
// taken over meanwhile: it no longer holds anything.
func (s *state) noteRenewal(which renewal, sent, answered time.Time) {
	if last := s.renewed[which]; last.IsZero() || monotime.ElapsedTime(last, answered) >= renewalServes {
		s.giveUpAll()
	}
	if s.renewed[which].Before(sent) {
		s.renewed[which] = sent
	}
}

// gateSighting is the Lease of earlier versions as it was read or written last. Changed is when it was first seen so, and read when the last read was
// sent.
type gateSighting struct {
	lease
	changed, read time.Time
}

// noteGate takes in the Lease of earlier versions as it was read, and reports whether this replica should write it: no earlier version holds it, or
// none that has renewed it for as long as it lasts, and no other replica has just renewed it. What another one renewed since the last read counts from
// when that was sent.
func (s *state) noteGate(l lease, lasts time.Duration, sent, answered time.Time) (writes, free bool) {
	if l.holder != GateHolder { // its holder may act
		s.giveUpAll()
		s.renewed[ofGate] = time.Time{}
	}
	old := s.gate
	s.gate.read = sent
	if old.changed.IsZero() || old.version != l.version {
		s.gate.lease, s.gate.changed = l, answered
		if old.holder == GateHolder && l.holder == GateHolder {
			s.noteRenewal(ofGate, old.read, answered)
			return false, true
		}
	}
	free = l.holder == "" || l.holder == GateHolder || sent.Sub(s.gate.changed) >= max(lasts, expiresAfter)
	return free, free
}

// noteGateWritten takes in that this replica has renewed the Lease of earlier versions.
func (s *state) noteGateWritten(version string, sent, answered time.Time) {
	s.gate.lease, s.gate.changed = lease{GateHolder, version}, answered
	s.noteRenewal(ofGate, sent, answered)
}

// giveUpAll ends all tenures, and what was decided before.
func (s *state) giveUpAll() {
	s.held = [Count]tenure{}
	s.term++
}

// isRenewed reports that this replica may act, for all that it can know.
func (s *state) isRenewed(now time.Time) bool {
	return !s.stopped && !slices.ContainsFunc(s.renewed[:], func(at time.Time) bool {
		return at.IsZero() || monotime.ElapsedTime(at, now) >= renewalServes
	})
}

// endLapsed ends all tenures when this replica may no longer act: they do not last again when a late answer comes.
func (s *state) endLapsed(now time.Time) {
	if !s.isRenewed(now) && s.held != ([Count]tenure{}) {
		s.giveUpAll()
	}
}

// canList reports that this replica has listed Leases lately, or never tried to.
func (s *state) canList(now time.Time) bool {
	at := s.renewed[ofListing]
	return at.IsZero() || monotime.ElapsedTime(at, now) < renewalServes
}

// holds reports that a tenure lasts.
func (s *state) holds(shard int, number int64, now time.Time) bool {
	t := s.held[shard]
	return t.isKept() && t.number == number && s.isRenewed(now)
}

// countHeld counts the shards that this replica acts for.
func (s *state) countHeld(now time.Time) int {
	if !s.isRenewed(now) {
		return 0
	}
	return s.countKept()
}

// noteListing takes in when the Leases of replicas changed.
func (s *state) noteListing(l *listing) {
	for i, now := range l.replicas {
		old := &s.seen[i]
		if old.holder != now.holder || old.arrived.IsZero() {
			old.arrived = l.answered
		}
		if old.version != now.version || old.changed.IsZero() {
			old.changed = l.answered
		}
		old.lease = now
	}
}

// isAlive reports whether the replica in a place renewed its Lease, as far as a listing shows.
func (s *state) isAlive(place int, l *listing) bool {
	seen := s.seen[place]
	return seen.holder != "" && (seen.holder == s.me || l.sent.Sub(seen.changed) < expiresAfter)
}

// findPlace returns the place of this replica, or one that is free: there is none if ok is false.
func (s *state) findPlace(l *listing) (place int, ok bool) {
	for i, r := range l.replicas {
		if r.holder == s.me {
			return i, true
		}
	}
	for i := range l.replicas {
		if !s.isAlive(i, l) {
			return i, true
		}
	}
	return 0, false
}

// others are the other replicas that are alive, and how many have been for settlesAfter.
func (s *state) others(l *listing) (alive map[string]bool, settled int) {
	alive = map[string]bool{}
	for i := range s.seen {
		if s.seen[i].holder == s.me || !s.isAlive(i, l) {
			continue
		}
		alive[s.seen[i].holder] = true
		if l.sent.Sub(s.seen[i].arrived) >= settlesAfter {
			settled++
		}
	}
	return alive, settled
}

// share is how many of the shards one of that many replicas has at most.
func share(replicas int) int { return (Count + replicas - 1) / replicas }

// decideWrites decides from a listing which shards to take and which to give away. Where the listing shows another holder, a shard is no longer
// held.
func (s *state) decideWrites(l *listing, now time.Time) []write {
	s.noteListing(l)
	s.dropLost(l)
	if !s.isRenewed(now) {
		return nil
	}
	alive, settled := s.others(l)
	s.restSurplus(share(1+settled), now)
	var out []write
	room := share(1+len(alive)) - s.countKept()
	if s.leaving {
		room = 0
	}
	for _, shard := range s.order(l) {
		r, t := l.shards[shard], s.held[shard]
		w := write{shard: shard, term: s.term}
		switch {
		case t.number != 0 && !t.resting.IsZero() && now.Sub(t.resting) >= handOverAfter:
			s.held[shard] = tenure{}
			out = append(out, w)
		case t.number != 0, alive[r.holder]:
		case room > 0:
			w.takes = true
			out = append(out, w)
			room--
		case r.holder == s.me: // from before
			out = append(out, w)
		}
	}
	return out
}

// dropLost ends the tenures of shards that are held by another one, or by none.
func (s *state) dropLost(l *listing) {
	for shard, r := range l.shards {
		if t := &s.held[shard]; t.number != 0 && (r.holder != s.me || r.version != t.version) {
			*t = tenure{}
		}
	}
}

// countKept counts the shards that are held and not about to be given away.
func (s *state) countKept() int {
	n := 0
	for _, t := range s.held {
		if t.isKept() {
			n++
		}
	}
	return n
}

// restSurplus has the shards rest that are more than a share.
func (s *state) restSurplus(most int, now time.Time) {
	surplus := s.countKept() - most
	for shard := Count - 1; shard >= 0 && surplus > 0; shard-- {
		if t := &s.held[shard]; t.isKept() {
			t.resting = now
			surplus--
		}
	}
}

// order is the order in which this replica takes shards: others begin elsewhere.
func (s *state) order(l *listing) []int {
	place, _ := s.findPlace(l)
	out := make([]int, Count)
	for i := range out {
		out[i] = (place + i) % Count
	}
	return out
}

// noteWritten takes in that a write was answered, and the version that it made. A shard that was taken in an earlier term is not held: others may
// have taken it since.
func (s *state) noteWritten(w write, version string, now time.Time) {
	if !w.takes || w.term != s.term || !s.isRenewed(now) {
		return
	}
	s.tenures++
	s.held[w.shard] = tenure{number: s.tenures, version: version}
}
