// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keyring keeps the operator's signing keys: in one Secret of its namespace, which all replicas share.
//
// The first replica makes the Secret when the operator is installed. A key that was there and is gone is never made again by itself:
// whatever was signed with it would count as forged, so an administrator has to say so. A key
// that is old gets a successor, and every replica follows the Secret.
//
// That there was a key is noted on a Lease beside the Secret before anything is signed, because tenants can write what looks signed
// into their Cleaners.
//
// It writes no other Secret, and it never deletes one.
package keyring

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

// retryInterval is how soon a Secret that cannot be used is read again.
const retryInterval = 2 * time.Second

// noRotation is how long a key is used that is not replaced.
const noRotation = 10 * 365 * 24 * time.Hour

// AnnotationKeyMade is on the Lease of the operator once there has been a key.
const AnnotationKeyMade = "cleaner.vtex.dev/signing-key-made"

// Options say where the keys are.
type Options struct {
	// Secret is the Secret that holds the keys.
	Secret types.NamespacedName
	// Lease is the name of the Lease, in the namespace of the Secret, on which is noted that there was a key.
	Lease string
	// Policy says how keys follow each other.
	Policy signing.RotationPolicy
	// AllowNewKey lets a key be made although one is missing that was there before.
	AllowNewKey bool
	Clock       clock.Clock
	Log         logr.Logger
}

// Keyring follows the Secret. It is a Runnable of a manager, and needs no leadership.
type Keyring struct {
	opts   Options
	reader client.Reader
	writer client.Writer

	mu   sync.Mutex
	keys []signing.Key
	err  error // why there are none
	had  bool  // there have been some
	wake chan struct{}
}

// New makes a Keyring. The reader reads from the API server, not from a cache.
func New(reader client.Reader, writer client.Writer, opts Options) *Keyring {
	return &Keyring{opts: opts, reader: reader, writer: writer, err: errors.New("the signing key has not been read yet"), wake: make(chan struct{}, 1)}
}

// CurrentRing returns the ring of the keys that count now. It fails while there is none.
func (k *Keyring) CurrentRing() (signing.Ring, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return signing.Ring{}, k.err
	}
	return signing.NewRing(k.keys, k.opts.Policy, k.opts.Clock.Now())
}

// CheckReady says why there is no key, as a readiness check.
func (k *Keyring) CheckReady(*http.Request) error {
	_, err := k.CurrentRing()
	return err
}

// NeedLeaderElection says that every replica follows the Secret.
func (k *Keyring) NeedLeaderElection() bool { return false }

// TriggerRefresh has the Secret read again soon, because it has changed.
func (k *Keyring) TriggerRefresh() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// FollowInformer has the Secret read again whenever an informer sees that it has changed.
func (k *Keyring) FollowInformer(informer interface {
	AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { k.TriggerRefresh() }, UpdateFunc: func(any, any) { k.TriggerRefresh() }, DeleteFunc: func(any) { k.TriggerRefresh() },
	})
	return err
}

// Start follows the Secret until ctx is done: when it changes, when a key has to be replaced, and while there is none.
func (k *Keyring) Start(ctx context.Context) error {
	for {
		err := k.Refresh(ctx)
		wait := k.untilRotation()
		if err != nil && ctx.Err() == nil { // a read that the stop has cut off says nothing of the key
			k.opts.Log.Error(err, "The signing key cannot be used: nothing is done, and no Cleaner can be written, until it can", "secret", k.opts.Secret)
			wait = retryInterval
		}
		timer := k.opts.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		case <-k.wake:
			timer.Stop()
		}
	}
}

// untilRotation is how long the newest key may still be used, and a while at least.
func (k *Keyring) untilRotation() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.opts.Policy.Rotation == 0 || len(k.keys) == 0 {
		return noRotation
	}
	var newest time.Time
	for _, key := range k.keys {
		if made := key.CreatedAt(); made.After(newest) {
			newest = made
		}
	}
	return max(newest.Add(k.opts.Policy.Rotation).Sub(k.opts.Clock.Now()), retryInterval)
}

// Refresh reads the keys, and writes one where one has to be made.
func (k *Keyring) Refresh(ctx context.Context) error {
	keys, err := k.ensureKeys(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.err, k.had = keys, err, k.had || err == nil
	return err
}

// ensureKeys reads the keys, and makes one where there is none or where the newest is old. Before it returns any, it is noted that there
// are some.
func (k *Keyring) ensureKeys(ctx context.Context) ([]signing.Key, error) {
	secret := &corev1.Secret{}
	err := k.reader.Get(ctx, k.opts.Secret, secret)
	switch {
	case apierrors.IsNotFound(err):
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.opts.Secret.Namespace, Name: k.opts.Secret.Name}}
	case err != nil:
		return nil, fmt.Errorf("cannot read Secret %s: %w", k.opts.Secret, err)
	}
	keys, err := parseKeys(secret)
	if err != nil {
		return nil, fmt.Errorf("cannot use Secret %s: %w", k.opts.Secret, err)
	}
	if len(keys) == 0 {
		if err := k.checkNoKeyLost(ctx); err != nil {
			return nil, err
		}
		if keys, err = k.addKey(ctx, secret, nil); err != nil {
			return nil, err
		}
		return keys, k.noteKey(ctx)
	}
	if err := k.noteKey(ctx); err != nil {
		return nil, err
	}
	ring, err := signing.NewRing(keys, k.opts.Policy, k.opts.Clock.Now())
	if err != nil {
		return nil, fmt.Errorf("cannot use Secret %s: %w", k.opts.Secret, err)
	}
	if ring.NeedsRotation(k.opts.Policy, k.opts.Clock.Now()) {
		return k.addKey(ctx, secret, ring.AcceptedKeys())
	}
	return keys, nil
}

// parseKeys reads the keys of the Secret.
func parseKeys(secret *corev1.Secret) ([]signing.Key, error) {
	keys := make([]signing.Key, 0, len(secret.Data))
	for id, bytes := range secret.Data {
		key, err := signing.ParseKey(id, bytes)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// checkNoKeyLost says why an empty Secret must stay empty: there was a key, and something is signed. What stands in the Cleaners of tenants
// counts only if it is noted that there was a key. Those who write ClusterCleaners run the cluster.
func (k *Keyring) checkNoKeyLost(ctx context.Context) error {
	if k.opts.AllowNewKey {
		return nil
	}
	if k.had { // the Lease may have been deleted since
		if err := k.noteKey(ctx); err != nil {
			return err
		}
	}
	lease, err := k.readLease(ctx)
	if err != nil {
		return err
	}
	lists := []client.ObjectList{&v1alpha1.ClusterCleanerList{}}
	if isNoted(lease) {
		lists = append(lists, &v1alpha1.CleanerList{})
	}
	for _, list := range lists {
		if err := k.reader.List(ctx, list); err != nil {
			return fmt.Errorf("cannot determine whether a signing key was lost: %w", err)
		}
		if name := findSignedOwner(list); name != "" {
			return fmt.Errorf("the Secret %s has lost the signing key: %s was signed with it; restore the Secret, or run the operator with --new-signing-key: "+
				"then open runs lose their record, and Cleaners without a ServiceAccount do nothing until they are written again", k.opts.Secret, name)
		}
	}
	return nil
}

// readLease reads the Lease on which is noted that there was a key. Without one it is empty.
func (k *Keyring) readLease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	at := types.NamespacedName{Namespace: k.opts.Secret.Namespace, Name: k.opts.Lease}
	if err := k.reader.Get(ctx, at, lease); apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}, nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot find out whether there was a signing key: cannot read Lease %s: %w", at, err)
	}
	return lease, nil
}

// isNoted says that there has been a key.
func isNoted(lease *coordinationv1.Lease) bool { return lease.Annotations[AnnotationKeyMade] != "" }

// noteKey notes on the Lease that there is a key. Who competes for the Lease leaves the note there.
func (k *Keyring) noteKey(ctx context.Context) error {
	lease, err := k.readLease(ctx)
	if err != nil || isNoted(lease) {
		return err
	}
	before := lease.DeepCopy()
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, AnnotationKeyMade, "true")
	if lease.ResourceVersion == "" {
		err = k.writer.Create(ctx, lease.DeepCopy())
	}
	if lease.ResourceVersion != "" || apierrors.IsAlreadyExists(err) { // or another process has just made it, to lead
		err = k.writer.Patch(ctx, lease, client.MergeFrom(before))
	}
	if err != nil {
		return fmt.Errorf("cannot note on Lease %s that there is a signing key: %w", client.ObjectKeyFromObject(lease), err)
	}
	return nil
}

// findSignedOwner names an object of a list in which stands what an operator signs; empty if there is none. A user who may write the object
// can have written it.
func findSignedOwner(list client.ObjectList) string {
	var owners []v1alpha1.Owner
	switch l := list.(type) {
	case *v1alpha1.CleanerList:
		for i := range l.Items {
			owners = append(owners, &l.Items[i])
		}
	case *v1alpha1.ClusterCleanerList:
		for i := range l.Items {
			owners = append(owners, &l.Items[i])
		}
	}
	for _, c := range owners {
		if c.GetAnnotations()[v1alpha1.AnnotationAuthor] != "" || c.State().Signature != "" {
			return fmt.Sprintf("%s %q", v1alpha1.KindOf(c), client.ObjectKeyFromObject(c))
		}
	}
	return ""
}

// addKey makes a key and stores it beside those that still count. Another replica may have been faster: its key is read then.
func (k *Keyring) addKey(ctx context.Context, secret *corev1.Secret, counted []signing.Key) ([]signing.Key, error) {
	key := signing.NewKey(k.opts.Clock.Now())
	keys := append(counted, key)
	secret.Data = map[string][]byte{}
	for _, one := range keys {
		secret.Data[one.ID] = one.Bytes()
	}
	write, verb := k.writer.Update, "write"
	if secret.ResourceVersion == "" {
		write, verb = func(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
			return k.writer.Create(ctx, o)
		}, "create"
	}
	switch err := write(ctx, secret); {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("another replica has written Secret %s: it is read again", k.opts.Secret)
	case err != nil:
		return nil, fmt.Errorf("cannot %s Secret %s: %w", verb, k.opts.Secret, err)
	}
	k.opts.Log.Info("Made a signing key", "secret", k.opts.Secret, "key", key.ID)
	return keys, nil
}
