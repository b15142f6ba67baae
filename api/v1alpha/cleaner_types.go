// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha

import "github.com/vtex/cleaner/api/v1alpha1"

// Cleaner cleans up objects in its own namespace. With lifecycle Once, it waits until its time to live has passed and
// its conditions are true. Then it deletes the selected targets, uninstalls a Helm release, sends a CloudEvent and
// deletes itself. With lifecycle Recurring, it stays and cleans up whenever there is something to clean up.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cln,categories=cleaning
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="False if an error, a missing right or a limit stops the Cleaner"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="What the Cleaner is waiting for, or what is wrong"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,description="Enforce or DryRun"
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduledEvaluation`,description="When the next evaluation is due if nothing changes before then"
// +kubebuilder:printcolumn:name="Done",type=integer,JSONPath=`.status.counters.acted`,description="The number of actions that were carried out"
// +kubebuilder:printcolumn:name="Targets",type=integer,JSONPath=`.status.resolvedTargetCount`,priority=1,description="The number of objects that the targets currently select"
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=`.spec.ttl`,priority=1,description="How long after creation the evaluation starts"
// +kubebuilder:printcolumn:name="Last Action",type=string,JSONPath=`.status.lastActions[0].object`,priority=1,description="The last object that was acted on"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Cleaner = v1alpha1.Cleaner

// CleanerList is a list of Cleaners.
//
// +kubebuilder:object:root=true
type CleanerList = v1alpha1.CleanerList
