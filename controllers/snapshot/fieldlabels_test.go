// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// objectOf reads an object of a manifest.
func objectOf(t *testing.T, manifest string) observed.Object {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	return FromUnstructured(schema.GroupVersionResource{}, u)
}

// Each kind of the API server has the labels that the API server gives it, and each reads its own place. No two places of a manifest
// have the same value, but those that are one.
func TestBuiltinFieldLabels(t *testing.T) {
	certificate := []string{"metadata.name=o", "spec.signerName=example.test/s"}
	for resource, tc := range map[string]struct {
		reason, manifest string
		want             []string
		clusterScoped    bool
	}{
		"pods": {
			"the IP is the first one, and podIPs is a label that is never filled",
			`{spec: {nodeName: nn, restartPolicy: Never, schedulerName: s, serviceAccountName: a, hostNetwork: true},
			  status: {phase: Failed, podIP: 10.0.0.9, podIPs: [{ip: 10.0.0.1}, {ip: 10.0.0.2}], nominatedNodeName: m}}`,
			[]string{
				"spec.host=nn", "spec.nodeName=nn", "spec.restartPolicy=Never", "spec.schedulerName=s", "spec.serviceAccountName=a", "spec.hostNetwork=true",
				"status.phase=Failed", "status.podIP=10.0.0.1", "status.podIPs=", "status.nominatedNodeName=m",
			}, false,
		},
		"events": {
			"an old Event names its source",
			`{involvedObject: {kind: K, namespace: s, name: nn, uid: u, apiVersion: v1, resourceVersion: "7", fieldPath: f},
			  reason: R, reportingComponent: c, source: {component: old, host: h}, type: Normal}`,
			[]string{
				"involvedObject.kind=K", "involvedObject.namespace=s", "involvedObject.name=nn", "involvedObject.uid=u", "involvedObject.apiVersion=v1",
				"involvedObject.resourceVersion=7", "involvedObject.fieldPath=f", "reason=R", "reportingComponent=c", "source=old", "type=Normal",
			}, false,
		},
		"events.events.k8s.io": {
			"a new one names what it regards",
			`{regarding: {kind: K, namespace: s, name: nn, uid: u, apiVersion: v1, resourceVersion: "7", fieldPath: f}, reason: R, reportingController: c, type: Normal}`,
			[]string{
				"regarding.kind=K", "regarding.namespace=s", "regarding.name=nn", "regarding.uid=u", "regarding.apiVersion=v1",
				"regarding.resourceVersion=7", "regarding.fieldPath=f", "reason=R", "reportingController=c", "type=Normal",
			}, false,
		},
		"namespaces":             {"it lives in none", "{status: {phase: Active}}", []string{"status.phase=Active"}, true},
		"nodes":                  {"it lives in none", "{spec: {unschedulable: true}}", []string{"spec.unschedulable=true"}, true},
		"secrets":                {"type is at the top", "{type: Opaque, spec: {type: not}}", []string{"type=Opaque"}, false},
		"services":               {"type is of the spec", "{type: not, spec: {type: NodePort, clusterIP: None}}", []string{"spec.clusterIP=None", "spec.type=NodePort"}, false},
		"replicationcontrollers": {"a number", "{spec: {replicas: 4}, status: {replicas: 3}}", []string{"status.replicas=3"}, false},
		"jobs.batch":             {"the label has a name of its own", "{status: {succeeded: 2, successful: 9}}", []string{"status.successful=2"}, false},
		"certificatesigningrequests.certificates.k8s.io": {"it lives in none", "{spec: {signerName: example.test/s}}", certificate[1:], true},
		"clustertrustbundles.certificates.k8s.io":        {"it lives in none", "{spec: {signerName: example.test/s}}", certificate[1:], true},
		"podcertificaterequests.certificates.k8s.io": {
			"it lives in namespaces, and selectors do not say which", "{spec: {signerName: example.test/s, podName: p, nodeName: nn}}",
			[]string{certificate[1], "spec.podName=p", "spec.nodeName=nn"}, true,
		},
		"resourceslices.resource.k8s.io": {"it lives in none", "{spec: {nodeName: nn, driver: d}}", []string{"spec.nodeName=nn", "spec.driver=d"}, true},
		"configmaps":                     {"all that others have", "{data: {a: b}}", nil, false},
		"nodes.example.com":              {"another group's kind is another", "{spec: {unschedulable: true}}", nil, false},
	} {
		t.Run(resource, func(t *testing.T) {
			r := schema.ParseGroupResource(resource)
			l, o := BuiltinFieldLabels(r), objectOf(t, tc.manifest)
			o.Namespace, o.Name = "home", "o"
			want := append([]string{"metadata.name=o"}, tc.want...)
			if !tc.clusterScoped {
				want = append(want, "metadata.namespace=home")
			}
			var got []string
			for _, name := range l.listNames() {
				got = append(got, name+"="+l.readValue(name, &o))
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if l.HasOwn() != (tc.want != nil) {
				t.Errorf("it has labels of its own: %t", l.HasOwn())
			}
			if wrong := l.CheckSelector(r, fields.ParseSelectorOrDie("metadata.namespace=home")); (wrong != "") != tc.clusterScoped {
				t.Errorf("%s: selected by namespace: %s", tc.reason, wrong)
			}
		})
	}
}

// What an object does not say, the API server fills in for some labels.
func TestFieldsThatAreNotThere(t *testing.T) {
	for _, tc := range []struct{ resource, manifest, label, want string }{
		{"pods", "{}", "spec.hostNetwork", "false"},
		{"nodes", "{spec: {}}", "spec.unschedulable", "false"},
		{"nodes", "{spec: {unschedulable: {}}}", "spec.unschedulable", "false"},
		{"nodes", "{spec: {unschedulable: [true]}}", "spec.unschedulable", "false"},
		{"nodes", "{spec: unschedulable}", "spec.unschedulable", "false"},
		{"replicationcontrollers", "{}", "status.replicas", "0"},
		{"jobs.batch", "{status: {succeeded: null}}", "status.successful", "0"},
		{"pods", "{spec: {hostNetwork: false}}", "spec.hostNetwork", "false"},
		{"pods", "{}", "status.podIP", ""},
		{"pods", "{status: {podIPs: []}}", "status.podIP", ""},
		{"pods", "{status: {podIPs: [10.0.0.1]}}", "status.podIP", ""},
		{"pods", "{status: {podIPs: [{ip: 7}]}}", "status.podIP", ""},
		{"events", "{reportingComponent: new}", "source", "new"},
		{"events", `{reportingComponent: new, source: {component: ""}}`, "source", "new"},
		{"events", "{}", "source", ""},
		{"secrets", "{}", "spec.unheard", ""},
	} {
		o := objectOf(t, tc.manifest)
		if got := BuiltinFieldLabels(schema.ParseGroupResource(tc.resource)).readValue(tc.label, &o); got != tc.want {
			t.Errorf("%s of %s %s: got %q, want %q", tc.label, tc.resource, tc.manifest, got, tc.want)
		}
	}
}

// What is wrong with a selector says which labels there are.
func TestCheckSelector(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for _, tc := range []struct {
		namespaced bool
		paths      []string
		selector   string
		want       string
	}{
		{true, []string{".spec.color", ".spec.size"}, "spec.color=red,spec.size!=3,metadata.name=a,metadata.namespace=b", ""},
		{true, []string{".spec.color"}, "", ""},
		{true, []string{".spec.size", ".spec.color"}, "spec.color=red,status.phase=x", `widgets.example.com cannot be selected by field "status.phase": they have metadata.name, metadata.namespace, spec.color, spec.size`},
		{false, nil, "metadata.namespace=b", `widgets.example.com cannot be selected by field "metadata.namespace": they have metadata.name`},
		{false, nil, "metadata.uid=b", `widgets.example.com cannot be selected by field "metadata.uid": they have metadata.name`},
	} {
		if got := CustomFieldLabels(tc.namespaced, tc.paths).CheckSelector(widgets, fields.ParseSelectorOrDie(tc.selector)); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.selector, got, tc.want)
		}
	}
}

func TestNeedsValue(t *testing.T) {
	for selector, want := range map[string]bool{
		"": false, "metadata.name=a": false, "metadata.name!=a,metadata.namespace=b": false, "spec.color=red": true, "metadata.name=a,status.phase!=x": true, "metadata=x": true,
	} {
		if got := NeedsValue(fields.ParseSelectorOrDie(selector)); got != want {
			t.Errorf("%q needs more than metadata: %t", selector, got)
		}
	}
}

// Whatever a selector says, it matches an object as it matches the fields that the object has: an absent one is empty.
func TestSelectorsMatchAsThoseOfTheAPIServer(t *testing.T) {
	paths := []string{"spec.color", "spec.size", "status.phase"}
	l := CustomFieldLabels(true, paths)
	value := rapid.SampledFrom([]string{"", "a", "b", "1"})
	rapid.Check(t, func(t *rapid.T) {
		o := observed.Object{Ref: observed.Ref{Namespace: value.Draw(t, "namespace"), Name: value.Draw(t, "name")}, Value: map[string]any{}}
		set := fields.Set{"metadata.namespace": o.Namespace, "metadata.name": o.Name}
		for _, p := range paths {
			if rapid.Bool().Draw(t, "has "+p) {
				set[p] = value.Draw(t, p)
				top, leaf, _ := strings.Cut(p, ".")
				if o.Value[top] == nil {
					o.Value[top] = map[string]any{}
				}
				o.Value[top].(map[string]any)[leaf] = set[p]
			}
		}
		var terms []fields.Selector
		for _, label := range rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(l.readers))), 0, 3).Draw(t, "labels") {
			if rapid.Bool().Draw(t, "equal") {
				terms = append(terms, fields.OneTermEqualSelector(label, value.Draw(t, "is")))
			} else {
				terms = append(terms, fields.OneTermNotEqualSelector(label, value.Draw(t, "is not")))
			}
		}
		if rapid.Bool().Draw(t, "named") {
			terms = append(terms, fields.OneTermEqualSelector("metadata.name", value.Draw(t, "of name")), fields.OneTermNotEqualSelector("metadata.namespace", value.Draw(t, "not in")))
		}
		s := fields.AndSelectors(terms...)
		if got, want := l.MatchesObject(s, &o), s.Matches(set); got != want {
			t.Fatalf("%q of %v: got %t", s, set, got)
		}
	})
}
