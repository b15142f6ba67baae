// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedcleaners

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/shards"
)

// allBut owns all Cleaners but one, of which another process says whether it is ready.
type allBut struct {
	shards.Alone
	other types.NamespacedName
}

func (a allBut) FindTenure(key types.NamespacedName) shards.Tenure {
	if key == a.other {
		return shards.Tenure{}
	}
	return a.Alone.FindTenure(key)
}

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
	c := b.WithObjects(&v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new"}}, &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}}).Build()
	got, err := ListReadiness(t.Context(), c, allBut{other: types.NamespacedName{Namespace: "shop", Name: "other"}})
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
	if _, err := ListReadiness(t.Context(), fake.NewClientBuilder().WithScheme(apiruntime.NewScheme()).Build(), shards.Alone{}); err == nil {
		t.Error("a list that cannot be read is no error")
	}
}

// Each Cleaner is in one shard, with all others of its namespace. ClusterCleaners are in many.
func TestWakeShards(t *testing.T) {
	scheme := apiruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		b.WithObjects(
			&v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}, &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "c"}},
			&v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: name}},
		)
	}
	c, all, clusterWide := b.Build(), 0, 0
	for shard := range shards.Count {
		var keys []types.NamespacedName
		WakeShards(t.Context(), c, []int{shard}, func(key types.NamespacedName) { keys = append(keys, key) })
		all += len(keys)
		ofShop, of := 0, 0
		for _, key := range keys {
			if shards.FindShard(key) != shard {
				t.Errorf("%s is in shard %d", key, shard)
			}
			if key.Namespace == "shop" {
				ofShop++
			}
			if key.Namespace == "" {
				of = 1
			}
		}
		if ofShop != 0 && ofShop != 6 {
			t.Errorf("shard %d has %d Cleaners of the namespace", shard, ofShop)
		}
		clusterWide += of
	}
	if all != 18 || clusterWide < 2 {
		t.Errorf("%d Cleaners in all; ClusterCleaners in %d shards", all, clusterWide)
	}
	WakeShards(t.Context(), fake.NewClientBuilder().WithScheme(apiruntime.NewScheme()).Build(), []int{0}, func(key types.NamespacedName) { t.Errorf("%s is woken without a cache", key) })
}
