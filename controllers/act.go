// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// act confirms a decision on live reads and commits it. It returns the decision to report: the one that live reads
// gave, or why they were not enough.
func (p *pass) act(ctx context.Context, in plan.Input, watched plan.Plan) (plan.Plan, error) {
	if p.r.clock.Now().Before(p.mem.retryAt) {
		if p.mem.resting {
			return p.resting(watched), nil
		}
		return p.unconfirmed(watched), nil
	}
	p.mem.resting = false
	in.Now = p.r.clock.Now() // before the reads: a confirmation is as old as the oldest of them
	in.Snapshot = snapshot.TakeLive(ctx, p.r.targets, p.c.Namespace, &p.c.Spec)
	in.Release = p.lookRelease(ctx)
	live := plan.Compute(ctx, in)
	switch {
	case live.Verdict == v1alpha1.VerdictAct && !plan.Agree(watched, live):
		p.later(&p.mem.disagreed)
		return p.unconfirmed(live), nil
	case live.Verdict != v1alpha1.VerdictAct:
		live.Next = p.later(&p.mem.disagreed)
		return live, nil
	case p.c.Spec.Mode == v1alpha1.ModeDryRun:
		return p.dryRun(ctx, live), nil
	}
	return live, p.commit(ctx, in, live)
}

// unconfirmed is a decision that is looked at again soon.
func (p *pass) unconfirmed(d plan.Plan) plan.Plan {
	d.Verdict, d.Reason, d.Next = v1alpha1.VerdictWait, v1alpha1.ReasonUnconfirmed, p.mem.retryAt
	d.Message = "The conditions held, and live reads have yet to say the same."
	return d
}

// resting is a decision that is looked at again some time after a run that left something.
func (p *pass) resting(d plan.Plan) plan.Plan {
	d.Verdict, d.Reason, d.Next = v1alpha1.VerdictWait, v1alpha1.ReasonPartial, p.mem.retryAt
	d.Message = fmt.Sprintf("Run %d left something; all conditions are true, and another run begins after a pause.", p.read.Status.Runs)
	return d
}

// later doubles the wait before the next confirmation, up to retry.period, and says when that is.
func (p *pass) later(wait *time.Duration) time.Time {
	period, err := plan.Period(&p.c.Spec)
	if err != nil {
		period = plan.DefaultPeriod
	}
	*wait = min(max(2**wait, time.Second), period)
	p.mem.retryAt = p.r.clock.Now().Add(*wait)
	return p.mem.retryAt
}

// lookRelease reads the Helm release that the spec wants uninstalled; nil if there is none. What cannot be read blocks.
func (p *pass) lookRelease(ctx context.Context) *plan.Release {
	h := p.c.Spec.Helm
	if h == nil || !h.Delete {
		return nil
	}
	rel, err := p.r.helm.Look(ctx, p.c.Namespace, h.Release)
	if err != nil {
		return &plan.Release{Name: h.Release, Blocked: releaseReason(err), Detail: clean(fmt.Sprintf("Release %q: %s.", h.Release, err))}
	}
	return &rel.Release
}

// releaseReason is the reason for which a release could not be read.
func releaseReason(err error) string {
	if blocked, ok := errors.AsType[*helm.BlockedError](err); ok {
		return blocked.Reason
	}
	if apierrors.IsForbidden(err) {
		return v1alpha1.ReasonAccessDenied
	}
	return v1alpha1.ReasonReadFailed
}

// commit records the run before anything of it is done: the finalizer first, then the rows, each at the version of the
// Cleaner that was decided on.
func (p *pass) commit(ctx context.Context, in plan.Input, d plan.Plan) error {
	decides, err := p.mem.fingerprint(p.c)
	if err != nil {
		return err
	}
	if controllerutil.AddFinalizer(p.read.DeepCopy(), v1alpha1.Finalizer) {
		err := p.writeMetadata(ctx, func(c *v1alpha1.Cleaner) { controllerutil.AddFinalizer(c, v1alpha1.Finalizer) })
		if err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	run, remembered := plan.Commit(p.read, decides, d, in.Now)
	err = p.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) { s.Run, s.Runs = run, run.Number })
	if err != nil {
		return err
	}
	p.mem.run = *remembered
	p.mem.disagreed = 0
	p.committed = true
	p.report().evaluated(in, d)
	logf.FromContext(ctx).Info("Committed", "run", run.Number, "objects", len(run.Rows), "release", releaseName(run), "withheld", len(run.Withheld))
	return nil
}

// dryRun asks the API server about each deletion, once a version of an object, and reports.
func (p *pass) dryRun(ctx context.Context, d plan.Plan) plan.Plan {
	now := map[types.UID]string{}
	for i := range d.Steps {
		step := &d.Steps[i]
		now[step.Object.UID] = step.Object.ResourceVersion
		if p.mem.tried[step.Object.UID] == step.Object.ResourceVersion {
			continue
		}
		result := "would be deleted"
		if err := p.r.actuator.Try(ctx, step.Object.Ref); err != nil {
			result = "would be refused: " + clean(err.Error())
		}
		p.did(step.Row(), "delete (dry run)", result)
	}
	p.mem.tried = now
	d.Reason = v1alpha1.ReasonDryRun
	d.Message = fmt.Sprintf("All conditions are true; %d objects would be deleted%s. Mode is DryRun: nothing is.", len(d.Steps), andRelease(d.Release))
	return d
}

func andRelease(rel *plan.Release) string {
	if rel == nil {
		return ""
	}
	return fmt.Sprintf(" and release %q uninstalled", rel.Name)
}

func releaseName(run *v1alpha1.Run) string {
	if run.Helm == nil {
		return ""
	}
	return run.Helm.Name
}
