// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/uninstalls"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
)

// An author needs the rights that the uninstall of the release takes, with those of its hooks if they may run. Of an open run, its record says
// that, and after an edit its hooks do not run. With a ServiceAccount, its rights decide.
func TestRightsForARelease(t *testing.T) {
	ofRelease := observed.Right{Verb: "delete", Resource: "services", Namespace: "shop"}
	ofHooks := observed.Right{Verb: "create", Group: "batch", Resource: "jobs", Namespace: "shop"}
	release := &observed.Release{Rights: []observed.Right{ofRelease}, HookRights: []observed.Right{ofHooks}, HasHooks: true}
	open := func(result v1alpha1.Result, helm *v1alpha1.HelmRelease) *v1alpha1.Run {
		return &v1alpha1.Run{Number: 1, Decides: "this", Result: result, Helm: helm}
	}
	for name, tc := range map[string]struct {
		helm    *v1alpha1.Helm
		run     *v1alpha1.Run
		edited  bool
		account string
		hooks   bool // the rights of hooks are needed
	}{
		"NoHelm":       {hooks: true},
		"Hooks":        {helm: &v1alpha1.Helm{}, hooks: true},
		"Disabled":     {helm: &v1alpha1.Helm{DisableHooks: true}},
		"Open":         {helm: &v1alpha1.Helm{DisableHooks: true}, run: open("", &v1alpha1.HelmRelease{}), hooks: true},
		"OpenDisabled": {helm: &v1alpha1.Helm{}, run: open("", &v1alpha1.HelmRelease{DisableHooks: true})},
		"OpenEdited":   {helm: &v1alpha1.Helm{}, run: open("", &v1alpha1.HelmRelease{}), edited: true},
		"OpenNoHelm":   {helm: &v1alpha1.Helm{DisableHooks: true}, run: open("", nil)},
		"Finished":     {helm: &v1alpha1.Helm{DisableHooks: true}, run: open(v1alpha1.ResultCompleted, &v1alpha1.HelmRelease{})},
		"AsAccount":    {helm: &v1alpha1.Helm{}, account: "deleter"},
	} {
		t.Run(name, func(t *testing.T) {
			p := executing(t, newRig(t, done(deletes())), false).pass
			p.assignment.Work.Helm, p.store.Draft.State().Run, p.mem.fingerprint = tc.helm, tc.run, "this"
			if tc.edited {
				p.mem.fingerprint = "other"
			}
			p.clients = &clients.Set{}
			if tc.account != "" {
				p.clients.Account = identity.Account{Namespace: "shop", Name: tc.account}
			}
			needed, unknown := p.authority.findNeeded(t.Context(), release)
			if unknown != "" {
				t.Fatal(unknown)
			}
			if got := slices.Contains(needed, ofHooks); got != tc.hooks {
				t.Errorf("the rights of hooks are needed: %t", got)
			}
			if got := slices.Contains(needed, ofRelease); got != (tc.account == "") {
				t.Errorf("the rights of the release are needed: %t", got)
			}
			if deletesPods := slices.Contains(needed, rights.Right{Verb: "delete", Resource: "pods", Namespace: "shop"}); !deletesPods {
				t.Errorf("the right to delete Pods is not needed: %v", needed)
			}
			want := []observed.Right{ofRelease}
			if tc.hooks {
				want = []observed.Right{ofRelease, ofHooks}
			}
			if tc.account != "" {
				want = []observed.Right{{Verb: "impersonate", Resource: "serviceaccounts", Namespace: "shop", Name: tc.account}}
			}
			if got := uninstalls.ListNeeded(p.clients.Account, release, p.authority.disablesHooks()); !slices.Equal(got, want) {
				t.Errorf("for the uninstall are needed %v, want %v", got, want)
			}
		})
	}
}

// A Cleaner that is not evaluated watches nothing: no change wakes it.
func TestACleanerThatIsNotEvaluatedWatchesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		stop   func(r *rig, allowed map[string][]string)
	}{
		"Refused": {v1alpha1.ReasonAuthorLacksRights, func(_ *rig, allowed map[string][]string) { clear(allowed) }},
		"Invalid": {v1alpha1.ReasonInvalidSpec, func(r *rig, _ map[string][]string) { r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].When = "(" }) }},
		"NoTemplate": {v1alpha1.ReasonTemplateMissing, func(r *rig, _ map[string][]string) {
			r.edit(func(c *v1alpha1.Cleaner) { c.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: "t"} })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, done(deletes()), aPod("a", "Running"))
			allowed := map[string][]string{"alice": {"list pods", "watch pods", "get pods", "delete pods"}}
			r.reviewing(allowed, new(error))
			r.pass()
			mem := r.memories.memoryOf(r.key())
			if mem.listening.IsZero() {
				t.Fatalf("it watches nothing before: %s", r.line())
			}
			r.clock.Step(2 * time.Hour) // its author is reviewed again
			tc.stop(r, allowed)
			r.pass()
			if !mem.listening.IsZero() {
				t.Errorf("it watches what it selects: %s", r.line())
			}
			if ready := meta.FindStatusCondition(r.cleaner().Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != tc.reason {
				t.Errorf("Ready is %+v, want the reason %s", ready, tc.reason)
			}
		})
	}
}

// What an administrator allows and demands of the operator holds for the spec of each Cleaner, too.
func TestASpecIsCheckedByTheOptions(t *testing.T) {
	role := func(c *v1alpha1.Cleaner) {
		c.Spec.Targets[0].Reference = v1alpha1.Reference{APIGroup: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role", MatchLabels: map[string]string{}}
		c.Spec.Targets[0].Delete = true
	}
	secret := func(c *v1alpha1.Cleaner) {
		c.Spec.CloudEventSink = "https://sink.example"
		c.Spec.CloudEventSinkAuth = &v1alpha1.SinkAuth{Type: v1alpha1.SinkAuthBearer, SecretRef: v1alpha1.SecretKeyReference{Name: "sink", Key: "token"}}
	}
	for name, tc := range map[string]struct {
		change  func(c *v1alpha1.Cleaner)
		options Options
		wrong   bool
	}{
		"Plain":            {},
		"Protected":        {change: role, wrong: true},
		"Allowed":          {change: role, options: Options{AllowProtectedKinds: []string{"roles.rbac.authorization.k8s.io"}}},
		"OtherAllowed":     {change: role, options: Options{AllowProtectedKinds: []string{"roles"}}, wrong: true},
		"NoAccount":        {options: Options{RequireServiceAccount: true}, wrong: true},
		"DefaultAccount":   {options: Options{RequireServiceAccount: true, DefaultServiceAccount: "cleaning"}},
		"OwnNamespace":     {change: secret, options: Options{Namespace: "shop"}, wrong: true},
		"AnotherNamespace": {change: secret, options: Options{Namespace: "cleaner-system"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := once()
			if tc.change != nil {
				tc.change(c)
			}
			c.Spec.Conditions = []string{"true"}
			p := executing(t, newRig(t, c), false).pass
			tc.options.Skew = p.r.opts.Skew
			p.r.opts = tc.options
			programs, findings, err := p.evaluator.compileSpec(t.Context())
			if err != nil || programs == nil || (len(findings) > 0) != tc.wrong {
				t.Errorf("got %v, %v", findings, err)
			}
		})
	}
}

// A record is replaced and said to be in one write: a process that loses the Cleaner right after it leaves no record replaced without saying so.
func TestAReplacedRecordIsSaidWithIt(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{}, "c", nil)
	const said = "status.run replace status.run: RecordNotTrusted: the operator discarded it; the outcome of run 7 is unknown"
	for name, tc := range map[string]struct {
		// refuses says that the API server does not take back what the status shows.
		refuses bool
		want    []string
	}{
		"Taken":   {false, []string{said, "x x x: x"}},
		"Refused": {true, []string{said}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, done(deletes()), aPod("a", "Running"))
			c := r.cleaner()
			c.Status.Runs, c.Status.Run = 7, &v1alpha1.Run{Number: 7, Decides: "v1:x", DecidedAt: metav1.NewTime(epoch)}
			c.Status.LastActions = []v1alpha1.Action{{Object: "x", Rule: "x", Action: "x", Result: "x", Time: metav1.NewTime(epoch)}}
			must(t, r.store.Status().Update(t.Context(), c))
			r.client = interceptor.NewClient(r.store, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, cl client.Client, _ string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					text, err := patch.Data(o)
					if err != nil {
						return err
					}
					if tc.refuses && bytes.Contains(text, []byte(`"x"`)) {
						return invalid
					}
					r.lease = false
					return cl.Status().Patch(ctx, o, patch, opts...)
				},
			})
			if got := r.pass().RequeueAfter; got != conflictRetry {
				t.Errorf("a process that no longer owns the Cleaner looks at it again in %s", got)
			}
			if diff := cmp.Diff(tc.want, r.did()); diff != "" || r.cleaner().Status.Run != nil {
				t.Errorf("the run is %v, and the status says\n%s", r.cleaner().Status.Run, diff)
			}
			r.client, r.lease = r.store, true
			r.clock.Step(time.Minute)
			r.pass()
			if diff := cmp.Diff(tc.want, r.did()); diff != "" {
				t.Errorf("the next pass says\n%s", diff)
			}
		})
	}
}

// If the answer is lost, what was written stays, and is said once.
func TestAReplacedRecordWhoseAnswerIsLost(t *testing.T) {
	const said = "status.run replace status.run: RecordNotTrusted: the operator restored the latest one"
	for name, isWritten := range map[string]bool{"Written": true, "NotWritten": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, done(deletes()), aPod("a", "Succeeded"))
			r.pass()
			r.clock.Step(time.Minute)
			r.pass()
			want := append([]string{said}, r.did()...)
			if r.said(); len(want) != 2 {
				t.Fatalf("at first it did %v", want[1:])
			}
			c := r.cleaner()
			c.Status.Runs, c.Status.Run = 7, &v1alpha1.Run{Number: 7, Decides: "v1:x", DecidedAt: metav1.NewTime(epoch)}
			must(t, r.store.Status().Update(t.Context(), c))
			lost := false
			r.client = interceptor.NewClient(r.store, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, cl client.Client, _ string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if lost {
						return cl.Status().Patch(ctx, o, patch, opts...)
					}
					if lost = true; isWritten {
						must(t, cl.Status().Patch(ctx, o, patch, opts...))
					}
					return errors.New("the connection was lost")
				},
			})
			_, _ = r.Reconcile(t.Context(), r.request())
			if !lost {
				t.Fatal("the record is not replaced")
			}
			for range 3 {
				r.clock.Step(time.Minute)
				r.pass()
			}
			if diff := cmp.Diff(want, r.did()); diff != "" || r.cleaner().Status.Run != nil {
				t.Errorf("the run is %v, and the status says\n%s", r.cleaner().Status.Run, diff)
			}
			if events := strings.Join(r.said(), "; "); !strings.Contains(events, v1alpha1.ReasonRecordNotTrusted) {
				t.Errorf("the Events are %s", events)
			}
		})
	}
}
