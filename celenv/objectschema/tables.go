// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package objectschema

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// enums are the values of string types that the API server describes as enums, as far as rules read such fields. Go types do not say it.
func enums() map[reflect.Type][]string {
	return map[reflect.Type][]string{
		reflect.TypeFor[corev1.PodPhase](): {
			string(corev1.PodFailed), string(corev1.PodPending), string(corev1.PodRunning), string(corev1.PodSucceeded), string(corev1.PodUnknown),
		},
		reflect.TypeFor[corev1.NamespacePhase]():                {string(corev1.NamespaceActive), string(corev1.NamespaceTerminating)},
		reflect.TypeFor[corev1.PersistentVolumeClaimPhase]():    {string(corev1.ClaimBound), string(corev1.ClaimLost), string(corev1.ClaimPending)},
		reflect.TypeFor[corev1.PersistentVolumeReclaimPolicy](): {string(corev1.PersistentVolumeReclaimDelete), string(corev1.PersistentVolumeReclaimRecycle), string(corev1.PersistentVolumeReclaimRetain)},
		reflect.TypeFor[corev1.PersistentVolumePhase](): {
			string(corev1.VolumeAvailable), string(corev1.VolumeBound), string(corev1.VolumeFailed), string(corev1.VolumePending), string(corev1.VolumeReleased),
		},
		reflect.TypeFor[corev1.RestartPolicy](): {string(corev1.RestartPolicyAlways), string(corev1.RestartPolicyNever), string(corev1.RestartPolicyOnFailure)},
		reflect.TypeFor[corev1.ServiceType](): {
			string(corev1.ServiceTypeClusterIP), string(corev1.ServiceTypeExternalName), string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeNodePort),
		},
		reflect.TypeFor[corev1.TaintEffect](): {string(corev1.TaintEffectNoExecute), string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule)},
	}
}

// conditionTypes are the types of conditions that Kubernetes sets on built-in kinds. Others may set more.
func conditionTypes() map[schema.GroupKind][]string {
	return map[schema.GroupKind][]string{
		{Kind: "Node"}: {
			string(corev1.NodeReady), string(corev1.NodeMemoryPressure), string(corev1.NodeDiskPressure), string(corev1.NodePIDPressure), string(corev1.NodeNetworkUnavailable),
		},
		{Kind: "Pod"}: {
			string(corev1.PodReady), string(corev1.PodInitialized), string(corev1.PodScheduled), string(corev1.ContainersReady), string(corev1.DisruptionTarget),
			string(corev1.PodReadyToStartContainers), string(corev1.PodResizePending), string(corev1.PodResizeInProgress),
		},
		{Kind: "PersistentVolumeClaim"}: {
			string(corev1.PersistentVolumeClaimResizing), string(corev1.PersistentVolumeClaimFileSystemResizePending), string(corev1.PersistentVolumeClaimUnused),
		},
		{Kind: "Namespace"}: {
			string(corev1.NamespaceDeletionDiscoveryFailure), string(corev1.NamespaceDeletionContentFailure), string(corev1.NamespaceDeletionGVParsingFailure),
			string(corev1.NamespaceContentRemaining), string(corev1.NamespaceFinalizersRemaining),
		},
		{Group: "batch", Kind: "Job"}: {
			string(batchv1.JobSuspended), string(batchv1.JobComplete), string(batchv1.JobFailed), string(batchv1.JobFailureTarget), string(batchv1.JobSuccessCriteriaMet),
		},
		{Group: "apps", Kind: "Deployment"}: {
			string(appsv1.DeploymentAvailable), string(appsv1.DeploymentProgressing), string(appsv1.DeploymentReplicaFailure),
		},
		{Group: "apps", Kind: "ReplicaSet"}: {string(appsv1.ReplicaSetReplicaFailure)},
		{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: {
			string(autoscalingv2.ScalingActive), string(autoscalingv2.AbleToScale), string(autoscalingv2.ScalingLimited),
		},
		{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: {
			string(certificatesv1.CertificateApproved), string(certificatesv1.CertificateDenied), string(certificatesv1.CertificateFailed),
		},
	}
}

// finishKind adds what no schema says of an object of a kind: the usual texts in its conditions.
func (s *Schema) finishKind(gvk schema.GroupVersionKind) *Schema {
	if types := conditionTypes()[gvk.GroupKind()]; types != nil {
		s = s.withUsual(types, "status", "conditions", "*", "type")
	}
	return s.withUsual([]string{string(corev1.ConditionTrue), string(corev1.ConditionFalse), string(corev1.ConditionUnknown)}, "status", "conditions", "*", "status")
}
