// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
	"unsafe"
)

// simulation is an API server with Leases, replicas that may be paused, and an earlier version that elects a leader by the gate. Requests take
// their time before and after they are carried out, and answers get lost.
type simulation struct {
	t        *testing.T
	random   *rand.Rand
	now      time.Time
	queue    events
	versions int
	leases   map[string]lease
	replicas []*simulated
	leader   *earlier
	// calm says that requests are fast and that nothing is paused.
	calm bool
	// seen counts what happened.
	seen map[string]int
}

type event struct {
	at time.Time
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func (s *simulation) after(d time.Duration, do func()) {
	heap.Push(&s.queue, event{s.now.Add(d), do})
}

// delay is how long a request or its answer is on its way: mostly short, sometimes longer than anything waits.
func (s *simulation) delay() time.Duration {
	switch n := s.random.IntN(100); {
	case s.calm || n < 85:
		return time.Duration(s.random.IntN(20)) * time.Millisecond
	case n < 97:
		return time.Duration(s.random.IntN(4000)) * time.Millisecond
	default:
		return time.Duration(s.random.IntN(40)) * time.Second
	}
}

// simulated is a replica: its state is the real one, and its requests are those of requests.go.
type simulated struct {
	*simulation
	state
	name   string
	paused time.Time // until then
	dead   bool
	own    *lease
	place  int
}

// request is carried out on its way, and answered after that: with ok false if it was refused, or if no answer came in time. A paused replica sees its
// answer when it wakes.
func (r *simulated) request(carryOut func() bool, answered func(ok bool)) {
	sent, over := r.now, false
	answer := func(ok bool) {
		if over || r.dead {
			return
		}
		over = true
		r.resume(func() { answered(ok && r.now.Sub(sent) < 60*time.Second) })
	}
	r.after(r.delay(), func() {
		ok := carryOut()
		r.after(r.delay(), func() { answer(ok) })
	})
	r.after(requestLimit, func() { answer(false) })
}

// resume calls a function when the replica is not paused.
func (r *simulated) resume(do func()) {
	if r.now.Before(r.paused) {
		r.after(r.paused.Sub(r.now), func() { r.resume(do) })
		return
	}
	if !r.dead {
		do()
	}
}

// put changes a Lease at a version.
func (s *simulation) put(name, version, holder string, written func(version string)) bool {
	if s.leases[name].version != version {
		return false
	}
	s.versions++
	s.leases[name] = lease{holder, strconv.Itoa(s.versions)}
	written(strconv.Itoa(s.versions))
	return true
}

func (r *simulated) list(then func(l *listing, ok bool)) {
	l := &listing{sent: r.now}
	r.request(func() bool {
		for i := range Count {
			l.replicas[i], l.shards[i] = r.leases[fmt.Sprint("replica-", i)], r.leases[fmt.Sprint("shard-", i)]
		}
		return true
	}, func(ok bool) {
		l.answered = r.now
		then(l, ok)
	})
}

func (r *simulated) renewReplica(again func()) {
	if !r.canList(r.now) {
		again()
		return
	}
	if r.own == nil {
		r.list(func(l *listing, ok bool) {
			if !ok {
				again()
				return
			}
			r.noteListing(l)
			place, found := r.findPlace(l)
			if !found {
				again()
				return
			}
			r.place, r.own = place, &l.replicas[place]
			r.writeReplica(again)
		})
		return
	}
	r.writeReplica(again)
}

func (r *simulated) writeReplica(again func()) {
	sent, own, version := r.now, r.own, ""
	r.own = nil
	r.request(func() bool {
		return r.put(fmt.Sprint("replica-", r.place), own.version, r.name, func(v string) { version = v })
	}, func(ok bool) {
		if ok {
			r.noteRenewal(ofReplica, sent, r.now)
			r.own = &lease{r.name, version}
		}
		again()
	})
}

func (r *simulated) renewGate(again func()) {
	read := r.now
	var gate lease
	r.request(func() bool { gate = r.leases["gate"]; return true }, func(ok bool) {
		if !ok {
			again()
			return
		}
		if writes, _ := r.noteGate(gate, 0, read, r.now); !writes {
			again()
			return
		}
		sent, version := r.now, ""
		r.request(func() bool {
			return r.put("gate", gate.version, GateHolder, func(v string) { version = v })
		}, func(ok bool) {
			if ok {
				r.noteGateWritten(version, sent, r.now)
			}
			again()
		})
	})
}

func (r *simulated) assign(again func()) {
	r.list(func(l *listing, ok bool) {
		if !ok {
			again()
			return
		}
		r.noteRenewal(ofListing, l.sent, r.now)
		writes := r.decideWrites(l, r.now)
		left := len(writes)
		if left == 0 {
			again()
			return
		}
		for _, w := range writes {
			holder, version := "", ""
			if w.takes {
				holder = r.name
			}
			r.request(func() bool {
				return r.put(fmt.Sprint("shard-", w.shard), l.shards[w.shard].version, holder, func(v string) { version = v })
			}, func(ok bool) {
				if ok {
					r.noteWritten(w, version, r.now)
					if w.takes {
						r.simulation.seen["taken"]++
					} else {
						r.simulation.seen["given away"]++
					}
				}
				if left--; left == 0 {
					again()
				}
			})
		}
	})
}

// repeat calls a function every period.
func (r *simulated) repeat(do func(again func())) {
	began := r.now
	do(func() {
		r.after(max(0, period-r.now.Sub(began)), func() { r.resume(func() { r.repeat(do) }) })
	})
}

func (s *simulation) start() {
	r := &simulated{simulation: s, name: fmt.Sprint("r", len(s.replicas))}
	r.me = r.name
	s.replicas = append(s.replicas, r)
	r.repeat(r.renewReplica)
	r.repeat(r.renewGate)
	r.repeat(r.assign)
}

// earlier is a leader of an earlier version, as client-go elects it. It acts for renewalServes after it has sent a renewal.
type earlier struct {
	simulated
	seen    sighting
	renewed time.Time
}

func (e *earlier) elect(again func()) {
	read := e.now
	var gate lease
	e.request(func() bool { gate = e.leases["gate"]; return true }, func(ok bool) {
		if ok && (e.seen.changed.IsZero() || e.seen.version != gate.version) {
			e.seen = sighting{lease: gate, changed: e.now}
		}
		if !ok || gate.holder != "" && gate.holder != e.name && read.Sub(e.seen.changed) < expiresAfter {
			again()
			return
		}
		sent := e.now
		e.request(func() bool { return e.put("gate", gate.version, e.name, func(string) {}) }, func(ok bool) {
			if ok {
				e.renewed = sent
				e.simulation.seen["led"]++
			}
			again()
		})
	})
}

// check fails when two may act for one shard.
func (s *simulation) check() {
	leads := s.leader != nil && !s.leader.dead && !s.leader.renewed.IsZero() && s.now.Sub(s.leader.renewed) < renewalServes
	for shard := range Count {
		var owners []string
		for _, r := range s.replicas {
			if t := r.held[shard]; !r.dead && r.holds(shard, t.number, s.now) {
				owners = append(owners, r.name)
			}
		}
		if leads && len(owners) > 0 {
			s.t.Fatalf("at %s shard %d is owned by %v, while an earlier version leads", s.now.Format("04:05.000"), shard, owners)
		}
		if len(owners) > 1 {
			s.t.Fatalf("at %s shard %d is owned by %v", s.now.Format("04:05.000"), shard, owners)
		}
	}
}

func (s *simulation) runUntil(end time.Time) {
	for len(s.queue) > 0 && s.queue[0].at.Before(end) {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		e.do()
		s.check()
	}
	s.now = end
}

// disturb pauses, kills and starts replicas.
func (s *simulation) disturb() {
	r := s.replicas[s.random.IntN(len(s.replicas))]
	switch n := s.random.IntN(10); {
	case n < 6:
		r.paused = s.now.Add(time.Duration(s.random.IntN(60)) * time.Second)
	case n < 7 && !r.dead:
		r.dead = true
		s.start()
	case n < 8 && !r.dead && !r.now.Before(r.paused): // it stops in good order
		r.stopped, r.dead = true, true
		r.giveUpAll()
		if r.own != nil {
			r.put(fmt.Sprint("replica-", r.place), r.own.version, "", func(string) {})
		}
		s.start()
	default:
		if s.leader != nil {
			s.leader.paused = s.now.Add(time.Duration(s.random.IntN(60)) * time.Second)
		}
	}
	if !s.calm {
		s.after(time.Duration(s.random.IntN(40))*time.Second, s.disturb)
	}
}

// TestNoShardHasTwoOwners runs replicas through slow and lost requests, pauses, kills and starts. No two ever own a shard, and none does while an
// earlier version leads. When all is calm, each shard has an owner, and each replica its share.
func TestNoShardHasTwoOwners(t *testing.T) {
	seen := map[string]int{}
	histories := 120
	if testing.Short() {
		histories = 30
	}
	for seed := range histories {
		s := &simulation{t: t, random: rand.New(rand.NewPCG(uint64(seed), 1)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), leases: map[string]lease{}, seen: seen}
		if seed%3 == 0 {
			s.leader = &earlier{simulated: simulated{simulation: s, name: "earlier"}}
			s.leader.repeat(s.leader.elect)
		}
		for range 1 + seed%4 {
			s.start()
		}
		s.after(10*time.Second, s.disturb)
		s.runUntil(s.now.Add(20 * time.Minute))

		s.calm = true
		if s.leader != nil {
			s.leader.dead = true
		}
		s.runUntil(s.now.Add(4 * time.Minute))
		owned, most := 0, 0
		for _, r := range s.replicas {
			if !r.dead {
				owned += r.countHeld(s.now)
				most = max(most, r.countHeld(s.now))
			}
		}
		if owned != Count || most > share(1+seed%4) {
			t.Fatalf("history %d: %d shards are owned when all is calm, want %d; one of %d replicas owns %d", seed, owned, Count, 1+seed%4, most)
		}
	}
	for _, want := range []string{"taken", "given away", "led"} {
		if seen[want] < histories/4 {
			t.Errorf("%q happened %d times in %d histories", want, seen[want], histories)
		}
	}
	t.Log(seen)
}

// renewedAt is a state whose Leases were renewed at a moment, and that holds shard 3.
func renewedAt(now time.Time) (*state, *listing) {
	s := &state{me: "me"}
	s.noteRenewal(ofGate, now, now)
	s.noteRenewal(ofReplica, now, now)
	s.noteRenewal(ofListing, now, now)
	l := &listing{sent: now, answered: now}
	l.replicas[0] = lease{"me", "1"}
	l.shards[3] = lease{"me", "2"}
	s.noteListing(l)
	s.noteWritten(write{shard: 3, takes: true, term: s.term}, "2", now)
	return s, l
}

// TestAShardIsNotOwnedAfterASleep shows that a machine that was suspended does not take itself for an owner when it wakes: others may own its shards
// since, and what time.Time subtracts did not go on.
func TestAShardIsNotOwnedAfterASleep(t *testing.T) {
	began := time.Now()
	s, _ := renewedAt(began)
	if !s.holds(3, s.held[3].number, began.Add(9*time.Second)) {
		t.Error("a shard is not owned 9 s after the renewal")
	}
	woke := began.Add(time.Second)
	*(*uint64)(unsafe.Pointer(&woke)) += uint64(time.Hour/time.Second) << 30 //nolint:gosec // it moves the time of day alone, which no function does
	if s.holds(3, s.held[3].number, woke) {
		t.Error("a shard is owned an hour after the renewal")
	}
	s.noteRenewal(ofGate, woke, woke)
	s.noteRenewal(ofReplica, woke, woke)
	s.noteRenewal(ofListing, woke, woke)
	if s.countHeld(woke) != 0 {
		t.Error("a shard is owned again without being taken")
	}
}

// TestWhatEndsATenure shows when a shard that was taken is not owned.
func TestWhatEndsATenure(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		do   func(s *state, l *listing)
		owns bool
	}{
		"Nothing":      {func(s *state, l *listing) { s.decideWrites(l, now) }, true},
		"OtherHolder":  {func(s *state, l *listing) { l.shards[3] = lease{"other", "9"}; s.decideWrites(l, now) }, false},
		"OtherVersion": {func(s *state, l *listing) { l.shards[3] = lease{"me", "9"}; s.decideWrites(l, now) }, false},
		"NoHolder":     {func(s *state, l *listing) { l.shards[3] = lease{}; s.decideWrites(l, now) }, false},
		"TakenInAnEarlierTerm": {func(s *state, _ *listing) {
			w := write{shard: 3, takes: true, term: s.term}
			s.giveUpAll()
			s.noteWritten(w, "2", now)
		}, false},
		"GivenAway": {func(s *state, _ *listing) {
			s.held[3] = tenure{}
			s.noteWritten(write{shard: 3, term: s.term}, "2", now)
		}, false},
		"Rests":       {func(s *state, _ *listing) { s.held[3].resting = now }, false},
		"Stopped":     {func(s *state, _ *listing) { s.stopped = true }, false},
		"LateGate":    {func(s *state, _ *listing) { s.noteRenewal(ofGate, now.Add(9*time.Second), now.Add(10*time.Second)) }, false},
		"LateListing": {func(s *state, _ *listing) { s.noteRenewal(ofListing, now.Add(9*time.Second), now.Add(10*time.Second)) }, false},
		"ForeignGate": {func(s *state, _ *listing) { s.noteGate(lease{"earlier", "9"}, 0, now, now) }, false},
		"DeletedGate": {func(s *state, _ *listing) { s.noteGate(lease{}, 0, now, now) }, false},
		"Lapsed": {func(s *state, _ *listing) { // a late answer does not bring it back
			s.endLapsed(now.Add(10 * time.Second))
			s.noteRenewal(ofGate, now.Add(9*time.Second), now.Add(9*time.Second))
		}, false},
		"InTime": {func(s *state, _ *listing) { s.noteRenewal(ofGate, now, now.Add(9*time.Second)) }, true},
	} {
		s, l := renewedAt(now)
		number := s.held[3].number
		tc.do(s, l)
		if got := s.holds(3, number, now); got != tc.owns {
			t.Errorf("%s: owned: %t", name, got)
		}
	}
}

// TestASetClockMakesNoOtherReplicaGone shows that a replica whose clock is set forward does not take others for gone, which go by their own clocks.
func TestASetClockMakesNoOtherReplicaGone(t *testing.T) {
	began := time.Now()
	s, l := renewedAt(began)
	l.replicas[1] = lease{"other", "1"}
	s.noteListing(l)
	s.noteGate(lease{"earlier", "1"}, 0, began, began)
	set := began.Add(2 * time.Second)
	*(*uint64)(unsafe.Pointer(&set)) += uint64(time.Minute/time.Second) << 30 //nolint:gosec // it moves the time of day alone, which no function does
	l.sent, l.answered = set, set
	if !s.isAlive(1, l) {
		t.Error("a replica that renewed its Lease two seconds ago is taken for gone")
	}
	if _, free := s.noteGate(lease{"earlier", "1"}, 0, set, set); free {
		t.Error("an earlier version that renewed its Lease two seconds ago is taken for gone")
	}
}

// TestAReplicaThatLeavesTakesNothing shows that no shard moves to a replica that stops.
func TestAReplicaThatLeavesTakesNothing(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, l := renewedAt(now)
	s.leaving = true
	if writes := s.decideWrites(l, now); len(writes) > 0 || s.countHeld(now) != 1 {
		t.Errorf("it writes %+v, and owns %d", writes, s.countHeld(now))
	}
}

// TestAShardRestsBeforeItIsGivenAway shows that requests under way have as long to end as after a lost Lease.
func TestAShardRestsBeforeItIsGivenAway(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &state{me: "me"}
	l := &listing{sent: now, answered: now}
	renew := func() {
		s.noteRenewal(ofGate, now, now)
		s.noteRenewal(ofReplica, now, now)
		s.noteRenewal(ofListing, now, now)
	}
	renew()
	l.replicas[0], l.replicas[1] = lease{"me", "1"}, lease{"other", "1"}
	for i, w := range s.decideWrites(l, now) { // half of them, since there are two
		l.shards[w.shard] = lease{"me", strconv.Itoa(i)}
		s.noteWritten(w, strconv.Itoa(i), now)
	}
	l.replicas[2] = lease{"third", "1"}
	gives := func() (given int) {
		renew()
		l.sent, l.answered = now, now
		for i := range l.replicas {
			if l.replicas[i].holder != "" {
				l.replicas[i].version += "1"
			}
		}
		for _, w := range s.decideWrites(l, now) {
			if !w.takes {
				given++
			}
		}
		return given
	}
	began := now
	for given := gives(); given == 0; given = gives() {
		if at := s.held[7].resting; !at.IsZero() {
			began = at
		}
		now = now.Add(time.Second)
	}
	if rested := now.Sub(began); rested < handOverAfter || s.countHeld(now) != share(3) {
		t.Errorf("given away after %s; %d are owned", rested, s.countHeld(now))
	}
}
