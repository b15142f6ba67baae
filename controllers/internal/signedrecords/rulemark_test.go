// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package signedrecords

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

func ruleMark() RuleMark {
	return RuleMark{Rule: "old", Decides: "v1:0123", Digest: "v1:4567", Record: "9", Revision: 3}
}

// TestARuleMarkIsForOneUninstall shows that a mark counts for the Cleaner and the Secret that it was signed for, and for no others: it can be read
// and copied by anyone who may write the record of a release.
func TestARuleMarkIsForOneUninstall(t *testing.T) {
	ring := newRing(t)
	sound, err := SignRuleMark(ring, withRecord(), ruleMark())
	if err != nil {
		t.Fatal(err)
	}
	forged, err := SignRuleMark(newRing(t), withRecord(), ruleMark())
	if err != nil {
		t.Fatal(err)
	}
	m := ruleMark()
	text, err := m.encodeText(withRecord())
	if err != nil {
		t.Fatal(err)
	}
	other, err := ring.Sign(signing.Uninstall, text)
	if err != nil {
		t.Fatal(err)
	}
	ofRun, err := SignMark(ring, withRecord(), withRecord().Status.Run)
	if err != nil {
		t.Fatal(err)
	}
	signature := sound[strings.LastIndex(sound, "/")+1:]
	for name, tc := range map[string]struct {
		change   func(c *v1alpha1.Cleaner)
		record   types.UID
		revision int64
		mark     string
		want     bool
	}{
		"AsWritten":        {unchanged, "9", 3, sound, true},
		"AnotherSpec":      {func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"false"} }, "9", 3, sound, true}, // what has begun is finished
		"AnotherUID":       {func(c *v1alpha1.Cleaner) { c.UID = "other" }, "9", 3, sound, false},
		"AnotherName":      {func(c *v1alpha1.Cleaner) { c.Name = "d" }, "9", 3, sound, false},
		"AnotherNamespace": {func(c *v1alpha1.Cleaner) { c.Namespace = "other" }, "9", 3, sound, false},
		"AnotherRecord":    {unchanged, "10", 3, sound, false},
		"AnotherRevision":  {unchanged, "9", 4, sound, false},
		"AnotherRule":      {unchanged, "9", 3, "new/v1:0123/v1:4567/" + signature, false},
		"AnotherDecision":  {unchanged, "9", 3, "old/v1:9999/v1:4567/" + signature, false},
		"AnotherDigest":    {unchanged, "9", 3, "old/v1:0123/v1:9999/" + signature, false},
		"HistoryKept":      {unchanged, "9", 3, "old/v1:0123/v1:4567/keep/" + signature, false},
		"None":             {unchanged, "9", 3, "", false},
		"Cut":              {unchanged, "9", 3, signature, false},
		"Longer":           {unchanged, "9", 3, sound + "/x", false},
		"Forged":           {unchanged, "9", 3, forged, false},
		"AnotherPurpose":   {unchanged, "9", 3, "old/v1:0123/v1:4567/" + other, false},
		"OfARun":           {unchanged, "9", 3, ofRun, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := withRecord()
			tc.change(c)
			got, ok := ReadRuleMark(ring, c, tc.record, tc.revision, tc.mark)
			if ok != tc.want {
				t.Errorf("it counts: %t, want %t", ok, tc.want)
			}
			if want := (RuleMark{}); !tc.want && got != want || tc.want && got != ruleMark() {
				t.Errorf("got %+v", got)
			}
			if IsMark(ring, c, c.Status.Run, tc.mark) != (name == "OfARun") {
				t.Error("it counts as the mark of a run")
			}
		})
	}
	if _, err := SignRuleMark(signing.Ring{}, withRecord(), ruleMark()); err == nil {
		t.Error("it is signed without a key")
	}
}

// A mark says whether the history is kept.
func TestARuleMarkKeepsHistory(t *testing.T) {
	ring, m := newRing(t), ruleMark()
	m.KeepHistory = true
	mark, err := SignRuleMark(ring, withRecord(), m)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := ReadRuleMark(ring, withRecord(), "9", 3, mark); !ok || got != m {
		t.Errorf("got %+v, %t", got, ok)
	}
	if got, ok := ReadRuleMark(ring, withRecord(), "9", 3, strings.Replace(mark, "/keep/", "/", 1)); ok {
		t.Errorf("without its word it says %+v", got)
	}
}

// The longest mark fits into what is kept of an annotation of a record: 256 bytes.
func TestARuleMarkIsShort(t *testing.T) {
	m := RuleMark{Rule: strings.Repeat("r", 63), Decides: "v1:" + strings.Repeat("0", 32), Digest: "v1:" + strings.Repeat("0", 64), KeepHistory: true, Record: "9", Revision: 1}
	mark, err := SignRuleMark(newRing(t), withRecord(), m)
	if err != nil || len(mark) > 256 {
		t.Errorf("it has %d bytes, %v", len(mark), err)
	}
}

// What an earlier version has signed is read for ever, or uninstalls that it has begun are not finished: never change this text.
func TestRuleMarkOfAnEarlierVersion(t *testing.T) {
	ring, _ := ringOfAnEarlierVersion(t)
	const mark = "old/v1:0123/v1:4567/20260102T150405Z.x5HMFUVwltn2Wx2jYfIIMTdlUbbit8mtnFHdHqWY5d4"
	if _, ok := ReadRuleMark(ring, withRecord(), "9", 3, mark); !ok {
		made, err := SignRuleMark(ring, withRecord(), ruleMark())
		t.Errorf("it does not count: now it would be %s (%v)", made, err)
	}
}
