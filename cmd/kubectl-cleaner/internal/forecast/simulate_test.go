// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/protection"
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// loader is slow to make, and all tests use clones of one.
var loader = sync.OnceValues(manifests.NewLoader)

func readText(t *testing.T, text string) []*manifests.Document {
	t.Helper()
	documents, err := manifests.Input{Stdin: strings.NewReader(text)}.ReadDocuments("-")
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// loadText is the ClusterCleaner "c" with a spec, and a cluster with some objects.
func loadText(t *testing.T, spec, objects string) (planning.Decision, *snapshot.Objects) {
	t.Helper()
	l, err := loader()
	if err != nil {
		t.Fatal(err)
	}
	l = l.Clone()
	l.AllowedKinds = []string{"namespaces"}
	own := readText(t, "apiVersion: cleaner.vtex.dev/v1alpha1\nkind: ClusterCleaner\nmetadata: {name: c}\nspec:\n"+spec)
	c := l.LoadCleaner(t.Context(), own[0], nil)
	if c.IsInvalid() {
		t.Fatal(manifests.JoinErrors(c.Problems))
	}
	world, err := manifests.NewOfflineObjects(readText(t, "---\n"+objects), nil)
	if err != nil {
		t.Fatal(err)
	}
	times := planning.Times{At: begin, Since: begin}
	return planning.Decision{Cleaner: c, Protection: plan.Protection{Namespaces: protection.ProtectedNamespaces(), AllowedKinds: l.AllowedKinds}, Times: times}, world
}

// listSteps is what a forecast says, one line for each step: how far ahead, "~" if that is not exact, rule, verb and object.
func listSteps(f *Cleaner) []string {
	var out []string
	for i := range f.Steps {
		s := &f.Steps[i]
		about, more := "", ""
		if !s.Exact {
			about = "~"
		}
		if s.Dependents > 0 {
			more = fmt.Sprintf(" +%d", s.Dependents)
		}
		if s.Remains {
			more += " remains"
		}
		out = append(out, fmt.Sprintf("%s%s %s %s %s%s%s", about, s.At.Sub(begin), s.Rule, s.Verb, s.Name, s.Key, more))
	}
	return out
}

// configMaps are ConfigMaps that were created so many hours before the beginning.
func configMaps(created map[string]int) string {
	var out []string
	for name, hours := range created {
		out = append(out, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: web, uid: %s, creationTimestamp: %q}}",
			name, name, begin.Add(-time.Duration(hours)*time.Hour).Format(time.RFC3339)))
	}
	slices.Sort(out)
	return strings.Join(out, "\n---\n")
}

const recurring = `
  lifecycle: Recurring
  targets: [{name: maps, reference: {version: v1, kind: ConfigMap}}]
`

const recurringPods = `
  lifecycle: Recurring
  targets: [{name: pods, reference: {version: v1, kind: Pod}}]
`

// podsByPhase is a document with a Pod that was created so many hours before the beginning.
func podsByPhase(name, phase string, hours int) string {
	return fmt.Sprintf("---\n{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: web, uid: %[1]s, creationTimestamp: %q}, status: {phase: %s}}\n", name, begin.Add(-time.Duration(hours)*time.Hour).Format(time.RFC3339), phase)
}

// handmade are Cleaners whose forecast is written down. TestHandmadeHappens shows that it happens.
func handmade() map[string]struct {
	reason, spec, objects string
	want                  []string
} {
	two := configMaps(map[string]int{"a": 1, "b": 2})
	return map[string]struct {
		reason, spec, objects string
		want                  []string
	}{
		"Age": {
			reason: "each object is deleted when it is old enough", objects: two,
			spec: recurring + `  rules: [{name: old, forEach: maps.items, when: 'age(item) >= duration("5h")', actions: [{delete: {}}]}]`,
			want: []string{"3h0m0s old delete b", "4h0m0s old delete a"},
		},
		"For": {
			reason: "and then after what for says", objects: two,
			spec: recurring + `  rules: [{name: old, forEach: maps.items, when: 'age(item) >= duration("5h")', for: 30m, actions: [{delete: {}}]}]`,
			want: []string{"3h30m0s old delete b", "4h30m0s old delete a"},
		},
		"Interrupted": {
			reason: "a timer that is interrupted begins again", objects: configMaps(map[string]int{"a": 1}),
			spec: recurring + `  rules: [{name: r, forEach: maps.items, when: 'age(item) < duration("2h") || age(item) >= duration("4h")', for: 90m, actions: [{delete: {}}]}]`,
			want: []string{"4h30m0s r delete a"},
		},
		"Keep": {
			reason: "the last ones are kept", objects: configMaps(map[string]int{"a": 1, "b": 2, "c": 3}),
			spec: recurring + `  rules: [{name: r, forEach: maps.items, when: 'age(item) >= duration("10h")', orderBy: [{expression: item.metadata.creationTimestamp}], keep: 1, actions: [{delete: {}}]}]`,
			want: []string{"8h0m0s r delete c", "9h0m0s r delete b"},
		},
		"Limit": {
			reason: "what is over a limit waits until earlier actions no longer count", objects: configMaps(map[string]int{"a": 1, "b": 2, "c": 3}),
			spec: recurring + "  limits: {maxActions: 2, per: 12h}\n" + `  rules: [{name: r, forEach: maps.items, when: 'age(item) >= duration("10h")', actions: [{delete: {}}]}]`,
			want: []string{"7h0m0s r delete c", "8h0m0s r delete b", "19h0m0s r delete a"},
		},
		"ReportBlocked": {
			reason: "reports are not repeated because a limit blocks other steps", objects: configMaps(map[string]int{"a": 1, "b": 2, "c": 3}),
			spec: recurring + "  limits: {maxActions: 1, per: 10h}\n" + `  rules:
  - {name: r, forEach: maps.items, when: 'age(item) >= duration("3h")', actions: [{report: {}}]}
  - {name: d, forEach: maps.items, when: 'age(item) >= duration("5h")', actions: [{delete: {}}]}`,
			want: []string{"0s r report c", "1h0m0s r report b", "2h0m0s r report a", "2h0m0s d delete c"},
		},
		"Schedule": {
			reason: "nothing is done between the times of a schedule", objects: two,
			spec: recurring + "  schedule: \"0 6 * * *\"\n" + `  rules: [{name: r, forEach: maps.items, when: 'age(item) >= duration("8h")', actions: [{delete: {}}]}]`,
			want: []string{"6h0m0s r delete b", "30h0m0s r delete a"},
		},
		"ScheduleFor": {
			reason: "but for counts there", objects: two,
			spec: recurring + "  schedule: \"0 6 * * *\"\n" + `  rules: [{name: r, forEach: maps.items, when: 'age(item) >= duration("4h")', for: 200m, actions: [{delete: {}}]}]`,
			want: []string{"6h0m0s r delete b", "6h20m0s r delete a"},
		},
		"ScheduleCreated": {
			reason: "a Cleaner that is created at a time of its schedule waits for the next one", objects: configMaps(map[string]int{"a": 9}),
			spec: recurring + "  schedule: \"0 0 * * *\"\n" + `  rules: [{name: r, forEach: maps.items, when: 'age(item) >= duration("8h")', actions: [{delete: {}}]}]`,
			want: []string{"24h0m0s r delete a"},
		},
		"Once": {
			reason: "a Cleaner that cleans once ends", objects: two,
			spec: "  ttl: 1h\n  targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {}}, delete: true}]\n" +
				"  conditions: ['maps.items.all(m, age(m) >= duration(\"4h\"))']",
			want: []string{"3h0m0s targets.maps delete a", "3h0m0s targets.maps delete b"},
		},
		"PatchThenDelete": {
			reason: "what a patch changes counts from then on", objects: configMaps(map[string]int{"a": 1}),
			spec: recurring + `  rules:
  - {name: mark, forEach: maps.items, when: 'age(item) >= duration("3h") && item.metadata.?annotations["marked"].orValue("") == ""', actions: [{patch: {type: Merge, expression: '{"metadata": {"annotations": {"marked": string(time)}}}'}}]}
  - {name: sweep, forEach: maps.items, when: 'item.metadata.?annotations["marked"].hasValue() && time >= timestamp(item.metadata.annotations["marked"]) + duration("48h")', actions: [{delete: {}}]}`,
			want: []string{"2h0m0s mark patch a", "50h0m0s sweep delete a"},
		},
		"PatchOnce": {
			reason: "a patch that changes nothing is not sent again", objects: configMaps(map[string]int{"a": 1, "b": 3}),
			spec: recurring + `  rules: [{name: r, forEach: maps.items, when: 'age(item) >= duration("4h")', actions: [{patch: {type: Merge, expression: '{"data": {"old": "yes"}}'}}]}]`,
			want: []string{"1h0m0s r patch b", "3h0m0s r patch a"},
		},
		"ReportOnce": {
			reason: "what is reported is reported once, until it was gone", objects: configMaps(map[string]int{"a": 1}),
			spec: recurring + `  rules: [{name: r, forEach: maps.items, when: 'age(item) >= duration("4h") && !(age(item) >= duration("6h") && age(item) < duration("7h"))', actions: [{report: {}}]}]`,
			want: []string{"3h0m0s r report a", "6h0m0s r report a"},
		},
		"Finalizers": {
			reason:  "finalizers keep an object until a rule takes them off",
			objects: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: web, uid: a, creationTimestamp: "2026-01-01T00:00:00Z", finalizers: [x.io/f]}}`,
			spec: recurring + `  rules:
  - {name: delete, forEach: maps.items, when: 'age(item) >= duration("1h") && !has(item.metadata.deletionTimestamp)', actions: [{delete: {}}]}
  - {name: free, forEach: maps.items, when: 'has(item.metadata.deletionTimestamp)', for: 2h, actions: [{removeFinalizer: {name: x.io/f}}]}`,
			want: []string{"1h0m0s delete delete a remains", "3h0m0s free removeFinalizer a"},
		},
		"Dependents": {
			reason: "what an object owns goes with it, and what that owns; but nothing that another one owns too",
			objects: configMaps(map[string]int{"a": 1, "z": 0}) + `
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: web, uid: b, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: a}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: web, uid: c, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: b, uid: b}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: d, namespace: web, uid: d, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: a}, {apiVersion: v1, kind: ConfigMap, name: z, uid: z}]}}`,
			spec: recurring + `  rules:
  - {name: r, forEach: maps.items, when: 'item.metadata.name == "a" && age(item) >= duration("2h")', actions: [{delete: {}}]}
  - {name: few, forEach: maps.items, when: 'maps.items.size() < 4', actions: [{report: {}}]}`,
			want: []string{"1h0m0s r delete a +2", "1h0m0s few report d", "1h0m0s few report z"},
		},
		"Orphans": {
			reason: "unless they are orphaned",
			objects: configMaps(map[string]int{"a": 1}) + `
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: web, uid: b, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: a}]}}`,
			spec: recurring + `  rules: [{name: r, forEach: maps.items, when: 'item.metadata.name == "a" && age(item) >= duration("2h")', actions: [{delete: {propagationPolicy: Orphan}}]}]`,
			want: []string{"1h0m0s r delete a"},
		},
		"Namespace": {
			reason:  "a namespace goes with what it contains",
			objects: configMaps(map[string]int{"a": 1}) + "\n---\n" + `{apiVersion: v1, kind: Namespace, metadata: {name: web, uid: ns, creationTimestamp: "2026-01-01T00:00:00Z"}}`,
			spec: `
  lifecycle: Recurring
  targets: [{name: maps, reference: {version: v1, kind: ConfigMap}}, {name: spaces, reference: {version: v1, kind: Namespace}}]
  rules:
  - {name: r, forEach: spaces.items, when: 'age(item) >= duration("1h")', actions: [{delete: {}}]}
  - {name: old, forEach: maps.items, when: 'age(item) >= duration("24h")', actions: [{delete: {}}]}`,
			want: []string{"1h0m0s r delete web +1"},
		},
		"Unpredictable": {
			reason: "what nobody can predict is marked, and found at the next evaluation", objects: configMaps(map[string]int{"a": 1, "b": 100}),
			spec: recurring + "  retry: {period: 2h}\n" + `  rules:
  - {name: text, forEach: maps.items, when: 'item.metadata.name == "a" && string(time) > "2026-01-01T07:30"', actions: [{delete: {}}]}
  - {name: old, forEach: maps.items, when: 'item.metadata.name == "b" && age(item) >= duration("101h")', actions: [{delete: {}}]}`,
			want: []string{"1h0m0s old delete b", "~9h0m0s text delete a"},
		},
		"UnpredictableRate": {
			reason: "a rate delays requests beyond the first second", objects: configMaps(map[string]int{"a": 1, "b": 2, "c": 2, "d": 2}),
			spec: recurring + "  limits: {actionsPerSecond: 2}\n" + `  rules: [{name: old, forEach: maps.items, when: 'age(item) >= duration("5h")', actions: [{delete: {}}]}]`,
			want: []string{"3h0m0s old delete b", "3h0m0s old delete c", "~3h0m0s old delete d", "~4h0m0s old delete a"},
		},
		"Rate": {
			reason: "but not fewer requests at a time", objects: configMaps(map[string]int{"a": 1, "b": 2, "c": 2}),
			spec: recurring + "  limits: {actionsPerSecond: 2}\n" + `  rules: [{name: old, forEach: maps.items, when: 'age(item) >= duration("5h")', actions: [{delete: {}}]}]`,
			want: []string{"3h0m0s old delete b", "3h0m0s old delete c", "4h0m0s old delete a"},
		},
		"UnpredictableEviction": {
			reason: "evictions can be refused, and what comes after them is not exact", objects: podsByPhase("ended", "Succeeded", 3) + podsByPhase("running", "Running", 2) + podsByPhase("waiting", "Pending", 1),
			spec: recurringPods + `  rules: [{name: old, forEach: pods.items, when: 'age(item) >= duration("5h")', actions: [{evict: {}}]}]`,
			want: []string{"2h0m0s old evict ended", "~3h0m0s old evict running", "~4h0m0s old evict waiting"},
		},
		"Eviction": {
			reason: "no budget prevents the eviction of a Pod that has ended or not started", objects: podsByPhase("ended", "Failed", 3) + podsByPhase("waiting", "Pending", 1),
			spec: recurringPods + `  rules: [{name: old, forEach: pods.items, when: 'age(item) >= duration("5h")', actions: [{evict: {}}]}]`,
			want: []string{"2h0m0s old evict ended", "4h0m0s old evict waiting"},
		},
		"Suspended": {
			reason: "a suspended Cleaner does nothing", objects: two,
			spec: recurring + "  suspend: true\n" + `  rules: [{name: r, forEach: maps.items, when: "true", actions: [{delete: {}}]}]`,
		},
		"DryRun": {
			reason: "a dry run shows what it would do", objects: two,
			spec: recurring + "  mode: DryRun\n" + `  rules: [{name: old, forEach: maps.items, when: 'age(item) >= duration("5h")', actions: [{delete: {}}]}]`,
			want: []string{"3h0m0s old delete b", "4h0m0s old delete a"},
		},
	}
}

func TestPredict(t *testing.T) {
	for name, tc := range handmade() {
		t.Run(name, func(t *testing.T) {
			d, objects := loadText(t, tc.spec, tc.objects)
			before := listObjects(objects)
			f := Predict(t.Context(), Input{Decision: d, Objects: objects, Until: begin.Add(week), IsLate: never})
			if diff := cmp.Diff(tc.want, listSteps(&f)); diff != "" || f.Cut != "" {
				t.Errorf("%s: -want +got\n%s%s %v", tc.reason, diff, f.Cut, f.States)
			}
			if diff := cmp.Diff(before, listObjects(objects)); diff != "" {
				t.Errorf("it has changed the objects that it was given:\n%s", diff)
			}
			if (len(f.Unpredictable) > 0) != strings.HasPrefix(name, "Unpredictable") {
				t.Errorf("it cannot predict %v", f.Unpredictable)
			}
			if ends := !f.Ends.IsZero(); ends != (name == "Once") || ends && !f.Ends.Equal(begin.Add(3*time.Hour)) {
				t.Errorf("it ends at %s", f.Ends)
			}
		})
	}
}

func listObjects(objects *snapshot.Objects) []string {
	var out []string
	for o := range objects.EachObject() {
		out = append(out, fmt.Sprint(o.String(), o.Value))
	}
	return out
}

// What is predicted of handmade Cleaners happens, too, as for those that are shipped.
func TestHandmadeHappens(t *testing.T) {
	for name, tc := range handmade() {
		t.Run(name, func(t *testing.T) {
			d, objects := loadText(t, tc.spec, tc.objects)
			compareWalk(t, d, objects, slow)
		})
	}
}

// The comparison of a forecast with what happens finds a step that comes too early, one that comes too late, and one that is not predicted.
func TestWalkFindsMistakes(t *testing.T) {
	tc := handmade()["For"]
	d, objects := loadText(t, tc.spec, tc.objects)
	f := Predict(t.Context(), Input{Decision: d, Objects: objects, Until: begin.Add(week), IsLate: never})
	predicted, _ := listPredicted(&f)
	for name, change := range map[string]func(*Cleaner){
		"Early":   func(f *Cleaner) { f.Steps[0].At.Time = f.Steps[0].At.Add(-1) },
		"Late":    func(f *Cleaner) { f.Steps[1].At.Time = f.Steps[1].At.Add(time.Second) },
		"Missing": func(f *Cleaner) { f.Steps = f.Steps[:1] },
	} {
		wrong := f
		wrong.Steps = slices.Clone(f.Steps)
		change(&wrong)
		said, _ := listPredicted(&wrong)
		if got := walkClock(t, d, objects, &wrong, slow, nil); cmp.Equal(said, got) || !cmp.Equal(predicted, got) {
			t.Errorf("%s: predicted %v, happened %v", name, said, got)
		}
	}
}

// What a forecast says is exact happens then, also where a budget refuses evictions, or a rate delays requests; and what does not happen as it
// is predicted was marked.
func TestDelaysAreMarked(t *testing.T) {
	for name, refuses := range map[string]func(*plan.Step, time.Time) bool{
		"UnpredictableEviction": func(s *plan.Step, now time.Time) bool {
			return canBeRefused(&s.Object) && now.Before(begin.Add(6*time.Hour))
		},
		"UnpredictableRate": func(s *plan.Step, now time.Time) bool {
			return s.Object.Name == "d" && now.Before(begin.Add(3*time.Hour+time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, objects := loadText(t, handmade()[name].spec, handmade()[name].objects)
			f := Predict(t.Context(), Input{Decision: d, Objects: objects, Until: begin.Add(week), IsLate: never})
			exact, about := listPredicted(&f)
			happened := walkClock(t, d, objects, &f, slow, refuses)
			for _, what := range exact {
				if !slices.Contains(happened, what) {
					t.Errorf("%s is predicted exactly, and does not happen: %q", what, happened)
				}
			}
			if len(happened) != len(exact)+len(about) || !slices.ContainsFunc(about, func(what string) bool { return !slices.Contains(happened, what) }) {
				t.Errorf("of %q nothing happens later: %q", about, happened)
			}
		})
	}
}

// The objects of a Helm release are not predicted, and the forecast says so.
func TestReleaseIsMarked(t *testing.T) {
	d, objects := loadText(t, "  ttl: 1h\n  targets: [{name: maps, reference: {version: v1, kind: ConfigMap, name: a}}]\n", configMaps(map[string]int{"a": 1}))
	s := &simulation{Input: Input{Decision: d, Objects: objects}, out: &Cleaner{}, world: newWorld(objects), now: begin, work: d.Cleaner.Work}
	in := d.MakeInput(t.Context(), s.world)
	s.carryOut(&in, &plan.Plan{Verdict: v1alpha1.VerdictAct, Release: &observed.Release{Name: "shop"}})
	if len(s.out.Unpredictable) != 1 || s.out.Unpredictable[0].Because != becauseRelease || len(s.out.Steps) != 1 || s.out.Steps[0].Exact {
		t.Errorf("it predicts %v, and says that it cannot predict %v", s.out.Steps, s.out.Unpredictable)
	}
}

// Timers that the status lists end when it says, and others begin now.
func TestStatusEndsTimers(t *testing.T) {
	for name, tc := range map[string]struct {
		rule    string
		waiting []v1alpha1.Pending
		want    []string
	}{
		"None":      {rule: "", want: []string{"5h0m0s r delete a", "5h0m0s r delete b"}},
		"ByObject":  {waiting: []v1alpha1.Pending{{Rule: "r", Key: "ConfigMap web/a", Until: metav1.NewTime(begin.Add(time.Hour))}}, want: []string{"1h0m0s r delete a", "5h0m0s r delete b"}},
		"ByKey":     {rule: ", key: 'item.metadata.name + \"!\"'", waiting: []v1alpha1.Pending{{Rule: "r", Key: "b!", Until: metav1.NewTime(begin.Add(2 * time.Hour))}}, want: []string{"2h0m0s r delete b", "5h0m0s r delete a"}},
		"Over":      {waiting: []v1alpha1.Pending{{Rule: "r", Key: "ConfigMap web/a", Until: metav1.NewTime(begin.Add(-time.Hour))}}, want: []string{"0s r delete a", "5h0m0s r delete b"}},
		"Unknown":   {waiting: []v1alpha1.Pending{{Rule: "other", Key: "a", Until: metav1.NewTime(begin)}, {Rule: "r", Key: "gone", Until: metav1.NewTime(begin)}}, want: []string{"5h0m0s r delete a", "5h0m0s r delete b"}},
		"NeverMore": {waiting: []v1alpha1.Pending{{Rule: "r", Key: "ConfigMap web/a", Until: metav1.NewTime(begin.Add(9 * time.Hour))}}, want: []string{"5h0m0s r delete a", "5h0m0s r delete b"}},
	} {
		t.Run(name, func(t *testing.T) {
			d, objects := loadText(t, recurring+"  rules: [{name: r, forEach: maps.items, when: 'true', for: 5h"+tc.rule+", actions: [{delete: {}}]}]", configMaps(map[string]int{"a": 1, "b": 2}))
			f := Predict(t.Context(), Input{Decision: d, Objects: objects, Until: begin.Add(week), Waiting: tc.waiting, IsLate: never})
			if diff := cmp.Diff(tc.want, listSteps(&f)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A time of the schedule that is over is not due again, and one that was missed is.
func TestLastTick(t *testing.T) {
	tc := handmade()["ScheduleCreated"]
	for name, want := range map[string][]string{"Over": {"24h0m0s r delete a"}, "Missed": {"0s r delete a"}} {
		d, objects := loadText(t, tc.spec, tc.objects)
		last := begin
		if name == "Missed" {
			last = begin.Add(-24 * time.Hour)
		}
		d.Cleaner.Owner.SetCreationTimestamp(metav1.NewTime(begin.Add(-1000 * time.Hour)))
		f := Predict(t.Context(), Input{Decision: d, Objects: objects, Until: begin.Add(week), LastTick: last, IsLate: never})
		if diff := cmp.Diff(want, listSteps(&f)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// A forecast that would never end, or takes too long, says until when it is one.
func TestCut(t *testing.T) {
	flips := recurring + `  rules:
  - {name: a, forEach: maps.items, when: 'age(item) >= duration("2h") && item.?data["x"].orValue("") != "on"', actions: [{patch: {type: Merge, expression: '{"data": {"x": "on"}}'}}]}
  - {name: b, forEach: maps.items, when: 'item.?data["x"].orValue("") == "on"', actions: [{patch: {type: Merge, expression: '{"data": {"x": "off"}}'}}]}`
	d, objects := loadText(t, flips, configMaps(map[string]int{"a": 1}))
	f := Predict(t.Context(), Input{Decision: d, Objects: objects, Until: begin.Add(week), IsLate: never})
	if !strings.Contains(f.Cut, "again and again") || !f.Until.Equal(begin.Add(time.Hour)) || len(f.Steps) == 0 {
		t.Errorf("%d steps until %s: %s", len(f.Steps), f.Until, f.Cut)
	}
	tc := handmade()["Age"]
	d, objects = loadText(t, tc.spec, tc.objects)
	f = Predict(t.Context(), Input{Decision: d, Objects: objects, Until: begin.Add(week), IsLate: func() bool { return true }})
	if !strings.Contains(f.Cut, "too long") || !f.Until.Equal(begin) {
		t.Errorf("until %s: %s", f.Until, f.Cut)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f = Predict(ctx, Input{Decision: d, Objects: objects, Until: begin.Add(week), IsLate: never}); f.Cut == "" {
		t.Error("it goes on although nobody waits")
	}
}

// More steps than are listed are counted.
func TestOmitted(t *testing.T) {
	created := map[string]int{}
	for n := range MaxSteps + 7 {
		created[fmt.Sprintf("m%05d", n)] = 1
	}
	d, objects := loadText(t, recurring+`  rules: [{name: old, forEach: maps.items, when: 'age(item) >= duration("5h")', actions: [{delete: {}}]}]`, configMaps(created))
	f := Predict(t.Context(), Input{Decision: d, Objects: objects, Until: begin.Add(week), IsLate: never})
	if len(f.Steps) != MaxSteps || f.Omitted != 7 || f.Cut != "" {
		t.Errorf("%d steps, %d omitted: %s", len(f.Steps), f.Omitted, f.Cut)
	}
}

// A patch that cannot be applied is a warning, and holds up what comes after it.
func TestFailedPatch(t *testing.T) {
	d, objects := loadText(t, recurring+`  rules: [{name: r, forEach: maps.items, when: "true", actions: [{patch: {type: JSON, expression: '[{"op": "remove", "path": "/data/none"}]'}}, {delete: {}}]}]`,
		configMaps(map[string]int{"a": 1}))
	f := Predict(t.Context(), Input{Decision: d, Objects: objects, Until: begin.Add(week), IsLate: never})
	if len(f.Steps) != 0 || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], `rule "r" cannot patch`) {
		t.Errorf("steps %v, warnings %v", listSteps(&f), f.Warnings)
	}
}

// The uninstall of a release takes all its records, and those of no other one.
func TestReleasesAreUninstalled(t *testing.T) {
	record := func(namespace, release string, revision int, status string) string {
		text := fmt.Sprintf(`{"name":%q,"info":{"status":%q,"last_deployed":"2025-12-01T00:00:00Z"},"chart":{"metadata":{"name":"shop"}},"version":%d,"namespace":%q}`, release, status, revision, namespace)
		packed := base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(text))))
		name := fmt.Sprintf("sh.helm.release.v1.%s.v%d", release, revision)
		return fmt.Sprintf("---\n{apiVersion: v1, kind: Secret, type: helm.sh/release.v1, metadata: {name: %[1]s, namespace: %[2]s, uid: %[2]s-%[1]s, labels: {owner: helm, name: %[3]s, version: \"%[4]d\", status: %[5]s}}, data: {release: %[6]s}}\n",
			name, namespace, release, revision, status, packed)
	}
	spec := `
  lifecycle: Recurring
  targets: [{name: releases, helmReleases: {}}]
  rules: [{name: old, forEach: releases.items, when: 'item.name == "web" && item.namespace == "shop"', actions: [{helmUninstall: {}}]}]
`
	d, world := loadText(t, spec, record("shop", "web", 1, "superseded")+record("shop", "web", 2, "deployed")+record("shop", "api", 1, "deployed")+record("team", "web", 1, "deployed"))
	f := Predict(t.Context(), Input{Decision: d, Objects: world, Until: begin.Add(week), IsLate: never})
	if diff := cmp.Diff([]string{"0s old helmUninstall sh.helm.release.v1.web.v2"}, listSteps(&f)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if len(f.Unpredictable) != 1 || f.Unpredictable[0].Because != becauseRelease || f.Unpredictable[0].Rule != "old" {
		t.Errorf("it is not said that the rest is not predicted: %+v", f.Unpredictable)
	}
}
