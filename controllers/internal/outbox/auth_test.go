// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/sink"
)

// vault is a Secret that changes.
type vault struct {
	mu    sync.Mutex
	value string
	err   error
	asked []Sink
}

func (v *vault) put(value string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value, v.err = value, err
}

func (v *vault) read(_ context.Context, _ types.NamespacedName, _ types.UID, s Sink) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, s)
	return []byte(v.value), v.err
}

func (v *vault) open(o *Options, _ *timeouts) { o.ReadSecret = v.read }

func (b *bench) sendWith(t v1alpha1.SinkAuthType, name, url string) {
	b.QueueDelivery(key(name), identity(name), guarded(t, url), finished(1))
}

// guarded is a sink that is shown the value of a Secret.
func guarded(t v1alpha1.SinkAuthType, url string) Sink {
	return Sink{URL: url, Auth: v1alpha1.ClusterSinkAuth{Type: t, SecretRef: v1alpha1.ClusterSecretKeyReference{
		SecretKeyReference: v1alpha1.SecretKeyReference{Name: "sink", Key: "token"},
	}}}
}

func TestBearer(t *testing.T) {
	receiver := sink.Start(t)
	v := &vault{value: "s3cret-T0ken/==\n"}
	b := start(t, v.open)
	b.sendWith(v1alpha1.SinkAuthBearer, "c", receiver.URL)
	b.attempted("c")
	e := b.arrived(receiver, 1)[0]
	if diff := cmp.Diff([]string{"Bearer s3cret-T0ken/=="}, e.Header["Authorization"]); diff != "" {
		t.Errorf("Authorization (-want +got):\n%s", diff)
	}
	for _, name := range []string{headerID, headerTimestamp, headerSignature} {
		if e.Header.Get(name) != "" {
			t.Errorf("the request has a header %s", name)
		}
	}
	if diff := cmp.Diff([]Sink{guarded(v1alpha1.SinkAuthBearer, receiver.URL)}, v.asked); diff != "" {
		t.Errorf("the Secret was asked for (-want +got):\n%s", diff)
	}
}

// A request that is signed is verified by what the page says, at each attempt anew, and nothing of it can be changed.
func TestHMAC(t *testing.T) {
	receiver := sink.Start(t)
	receiver.Answer(sink.Codes(503)...)
	secret := "s3cret-key"
	b := start(t, (&vault{value: secret + "\r\n"}).open)
	b.sendWith(v1alpha1.SinkAuthHMAC, "c", receiver.URL)
	b.attempted("c")
	b.clock.Step(time.Second)
	b.attempted("c")
	events := b.arrived(receiver, 2)
	for i, e := range events {
		now := epoch.Add(time.Duration(i) * time.Second)
		if !sink.Verify([]byte(secret), e.Data, e.Header, now) {
			t.Errorf("attempt %d is not verified: %v", i+1, e.Header)
		}
		if got := e.Header.Get(headerID); got != e.ID {
			t.Errorf("attempt %d signs the id %q of event %q", i+1, got, e.ID)
		}
		if got, want := e.Header.Get(headerTimestamp), strconv.FormatInt(now.Unix(), 10); got != want {
			t.Errorf("attempt %d says that it is %s, and it is %s", i+1, got, want)
		}
		if e.Header.Get("Authorization") != "" || strings.Contains(fmt.Sprint(e), secret) {
			t.Errorf("attempt %d sends the key", i+1)
		}
	}
	e := events[0]
	altered := func(name, value string) http.Header {
		h := e.Header.Clone()
		h.Set(name, value)
		return h
	}
	for what, verified := range map[string]bool{
		"another key":       sink.Verify([]byte("other"), e.Data, e.Header, epoch),
		"another body":      sink.Verify([]byte(secret), append([]byte(" "), e.Data...), e.Header, epoch),
		"another id":        sink.Verify([]byte(secret), e.Data, altered(headerID, e.ID+"0"), epoch),
		"another time":      sink.Verify([]byte(secret), e.Data, altered(headerTimestamp, events[1].Header.Get(headerTimestamp)), epoch),
		"another signature": sink.Verify([]byte(secret), e.Data, altered(headerSignature, events[1].Header.Get(headerSignature)), epoch),
		"a repetition":      sink.Verify([]byte(secret), e.Data, e.Header, epoch.Add(5*time.Minute+time.Second)),
	} {
		if verified {
			t.Errorf("a request with %s is verified", what)
		}
	}
}

// The example that Standard Webhooks give, with a key as they write it.
func TestSignIsThatOfStandardWebhooks(t *testing.T) {
	got, err := signWebhook([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	want := http.Header{
		"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// A value that no header may hold is not sent, whatever it is for, and no error repeats it.
func TestValuesThatAreRefused(t *testing.T) {
	const (
		header = `the value of key "token" in Secret "sink" has characters other than printable ASCII without spaces, which a header cannot hold`
		empty  = `the value of key "token" in Secret "sink" is empty`
		long   = `the value of key "token" in Secret "sink" is longer than 8192 bytes`
		base   = "the value begins with whsec_, and what follows is not base64"
	)
	for name, tc := range map[string]struct {
		value string
		want  string // empty: it is sent
		hmac  string // the same for HMAC, if it differs
	}{
		"Injection":    {value: "s3cret\r\nX-Admin: yes", want: header},
		"Newline":      {value: "s3cret\nX-Admin: yes\n", want: header},
		"TwoNewlines":  {value: "s3cret\n\n", want: header},
		"Return":       {value: "s3cret\rX-Admin: yes", want: header},
		"Null":         {value: "s3cret\x00", want: header},
		"Delete":       {value: "s3cret\x7f", want: header},
		"Tab":          {value: "s3cret\tb", want: header},
		"Space":        {value: "s3cret value", want: header},
		"SpaceAtBegin": {value: " s3cret", want: header},
		"Unicode":      {value: "s3cret-\u00e9", want: header},
		"NextLine":     {value: "s3cret-\u0085X-Admin: yes", want: header},
		"Bytes":        {value: "s3cret-\xff\xfe", want: header},
		"Empty":        {value: "", want: empty},
		"OnlyNewline":  {value: "\n", want: empty},
		"OnlyReturn":   {value: "\r\n", want: empty},
		"Long":         {value: strings.Repeat("s3cret", 8192/6) + "abc", want: long},
		"Longest":      {value: strings.Repeat("s3cret", 8192/6) + "ab\n"},
		"Printable":    {value: "!#$%&'*+-.^_`|~:;,\"<>?@[]{}()/\\=0s3cret"},
		"NoKey":        {value: "whsec_s3cret!", hmac: base},
		"EmptyKey":     {value: "whsec_", hmac: base},
	} {
		for _, kind := range []v1alpha1.SinkAuthType{v1alpha1.SinkAuthBearer, v1alpha1.SinkAuthHMAC} {
			t.Run(name+string(kind), func(t *testing.T) {
				receiver := sink.Start(t)
				log := &failures{told: make(chan Failure, 100)}
				b := start(t, (&vault{value: tc.value}).open, func(o *Options, _ *timeouts) { o.AttemptFailed = log.record })
				b.sendWith(kind, "c", receiver.URL)
				b.attempted("c")
				want := tc.want
				if kind == v1alpha1.SinkAuthHMAC && tc.hmac != "" {
					want = tc.hmac
				}
				if want == "" {
					b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
					return
				}
				b.want("c", 1, Delivery{Known: true, Attempts: 1, Last: Failure{Class: ClassNoCredential, Why: want}, Next: epoch.Add(time.Second)})
				b.arrived(receiver, 0)
				said := fmt.Sprintf("%v %+v %+v", log.errs, b.state("c", 1), b.counted())
				if got := b.state("c", 1).Last.String(); got != want {
					t.Errorf("the author is told %q", got)
				}
				if strings.Contains(said, "s3cret") {
					t.Errorf("the value is shown: %s", said)
				}
			})
		}
	}
}

// An event waits for its Secret as it waits for its sink, and takes it as it is at each attempt.
func TestWaitsForTheSecret(t *testing.T) {
	receiver := sink.Start(t)
	receiver.Answer(sink.Codes(401)...)
	missing := errors.New(`Secret "sink" does not exist in namespace "shop"`)
	v := &vault{err: missing}
	b := start(t, v.open)
	b.sendWith(v1alpha1.SinkAuthBearer, "c", receiver.URL)
	wait := time.Second
	for n := 1; n <= 3; n++ {
		b.attempted("c")
		b.want("c", 1, Delivery{Known: true, Attempts: n, Last: Failure{Class: ClassNoCredential, Why: missing.Error()}, Next: b.clock.Now().Add(wait)})
		if n == 3 {
			v.put("first", nil)
		}
		b.clock.Step(wait)
		wait *= 2
	}
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Attempts: 4, Last: answered(401), Next: b.clock.Now().Add(wait)})
	v.put("second", nil)
	b.clock.Step(wait)
	b.attempted("c")
	var got []string
	for _, e := range b.arrived(receiver, 2) {
		got = append(got, e.Header.Get("Authorization"))
	}
	if diff := cmp.Diff([]string{"Bearer first", "Bearer second"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"delivered": 1, "answered": 1, "no credential": 3}, b.counted()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// Another Secret for the same sink is tried at once.
func TestAnotherSecretIsTriedAtOnce(t *testing.T) {
	receiver := sink.Start(t)
	b := start(t, func(o *Options, _ *timeouts) {
		o.ReadSecret = func(_ context.Context, _ types.NamespacedName, _ types.UID, s Sink) ([]byte, error) {
			if s.Auth.SecretRef.Name != "other" {
				return nil, errors.New("it is missing")
			}
			return []byte("value"), nil
		}
	})
	b.sendWith(v1alpha1.SinkAuthBearer, "c", receiver.URL)
	b.attempted("c")
	other := guarded(v1alpha1.SinkAuthBearer, receiver.URL)
	other.Auth.SecretRef.Name = "other"
	b.QueueDelivery(key("c"), identity("c"), other, finished(1))
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
}

// A redirect is no way to be sent the value of somebody's Secret.
func TestNoRedirectGetsTheValue(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			receiver, other := sink.Start(t), sink.Start(t)
			receiver.Otherwise(sink.Answer{Status: status, Header: http.Header{"Location": {other.URL}}})
			b := start(t, (&vault{value: "s3cret"}).open)
			b.sendWith(v1alpha1.SinkAuthBearer, "c", receiver.URL)
			b.attempted("c")
			b.want("c", 1, Delivery{Known: true, Attempts: 1, Last: answered(status), Next: epoch.Add(time.Hour)})
			b.arrived(receiver, 1)
			b.arrived(other, 0)
		})
	}
}

// Nothing goes to a sink with Auth while nobody reads Secrets, or in a way that nobody knows.
func TestNothingGoesUnauthenticated(t *testing.T) {
	receiver := sink.Start(t)
	b := start(t)
	b.sendWith(v1alpha1.SinkAuthBearer, "c", receiver.URL)
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Attempts: 1, Last: Failure{Class: ClassNoCredential, Why: "no Secret is read"}, Next: epoch.Add(time.Second)})
	known := start(t, (&vault{value: "s3cret"}).open)
	known.sendWith("Basic", "c", receiver.URL)
	known.attempted("c")
	known.want("c", 1, Delivery{Known: true, Attempts: 1, Last: Failure{Class: ClassNoCredential, Why: `"Basic" is not a type of cloudEventSinkAuth`}, Next: epoch.Add(time.Second)})
	b.arrived(receiver, 0)
}
