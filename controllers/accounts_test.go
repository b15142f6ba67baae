// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
)

// What is done for a Cleaner is done as the account by its spec; but a run that is stopped is ended as the account with which
// it was begun.
func TestRunsEndAsTheAccountThatBeganThem(t *testing.T) {
	spec := func(named string) v1alpha1.CleanerSpec {
		return v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}, ServiceAccountName: named}
	}
	committed := func(o Options, named string) *v1alpha1.Run {
		s := spec(named)
		work := s.Work()
		fingerprint, err := o.fingerprintWork(work)
		if err != nil {
			t.Fatal(err)
		}
		run := &v1alpha1.Run{Number: 1, Decides: fingerprint}
		if a := o.identityPolicy().ServiceAccountOf(work); a != nil {
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
			r := newRig(t, done())
			r.opts.DefaultServiceAccount = tc.byDefault
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: spec(tc.named), Status: v1alpha1.CleanerStatus{Run: tc.run}}
			got, err := r.clientsForRun(c, &resolvedspec.Assignment{Work: c.Work()}, newMemory("uid", mine))
			if err != nil {
				t.Fatal(err)
			}
			if got.Account.Name != tc.want {
				t.Errorf("acts as %s, want %q", got.Account, tc.want)
			}
		})
	}
}

// Where there are very many accounts, the clients that a Cleaner at rest has of its own are dropped.
func TestClientsOfManyAccountsAreDropped(t *testing.T) {
	r := newRig(t, done(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}))
	r.pass() // reads the Cleaner, and begins its memory
	mem := r.memories.memoryOf(r.key())
	var held []*clients.Set
	makeSets := func(names ...string) {
		for _, name := range names {
			set, err := r.clients.SetOf(identity.Account{Namespace: "shop", Name: name})
			must(t, err)
			held = append(held, set)
		}
	}
	for n := range clients.MaxSets {
		makeSets(fmt.Sprint(n))
	}
	look := func() {
		mem.clients = held[0]
		r.clock.Step(time.Minute)
		r.pass()
	}
	if look(); mem.clients == nil {
		t.Error("they are not kept where there are few")
	}
	makeSets("one more")
	look()
	if mem.clients != nil {
		t.Error("they are kept")
	}
	runtime.KeepAlive(held)
}
