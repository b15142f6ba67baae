// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

// Targets is how many targets a world has at most. CEL sees target 0, by its name; target 1 it does not see, or it is a
// row of a rule.
const Targets = 2

// maxRuns bounds the run numbers that are explored.
const maxRuns = 7

// Result is how a run ended.
type Result uint8

// The results of a run. The zero value is a run that is open.
const (
	Open Result = iota
	Completed
	Partial
	Abandoned
)

// Version identifies one version of one object. UIDs and resource versions count from 1; the zero Version is none.
type Version struct{ UID, RV uint8 }

// Rows is a set of rows, one bit for each target.
type Rows uint8

func row(k int) Rows { return 1 << k }

// Has says whether the row of target k is in the set.
func (r Rows) Has(k int) bool { return r&row(k) != 0 }

// Install identifies one revision of one installation of the release: firstDeployed and the revision, counted from 1.
type Install struct{ Era, Revision uint8 }

// Run is status.run. Once there is a result, the sets say what became of the rows, and the rows themselves are empty.
type Run struct {
	Number   uint8
	Decides  uint8
	Rows     [Targets]Version
	Release  Install // the zero value: the run uninstalls nothing
	Result   Result
	Done     Rows
	Replaced Rows // the object has another UID now
	Left     Rows
}

// rows is the set of the rows of an open run.
func (r *Run) rows() (set Rows) {
	for k, v := range r.Rows {
		if v != (Version{}) {
			set |= row(k)
		}
	}
	return set
}

// Report is a finished run as the sink is told of it: status.unsent, and the content of an event.
type Report struct {
	Number   uint8
	Result   Result
	Done     Rows
	Replaced Rows
	Left     Rows
}

func (r *Run) report() Report { return Report{r.Number, r.Result, r.Done, r.Replaced, r.Left} }

// Cleaner is the API object. Its resourceVersion is modelled by Process.Current: whether what was read is what there is.
type Cleaner struct {
	Exists    bool
	Finalizer bool
	Deleted   bool // it has a deletionTimestamp
	Suspended bool
	Sink      bool  // spec.cloudEventSink is set
	Decides   uint8 // the fingerprint of the spec
	Runs      uint8
	Run       Run
	Unsent    Report
}

// Object is an object that a target names. A missing one keeps its last UID, so that the next one gets another.
type Object struct {
	Version
	Exists      bool
	Terminating bool
	Held        bool // by a finalizer of somebody else
	Unused      bool // what CEL reads in it says "clean"
	Forbidden   bool // its DELETE answers 403
}

// ReleaseStatus is the status of the newest revision that is not pending.
type ReleaseStatus uint8

// The states of a release. The zero value is a release that is not there.
const (
	Absent ReleaseStatus = iota
	Deployed
	Uninstalling
)

// Release is the Helm release. Its objects are one object, which bears the revision that wrote it last.
type Release struct {
	Install
	Status  ReleaseStatus
	Mark    uint8   // the run whose signed mark is on its record, where it is uninstalling; 0: somebody else has begun that
	Pending bool    // a newer revision is there, pending-upgrade
	Locked  bool    // it cannot be read
	Object  Install // the zero value: the object is gone
}

// Role is what a process is to the lease.
type Role uint8

// The roles of a process. An old leader was paused while it led, and does not know yet that another one leads.
const (
	NoProcess Role = iota
	Leader
	PausedLeader
	OldLeader
)

// Place is where a process stands: at the start of a pass, or before a request that it has made up its mind to send.
// Between the two the world may change.
type Place uint8

// The places of a process.
const (
	AtStart Place = iota
	AtAddFinalizer
	AtCommit
	AtDropRun
	AtWriteResult
	AtMoveToUnsent
	AtClearUnsent
	AtDeleteSelf
	AtRemoveFinalizer
	AtGiveUp
	AtMarkRelease // here begins an uninstall
	AtGetReleaseObject
	AtListRelease
	AtDeleteReleaseObject
	AtDeleteRelease // and here it ends
)

// Uninstalling says that the process is between the requests of an uninstall.
func (p Place) Uninstalling() bool { return p >= AtMarkRelease }

// ReleaseSight is what a look at the release showed, held against the release of the run.
type ReleaseSight uint8

// What a look at the release can show.
const (
	NotSeen  ReleaseSight = iota
	SeenGone              // or installed anew
	SeenPending
	SeenUpgraded
	SeenBegun        // uninstalling, by the run
	SeenUninstalling // by somebody else
	SeenAsCommitted
	SeenBlind // it could not be read, time and again
)

// Process is one operator process: what it has read of the Cleaner, and its memory, which a restart loses.
type Process struct {
	Role    Role
	At      Place
	Read    Cleaner // as it was at the start of the pass; for an old leader also its cache
	Current bool    // Read still has the current resourceVersion

	Run       uint8            // the run that this memory is about
	Done      Rows             // deleted or gone
	Replaced  Rows             // another UID has the name
	Kept      Rows             // left alone
	Unwanted  Rows             // of which nothing was wanted when it was decided last
	Mine      Rows             // deleted by this process, which remembers how they were
	Later     [Targets]Version // the version that a row goes on with, if not the row's own
	Confirmed bool             // by live reads, not more than 10 s ago
	Stop      bool             // a re-check said stop
	Whole     bool             // this process committed the run, and got the answer to each of its DELETEs
	Looked    bool             // the rows left were read since the last DELETE
	Seen      ReleaseSight     // how the release was when it was read last, if not since an uninstall of our own
	Reviewed  bool             // the author was found to be allowed to uninstall it, not more than 10 s ago and since it was read
	Delivered uint8            // the run of which the sink has taken the event

	Result      Result           // to be written; at AtWriteResult
	Plan        [Targets]Version // decided on and not committed yet
	PlanRelease Install
	Found       Install // the release's object as it was read, between its GET and its DELETE
}

// Flight is a DELETE that was sent and not served yet.
type Flight struct {
	Version
	Run uint8
	By  int8 // the process that waits for the answer, counted from 1; 0: it died
}

// State is one state of the world. It is small and comparable, so that millions of them can be told apart.
type State struct {
	C        Cleaner
	T        [Targets]Object
	Evidence bool // the object that only CEL reads says "clean"
	Rel      Release
	Barred   bool // the author may not uninstall the release
	P        [2]Process
	Flights  [Targets]Flight
	SinkUp   bool
	Grace    bool // --finish-grace has passed since the deletionTimestamp

	// What may still happen, so that exploring ends.
	Acts    uint8 // acts of others
	Crashes uint8
	Changes uint8 // changes of the leader
	Losses  uint8 // answers that get lost

	// What properties remember. No process sees it.
	Committed [Targets]uint8      // UIDs that were ever in a row, as bits
	Took      [Targets]uint8      // UIDs that a DELETE took whose sender was alive
	Touched   uint8               // runs of which a deed took effect
	Swept     uint8               // runs that began an uninstall
	Recent    bool                // the condition held at some moment of the last 10 s
	Entitled  bool                // the author was allowed to uninstall the release at some moment of the last 10 s
	NotFalse  bool                // ... was not plainly false at some moment of the last 10 s
	Told      [maxRuns + 1]Report // what the sink was told of each run
}
