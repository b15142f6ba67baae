// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/test/sink"
)

// conceal has a Sender conceal for as long as the real one does.
func conceal(_ *Options, l *timeouts) { l.concealFor = 20 * time.Second }

// failures are what the operator's log is told.
type failures struct {
	mu   sync.Mutex
	told chan Failure
	errs []string
}

func (f *failures) record(_ types.NamespacedName, _ int64, failure Failure, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.errs = append(f.errs, err.Error())
	}
	f.told <- failure
}

// closedPort is where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// A port that is closed, one that is filtered, one that is open and silent, a name that is not known and an address that is
// refused look the same to an author, at each moment.
func TestNoAnswerTellsNothing(t *testing.T) {
	silent := sink.Start(t)
	silent.Otherwise(sink.Answer{Hang: true})
	names := serveNames(t)
	for why, target := range map[string]string{
		CauseConnection:     closedPort(t),
		CauseTimeout:        silent.URL,
		CauseUnknownHost:    "http://nobody.example",
		CauseRefusedAddress: "http://10.96.0.1:443",
	} {
		t.Run(why, func(t *testing.T) {
			log := &failures{told: make(chan Failure, 100)}
			b := start(t, conceal, func(o *Options, l *timeouts) {
				o.Resolver, o.AttemptFailed, l.header = names.resolver(), log.record, 100*time.Millisecond
			})
			b.send("c", target+"/?token=secret", 1)
			if f := <-log.told; f != newNoAnswer(why) {
				t.Errorf("the operator is told %+v", f)
			}
			before := b.state("c", 1)
			if before.Last != (Failure{}) {
				t.Errorf("the author is told at once: %+v", before.Last)
			}
			select {
			case <-b.done:
				t.Error("the Cleaner was woken, which its author can see")
			default:
			}
			b.clock.Step(20 * time.Second)
			b.attempted("c")
			if got := b.state("c", 1).Last.String(); got != "no answer" {
				t.Errorf("after the time of an attempt the author is told %q", got)
			}
			log.mu.Lock()
			defer log.mu.Unlock()
			if said := strings.Join(log.errs, "\n"); strings.Contains(said, "secret") || said == "" {
				t.Errorf("the log has %q", said)
			}
		})
	}
}

// What is concealed does not hold up a delivery, and an answer is shown at once.
func TestAnswersAreNotConcealed(t *testing.T) {
	receiver := sink.Start(t)
	receiver.Answer(sink.Answer{Close: true}, sink.Answer{Status: http.StatusServiceUnavailable})
	log := &failures{told: make(chan Failure, 100)}
	b := start(t, conceal, func(o *Options, _ *timeouts) { o.AttemptFailed = log.record })
	b.send("c", receiver.URL, 1)
	<-log.told
	b.clock.Step(time.Second)
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Attempts: 2, Last: answered(503), Next: b.clock.Now().Add(2 * time.Second)})
	b.clock.Step(2 * time.Second)
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 3})
}

// Nor does it tell anything when somebody waits for the attempt to end: with another sink of the same event, or with another event,
// for the slots that the attempt has taken.
func TestWaitingForNoAnswerTellsNothing(t *testing.T) {
	silent := sink.Start(t)
	silent.Otherwise(sink.Answer{Hang: true})
	for why, target := range map[string]string{CauseConnection: closedPort(t), CauseTimeout: silent.URL} {
		for name, wait := range map[string]func(b *bench, own string){
			"AnotherSink": func(b *bench, own string) { b.send("c", own, 1) },
			"AnotherEvent": func(b *bench, own string) {
				b.CancelDeliveries(key("c"))
				b.send("d", own, 1)
			},
		} {
			t.Run(name+" "+why, func(t *testing.T) {
				own := sink.Start(t)
				log := &failures{told: make(chan Failure, 100)}
				b := start(t, conceal, func(o *Options, l *timeouts) {
					o.AttemptFailed, o.Workers, l.header = log.record, namespaceShare, 100*time.Millisecond // one slot for the namespace
				})
				b.send("c", target, 1)
				<-log.told
				wait(b, own.URL)
				b.clock.Step(20*time.Second - time.Nanosecond)
				soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if events, err := own.WaitFor(soon, 1); err == nil {
					t.Fatalf("it does not wait: %d have arrived", len(events))
				}
				b.clock.Step(time.Nanosecond)
				b.arrived(own, 1)
			})
		}
	}
}

// Those who run the cluster write what lives in no namespace, and need no concealment.
func TestWhatLivesInNoNamespace(t *testing.T) {
	receiver := sink.StartAt(t, "[::]:0")
	addr := own(t)
	if addr == "" {
		t.Skip("this machine has no address but loopback")
	}
	parsed := netip.MustParseAddr(addr)
	url := "http://" + net.JoinHostPort(addr, receiver.URL[strings.LastIndex(receiver.URL, ":")+1:])
	log := &failures{told: make(chan Failure, 100)}
	b := start(t, conceal, func(o *Options, _ *timeouts) {
		o.Policy, o.AttemptFailed = Policy{}, log.record
		o.ClusterAddresses = func(context.Context) (map[netip.Addr]bool, error) { return map[netip.Addr]bool{parsed: true}, nil }
	})
	c := identity("c")
	c.Kind, c.Namespace = "ClusterCleaner", ""
	cluster := types.NamespacedName{Name: "c"}
	b.QueueDelivery(cluster, c, Sink{URL: url}, finished(1))
	if k := <-b.done; k != cluster || !b.GetDelivery(cluster, c.UID, 1).Delivered {
		t.Errorf("a ClusterCleaner does not reach a private address: %+v", b.GetDelivery(cluster, c.UID, 1))
	}
	b.send("c", url, 1)
	if f := <-log.told; f != newNoAnswer(CauseRefusedAddress) {
		t.Errorf("a Cleaner reaches an address of the cluster: %+v", f)
	}
}

// What happened to an event of theirs is shown at once.
func TestOfWhatLivesInNoNamespaceFailuresAreShown(t *testing.T) {
	b := start(t, conceal)
	c, cluster := identity("c"), types.NamespacedName{Name: "c"}
	c.Kind, c.Namespace = "ClusterCleaner", ""
	b.QueueDelivery(cluster, c, Sink{URL: closedPort(t)}, finished(1))
	select {
	case k := <-b.done:
		if got := b.GetDelivery(cluster, c.UID, 1); k != cluster || got.Last != newNoAnswer(CauseConnection) {
			t.Errorf("%s is woken, and told %+v", k, got)
		}
	case <-b.ctx.Done():
		t.Error("a ClusterCleaner is told nothing")
	}
}

// A timer of an earlier concealment, which an answer has ended, shows nothing of a later one before its time.
func TestAnEarlierTimerShowsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		shown time.Time
		want  Failure
	}{
		"Answered": {time.Time{}, answered(503)},
		"Later":    {epoch.Add(time.Second), answered(503)},
		"Now":      {epoch, newNoAnswer(CauseTimeout)},
		"Before":   {epoch.Add(-time.Second), newNoAnswer(CauseTimeout)},
	} {
		t.Run(name, func(t *testing.T) {
			b := prepare(t, conceal)
			d := &delivery{id: id{key: key("c")}, state: Delivery{Last: answered(503)}, concealed: newNoAnswer(CauseTimeout), showAt: tc.shown}
			b.clock.SetTime(epoch.Add(-time.Second))
			timer := b.clock.NewTimer(time.Second)
			b.clock.SetTime(epoch)
			b.showConcealed(t.Context(), d, timer)
			if d.state.Last != tc.want || len(b.done) > 0 != (tc.want == newNoAnswer(CauseTimeout)) || b.isConcealing(d) != tc.shown.After(epoch) {
				t.Errorf("it shows %+v, want %+v", d.state.Last, tc.want)
			}
		})
	}
}

// While nobody knows which addresses are the cluster's own, a Cleaner's event waits.
func TestUnknownCluster(t *testing.T) {
	receiver := sink.Start(t)
	known := false
	b := start(t, func(o *Options, _ *timeouts) {
		o.ClusterAddresses = func(context.Context) (map[netip.Addr]bool, error) {
			if !known {
				return nil, errors.New("the API server does not answer")
			}
			return nil, nil
		}
	})
	b.send("c", receiver.URL, 1)
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Attempts: 1, Last: newNoAnswer(CauseUnknownCluster), Next: epoch.Add(time.Second)})
	known = true
	b.clock.Step(time.Second)
	b.attempted("c")
	b.arrived(receiver, 1)
}
