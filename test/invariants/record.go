// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/sink"
)

// Record is what happened.
type Record struct {
	// Operator is the operator's user.
	Operator string
	// Audit is the audit log, from before the first Cleaner was made.
	Audit []cluster.Event
	// Log are the lines of all processes of the operator.
	Log []Line
	// Namespaces are those whose Cleaners are judged, beside all ClusterCleaners; all if empty.
	Namespaces []string
	// Elsewhere are namespaces that somebody else judges. What the operator does in any other one is judged, as what is
	// in none.
	Elsewhere []string
	// Cleaners are those that are there at the end, ClusterCleaners too.
	Cleaners []v1alpha1.Owner
	// Sinks are the sinks that Cleaners may have sent to. Others are not judged.
	Sinks []*sink.Sink
	// Protected are the namespaces in which nothing may be touched but by a ClusterCleaner that includes them, and
	// AllowedKinds the protected resources, as <resource>.<group>, that may be deleted all the same.
	Protected, AllowedKinds []string
	// Own is the operator's namespace, in which nothing may be touched by anybody's wish.
	Own string
	// Latency is how long a watch may take to tell of a change; 2s when it is 0.
	Latency time.Duration
}

// Line is one line of the operator's log.
type Line struct {
	Time      time.Time `json:"ts"`
	Message   string    `json:"msg"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Run       int64     `json:"run"`
	// Evaluation is the evaluation of a Recurring Cleaner that decided, in whatever way it is numbered.
	Evaluation any    `json:"evaluation"`
	Rule       string `json:"rule"`
	// Verb is what is about to be done: delete, evict, patch, removeFinalizer; or runHook, note.
	Verb string `json:"verb"`
	// Decides is the fingerprint of the spec that decided.
	Decides string `json:"decides"`
	Object  string `json:"object"`
	UID     string `json:"uid"`
	Version string `json:"resourceVersion"`
	// Release and Record are the Helm release, as <namespace>/<name>, and the UID of its newest Secret, of a request of an uninstall that a rule
	// has begun.
	Release string `json:"release"`
	Record  string `json:"record"`
	// Again says that it is the second DELETE of an object in a run.
	Again bool `json:"again"`
	// Text is the whole line.
	Text string `json:"-"`
}

// ReadLogs reads the log files that match a pattern. What is no JSON, such as the end of a line that a crash cut off, is
// left out.
func ReadLogs(pattern string) ([]Line, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("cannot find the logs %q: %w", pattern, err)
	}
	var lines []Line
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read a log of the operator: %w", err)
		}
		s := bufio.NewScanner(bytes.NewReader(text))
		s.Buffer(nil, 1<<24)
		for s.Scan() {
			l := Line{Text: s.Text()}
			if json.Unmarshal(s.Bytes(), &l) == nil && l.Message != "" {
				lines = append(lines, l)
			}
		}
		if err := s.Err(); err != nil {
			return nil, fmt.Errorf("cannot read a log of the operator: %w", err)
		}
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return a.Time.Compare(b.Time) })
	return lines, nil
}

// Violation is a promise that was not kept.
type Violation struct {
	// Invariant is its name, such as "I2".
	Invariant string
	// What says what is wrong.
	What string
	// Lines are what shows it: requests, log lines, events.
	Lines []string
}

// String is the violation with its lines.
func (v Violation) String() string {
	return v.Invariant + ": " + v.What + "\n    " + strings.Join(v.Lines, "\n    ")
}

// judge holds a history against the invariants.
type judge struct {
	history    *history
	violations []Violation
}

func (j *judge) violated(invariant, what string, lines ...string) {
	j.violations = append(j.violations, Violation{invariant, what, lines})
}

// Check holds a record against the invariants.
func Check(r *Record) []Violation {
	j := &judge{history: newHistory(r)}
	for _, check := range []func(){j.preconditions, j.decided, j.again, j.selfDeletions, j.evidence, j.ttl, j.orders, j.protection, j.limits, j.delivery, j.ends, j.reasons} {
		check()
	}
	return j.violations
}

// Restless are the requests, from a moment on, of an operator whose Cleaners are all at rest: writes, and LISTs that are no
// beginning of a watch. Renewing the lease of a leader election is what a process at rest does.
func Restless(events []cluster.Event, operator string, since time.Time) []Violation {
	var out []Violation
	for _, e := range events {
		if !e.By(operator) || e.RequestReceivedTimestamp.Time.Before(since) || e.ObjectRef == nil || e.ObjectRef.Resource == "leases" {
			continue
		}
		if slices.Contains([]string{"get", "watch"}, e.Verb) {
			continue
		}
		out = append(out, Violation{"I10", "a request while all Cleaners were at rest", []string{quote(e)}})
	}
	return out
}

// quote is a request with its times and what it demanded.
func quote(e cluster.Event) string {
	text := fmt.Sprintf("%s … %s %s", clockTime(e.RequestReceivedTimestamp.Time), clockTime(e.StageTimestamp.Time), e)
	if e.Verb == "delete" && e.RequestObject != nil {
		text += " " + string(e.RequestObject.Raw)
	}
	return text
}

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05.000000") }
