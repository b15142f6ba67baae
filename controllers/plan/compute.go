// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/params"
	"github.com/vtex/cleaner/controllers/plan/askedreads"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/groupfloor"
	"github.com/vtex/cleaner/controllers/plan/idlepatches"
	"github.com/vtex/cleaner/controllers/plan/itemerrors"
	"github.com/vtex/cleaner/controllers/plan/itemtrace"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/reuse"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

const (
	// MaxRows and maxRowBytes bound one run, so that a Cleaner stays far below what etcd stores. Bytes are those of JSON.
	MaxRows     = 5000
	maxRowBytes = 900 << 10
	// MaxWithheld and MaxWithheldBytes bound what is said of objects that are protected.
	MaxWithheld      = 200
	MaxWithheldBytes = 128 << 10
)

// Owner is the Cleaner that a plan is made for.
type Owner struct {
	Namespace, Name string
	UID             types.UID
	Created         time.Time
}

// Input is all that a decision depends on.
type Input struct {
	Owner    Owner
	Spec     *v1alpha1.Work // never changed
	Programs *celenv.Programs
	Snapshot observed.Snapshot
	// Release is the Helm release of the spec as read live; nil where it was not read.
	Release    *observed.Release
	Protection Protection
	Now        time.Time
	// Clock says how far Now can be trusted.
	Clock Clock
	// Expected is when an earlier plan found that time alone would make the conditions true; zero if none did. It saves
	// evaluations where that is still so.
	Expected time.Time
	// OpenRun says that a run of a Cleaner that cleans once is open: what is due is done, whatever else has to wait. Lost are the
	// targets, by name, that are missing only because the run had their objects: what reads them is not asked.
	OpenRun bool
	Lost    map[string]bool

	// Holds is what the plan before this one handed on.
	Holds fortimers.Holds
	// Lagging are the items that the watches show with an outdated version of an object: since a moment it is unknown whether their holds
	// continue.
	Lagging map[ItemKey]time.Time
	// Uninstalling are the Secrets of releases whose uninstall this Cleaner has begun: no rule acts on them, whatever else it wants.
	Uninstalling map[types.UID]bool
	// UninstallsFull says that so many are under way that no other begins in a namespace. Nil: never.
	UninstallsFull func(namespace string) bool
	// Unseen are the objects that are shown as this process has left them, after a change that the watches have not shown: it is unknown whether
	// the holds of their items continue.
	Unseen map[types.UID]bool
	// Done are the actions of this process, as far as limits still count them.
	Done limits.Done
	// Backoff is which objects wait after failures.
	Backoff backoff.Failures
	// Idle are the patches that have changed nothing. They are not wanted again, and nothing is reserved for them.
	Idle idlepatches.Patches
	// Recreations is what was deleted, and made anew by somebody.
	Recreations backoff.Recreations
	// Room is for how much there is room in memory between decisions; nil where nobody shares it.
	Room *Room
	// Memory is what the evaluation shares with others; nil: nothing.
	Memory celenv.Memory
	// Values are what earlier evaluations of the same decision have found out; nil: nothing is kept.
	Values *Values

	// Batch is for how many items, counted from the first, the plan asks to read live what they depend on. 0: for none.
	Batch int
	// Chosen are the items that may be of the batch; nil: all.
	Chosen map[ItemKey]bool
	// Reads bounds how many objects the plan asks to read live, by their names. 0: it asks for all that a batch depends on.
	Reads int
	// Confirmed are the reads that were answered live, and that the snapshot already shows.
	Confirmed map[observed.Read]bool
	// Unreadable are the reads that failed, and why. What depends on them is left alone.
	Unreadable map[observed.Read]string
	// Failed are items of which an earlier step failed: they are left alone.
	Failed map[ItemKey]bool
	// Results are for which items the plan before this one found `when` false. They save evaluations: what is acted on never depends on them.
	// Nil: all items are evaluated, and nothing is handed on.
	Results *reuse.Results
	// Earlier is the Base of the plan that the Results are of; nil if there is none.
	Earlier *Base
	// change is what has changed since the plan before, where no more than that is in the snapshot; nil: all is.
	change *change
	// Only are the items of rules that may be acted on; nil: all. The others still count wherever items are counted, and no later rule acts
	// on their objects.
	Only map[ItemKey]bool
	// Trace notes what the rules make of one object; nil: of none. No plan depends on it. With Results, it misses items that are not evaluated.
	Trace *itemtrace.Trace
	// Progress is called with how many items of a rule have been evaluated, and of how many, for a caller that shows it; nil: for none.
	Progress func(rule string, done, total int)
}

// Room is how much may be remembered between decisions.
type Room struct {
	// Holds is how many holds there may be.
	Holds int
	// DoneBytes and ResultBytes are how much memory Done and Results may take.
	DoneBytes, ResultBytes int64
}

// Clock is what was measured of the clock that Now comes from. The zero value is a clock that is right.
type Clock struct {
	// Suspect says in words why nothing may be decided by this clock; empty if it may.
	Suspect string
	// Ahead is by how much it is ahead of the API server's, whose times objects carry; never negative.
	Ahead time.Duration
}

// dueTime is now by the clock that is behind: what is due is due by both.
func (in *Input) dueTime() time.Time { return in.Now.Add(-in.Clock.Ahead) }

// Plan is what would be done now, and why.
type Plan struct {
	Verdict v1alpha1.Verdict
	// Reason is a reason of api/v1alpha1, and Message says it in one sentence.
	Reason, Message string
	// Conditions is what each condition gave; nil when they were not evaluated.
	Conditions []v1alpha1.ConditionOutcome
	// Steps are in the order in which they are carried out: those of rules, then those of targets, of which the ones that no
	// condition sees go first. A plan that is Blocked lists what it would have done.
	Steps []Step
	// Release is to be uninstalled after the steps; nil if there is none, or if it was not read.
	Release *observed.Release
	// Withheld is what would be a step and is protected: the first ones.
	Withheld []Withheld
	// Pending is what waits for the time that `for` asks for: the soonest first, once for each key.
	Pending []Pending
	// Errors is what went wrong with items. Equal errors are one.
	Errors []v1alpha1.ItemError
	// RulesEvaluated says that the conditions hold, so that rules and targets were asked what they want.
	RulesEvaluated bool
	// Deferred are items that wait because an earlier attempt on one of their objects failed, or was in vain. DeferReason is the
	// reason for which they do, of several the one that a person has to know first, and DeferDetail says which object it is
	// about, and why, for people.
	Deferred    []ItemKey
	DeferReason string
	DeferDetail string
	// Counts say for each rule that was evaluated how many of its items each step has left out.
	Counts []RuleCount
	// Shadowed says which rules leave objects to earlier rules: the first ones.
	Shadowed []Shadow
	// Refused is for how many objects requests would be refused, while mode is DryRun.
	Refused int
	// RefusedReason is the reason of conditions for the last of those requests.
	RefusedReason string
	// Idle are the patches that are left out because they would change nothing.
	Idle []IdleStep
	// Confirm are the reads that have to be answered live next. When there are none, steps that are Confirmed may be carried out.
	Confirm []observed.Read
	// Holds is input to the next ComputePlan.
	Holds fortimers.Holds
	// Results is input to the next ComputePlan; nil if the rules were not evaluated.
	Results *reuse.Results
	// Base is input to the next ComputeChange; nil if the next plan must look at all items.
	Base *Base
	// Evaluated is for how many items of rules `when` was evaluated, and Reused for how many its result was known.
	Evaluated, Reused int
	// TrippedBy is the limit that the plan is over; empty if none.
	TrippedBy string
	// Data is the value of cloudEventData as JSON; empty if there is none.
	Data string
	// NextChange is the first moment at which time alone may change the plan, as far as that can be predicted; zero if there is none.
	NextChange time.Time
	// Recheck is when the plan is made again at the latest, for safety: after spec.retry.period. Zero if it is not.
	Recheck time.Time
	// Next is when time alone may change the answer, or when it is asked again for safety. Zero: only an event can.
	Next time.Time
	// FlipsAt is when time alone makes a condition give another answer, where the conditions do not hold and that is exactly
	// known; zero if not. It is not before Next.
	FlipsAt time.Time
	// NextCheck is when time alone may give another answer although nothing says so; zero if not before Next. It is of no
	// interest to people: an item of a rule may be due then, or nothing happens.
	NextCheck time.Time
	// Steady is until when the passage of time changes no result of the rules: the time of the plan if that is unknown, and zero if the rules
	// were not evaluated.
	Steady time.Time
	// FirstChange is the first moment at which time alone may change an answer, as far as that can be predicted; zero if there is none.
	FirstChange time.Time
	// Unpredictable says whose answers time alone may change at an unpredictable moment.
	Unpredictable Unpredictable
}

// Unpredictable are the parts of a spec whose answers time alone may change at an unpredictable moment.
type Unpredictable struct {
	// Conditions says that a condition is one of them.
	Conditions bool
	// Rules are the names of the rules.
	Rules []string
}

// IsAny reports whether there are any.
func (u *Unpredictable) IsAny() bool { return u.Conditions || len(u.Rules) > 0 }

// always is for how long an answer holds that time does not change.
const always = 10 * 365 * 24 * time.Hour

// NextEvaluation is when to make another plan if nothing happens: at Next, or at NextCheck.
func (p *Plan) NextEvaluation() time.Time { return monotime.ChooseEarlier(p.Next, p.NextCheck) }

// decider is the evaluation of all rules of a spec.
type decider struct {
	in          *Input
	p           *Plan
	errors      itemerrors.Collection
	reads       askedreads.List
	abortReason func() *expr.Error // says why nothing is answered any more
	retain      func(path string, bytes int) bool
	// gate are the reads that all steps depend on, and that were not answered yet.
	gate []observed.Read
	// claimed is what earlier rules act on, and which rule that is: an object is acted on by the first rule that wants it.
	claimed map[types.UID]string
	// floors are how many of each group remain; nil if no rule has `leave`.
	floors *groupfloor.Floors
	// newest are the newest revisions of the releases in all targets; nil until a rule asks.
	newest map[observed.ReleaseName]int64
	// newHolds counts the `for` timers that started in this evaluation. blindFor is how long `when` may go unchecked at most before one of
	// the timers must start again; zero: there are none.
	newHolds int
	blindFor time.Duration
	// results are those of earlier plans and of this one; nil if none are used.
	results *reuse.Decision
	sums    map[string]observed.ContentSum
}

// ComputePlan decides. Equal inputs give equal plans; ctx only interrupts expressions.
func ComputePlan(ctx context.Context, in Input) Plan {
	ttl, err := in.Spec.TTL.Parse(0)
	if err != nil {
		return invalidPlan("spec.ttl: " + err.Error())
	}
	period, err := in.Spec.RetryPeriod()
	if err != nil {
		return invalidPlan("spec.retry.period: " + err.Error())
	}
	if in.Spec.Suspend { // nobody looks whether what holds goes on to hold
		return Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonSuspended, Message: "spec.suspend is true: the Cleaner is not evaluated."}
	}
	if in.Clock.Suspect != "" {
		return Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonClockSkewSuspected, Message: in.Clock.Suspect, Holds: in.Holds.BlindAll(in.Now)}
	}
	if due := in.Owner.Created.Add(ttl); in.dueTime().Before(due) {
		due = due.Add(in.Clock.Ahead)
		return Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonWaitingForTTL, Next: due, NextChange: due,
			Message: fmt.Sprintf("The ttl of %s has not expired yet.", in.Spec.TTL)}
	}
	in.Protection = in.Protection.ForSpec(in.Spec)
	in.Trace.BeginPlan()
	p := in.decideWork(ctx)
	p.NextChange = monotime.ChooseEarlier(p.Next, p.FirstChange)
	if p.Verdict != v1alpha1.VerdictInvalid {
		p.Recheck = in.Now.Add(period)
		p.Next = monotime.ChooseEarlier(p.Next, p.Recheck)
	}
	if !p.NextCheck.Before(p.Next) {
		p.NextCheck = time.Time{}
	}
	return p
}

// decideWork is ComputePlan for a Cleaner whose ttl has passed.
func (in *Input) decideWork(ctx context.Context) Plan {
	if len(in.Snapshot) != len(in.Spec.Targets) {
		return Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonReadFailed, Message: "The operator has not read the targets yet.", Holds: in.Holds.BlindAll(in.Now)}
	}
	if p, ok := in.checkTargets(); !ok {
		p.Holds = in.Holds.BlindAll(in.Now)
		return p
	}
	see, err := in.BuildEvaluationInput()
	if err != nil {
		return invalidPlan(err.Error())
	}
	p, results, foresight := in.evaluateWork(ctx, see)
	if results == nil { // it was interrupted
		return p
	}
	p.FirstChange = ahead{in}.byOurClock(foresight.Until)
	if !isClosed(results) {
		p.NextCheck = monotime.ChooseEarlier(p.NextCheck, p.FirstChange)
		return p
	}
	flip, exact := in.Programs.FindFlip(ctx, see, results, foresight, ahead{in}.nextBackstop(see.Time))
	switch {
	case exact:
		p.FlipsAt = ahead{in}.byOurClock(flip)
		p.Next = p.FlipsAt
	case p.Reason == v1alpha1.ReasonConditionsNotMet && in.Spec.Retry != nil && in.Spec.Retry.Monotonic:
		p.Next = ahead{in}.whenTrue(ctx, see, results)
	default:
		p.NextCheck = ahead{in}.byOurClock(flip)
	}
	return p
}

// checkTargets says whether every target that matters is known well enough to go on, else what is waited for.
func (in *Input) checkTargets() (Plan, bool) {
	var reason string
	var problems []string
	for i := range in.Spec.Targets {
		t, seen := &in.Spec.Targets[i], &in.Snapshot[i]
		if t.Delete && !in.Spec.Cluster && seen.Resource.Resource != "" && !seen.Namespaced {
			return invalidPlan(fmt.Sprintf("spec.targets[%d].delete: kind %s is cluster-scoped, but a Cleaner deletes only in its own namespace: remove delete: true (expressions can still read the target).", i, t.Reference.Kind)), false
		}
		r, problem := observed.FindProblem(t, seen, in.Owner.Namespace)
		if r == "" {
			continue
		}
		if reason == "" {
			reason = r
		}
		problems = append(problems, problem)
	}
	if reason == "" {
		return Plan{}, true
	}
	return Plan{Verdict: v1alpha1.VerdictWait, Reason: reason, Message: strings.Join(problems, " ")}, false
}

// evaluateWork evaluates the conditions, rules and targets on one snapshot, and returns until when their results are valid. results is nil
// if the evaluation did not start.
func (in *Input) evaluateWork(ctx context.Context, see celenv.Input) (Plan, []celenv.Result, celenv.Foresight) {
	e, problem := in.Programs.BeginEvaluation(ctx, see)
	if problem != nil {
		return Plan{
			Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonEvaluationFailed, Message: fmt.Sprintf("The Cleaner takes no action because of an error: %s.", problem), Holds: in.Holds.BlindAll(in.Now),
		}, nil, celenv.Foresight{}
	}
	defer e.Close()
	defer in.Values.keep(in, e)
	results := e.EvaluateConditions()
	p := in.gateConditions(results)
	p.Unpredictable.Conditions = e.Foresight().Unknown
	if p.Verdict == v1alpha1.VerdictAct {
		p = in.planActions(e, p)
	}
	if p.Verdict == v1alpha1.VerdictAct && !in.OpenRun && !in.Spec.IsRecurring() { // of one that stays it is never sent
		p = in.addEventData(e, p)
	}
	over := ""
	switch problem := e.AbortReason(); { // some items were asked, and others were not
	case problem != nil:
		over = fmt.Sprintf("The Cleaner takes no action because of an error: spec.%s.", problem)
	case ctx.Err() != nil:
		over = "The evaluation was interrupted."
	}
	if over != "" {
		in.Trace.BeginPlan()
		p = p.waitFor(v1alpha1.ReasonEvaluationFailed, over)
		p.Holds, p.RulesEvaluated, p.Pending, p.Errors, p.Deferred, p.Idle, p.Shadowed, p.Counts, p.Withheld, p.Results, p.Base = in.Holds.BlindAll(in.Now), false, nil, nil, nil, nil, nil, nil, nil, nil, nil
	}
	return ahead{in}.foreseeHolds(p, e.HoldForesight()), results, e.Foresight()
}

// planActions adds what is done when the conditions hold, and says whether there is anything, or what is waited for.
func (in *Input) planActions(e *celenv.Evaluation, p Plan) Plan {
	p.RulesEvaluated = true
	d := in.decideRules(e, &p, nil)
	in.addTargetSteps(d)
	in.needGate(d)
	p.Confirm = d.reads.ListNext()
	if blocked, detail := in.releaseStep(&p); blocked != "" {
		return p.blockFor(blocked, detail)
	}
	p = in.judgePlan(p)
	if p.Base = newBase(d, &p, e); p.Verdict != v1alpha1.VerdictAct || in.OpenRun {
		return p
	}
	if !in.Spec.IsRecurring() {
		switch rows := p.ListRowSteps(); {
		case len(rows) > MaxRows:
			return p.blockFor(v1alpha1.ReasonTooManyObjects, fmt.Sprintf("%d objects match, but a Cleaner can delete at most %d: narrow the selectors, or use several Cleaners.", len(rows), MaxRows))
		case p.rowBytes(rows) > maxRowBytes:
			return p.blockFor(v1alpha1.ReasonTooManyObjects, fmt.Sprintf("The names of the %d matching objects do not fit into status.run, which holds %d KiB: narrow the selectors, or use several Cleaners.", len(rows), maxRowBytes>>10))
		}
	}
	return limiting{in}.blockOverLimit(p)
}

// limiting holds a plan to the limits of a spec.
type limiting struct{ *Input }

// blockOverLimit blocks a plan that is over a limit.
func (in limiting) blockOverLimit(p Plan) Plan {
	if !limits.IsAny(in.Spec.Limits) {
		return p
	}
	check := in.newCheck(&p)
	check.GroupNames = p.nameGroups()
	switch excess, err := check.FindExcess(p.listActions(limits.CountsGroups(in.Spec.Limits))); {
	case err != nil:
		return invalidPlan(err.Error())
	case excess.Limit != "":
		p.TrippedBy, p.Next = excess.Limit, monotime.ChooseEarlier(p.Next, excess.Freed)
		return p.blockFor(v1alpha1.ReasonLimitExceeded, excess.Message+" First: "+in.nameFirst(p.Steps)+".")
	}
	return p
}

// nameGroups names the groups of the steps, for people.
func (p *Plan) nameGroups() map[limits.ItemSum]string {
	names := map[limits.ItemSum]string{}
	for i := range p.Steps {
		groups := p.Steps[i].Groups
		for n, sum := range limits.SumItems(groups) {
			if _, named := names[sum]; !named {
				names[sum] = runrow.ShowName(groups[n])
			}
		}
	}
	return names
}

// nameFirst names the first objects that steps change, each once.
func (in limiting) nameFirst(steps []Step) string {
	const most = 3
	var names []string
	for i := range steps {
		if s := &steps[i]; s.IsChange() {
			if name := runrow.ShowName(s.DescribeObject()); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if len(names) == most {
			break
		}
	}
	return strings.Join(names, ", ")
}

func (in limiting) newCheck(p *Plan) limits.Check {
	check := limits.Check{Limits: in.Spec.Limits, Now: in.Now, Done: in.Done, DoneBytes: limits.MaxDoneBytes}
	if in.Room != nil {
		check.DoneBytes = min(check.DoneBytes, in.Room.DoneBytes)
	}
	for t := range in.Snapshot {
		if in.Snapshot[t].State == observed.Complete {
			in.addTargets(&check, t, p)
		}
	}
	return check
}

// listActions are the steps as limits count them.
func (p *Plan) listActions(grouped bool) []limits.Action {
	var out []limits.Action
	for i := range p.Steps {
		s := &p.Steps[i]
		if !s.IsChange() {
			continue
		}
		a := limits.Action{UID: s.Object.Identify(), Rule: s.Rule, Action: s.Action, Uninstall: s.Verb == VerbHelmUninstall, Items: limits.SumItems(s.Keys)}
		if grouped {
			a.Groups = limits.SumItems(s.Groups)
		}
		out = append(out, a)
	}
	return out
}

// needGate asks for the reads that all steps depend on.
func (in *Input) needGate(d *decider) {
	if len(d.gate) > 0 && in.Batch > 0 && slices.ContainsFunc(d.p.Steps, func(s Step) bool { return s.IsChange() }) {
		d.reads.AddReads(gate, d.gate)
	}
}

// judgePlan says what a plan comes to, of which the conditions hold.
func (in *Input) judgePlan(p Plan) Plan {
	for _, read := range (evidence{in}).gateReads() {
		if why, failed := (evidence{in}).findReadError(read); failed {
			return p.waitFor(v1alpha1.ReasonUnconfirmed, fmt.Sprintf("Cannot read target %q live: %s.", in.Spec.Targets[read.Target].Name, strings.TrimSuffix(why, ".")))
		}
	}
	// A Cleaner that cleans once begins when everything is due, and ends with what it has done then.
	once := !in.Spec.IsRecurring() && !in.OpenRun
	something := len(p.Steps) > 0 || p.Release != nil
	trouble, message := p.FindTrouble()
	switch {
	case something && !once:
		return p
	case trouble != "":
		return p.waitFor(trouble, message)
	case len(p.Pending) > 0:
		return p.waitFor(v1alpha1.ReasonHolding, fmt.Sprintf("Rule %q: items match, but not yet for long enough.", p.Pending[0].Rule))
	case !something && len(p.Withheld) > 0:
		return p.blockFor(v1alpha1.ReasonProtected, fmt.Sprintf("All objects to act on are protected; the first is %s: %s.",
			p.Withheld[0].Object, p.Withheld[0].Because))
	case !something && !once:
		return p.waitFor(v1alpha1.ReasonNothingToDo, "Nothing to clean up."+p.describeIdle())
	}
	return p
}

// FindTrouble returns the reason and message of the most important problem of individual items; empty if there is none. Refused
// requests come before errors of expressions: a refused object certainly should be deleted, while nobody knows that of an item
// with an error.
func (p *Plan) FindTrouble() (reason, message string) {
	switch {
	case p.DeferReason == v1alpha1.ReasonTargetUnstable:
		return p.DeferReason, "An object keeps changing before the operator can act on it; the operator will retry: " + p.DeferDetail
	case p.DeferReason == v1alpha1.ReasonRecreationLoop:
		return p.DeferReason, "An object is recreated after every deletion, so the operator backs off: " + p.DeferDetail
	case p.DeferReason != "":
		return p.DeferReason, "An action failed and will be retried: " + p.DeferDetail
	case len(p.Errors) > 0:
		return v1alpha1.ReasonEvaluationFailed, "The Cleaner takes no action because of an error: " + itemerrors.DescribeRow(&p.Errors[0])
	default:
		return "", ""
	}
}

// describeIdle says that patches would change nothing; empty if there are none.
func (p *Plan) describeIdle() string {
	objects := map[types.UID]bool{}
	for _, id := range p.ListIdle() {
		objects[id.UID] = true
	}
	switch n := len(objects); n {
	case 0:
		return ""
	case 1:
		return " A patch is not sent because it would change nothing: let when exclude the object that is already patched."
	default:
		return fmt.Sprintf(" Patches of %d objects are not sent because they would change nothing: let when exclude objects that are already patched.", n)
	}
}

// CountFailing returns how many items have errors.
func (p *Plan) CountFailing() (n int) {
	for i := range p.Errors {
		n += int(max(1, p.Errors[i].Count))
	}
	return n
}

// waitFor returns the plan with verdict Wait, a reason and no steps.
func (p Plan) waitFor(reason, message string) Plan {
	p.Verdict, p.Reason, p.Message = v1alpha1.VerdictWait, reason, message
	p.Steps, p.Confirm, p.Release = nil, nil, nil
	return p
}

// addEventData adds the value of cloudEventData. If the expression fails, the plan is blocked, so that no run starts without its event data.
func (in *Input) addEventData(e *celenv.Evaluation, p Plan) Plan {
	data, problem := e.EvaluateData()
	if problem != nil {
		return p.blockFor(v1alpha1.ReasonEvaluationFailed, "All conditions are true, but the cleanup cannot start: spec."+problem.Error())
	}
	p.Data = data
	return p
}

func (p Plan) blockFor(reason, message string) Plan {
	p.Verdict, p.Reason, p.Message = v1alpha1.VerdictBlocked, reason, message
	return p
}

// BuildEvaluationInput is what expressions see.
func (in *Input) BuildEvaluationInput() (celenv.Input, error) {
	decoded, err := params.DecodeParams(in.Spec.Parameters, in.Spec.Durations)
	if err != nil {
		return celenv.Input{}, fmt.Errorf("cannot read spec.parameters: %w", err)
	}
	see := celenv.Input{Targets: in.targetValues(), Params: decoded, Time: in.dueTime(), Memory: in.Memory}
	if in.change != nil {
		see.Kept = in.change.now.kept
		return see, nil
	}
	if in.Values != nil {
		see.Kept = in.Values.findFor(in)
	}
	return see, nil
}

// gateConditions returns a plan from the results of the conditions. If a condition fails with an error, `for` timers are kept; if one is
// false, they end.
func (in *Input) gateConditions(results []celenv.Result) Plan {
	p := Plan{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Message: describeConditionsMet(in.Spec, len(results))}
	for i, r := range results {
		out := v1alpha1.ConditionOutcome{Expression: expr.ShortenSource(in.Spec.Conditions[i])}
		if r.Err != nil {
			out.Error = r.Err.Error()
		} else {
			out.Value = &r.Value
		}
		p.Conditions = append(p.Conditions, out)
		switch failed := p.Reason == v1alpha1.ReasonEvaluationFailed; {
		case r.Err != nil && !failed:
			p.Verdict, p.Reason, p.Holds = v1alpha1.VerdictWait, v1alpha1.ReasonEvaluationFailed, in.Holds.BlindAll(in.Now)
			p.Message = fmt.Sprintf("The Cleaner takes no action because of an error: spec.%s", r.Err.Error())
		case r.Err == nil && !r.Value && p.Verdict == v1alpha1.VerdictAct:
			p.Verdict, p.Reason = v1alpha1.VerdictWait, v1alpha1.ReasonConditionsNotMet
			p.Message = fmt.Sprintf("spec.conditions[%d] is false: %s", i, out.Expression)
		}
	}
	return p
}

func describeConditionsMet(spec *v1alpha1.Work, conditions int) string {
	switch {
	case conditions > 0:
		return "All conditions are true."
	case spec.IsRecurring():
		return "There are items to act on."
	default:
		return "No conditions are set, and the ttl has expired."
	}
}

func invalidPlan(message string) Plan {
	return Plan{Verdict: v1alpha1.VerdictInvalid, Reason: v1alpha1.ReasonInvalidSpec, Message: message}
}

// isClosed says that the conditions do not all hold.
func isClosed(results []celenv.Result) bool {
	return slices.ContainsFunc(results, func(r celenv.Result) bool { return r.Err != nil || !r.Value })
}
