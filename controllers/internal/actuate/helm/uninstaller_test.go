// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/helmtest"
)

// nameAlone names an object without its namespace, which each test has of its own.
func nameAlone(r observed.Ref) string { return observed.FormatName(r.Kind, "", r.Name) }

// refs returns references as text, for comparison.
func refs(list []observed.Ref) []string {
	var names []string
	for _, r := range list {
		names = append(names, nameAlone(r))
	}
	return names
}

func kept(list []Kept) []string {
	var names []string
	for _, k := range list {
		names = append(names, nameAlone(k.Ref))
	}
	slices.Sort(names)
	return names
}

func deletions(objects ...string) []string {
	var writes []string
	for _, o := range objects {
		writes = append(writes, "delete "+o)
	}
	return writes
}

func TestUninstall(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	w.upgrade(shop())

	r := w.look()
	if diff := cmp.Diff(shopObjects(), refs(r.Objects), cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("objects of the release (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(observed.Release{State: observed.ReleaseDeployed, Name: "shop", Revision: 2}, r.Release,
		cmpopts.IgnoreFields(observed.Release{}, "Digest", "UID", "FirstDeployed", "Rights", "HookRights")); diff != "" {
		t.Errorf("release (-want +got):\n%s", diff)
	}

	got := w.uninstall(w.committed())
	want := append(shopObjects(), "Secret sh.helm.release.v1.shop.v1", "Secret sh.helm.release.v1.shop.v2")
	if diff := cmp.Diff(want, refs(got.Deleted)); diff != "" {
		t.Errorf("deleted, in this order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Outcome{State: Done}, got, cmpopts.IgnoreFields(Outcome{}, "Deleted")); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	w.wantGone()
	if diff := cmp.Diff(append([]string{"update Secret sh.helm.release.v1.shop.v2"}, deletions(want...)...), w.writes()); diff != "" {
		t.Errorf("requests, in this order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(observed.Release{State: observed.ReleaseGone, Name: "shop"}, w.look().Release); diff != "" {
		t.Errorf("release afterwards (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Outcome{State: Done}, w.uninstall(UninstallRequest{Namespace: w.namespace, Name: "shop"})); diff != "" {
		t.Errorf("uninstalling what is gone (-want +got):\n%s", diff)
	}
}

// TestLargeManifest uninstalls a release whose manifest alone is larger than any object may be.
func TestLargeManifest(t *testing.T) {
	w := newWorld(t)
	c := helmtest.Chart{Templates: map[string]string{}}
	for _, name := range []string{"a", "b", "c"} {
		c.Templates[name+".yaml"] = config(name) + "data: {x: '{{ repeat 900000 \"x\" }}'}\n"
	}
	w.install(c)
	if diff := cmp.Diff(Done, w.uninstall(w.committed()).State); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	w.wantGone()
	w.writes()
}

func TestUninstallKeeps(t *testing.T) {
	annotate := func(text string) func(*world) {
		return func(w *world) {
			must(w.client.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx, "a", types.MergePatchType,
				[]byte(fmt.Sprintf(`{"metadata":%s}`, text)), metav1.PatchOptions{}))(w.t)
		}
	}
	withPolicy := shop()
	withPolicy.Templates["a.yaml"] = config("a", "helm.sh/resource-policy: keep")
	cases := map[string]struct {
		reason string
		chart  helmtest.Chart
		before func(*world)
		self   observed.Ref
	}{
		"TakenOver": {
			reason: "another release owns it now",
			before: annotate(`{"annotations":{"meta.helm.sh/release-name":"bank"}}`),
		},
		"Disowned": {
			reason: "no release owns it now",
			before: annotate(`{"annotations":{"meta.helm.sh/release-name":null,"meta.helm.sh/release-namespace":null}}`),
		},
		"Protected":     {reason: "somebody protected it", before: annotate(`{"labels":{"cleaner.vtex.dev/protect":"true"}}`)},
		"PolicyOfChart": {reason: "the chart wants it kept", chart: withPolicy},
		"PolicyOfUser":  {reason: "somebody wants it kept", before: annotate(`{"annotations":{"helm.sh/resource-policy":"keep"}}`)},
		"Self": {
			reason: "the chart contains what runs the uninstall",
			self:   observed.Ref{Resource: schema.GroupVersionResource{Version: "v9", Resource: "configmaps"}, Name: "a"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.chart.Templates == nil {
				tc.chart = shop()
			}
			w.install(tc.chart)
			if tc.before != nil {
				tc.before(w)
			}
			want := w.committed()
			want.Self, want.Self.Namespace = tc.self, w.namespace
			got := w.uninstall(want)
			if diff := cmp.Diff(Done, got.State); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string{"ConfigMap a"}, kept(got.Kept)); diff != "" {
				t.Errorf("%s: said to be kept (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string{"ConfigMap a"}, w.names()); diff != "" {
				t.Errorf("%s: left (-want +got):\n%s", tc.reason, diff)
			}
			w.writes()
		})
	}
}

func TestUninstallOfWhatIsHalfGone(t *testing.T) {
	w := newWorld(t)
	c := shop()
	c.Templates["list.yaml"] = "apiVersion: v1\nkind: List\nitems:\n" +
		"- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: d}}\n"
	w.install(c)
	check(t, w.client.CoreV1().ConfigMaps(w.namespace).Delete(w.ctx, "c", metav1.DeleteOptions{}))
	if diff := cmp.Diff(Done, w.uninstall(w.committed()).State); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	w.wantGone()
}

// TestResume ends the uninstall at each of its writes, in three ways, and has another Uninstaller go on.
func TestResume(t *testing.T) {
	// The mark, six objects, two records.
	const writes = 1 + 6 + 2
	end := func(w *world, want UninstallRequest, u *Uninstaller, g Guard, cause error, state OutcomeState) {
		got, err := u.Uninstall(w.ctx, nil, want, g)
		if !errors.Is(err, cause) {
			w.t.Fatalf("got error %v, want %v", err, cause)
		}
		if diff := cmp.Diff(state, got.State); diff != "" {
			w.t.Errorf("outcome (-want +got):\n%s", diff)
		}
	}
	ways := map[string]func(w *world, want UninstallRequest, nth int){
		"Stopped": func(w *world, want UninstallRequest, nth int) {
			asked := 0
			ask := func() error {
				if asked++; asked == nth {
					return errRefused
				}
				return nil
			}
			end(w, want, w.uninstaller(), guard{start: ask, delete: func(observed.Ref) error { return ask() }}, errRefused, Stopped)
		},
		"BeforeRequest": func(w *world, want UninstallRequest, nth int) {
			end(w, want, w.uninstaller(crash(nth, false)), allow{}, errCrashed, Unfinished)
		},
		"AfterRequest": func(w *world, want UninstallRequest, nth int) {
			end(w, want, w.uninstaller(crash(nth, true)), allow{}, errCrashed, Unfinished)
		},
	}
	for name, way := range ways {
		for nth := 1; nth <= writes; nth++ {
			t.Run(fmt.Sprintf("%s/%d", name, nth), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.install(shop())
				w.upgrade(shop())
				want := w.committed()
				way(w, want, nth)

				carriedOut := nth - 1
				if name == "AfterRequest" {
					carriedOut++
				}
				r, left := w.look(), w.names()
				state := map[bool]observed.ReleaseState{true: observed.ReleaseDeployed, false: observed.ReleaseUninstalling}[carriedOut == 0]
				if carriedOut == writes {
					state = observed.ReleaseGone
				}
				if diff := cmp.Diff(state, r.State); diff != "" {
					t.Errorf("state of the release in between (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(8-max(carriedOut-1, 0), len(left)); diff != "" {
					t.Errorf("number of objects and records in between (-want +got):\n%s\n%q", diff, left)
				}

				if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
					t.Errorf("outcome of the second attempt (-want +got):\n%s", diff)
				}
				w.wantGone()
				if diff := cmp.Diff(writes, len(w.writes())); diff != "" {
					t.Errorf("number of writes altogether (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestOtherRelease(t *testing.T) {
	cases := map[string]struct {
		reason  string
		between func(*world)
		want    OutcomeState
	}{
		"Upgraded": {
			reason:  "the newer revision was not decided on",
			between: func(w *world) { w.upgrade(shop()) },
			want:    Upgraded,
		},
		"Replaced": {
			reason: "the release that was decided on is gone, its name is another one's",
			between: func(w *world) {
				check(w.t, helmtest.Uninstall(w.admin, w.namespace, "shop", false))
				w.install(shop())
			},
			want: Replaced,
		},
		"Pending": {
			reason: "somebody is at it",
			between: func(w *world) {
				check(w.t, helmtest.SetStatus(w.admin, w.namespace, "shop", release.StatusPendingUpgrade))
			},
			want: Pending,
		},
		"WrittenAnew": {
			reason: "the record was deleted and created again: nobody decided on what it says now",
			between: func(w *world) {
				secrets := w.client.CoreV1().Secrets(w.namespace)
				s := must(secrets.Get(w.ctx, "sh.helm.release.v1.shop.v1", metav1.GetOptions{}))(w.t)
				check(w.t, secrets.Delete(w.ctx, s.Name, metav1.DeleteOptions{}))
				s.UID, s.ResourceVersion = "", ""
				must(secrets.Create(w.ctx, s, metav1.CreateOptions{}))(w.t)
			},
			want: Upgraded,
		},
		"OtherManifest": {
			reason: "nobody decided on what the same record says now",
			between: func(w *world) {
				w.rewrite(func(r *release.Release) { r.Manifest += "---\n" + config("victim") })
			},
			want: Upgraded,
		},
		"OtherHooks": {
			reason: "nor on what it runs",
			between: func(w *world) {
				w.rewrite(func(r *release.Release) {
					r.Hooks = append(r.Hooks, &release.Hook{Name: "intruder", Kind: "ConfigMap", Manifest: config("intruder"), Events: []release.HookEvent{release.HookPreDelete}})
				})
			},
			want: Upgraded,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.install(shop())
			want := w.committed()
			tc.between(w)
			before := w.names()
			if diff := cmp.Diff(Outcome{State: tc.want}, w.uninstall(want)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, w.names()); diff != "" {
				t.Errorf("%s: left (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string(nil), w.writes()); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestUpgradedAtTheLastMoment upgrades between Helm's read of the release and the write that marks it.
func TestUpgradedAtTheLastMoment(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	want := w.committed()
	_, err := w.uninstaller().Uninstall(w.ctx, nil, want, guard{start: func() error { w.upgrade(shop()); return nil }})
	if err == nil {
		t.Fatal("the mark was written over the upgrade")
	}
	if diff := cmp.Diff([]string(nil), w.writes()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Outcome{State: Upgraded}, w.uninstall(want)); diff != "" {
		t.Errorf("second attempt (-want +got):\n%s", diff)
	}
}

// TestRolledBackHalfWay has somebody take back the release while it is being uninstalled.
func TestRolledBackHalfWay(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	w.upgrade(shop())
	want := w.committed()
	asked := 0
	got := must(w.uninstaller().Uninstall(w.ctx, nil, want, guard{delete: func(observed.Ref) error {
		if asked++; asked == 2 {
			check(t, helmtest.Rollback(w.admin, w.namespace, "shop", 1))
		}
		return nil
	}}))(t)
	if diff := cmp.Diff(Upgraded, got.State); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	if asked != 2 {
		t.Errorf("asked for %d deletions, want none after the rollback", asked)
	}
}

// TestRewrittenHalfWay has somebody change the record while the release is being uninstalled.
func TestRewrittenHalfWay(t *testing.T) {
	for name, recorded := range map[string]bool{"Recorded": true, "NotRecorded": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.install(shop())
			want := w.committed()
			if !recorded { // then only a change within one call is seen
				want.Digest = ""
			}
			rewrite := guard{delete: func(observed.Ref) error {
				w.rewrite(func(r *release.Release) { r.Manifest = strings.ReplaceAll(r.Manifest, "name: b", "name: victim") })
				return nil
			}}
			got, err := w.uninstaller().Uninstall(w.ctx, nil, want, rewrite)
			if err == nil || !strings.Contains(err.Error(), "has changed since the uninstall was decided") || got.State != Unfinished {
				t.Errorf("got %q, %v: want an error", got.State, err)
			}
			if diff := cmp.Diff([]string{"Service web"}, refs(got.Deleted)); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
			if !recorded {
				return
			}
			if got, err := w.uninstaller().Uninstall(w.ctx, nil, want, allow{}); err == nil || len(got.Deleted) > 0 {
				t.Errorf("the next attempt: got %+v, %v: want an error, and nothing deleted", got, err)
			}
			w.rewrite(func(r *release.Release) { r.Manifest = strings.ReplaceAll(r.Manifest, "name: victim", "name: b") })
			if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
				t.Errorf("with the record restored (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnmarkedHalfWay has somebody declare the release deployed while it is being uninstalled.
func TestUnmarkedHalfWay(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	want := w.committed()
	got, err := w.uninstaller().Uninstall(w.ctx, nil, want, guard{delete: func(observed.Ref) error {
		return helmtest.SetStatus(w.admin, w.namespace, "shop", release.StatusDeployed)
	}})
	if err == nil || got.State != Unfinished {
		t.Errorf("got %q, %v: want an error", got.State, err)
	}
	if diff := cmp.Diff([]string{"Service web"}, refs(got.Deleted)); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
}

// TestObjectChangesBeforeItsDeletion changes an object between its read and its DELETE.
func TestObjectChangesBeforeItsDeletion(t *testing.T) {
	cases := map[string]struct {
		reason string
		times  int
		patch  string
		kept   []string
		wrong  bool
	}{
		"Harmless":  {reason: "it is read again, and goes", times: 2, patch: `{"metadata":{"labels":{"n":"%d"}}}`},
		"TakenOver": {reason: "it is read again, and stays", times: 1, patch: `{"metadata":{"annotations":{"meta.helm.sh/release-name":"bank%d"}}}`, kept: []string{"ConfigMap a"}},
		"Restless":  {reason: "it never holds still: not now", times: 100, patch: `{"metadata":{"labels":{"n":"%d"}}}`, wrong: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.install(shop())
			want := w.committed()
			done := 0
			got, err := w.uninstaller().Uninstall(w.ctx, nil, want, guard{delete: func(ref observed.Ref) error {
				if ref.Name != "a" || done == tc.times {
					return nil
				}
				done++
				_, err := w.client.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx, "a", types.MergePatchType, fmt.Appendf(nil, tc.patch, done), metav1.PatchOptions{})
				return err
			}})
			if wrong := err != nil; wrong != tc.wrong {
				t.Fatalf("%s: got error %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.kept, kept(got.Kept)); diff != "" {
				t.Errorf("%s: said to be kept (-want +got):\n%s", tc.reason, diff)
			}
			if there := slices.Contains(w.names(), "ConfigMap a"); there != (tc.wrong || tc.kept != nil) {
				t.Errorf("%s: still there: %v", tc.reason, there)
			}
			w.writes()
		})
	}
}

// TestObjectComesBack has somebody create an object anew while others are still being deleted.
func TestObjectComesBack(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	got := must(w.uninstaller().Uninstall(w.ctx, nil, w.committed(), guard{delete: func(ref observed.Ref) error {
		if ref.Name != "b" {
			return nil
		}
		_, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		return err
	}}))(t)
	if diff := cmp.Diff(Done, got.State); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ConfigMap a"}, w.names()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// TestBegunByOthers finds a release that somebody else has marked as uninstalling. It is no uninstall of the caller's: it is begun,
// or the guard refuses to.
func TestBegunByOthers(t *testing.T) {
	uninstalling := func(w *world) {
		check(w.t, helmtest.SetStatus(w.admin, w.namespace, "shop", release.StatusUninstalling))
	}
	cases := map[string]struct {
		reason string
		others func(*world)
	}{
		"Unmarked": {"anybody writes a status", uninstalling},
		"Marked":   {"a mark of somebody else is none", func(w *world) { uninstalling(w); w.mark(v1alpha1.AnnotationUninstall, "theirs") }},
		"Deployed": {"a mark alone is no uninstall", func(w *world) { w.mark(v1alpha1.AnnotationUninstall, "ours") }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.install(shop())
			tc.others(w)
			want, before := w.committed(), w.names()
			got, err := w.uninstaller().Uninstall(w.ctx, nil, want, guard{start: func() error { return errRefused }})
			if !errors.Is(err, errRefused) || got.State != Stopped {
				t.Errorf("%s: got %q, %v: want it refused", tc.reason, got.State, err)
			}
			if diff := cmp.Diff(before, w.names()); diff != "" {
				t.Errorf("%s: left (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string(nil), w.writes()); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
			}
			stop := guard{delete: func(observed.Ref) error { return errRefused }}
			if _, err := w.uninstaller().Uninstall(w.ctx, nil, want, stop); !errors.Is(err, errRefused) {
				t.Errorf("%s: got %v, want it to end before the first deletion", tc.reason, err)
			}
			if r := w.look(); r.State != observed.ReleaseUninstalling || r.Mark != "ours" || r.Begun {
				t.Errorf("%s: begun, it is %+v", tc.reason, r.Release)
			}
			goesOn := guard{start: func() error { return errRefused }}
			if got := must(w.uninstaller().Uninstall(w.ctx, nil, want, goesOn))(t); got.State != Done {
				t.Errorf("%s: the next try ends with %q", tc.reason, got.State)
			}
			w.wantGone()
		})
	}
}

// TestRewrittenByOthers has somebody mark the release as uninstalling and change what its record says: nobody decided on that, and
// it is left, as one that is deployed is.
func TestRewrittenByOthers(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	want := w.committed()
	w.rewrite(func(r *release.Release) {
		r.Info.Status = release.StatusUninstalling
		r.Manifest += "---\n" + config("victim")
	})
	if diff := cmp.Diff(Outcome{State: Upgraded}, w.uninstall(want)); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string(nil), w.writes()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestAnOlderMarkIsRenewed goes on with an uninstall whose mark the caller knows as its own, and would write in another way now.
func TestAnOlderMarkIsRenewed(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	want := w.committed()
	want.Mark = "older"
	stop := guard{delete: func(observed.Ref) error { return errRefused }}
	if _, err := w.uninstaller().Uninstall(w.ctx, nil, want, stop); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	want.Mark, want.Begun = "ours", w.look().Mark
	noted := 0
	stop.start, stop.note = func() error { return errors.New("begun anew") }, func(observed.Ref) error { noted++; return nil }
	if _, err := w.uninstaller().Uninstall(w.ctx, nil, want, stop); !errors.Is(err, errRefused) || noted != 1 {
		t.Errorf("got %v, asked %d times before the mark is renewed, want once", err, noted)
	}
	if got := w.look().Mark; got != "ours" {
		t.Errorf("the mark is %q", got)
	}
	if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

// TestTheMarkIsTakenOffHalfWay has somebody take over while the release is being uninstalled, as Helm does: what it writes has no
// annotations.
func TestTheMarkIsTakenOffHalfWay(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	want, asked := w.committed(), 0
	got, err := w.uninstaller().Uninstall(w.ctx, nil, want, guard{delete: func(observed.Ref) error {
		asked++
		return helmtest.SetStatus(w.admin, w.namespace, "shop", release.StatusUninstalling)
	}})
	if err == nil || !strings.Contains(err.Error(), v1alpha1.AnnotationUninstall) || got.State != Unfinished || asked != 1 {
		t.Errorf("got %q, %v, after %d deletions: want an error after one", got.State, err, asked)
	}
}

func TestForeignFinalizer(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	patch := func(text string) {
		must(w.client.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx, "a", types.MergePatchType, []byte(text), metav1.PatchOptions{}))(t)
	}
	patch(`{"metadata":{"finalizers":["example.com/hold"]}}`)
	want := w.committed()
	want.Timeout = 0

	for attempt := range 2 {
		got := w.uninstall(want)
		if diff := cmp.Diff(Terminating, got.State); diff != "" {
			t.Errorf("attempt %d: outcome (-want +got):\n%s", attempt, diff)
		}
		var remaining []string
		for _, r := range got.Remaining {
			remaining = append(remaining, strings.ReplaceAll(r.String(), w.namespace+"/", ""))
		}
		if diff := cmp.Diff([]string{"ConfigMap a (example.com/hold)"}, remaining); diff != "" {
			t.Errorf("attempt %d: remaining (-want +got):\n%s", attempt, diff)
		}
	}
	left := append([]string{"ConfigMap a", "Secret sh.helm.release.v1.shop.v1"}, shopObjects()[3:]...)
	if diff := cmp.Diff(left, w.names(), cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("record, accounts and roles stay until the rest is gone (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(observed.ReleaseUninstalling, w.look().State); diff != "" {
		t.Errorf("state of the release (-want +got):\n%s", diff)
	}

	want.Timeout = 30 * time.Second
	released := make(chan struct{})
	go func() {
		defer close(released)
		patch(`{"metadata":{"finalizers":null}}`)
	}()
	if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	<-released
	w.wantGone()
	w.writes()
}

// TestOneObjectFails has the API server refuse one deletion.
func TestOneObjectFails(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	want := w.committed()
	refuse := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodDelete || !strings.HasSuffix(r.URL.Path, "/configmaps/a") {
				return next.RoundTrip(r)
			}
			return &http.Response{
				StatusCode: http.StatusForbidden, Request: r,
				Header: http.Header{"Content-Type": {"application/json"}},
				Body:   io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)),
			}, nil
		})
	}
	got, err := w.uninstaller(refuse).Uninstall(w.ctx, nil, want, allow{})
	if err == nil {
		t.Fatal("want the error of the one object")
	}
	if diff := cmp.Diff([]string{"Service web", "ConfigMap b"}, refs(got.Deleted)); diff != "" {
		t.Errorf("the others of its stage go, and no later one (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
		t.Errorf("outcome of the second attempt (-want +got):\n%s", diff)
	}
	w.wantGone()
}

func TestDisableHooks(t *testing.T) {
	w := newWorld(t)
	c := shop()
	c.Templates["x.yaml"] = config("x", "helm.sh/hook: 'pre-delete,post-delete'")
	w.install(c)
	want := w.committed()
	want.DisableHooks = true
	if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	w.wantGone()
	for _, write := range w.writes() {
		if strings.HasPrefix(write, "create") {
			t.Errorf("%s: the hook was run", write)
		}
	}
}

// TestHistoryIsKept uninstalls a release as Helm does with --keep-history: the same records are left, and Helm can bring the release back.
func TestHistoryIsKept(t *testing.T) {
	ours, theirs := newWorld(t), newWorld(t)
	for _, w := range []*world{ours, theirs} {
		w.install(shop())
		w.upgrade(shop())
	}
	want := ours.committed()
	want.KeepHistory = true
	if got := ours.uninstall(want); got.State != Done {
		t.Errorf("got %+v", got)
	}
	check(t, helmtest.Uninstall(theirs.admin, theirs.namespace, "shop", true))
	left := func(w *world) (out []string) {
		for _, s := range must(w.client.CoreV1().Secrets(w.namespace).List(w.ctx, metav1.ListOptions{LabelSelector: "owner=helm"}))(t).Items {
			r := unpacked(t, s.Data["release"])
			out = append(out, fmt.Sprint(s.Name, " ", s.Labels["status"], " ", r.Info.Status, " ", r.Info.Description, " ", r.Info.Deleted.IsZero(), " ", s.Annotations))
		}
		return out
	}
	if diff := cmp.Diff(left(theirs), left(ours)); diff != "" {
		t.Errorf("records (-Helm's +ours):\n%s", diff)
	}
	if got := ours.look(); got.State != observed.ReleaseGone {
		t.Errorf("then it is %v", got.State)
	}
	if got := ours.uninstall(want); got.State != Done || len(got.Deleted) > 0 {
		t.Errorf("a second time: %+v", got)
	}
	ours.writes()
	check(t, helmtest.Rollback(ours.admin, ours.namespace, "shop", 1))
	if there := strings.Join(ours.names(), ", "); !strings.Contains(there, "Service web") {
		t.Errorf("after a rollback there are %s", there)
	}
}
