// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/release"
	helmtime "helm.sh/helm/v3/pkg/time"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

var installedAt = time.Date(2030, 1, 2, 3, 4, 5, 678901234, time.UTC)

func made(mods ...func(*release.Release)) *release.Release {
	r := &release.Release{
		Name: "shop", Namespace: "team", Version: 1,
		Info: &release.Info{Status: release.StatusDeployed, FirstDeployed: helmtime.Time{Time: installedAt}},
	}
	for _, mod := range mods {
		mod(r)
	}
	return r
}

func zipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return []byte(base64.StdEncoding.EncodeToString(b.Bytes()))
}

func packed(t testing.TB, r *release.Release) []byte {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return zipped(t, text)
}

// recordOf is the Secret of the first revision of release shop.
func recordOf(t testing.TB, data []byte) *corev1.Secret {
	t.Helper()
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "sh.helm.release.v1.shop.v1"}, Data: map[string][]byte{"release": data},
	}
}

func TestDecode(t *testing.T) {
	cases := map[string]struct {
		reason   string
		data     func(t *testing.T) []byte
		readable bool
	}{
		"Good": {
			reason:   "what Helm writes is read",
			data:     func(t *testing.T) []byte { return packed(t, made()) },
			readable: true,
		},
		"Unzipped": {
			reason: "Helm reads records from before it zipped them",
			data: func(t *testing.T) []byte {
				text, err := json.Marshal(made())
				if err != nil {
					t.Fatal(err)
				}
				return []byte(base64.StdEncoding.EncodeToString(text))
			},
			readable: true,
		},
		"Empty":     {reason: "no data is no release", data: func(*testing.T) []byte { return nil }},
		"NotBase64": {reason: "any text may stand in a Secret", data: func(*testing.T) []byte { return []byte("%%%") }},
		"CutShort": {
			reason: "half a zip is no release",
			data:   func(t *testing.T) []byte { whole := packed(t, made()); return whole[:len(whole)/8*4] },
		},
		"NotJSON": {reason: "zipped noise is no release", data: func(t *testing.T) []byte { return zipped(t, []byte("[[")) }},
		"Null":    {reason: "null decodes, but into nothing", data: func(t *testing.T) []byte { return zipped(t, []byte("null")) }},
		"TooLarge": {
			reason: "a small Secret must not unpack into all of the memory",
			data:   func(t *testing.T) []byte { return zipped(t, bytes.Repeat([]byte(" "), maxRecord+1)) },
		},
		"NoInfo": {
			reason: "Helm's code would crash on a release without info",
			data: func(t *testing.T) []byte {
				return packed(t, made(func(r *release.Release) { r.Info = nil }))
			},
		},
		"EmptyHook": {
			reason: "Helm's code would crash on a hook that is null",
			data: func(t *testing.T) []byte {
				return packed(t, made(func(r *release.Release) { r.Hooks = []*release.Hook{nil} }))
			},
		},
		"OtherName": {
			reason: "Helm deletes by the name in the record, which must be the one that was asked for",
			data: func(t *testing.T) []byte {
				return packed(t, made(func(r *release.Release) { r.Name = "bank" }))
			},
		},
		"OtherNamespace": {
			reason: "objects without a namespace would be taken for those of another one",
			data: func(t *testing.T) []byte {
				return packed(t, made(func(r *release.Release) { r.Namespace = "kube-system" }))
			},
		},
		"OtherRevision": {
			reason: "Helm deletes by the revision in the record, which must be that of the Secret",
			data: func(t *testing.T) []byte {
				return packed(t, made(func(r *release.Release) { r.Version = 7 }))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := decodeRecord(t.Context(), recordOf(t, tc.data(t)), "team", "shop")
			if tc.readable {
				if err != nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				if diff := cmp.Diff(installedAt.Truncate(time.Microsecond), got.firstDeployed()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				return
			}
			var blocked *BlockedError
			if !errors.As(err, &blocked) {
				t.Fatalf("%s: got %v, want a BlockedError", tc.reason, err)
			}
			if diff := cmp.Diff(v1alpha1.ReasonReleaseUnreadable, blocked.Reason); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestLittleIsKeptOfObjects has objects that a user can make large: of a Secret its type counts, which says whether it grants rights.
func TestLittleIsKeptOfObjects(t *testing.T) {
	const token = "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\ntype: kubernetes.io/service-account-token\nstringData: {a: large}\n"
	text := "---\n" + config("a") + "---\n" + token
	data := packed(t, made(func(r *release.Release) {
		r.Manifest = text
		r.Hooks = []*release.Hook{{Name: "a", Manifest: text, Events: []release.HookEvent{release.HookPreDelete}}}
	}))
	r := must(decodeRecord(t.Context(), recordOf(t, data), "team", "shop"))(t)
	if len(r.content.hooks) != 1 {
		t.Fatalf("it has %d hooks", len(r.content.hooks))
	}
	contents := func(docs []document) (all []map[string]any) {
		for _, d := range docs {
			all = append(all, d.content)
		}
		return all
	}
	if diff := cmp.Diff([]map[string]any{nil, {"type": "kubernetes.io/service-account-token"}}, contents(r.content.hooks[0].documents)); diff != "" {
		t.Errorf("of the objects of a hook (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]map[string]any{nil, nil}, contents(r.content.documents)); diff != "" {
		t.Errorf("of the objects of the release (-want +got):\n%s", diff)
	}
}

// TestARecordWeighsAllOfItsParts makes each text of a record long, one after the other.
func TestARecordWeighsAllOfItsParts(t *testing.T) {
	const long = 1 << 20
	text := strings.Repeat("a", long)
	docs := func() []document { return make([]document, 2) }
	c := &recordContent{
		release: &release.Release{Hooks: []*release.Hook{{}, {}, {}}}, documents: docs(),
		hooks: []hookObjects{{documents: docs()}, {documents: docs()}}, // the third has not been read
	}
	texts := map[string]*string{"the heads": &c.heads}
	ofDocuments := func(whose string, docs []document) {
		for i := range docs {
			d, of := &docs[i], fmt.Sprintf("object %d of %s: ", i, whose)
			texts[of+"group"], texts[of+"version"], texts[of+"kind"] = &d.kind.Group, &d.kind.Version, &d.kind.Kind
			texts[of+"namespace"], texts[of+"name"], texts[of+"why it is kept"] = &d.namespace, &d.name, &d.keepReason
		}
	}
	ofDocuments("the release", c.documents)
	for i := range c.hooks {
		ofDocuments(fmt.Sprintf("hook %d", i), c.hooks[i].documents)
	}
	for i, h := range c.release.Hooks {
		of := fmt.Sprintf("hook %d: ", i)
		texts[of+"name"], texts[of+"kind"], texts[of+"manifest"] = &h.Name, &h.Kind, &h.Manifest
	}
	empty := c.weigh()
	if empty < 2*256 {
		t.Errorf("one without texts weighs %d", empty)
	}
	for which, at := range texts {
		*at = text
		if got := c.weigh(); got != empty+long {
			t.Errorf("%s: it weighs %d more", which, got-empty)
		}
		*at = ""
	}
}

// TestLittleIsKeptOfARecordsMetadata has Secrets of which each annotation takes as much as it may: a release may have many.
func TestLittleIsKeptOfARecordsMetadata(t *testing.T) {
	long := strings.Repeat("a", 200<<10)
	annotations := map[string]string{"other": "a", hooksDoneAnnotation: "pre-delete,post-delete", v1alpha1.AnnotationUninstall: "mark"}
	got := trimMetadata(metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "c", ResourceVersion: "d", Labels: map[string]string{"a": "b"}, Annotations: annotations})
	want := metav1.ObjectMeta{
		Name: "a", Namespace: "b", UID: "c", ResourceVersion: "d",
		Annotations: map[string]string{hooksDoneAnnotation: "pre-delete,post-delete", v1alpha1.AnnotationUninstall: "mark"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got = trimMetadata(metav1.ObjectMeta{Annotations: map[string]string{hooksDoneAnnotation: long, v1alpha1.AnnotationUninstall: long}})
	if len(got.Annotations) > 0 {
		t.Error("what is longer than any of ours is kept")
	}
}

func TestModified(t *testing.T) {
	for label, want := range map[string]time.Time{"": {}, "soon": {}, "1767225600": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} {
		r := record{secret: trimMetadata(metav1.ObjectMeta{Labels: map[string]string{modifiedLabel: label, "name": "shop"}})}
		if got := r.modified(); !got.Equal(want) || len(r.secret.Labels) > 1 {
			t.Errorf("%q: got %s of %v", label, got, r.secret.Labels)
		}
	}
}

// TestProtectedRecords shows that one protected record, however old, keeps all of its release.
func TestProtectedRecords(t *testing.T) {
	one := func(n int, o metav1.ObjectMeta) record {
		o.Name = fmt.Sprint("sh.helm.release.v1.shop.v", n)
		return record{secret: trimMetadata(o), version: n}
	}
	free := one(2, metav1.ObjectMeta{Labels: map[string]string{v1alpha1.ProtectKey: "false"}})
	for name, protected := range map[string]record{
		"Label":      one(1, metav1.ObjectMeta{Labels: map[string]string{v1alpha1.ProtectKey: "true"}}),
		"Annotation": one(1, metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ProtectKey: "true"}}),
	} {
		if got := (history{protected, free}).describeProtected("shop"); !strings.Contains(got, `Secret "sh.helm.release.v1.shop.v1" has the label or annotation`) {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if got := (history{free}).describeProtected("shop"); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestHistoryIs(t *testing.T) {
	want := UninstallRequest{Namespace: "team", Name: "shop", Revision: 2, UID: "two", FirstDeployed: installedAt.Truncate(time.Microsecond)}
	revision := func(n int, uid types.UID, status release.Status, mods ...func(*release.Release)) record {
		r := made(mods...)
		r.Version, r.Info.Status = n, status
		return record{secret: metav1.ObjectMeta{UID: uid}, version: n, content: &recordContent{release: r}}
	}
	anew := func(r *release.Release) { r.Info.FirstDeployed = helmtime.Time{Time: installedAt.Add(time.Second)} }
	cases := map[string]struct {
		reason string
		h      history
		want   OutcomeState
		same   bool
	}{
		"Gone":         {reason: "no record, no release", want: Done},
		"Same":         {reason: "the release that was decided on", h: history{revision(1, "one", release.StatusSuperseded), revision(2, "two", release.StatusDeployed)}, same: true},
		"Uninstalling": {reason: "whoever left it so, it is the same", h: history{revision(2, "two", release.StatusUninstalling)}, same: true},
		"Failed":       {reason: "a failed release can be uninstalled", h: history{revision(2, "two", release.StatusFailed)}, same: true},
		"Newer":        {reason: "somebody upgraded", h: history{revision(2, "two", release.StatusSuperseded), revision(3, "three", release.StatusDeployed)}, want: Upgraded},
		"Older":        {reason: "the revision that was decided on is gone, the release is not", h: history{revision(1, "one", release.StatusDeployed)}, want: Upgraded},
		"OtherSecret":  {reason: "the record was written anew: who knows from what", h: history{revision(2, "other", release.StatusDeployed)}, want: Upgraded},
		"Upgrading":    {reason: "an upgrade may fail: wait for its end", h: history{revision(2, "two", release.StatusDeployed), revision(3, "three", release.StatusPendingUpgrade)}, want: Pending},
		"Anew":         {reason: "a release of the same name", h: history{revision(1, "new", release.StatusDeployed, anew)}, want: Replaced},
		"AnewPending":  {reason: "a release of the same name is not waited for", h: history{revision(1, "new", release.StatusPendingInstall, anew)}, want: Replaced},
		"KeptHistory":  {reason: "somebody uninstalled it and kept the record on purpose", h: history{revision(2, "two", release.StatusUninstalled)}, want: Done},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if state, same := tc.h.compareWith(want); state != tc.want || same != tc.same {
				t.Errorf("%s: got %q, %t", tc.reason, state, same)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	hook := func(change ...func(*release.Hook)) func(*release.Release) {
		h := &release.Hook{Name: "backup", Kind: "Job", Manifest: "kind: Job", Events: []release.HookEvent{release.HookPreDelete}}
		for _, ch := range change {
			ch(h)
		}
		return func(r *release.Release) { r.Hooks = append(r.Hooks, h) }
	}
	manifest := func(r *release.Release) { r.Manifest = "kind: ConfigMap" }
	cases := map[string]struct {
		reason string
		other  []func(*release.Release)
		same   bool
	}{
		"Uninstalling": {reason: "the mark changes it in no way", other: []func(*release.Release){manifest, hook(), func(r *release.Release) {
			r.Info.Status, r.Info.Description, r.Labels = release.StatusUninstalling, "Deletion in progress", map[string]string{"a": "b"}
		}}, same: true},
		"HookHasRun":       {reason: "nor does a hook that was run", other: []func(*release.Release){manifest, hook(func(h *release.Hook) { h.LastRun.Phase = release.HookPhaseSucceeded })}, same: true},
		"DefaultPolicy":    {reason: "nor the policy that Helm writes for none", other: []func(*release.Release){manifest, hook(func(h *release.Hook) { h.DeletePolicies = []release.HookDeletePolicy{release.HookBeforeHookCreation} })}, same: true},
		"InstallHook":      {reason: "other hooks are not run", other: []func(*release.Release){manifest, hook(), hook(func(h *release.Hook) { h.Events = []release.HookEvent{release.HookPostInstall} })}, same: true},
		"Manifest":         {reason: "what is deleted", other: []func(*release.Release){func(r *release.Release) { r.Manifest = "kind: Secret" }, hook()}},
		"NoHook":           {reason: "what is run", other: []func(*release.Release){manifest}},
		"MoreHooks":        {reason: "what is run", other: []func(*release.Release){manifest, hook(), hook()}},
		"HookName":         {reason: "Helm orders by it", other: []func(*release.Release){manifest, hook(func(h *release.Hook) { h.Name = "a" })}},
		"HookKind":         {reason: "Helm never deletes some", other: []func(*release.Release){manifest, hook(func(h *release.Hook) { h.Kind = "Pod" })}},
		"HookManifest":     {reason: "what is run", other: []func(*release.Release){manifest, hook(func(h *release.Hook) { h.Manifest = "kind: Pod" })}},
		"HookEvents":       {reason: "when", other: []func(*release.Release){manifest, hook(func(h *release.Hook) { h.Events = append(h.Events, release.HookPostDelete) })}},
		"HookWeight":       {reason: "in which order", other: []func(*release.Release){manifest, hook(func(h *release.Hook) { h.Weight = 1 })}},
		"HookDeletePolicy": {reason: "what is cleaned up", other: []func(*release.Release){manifest, hook(func(h *release.Hook) { h.DeletePolicies = []release.HookDeletePolicy{release.HookFailed} })}},
	}
	digest := func(mods ...func(*release.Release)) string {
		t.Helper()
		r, err := decodeRecord(t.Context(), recordOf(t, packed(t, made(mods...))), "team", "shop")
		if err != nil {
			t.Fatal(err)
		}
		return r.content.digest
	}
	want := digest(manifest, hook())
	if len(want) != len("v1:")+64 {
		t.Errorf("%q is no digest", want)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := digest(tc.other...); (got == want) != tc.same {
				t.Errorf("%s: got %s and %s, want them the same: %t", tc.reason, want, got, tc.same)
			}
		})
	}
}
