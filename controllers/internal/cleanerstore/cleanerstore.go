// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cleanerstore reads and writes one Cleaner object; no other package writes Cleaners. It trusts a record in status only if this operator
// has signed it. It does not decide what is written.
package cleanerstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/cachetrim"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/signing"
)

var (
	// ErrNotOwner keeps a process that may have lost the leadership from writing and deleting.
	ErrNotOwner = errors.New("this process no longer owns the Cleaner: it has not renewed its Lease lately, or another replica owns it")
	// ErrOutdated says that a request was not sent, or a report not written, because the Cleaner has changed, the reads are too old, the
	// clock is suspected, or the process shuts down. The next pass starts again.
	ErrOutdated = errors.New("the Cleaner, or what was read for it, is no longer current")
)

// API is what Cleaners are read from and written to.
type API struct {
	Client client.Client // reads Cleaners from the cache, writes them
	Live   client.Reader // reads Cleaners from the API server
	Lease  interface{ Fresh() bool }
	Clock  clock.PassiveClock
}

// Store is one Cleaner: what is stored of it, and the draft of what to write. No other type writes Cleaners.
type Store struct {
	API    *API
	Key    types.NamespacedName
	Draft  v1alpha1.Owner // as read or as last written, but its status is the draft of the report
	Stored v1alpha1.Owner // as read or as last written
	Ring   signing.Ring
	memory *Memory
}

// New returns a Store for a Cleaner as it was read. The memory outlives it.
func New(api *API, key types.NamespacedName, c v1alpha1.Owner, mem *Memory) *Store {
	return &Store{API: api, Key: key, Draft: c, Stored: c.DeepCopyOwner(), memory: mem}
}

// MayBeWritten says that it is unknown after an error whether the Cleaner was written.
func MayBeWritten(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError
	}
	return err != nil && !errors.Is(err, ErrNotOwner)
}

// Memory is what this process remembers of what is stored. Losing it costs reads of the Cleaner.
type Memory struct {
	// Written is the resourceVersion that this process's last write gave the Cleaner; empty once the cache has it.
	Written string
	// verified is where the record was found to be one of this operator.
	verified verified
	// Record is the last one of this operator that was read or written; nil before.
	Record *v1alpha1.CleanerStatus
	// reported is when the report part of the status was last written.
	reported time.Time
}

// verified is a version of a Cleaner whose record the key has signed that signs now.
type verified struct{ version, key string }

// isOutdated says that a record is an earlier one than another that was read or written, or was emptied.
func (m *Memory) isOutdated(s *v1alpha1.CleanerStatus) bool {
	return m.Record != nil && signedrecords.IsOlder(s, m.Record)
}

// rememberRecord keeps the record of a status that this operator has written.
func (m *Memory) rememberRecord(s *v1alpha1.CleanerStatus) {
	m.Record = new(signedrecords.CopyRecord(s))
}

// writeCleaner writes a change of the Cleaner that decides something. It fails on a conflict, and never sends from a process that may no
// longer own the Cleaner. before is the part of what was read that may change: the rest, which may be thousands of rows, is not compared.
func (p *Store) writeCleaner(before v1alpha1.Owner, send func(c v1alpha1.Owner, from client.Patch) error, change func(c v1alpha1.Owner) error) error {
	if !p.API.Lease.Fresh() {
		return ErrNotOwner
	}
	next := before.DeepCopyOwner()
	if err := change(next); err != nil {
		return err
	}
	if err := send(next, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	p.adoptAnswer(next)
	return nil
}

// WriteStatus writes the record, signed.
func (p *Store) WriteStatus(ctx context.Context, change func(s *v1alpha1.CleanerStatus)) error {
	before := p.ReadMetadata()
	*before.State() = signedrecords.CopyRecord(p.Stored.State())
	err := p.writeCleaner(before, func(c v1alpha1.Owner, from client.Patch) error {
		return p.API.Client.Status().Patch(ctx, c, from)
	}, func(c v1alpha1.Owner) error {
		change(c.State())
		return signedrecords.SignRecord(p.Ring, c, c.State(), p.API.Clock.Now())
	})
	if err == nil {
		p.memory.verified = verified{p.Stored.GetResourceVersion(), p.Ring.SignerID()}
		p.memory.rememberRecord(p.Stored.State())
	}
	return err
}

// WriteMetadata writes labels, annotations and finalizers.
func (p *Store) WriteMetadata(ctx context.Context, change func(c v1alpha1.Owner)) error {
	before := p.ReadMetadata()
	if err := p.completeFinalizers(ctx, before); err != nil {
		return err
	}
	return p.writeCleaner(before, func(c v1alpha1.Owner, from client.Patch) error {
		return p.API.Client.Patch(ctx, c, from)
	}, func(c v1alpha1.Owner) error {
		change(c)
		return nil
	})
}

// ReadMetadata returns the metadata of the Cleaner as it was read, and nothing else.
func (p *Store) ReadMetadata() v1alpha1.Owner {
	if c, ok := p.Stored.(*v1alpha1.ClusterCleaner); ok {
		out := &v1alpha1.ClusterCleaner{ObjectMeta: c.ObjectMeta}
		out.ManagedFields = nil
		return out
	}
	out := &v1alpha1.Cleaner{}
	if c, ok := p.Stored.(*v1alpha1.Cleaner); ok {
		out.ObjectMeta = c.ObjectMeta
	}
	out.ManagedFields = nil
	return out
}

// adoptAnswer replaces the Cleaner by the one in the API server's response. It keeps the draft of the report.
func (p *Store) adoptAnswer(c v1alpha1.Owner) {
	draft := *p.Draft.State()
	p.Stored = c
	p.Draft = c.DeepCopyOwner()
	p.memory.Written = c.GetResourceVersion()
	now := p.Draft.State()
	draft.Runs, draft.Run, draft.Unsent, draft.LastScheduleTime = now.Runs, now.Run, now.Unsent, now.LastScheduleTime
	draft.RecordedAt, draft.Signature = now.RecordedAt, now.Signature
	*now = draft
}

// completeFinalizers adds the finalizers that the cache may have dropped: a patch replaces the list.
func (p *Store) completeFinalizers(ctx context.Context, of v1alpha1.Owner) error {
	if len(of.GetFinalizers()) < cachetrim.MaxCachedFinalizers {
		return nil
	}
	now := v1alpha1.NewOwner(p.Key.Namespace)
	if err := p.API.Live.Get(ctx, p.Key, now); err != nil {
		return err
	}
	if now.GetUID() != of.GetUID() || now.GetResourceVersion() != of.GetResourceVersion() {
		return ErrOutdated
	}
	of.SetFinalizers(now.GetFinalizers())
	return nil
}

// BelieveRecord says whether the record of the Cleaner is one of this operator, and whether the key that signs now has signed it.
// Each version is verified once per key.
func (p *Store) BelieveRecord() (current bool, err error) {
	at := verified{p.Stored.GetResourceVersion(), p.Ring.SignerID()}
	if at.version != "" && p.memory.verified == at {
		return true, nil
	}
	if current, err = signedrecords.VerifyRecord(p.Ring, p.Stored); err != nil {
		return false, err
	}
	if p.memory.isOutdated(p.Stored.State()) {
		return false, signedrecords.ErrForeign
	}
	p.memory.rememberRecord(p.Stored.State())
	if current {
		p.memory.verified = at
	}
	return current, nil
}

// RenewRecord signs the record again with the current key, because old keys expire.
func (p *Store) RenewRecord(ctx context.Context) {
	if err := p.WriteStatus(ctx, func(*v1alpha1.CleanerStatus) {}); err != nil { // it counts as it is; the next pass tries again
		logf.FromContext(ctx).V(4).Info("The record was not signed again", "error", err.Error())
	}
}

// RenewAuthor has the annotation name the Cleaner's UID, and be signed by the key that signs now. Its author stays.
func (p *Store) RenewAuthor(ctx context.Context) {
	who, err := author.Read(p.Ring, p.Stored)
	if err != nil || !who.NeedsRenewal || p.Draft.GetDeletionTimestamp() != nil {
		return
	}
	value, err := author.Renew(p.Ring, p.Stored, who)
	if err == nil {
		err = p.WriteMetadata(ctx, func(c v1alpha1.Owner) {
			annotations := c.GetAnnotations() // of a copy, with the author that was read
			annotations[v1alpha1.AnnotationAuthor] = value
			c.SetAnnotations(annotations)
		})
	}
	if err != nil { // the author counts as it is; the next pass tries again
		logf.FromContext(ctx).V(4).Info("The stored author was not renewed", "error", err.Error())
	}
}

// RemoveFinalizer lets the Cleaner go, if it is deleted.
func (p *Store) RemoveFinalizer(ctx context.Context) error {
	return p.WriteMetadata(ctx, func(c v1alpha1.Owner) { controllerutil.RemoveFinalizer(c, v1alpha1.Finalizer) })
}

// RereadCleaner replaces the Cleaner by its current version. If another client has written the record meanwhile, the next pass deals with
// it.
func (p *Store) RereadCleaner(ctx context.Context) error {
	c := v1alpha1.NewOwner(p.Key.Namespace)
	if err := p.API.Live.Get(ctx, p.Key, c); err != nil {
		return err
	}
	if _, err := signedrecords.VerifyRecord(p.Ring, c); err != nil || p.memory.isOutdated(c.State()) {
		return ErrOutdated
	}
	p.adoptAnswer(c)
	return nil
}

// RequestedAt is the last request for an evaluation, as status shows it; empty if there is none.
func (p *Store) RequestedAt() string {
	return sanitize.CleanText(p.Draft.GetAnnotations()[v1alpha1.AnnotationRequestedAt])
}

// CreatedAt is when the Cleaner was created, by the API server's clock.
func (p *Store) CreatedAt() time.Time {
	at := p.Draft.GetCreationTimestamp()
	return at.Time
}

// reportEvery is how often a status may be written for people.
const reportEvery = time.Second

// WriteReport writes the draft if it differs from what was read, at most once a second; else it says when it may. Counters and the counts of
// rules go with it, and are alone no reason to write: they change with every object that comes or goes.
func (p *Store) WriteReport(ctx context.Context, now time.Time, counters *v1alpha1.Counters) (sent bool, due time.Time, err error) {
	leaving := p.Draft.GetDeletionTimestamp() != nil && len(p.Draft.GetFinalizers()) == 0
	p.Draft.State().Counters = p.Stored.State().Counters
	counts := p.Draft.State().RuleCounts
	if namesSameRules(counts, p.Stored.State().RuleCounts) {
		p.Draft.State().RuleCounts = p.Stored.State().RuleCounts
	}
	if leaving || equality.Semantic.DeepEqual(p.Draft.State(), p.Stored.State()) {
		return false, time.Time{}, nil
	}
	p.Draft.State().RuleCounts = counts
	if counters != nil {
		p.Draft.State().Counters = new(*counters)
	}
	if due = p.memory.reported.Add(reportEvery); now.Before(due) {
		return false, due, nil
	}
	if !p.API.Lease.Fresh() {
		return false, time.Time{}, ErrNotOwner
	}
	patch, err := p.reportPatch()
	if err != nil {
		return false, time.Time{}, err
	}
	next := p.ReadMetadata()
	faults.PassPoint("before a report")
	if err = p.API.Client.Status().Patch(ctx, next, patch); err != nil {
		return false, time.Time{}, fmt.Errorf("cannot write the status of Cleaner %q: %w", p.Key, err)
	}
	faults.PassPoint("after a report")
	if p.Draft.State().LastRequestedAt != p.Stored.State().LastRequestedAt { // then it was written over the record that was read
		p.memory.rememberRecord(next.State())
	}
	p.memory.reported = now
	p.memory.Written = next.GetResourceVersion()
	return true, time.Time{}, nil
}

// namesSameRules says that two counts of rules are those of the same rules.
func namesSameRules(a, b []v1alpha1.RuleCounts) bool {
	return slices.EqualFunc(a, b, func(x, y v1alpha1.RuleCounts) bool { return x.Rule == y.Rule })
}

// reportPatch returns the difference between the draft and what was read. It names the Cleaner's UID, so that it never lands on another
// Cleaner of the same name. It leaves out the record, which may have thousands of rows, except for the answered request: with that the
// record is signed again, if it is believed, and still the one that was read.
func (p *Store) reportPatch() (client.Patch, error) {
	before, next := p.ReadMetadata(), p.ReadMetadata()
	*before.State(), *next.State() = *p.Stored.State(), *p.Draft.State()
	answers := before.State().LastRequestedAt != next.State().LastRequestedAt
	if answers {
		if _, err := p.BelieveRecord(); err != nil { // a signature would make it one of this operator
			return nil, fmt.Errorf("cannot answer the request to Cleaner %q: %w", p.Key, err)
		}
		if err := signedrecords.SignRecord(p.Ring, next, next.State(), p.API.Clock.Now()); err != nil {
			return nil, err
		}
	}
	signature, recorded := next.State().Signature, next.State().RecordedAt
	for _, s := range []*v1alpha1.CleanerStatus{before.State(), next.State()} {
		s.Runs, s.Run, s.Unsent, s.LastScheduleTime, s.RecordedAt, s.Signature = 0, nil, nil, nil, nil, ""
	}
	if answers {
		before.State().Signature, next.State().Signature = p.Stored.State().Signature, signature
		before.State().RecordedAt, next.State().RecordedAt = p.Stored.State().RecordedAt, recorded
	}
	text, err := client.MergeFrom(before).Data(next)
	if err != nil {
		return nil, fmt.Errorf("cannot write the status of Cleaner %q: %w", p.Key, err)
	}
	var patch map[string]any
	if err := json.Unmarshal(text, &patch); err != nil {
		return nil, fmt.Errorf("cannot write the status of Cleaner %q: %w", p.Key, err)
	}
	metadata := map[string]any{"uid": p.Draft.GetUID()}
	if patch["metadata"] = metadata; answers {
		metadata["resourceVersion"] = p.Stored.GetResourceVersion()
	}
	if text, err = json.Marshal(patch); err != nil {
		return nil, fmt.Errorf("cannot write the status of Cleaner %q: %w", p.Key, err)
	}
	return client.RawPatch(types.MergePatchType, text), nil
}
