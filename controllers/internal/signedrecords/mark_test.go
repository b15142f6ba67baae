// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package signedrecords

import (
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

// TestAMarkIsForOneUninstall shows that a mark counts for the release of the run that it was signed for, and for nothing else: it
// can be read and copied by whoever may read the record of the release.
func TestAMarkIsForOneUninstall(t *testing.T) {
	ring := newRing(t)
	c := withRecord()
	sound, err := SignMark(ring, c, c.Status.Run)
	if err != nil {
		t.Fatal(err)
	}
	text, err := markText(c, c.Status.Run)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ring.Sign(signing.Record, text)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := SignMark(newRing(t), c, c.Status.Run)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(c *v1alpha1.Cleaner)
		mark   string
		want   bool
	}{
		"AsWritten":        {unchanged, sound, true},
		"AnotherSpec":      {func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"false"} }, sound, true}, // the run was begun by the one before
		"AnotherUID":       {func(c *v1alpha1.Cleaner) { c.UID = "other" }, sound, false},
		"AnotherName":      {func(c *v1alpha1.Cleaner) { c.Name = "d" }, sound, false},
		"AnotherNamespace": {func(c *v1alpha1.Cleaner) { c.Namespace = "other" }, sound, false},
		"AnotherRun":       {func(c *v1alpha1.Cleaner) { c.Status.Run.Number++ }, sound, false},
		"AnotherTime":      {func(c *v1alpha1.Cleaner) { c.Status.Run.DecidedAt.Time = c.Status.Run.DecidedAt.Add(time.Second) }, sound, false},
		"AnotherSpecsRun":  {func(c *v1alpha1.Cleaner) { c.Status.Run.Decides = "v1:x" }, sound, false},
		"AnotherRecord":    {func(c *v1alpha1.Cleaner) { c.Status.Run.Helm.UID = "10" }, sound, false},
		"AnotherRevision":  {func(c *v1alpha1.Cleaner) { c.Status.Run.Helm.Revision++ }, sound, false},
		"None":             {unchanged, "", false},
		"Forged":           {unchanged, forged, false},
		"AnotherPurpose":   {unchanged, other, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := withRecord()
			tc.change(c)
			if got := IsMark(ring, c, c.Status.Run, tc.mark); got != tc.want {
				t.Errorf("it counts: %t, want %t", got, tc.want)
			}
		})
	}
}

// What an earlier version has signed is read for ever, or uninstalls that it has begun are not finished: never change this text.
func TestMarkOfAnEarlierVersion(t *testing.T) {
	ring, _ := ringOfAnEarlierVersion(t)
	c := withRecord()
	const mark = "20260102T150405Z.HLVFzdb5XfdTdB-AuyKwa2JqKOlhW3Z9r6iWSvySNYY"
	if !IsMark(ring, c, c.Status.Run, mark) {
		made, err := SignMark(ring, c, c.Status.Run)
		t.Errorf("it does not count any more: now it would be %s (%v)", made, err)
	}
}
