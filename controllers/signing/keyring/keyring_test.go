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
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
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
	lease  = types.NamespacedName{Namespace: "cleaner-system", Name: "cleaner.vtex.dev"}
)

// cluster has objects, and replicas of the operator.
type cluster struct {
	client.WithWatch
	clock *clocktesting.FakeClock
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return &cluster{fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), clocktesting.NewFakeClock(start)}
}

func (c *cluster) replica(makeNew bool) *Keyring {
	return New(c, c, Options{
		Secret: secret, Lease: lease.Name, AllowNewKey: makeNew, Clock: c.clock, Log: logr.Discard(),
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

// signed is what looks as if an operator had signed it, in a Cleaner of a tenant.
func signed() map[string]*v1alpha1.Cleaner {
	return map[string]*v1alpha1.Cleaner{
		"Author": {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", Annotations: map[string]string{v1alpha1.AnnotationAuthor: "{}"}}},
		"Record": {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r"}, Status: v1alpha1.CleanerStatus{Signature: "20260102T150405Z.s"}},
	}
}

// without makes a cluster lose an object.
func (c *cluster) without(t *testing.T, object client.Object, key types.NamespacedName) {
	t.Helper()
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	if err := c.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// says that a key is lost, and that none has taken its place.
func (c *cluster) lost(t *testing.T, k *Keyring) {
	t.Helper()
	err := k.Refresh(t.Context())
	if err == nil || !strings.Contains(err.Error(), "has lost the signing key") || !strings.Contains(err.Error(), "--new-signing-key") {
		t.Fatalf("got %v", err)
	}
	if _, err := k.CurrentRing(); err == nil {
		t.Error("there is a ring")
	}
	now := &corev1.Secret{}
	if err := c.Get(t.Context(), secret, now); client.IgnoreNotFound(err) != nil || len(now.Data) != 0 {
		t.Errorf("the Secret has %d keys (%v)", len(now.Data), err)
	}
}

// noted says whether it is noted that there was a key.
func (c *cluster) noted(t *testing.T) bool {
	t.Helper()
	now := &coordinationv1.Lease{}
	if err := c.Get(t.Context(), lease, now); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return now.Annotations[AnnotationKeyMade] != ""
}

// held is the Lease as a leader has it.
func held() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("leader")},
	}
}

// A key that was there and is gone is an accident or an attack. Nobody makes another one without being told to.
func TestALostKeyIsNotReplaced(t *testing.T) {
	for name, object := range signed() {
		for of, lose := range map[string]func(t *testing.T, c *cluster){
			"Secret": func(t *testing.T, c *cluster) { c.without(t, &corev1.Secret{}, secret) },
			"Data": func(t *testing.T, c *cluster) {
				if err := c.Update(t.Context(), empty()); err != nil {
					t.Fatal(err)
				}
			},
		} {
			t.Run(name+of, func(t *testing.T) {
				c := newCluster(t, empty(), held())
				refreshed(t, c.replica(false))
				if err := c.Create(t.Context(), object.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				lose(t, c)
				c.lost(t, c.replica(false))
				refreshed(t, c.replica(true))
				refreshed(t, c.replica(false))
			})
		}
	}
	t.Run("ClusterCleaner", func(t *testing.T) { // whoever writes one runs the cluster
		c := newCluster(t, &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{v1alpha1.AnnotationAuthor: "{}"}}})
		c.lost(t, c.replica(false))
		refreshed(t, c.replica(true))
	})
}

// Before there was a key, a tenant can write into a Cleaner what an operator would sign. That keeps nobody from making the first one.
func TestNoTextOfATenantKeepsTheFirstKeyFromBeingMade(t *testing.T) {
	for name, object := range signed() {
		for in, objects := range map[string][]client.Object{"NewCluster": {empty()}, "WithoutASecret": nil, "AfterAnEarlierVersion": {empty(), held()}} {
			t.Run(name+in, func(t *testing.T) {
				c := newCluster(t, append([]client.Object{object}, objects...)...)
				refreshed(t, c.replica(false))
				if !c.noted(t) {
					t.Error("it is not noted that there is a key")
				}
			})
		}
	}
}

// A key of an operator that made no note is noted at the next start, with all else that is on the Lease as it is.
func TestAKeyOfAnEarlierVersionIsNoted(t *testing.T) {
	of := empty()
	key := signing.NewKey(start)
	of.Data = map[string][]byte{key.ID: key.Bytes()}
	c := newCluster(t, of, held(), signed()["Record"])
	refreshed(t, c.replica(false))
	now := &coordinationv1.Lease{}
	if err := c.Get(t.Context(), lease, now); err != nil || !c.noted(t) || *now.Spec.HolderIdentity != "leader" {
		t.Fatalf("the Lease is %+v (%v)", now, err)
	}
	version := now.ResourceVersion
	refreshed(t, c.replica(false))
	if err := c.Get(t.Context(), lease, now); err != nil || now.ResourceVersion != version {
		t.Errorf("a note that is there is written again (%v)", err)
	}
	c.without(t, &corev1.Secret{}, secret)
	c.lost(t, c.replica(false))
}

// A process that had a key knows that there was one, whatever has become of the note, and writes it again.
func TestALostNoteIsWrittenAgain(t *testing.T) {
	c := newCluster(t, empty(), signed()["Author"])
	k := c.replica(false)
	refreshed(t, k)
	c.without(t, &corev1.Secret{}, secret)
	for range 2 { // it does not forget either
		c.without(t, &coordinationv1.Lease{}, lease)
		c.lost(t, k)
	}
	c.lost(t, c.replica(false))

	c.without(t, &coordinationv1.Lease{}, lease)
	k.writer = interceptor.NewClient(c, interceptor.Funcs{Create: func(ctx context.Context, through client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*coordinationv1.Lease); ok {
			return errors.New("the API server is busy")
		}
		return through.Create(ctx, o, opts...)
	}})
	if err := k.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot note on Lease") {
		t.Errorf("got %v", err)
	}
	if err := c.Get(t.Context(), secret, &corev1.Secret{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a key was made that takes the place of the lost one (%v)", err)
	}
}

// Nothing is signed with a key that is not noted.
func TestNoKeyCountsBeforeItIsNoted(t *testing.T) {
	busy := errors.New("the API server is busy")
	fails := func(of client.Object) error {
		if _, ok := of.(*coordinationv1.Lease); ok {
			return busy
		}
		return nil
	}
	made := empty()
	key := signing.NewKey(start)
	made.Data = map[string][]byte{key.ID: key.Bytes()}
	const cannotNote = "cannot note on Lease cleaner-system/cleaner.vtex.dev that there is a signing key: the API server is busy"
	for name, tc := range map[string]struct {
		objects []client.Object
		through interceptor.Funcs
		want    string
	}{
		"Create": {[]client.Object{empty()}, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := fails(o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		}}, cannotNote},
		"Patch": {[]client.Object{made, held()}, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return busy
		}}, cannotNote},
		"Get": {[]client.Object{made, held()}, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, at client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := fails(o); err != nil {
				return err
			}
			return c.Get(ctx, at, o, opts...)
		}}, "cannot find out whether there was a signing key: cannot read Lease cleaner-system/cleaner.vtex.dev: the API server is busy"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCluster(t, tc.objects...).intercepted(tc.through)
			if err := k.Refresh(t.Context()); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if _, err := k.CurrentRing(); err == nil || err.Error() != tc.want {
				t.Errorf("the ring says %v, want %s", err, tc.want)
			}
		})
	}
}

// The Lease may be made meanwhile, by who leads then.
func TestTheNoteGoesOnALeaseThatIsJustMade(t *testing.T) {
	c := newCluster(t, empty())
	k := c.intercepted(interceptor.Funcs{Create: func(ctx context.Context, through client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*coordinationv1.Lease); ok {
			if err := through.Create(ctx, held()); err != nil {
				t.Error(err)
			}
		}
		return through.Create(ctx, o, opts...)
	}})
	refreshed(t, k)
	now := &coordinationv1.Lease{}
	if err := c.Get(t.Context(), lease, now); err != nil || !c.noted(t) || now.Spec.HolderIdentity == nil {
		t.Errorf("the Lease is %+v (%v)", now, err)
	}
}

func TestAnAbsentSecretIsMadeWhereNothingIsSigned(t *testing.T) {
	c := newCluster(t)
	if sign(t, refreshed(t, c.replica(false))) == "" {
		t.Error("no signature")
	}
	c.without(t, &corev1.Secret{}, secret)
	refreshed(t, c.replica(false))
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
		"Lease": {interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, at client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*coordinationv1.Lease); ok {
				return busy
			}
			return c.Get(ctx, at, o, opts...)
		}},
			"cannot find out whether there was a signing key: cannot read Lease cleaner-system/cleaner.vtex.dev: the API server is busy"},
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

// A read that the stop of the process has cut off is not logged as trouble with the key.
func TestAStopIsNotLogged(t *testing.T) {
	broken := empty()
	broken.Data = map[string][]byte{"tls.key": nil}
	k := newCluster(t, broken).replica(false)
	k.opts.Log = funcr.New(func(_, line string) { t.Errorf("it logs %s", line) }, funcr.Options{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := k.Start(ctx); err != nil {
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
