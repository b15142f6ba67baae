// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signedrecords says what the operator has written itself of a Cleaner's runs, in places where others can write: the record in
// status, and the mark on a Helm release that it has begun to uninstall. Each is signed, for one object. It reads and writes nothing.
package signedrecords

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

// maxForgedRuns bounds what is believed of a number of runs whose record is dropped. It keeps the IDs of events apart.
const maxForgedRuns = 1 << 40

// ErrForeign says that a record is not one of this operator.
var ErrForeign = errors.New("the record of runs in status is not the latest one that this operator signed")

// signedRecord is the part of a status that the operator reads back, with the object that it is about. Without the signature, a user who
// may write the status could order deletions, choose the account that makes them, and send events.
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

// storedForm is what is read back of a record once it is stored: JSON has no place for bytes that are no text, and the operator writes no
// part of a second, nor a list that is empty and not missing.
func storedForm(s *v1alpha1.CleanerStatus) (v1alpha1.CleanerStatus, error) {
	var stored v1alpha1.CleanerStatus
	text, err := json.Marshal(CopyRecord(s))
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err != nil {
		return v1alpha1.CleanerStatus{}, fmt.Errorf("cannot write the record: %w", err)
	}
	return stored, nil
}

// isStoredForm says that a record is as the operator stores it. A signature does not tell other forms apart.
func isStoredForm(s *v1alpha1.CleanerStatus) bool {
	stored, err := storedForm(s)
	return err == nil && equality.Semantic.DeepEqualWithNilDifferentFromEmpty(CopyRecord(s), stored)
}

// makeStored replaces a record by what is read back once it is stored.
func makeStored(s *v1alpha1.CleanerStatus) error {
	stored, err := storedForm(s)
	if err != nil {
		return err
	}
	s.Run, s.Unsent, s.LastScheduleTime, s.LastRequestedAt = stored.Run, stored.Unsent, stored.LastScheduleTime, stored.LastRequestedAt
	return nil
}

// SignRecord signs a record as it is about to be written, later than the one that it replaces, and makes it what is read back.
func SignRecord(ring signing.Ring, c v1alpha1.Owner, s *v1alpha1.CleanerStatus, now time.Time) error {
	s.Signature = ""
	if !hasRecord(s) {
		return nil
	}
	if err := makeStored(s); err != nil {
		return err
	}
	now = now.Truncate(time.Microsecond) // as it is stored
	if at := ReadTime(s); !now.After(at) {
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

// ReadTime is when the record was written; zero if there is none, or one of an operator that did not note it.
func ReadTime(s *v1alpha1.CleanerStatus) time.Time {
	if s.RecordedAt == nil {
		return time.Time{}
	}
	return s.RecordedAt.Time
}

// VerifyRecord says why a record must not be believed: ErrForeign, or nil; and whether it is signed as it would be now: by
// the key that signs now, with the time.
func VerifyRecord(ring signing.Ring, c v1alpha1.Owner) (current bool, err error) {
	s := c.State()
	if !hasRecord(s) {
		return true, nil
	}
	text, err := recordText(c, s)
	if err != nil {
		return false, err
	}
	if current, err = ring.Verify(signing.Record, text, s.Signature); err != nil {
		return false, ErrForeign
	}
	if !isStoredForm(s) {
		return false, ErrForeign
	}
	for _, run := range []*v1alpha1.Run{s.Run, s.Unsent} {
		if run != nil && c.GetNamespace() != "" && strings.Contains(run.ServiceAccountName, "/") {
			return false, ErrForeign // no Cleaner acts as an account of another namespace
		}
	}
	return current && s.RecordedAt != nil, nil
}

// IsOlder says that a record is an earlier one than another, or was emptied.
func IsOlder(s, than *v1alpha1.CleanerStatus) bool {
	return ReadTime(s).Before(ReadTime(than)) || s.Runs < than.Runs
}

// FindHighestRun is the highest number that a run in a record has, up to maxForgedRuns; zero beyond. Later runs get higher ones, because
// the IDs of events are made of them.
func FindHighestRun(s *v1alpha1.CleanerStatus) int64 {
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

// CopyRecord is a status without its report.
func CopyRecord(s *v1alpha1.CleanerStatus) v1alpha1.CleanerStatus {
	return v1alpha1.CleanerStatus{
		Runs: s.Runs, Run: s.Run, Unsent: s.Unsent, LastScheduleTime: s.LastScheduleTime,
		LastRequestedAt: s.LastRequestedAt, RecordedAt: s.RecordedAt, Signature: s.Signature,
	}
}
