// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
)

var pods, nodes = schema.GroupVersionResource{Version: "v1", Resource: "pods"}, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// newObject returns an object at version 7.
func newObject(namespace, name string) Object {
	return Object{
		Ref: Ref{Resource: pods, Namespace: namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
		Value: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": namespace, "name": name, "uid": "uid-" + name},
		},
	}
}

func newPod(name string) Object { return newObject("shop", name) }

// seen is a target that was read completely.
func seen(objects ...Object) Target {
	return Target{State: Complete, Resource: pods, Namespaced: true, Objects: objects}
}

func TestWhatWasReadLiveStandsInItsPlace(t *testing.T) {
	names := func(objects []Object) (out []string) {
		for _, o := range objects {
			out = append(out, o.Namespace+"/"+o.Name+"@"+o.ResourceVersion)
		}
		return out
	}
	other := newObject("other", "x")
	newer, added := newPod("b"), newPod("aa")
	newer.ResourceVersion = "9"
	s := Snapshot{seen(other, newPod("a"), newPod("b"), newPod("c")), {State: Unsynced}}
	got := s.WithLive(map[Read]*Object{
		{Target: 0, Namespace: "shop", Name: "b"}:   &newer,
		{Target: 0, Namespace: "shop", Name: "a"}:   nil,
		{Target: 0, Namespace: "shop", Name: "z"}:   nil,
		{Target: 0, Namespace: "shop", Name: "aa"}:  &added,
		{Target: 0, Namespace: "another", Name: ""}: nil,
		{Target: 1, Name: "n"}:                      &added,
	})
	if diff := cmp.Diff([]string{"other/x@7", "shop/aa@7", "shop/b@9", "shop/c@7"}, names(got[0].Objects)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(got[1].Objects) > 0 || got[1].State != Unsynced {
		t.Errorf("one object does not make a target known: %+v", got[1])
	}
	if diff := cmp.Diff([]string{"other/x@7", "shop/a@7", "shop/b@7", "shop/c@7"}, names(s[0].Objects)); diff != "" {
		t.Errorf("the snapshot was changed:\n%s", diff)
	}
	whole := s.WithTarget(1, Target{State: Complete, Resource: nodes, Objects: []Object{newObject("", "n1")}})
	if len(whole[1].Objects) != 1 || s[1].State != Unsynced {
		t.Error("a target that was read as a whole stands as it was read")
	}
}

func TestTargetsOf(t *testing.T) {
	s := Snapshot{seen(newPod("a"), newPod("b")), Target{State: Complete, Resource: nodes, Objects: []Object{newObject("", "a")}}, seen(newPod("b")), seen(newPod("a")), {State: Unsynced, Resource: pods}}
	a, anew, gone := newPod("a"), newPod("a"), newPod("z")
	anew.UID = "another"
	cases := map[string]struct {
		reason string
		object Object
		want   []int
	}{
		"Some":     {"each target of its kind that has it", a, []int{0, 3}},
		"MadeAnew": {"another one of its name is not it", anew, nil},
		"Gone":     {"none has it", gone, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, s.TargetsOf(&tc.object)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWhatObjectsAreCalled(t *testing.T) {
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	for name, tc := range map[string]struct {
		ref  Ref
		want string
	}{
		"Namespaced":          {Ref{Resource: pods, Kind: "Pod", Namespace: "shop", Name: "a"}, "Pod shop/a"},
		"ClusterScoped":       {Ref{Resource: nodes, Kind: "Node", Name: "n"}, "Node n"},
		"UnknownKind":         {Ref{Resource: widgets, Namespace: "shop", Name: "a"}, "widgets.example.com shop/a"},
		"UnknownKindOfCore":   {Ref{Resource: nodes, Name: "n"}, "nodes n"},
		"WithoutAnythingElse": {Ref{Name: "a"}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.ref.String(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What a message calls an object does not identify it: a row, which has no kind, is of the same version, and kinds of two groups can have the
// same name.
func TestIsVersion(t *testing.T) {
	a := Ref{Resource: pods, Kind: "Pod", Namespace: "shop", Name: "a", UID: "uid", ResourceVersion: "7"}
	row := a
	row.Kind = ""
	if !a.IsVersion(row) || !row.IsVersion(a) {
		t.Error("the same version counts as another where its kind is not known")
	}
	for name, change := range map[string]func(r *Ref){
		"Resource":  func(r *Ref) { r.Resource.Group = "example.com" },
		"Namespace": func(r *Ref) { r.Namespace = "bank" },
		"Name":      func(r *Ref) { r.Name = "b" },
		"UID":       func(r *Ref) { r.UID = "other" },
		"Version":   func(r *Ref) { r.ResourceVersion = "8" },
	} {
		other := a
		change(&other)
		if a.IsVersion(other) {
			t.Errorf("%s: another counts as the same", name)
		}
	}
}

func TestResourceNames(t *testing.T) {
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	for want, r := range map[string]schema.GroupVersionResource{"pods/v1": pods, "deployments.apps/v1": deployments} {
		if got := ResourceName(r); got != want {
			t.Errorf("%v is called %q, want %q", r, got, want)
		}
		if got, err := ParseResourceName(want); err != nil || got != r {
			t.Errorf("%q is %v, %v; want %v", want, got, err, r)
		}
	}
	for _, wrong := range []string{"", "pods", "/v1", "pods/", "pods/v1/status"} {
		if got, err := ParseResourceName(wrong); err == nil {
			t.Errorf("%q is %v", wrong, got)
		}
	}
}

// Objects in files have no UID; then their names tell them apart.
func TestIdentify(t *testing.T) {
	a, b := newPod("a"), newPod("a")
	b.UID = "another"
	if a.Identify() == b.Identify() {
		t.Error("two objects of one name are one")
	}
	a.UID, b.UID = "", ""
	if a.Identify() != b.Identify() {
		t.Error("without UIDs, the name does not identify an object")
	}
	b.Namespace = "other"
	if a.Identify() == b.Identify() {
		t.Error("without UIDs, objects in two namespaces are one")
	}
}

func TestStandsFor(t *testing.T) {
	o := newPod("a")
	value := func(apiVersion, kind, uid string) map[string]any {
		meta := map[string]any{"namespace": "shop", "name": "a"}
		if uid != "" {
			meta["uid"] = uid
		}
		return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": meta}
	}
	for name, tc := range map[string]struct {
		value map[string]any
		want  bool
	}{
		"Same":         {value("v1", "Pod", "uid-a"), true},
		"WithoutUID":   {value("v1", "Pod", ""), true},
		"OtherUID":     {value("v1", "Pod", "uid-b"), false},
		"OtherKind":    {value("v1", "PodTemplate", "uid-a"), false},
		"OtherVersion": {value("v2", "Pod", "uid-a"), false},
		"Nothing":      {nil, false},
	} {
		if got := o.StandsFor(tc.value); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

func TestNestedString(t *testing.T) {
	value := map[string]any{"a": map[string]any{"b": "c", "n": int64(1)}, "s": "t"}
	for want, path := range map[string][]string{"c": {"a", "b"}, "t": {"s"}} {
		if got := NestedString(value, path...); got != want {
			t.Errorf("%v is %q, want %q", path, got, want)
		}
	}
	for _, path := range [][]string{{"a"}, {"a", "n"}, {"a", "x"}, {"x", "b"}, {"s", "t"}} {
		if got := NestedString(value, path...); got != "" {
			t.Errorf("%v is %q", path, got)
		}
	}
}

func TestEndsWithin(t *testing.T) {
	grace := func(seconds int64) *int64 { return &seconds }
	terminating := func(left any) *Object {
		o := newPod("a")
		o.Terminating = true
		if left != nil {
			o.Value["metadata"].(map[string]any)["deletionGracePeriodSeconds"] = left
		}
		return &o
	}
	there := newPod("a")
	for name, tc := range map[string]struct {
		object *Object
		grace  *int64
		want   bool
	}{
		"NotTerminating":        {&there, nil, false},
		"AnyGrace":              {terminating(int64(30)), nil, true},
		"LongerGraceIsAskedFor": {terminating(int64(30)), grace(60), true},
		"SameGrace":             {terminating(int64(30)), grace(30), true},
		"ShorterGrace":          {terminating(int64(30)), grace(0), false},
		"ShorterAsFloat":        {terminating(float64(30)), grace(0), false},
		"NoGraceIsSaid":         {terminating(nil), grace(0), true},
	} {
		if got := tc.object.EndsWithin(tc.grace); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// An object whose DELETE was aborted half-way is terminating, and neither its time nor a finalizer holds it. It can be seen as it was before.
func TestIsStranded(t *testing.T) {
	half := newPod("a")
	half.Terminating, half.OutOfGrace, half.Content = true, true, 7
	meta := half.Value["metadata"].(map[string]any)
	meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = "2026-01-01T00:00:00Z", int64(0)
	there, early, held := half, half, half
	there.Terminating, early.OutOfGrace, held.Finalizers = false, false, []string{"example.test/hold"}
	for name, tc := range map[string]struct {
		object *Object
		want   bool
	}{"HalfWay": {&half, true}, "There": {&there, false}, "Early": {&early, false}, "Held": {&held, false}} {
		if got := tc.object.IsStranded(); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
	before := half.BeforeDeletion()
	if want := newPod("a"); before.Terminating || before.OutOfGrace || before.Content != 0 || !cmp.Equal(before.Value, want.Value) {
		t.Errorf("before: %+v", before)
	}
	if len(meta) == len(before.Value["metadata"].(map[string]any)) || !half.Terminating {
		t.Error("the object itself was changed")
	}
	if bare := (&Object{Terminating: true}).BeforeDeletion(); bare.Terminating || bare.Value != nil {
		t.Errorf("of metadata only: %+v", bare)
	}
}

// The version that conditions saw is asked for, where they saw the same resource.
func TestOwnObject(t *testing.T) {
	own, shown, other := newPod("a"), newPod("a"), newPod("a")
	shown.ResourceVersion, other.ResourceVersion, other.Resource, other.Protected = "8", "9", nodes, true
	if got := (Seen{{Target: 1, Object: other}, {Target: 2, Object: shown}}).OwnObject(own); got.ResourceVersion != "8" || got.Protected {
		t.Errorf("got %+v", got.Ref)
	}
	if got := (Seen{{Target: 1, Object: other}}).OwnObject(own); got.ResourceVersion != "9" || got.Resource != pods || !got.Protected {
		t.Errorf("of another resource: got %+v", got.Ref)
	}
}

func TestLiveReads(t *testing.T) {
	s := Snapshot{seen(), {State: Unsynced}, {State: NoSuchKind}, {State: Forbidden}, {State: TooLarge}, {}}
	if diff := cmp.Diff(map[Read]bool{{Target: 0, All: true}: true, {Target: 2, All: true}: true}, s.LiveReads()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTargetStates(t *testing.T) {
	if (Target{}).State != Unknown {
		t.Error("the zero value is not Unknown")
	}
	for want, state := range map[string]TargetState{"Unknown": -1, "Complete": Complete, "NoSuchKind": NoSuchKind, "TooLarge": TooLarge} {
		if got := state.String(); got != want {
			t.Errorf("state %d is called %s, want %s", state, got, want)
		}
	}
	if got := (TooLarge + 1).String(); got != "Unknown" {
		t.Errorf("the state after the last is called %s", got)
	}
}

func TestEachObject(t *testing.T) {
	target := seen(newPod("a"), newPod("b"), newPod("c"))
	var ids []types.UID
	for id := range target.EachObject {
		if ids = append(ids, id); id == "uid-b" {
			break
		}
	}
	if diff := cmp.Diff([]types.UID{"uid-a", "uid-b"}, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An uninstall that somebody else has left does not count as begun.
func TestHasBegun(t *testing.T) {
	for state, want := range map[ReleaseState]bool{ReleaseUninstalling: true, ReleaseDeployed: false, ReleaseGone: false} {
		if got := (&Release{State: state, Begun: true}).HasBegun(); got != want {
			t.Errorf("in state %d it has begun: %t", state, got)
		}
	}
	if (&Release{State: ReleaseUninstalling}).HasBegun() {
		t.Error("what others have begun counts")
	}
}

// Whatever was read live, and in whatever order, a snapshot has it in its place, and keeps all else.
func TestLiveObjectsOverlayAnySnapshot(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfDistinct(rapid.StringMatching("[a-e][a-e]?"), rapid.ID)
		namespace := rapid.SampledFrom([]string{"", "shop"}).Draw(rt, "namespace")
		watched, want := Snapshot{seen(), seen()}, map[string]string{}
		for _, name := range slices.Sorted(slices.Values(names.Draw(rt, "watched"))) {
			watched[0].Objects = append(watched[0].Objects, newObject(namespace, name))
			want[name] = "7"
		}
		found := map[Read]*Object{}
		for _, name := range names.Draw(rt, "read") {
			read := Read{Target: 0, Namespace: namespace, Name: name}
			if found[read] = nil; rapid.Bool().Draw(rt, "there") {
				o := newObject(namespace, name)
				o.ResourceVersion = "8"
				found[read] = &o
			}
			if delete(want, name); found[read] != nil {
				want[name] = "8"
			}
		}
		got, last := map[string]string{}, ""
		for _, o := range watched.WithLive(found)[0].Objects {
			if o.Name <= last {
				rt.Fatalf("%s stands after %s", o.Name, last)
			}
			got[o.Name], last = o.ResourceVersion, o.Name
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// A snapshot is one of changes only if all of its targets say what has changed.
func TestIsChange(t *testing.T) {
	whole, change := seen(newPod("a")), Target{State: Complete, IsChange: true, Changes: []Change{{Namespace: "shop", Name: "a", Was: true}}}
	for name, tc := range map[string]struct {
		snapshot Snapshot
		want     bool
	}{
		"All": {Snapshot{change, change}, true}, "One": {Snapshot{change, whole}, false}, "None": {Snapshot{whole}, false}, "NoTargets": {nil, false},
	} {
		if got := tc.snapshot.IsChange(); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// twoKinds is a target of all kinds, with objects of two kinds that have one name.
func twoKinds() Target {
	object := func(resource, name string) Object {
		return Object{Ref: Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Namespace: "n", Name: name, UID: types.UID(resource + name)}}
	}
	return Target{
		State: Complete, Objects: []Object{object("configmaps", "a"), object("configmaps", "b"), object("secrets", "b"), object("secrets", "c")},
		Kinds: []KindState{
			{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, State: Complete}, {Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, State: Complete},
			{Resource: schema.GroupVersionResource{Resource: "pods"}, State: Forbidden, Detail: "no"},
		},
	}
}

// Objects of one name are told apart by their kinds.
func TestObjectsOfSeveralKinds(t *testing.T) {
	s := Snapshot{twoKinds(), {State: Complete, Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Objects: twoKinds().Objects[2:]}}
	for n, want := range [][]int{{0}, {0}, {0, 1}, {0, 1}} {
		if got := s.TargetsOf(&s[0].Objects[n]); !slices.Equal(got, want) {
			t.Errorf("%s is in %v, want %v", s[0].Objects[n], got, want)
		}
	}
	if got := ListNamed(s[0].Objects, "n", "b"); len(got) != 2 || len(ListNamed(s[0].Objects, "n", "x")) != 0 {
		t.Errorf("of b there are %v", got)
	}
	secret := s[0].Objects[2]
	if r := s.ReadOf(1, &secret); r != (Read{Target: 1, Namespace: "n", Name: "b"}) {
		t.Errorf("of one kind it is read as %+v", r)
	}
	read := s.ReadOf(0, &secret)
	if read.Resource.Resource != "secrets" {
		t.Errorf("of all kinds it is read as %+v", read)
	}
	now := secret
	now.ResourceVersion = "2"
	config := s.ReadOf(0, &s[0].Objects[1])
	got := s.WithLive(map[Read]*Object{read: &now, config: nil})[0].Objects
	if len(got) != 3 || got[0].Name != "a" || got[1].ResourceVersion != "2" || got[1].Resource.Resource != "secrets" || got[2].Name != "c" {
		t.Errorf("with what is live: %v", got)
	}
	skipped, resources := s[0].ListSkipped(), s[0].ListResources()
	if len(skipped) != 1 || skipped[0].Detail != "no" || len(resources) != 2 || len(s[1].ListResources()) != 1 || s[1].ListSkipped() != nil {
		t.Errorf("skipped are %v, and known %v", skipped, resources)
	}
}

// Objects of one name are in the order of their kinds: group first.
func TestCompareRefs(t *testing.T) {
	ref := func(group, resource, name string) Ref {
		return Ref{Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Namespace: "n", Name: name}
	}
	refs := []Ref{ref("apps", "a", "x"), ref("", "b", "x"), ref("", "a", "y"), ref("", "a", "x")}
	slices.SortFunc(refs, func(a, b Ref) int { return CompareRefs(&a, &b) })
	if want := []Ref{ref("", "a", "x"), ref("", "b", "x"), ref("apps", "a", "x"), ref("", "a", "y")}; !slices.Equal(refs, want) {
		t.Errorf("got %v", refs)
	}
}

// The name of a Secret says which revision of which release it records; Helm writes no others.
func TestReadRevision(t *testing.T) {
	for name, tc := range map[string]struct {
		release  string
		revision int64
		says     string
	}{
		"sh.helm.release.v1.web.v1":                         {"web", 1, "release shop/web"},
		"sh.helm.release.v1.web.v12":                        {"web", 12, "release shop/web"},
		"sh.helm.release.v1.a.b.v2":                         {"a.b", 2, "release shop/a.b"},
		"sh.helm.release.v1.a.v1.v2":                        {"a.v1", 2, "release shop/a.v1"},
		"sh.helm.release.v1.web":                            {"", 0, "Pod shop/sh.helm.release.v1.web"},
		"sh.helm.release.v1.v1":                             {"", 0, "Pod shop/sh.helm.release.v1.v1"},
		"sh.helm.release.v1..v1":                            {"", 0, "Pod shop/sh.helm.release.v1..v1"},
		"web.v1":                                            {"", 0, "Pod shop/web.v1"},
		"sh.helm.release.v1.web.v0":                         {"", 0, "Pod shop/sh.helm.release.v1.web.v0"},
		"sh.helm.release.v1.web.v01":                        {"", 0, "Pod shop/sh.helm.release.v1.web.v01"},
		"sh.helm.release.v1.web.v+1":                        {"", 0, "Pod shop/sh.helm.release.v1.web.v+1"},
		"sh.helm.release.v1.web.v-1":                        {"", 0, "Pod shop/sh.helm.release.v1.web.v-1"},
		"sh.helm.release.v1.web.v1x":                        {"", 0, "Pod shop/sh.helm.release.v1.web.v1x"},
		"sh.helm.release.v1.web.v1e3":                       {"", 0, "Pod shop/sh.helm.release.v1.web.v1e3"},
		"sh.helm.release.v1.w.v9" + "999999999999999999999": {"", 0, "Pod shop/sh.helm.release.v1.w.v9999999999999999999999"},
	} {
		ref := Ref{Kind: "Pod", Namespace: "shop", Name: name}
		release, revision, ok := ref.ReadRevision()
		if ok != (tc.release != "") || ok && (release != tc.release || revision != tc.revision) {
			t.Errorf("%s: got %q, %d, %t", name, release, revision, ok)
		}
		if got := ref.DescribeRelease(); got != tc.says {
			t.Errorf("%s: got %q, want %q", name, got, tc.says)
		}
	}
}

func TestNewestRevisions(t *testing.T) {
	var objects []Object
	for _, name := range []string{"web.v1", "web.v10", "web.v2", "web.v3.v1", "web.v99x", "wee.v11"} {
		objects = append(objects, newPod(v1alpha1.ReleaseSecretPrefix+name))
	}
	target := seen(append([]Object{newObject("other", v1alpha1.ReleaseSecretPrefix+"web.v4")}, objects...)...)
	want := map[ReleaseName]int64{{"other", "web"}: 4, {"shop", "web"}: 10, {"shop", "web.v3"}: 1, {"shop", "wee"}: 11}
	got := map[ReleaseName]int64{{"shop", "web"}: 3, {"shop", "none"}: 1}
	target.AddNewestRevisions(got)
	delete(got, ReleaseName{"shop", "none"})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var newest []types.UID
	for o := range target.EachNewestRevision {
		newest = append(newest, o.UID)
	}
	if len(newest) != len(want) || !slices.Contains(newest, objects[1].UID) || slices.Contains(newest, objects[2].UID) {
		t.Errorf("the newest are %v", newest)
	}
	for range target.EachNewestRevision {
		break
	}
}

func TestIsLeaving(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(o *Object)
		want   bool
	}{
		"There":       {func(*Object) {}, false},
		"Terminating": {func(o *Object) { o.Terminating = true }, true},
		"Deployed":    {func(o *Object) { o.OfRelease, o.Labels = true, map[string]string{"status": "deployed"} }, false},
		"Begun":       {func(o *Object) { o.OfRelease, o.Labels = true, map[string]string{"status": "uninstalling"} }, true},
		"Uninstalled": {func(o *Object) { o.OfRelease, o.Labels = true, map[string]string{"status": "uninstalled"} }, true},
		"NoRelease":   {func(o *Object) { o.Labels = map[string]string{"status": "uninstalling"} }, false},
	} {
		o := newPod("a")
		if tc.change(&o); o.IsLeaving() != tc.want {
			t.Errorf("%s: got %t", name, o.IsLeaving())
		}
	}
}

// What has changed of a target had these contents: of what has come it had none, and what has the same content has not changed.
func TestListBefore(t *testing.T) {
	now := func(content uint64) *Object { return &Object{Content: content} }
	target := Target{Changes: []Change{
		{Name: "came", Now: now(7)}, {Name: "went", Was: true, Before: 1}, {Name: "changed", Was: true, Before: 2, Now: now(8)}, {Name: "same", Was: true, Before: 3, Now: now(3)},
	}}
	if got := target.ListBefore(); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("what changed was %v", got)
	}
}
