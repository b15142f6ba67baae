// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/celtest"
)

// Whatever changes between two evaluations of a decision, objects, their order, states of targets and the time: a plan made with what
// was found out before is the plan that is made without.
func TestValuesChangeNoPlan(t *testing.T) {
	reused := 0
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 9))
		w := cluster(v1alpha1.Rule{
			Name: "r", ForEach: "variables.suspects", When: `!(item.metadata.name in variables.kept) && variables.many`, Key: "item.metadata.name",
			Reason:  `string(variables.young) + " " + string(variables.pods) + " " + string(params.size())`,
			Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}},
		})
		w.Variables = []v1alpha1.Variable{
			{Name: "nodesByName", Expression: `nodes.items.indexBy(n, n.metadata.name)`},
			{Name: "suspects", Expression: `pods.items.filter(p, !(p.metadata.name in variables.nodesByName) && p.metadata.?labels.tier.orValue("") != "1")`},
			{Name: "kept", Expression: `pools == null ? [] : pools.items.map(p, p.metadata.name)`},
			{Name: "pods", Expression: `pods.items.size()`},
			{Name: "many", Expression: `nodes.items.size() + variables.pods > 2`},
			{Name: "young", Expression: `time < timestamp("2026-01-02T00:00:03Z")`},
		}
		w.Targets[2].OnMissing = v1alpha1.OnMissingAsNull
		in := over(t, w, p("a"), p("b"), p("c"))
		in.Values = NewValues(0)
		for step := range 25 {
			changeSnapshot(random, &in)
			if in.Values.findFor(&in) != nil {
				reused++
			}
			fresh := in
			fresh.Values = nil
			want, got := ComputePlan(t.Context(), fresh), ComputePlan(t.Context(), in)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Plan{}, "Results", "Base"), cmpopts.IgnoreUnexported(Plan{}, Step{}), cmpopts.EquateErrors()); diff != "" {
				t.Fatalf("seed %d, step %d (-fresh +with values):\n%s", seed, step, diff)
			}
		}
	}
	if reused < 200 {
		t.Errorf("values were kept %d times", reused)
	}
}

// changeSnapshot changes something that expressions see, or nothing.
func changeSnapshot(random *rand.Rand, in *Input) {
	in.Snapshot = slices.Clone(in.Snapshot)
	t := &in.Snapshot[random.IntN(3)]
	objects := slices.Clone(t.Objects)
	name := []string{"a", "b", "c", "d", "n1"}[random.IntN(5)]
	switch random.IntN(7) {
	case 0: // an object comes
		if _, there := observed.SearchObject(objects, namespaceOf(t), name); !there {
			at, _ := observed.SearchObject(objects, namespaceOf(t), name)
			objects = slices.Insert(objects, at, object(t.Resource, "X", namespaceOf(t), name))
		}
	case 1: // one goes
		if len(objects) > 0 {
			objects = slices.Delete(objects, 0, 1)
		}
	case 2: // one is made again under its name
		if len(objects) > 0 {
			objects[0] = withTier(&objects[0], strconv.Itoa(random.IntN(3)))
			objects[0].UID = types.UID(strconv.Itoa(random.Int()))
		}
	case 3: // one has changed
		if len(objects) > 0 {
			objects[0] = withTier(&objects[0], strconv.Itoa(random.IntN(3)))
			objects[0].ResourceVersion = strconv.Itoa(random.Int())
		}
	case 4:
		in.Now = in.Now.Add(time.Second)
	case 5:
		t.State = []observed.TargetState{observed.Complete, observed.NoSuchKind}[random.IntN(2)]
	}
	t.Objects = objects
}

// withTier is an object with another label.
func withTier(o *observed.Object, tier string) observed.Object {
	out := object(o.Resource, "X", o.Namespace, o.Name)
	out.UID, out.ResourceVersion = o.UID, o.ResourceVersion
	out.Value["metadata"].(map[string]any)["labels"] = map[string]any{"tier": tier}
	return out
}

// namespaceOf is where the objects of a target are.
func namespaceOf(t *observed.Target) string {
	if t.Namespaced {
		return "shop"
	}
	return ""
}

// What takes little is not kept, and values serve no other Programs.
func TestValuesThatAreNotKept(t *testing.T) {
	w := cluster(v1alpha1.Rule{Name: "r", ForEach: "variables.all", When: "true", Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}})
	w.Variables = []v1alpha1.Variable{{Name: "all", Expression: "pods.items.map(p, p)"}}
	in := over(t, w, p("a"))
	in.Values = NewValues(FewValueBytes)
	if ComputePlan(t.Context(), in); in.Values.findFor(&in) != nil {
		t.Error("what takes little is kept")
	}
	in.Values = NewValues(0)
	if ComputePlan(t.Context(), in); in.Values.findFor(&in) == nil {
		t.Error("nothing is kept")
	}
	other := over(t, w, p("a"))
	other.Values, other.Programs = in.Values, celtest.CompileWork(t, w)
	if other.Values.findFor(&other) != nil {
		t.Error("values of other Programs serve")
	}
}

var _ celenv.Memory = (*countedMemory)(nil)

// countedMemory counts what is kept.
type countedMemory struct{ kept int64 }

func (m *countedMemory) HoldBytes(int64) bool { return true }

func (m *countedMemory) KeepBytes(n int64) { m.kept += n }

// Values count for the memory that evaluations share.
func TestValuesCount(t *testing.T) {
	w := cluster(v1alpha1.Rule{Name: "r", ForEach: "variables.all", When: "true", Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}})
	w.Variables = []v1alpha1.Variable{{Name: "all", Expression: `pods.items.map(p, p.metadata.name + lists.range(1000).map(x, "x").join())`}}
	in, memory := over(t, w, p("a")), &countedMemory{}
	in.Values, in.Memory = NewValues(0), memory
	if ComputePlan(t.Context(), in); memory.kept < 1000 {
		t.Errorf("values count for %d bytes", memory.kept)
	}
}
