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
type releaseReader struct{ sight *sight }

func releaseOf(p *sight) releaseReader { return releaseReader{p} }

// takeReading waits for the slot in which a record of a release is read: that is not the pass's own time.
func (r releaseReader) takeReading(ctx context.Context) (leave func(), err error) {
	began := r.sight.r.clock.Now()
	defer func() { r.sight.waited += r.sight.r.clock.Since(began) }()
	return r.sight.r.readings.TurnOf(r.sight.Key)(ctx)
}

// wantsRelease says that the spec wants a release uninstalled.
func (r releaseReader) wantsRelease() bool {
	return r.sight.Work.Helm != nil && r.sight.Work.Helm.Delete
}

// loadRelease decodes the record of the release in spec.helm into a cache, which can take long. Afterwards readWanted is fast enough for
// a confirmation.
func (r releaseReader) loadRelease(ctx context.Context) error {
	if !r.wantsRelease() {
		return nil
	}
	return r.readUnlessChanged(ctx, func(ctx context.Context, turn helm.Turn) {
		r.sight.clients.Helm.LoadRelease(ctx, turn, r.sight.Cleaner.GetNamespace(), r.sight.Work.Helm.Release)
	})
}

// readWanted reads the release that the spec wants uninstalled; nil if there is none.
func (r releaseReader) readWanted(ctx context.Context) (rel *plan.Release, err error) {
	if !r.wantsRelease() {
		return nil, nil
	}
	err = r.readUnlessChanged(ctx, func(ctx context.Context, turn helm.Turn) {
		rel = r.sight.clients.Helm.ReadWanted(ctx, turn, r.sight.Cleaner.GetNamespace(), r.sight.Work.Helm)
	})
	return rel, err
}

// readCommitted reads the release of the open run. Why it cannot be read is unread.
func (r releaseReader) readCommitted(ctx context.Context, name string) (rel helm.Release, unread, err error) {
	err = r.readUnlessChanged(ctx, func(ctx context.Context, turn helm.Turn) {
		rel, unread = r.sight.clients.Helm.ReadRelease(ctx, turn, r.sight.Cleaner.GetNamespace(), name)
	})
	return rel, unread, err
}

// lookAtRelease reads the release of the open run, and records its state.
func (r releaseReader) lookAtRelease(ctx context.Context) error {
	p, run := r.sight, r.sight.Cleaner.State().Run
	rel, unread, err := r.readCommitted(ctx, run.Helm.Name)
	if err != nil {
		return err
	}
	if unread != nil {
		p.mem.run.ReleaseUnread(shown.CleanText(unread.Error()), p.r.clock.Now())
		return nil
	}
	rel.Begun = records.IsMark(p.Ring, p.Cleaner, run, rel.Mark)
	p.mem.run.LookedAtRelease(run, rel.Release, p.r.clock.Now())
	return nil
}

// readUnlessChanged reads something within its time, and stops when the Cleaner is changed or deleted: then nothing that was read counts.
func (r releaseReader) readUnlessChanged(ctx context.Context, read func(context.Context, helm.Turn)) error {
	following, end := followCleaner(ctx, r.sight)
	defer end()
	limited, turn, stop := helm.LimitTime(following, r.sight.r.clock, readingLimit, r.takeReading)
	defer stop()
	read(limited, turn)
	if following.Err() != nil && ctx.Err() == nil {
		return store.ErrChanged
	}
	return nil
}
