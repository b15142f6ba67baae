// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/release"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

const firstRecord = "GET /api/v1/namespaces/team/secrets/sh.helm.release.v1.shop.v1"

// putSecret stores a Secret with the labels of a record of release shop.
func (f *fakeCluster) putSecret(name, kind string) {
	f.server.put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": map[string]any{"name": name, "labels": map[string]any{"owner": "helm", "name": "shop"}},
	}})
}

// TestReadReleaseByStatus shows what a plan is told about a release in each status.
func TestReadReleaseByStatus(t *testing.T) {
	for status, want := range map[release.Status]observed.Release{
		release.StatusDeployed:        {State: observed.ReleaseDeployed},
		release.StatusFailed:          {State: observed.ReleaseDeployed},
		release.StatusSuperseded:      {State: observed.ReleaseDeployed},
		release.StatusUnknown:         {State: observed.ReleaseDeployed},
		release.StatusUninstalling:    {State: observed.ReleaseUninstalling},
		release.StatusUninstalled:     {State: observed.ReleaseGone},
		release.StatusPendingInstall:  {State: observed.ReleasePending, Blocked: v1alpha1.ReasonReleasePending, Detail: `release "shop" is pending-install`},
		release.StatusPendingUpgrade:  {State: observed.ReleasePending, Blocked: v1alpha1.ReasonReleasePending, Detail: `release "shop" is pending-upgrade`},
		release.StatusPendingRollback: {State: observed.ReleasePending, Blocked: v1alpha1.ReasonReleasePending, Detail: `release "shop" is pending-rollback`},
	} {
		t.Run(string(status), func(t *testing.T) {
			f := newFakeCluster(t)
			f.install(config("a"))
			f.setStatus("shop.v1", status)
			f.annotate("shop.v1", v1alpha1.AnnotationUninstall, "somebody's")
			got := must(f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop"))(t)
			want.Name = "shop"
			if want.State != observed.ReleaseGone {
				want.Revision, want.UID, want.Mark = 1, f.server.find("shop.v1").GetUID(), "somebody's"
			}
			known := got.Digest != "" && !got.FirstDeployed.IsZero()
			if known != (want.State != observed.ReleaseGone) {
				t.Errorf("digest %q, first deployed %s", got.Digest, got.FirstDeployed)
			}
			if objects := len(got.Objects) > 0; objects != (want.State == observed.ReleaseDeployed || want.State == observed.ReleaseUninstalling) {
				t.Errorf("objects %q", refs(got.Objects))
			}
			got.Digest, got.FirstDeployed, got.Rights = "", want.FirstDeployed, nil
			if diff := cmp.Diff(want, got.Release); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestManyRevisions lists the records of a release page by page, by their numbers, and reads the newest alone.
func TestManyRevisions(t *testing.T) {
	f := newFakeCluster(t)
	for version := 1; version <= 20; version++ {
		f.putRelease(made(func(r *release.Release) {
			r.Version = version
			if version < 20 {
				r.Namespace = "bank" // which nobody can read
			}
		}))
	}
	f.putSecret("notes", "Opaque")
	h := must(f.uninstaller().readHistory(t.Context(), nil, "team", "shop", nil))(t)
	for i, r := range h {
		if r.version != i+1 || (r.content != nil) != (i == 19) {
			t.Errorf("at %d is revision %d, and what it says is known: %t", i, r.version, r.content != nil)
		}
	}
	const list = "GET /api/v1/namespaces/team/secrets"
	if diff := cmp.Diff([]string{list, list, list, list + "/sh.helm.release.v1.shop.v20"}, f.server.didSend()); diff != "" || len(h) != 20 {
		t.Errorf("%d revisions, requests (-want +got):\n%s", len(h), diff)
	}
}

// TestTooManyRevisions refuses a release before it has listed all of its records.
func TestTooManyRevisions(t *testing.T) {
	f := newFakeCluster(t)
	for version := 1; version <= maxRecords+3*recordsAtOnce; version++ {
		f.putSecret(fmt.Sprintf("sh.helm.release.v1.shop.v%d", version), string(secretType))
	}
	_, err := f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop")
	blocked, ok := errors.AsType[*BlockedError](err)
	if !ok || blocked.Reason != v1alpha1.ReasonTooManyObjects || !strings.Contains(blocked.Detail, "more than 1000 records: delete the Secrets of its older revisions") {
		t.Errorf("got %v", err)
	}
	if sent := len(f.server.didSend()); sent != maxRecords/recordsAtOnce+1 {
		t.Errorf("it sends %d requests", sent)
	}
}

// TestNamesOfRecords shows which Secrets count as records of a release. Any other with the labels of one blocks it: it may be the newest.
func TestNamesOfRecords(t *testing.T) {
	for name, want := range map[string]int{
		"sh.helm.release.v1.shop.v1": 1, "sh.helm.release.v1.shop.v10": 10, "sh.helm.release.v1.shop.v2147483648": 2147483648,
		"sh.helm.release.v1.shop.v0": 0, "sh.helm.release.v1.shop.v-1": 0, "sh.helm.release.v1.shop.v+1": 0, "sh.helm.release.v1.shop.v01": 0,
		"sh.helm.release.v1.shop.v": 0, "sh.helm.release.v1.shop.v1x": 0, "sh.helm.release.v1.shop.v1.v1": 0, "sh.helm.release.v1.shopping.v1": 0,
		"sh.helm.release.v2.shop.v1": 0, "xsh.helm.release.v1.shop.v1": 0, "sh.helm.release.v1.shop.v99999999999999999999": 0,
	} {
		got, ok := parseVersion(name, "shop")
		if ok != (want > 0) || ok && got != want {
			t.Errorf("%s: got revision %d, %t, want %d", name, got, ok, want)
		}
		f := newFakeCluster(t)
		f.putSecret(name, string(secretType))
		_, err := f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop")
		blocked, is := errors.AsType[*BlockedError](err)
		if !is || blocked.Reason != v1alpha1.ReasonReleaseUnreadable || strings.Contains(blocked.Detail, "it is not named as one") != (want == 0) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestNamesOfReleases refuses a name that Helm would refuse, before a request is sent: it goes into a label selector.
func TestNamesOfReleases(t *testing.T) {
	f := newFakeCluster(t)
	for _, name := range []string{"", "a,owner!=helm", "Shop", "../shop", strings.Repeat("a", 54)} {
		if _, err := f.uninstaller().ReadRelease(t.Context(), nil, "team", name); err == nil || !strings.Contains(err.Error(), "cannot be the name of a release") {
			t.Errorf("%q: got %v", name, err)
		}
	}
	if sent := f.server.didSend(); len(sent) > 0 {
		t.Errorf("it sends %q", sent)
	}
}

// TestARecordIsReadUntilItChanges reads the Secret of a record, and what is wrong with it, once until it changes. A failure is not kept.
func TestARecordIsReadUntilItChanges(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"))
	u := f.uninstaller()
	read := func() (reads int, _ error) {
		f.server.didSend()
		_, err := u.ReadRelease(t.Context(), nil, "team", "shop")
		for _, r := range f.server.didSend() {
			if r == firstRecord {
				reads++
			}
		}
		return reads, err
	}
	expect := func(when string, want int, says string) {
		t.Helper()
		reads, err := read()
		if reads != want || says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %d reads, %v, want %d, %q", when, reads, err, want, says)
		}
	}
	f.server.onRequest(http.MethodGet, "shop.v1", 1, failWith(http.StatusInternalServerError, metav1.StatusReasonInternalError))
	expect("it fails", 1, "500")
	expect("first", 1, "")
	expect("again", 0, "")
	f.annotate("shop.v1", "other", "changes")
	expect("changed", 1, "")
	f.rewriteRecord("shop.v1", func(r *release.Release) { r.Namespace = "bank" })
	expect("damaged", 1, `it is of a release in namespace "bank"`)
	expect("still damaged", 0, `it is of a release in namespace "bank"`)
}

// TestReadingWaitsForASlot reads no record without a slot, except one that is loaded.
func TestReadingWaitsForASlot(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"))
	u := f.uninstaller()
	none := ReadSlot(func(context.Context) (func(), error) { return nil, errRefused })
	if _, err := u.ReadRelease(t.Context(), none, "team", "shop"); !errors.Is(err, errRefused) {
		t.Errorf("got %v", err)
	}
	taken, left := 0, 0
	u.LoadRelease(t.Context(), func(context.Context) (func(), error) { taken++; return func() { left++ }, nil }, "team", "shop")
	if taken != 1 || left != 1 {
		t.Errorf("%d slots are taken, and %d left", taken, left)
	}
	if rel, err := u.ReadRelease(t.Context(), none, "team", "shop"); err != nil || rel.State != observed.ReleaseDeployed {
		t.Errorf("got %v, %v", rel.State, err)
	}
	want := f.committed()
	if _, err := u.Uninstall(t.Context(), none, want, allow{}); !errors.Is(err, errRefused) || len(f.server.didWrite()) > 0 {
		t.Errorf("it is marked without a slot: %v", err)
	}
}

// TestReadingEndsWithACause says why a reading was cut short, whichever request it was.
func TestReadingEndsWithACause(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"), config("b"))
	must(f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop"))(t)
	requests := f.server.didSend()
	for nth := range requests {
		ctx, cancel := context.WithCancelCause(t.Context())
		f.server.answer = func(n int, _ http.ResponseWriter, r *http.Request) bool {
			if n == nth+1 {
				cancel(ErrTooSlow)
				<-r.Context().Done()
			}
			return n == nth+1
		}
		if _, err := f.uninstaller().ReadRelease(ctx, nil, "team", "shop"); !errors.Is(err, ErrTooSlow) || strings.Contains(err.Error(), "canceled") {
			t.Errorf("%s: got %v", requests[nth], err)
		}
		if sent := f.server.didSend(); len(sent) != nth+1 {
			t.Errorf("it goes on with %q", sent[nth+1:])
		}
		cancel(nil)
	}
}

// TestUnreadableManifests says what is wrong, of which release, and where.
func TestUnreadableManifests(t *testing.T) {
	const first = "---\n# Source: shop/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	cases := map[string]struct {
		manifest string
		reason   string
		says     []string
	}{
		"Syntax":   {manifest: first + "---\n# Source: shop/b.yaml\nkind: ConfigMap\nmetadata:\n  name: [\n", says: []string{"its manifest, in document 2, is not YAML of objects: yaml: line 4"}},
		"OddItem":  {manifest: first + first + "---\nkind: List\nitems:\n- 1\n", says: []string{"its manifest, in document 3, is not YAML of objects", "line 3: cannot unmarshal !!int `1`"}},
		"Aliases":  {manifest: first + "---\na: &a [1]\nb: [*a, *b]\n", says: []string{"its manifest, in document 2, is not YAML: yaml: unknown anchor 'b'"}},
		"NoKind":   {manifest: first + "---\napiVersion: v1\nmetadata: {name: nameless}\n", says: []string{"without apiVersion, kind or name", `"nameless"`}},
		"TooDeep":  {manifest: first + "---\na: " + strings.Repeat("[", 1001) + strings.Repeat("]", 1001), says: []string{"nested deeper than 1000"}, reason: v1alpha1.ReasonTooManyObjects},
		"TooMany":  {manifest: first + strings.Repeat("---\n"+configMap, maxDocuments), says: []string{"more than 5000 documents"}, reason: v1alpha1.ReasonTooManyObjects},
		"BadGroup": {manifest: first + named("a/b/c", "Odd", "x"), says: []string{"its manifest"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t)
			f.putRelease(made(func(r *release.Release) { r.Manifest = tc.manifest }))
			_, err := f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop")
			blocked, ok := errors.AsType[*BlockedError](err)
			if tc.reason == "" {
				tc.reason = v1alpha1.ReasonReleaseUnreadable
			}
			if !ok || blocked.Reason != tc.reason {
				t.Fatalf("got %v, want %s", err, tc.reason)
			}
			for _, part := range append(slices.Clone(tc.says), `release "shop" cannot be uninstalled: its manifest`) {
				if !strings.Contains(blocked.Detail, part) {
					t.Errorf("%q does not say %q", blocked.Detail, part)
				}
			}
		})
	}
}
