// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReleasesOfAWork has the Work of each kind select the Secrets of releases, without a change of the spec.
func TestReleasesOfAWork(t *testing.T) {
	own := HelmReleases{MatchLabels: map[string]string{"name": "web"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}}}
	everywhere := &ClusterHelmReleases{
		HelmReleases: own, Namespaces: []string{"a"}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"b": "c"}}, ExcludeNamespaces: []string{"d"},
	}
	reference := Reference{
		Version: "v1", Kind: "Secret", FieldSelector: "type=helm.sh/release.v1", MatchLabels: map[string]string{"owner": "helm", "name": "web"}, MatchExpressions: own.MatchExpressions,
	}
	of := ClusterReference{Reference: reference, Namespaces: []string{"a"}, NamespaceSelector: everywhere.NamespaceSelector, ExcludeNamespaces: []string{"d"}}
	cleaner := &Cleaner{Spec: CleanerSpec{Targets: []Target{{Name: "a", HelmReleases: &own}, {Name: "b", Reference: Reference{Version: "v1", Kind: "Pod"}}}}}
	cluster := &ClusterCleaner{Spec: ClusterCleanerSpec{Targets: []ClusterTarget{{Name: "a", HelmReleases: everywhere}}}}
	for _, c := range []struct {
		owner Owner
		want  ClusterReference
	}{{cleaner, ClusterReference{Reference: reference}}, {cluster, of}} {
		before := c.owner.DeepCopyOwner()
		w := c.owner.Work()
		if !w.Targets[0].IsOfReleases() || w.Targets[0].HasOwnReference() || w.Targets[0].IsOfAnyKind() || !w.Targets[0].IsIncluded() {
			t.Errorf("its target is %+v", w.Targets[0])
		}
		if diff := cmp.Diff(c.want, w.Targets[0].Reference); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, c.owner); diff != "" {
			t.Errorf("the spec was changed (-before +after):\n%s", diff)
		}
		text, err := json.Marshal(c.owner)
		if err != nil || strings.Contains(string(text), "reference\":{}") {
			t.Errorf("it is written as %s, %v", text, err)
		}
		if diff := cmp.Diff(w.Targets, ResolveTargets(w.Targets)); diff != "" {
			t.Errorf("once more it is another:\n%s", diff)
		}
	}
	if w := cleaner.Work(); w.Targets[1].IsOfReleases() || !w.Targets[1].HasOwnReference() {
		t.Errorf("a target of Pods is %+v", w.Targets[1])
	}
	both := ResolveTargets([]ClusterTarget{{HelmReleases: everywhere, Reference: ClusterReference{Reference: Reference{Version: "v1", Kind: "Pod"}}}})
	if !both[0].HasOwnReference() || both[0].Reference.Kind != "Pod" {
		t.Errorf("a target of both is %+v", both[0])
	}
}
