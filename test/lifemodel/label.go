// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lifemodel

import "fmt"

// Actor is who takes a step: a process, by its index, or one of the constants below.
type Actor int8

// The actors that are no operator process.
const (
	Environment Actor = -1 - iota
	Time
	Server
)

// What is the kind of a step.
type What uint8

// The requests of an operator process.
const (
	Read            What = iota // the watch delivers the Cleaner
	AddFinalizer                // the first of the two writes that commit a run
	Commit                      // the second one, with the rows
	DropRun                     // never: only a broken operator does it
	LookRows                    // GET of the rows that are not done
	LookRelease                 // GET of the release
	Recheck                     // the conditions on live reads
	ReviewAuthor                // what the author may do, before the release is uninstalled
	DeleteRow                   // DELETE of a row's object
	KeepRow                     // the rule wants nothing of the row any more: GET, and it is left
	Settle                      // GET of what is deleted, on which nothing depends but how long it is waited for
	StartUninstall              // the release is put to uninstalling
	FinishUninstall             // an uninstall that was begun goes on
	GetReleaseObject
	ListRelease
	DeleteReleaseObject
	DeleteRelease // its record goes, which ends an uninstall
	WriteResult
	Send // the event
	MoveToUnsent
	ClearUnsent
	DeleteSelf
	RemoveFinalizer
	Confirm     // what a Cleaner that stays wants is read live, and decided again
	Record      // its batch is written into the run, and the batch before is counted
	EndBatch    // nothing more of the batch is sent
	ClearRecord // run and unsent are dropped
	GiveUp      // what could not be delivered goes to the log
)

// What happens to processes, and what time and the server do.
const (
	Crash What = iota + GiveUp + 1
	Pause
	Wake
	Exit
	TenSeconds
	GraceEnds
	Serve // a DELETE that was in flight
)

// What others do.
const (
	Touch          What = iota + Serve + 1
	Use                 // what CEL reads in the object changes
	Hold                // a finalizer of somebody else comes or goes
	LetGo               // that finalizer goes from a terminating object
	DeleteByOther       // somebody deletes the object
	Recreate            // somebody puts another object of this name in its place
	RecreateInUse       // the same, and it is in use
	Forbid              // DELETE answers 403 from now on
	Permit              // ... and no more
	ChangeEvidence      // the object that only CEL reads changes
	SinkDown
	SinkUp
	Edit // of what decides
	Suspend
	SetSink // or take it away
	KubectlDelete
	UpgradeStarts
	UpgradeEnds
	Reinstall
	UninstallByHand
	UninstallHalf // by somebody who was killed half-way, or who only says so in its record
	LockRelease   // those who began the run may not read the release any more
	UnlockRelease
	TakeRights // the author may not uninstall the release any more
	GiveRights
)

// String says it in words.
func (w What) String() string {
	return [...]string{
		Read:                "reads the Cleaner",
		AddFinalizer:        "adds the finalizer",
		Commit:              "commits",
		DropRun:             "drops the run",
		LookRows:            "looks at rows",
		LookRelease:         "looks at the release",
		Recheck:             "re-checks",
		ReviewAuthor:        "reviews the author",
		DeleteRow:           "deletes the object of row",
		KeepRow:             "leaves row",
		Settle:              "looks at what is deleted",
		StartUninstall:      "starts the uninstall",
		FinishUninstall:     "finishes the uninstall",
		GetReleaseObject:    "gets the release's object",
		ListRelease:         "lists the release",
		DeleteReleaseObject: "deletes the release's object",
		DeleteRelease:       "deletes the release",
		WriteResult:         "writes the result",
		Send:                "sends the event",
		MoveToUnsent:        "moves the run to unsent",
		ClearUnsent:         "clears unsent",
		DeleteSelf:          "deletes the Cleaner itself",
		RemoveFinalizer:     "removes the finalizer",
		Confirm:             "confirms",
		Record:              "records a batch",
		EndBatch:            "ends the batch",
		ClearRecord:         "clears the record",
		GiveUp:              "gives up",
		Crash:               "crashes and restarts",
		Pause:               "is paused, another one leads",
		Wake:                "wakes up",
		Exit:                "exits",
		TenSeconds:          "10 s pass",
		GraceEnds:           "the grace is over",
		Serve:               "serves the DELETE of row",
		Touch:               "touches",
		Use:                 "uses, or no longer uses,",
		Hold:                "puts or takes a finalizer on",
		LetGo:               "lets go",
		DeleteByOther:       "deletes",
		Recreate:            "re-creates",
		RecreateInUse:       "re-creates, in use,",
		Forbid:              "forbids to delete",
		Permit:              "permits to delete",
		ChangeEvidence:      "changes the evidence",
		SinkDown:            "stops the sink",
		SinkUp:              "restores the sink",
		Edit:                "edits the spec",
		Suspend:             "suspends or resumes",
		SetSink:             "sets or removes the sink",
		KubectlDelete:       "deletes the Cleaner",
		UpgradeStarts:       "starts an upgrade",
		UpgradeEnds:         "ends the upgrade",
		Reinstall:           "re-installs the release",
		UninstallByHand:     "uninstalls the release",
		UninstallHalf:       "uninstalls the release half-way",
		LockRelease:         "forbids to read the release",
		UnlockRelease:       "permits to read the release",
		TakeRights:          "takes the author's rights",
		GiveRights:          "gives the author's rights back",
	}[w]
}

// Answer is what came of a request.
type Answer uint8

// The answers to a request. A process first makes up its mind (Chosen), and sends the request in a later step.
const (
	OK Answer = iota
	Chosen
	Sent     // served later, by a step of the Server
	Withheld // not sent after all: orders or the release have changed
	Conflict
	NotFound
	Refused
	Lost // it was served, and the answer did not arrive
	Yes  // of a re-check
	No
	Undecidable
)

// String says it in a word.
func (a Answer) String() string {
	return [...]string{"ok", "chosen", "sent", "withheld", "409", "404", "403", "answer lost", "true", "false", "not decidable"}[a]
}

// String says it in a word.
func (r Result) String() string { return [...]string{"open", "Completed", "Partial", "Abandoned"}[r] }

// Label names a step.
type Label struct {
	Who    Actor
	What   What
	Row    int8   // the target or row, where What is about one
	Run    uint8  // the run, where What is about one
	Result Result // what WriteResult writes and what Send tells
	Answer Answer // of a process's request, or of what the Server served
}

// String is the step as a line of a trace.
func (l Label) String() string {
	switch l.Who {
	case Time:
		return l.What.String()
	case Server:
		return fmt.Sprintf("server %v %d: %v", l.What, l.Row, l.Answer)
	case Environment:
		if l.What >= Touch && l.What <= Permit {
			return fmt.Sprintf("somebody %v object %d", l.What, l.Row)
		}
		return fmt.Sprintf("somebody %v", l.What)
	}
	s := fmt.Sprintf("P%d %v", l.Who, l.What)
	switch l.What {
	case Crash, Pause, Wake, Exit:
		return s
	case DeleteRow, KeepRow:
		s = fmt.Sprintf("%s %d", s, l.Row)
	case WriteResult, Send:
		s = fmt.Sprintf("%s %v", s, l.Result)
	}
	return fmt.Sprintf("%s: %v", s, l.Answer)
}
