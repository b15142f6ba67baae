// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/identity"
)

func TestAccountOf(t *testing.T) {
	for name, tc := range map[string]struct {
		named, byDefault string
		want             identity.Account
	}{
		"Operator": {"", "", identity.Account{}},
		"Named":    {"mine", "", identity.Account{Namespace: "shop", Name: "mine"}},
		"Default":  {"", "cleaning", identity.Account{Namespace: "shop", Name: "cleaning"}},
		"Both":     {"mine", "cleaning", identity.Account{Namespace: "shop", Name: "mine"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &CleanerReconciler{opts: Options{DefaultServiceAccount: tc.byDefault}}
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: v1alpha1.CleanerSpec{ServiceAccountName: tc.named}}
			if got := r.accountOf(c); got != tc.want {
				t.Errorf("acts as %v, want %v", got, tc.want)
			}
		})
	}
}
