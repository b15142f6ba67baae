// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
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
		decides, err := o.fingerprintWork(work)
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
			got, err := r.handsForRun(c, &assignment{work: c.Work()}, newMemory("uid"))
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

// answers gives the same objects to each query.
type answers struct{ plan.Target }

// Read gives them.
func (a answers) Read(context.Context, snapshot.Query) plan.Target { return a.Target }

// TestOwnSecretsAreNeverSeen shows that no expression sees a Secret of the operator's namespace, whoever asks.
func TestOwnSecretsAreNeverSeen(t *testing.T) {
	secrets, pods := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	in := func(resource schema.GroupVersionResource, namespace string) plan.Object {
		return plan.Object{Ref: plan.Ref{Resource: resource, Namespace: namespace, Name: "a"}}
	}
	for name, tc := range map[string]struct {
		resource schema.GroupVersionResource
		want     []string
	}{
		"Secrets": {secrets, []string{"shop"}},
		"Pods":    {pods, []string{"cleaner-system", "shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			shared := plan.Target{Resource: tc.resource, Objects: []plan.Object{in(tc.resource, "cleaner-system"), in(tc.resource, "shop")}}
			var got []string
			for _, o := range (withoutOwnSecrets{answers{shared}, "cleaner-system"}).Read(t.Context(), snapshot.Query{}).Objects {
				got = append(got, o.Namespace)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("it sees objects of %v, want %v", got, tc.want)
			}
			if shared.Objects[0].Namespace != "cleaner-system" {
				t.Error("the list that others read was changed")
			}
		})
	}
}

// Where there are very many accounts, what a Cleaner at rest has made for its own is let go of.
func TestHandsOfManyAccountsAreLetGo(t *testing.T) {
	r := newRig(t, done(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}))
	r.hands.made = map[identity.Account]weak.Pointer[hands]{}
	r.pass() // reads the Cleaner, and begins its memory
	mem := r.memories.m[r.key()]
	for n := range maxHands {
		r.hands.made[identity.Account{Namespace: "shop", Name: fmt.Sprint(n)}] = weak.Pointer[hands]{}
	}
	look := func() {
		mem.hands = &hands{}
		r.clock.Step(time.Minute)
		r.pass()
	}
	if look(); mem.hands == nil {
		t.Error("they are not kept where there are few")
	}
	r.hands.made[identity.Account{Namespace: "shop", Name: "more"}] = weak.Pointer[hands]{}
	look()
	if mem.hands != nil {
		t.Error("they are kept")
	}
}
