// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// thawed is when the watch of stallWatch moves again.
const thawed = 15 * time.Minute

// stallWatch passes over the Cleaner again and again, while the watch stands still after a minute. Pod a stops matching then, and matches
// again 15 seconds before `for: 10m` would end. It returns after how long the Pod is deleted; 0 if it is not.
func (r *rig) stallWatch(every time.Duration) (deleted time.Duration) {
	const matches = 9*time.Minute + 45*time.Second
	start := r.clock.Now()
	for at := time.Duration(0); at <= 30*time.Minute; at += every {
		r.clock.SetTime(start.Add(at))
		switch at {
		case time.Minute:
			r.pods.freeze()
		case 2 * time.Minute:
			r.pods.put(aPod("a", "Running"))
		case matches:
			r.pods.put(aPod("a", "Succeeded"))
		case thawed:
			r.pods.thaw()
		}
		if r.pass(); !slices.Contains(r.pods.names(), "a") {
			return at
		}
	}
	return 0
}

// The watch of a kind stands still. What stops matching meanwhile, and matches again for a moment, has not matched all the time: the first
// request says that the object has changed, and what waited for `for` begins anew when the watch shows it.
func TestAWatchThatStandsStillShortensNoFor(t *testing.T) {
	for name, confirmed := range map[string]bool{"ByTheRequest": false, "ByALiveRead": true} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			c.Spec.Rules[0].For = "10m"
			if confirmed {
				c.Spec.Rules[0].Confirm = []v1alpha1.Confirm{{Target: "pods"}}
			}
			r := newRig(t, c, aPod("a", "Succeeded"))
			deleted := r.stallWatch(15 * time.Second)
			if deleted < thawed+10*time.Minute || deleted > thawed+11*time.Minute {
				t.Errorf("it is deleted after %s, and has been seen to match since %s", deleted, thawed)
			}
			if sent := r.pods.took(); len(sent) > 2 {
				t.Errorf("while the watch stands still it sends %v", sent)
			}
		})
	}
}

// A watch that lags for a moment delays what is due for that moment only.
func TestAWatchThatLagsDelaysForAMoment(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Rules[0].For = "10m"
	r := newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Succeeded"))
	r.pass()
	r.clock.Step(5 * time.Minute)
	r.pass()
	r.clock.Step(5 * time.Minute)
	r.pods.freeze()
	r.pods.put(aPod("a", "Succeeded"))
	r.pass()
	if got := r.pods.names(); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("left %v", got)
	}
	r.pods.thaw()
	r.clock.Step(2 * time.Second)
	r.pass()
	if got := r.pods.names(); len(got) > 0 {
		t.Errorf("left %v", got)
	}
}

// An object changes before each live read. The watch shows each change a moment later: the rule acts all the same, because what it does not
// know is shorter than a hold may be blind.
func TestWhatChangesAllTheTimeIsActedOn(t *testing.T) {
	for name, byRequest := range map[string]bool{"ByALiveRead": false, "ByTheRequest": true} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			c.Spec.Rules[0].For = "10m"
			if !byRequest {
				c.Spec.Rules[0].Confirm = []v1alpha1.Confirm{{Target: "pods"}}
			}
			r := newRig(t, c, aPod("a", "Succeeded"))
			start, deleted := r.clock.Now(), time.Duration(0)
			for at := time.Duration(0); at <= 11*time.Minute && deleted == 0; at += time.Second {
				r.clock.SetTime(start.Add(at))
				r.pods.freeze()
				r.pods.put(aPod("a", "Succeeded"))
				if r.pass(); !slices.Contains(r.pods.names(), "a") {
					deleted = at
				}
			}
			if deleted < 10*time.Minute || deleted > 10*time.Minute+10*time.Second {
				t.Errorf("it is deleted after %s", deleted)
			}
		})
	}
}

// A watch goes on, but shows what was long ago. It is believed up to a live read only when it shows what that read showed.
func TestAWatchThatStaysBehindShortensNoFor(t *testing.T) {
	for name, byRequest := range map[string]bool{"ByALiveRead": false, "ByTheRequest": true} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			c.Spec.Rules[0].For = "1m"
			if !byRequest {
				c.Spec.Rules[0].Confirm = []v1alpha1.Confirm{{Target: "pods"}}
			}
			r := newRig(t, c, aPod("a", "Succeeded"))
			start := r.clock.Now()
			var shown []*unstructured.Unstructured
			for at := time.Duration(0); at <= 10*time.Minute; at += time.Second {
				r.clock.SetTime(start.Add(at))
				r.pods.put(aPod("a", "Succeeded"))
				r.pods.freeze()
				shown = append(shown, r.pods.stale["a"])
				r.pods.stale["a"] = shown[max(0, len(shown)-30)]
				if r.pass(); !slices.Contains(r.pods.names(), "a") {
					t.Fatalf("it is deleted after %s, by a watch that is half a minute behind", at)
				}
			}
		})
	}
}

// The watch stands still, and another rule patches the object, which was read live for that. What the patch answered is known, and what was
// before it is not.
func TestAPatchHidesNoWatchThatStandsStill(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Rules[0].For = "10m"
	mark := v1alpha1.Rule{
		Name: "mark", ForEach: "pods.items", When: `!has(item.metadata.annotations) && time > timestamp("2026-01-01T01:09:50Z")`,
		Actions: []v1alpha1.RuleAction{{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"metadata": {"annotations": {"a": "b"}}}`}}},
	}
	c.Spec.Rules = append([]v1alpha1.Rule{mark}, c.Spec.Rules...)
	r := newRig(t, c, aPod("a", "Succeeded"))
	deleted := r.stallWatch(5 * time.Second)
	if deleted < thawed+10*time.Minute || deleted > thawed+11*time.Minute {
		t.Errorf("it is deleted after %s, and has been seen to match since %s; sent %v", deleted, thawed, r.pods.took())
	}
}
