// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// A process that is told to stop, in the middle of its work, says so in a few lines, and none of them is an error: nothing went wrong.
func TestAStopIsQuiet(t *testing.T) {
	l := newLab(t, alone(t))
	p := l.operators.run(l.binary, quick()...)
	l.operators.owned()
	refused(l, "\n  cloudEventSink: \"http://127.0.0.1:1\""+widgetSpec, "w") // is tried again and again
	busyCleaners := []string{"one", "two", "three"}
	for _, busy := range busyCleaners {
		var names []string
		for i := range 60 {
			names = append(names, fmt.Sprintf("%s-%03d", busy, i))
		}
		l.labelled(nil, names...)
		l.apply(cleanerYAML(busy, fmt.Sprintf(`
  lifecycle: Recurring
  limits: {actionsPerSecond: 3}
  targets:
  - {name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}}}
  rules:
  - {name: all, forEach: maps.items, when: 'item.metadata.name.startsWith("%s-")', actions: [{delete: {}}]}`, busy)))
	}
	l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonDeletionRefused)
	l.eventually("it deletes", func() string {
		if n := len(l.trail.deletes()); n < 5 {
			return fmt.Sprintf("it has sent %d DELETEs", n)
		}
		return ""
	})
	before, err := os.Stat(p.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Exited():
	case <-time.After(patience):
		t.Fatalf("it does not stop; its log is %s:\n%s", p.LogPath, tail(p.LogPath))
	}
	if code := p.ExitCode(); code != 0 {
		t.Errorf("it has ended with %d", code)
	}
	if owner := l.operators.owner(); owner != "" {
		t.Errorf("%q, which has stopped, owns the Cleaners", owner)
	}
	text, err := os.ReadFile(p.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	said := string(text[before.Size():])
	for line := range strings.Lines(said) {
		var entry struct {
			Level, Stacktrace string
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("no line of the log: %s", line)
			continue
		}
		if entry.Level == "error" || entry.Stacktrace != "" {
			t.Errorf("an error: %s", line)
		}
	}
	if !strings.Contains(said, "Stopping") {
		t.Errorf("nothing says that it stops:\n%s", said)
	}
	l.operators.run(l.binary, quick()...) // which does what is left, and says so
	for _, busy := range busyCleaners {
		l.says(busy, v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	}
}
