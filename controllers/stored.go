// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/signing"
	"github.com/vtex/cleaner/controllers/trimmed"
)

// stored is the Cleaner as it is stored: what was read of it, and the only one who writes it.
type stored struct {
	r    *CleanerReconciler
	key  types.NamespacedName
	c    v1alpha1.Owner // as read or as last written; its status is the draft of the report
	read v1alpha1.Owner // the same without the draft
	ring signing.Ring
	mem  *persisted
}

// persisted is what this process remembers of what is stored. Losing it costs reads of the Cleaner.
type persisted struct {
	// written is the resourceVersion that this process's last write gave the Cleaner; empty once the cache has it.
	written string
	// verified is where the record was found to be one of this operator.
	verified verified
	// record is the last one of this operator that was read or written; nil before.
	record *v1alpha1.CleanerStatus
}

// verified is a version of a Cleaner whose record the key has signed that signs now.
type verified struct{ version, key string }

// isOutdated says that a record is an earlier one than another that was read or written, or was emptied.
func (m *persisted) isOutdated(s *v1alpha1.CleanerStatus) bool {
	return m.record != nil && (recordedAt(s).Before(recordedAt(m.record)) || s.Runs < m.record.Runs)
}

// rememberRecord keeps the record of a status that this operator has written.
func (m *persisted) rememberRecord(s *v1alpha1.CleanerStatus) { m.record = new(recordOf(s)) }

// writeCleaner sends a change of the Cleaner that decides something: it fails on a conflict, and is not sent by a process that
// may not be the leader any more. Before is the part of what was read that may change: a difference is not looked for in
// the rest, which may be thousands of rows.
func (p *stored) writeCleaner(before v1alpha1.Owner, send func(c v1alpha1.Owner, from client.Patch) error, change func(c v1alpha1.Owner) error) error {
	if !p.r.opts.Lease.Fresh() {
		return errNotLeader
	}
	next := before.DeepCopyOwner()
	if err := change(next); err != nil {
		return err
	}
	if err := send(next, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	p.takeAnswer(next)
	return nil
}

// writeStatus is write for the record.
func (p *stored) writeStatus(ctx context.Context, change func(s *v1alpha1.CleanerStatus)) error {
	before := p.readMetadata()
	*before.State() = recordOf(p.read.State())
	err := p.writeCleaner(before, func(c v1alpha1.Owner, from client.Patch) error {
		return p.r.client.Status().Patch(ctx, c, from)
	}, func(c v1alpha1.Owner) error {
		change(c.State())
		return signRecord(p.ring, c, c.State(), p.r.clock.Now())
	})
	if err == nil {
		p.mem.verified = verified{p.read.GetResourceVersion(), p.ring.SignerID()}
		p.mem.rememberRecord(p.read.State())
	}
	return err
}

// writeMetadata is write for the metadata.
func (p *stored) writeMetadata(ctx context.Context, change func(c v1alpha1.Owner)) error {
	before := p.readMetadata()
	if err := p.completeFinalizers(ctx, before); err != nil {
		return err
	}
	return p.writeCleaner(before, func(c v1alpha1.Owner, from client.Patch) error {
		return p.r.client.Patch(ctx, c, from)
	}, func(c v1alpha1.Owner) error {
		change(c)
		return nil
	})
}

// readMetadata is that of the Cleaner as it was read, and nothing else of it.
func (p *stored) readMetadata() v1alpha1.Owner {
	if c, ok := p.read.(*v1alpha1.ClusterCleaner); ok {
		out := &v1alpha1.ClusterCleaner{ObjectMeta: c.ObjectMeta}
		out.ManagedFields = nil
		return out
	}
	out := &v1alpha1.Cleaner{}
	if c, ok := p.read.(*v1alpha1.Cleaner); ok {
		out.ObjectMeta = c.ObjectMeta
	}
	out.ManagedFields = nil
	return out
}

// takeAnswer takes the Cleaner as the API server answered. The draft of the report is kept.
func (p *stored) takeAnswer(c v1alpha1.Owner) {
	draft := *p.c.State()
	p.read = c
	p.c = c.DeepCopyOwner()
	p.mem.written = c.GetResourceVersion()
	now := p.c.State()
	draft.Runs, draft.Run, draft.Unsent, draft.LastScheduleTime = now.Runs, now.Run, now.Unsent, now.LastScheduleTime
	draft.RecordedAt, draft.Signature = now.RecordedAt, now.Signature
	*now = draft
}

// completeFinalizers has the metadata of the Cleaner name all its finalizers, of which the cache may have dropped some: a patch
// replaces the list.
func (p *stored) completeFinalizers(ctx context.Context, of v1alpha1.Owner) error {
	if len(of.GetFinalizers()) < trimmed.MaxCachedFinalizers {
		return nil
	}
	now := emptyOwner(p.key)
	if err := p.r.live.Get(ctx, p.key, now); err != nil {
		return err
	}
	if now.GetUID() != of.GetUID() || now.GetResourceVersion() != of.GetResourceVersion() {
		return errNotNow
	}
	of.SetFinalizers(now.GetFinalizers())
	return nil
}

// believeRecord says whether the record of the Cleaner is one of this operator, and whether the key that signs now has signed it.
// What was is verified once a version and a key.
func (p *stored) believeRecord() (current bool, err error) {
	at := verified{p.read.GetResourceVersion(), p.ring.SignerID()}
	if at.version != "" && p.mem.verified == at {
		return true, nil
	}
	if current, err = verifyRecord(p.ring, p.read); err != nil {
		return false, err
	}
	if p.mem.isOutdated(p.read.State()) {
		return false, errForeignRecord
	}
	p.mem.rememberRecord(p.read.State())
	if current {
		p.mem.verified = at
	}
	return current, nil
}

// renewRecord has the record be signed by the key that signs now: the one that signed it does not count for ever.
func (p *stored) renewRecord(ctx context.Context) {
	if err := p.writeStatus(ctx, func(*v1alpha1.CleanerStatus) {}); err != nil { // it counts as it is; the next pass tries again
		logf.FromContext(ctx).V(4).Info("The record was not signed again", "error", err.Error())
	}
}

// renewAuthor has the annotation name the Cleaner's UID, and be signed by the key that signs now. Its author stays.
func (p *stored) renewAuthor(ctx context.Context) {
	who, err := author.Read(p.ring, p.read)
	if err != nil || !who.NeedsRenewal || p.c.GetDeletionTimestamp() != nil {
		return
	}
	value, err := author.Renew(p.ring, p.read, who)
	if err == nil {
		err = p.writeMetadata(ctx, func(c v1alpha1.Owner) {
			annotations := c.GetAnnotations() // of a copy, with the author that was read
			annotations[v1alpha1.AnnotationAuthor] = value
			c.SetAnnotations(annotations)
		})
	}
	if err != nil { // the author counts as it is; the next pass tries again
		logf.FromContext(ctx).V(4).Info("The stored author was not renewed", "error", err.Error())
	}
}

func (p *stored) removeFinalizer(ctx context.Context) error {
	return p.writeMetadata(ctx, func(c v1alpha1.Owner) { controllerutil.RemoveFinalizer(c, v1alpha1.Finalizer) })
}

// rereadCleaner takes the Cleaner as it is now. A record that somebody has written meanwhile is for the next pass to look at.
func (p *stored) rereadCleaner(ctx context.Context) error {
	c := emptyOwner(p.key)
	if err := p.r.live.Get(ctx, p.key, c); err != nil {
		return err
	}
	if _, err := verifyRecord(p.ring, c); err != nil || p.mem.isOutdated(c.State()) {
		return errNotNow
	}
	p.takeAnswer(c)
	return nil
}

// requestedAt is the last request for an evaluation, as status shows it; empty if there is none.
func (p *stored) requestedAt() string {
	return shown.CleanText(p.c.GetAnnotations()[v1alpha1.AnnotationRequestedAt])
}

// createdAt is when the Cleaner was created, by the API server's clock.
func (p *stored) createdAt() time.Time {
	at := p.c.GetCreationTimestamp()
	return at.Time
}

func (p *stored) cleanerRef() outbox.CleanerRef {
	return outbox.CleanerRef{Kind: v1alpha1.KindOf(p.c), Namespace: p.c.GetNamespace(), Name: p.c.GetName(), UID: p.c.GetUID()}
}
