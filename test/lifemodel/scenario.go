// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

// Acts is a set of acts of others.
type Acts uint64

// ActsOf is the set of these acts.
func ActsOf(what ...What) (set Acts) {
	for _, w := range what {
		set |= 1 << w
	}
	return set
}

// Has says whether an act is in the set.
func (a Acts) Has(w What) bool { return a&(1<<w) != 0 }

// Scenario is a small world: what there is, how often something may happen that disturbs the operator, and what that is.
type Scenario struct {
	Name    string
	Targets int
	Release bool
	Sink    bool

	Acts    uint8 // how many acts of May
	Small   uint8 // how many in the small world
	May     Acts
	Crashes uint8
	Changes uint8 // of the leader
	Losses  uint8 // of answers

	LateWatch bool // a process learns of changes of the Cleaner some time later
	LateServe bool // a DELETE is served some time after it was sent
	Joint     bool // one condition reads target 0 and the evidence; else there are two
	RuleRow   bool // target 1 is an item of a rule: it is deleted only while the rule wants it
	Ordered   bool // both are: an item is target 0 while it is unused, of which a first action deletes it, and a second one target 1
}

// Scenarios are worlds that take minutes to explore whole. Reduced, each of them is a matter of seconds.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "targets", Targets: 2, Acts: 3, Small: 2, Crashes: 2, Losses: 1, Joint: true,
			May: ActsOf(Touch, Use, Recreate, ChangeEvidence, Forbid, DeleteByOther, Hold)},
		{Name: "two-conditions", Targets: 2, Acts: 3, Small: 2, Crashes: 2, Losses: 1,
			May: ActsOf(Touch, Use, Recreate, ChangeEvidence, Forbid, DeleteByOther)},
		{Name: "orders", Targets: 2, Sink: true, Acts: 4, Small: 2, Crashes: 2,
			May: ActsOf(ChangeEvidence, Edit, Suspend, KubectlDelete, Forbid)},
		{Name: "sink", Targets: 1, Sink: true, Acts: 4, Small: 3, Crashes: 1, Losses: 1,
			May: ActsOf(ChangeEvidence, KubectlDelete, SetSink, Edit, Recreate)},
		{Name: "leaders", Targets: 2, Acts: 3, Small: 2, Changes: 1,
			May: ActsOf(Touch, Recreate, ChangeEvidence, Edit, Suspend, KubectlDelete)},
		{Name: "takeover", Targets: 1, Sink: true, Acts: 2, Small: 1, Crashes: 1, Changes: 1, Losses: 1,
			May: ActsOf(Touch, Recreate, ChangeEvidence, Edit, Suspend, KubectlDelete)},
		{Name: "late-watch", Targets: 2, Sink: true, LateWatch: true, Acts: 3, Small: 2, Crashes: 1,
			May: ActsOf(ChangeEvidence, Edit, Suspend, KubectlDelete, Recreate)},
		{Name: "late-serve", Targets: 2, Sink: true, LateServe: true, Acts: 3, Small: 2, Crashes: 1, Losses: 1,
			May: ActsOf(Touch, Recreate, ChangeEvidence, Edit, Suspend, KubectlDelete)},
		{Name: "rules", Targets: 2, RuleRow: true, Acts: 4, Small: 2, Crashes: 1, Losses: 1,
			May: ActsOf(Touch, Use, Recreate, Forbid, ChangeEvidence, Edit)},
		{Name: "order", Targets: 2, Ordered: true, Acts: 4, Small: 2, Crashes: 1, Losses: 1,
			May: ActsOf(Touch, Recreate, DeleteByOther, Forbid, ChangeEvidence)},
		{Name: "order-late", Targets: 2, Ordered: true, Sink: true, LateServe: true, Acts: 3, Small: 2, Crashes: 1, Losses: 1,
			May: ActsOf(Touch, Recreate, Forbid, Edit, Suspend, KubectlDelete)},
		{Name: "release", Release: true, Acts: 5, Small: 3, Crashes: 1,
			May: ActsOf(ChangeEvidence, Edit, KubectlDelete, UpgradeStarts, Reinstall, UninstallByHand, UninstallHalf)},
		{Name: "release-leaders", Release: true, Acts: 3, Small: 2, Changes: 1,
			May: ActsOf(ChangeEvidence, Edit, KubectlDelete, UpgradeStarts, Reinstall)},
		{Name: "release-target", Targets: 1, Release: true, Sink: true, Acts: 4, Small: 3, Crashes: 1,
			May: ActsOf(ChangeEvidence, Edit, Suspend, KubectlDelete, UpgradeStarts, Reinstall, UninstallByHand)},
		{Name: "release-targets", Targets: 2, Release: true, Acts: 3, Small: 3, Crashes: 1, Losses: 1,
			May: ActsOf(Touch, Recreate, DeleteByOther, UninstallHalf, ChangeEvidence, Edit)},
		{Name: "release-lost", Targets: 1, Release: true, Sink: true, Acts: 3, Small: 2, Crashes: 1, Losses: 1,
			May: ActsOf(ChangeEvidence, Edit, Suspend, KubectlDelete, UpgradeStarts, Reinstall, UninstallByHand, UninstallHalf, DeleteByOther, Recreate)},
		{Name: "release-locked", Release: true, Acts: 4, Small: 3, Crashes: 1,
			May: ActsOf(Edit, KubectlDelete, UninstallHalf, LockRelease)},
		{Name: "release-barred", Release: true, Acts: 4, Small: 3, Crashes: 1,
			May: ActsOf(ChangeEvidence, Edit, Suspend, KubectlDelete, UninstallHalf, TakeRights)},
		{Name: "release-rules", Targets: 2, Release: true, RuleRow: true, Acts: 3, Small: 2, Crashes: 1, Losses: 1,
			May: ActsOf(Touch, Use, Recreate, DeleteByOther, Forbid, Edit, KubectlDelete)},
	}
}

// Reduced is the same world with less going on.
func (s Scenario) Reduced() Scenario {
	s.Acts, s.Crashes = s.Small, min(s.Crashes, 1)
	return s
}

// Rule is a rule of "Life of a Cleaner" that a broken operator may lack.
type Rule uint64

// The rules. Each comment is what the operator does as long as it keeps the rule.
const (
	LeaseBeforeDeeds    Rule = 1 << iota // a deed needs a lease that was renewed in the last 10 s
	LeaseBeforeWrites                    // so does a write of finalizer, runs, run and unsent, and the DELETE of itself
	WritesFenced                         // such writes carry the resourceVersion that was read
	SelfFenced                           // the DELETE of itself carries it too
	DeedUID                              // the DELETE of a row carries UID and resourceVersion
	DeedVersion                          // ... the resourceVersion, if it carries the UID
	ConfirmationAges                     // a confirmation serves 10 s
	AnswersFirst                         // no look, stop or result before the answers to one's own requests
	GuardedDeeds                         // before a deed the cached Cleaner is asked for orders
	PanicButton                          // ... for a deletion too
	FinalizerFirst                       // the finalizer comes before the commit
	RunsCounted                          // the number of the last run is kept in status.runs
	RunsKept                             // a committed run is never dropped
	LookBeforeResult                     // rows left are read live before a result
	UnwantedKept                         // a row of which nothing is wanted is kept, after a live read
	ReplacedIsLeft                       // a replaced row is not a done one
	OwnDeedsStand                        // what we deleted stands as it was when conditions and rules are asked again
	OrderKept                            // what comes after something that is not done waits, or is kept
	NewShowsThrough                      // what we deleted stands as it was, unless a new object has its name
	UndecidableStops                     // a whole memory stops when its own deeds made the conditions undecidable
	LostIsNotWhole                       // a lost answer makes the memory no longer whole
	OthersEvaluated                      // else conditions that read no missing row are still evaluated
	ReleaseListed                        // the release is read before each DELETE of its objects
	EraCompared                          // ... with firstDeployed
	RevisionCompared                     // ... and the revision
	UninstallFinished                    // an uninstall that the run has begun is finished before any result
	OnlyOwnFinished                      // ... and one that somebody else has begun is no such
	GraceFinishes                        // ... after a kubectl delete too, within the grace
	AuthorAsked                          // before each uninstall, and before going on with one, the author is reviewed
	BlindEnds                            // ... but not waited for if it cannot be read, once the run was stopped
	GraceAwaited                         // an undelivered event holds a deleted Cleaner until the grace is over
	ResultKept                           // a result once written never changes
	EventFromResult                      // the event is built from the result alone
	DeliveredFirst                       // DELETE of itself only after the sink's 2xx
	SelfBeforeFinalizer                  // DELETE of itself, then the finalizer
	FinalizerForBoth                     // the finalizer stays while run or unsent is set
	UnsentAwaited                        // a run leaves status.run only when unsent is empty
	NoSinkIsDelivered                    // a sink that is removed counts as delivered
	everyRule           = NoSinkIsDelivered<<1 - 1
)

// Mutant is an operator that lacks rules, the property that breaks, and a scenario in which it does.
type Mutant struct {
	Name     string
	Without  Rule
	Breaks   Property
	Scenario string
}

// Mutants has one for each rule.
func Mutants() []Mutant {
	return []Mutant{
		{"no lease", LeaseBeforeDeeds | LeaseBeforeWrites, OrdersObeyed, "leaders"},
		{"lease before deeds only", LeaseBeforeWrites, DeedsOfOpenRun, "release-leaders"},
		{"writes without resourceVersion", WritesFenced, OrdersObeyed, "orders"},
		{"DELETE of itself without resourceVersion", SelfFenced, EventsDelivered, "sink"},
		{"DELETE without UID", DeedUID, CommittedOnly, "targets"},
		{"DELETE without resourceVersion", DeedVersion, DecidedVersion, "targets"},
		{"confirmations never age", ConfirmationAges, TrueLately, "targets"},
		{"a result before the answers", AnswersFirst, DeedsOfOpenRun, "late-serve"},
		{"orders are not asked", GuardedDeeds, OrdersObeyed, "release-target"},
		{"a deletion is not asked", PanicButton, OrdersObeyed, "orders"},
		{"commit without finalizer", FinalizerFirst, RunsEnd, "orders"},
		{"runs are not counted", RunsCounted, OneEvent, "sink"},
		{"untouched runs are dropped", RunsKept, RunsEnd, "targets"},
		{"no look before a result", LookBeforeResult, KeptIsUntouched, "rules"},
		{"an unwanted row stays open", UnwantedKept, EndReachable, "rules"},
		{"replaced is done", ReplacedIsLeft, ResultTrue, "targets"},
		{"own deeds are seen", OwnDeedsStand, DisturbedOnly, "order"},
		{"a dependency is cut", OrderKept, InOrder, "order"},
		{"the memory hides a new object", NewShowsThrough, NotFalseLately, "targets"},
		{"undecidable goes on", UndecidableStops, TrueLately, "targets"},
		{"a lost answer is forgotten", LostIsNotWhole, DisturbedOnly, "targets"},
		{"other conditions are not asked", OthersEvaluated, NotFalseLately, "two-conditions"},
		{"the release is not listed", ReleaseListed, NotReinstalled, "release"},
		{"firstDeployed is not compared", EraCompared, NotReinstalled, "release"},
		{"the revision is not compared", RevisionCompared, NotUpgraded, "release"},
		{"a stop leaves an uninstall", UninstallFinished, NotHalfUninstalled, "release"},
		{"an uninstall of others is finished", OnlyOwnFinished, OwnUninstall, "release"},
		{"a deletion leaves an uninstall", GraceFinishes, NotHalfUninstalled, "release"},
		{"the author is not reviewed", AuthorAsked, AuthorMay, "release-barred"},
		{"a release that cannot be read is waited for", BlindEnds, EndReachable, "release-locked"},
		{"no grace", GraceAwaited, EventsDelivered, "orders"},
		{"Abandoned overwrites a result", ResultKept, OneEvent, "orders"},
		{"the event tells what is there now", EventFromResult, OneEvent, "sink"},
		{"DELETE of itself before the 2xx", DeliveredFirst, EventsDelivered, "sink"},
		{"finalizer off before DELETE of itself", SelfBeforeFinalizer, EventsDelivered, "sink"},
		{"finalizer off when unsent is empty", FinalizerForBoth, EventsDelivered, "sink"},
		{"unsent is overwritten", UnsentAwaited, EventsDelivered, "sink"},
		{"a removed sink is waited for", NoSinkIsDelivered, EndReachable, "sink"},
	}
}
