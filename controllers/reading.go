// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/records"
	"github.com/vtex/cleaner/controllers/internal/shown"
	"github.com/vtex/cleaner/controllers/internal/store"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
)

// readingLimit is how long it may take to read a release, without the wait for a slot: later it justifies nothing.
const readingLimit = life.ConfirmationServes

// releaseReader reads the release of a Cleaner, in turns with others.
type releaseReader struct{ pass *pass }

func releaseOf(p *pass) releaseReader { return releaseReader{p} }

// takeReading waits for the slot in which a record of a release is read: that is not the pass's own time.
func (r releaseReader) takeReading(ctx context.Context) (leave func(), err error) {
	began := r.pass.r.clock.Now()
	defer func() { r.pass.waited += r.pass.r.clock.Since(began) }()
	return r.pass.r.readings.TurnOf(r.pass.store.Key)(ctx)
}

// wantsRelease says that the spec wants a release uninstalled.
func (r releaseReader) wantsRelease() bool {
	return r.pass.assignment.Work.Helm != nil && r.pass.assignment.Work.Helm.Delete
}

// loadRelease decodes the record of the release in spec.helm into a cache, which can take long. Afterwards readWanted is fast enough for
// a confirmation.
func (r releaseReader) loadRelease(ctx context.Context) error {
	if !r.wantsRelease() {
		return nil
	}
	return r.readUnlessChanged(ctx, func(ctx context.Context, turn helm.Turn) {
		r.pass.clients.Helm.LoadRelease(ctx, turn, r.pass.store.Cleaner.GetNamespace(), r.pass.assignment.Work.Helm.Release)
	})
}

// readWanted reads the release that the spec wants uninstalled; nil if there is none.
func (r releaseReader) readWanted(ctx context.Context) (rel *plan.Release, err error) {
	if !r.wantsRelease() {
		return nil, nil
	}
	err = r.readUnlessChanged(ctx, func(ctx context.Context, turn helm.Turn) {
		rel = r.pass.clients.Helm.ReadWanted(ctx, turn, r.pass.store.Cleaner.GetNamespace(), r.pass.assignment.Work.Helm)
	})
	return rel, err
}

// readCommitted reads the release of the open run. Why it cannot be read is unread.
func (r releaseReader) readCommitted(ctx context.Context, name string) (rel helm.Release, unread, err error) {
	err = r.readUnlessChanged(ctx, func(ctx context.Context, turn helm.Turn) {
		rel, unread = r.pass.clients.Helm.ReadRelease(ctx, turn, r.pass.store.Cleaner.GetNamespace(), name)
	})
	return rel, unread, err
}

// lookAtRelease reads the release of the open run, and records its state.
func (r releaseReader) lookAtRelease(ctx context.Context) error {
	p, run := r.pass, r.pass.store.Cleaner.State().Run
	rel, unread, err := r.readCommitted(ctx, run.Helm.Name)
	if err != nil {
		return err
	}
	if unread != nil {
		p.mem.run.ReleaseUnread(shown.CleanText(unread.Error()), p.r.clock.Now())
		return nil
	}
	rel.Begun = records.IsMark(p.store.Ring, p.store.Cleaner, run, rel.Mark)
	p.mem.run.LookedAtRelease(run, rel.Release, p.r.clock.Now())
	return nil
}

// readUnlessChanged reads something within its time, and stops when the Cleaner is changed or deleted: then nothing that was read counts.
func (r releaseReader) readUnlessChanged(ctx context.Context, read func(context.Context, helm.Turn)) error {
	following, end := followCleaner(ctx, r.pass)
	defer end()
	limited, turn, stop := helm.LimitTime(following, r.pass.r.clock, readingLimit, r.takeReading)
	defer stop()
	read(limited, turn)
	if following.Err() != nil && ctx.Err() == nil {
		return store.ErrChanged
	}
	return nil
}
