// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha

import "github.com/vtex/cleaner/api/v1alpha1"

// Cleaner cleans up in its own namespace: after a time to live, and when its conditions hold, it deletes the targets
// that say so, uninstalls a Helm release, sends a CloudEvent, and then removes itself.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cln,categories=cleaning
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Cleaner works as written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="What the Cleaner waits for, or what is wrong"
// +kubebuilder:printcolumn:name="Targets",type=integer,JSONPath=`.status.resolvedTargetCount`,description="How many objects its targets name now"
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduledEvaluation`,description="When it looks again if nothing changes before"
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=`.spec.ttl`,priority=1,description="How long after its creation it waits"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,priority=1,description="Enforce, or DryRun: only report"
// +kubebuilder:printcolumn:name="Last Action",type=string,JSONPath=`.status.lastActions[0].object`,priority=1,description="The object that was acted on last"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Cleaner = v1alpha1.Cleaner

// CleanerList is a list of Cleaners.
//
// +kubebuilder:object:root=true
type CleanerList = v1alpha1.CleanerList
