// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"fmt"

	"helm.sh/helm/v3/pkg/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// What Helm writes on each object that it installs.
const (
	managedByLabel             = "app.kubernetes.io/managed-by"
	managedByHelm              = "Helm"
	releaseNameAnnotation      = "meta.helm.sh/release-name"
	releaseNamespaceAnnotation = "meta.helm.sh/release-namespace"
)

// reasonToKeep says why a live object must be left although the manifest names it; empty when it may go. The manifest
// proves nothing: it is a Secret that tenants can write, and the object may have another owner since.
func (u *Uninstaller) reasonToKeep(ref observed.Ref, live metav1.Object, want UninstallRequest) string {
	labels, annotations := live.GetLabels(), live.GetAnnotations()
	because := u.protection.OfRelease(ref, ref.Namespace != "")
	switch {
	case because != "":
		return because
	case ref.Namespace != want.Namespace && !u.answersFor(want.Namespace):
		return fmt.Sprintf("it lies outside namespace %q", want.Namespace)
	case isSelf(ref, want.Self):
		return "it is the Cleaner itself"
	case ref.Resource.Group == "" && ref.Resource.Resource == "secrets" && isRecordName(ref.Name):
		return "it is the record of a release"
	case isProtected(live):
		return fmt.Sprintf("it is protected by %s", v1alpha1.ProtectKey)
	case annotations[kube.ResourcePolicyAnno] == kube.KeepPolicy:
		return fmt.Sprintf("it says %s: %s", kube.ResourcePolicyAnno, kube.KeepPolicy)
	case labels[managedByLabel] != managedByHelm:
		return fmt.Sprintf("its label %s is %q, not %q", managedByLabel, labels[managedByLabel], managedByHelm)
	case annotations[releaseNameAnnotation] != want.Name, annotations[releaseNamespaceAnnotation] != want.Namespace:
		return fmt.Sprintf("it says that it belongs to release %q in namespace %q",
			annotations[releaseNameAnnotation], annotations[releaseNamespaceAnnotation])
	default:
		return ""
	}
}

// isProtected says that an object must not be touched.
func isProtected(o metav1.Object) bool {
	return o.GetLabels()[v1alpha1.ProtectKey] == "true" || o.GetAnnotations()[v1alpha1.ProtectKey] == "true"
}

// isSelf compares without the version: a Cleaner is served in two.
func isSelf(ref, self observed.Ref) bool {
	return self.Name != "" && ref.Name == self.Name && ref.Namespace == self.Namespace &&
		ref.Resource.GroupResource() == self.Resource.GroupResource()
}
