// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"runtime"
	"testing"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/identity"
)

// TestHandsFor has what is done for a Cleaner done as the account by its spec; but a run that is stopped is ended as the
// account with which it was begun.
func TestHandsFor(t *testing.T) {
	spec := func(named string) v1alpha1.CleanerSpec {
		return v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}, ServiceAccountName: named}
	}
	committed := func(o Options, named string) *v1alpha1.Run {
		s := spec(named)
		work := s.Work()
		decides, err := o.decides(work)
		if err != nil {
			t.Fatal(err)
		}
		run := &v1alpha1.Run{Number: 1, Decides: decides}
		if a := o.serviceAccount(work); a != nil {
			run.ServiceAccountName = a.Name
		}
		return run
	}
	finished := committed(Options{}, "old")
	finished.Result = v1alpha1.ResultPartial
	forged := committed(Options{}, "mine")
	forged.ServiceAccountName = "cluster-admin"
	for name, tc := range map[string]struct {
		named, byDefault string
		run              *v1alpha1.Run
		want             string
	}{
		"Operator":         {want: ""},
		"Named":            {named: "mine", want: "mine"},
		"Default":          {byDefault: "cleaning", want: "cleaning"},
		"NamedAndDefault":  {named: "mine", byDefault: "cleaning", want: "mine"},
		"Open":             {named: "mine", run: committed(Options{}, "mine"), want: "mine"},
		"EditedAway":       {run: committed(Options{}, "mine"), want: "mine"},
		"EditedTo":         {named: "mine", run: committed(Options{}, ""), want: ""},
		"OtherDefault":     {byDefault: "new", run: committed(Options{DefaultServiceAccount: "old"}, ""), want: "old"},
		"DefaultTakenAway": {run: committed(Options{DefaultServiceAccount: "old"}, ""), want: "old"},
		"Finished":         {named: "mine", run: finished, want: "mine"},
		"Forged":           {named: "mine", run: forged, want: "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &CleanerReconciler{opts: Options{DefaultServiceAccount: tc.byDefault}, own: &hands{}, hands: &handsMaker{}}
			var held []*hands
			r.hands.made = map[identity.Account]weak.Pointer[hands]{}
			for _, name := range []string{"mine", "cleaning", "old", "new", "cluster-admin"} {
				h := &hands{account: identity.Account{Namespace: "shop", Name: name}}
				held = append(held, h)
				r.hands.made[h.account] = weak.Make(h)
			}
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: spec(tc.named), Status: v1alpha1.CleanerStatus{Run: tc.run}}
			got, err := r.handsFor(c, &assignment{work: c.Work()}, newMemory("uid"))
			if err != nil {
				t.Fatal(err)
			}
			if got.account.Name != tc.want {
				t.Errorf("acts as %s, want %q", got.account, tc.want)
			}
			runtime.KeepAlive(held)
		})
	}
}
