// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

var (
	start  = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	secret = types.NamespacedName{Namespace: "cleaner-system", Name: "cleaner-signing-key"}
)

// cluster has objects, and replicas of the operator.
type cluster struct {
	client.WithWatch
	clock *clocktesting.FakeClock
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return &cluster{fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), clocktesting.NewFakeClock(start)}
}

func (c *cluster) replica(makeNew bool) *Keyring {
	return New(c, c, Options{
		Secret: secret, AllowNewKey: makeNew, Clock: c.clock, Log: logr.Discard(),
		Policy: signing.RotationPolicy{Propagation: time.Minute, Overlap: time.Hour, Rotation: 24 * time.Hour},
	})
}

// refreshed reads the Secret, and its ring works.
func refreshed(t *testing.T, k *Keyring) signing.Ring {
	t.Helper()
	if err := k.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	ring, err := k.CurrentRing()
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func sign(t *testing.T, ring signing.Ring) string {
	t.Helper()
	signature, err := ring.Sign(signing.Record, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

// empty is the Secret as the manifests have it.
func empty() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}}
}

func TestReplicasShareTheKeyOfTheFirst(t *testing.T) {
	c := newCluster(t, empty(), &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "of an earlier version"}})
	signature := sign(t, refreshed(t, c.replica(false)))
	if _, err := refreshed(t, c.replica(false)).Verify(signing.Record, []byte("x"), signature); err != nil {
		t.Error(err)
	}
}

func TestNothingIsSignedBeforeTheSecretIsRead(t *testing.T) {
	k := newCluster(t, empty()).replica(false)
	if _, err := k.CurrentRing(); err == nil {
		t.Error("there is a ring")
	}
	if k.CheckReady(nil) == nil {
		t.Error("it is ready")
	}
}

// A key that was there and is gone is an accident or an attack. Nobody makes another one without being told to.
func TestALostKeyIsNotReplaced(t *testing.T) {
	signed := map[string]client.Object{
		"Author": &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{v1alpha1.AnnotationAuthor: "{}"}}},
		"Record": &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r"}, Status: v1alpha1.CleanerStatus{Signature: "k.s"}},
	}
	for name, object := range signed {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, empty(), object)
			err := c.replica(false).Refresh(t.Context())
			if err == nil || !strings.Contains(err.Error(), "has lost the signing key") || !strings.Contains(err.Error(), "--new-signing-key") {
				t.Fatalf("got %v", err)
			}
			now := &corev1.Secret{}
			if err := c.Get(t.Context(), secret, now); err != nil || len(now.Data) != 0 {
				t.Errorf("the Secret has %d keys (%v)", len(now.Data), err)
			}
			refreshed(t, c.replica(true))
		})
	}
}

func TestAnAbsentSecretIsMadeWhereNothingIsSigned(t *testing.T) {
	signature := sign(t, refreshed(t, newCluster(t).replica(false)))
	if signature == "" {
		t.Error("no signature")
	}
	signed := newCluster(t, &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r"}, Status: v1alpha1.CleanerStatus{Signature: "k.s"}})
	if err := signed.replica(false).Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "has lost the signing key") {
		t.Errorf("got %v", err)
	}
}

func TestAKeyThatCannotBeReadIsNotReplaced(t *testing.T) {
	broken := empty()
	broken.Data = map[string][]byte{"20260102T150405Z": []byte("short")}
	c := newCluster(t, broken)
	if err := c.replica(true).Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "a key has 32") {
		t.Errorf("got %v", err)
	}
}

// A key gets a successor when it is old; what it signed is accepted for a while, and then its bytes go.
func TestRotation(t *testing.T) {
	c := newCluster(t, empty())
	k := c.replica(false)
	old := sign(t, refreshed(t, k))
	c.clock.Step(24 * time.Hour)
	if got := sign(t, refreshed(t, k)); got != old {
		t.Error("a key signs before every replica knows it")
	}
	c.clock.Step(time.Minute)
	ring := refreshed(t, k)
	if got := sign(t, ring); got == old {
		t.Error("the successor does not sign")
	}
	if _, err := ring.Verify(signing.Record, []byte("x"), old); err != nil {
		t.Errorf("within the overlap: %v", err)
	}
	c.clock.Step(time.Hour)
	if ring, err := k.CurrentRing(); err != nil {
		t.Error(err)
	} else if _, err := ring.Verify(signing.Record, []byte("x"), old); err == nil {
		t.Error("after the overlap the old key still counts")
	}
	c.clock.Step(24 * time.Hour)
	refreshed(t, k)
	now := &corev1.Secret{}
	if err := c.Get(t.Context(), secret, now); err != nil || len(now.Data) != 2 {
		t.Errorf("the Secret has %d keys (%v)", len(now.Data), err)
	}
}

// intercepted is a replica whose requests go through functions.
func (c *cluster) intercepted(through interceptor.Funcs) *Keyring {
	k := c.replica(false)
	guarded := interceptor.NewClient(c, through)
	k.reader, k.writer = guarded, guarded
	return k
}

// What cannot be read is neither an empty Secret nor a namespace in which nothing is signed: no key is made.
func TestNoKeyIsMadeOfWhatCannotBeRead(t *testing.T) {
	busy := errors.New("the API server is busy")
	for name, tc := range map[string]struct {
		through interceptor.Funcs
		want    string
	}{
		"Secret": {interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return busy
		}},
			"cannot read Secret cleaner-system/cleaner-signing-key: the API server is busy"},
		"Cleaners": {interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return busy }},
			"cannot determine whether a signing key was lost: the API server is busy"},
		"Write": {interceptor.Funcs{Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return busy }},
			"cannot write Secret cleaner-system/cleaner-signing-key: the API server is busy"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, empty())
			k := c.intercepted(tc.through)
			if err := k.Refresh(t.Context()); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if _, err := k.CurrentRing(); err == nil || err.Error() != tc.want {
				t.Errorf("the ring says %v, want %s", err, tc.want)
			}
			now := &corev1.Secret{}
			if err := c.Get(t.Context(), secret, now); err != nil || len(now.Data) != 0 {
				t.Errorf("the Secret has %d keys (%v)", len(now.Data), err)
			}
		})
	}
}

// Of two replicas that make the first key at once, one loses, says so, and takes the other's.
func TestTheSlowerReplicaTakesTheOthersKey(t *testing.T) {
	for name, objects := range map[string][]client.Object{"Create": nil, "Update": {empty()}} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, objects...)
			var signature string
			faster := func() { signature = sign(t, refreshed(t, c.replica(false))) }
			k := c.intercepted(interceptor.Funcs{
				Create: func(ctx context.Context, through client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					faster()
					return through.Create(ctx, o, opts...)
				},
				Update: func(ctx context.Context, through client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
					faster()
					return through.Update(ctx, o, opts...)
				},
			})
			if err := k.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "another replica has written Secret") {
				t.Fatalf("got %v", err)
			}
			if _, err := refreshed(t, k).Verify(signing.Record, []byte("x"), signature); err != nil {
				t.Error(err)
			}
		})
	}
}

// The next look at the Secret is when its newest key is to be replaced.
func TestTheNextLookIsAtTheRotation(t *testing.T) {
	c := newCluster(t, empty())
	k := c.replica(false)
	if got := k.untilRotation(); got != noRotation {
		t.Errorf("without a key it waits for %s", got)
	}
	refreshed(t, k)
	c.clock.Step(23 * time.Hour)
	if got := k.untilRotation(); got != time.Hour {
		t.Errorf("with one key it waits for %s", got)
	}
	c.clock.Step(2 * time.Hour)
	if got := k.untilRotation(); got != retryInterval {
		t.Errorf("when it is late it waits for %s", got)
	}
	for range 20 { // the Secret has no order
		refreshed(t, k)
		if got := k.untilRotation(); len(k.keys) != 2 || got != 24*time.Hour {
			t.Fatalf("with %d keys it waits for %s", len(k.keys), got)
		}
	}
	k.opts.Policy.Rotation = 0
	if got := k.untilRotation(); got != noRotation {
		t.Errorf("without a rule it waits for %s", got)
	}
}

// informer hands out its handler.
type informer struct{ handler cache.ResourceEventHandler }

func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = handler
	return nil, nil
}

// Whatever happens to the Secret has it read again, and no number of events blocks who tells them.
func TestFollow(t *testing.T) {
	k, i := newCluster(t).replica(false), &informer{}
	if err := k.FollowInformer(i); err != nil {
		t.Fatal(err)
	}
	for name, event := range map[string]func(){
		"Add":    func() { i.handler.OnAdd(empty(), false) },
		"Update": func() { i.handler.OnUpdate(empty(), empty()) },
		"Delete": func() { i.handler.OnDelete(empty()) },
	} {
		event()
		event()
		select {
		case <-k.wake:
		default:
			t.Errorf("%s: the Secret is not read again", name)
		}
	}
}

// Start reads again soon while there is no key, and when the Secret changes.
func TestStart(t *testing.T) {
	broken := empty()
	broken.Data = map[string][]byte{"tls.key": nil}
	c := newCluster(t, broken)
	k := c.replica(false)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.Start(ctx) }()
	eventually(t, "waits to read again", c.clock.HasWaiters)
	if err := c.Delete(ctx, empty()); err != nil {
		t.Fatal(err)
	}
	c.clock.Step(retryInterval)
	eventually(t, "has a key", func() bool { return k.CheckReady(nil) == nil })
	if err := c.Get(ctx, secret, broken); err != nil {
		t.Fatal(err)
	}
	broken.Data["tls.key"] = nil
	if err := c.Update(ctx, broken); err != nil {
		t.Fatal(err)
	}
	k.TriggerRefresh()
	eventually(t, "has read the change", func() bool { return k.CheckReady(nil) != nil })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("never: %s", what)
	}
}
