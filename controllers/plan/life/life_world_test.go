// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
	"github.com/vtex/cleaner/test/celtest"
	"github.com/vtex/cleaner/test/lifemodel"
)

const (
	namespace = "team"
	// settleFor and finishGrace are what the manager has by default.
	settleFor   = 10 * time.Minute
	finishGrace = 30 * time.Second
)

// targetNames are the names of the model's targets. Expressions see the first one, and the evidence beside them.
var targetNames = [lifemodel.Targets]string{"zero", "one"}

const evidence = "evidence"

// world shows states of the model as the objects that the real code reads.
type world struct {
	model    *lifemodel.Model
	spec     v1alpha1.CleanerSpec
	programs *celenv.Programs
	epoch    time.Time
	// decides are the fingerprints of the two specs of the model.
	decides map[string]uint8
}

func newWorld(t *testing.T, model *lifemodel.Model) *world {
	t.Helper()
	w := &world{model: model, epoch: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	reference := func(name string) v1alpha1.Reference {
		return v1alpha1.Reference{Version: "v1", Kind: "ConfigMap", Name: name}
	}
	hidden := false
	for k := range model.Targets {
		target := v1alpha1.Target{Name: targetNames[k], Reference: reference(targetNames[k]), Delete: !w.ofRule(k)}
		switch {
		case model.Ordered:
		case model.RuleRow && k > 0:
			target.Reference.Name, target.Reference.MatchLabels = "", map[string]string{}
		case k > 0:
			target.IncludeWhenEvaluating = &hidden
		}
		w.spec.Targets = append(w.spec.Targets, target)
	}
	rule := v1alpha1.Rule{Name: "rule", ForEach: "one.items", When: `item.data.clean == "true"`, Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}}
	if model.Ordered {
		rule.ForEach = "[zero]"
		rule.Actions = append(rule.Actions, v1alpha1.RuleAction{Object: "one", Delete: &v1alpha1.DeleteAction{}})
	}
	if model.RuleRow || model.Ordered {
		w.spec.Lifecycle, w.spec.Rules = v1alpha1.LifecycleOnce, []v1alpha1.Rule{rule}
	}
	w.spec.Targets = append(w.spec.Targets, v1alpha1.Target{Name: evidence, Reference: reference(evidence)})
	const unused, clean = `zero.data.clean == "true"`, `evidence.data.clean == "true"`
	switch {
	case model.Targets == 0:
		w.spec.Conditions = []string{clean}
	case model.Joint:
		w.spec.Conditions = []string{unused + " && " + clean}
	default:
		w.spec.Conditions = []string{unused, clean}
	}
	if model.Release {
		w.spec.Helm = &v1alpha1.Helm{Release: "app", Delete: true}
	}
	programs := celtest.CompileWork(t, w.spec.Work())
	w.programs = programs
	w.decides = map[string]uint8{}
	for _, decides := range []uint8{1, 2} {
		c := w.cleaner()
		edit(c, decides)
		f, err := life.FingerprintWork(c.Work())
		if err != nil {
			t.Fatal(err)
		}
		w.decides[f] = decides
	}
	return w
}

// ofRule says that the row of a target is one of the rule.
func (w *world) ofRule(k int) bool { return w.model.Ordered || w.model.RuleRow && k > 0 }

// cleaner is the Cleaner of the first state.
func (w *world) cleaner() *v1alpha1.Cleaner {
	c := &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cleaner", UID: "cleaner-1", CreationTimestamp: metav1.NewTime(w.epoch.Add(-time.Hour))},
		Spec:       *w.spec.DeepCopy(),
	}
	if w.model.Sink {
		setSink(c, true)
	}
	edit(c, 1)
	return c
}

func setSink(c *v1alpha1.Cleaner, on bool) {
	c.Spec.CloudEventSink = ""
	if on {
		c.Spec.CloudEventSink = "http://sink"
	}
}

// edit gives the Cleaner one of the two specs of the model, which differ in what decides.
func edit(c *v1alpha1.Cleaner, decides uint8) {
	c.Spec.TTL = v1alpha1.Duration(fmt.Sprintf("%ds", decides))
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func uid(k int, n uint8) types.UID { return types.UID(fmt.Sprintf("%s-%d", targetNames[k], n)) }

// object is the object of a target.
func (w *world) object(s *lifemodel.State, k int) observed.Object {
	t := &s.T[k]
	o := observed.Object{
		Ref: observed.Ref{
			Resource: configMaps, Namespace: namespace, Name: targetNames[k],
			UID: uid(k, t.UID), ResourceVersion: strconv.Itoa(int(t.RV)),
		},
		Terminating: t.Terminating,
	}
	if t.Held {
		o.Finalizers = []string{"example.com/held"}
	}
	if k == 0 || w.ofRule(k) {
		o.Value = targetValue(targetNames[k], t.Unused)
	}
	return o
}

func targetValue(name string, clean bool) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"data":     map[string]any{"clean": strconv.FormatBool(clean)},
	}
}

// sight is what a live read of a row's object shows.
func (w *world) sight(s *lifemodel.State, k int) life.Sight {
	if !s.T[k].Exists {
		return life.Sight{Missing: true}
	}
	o := w.object(s, k)
	return life.Sight{UID: o.UID, ResourceVersion: o.ResourceVersion, Terminating: o.Terminating, Finalizers: o.Finalizers}
}

// release is the Helm release as it is read for a run; 0: there is none.
func (w *world) release(s *lifemodel.State, run int64) observed.Release {
	states := map[lifemodel.ReleaseStatus]observed.ReleaseState{
		lifemodel.Absent: observed.ReleaseGone, lifemodel.Deployed: observed.ReleaseDeployed, lifemodel.Uninstalling: observed.ReleaseUninstalling,
	}
	r := &s.Rel
	out := observed.Release{State: states[r.Status], Name: "app", Revision: int64(r.Revision), FirstDeployed: w.installed(r.Era), Begun: r.Mark != 0 && int64(r.Mark) == run}
	if r.Pending {
		out.State = observed.ReleasePending
		out.Revision++
	}
	out.UID = types.UID(fmt.Sprintf("secret-%d-%d", r.Era, out.Revision))
	return out
}

// installed is when a release was installed.
func (w *world) installed(era uint8) time.Time { return w.epoch.Add(-time.Duration(9-era) * time.Hour) }

// input is what a decision on live reads depends on.
func (w *world) input(s *lifemodel.State, c *v1alpha1.Cleaner, now time.Time) plan.Input {
	in := plan.Input{
		Owner: plan.Owner{Namespace: c.Namespace, Name: c.Name, UID: c.UID, Created: c.CreationTimestamp.Time},
		Spec:  c.Work(), Programs: w.programs, Now: now,
	}
	for k := range w.model.Targets {
		t := observed.Target{State: observed.Complete, Resource: configMaps, Namespaced: true}
		if s.T[k].Exists {
			t.Objects = []observed.Object{w.object(s, k)}
		}
		in.Snapshot = append(in.Snapshot, t)
	}
	proof := observed.Object{Ref: observed.Ref{Resource: configMaps, Namespace: namespace, Name: evidence, UID: evidence}, Value: targetValue(evidence, s.Evidence)}
	in.Snapshot = append(in.Snapshot, observed.Target{State: observed.Complete, Resource: configMaps, Namespaced: true, Objects: []observed.Object{proof}})
	if w.model.Release {
		rel := w.release(s, 0)
		in.Release = &rel
	}
	return in
}

// abstract is a real Cleaner as the model sees it; nil is one that is gone.
func (w *world) abstract(c *v1alpha1.Cleaner) (lifemodel.Cleaner, error) {
	if c == nil {
		return lifemodel.Cleaner{}, nil
	}
	decides, err := life.FingerprintWork(c.Work())
	if err != nil {
		return lifemodel.Cleaner{}, err
	}
	out := lifemodel.Cleaner{
		Exists: true, Finalizer: slices.Contains(c.Finalizers, v1alpha1.Finalizer), Deleted: c.DeletionTimestamp != nil,
		Suspended: c.Spec.Suspend, Sink: c.Spec.CloudEventSink != "", Decides: w.decides[decides], Runs: uint8(c.Status.Runs),
	}
	if run := c.Status.Run; run != nil {
		if out.Run, err = w.abstractRun(run); err != nil {
			return lifemodel.Cleaner{}, err
		}
	}
	if run := c.Status.Unsent; run != nil {
		u, err := w.abstractRun(run)
		if err != nil {
			return lifemodel.Cleaner{}, err
		}
		out.Unsent = lifemodel.Report{Number: u.Number, Result: u.Result, Done: u.Done, Replaced: u.Replaced, Left: u.Left}
	}
	return out, nil
}

// abstractRun is a real run as the model sees it.
func (w *world) abstractRun(run *v1alpha1.Run) (lifemodel.Run, error) {
	results := map[v1alpha1.Result]lifemodel.Result{
		"": lifemodel.Open, v1alpha1.ResultCompleted: lifemodel.Completed, v1alpha1.ResultPartial: lifemodel.Partial, v1alpha1.ResultAbandoned: lifemodel.Abandoned,
	}
	out := lifemodel.Run{Number: uint8(run.Number), Decides: w.decides[run.Decides], Result: results[run.Result]}
	for _, text := range run.Rows {
		k, row, err := readRow(text)
		if err != nil {
			return out, err
		}
		for n := range uint8(9) {
			if uid(k, n) == row.UID {
				out.Rows[k].UID = n
			}
		}
		rv, err := strconv.Atoi(row.ResourceVersion)
		if err != nil {
			return out, err
		}
		out.Rows[k].RV = uint8(rv)
	}
	for _, o := range run.Outcomes {
		k, _, err := readRow(o.Row)
		if err != nil {
			return out, err
		}
		set := lifemodel.Rows(1) << k
		switch o.Outcome {
		case v1alpha1.OutcomeDeleted, v1alpha1.OutcomeGone, v1alpha1.OutcomeTerminating:
			out.Done |= set
		case v1alpha1.OutcomeReplaced:
			out.Replaced |= set
		default:
			out.Left |= set
		}
	}
	if run.Helm != nil && run.Result == "" { // the model forgets the release together with the rows
		out.Release.Revision = uint8(run.Helm.Revision)
		for era := range uint8(9) {
			if w.installed(era).Equal(run.Helm.FirstDeployed.Time) {
				out.Release.Era = era
			}
		}
	}
	return out, nil
}

// readRow says which target of the model a recorded row is about.
func readRow(text string) (int, runrow.Row, error) {
	row, err := runrow.ParseRow(text)
	if err != nil {
		return 0, row, err
	}
	k := slices.Index(targetNames[:], row.Name)
	if k < 0 {
		return 0, row, fmt.Errorf("row %q is about no target", text)
	}
	return k, row, nil
}
