// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package recurring

import "github.com/vtex/cleaner/test/lifemodel"

// Scenario is a small world: how often something may happen that disturbs the operator, and what that is.
type Scenario struct {
	Name string
	Sink bool

	Acts    uint8 // how many acts of May
	Small   uint8 // how many in the small world
	May     lifemodel.Acts
	Crashes uint8
	Changes uint8 // of the leader
	Losses  uint8 // of answers
}

// Scenarios are worlds that take minutes to explore whole. Reduced, each of them is a matter of seconds.
func Scenarios() []Scenario {
	acts := lifemodel.ActsOf
	return []Scenario{
		{Name: "items", Sink: true, Acts: 3, Small: 2, Crashes: 1,
			May: acts(lifemodel.Touch, lifemodel.Use, lifemodel.Recreate, lifemodel.Forbid)},
		{Name: "answers", Sink: true, Acts: 3, Small: 1, Crashes: 1, Losses: 1,
			May: acts(lifemodel.Use, lifemodel.Recreate, lifemodel.Forbid)},
		{Name: "evidence", Sink: true, Acts: 4, Small: 2, Crashes: 1, Losses: 1,
			May: acts(lifemodel.Touch, lifemodel.Use, lifemodel.ChangeEvidence)},
		{Name: "orders", Sink: true, Acts: 3, Small: 1, Crashes: 1, Losses: 1,
			May: acts(lifemodel.Recreate, lifemodel.Edit, lifemodel.Suspend, lifemodel.KubectlDelete)},
		{Name: "sink", Sink: true, Acts: 4, Small: 2, Crashes: 1,
			May: acts(lifemodel.Recreate, lifemodel.SinkDown, lifemodel.SetSink, lifemodel.Suspend, lifemodel.KubectlDelete)},
		{Name: "leaders", Sink: true, Acts: 2, Small: 1, Changes: 1,
			May: acts(lifemodel.Touch, lifemodel.Recreate, lifemodel.Edit, lifemodel.Suspend, lifemodel.KubectlDelete)},
		{Name: "no-sink", Acts: 3, Small: 2, Crashes: 1, Changes: 1, Losses: 1,
			May: acts(lifemodel.Touch, lifemodel.Use, lifemodel.Recreate, lifemodel.Edit, lifemodel.Suspend, lifemodel.KubectlDelete)},
	}
}

// Reduced is the same world with less going on.
func (s Scenario) Reduced() Scenario {
	s.Acts = s.Small
	if !s.Sink {
		s.Changes = 0
	}
	return s
}

// Rule is a rule of the life of a Cleaner that stays that a broken operator may lack.
type Rule uint32

// The rules. Each comment is what the operator does as long as it keeps the rule.
const (
	LeaseBeforeDeeds  Rule = 1 << iota // a deed needs a lease that was renewed in the last 10 s
	LeaseBeforeWrites                  // so does a write of finalizer, runs, run and unsent
	DeedUID                            // a DELETE carries UID and resourceVersion
	DeedVersion                        // ... the resourceVersion, if it carries the UID
	ConfirmationAges                   // a confirmation serves 10 s
	Confirmed                          // what a batch does was read live
	RowsFirst                          // with a sink, the rows of a batch are written before its deeds
	FinalizerFirst                     // and the finalizer before the rows
	RunsCounted                        // the number of the last run is kept in status.runs
	RowsLookedAt                       // rows of which nothing is known are looked at before they are counted
	LostIsUnknown                      // after a lost answer nothing is known of a row
	UnsentAwaited                      // a run leaves status.run only when unsent is empty
	NoSinkIsDelivered                  // a sink that is removed takes run, unsent and finalizer with it
	GuardedDeeds                       // before a deed the cached Cleaner is asked for orders
	PanicButton                        // ... for a deletion too
	GraceAwaited                       // what is not delivered holds a deleted Cleaner until the grace is over
	everyRule         = GraceAwaited<<1 - 1
)

// Mutant is an operator that lacks rules, the property that breaks, and a scenario in which it does.
type Mutant struct {
	Name     string
	Without  Rule
	Breaks   lifemodel.Property
	Scenario string
}

// Mutants has one for each rule.
func Mutants() []Mutant {
	return []Mutant{
		{"no lease", LeaseBeforeDeeds | LeaseBeforeWrites, lifemodel.OrdersObeyed, "leaders"},
		{"lease before deeds only", LeaseBeforeWrites, lifemodel.DeedsFoundOut, "leaders"},
		{"DELETE without UID", DeedUID, lifemodel.CommittedOnly, "items"},
		{"DELETE without resourceVersion", DeedVersion, lifemodel.DecidedVersion, "items"},
		{"confirmations never age", ConfirmationAges, lifemodel.TrueLately, "evidence"},
		{"nothing is confirmed", Confirmed, lifemodel.TrueLately, "evidence"},
		{"deeds before rows", RowsFirst, lifemodel.CommittedOnly, "items"},
		{"rows without finalizer", FinalizerFirst, lifemodel.RunsEnd, "orders"},
		{"runs are not counted", RunsCounted, lifemodel.OneEvent, "items"},
		{"rows are not looked at", RowsLookedAt, lifemodel.DeedsFoundOut, "items"},
		{"a lost answer is no deed", LostIsUnknown, lifemodel.DeedsCounted, "answers"},
		{"unsent is overwritten", UnsentAwaited, lifemodel.EventsDelivered, "items"},
		{"a removed sink is waited for", NoSinkIsDelivered, lifemodel.EndReachable, "sink"},
		{"orders are not asked", GuardedDeeds, lifemodel.OrdersObeyed, "orders"},
		{"a deletion is not asked", PanicButton, lifemodel.OrdersObeyed, "orders"},
		{"no grace", GraceAwaited, lifemodel.EventsDelivered, "orders"},
	}
}
