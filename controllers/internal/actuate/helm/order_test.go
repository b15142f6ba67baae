// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"helm.sh/helm/v3/pkg/release"
)

// named is a manifest of an object with nothing but a name.
func named(apiVersion, kind, name string) string {
	return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: " + name + "}\n"
}

// TestUninstallOrder deletes the objects in Helm's order, those that grant rights after all others, older records before newer ones, and
// the newest record last of all.
func TestUninstallOrder(t *testing.T) {
	f := newFakeCluster(t)
	f.install(
		named("v1", "ServiceAccount", "runner"), named("rbac.authorization.k8s.io/v1", "Role", "runner"), named("rbac.authorization.k8s.io/v1", "RoleBinding", "runner"),
		config("b"), config("a"), named("batch/v1", "Job", "tidy"), named("v1", "Service", "web"), named("v1", "Pod", "one"),
	)
	for _, version := range []int{9, 10} {
		f.putRelease(made(func(r *release.Release) { *r = *readRelease(f.t, f.server.find("shop.v1")); r.Version = version }))
	}
	got, err := f.uninstall(f.committed())
	check(t, err)
	want := []string{
		"update Secret sh.helm.release.v1.shop.v10",
		"delete Service web", "delete Job tidy", "delete Pod one", "delete ConfigMap b", "delete ConfigMap a",
		"delete RoleBinding runner", "delete Role runner", "delete ServiceAccount runner",
		"delete Secret sh.helm.release.v1.shop.v1", "delete Secret sh.helm.release.v1.shop.v9", "delete Secret sh.helm.release.v1.shop.v10",
	}
	if diff := cmp.Diff(want, f.server.didWrite()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Outcome{State: Done}, got, cmpopts.IgnoreFields(Outcome{}, "Deleted")); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], deletions(refs(got.Deleted)...)); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if left := f.server.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
