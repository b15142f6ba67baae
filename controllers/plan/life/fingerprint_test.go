// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vtex/cleaner/api/v1alpha1"
)

func TestDecidesSeesWhatDecides(t *testing.T) {
	spec := func(change func(*v1alpha1.Work)) string {
		s := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "1h", Parameters: &runtime.RawExtension{Raw: []byte(`{"a":1,"b":2}`)}}, Targets: []v1alpha1.ClusterTarget{podTarget("pods")}}
		change(s)
		d, err := FingerprintWork(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	base := spec(func(*v1alpha1.Work) {})
	for name, change := range map[string]func(*v1alpha1.Work){
		"suspend": func(s *v1alpha1.Work) { s.Suspend = true },
		"mode":    func(s *v1alpha1.Work) { s.Mode = v1alpha1.ModeDryRun },
		"retry":   func(s *v1alpha1.Work) { s.Retry = &v1alpha1.Retry{Period: "5h"} },
		"sink":    func(s *v1alpha1.Work) { s.CloudEventSink = "http://s" },
		"auth": func(s *v1alpha1.Work) {
			s.CloudEventSinkAuth = &v1alpha1.ClusterSinkAuth{Type: v1alpha1.SinkAuthHMAC}
		},
		"writing": func(s *v1alpha1.Work) { s.Parameters.Raw = []byte(`{"b": 2, "a": 1}`) },
	} {
		if spec(change) != base {
			t.Errorf("a change of %s counts as an edit", name)
		}
	}
	for name, change := range map[string]func(*v1alpha1.Work){
		"ttl":        func(s *v1alpha1.Work) { s.TTL = "2h" },
		"conditions": func(s *v1alpha1.Work) { s.Conditions = []string{"true"} },
		"delete":     func(s *v1alpha1.Work) { s.Targets[0].Delete = true },
		"selector":   func(s *v1alpha1.Work) { s.Targets[0].Reference.MatchLabels = nil },
		"helm":       func(s *v1alpha1.Work) { s.Helm = &v1alpha1.Helm{Release: "r"} },
		"parameters": func(s *v1alpha1.Work) { s.Parameters.Raw = []byte(`{"a":1,"b":3}`) },
	} {
		if spec(change) == base {
			t.Errorf("a change of %s does not count as an edit", name)
		}
	}
}

// The fingerprint by which an earlier version has begun a run is that of this one too, or each upgrade stops all open runs: if
// this value has to change, change decidesPrefix with it.
func TestDecidesOfAnEarlierVersion(t *testing.T) {
	w := &v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{
			TTL: "1h", Lifecycle: v1alpha1.LifecycleOnce, Parameters: &runtime.RawExtension{Raw: []byte(`{"b":2.50,"a":"<"}`)}, Conditions: []string{"true"},
			Rules: []v1alpha1.Rule{{Name: "r", ForEach: "pods.items", When: "true", Actions: []v1alpha1.RuleAction{{}}}},
		},
		Targets: []v1alpha1.ClusterTarget{podTarget("pods")}, ServiceAccount: &v1alpha1.ServiceAccountReference{Name: "bot"},
	}
	const want = "v1:c54c8ceee6d8cfb10695ef37aafd3afd"
	if got, err := FingerprintWork(w); err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
