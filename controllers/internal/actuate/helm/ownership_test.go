// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func TestReasonToKeep(t *testing.T) {
	cleaners := func(version string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "cleaner.vtex.dev", Version: version, Resource: "cleaners"}
	}
	want := UninstallRequest{Namespace: "team", Name: "shop", Self: observed.Ref{Resource: cleaners("v1alpha1"), Namespace: "team", Name: "me"}}
	config := observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "team", Name: "a"}
	free := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "clusterwidgets"}
	record := observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespace: "team", Name: "sh.helm.release.v1.bank.v1"}
	labels := map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	annotations := map[string]string{"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "team"}
	with := func(m map[string]string, key, value string) map[string]string {
		m = maps.Clone(m)
		m[key] = value
		return m
	}

	cases := map[string]struct {
		reason              string
		ref                 observed.Ref
		labels, annotations map[string]string
		account             string
		kept                bool
	}{
		"Own":                {reason: "what the release owns goes", ref: config, labels: labels, annotations: annotations},
		"Bare":               {reason: "the manifest alone proves nothing", ref: config, kept: true},
		"OtherRelease":       {reason: "it was taken over", ref: config, labels: labels, annotations: with(annotations, "meta.helm.sh/release-name", "bank"), kept: true},
		"OtherNamespaceOf":   {reason: "a release of this name elsewhere is another one", ref: config, labels: labels, annotations: with(annotations, "meta.helm.sh/release-namespace", "bank"), kept: true},
		"OtherManager":       {reason: "Helm no longer manages it", ref: config, labels: with(labels, "app.kubernetes.io/managed-by", "Kustomize"), annotations: annotations, kept: true},
		"ProtectedLabel":     {reason: "a label protects", ref: config, labels: with(labels, "cleaner.vtex.dev/protect", "true"), annotations: annotations, kept: true},
		"ProtectedNote":      {reason: "an annotation protects", ref: config, labels: labels, annotations: with(annotations, "cleaner.vtex.dev/protect", "true"), kept: true},
		"NotProtected":       {reason: "only true protects", ref: config, labels: with(labels, "cleaner.vtex.dev/protect", "false"), annotations: annotations},
		"Policy":             {reason: "whoever annotated the object meant it", ref: config, labels: labels, annotations: with(annotations, "helm.sh/resource-policy", "keep"), kept: true},
		"Elsewhere":          {reason: "nothing outside the namespace is ever deleted", ref: observed.Ref{Resource: config.Resource, Namespace: "kube-system", Name: "a"}, labels: labels, annotations: annotations, kept: true},
		"ClusterScoped":      {reason: "nor what lies in none", ref: observed.Ref{Resource: config.Resource, Name: "a"}, labels: labels, annotations: annotations, kept: true},
		"ElsewhereAs":        {reason: "an account answers for what lies elsewhere", ref: observed.Ref{Resource: config.Resource, Namespace: "bank", Name: "a"}, labels: labels, annotations: annotations, account: "deleter"},
		"ElsewhereBare":      {reason: "if it belongs to the release", ref: observed.Ref{Resource: config.Resource, Namespace: "bank", Name: "a"}, account: "deleter", kept: true},
		"ElsewhereProtected": {reason: "and is not in a protected namespace", ref: observed.Ref{Resource: config.Resource, Namespace: "kube-system", Name: "a"}, labels: labels, annotations: annotations, account: "deleter", kept: true},
		"ClusterScopedAs":    {reason: "a cluster hangs on what lies in no namespace", ref: observed.Ref{Resource: config.Resource, Name: "a"}, labels: labels, annotations: annotations, account: "deleter", kept: true},
		"ClusterScopedFree":  {reason: "the administrator has given the kind free", ref: observed.Ref{Resource: free, Name: "a"}, labels: labels, annotations: annotations, account: "deleter"},
		"Self":               {reason: "the Cleaner goes last, and not by Helm", ref: want.Self, labels: labels, annotations: annotations, kept: true},
		"SelfByOtherVersion": {reason: "a Cleaner is served in two versions", ref: observed.Ref{Resource: cleaners("v1alpha"), Namespace: "team", Name: "me"}, labels: labels, annotations: annotations, kept: true},
		"OtherCleaner":       {reason: "another Cleaner of the chart is an object as any other", ref: observed.Ref{Resource: cleaners("v1alpha"), Namespace: "team", Name: "you"}, labels: labels, annotations: annotations},
		"Record":             {reason: "a manifest must not name the record of a release", ref: record, labels: labels, annotations: annotations, kept: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u := &Uninstaller{protection: plan.Protection{Namespaces: []string{"kube-system"}, AllowedKinds: []string{"clusterwidgets.example.com"}}}
			if tc.account != "" {
				u.account = types.NamespacedName{Namespace: "team", Name: tc.account}
			}
			got := u.reasonToKeep(tc.ref, &metav1.ObjectMeta{Labels: tc.labels, Annotations: tc.annotations}, want)
			if kept := got != ""; kept != tc.kept {
				t.Errorf("%s: got reason %q, want kept: %v", tc.reason, got, tc.kept)
			}
		})
	}
}
