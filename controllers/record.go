// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

// maxForgedRuns bounds what is believed of a number of runs whose record is dropped. It keeps the IDs of events apart.
const maxForgedRuns = 1 << 40

// errForeignRecord says that a record is not one of this operator.
var errForeignRecord = errors.New("the record of runs in status is not the last one that this operator has signed")

// signedRecord is the part of a status that the operator reads back, with the object that it is about. Whoever may write the
// status could otherwise order deletions, choose as whom they are made, and send events.
type signedRecord struct {
	Kind             string        `json:"kind"`
	Namespace        string        `json:"namespace"`
	Name             string        `json:"name"`
	UID              types.UID     `json:"uid"`
	Runs             int64         `json:"runs"`
	Run              *v1alpha1.Run `json:"run"`
	Unsent           *v1alpha1.Run `json:"unsent"`
	LastScheduleTime *metav1.Time  `json:"lastScheduleTime"`
	LastRequestedAt  string        `json:"lastRequestedAt,omitempty"`
	// RecordedAt tells a record from those that it has replaced.
	RecordedAt *metav1.MicroTime `json:"recordedAt,omitempty"`
}

// recordText is the text that is signed about a record.
func recordText(c v1alpha1.Owner, s *v1alpha1.CleanerStatus) ([]byte, error) {
	text, err := json.Marshal(signedRecord{
		Kind: v1alpha1.KindOf(c), Namespace: c.GetNamespace(), Name: c.GetName(), UID: c.GetUID(),
		Runs: s.Runs, Run: s.Run, Unsent: s.Unsent, LastScheduleTime: s.LastScheduleTime, LastRequestedAt: s.LastRequestedAt, RecordedAt: s.RecordedAt,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot write the record: %w", err)
	}
	return text, nil
}

// hasRecord says that there is something to believe.
func hasRecord(s *v1alpha1.CleanerStatus) bool {
	return s.Runs != 0 || s.Run != nil || s.Unsent != nil || s.LastScheduleTime != nil || s.LastRequestedAt != "" || s.RecordedAt != nil
}

// signRecord signs a record as it is about to be written, later than the one that it replaces.
func signRecord(ring signing.Ring, c v1alpha1.Owner, s *v1alpha1.CleanerStatus, now time.Time) error {
	s.Signature = ""
	if !hasRecord(s) {
		return nil
	}
	now = now.Truncate(time.Microsecond) // as it is stored
	if at := recordedAt(s); !now.After(at) {
		now = at.Add(time.Microsecond)
	}
	s.RecordedAt = new(metav1.NewMicroTime(now))
	text, err := recordText(c, s)
	if err != nil {
		return err
	}
	s.Signature, err = ring.Sign(signing.Record, text)
	return err
}

// recordedAt is when the record was written; zero if there is none, or one of an operator that did not note it.
func recordedAt(s *v1alpha1.CleanerStatus) time.Time {
	if s.RecordedAt == nil {
		return time.Time{}
	}
	return s.RecordedAt.Time
}

// verifyRecord says why a record must not be believed: errForeignRecord, or nil; and whether it is signed as it would be now: by
// the key that signs now, with the time.
func verifyRecord(ring signing.Ring, c v1alpha1.Owner) (current bool, err error) {
	s := c.State()
	if !hasRecord(s) {
		return true, nil
	}
	text, err := recordText(c, s)
	if err != nil {
		return false, err
	}
	if current, err = ring.Verify(signing.Record, text, s.Signature); err != nil {
		return false, errForeignRecord
	}
	for _, run := range []*v1alpha1.Run{s.Run, s.Unsent} {
		if run != nil && c.GetNamespace() != "" && strings.Contains(run.ServiceAccountName, "/") {
			return false, errForeignRecord // no Cleaner acts as an account of another namespace
		}
	}
	return current && s.RecordedAt != nil, nil
}

// replaceRecord has the record that this operator has written last take the place of another one. If this process has seen none,
// the record is dropped: nothing of it is carried out, and no event is sent of it.
func (p *authority) replaceRecord(ctx context.Context) error {
	forged, known, said := *p.read.State(), p.mem.record, "the last one takes its place"
	if known == nil {
		said = "it is dropped; it had no open run"
		if forged.Run != nil && forged.Run.Result == "" {
			said = fmt.Sprintf("it is dropped; the outcome of run %d is unknown", forged.Run.Number)
		}
		known = &v1alpha1.CleanerStatus{
			Runs:            highestRun(&forged),
			LastRequestedAt: p.requestedAt(), // else to forge it would be to ask
		}
	}
	err := p.writeStatus(ctx, func(s *v1alpha1.CleanerStatus) {
		if *s = recordOf(known); s.RecordedAt == nil {
			s.RecordedAt = &metav1.MicroTime{} // what is written is later than all that was signed before
		}
	})
	if err != nil {
		return err
	}
	p.c.State().LastRequestedAt = p.read.State().LastRequestedAt // or the report would put it back
	logf.FromContext(ctx).Info("Replaced a record that is not the last one that this operator has signed", "runs", forged.Runs, "what", said)
	p.sendEvent(corev1.EventTypeWarning, v1alpha1.ReasonRecordNotTrusted, "ReplaceRecord",
		"the record of runs in status is not the last one that this operator has signed: %s", said)
	p.mem.rememberActions(p.read.State().LastActions, v1alpha1.Action{
		Object: "status.run", Rule: "record", Action: "replace", Time: atSecond(p.r.clock), Result: v1alpha1.ReasonRecordNotTrusted + ": " + said,
	})
	return nil
}

// highestRun is the highest number that a run in a record has, up to maxForgedRuns; zero beyond. Later runs get higher ones, because
// the IDs of events are made of them.
func highestRun(s *v1alpha1.CleanerStatus) int64 {
	highest := s.Runs
	for _, run := range []*v1alpha1.Run{s.Run, s.Unsent} {
		if run != nil {
			highest = max(highest, run.Number)
		}
	}
	if highest > maxForgedRuns {
		return 0
	}
	return highest
}

// keyRetry is how soon a Cleaner is looked at again while there is no signing key.
const keyRetry = 10 * time.Second
