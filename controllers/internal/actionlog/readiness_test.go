// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actionlog

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/metrics"
)

// What is ready is said of Cleaners and of ClusterCleaners, by their condition. A run is no fault, and who was never looked at is not ready.
// A sink that was not asked yet has not refused anything.
func TestListReadiness(t *testing.T) {
	scheme := apiruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for name, status := range map[string]metav1.ConditionStatus{"false": metav1.ConditionFalse, "true": metav1.ConditionTrue, "running": metav1.ConditionUnknown} {
		st := v1alpha1.CleanerStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "Other"}, {Type: v1alpha1.ConditionReady, Status: status, Reason: "Why"},
		}}
		b.WithObjects(
			&v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: st},
			&v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: st},
		)
	}
	for name, reason := range map[string]string{"sending": v1alpha1.ReasonDelivering, "unsent": v1alpha1.ReasonDeliveryFailed} {
		b.WithObjects(&v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: v1alpha1.CleanerStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Why"}, {Type: v1alpha1.ConditionDelivered, Status: metav1.ConditionFalse, Reason: reason},
		}}})
	}
	c := b.WithObjects(&v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new"}}).Build()
	got, err := ListReadiness(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b metrics.Readiness) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	want := []metrics.Readiness{
		{Name: "false", Reason: "Why"}, {Name: "running", Reason: "Why", Ready: true}, {Name: "true", Reason: "Why", Ready: true},
		{Namespace: "shop", Name: "false", Reason: "Why"}, {Namespace: "shop", Name: "new"}, {Namespace: "shop", Name: "running", Reason: "Why", Ready: true},
		{Namespace: "shop", Name: "sending", Reason: "Why", Ready: true}, {Namespace: "shop", Name: "true", Reason: "Why", Ready: true},
		{Namespace: "shop", Name: "unsent", Reason: "Why", Ready: true, Unaccepted: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, err := ListReadiness(t.Context(), fake.NewClientBuilder().WithScheme(apiruntime.NewScheme()).Build()); err == nil {
		t.Error("a list that cannot be read is no error")
	}
}
