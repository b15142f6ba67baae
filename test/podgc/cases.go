// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgc has the tables of what kube-controller-manager's pod garbage collector does. Its tests play them on real
// control planes, with the templates that are shipped on one and with kube-controller-manager on the other. It never
// touches a cluster that it has not started.
package podgc

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Case is one of the tables in config/templates/testdata/podgc, whose README says what its fields mean.
type Case struct {
	Name       string   `json:"name"`
	Templates  []string `json:"templates"`
	Threshold  *int64   `json:"threshold"`
	Quarantine *string  `json:"quarantine"`
	Nodes      []Node   `json:"nodes"`
	Pods       []Pod    `json:"pods"`
	Steps      []Step   `json:"steps"`
	Failed     []string `json:"failed"`
	Disrupted  bool     `json:"disrupted"`
	Since      string   `json:"since"`
	KCM        string   `json:"kcm"`
}

// Node is a Node of a case.
type Node struct {
	Name   string         `json:"name"`
	In     []string       `json:"in"`
	Ready  string         `json:"ready"`
	Taints []corev1.Taint `json:"taints"`
}

// Pod is a Pod of a case.
type Pod struct {
	Name       string                `json:"name"`
	Namespace  string                `json:"namespace"`
	Node       string                `json:"node"`
	Phase      corev1.PodPhase       `json:"phase"`
	Reason     string                `json:"reason"`
	Created    int                   `json:"created"`
	Deleted    bool                  `json:"deleted"`
	Grace      *int64                `json:"grace"`
	Finalizers []string              `json:"finalizers"`
	Conditions []corev1.PodCondition `json:"conditions"`
	From       v1alpha1.Duration     `json:"from"`
}

// Step is a moment of a case.
type Step struct {
	At     v1alpha1.Duration `json:"at"`
	Appear []string          `json:"appear"`
	Vanish []string          `json:"vanish"`
	In     []string          `json:"in"`
	Fail   *bool             `json:"fail"`
	Gone   []string          `json:"gone"`
}
