// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// ofReleases makes a query of Secrets one of the revisions of Helm releases.
func ofReleases(q *snapshot.Query) {
	q.OfReleases = true
	q.Labels, q.Fields = labels.SelectorFromSet(labels.Set{"owner": "helm"}), fields.OneTermEqualSelector("type", "helm.sh/release.v1")
}

// revision has Helm store a revision of a release, which has a large value.
func (r *realWorld) revision(name string, revision int, status release.Status) {
	r.Helper()
	secrets := driver.NewSecrets(r.admin.CoreV1().Secrets(r.namespace))
	err := secrets.Create(fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, revision), &release.Release{
		Name: name, Version: revision, Namespace: r.namespace, Info: &release.Info{Status: status}, Labels: map[string]string{"team": "a"},
		Chart: &chart.Chart{Metadata: &chart.Metadata{Name: "shop", Version: "1.2.3", AppVersion: "v7"}}, Manifest: strings.Repeat("hidden", 1000),
	})
	if err != nil {
		r.Fatal(err)
	}
}

// What is watched of releases is what a live read says, for whatever is read of them. The watch asks for their Secrets alone, and holds nothing of a
// record but its head. One that cannot be read is there, and says so.
func TestReleasesAreWatchedAsTheyAreRead(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]bool{}
	r := newRealThrough(t, func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "/secrets") {
				mu.Lock()
				asked[req.URL.Query().Get("labelSelector")+" "+req.URL.Query().Get("fieldSelector")] = true
				mu.Unlock()
			}
			return next.RoundTrip(req)
		})
	})
	r.may("", "secrets")
	r.revision("web", 1, release.StatusSuperseded)
	r.revision("web", 2, release.StatusDeployed)
	for _, s := range []*corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.bad.v1", Labels: map[string]string{"owner": "helm", "name": "bad"}}, Type: "helm.sh/release.v1"},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Data: map[string][]byte{"key": []byte("hidden")}},
	} {
		if _, err := r.admin.CoreV1().Secrets(r.namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"sh.helm.release.v1.bad.v1", "sh.helm.release.v1.web.v1", "sh.helm.release.v1.web.v2"}
	reads := [][]string{{"type"}, {"name"}, {"revision"}, {"chart", "version"}, {"unreadable"}, {"data"}, {"labels"}, nil}
	for n := range reads {
		change := readsPaths(reads[:n+1]...)
		if reads[n] == nil {
			change = func(q *snapshot.Query) { q.Reads = nil }
		}
		q := r.query("Secret", ofReleases, change)
		r.SetInterests(owner("releases"), interests(q))
		r.reads(q, observed.Complete, names...)
		seen, live := r.Read(t.Context(), q), r.live.Read(t.Context(), q)
		if live.State != observed.Complete || len(live.Objects) != len(seen.Objects) {
			t.Fatalf("live is %s %q", live.State, live.Detail)
		}
		for i := range live.Objects {
			a, b := &live.Objects[i], &seen.Objects[i]
			if diff := cmp.Diff(q.Reads.Projection().ApplyToMap(a.Value), q.Reads.Projection().ApplyToMap(b.Value)); diff != "" {
				t.Errorf("read is %v (-live +watched):\n%s", q.Reads.Projection().ListPaths(), diff)
			}
			if a.Unreadable != b.Unreadable || !a.OfRelease || !b.OfRelease || (a.Unreadable != "") != (a.Name == names[0]) {
				t.Errorf("%s: live it is %t %q, watched %t %q", a.Name, a.OfRelease, a.Unreadable, b.OfRelease, b.Unreadable)
			}
			if text := fmt.Sprint(a.Value, b.Value); strings.Contains(text, " data:") || strings.Contains(text, "H4sI") || strings.Contains(text, "SDRzS") {
				t.Errorf("it has something of the record: %s", text)
			}
		}
	}
	q := r.query("Secret", ofReleases)
	r.wakes(owner("releases"), "a new revision", func() { r.revision("web", 3, release.StatusPendingUpgrade) })
	got := r.Read(t.Context(), q)
	if o := got.Objects[len(got.Objects)-1]; o.Value["status"] != "pending-upgrade" || o.Value["revision"] != int64(3) {
		t.Errorf("the new one is %v", o.Value)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 1 || !asked["owner=helm type=helm.sh/release.v1"] {
		t.Errorf("it was asked for %v", asked)
	}
}

// Targets of releases and of Secrets do not share what is watched, and each reads its own.
func TestReleasesBesideSecrets(t *testing.T) {
	r := newReal(t)
	r.may("", "secrets")
	r.revision("web", 1, release.StatusDeployed)
	plain := r.query("Secret", func(q *snapshot.Query) { q.Fields = fields.OneTermEqualSelector("type", "helm.sh/release.v1") })
	of := r.query("Secret", ofReleases)
	r.SetInterests(owner("both"), interests(plain, of))
	r.reads(plain, observed.Complete, "sh.helm.release.v1.web.v1")
	r.reads(of, observed.Complete, "sh.helm.release.v1.web.v1")
	secret, item := r.Read(t.Context(), plain).Objects[0], r.Read(t.Context(), of).Objects[0]
	if secret.OfRelease || secret.Value["data"] == nil || secret.Value["status"] != nil {
		t.Errorf("the Secret is read as %v", secret.Value)
	}
	if !item.OfRelease || item.Value["data"] != nil || item.Value["status"] != "deployed" {
		t.Errorf("the release is read as %v", item.Value)
	}
	if place, all, _, ok := r.FindPlace(&of); !ok || all != 1 || place.Filter.Fields != "type=helm.sh/release.v1" {
		t.Errorf("the place of releases is %+v with %d objects", place, all)
	}
	if plain.Digest() == of.Digest() {
		t.Error("both ask for the same")
	}
}
