// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

var (
	coreEvents  = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	groupEvents = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
)

// event is one Event, as it is served by one of the two groups that serve Events.
func event(by schema.GroupVersionResource, change ...func(*observed.Object)) observed.Object {
	o := object(by, "Event", "shop", "a")
	if by == groupEvents {
		o.Value["regarding"] = map[string]any{"kind": "Pod"}
	} else {
		o.Value["involvedObject"] = map[string]any{"kind": "Pod"}
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func eventsSeen(by schema.GroupVersionResource, objects ...observed.Object) observed.Target {
	return observed.Target{State: observed.Complete, Resource: by, Namespaced: true, Objects: objects}
}

func eventTarget(name string, by schema.GroupVersionResource, change ...func(*v1alpha1.ClusterTarget)) v1alpha1.ClusterTarget {
	return target(name, "Event", append([]func(*v1alpha1.ClusterTarget){func(t *v1alpha1.ClusterTarget) {
		t.Reference.APIGroup, t.Reference.MatchLabels = by.Group, map[string]string{}
	}}, change...)...)
}

// TestADeletionStaysInItsGroup shows that an object that two groups serve is deleted by the one that its target names, for
// which the author's rights were reviewed, at the version that conditions saw by the other one.
func TestADeletionStaysInItsGroup(t *testing.T) {
	older := func(o *observed.Object) { o.ResourceVersion = "6" }
	bare := func(o *observed.Object) { o.Value = nil }
	marked := func(o *observed.Object) { o.Protected = true }
	cases := map[string]struct {
		reason  string
		targets []v1alpha1.ClusterTarget
		seen    []observed.Target
		want    []string
	}{
		"SeenByTheOther": {
			"what is looked at by another group is deleted by its own",
			[]v1alpha1.ClusterTarget{eventTarget("other", groupEvents), eventTarget("doomed", coreEvents, deleted, quiet)},
			[]observed.Target{eventsSeen(groupEvents, event(groupEvents)), eventsSeen(coreEvents, event(coreEvents, bare))},
			[]string{"targets.doomed events/v1 shop/a uid-a 7"},
		},
		"SeenByBoth": {
			"also if conditions see both",
			[]v1alpha1.ClusterTarget{eventTarget("other", groupEvents), eventTarget("doomed", coreEvents, deleted)},
			[]observed.Target{eventsSeen(groupEvents, event(groupEvents)), eventsSeen(coreEvents, event(coreEvents))},
			[]string{"targets.doomed events/v1 shop/a uid-a 7"},
		},
		"TheOtherWay": {
			"and the other way about",
			[]v1alpha1.ClusterTarget{eventTarget("other", coreEvents), eventTarget("doomed", groupEvents, deleted)},
			[]observed.Target{eventsSeen(coreEvents, event(coreEvents)), eventsSeen(groupEvents, event(groupEvents))},
			[]string{"targets.doomed events.events.k8s.io/v1 shop/a uid-a 7"},
		},
		"AtTheVersionSeen": {
			"at the version that conditions saw: another one is refused, and they are asked again",
			[]v1alpha1.ClusterTarget{eventTarget("other", groupEvents), eventTarget("doomed", coreEvents, deleted, quiet)},
			[]observed.Target{eventsSeen(groupEvents, event(groupEvents, older)), eventsSeen(coreEvents, event(coreEvents))},
			[]string{"targets.doomed events/v1 shop/a uid-a 6"},
		},
		"ProtectedAsSeen": {
			"what was marked as protected when the other was read is not deleted",
			[]v1alpha1.ClusterTarget{eventTarget("other", groupEvents), eventTarget("doomed", coreEvents, deleted, quiet)},
			[]observed.Target{eventsSeen(groupEvents, event(groupEvents, marked)), eventsSeen(coreEvents, event(coreEvents))},
			nil,
		},
		"OwnFirst": {
			"if conditions see it by its own group, in whichever target, that is what is deleted",
			[]v1alpha1.ClusterTarget{eventTarget("other", groupEvents), eventTarget("own", coreEvents), eventTarget("doomed", coreEvents, deleted, quiet)},
			[]observed.Target{eventsSeen(groupEvents, event(groupEvents)), eventsSeen(coreEvents, event(coreEvents, older)), eventsSeen(coreEvents, event(coreEvents))},
			[]string{"targets.doomed events/v1 shop/a uid-a 6"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := ComputePlan(t.Context(), input(t, &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: tc.targets}, tc.seen...))
			var got []string
			for i := range p.Steps {
				got = append(got, p.Steps[i].MakeRow().String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAnObjectStandsInTargetsOfBothGroups shows that what is done to an object by one group counts against limits.maxPercent
// of a target that shows it by the other, and that both are read live when it has changed.
func TestAnObjectStandsInTargetsOfBothGroups(t *testing.T) {
	s := observed.Snapshot{eventsSeen(groupEvents, event(groupEvents)), eventsSeen(coreEvents, event(coreEvents))}
	o := event(coreEvents)
	if diff := cmp.Diff([]int{0, 1}, s.TargetsOf(&o)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
