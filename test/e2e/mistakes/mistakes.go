// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mistakes has mistakes that a developer could make in the product, so that tests can build an operator with one of them. It
// never changes a file of the product.
package mistakes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mistake is a file of the product in which one text stands in the place of another. Without a File it is none.
type Mistake struct {
	Name   string
	File   string   // relative to the root of the repository
	Was    string   // stands in File exactly once
	Is     string   // stands in its place
	Breaks []string // the invariants of the audit log that the mistake breaks
	// OfRules says that it breaks them where a rule decides.
	OfRules bool
}

// List lists the mistakes that a checker of the audit log must find. Those without a File are none.
func List() []Mistake {
	const send, commit = "controllers/internal/actuate/step.go", "controllers/act.go"
	return []Mistake{
		{Name: "Sound"},
		{
			Name: "PreconditionsDropped", File: send,
			Was:    "Preconditions:      newPreconditions(ref, version),",
			Breaks: []string{"I1", "I2", "I6"},
		},
		{
			Name: "UIDIgnored", File: send,
			Was: "&metav1.Preconditions{UID: &ref.UID, ", Is: "&metav1.Preconditions{",
			Breaks: []string{"I1"},
		},
		{
			Name: "RunNotRecorded", File: commit,
			Was: "err = c.pass.store.WriteStatus(ctx, func(s *v1alpha1.CleanerStatus) {\n" +
				"\t\ts.Run, s.Runs = run, run.Number\n" +
				"\t\tif at := c.pass.store.RequestedAt(); at != \"\" { // else each restart would answer it again\n" +
				"\t\t\ts.LastRequestedAt = at\n" +
				"\t\t}\n" +
				"\t})",
			Is:     "c.pass.store.Draft.State().Run, c.pass.store.Draft.State().Runs = run, run.Number",
			Breaks: []string{"I2"},
		},
		{
			Name: "NotReadLive", File: commit,
			Was:    "snapshot.ReadForConfirmation(ctx, live, c.pass.store.Draft.GetNamespace(), c.pass.assignment.Work, in.Programs.FindReadings())",
			Is:     "snapshot.Queries(c.pass.mem.queried.queries).Read(ctx, c.pass.clients.Watched)",
			Breaks: []string{"I3"},
		},
		{Name: "SoundRule", OfRules: true},
		{
			Name: "RuleNotReadLive", File: "controllers/batch.go", OfRules: true,
			Was:    "b.pass.reads.MeterLive(b.pass.clients.Live, endOfPass(b.pass))",
			Is:     "b.pass.reads.MeterLive(b.pass.clients.Watched, endOfPass(b.pass))",
			Breaks: []string{"I3"},
		},
		{
			Name: "WatchNotProved", File: "controllers/internal/freshness/freshness.go", OfRules: true,
			Was:    "proved := p.awaitProof(ctx, place, all); {",
			Is:     "proved := (&proof{version: p.watches.ReachedVersion(place)}); {",
			Breaks: []string{"I3"},
		},
	}
}

// Make returns the file's text with the mistake. root is the folder of the repository.
func (m Mistake) Make(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.Was); n != 1 {
		return "", fmt.Errorf("%s: the mistake %s replaces a text that is there %d times, not once:\n%s", m.File, m.Name, n, m.Was)
	}
	return strings.Replace(string(text), m.Was, m.Is, 1), nil
}
