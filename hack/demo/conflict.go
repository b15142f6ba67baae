// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// second is a pool that overlaps the one of the third act.
const second = "worker-172-b"

// contradictions is the ClusterCleaner of the fourth act.
const contradictions = `apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: spiderpool-conflicts}
spec:
  lifecycle: Recurring
  templateRef:
    name: spiderpool-conflicts
    parameters: {observedFor: 2s}         # default 2m
`

// conflictAct is the fourth act: a mistake of a user is reported until it is fixed, and nothing is changed.
type conflictAct struct{ story *story }

func (a conflictAct) tell(ctx context.Context) error {
	a.story.chapter("Two pools")
	u := of("SpiderIPPool", "", second)
	u.Object["spec"] = map[string]any{"ipVersion": int64(4), "subnet": "172.31.192.0/20", "ips": []any{"172.31.199.188-172.31.199.199"}}
	if err := a.story.client.Create(ctx, u); err != nil {
		return fmt.Errorf("cannot create the second pool: %w", err)
	}
	a.story.say("SpiderIPPool %s begins before %s ends. Spiderpool's webhook would refuse it; here it was down.", second, pool)
	a.story.chapter("A ClusterCleaner that reports")
	a.story.show(contradictions)
	c := &v1alpha1.ClusterCleaner{}
	if err := yaml.Unmarshal([]byte(contradictions), c); err != nil {
		return fmt.Errorf("cannot read the ClusterCleaner: %w", err)
	}
	if err := a.story.client.Create(ctx, c); err != nil {
		return fmt.Errorf("cannot create the ClusterCleaner: %w", err)
	}
	err := a.awaitFindings(ctx, c, func(all []v1alpha1.Finding) bool {
		for _, f := range all {
			a.story.say("status.findings: %s: %s: %s", f.Rule, strings.Join(f.Items, ", "), f.Message)
		}
		return len(all) > 0
	})
	if err != nil {
		return err
	}
	a.story.say("What to do about each finding: config/templates/spiderpool-conflicts/README.md. Here: excludeIPs, in one of the pools.")
	mend := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"excludeIPs": ["172.31.199.188-172.31.199.189"]}}`))
	if err := a.story.client.Patch(ctx, u, mend); err != nil {
		return fmt.Errorf("cannot mend the second pool: %w", err)
	}
	if err := a.awaitFindings(ctx, c, func(all []v1alpha1.Finding) bool { return len(all) == 0 }); err != nil {
		return err
	}
	a.story.say("status.findings: nothing. The ClusterCleaner has changed nothing, and stays.")
	return nil
}

// awaitFindings waits until the findings of a ClusterCleaner are as they should be.
func (a conflictAct) awaitFindings(ctx context.Context, c *v1alpha1.ClusterCleaner, as func([]v1alpha1.Finding) bool) error {
	w, err := a.story.client.Watch(ctx, &v1alpha1.ClusterCleanerList{}, client.MatchingFields{"metadata.name": c.Name})
	if err != nil {
		return fmt.Errorf("cannot watch ClusterCleaners: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.ResultChan():
			if !ok {
				return errors.New("cannot watch ClusterCleaners: the watch ended")
			}
			if now, is := e.Object.(*v1alpha1.ClusterCleaner); is && as(now.Status.Findings) {
				return nil
			}
		}
	}
}

// compare shows the comparison with the originals as docs/templates.md has it.
func (s *story) compare(context.Context) error {
	root, err := operator.Root()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "templates.md"))
	if err != nil {
		return fmt.Errorf("cannot read the comparison: %w", err)
	}
	s.chapter("Beside the originals")
	_, part, _ := strings.Cut(string(text), "\n## Beside the originals\n")
	part, _, found := strings.Cut(part, "\n## ")
	if !found {
		return errors.New("docs/templates.md has no part about the originals")
	}
	var heads []string
	for line := range strings.Lines(part) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(plain(line)), "|"), "|")
		switch {
		case len(cells) < 2 || strings.HasPrefix(line, "|-"):
		case heads == nil:
			heads = cells
		default:
			s.say("%s", strings.TrimSpace(cells[0]))
			for i := 1; i < len(cells)-1; i++ { // the last says which tests show it
				s.say("  %s: %s", strings.TrimSpace(heads[i]), strings.TrimSpace(cells[i]))
			}
		}
	}
	return nil
}

// plain is a line of Markdown without its links.
func plain(line string) string {
	return regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(line, "$1")
}
