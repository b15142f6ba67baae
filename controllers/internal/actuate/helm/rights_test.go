// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/release"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func texts(rights []observed.Right) []string {
	var all []string
	for _, r := range rights {
		all = append(all, strings.TrimSuffix(r.String(), fmt.Sprintf(" in namespace %q", r.Namespace)))
	}
	return all
}

// TestRightsOfARelease lists what an author has to be allowed for the uninstall of a release: nothing for what is kept or
// of a kind that nobody serves.
func TestRightsOfARelease(t *testing.T) {
	w := newWorld(t)
	w.account = types.NamespacedName{Namespace: w.namespace, Name: "deleter"}
	c := shop()
	c.Templates["hook.yaml"] = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, annotations: {helm.sh/hook: pre-delete}}\n" +
		"spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}\n"
	c.Templates["kept.yaml"] = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: x, annotations: {helm.sh/resource-policy: keep}}\n" +
		"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	w.install(c)
	w.rewrite(func(r *release.Release) {
		r.Manifest += "\n---\napiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: x}\n"
	})
	r := w.look()
	want := []string{
		"delete configmaps", "get configmaps", "delete secrets", "get secrets", "list secrets", "update secrets", "delete serviceaccounts", "get serviceaccounts",
		"delete services", "get services",
	}
	access := []string{
		"delete rolebindings.rbac.authorization.k8s.io", "get rolebindings.rbac.authorization.k8s.io",
		"delete roles.rbac.authorization.k8s.io", "get roles.rbac.authorization.k8s.io",
	}
	jobs := []string{"create jobs.batch", "delete jobs.batch", "get jobs.batch", "watch jobs.batch"}
	if diff := cmp.Diff(slices.Concat(want, access), texts(r.RequiredRights(true))); diff != "" {
		t.Errorf("rights without hooks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Concat(want, jobs, access), texts(r.RequiredRights(false))); diff != "" {
		t.Errorf("rights with hooks (-want +got):\n%s", diff)
	}
	for _, right := range r.RequiredRights(false) {
		if right.Namespace != w.namespace {
			t.Errorf("%s is asked for elsewhere", right)
		}
	}
}

// TestRightsOfHooks lists what an author has to be allowed for hooks: the same for each of their objects, wherever it is.
func TestRightsOfHooks(t *testing.T) {
	f := fakeClusterWithAccount(t)
	f.install(
		config("a"), pod("check", well, preDelete), job("backup", well, preDelete),
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: note, namespace: bank, annotations: {helm.sh/hook: post-delete}}\n",
	)
	rel := must(f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop"))(t)
	list := func(rights []observed.Right) (all []string) {
		for _, r := range rights {
			all = append(all, fmt.Sprintf("%s %s/%s in %s", r.Verb, r.Group, r.Resource, r.Namespace))
		}
		slices.Sort(all)
		return all
	}
	var want []string
	for _, what := range []string{"/configmaps in bank", "/pods in team", "batch/jobs in team"} {
		for _, verb := range []string{"create", "delete", "get", "watch"} {
			want = append(want, verb+" "+what)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, list(rel.HookRights)); diff != "" {
		t.Errorf("for hooks (-want +got):\n%s", diff)
	}
	want = []string{
		"delete /configmaps in team", "delete /secrets in team", "get /configmaps in team", "get /secrets in team", "list /secrets in team", "update /secrets in team",
	}
	if diff := cmp.Diff(want, list(rel.Rights)); diff != "" {
		t.Errorf("for the rest (-want +got):\n%s", diff)
	}
}

// TestNothingIsDeletedWithoutAReviewedRight has an object that nobody was asked about: its kind was not served then.
func TestNothingIsDeletedWithoutAReviewedRight(t *testing.T) {
	w := newWorld(t)
	w.install(shop())
	r := w.look()
	want := w.committed()
	want.Rights = slices.DeleteFunc(r.RequiredRights(false), func(r observed.Right) bool { return r.Resource == "services" })
	got := w.uninstall(want)
	if diff := cmp.Diff([]string{"Service web"}, kept(got.Kept)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Service web"}, w.names()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// TestNoHookWithoutAReviewedRight has a hook that nobody was asked about.
func TestNoHookWithoutAReviewedRight(t *testing.T) {
	job := object{Ref: observed.Ref{Resource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, Namespace: "team", Name: "x"}}
	s := UninstallRequest{Rights: []observed.Right{{Verb: "delete", Group: "batch", Resource: "jobs", Namespace: "team"}}}
	if s.isRightReviewed(job, "create") {
		t.Error("the right to delete Jobs lets a hook create them")
	}
	job.Namespace = "bank"
	if s.isRightReviewed(job, "delete") {
		t.Error("the right in one namespace serves in another")
	}
	job.Namespace = "team"
	if !s.isRightReviewed(job, "delete") {
		t.Error("a right that was reviewed does not serve")
	}
}

func TestTooManyRights(t *testing.T) {
	of := func(kinds int) rightSet {
		s := rightSet{}
		for i := range kinds {
			s.addVerbs(object{Ref: observed.Ref{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprintf("things%d", i)}}}, "delete")
		}
		return s
	}
	if blocked := checkRightsCount("shop", of(observed.MaxReleaseRights-1), of(1)); blocked != nil {
		t.Errorf("as many as are reviewed: %v", blocked)
	}
	blocked := checkRightsCount("shop", of(observed.MaxReleaseRights), of(1))
	if blocked == nil || blocked.Reason != v1alpha1.ReasonTooManyObjects || !strings.Contains(blocked.Detail, `release "shop" needs 257 different rights`) {
		t.Errorf("one more: got %v", blocked)
	}
}
