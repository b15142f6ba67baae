// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/objectschema"
)

// builtIn has the schemas of the built-in kinds.
type builtIn struct{}

func (builtIn) FindSchema(_ context.Context, gvk schema.GroupVersionKind) (*objectschema.Schema, error) {
	return objectschema.OfBuiltIn(scheme.Scheme, gvk), nil
}

func (builtIn) Renew(context.Context) (changed bool, err error) { return false, nil }

// schemasAway has no schemas, because the API server does not answer.
type schemasAway struct{}

func (schemasAway) FindSchema(context.Context, schema.GroupVersionKind) (*objectschema.Schema, error) {
	return nil, errors.New("the API server is away")
}

func (schemasAway) Renew(context.Context) (changed bool, err error) {
	return false, errors.New("the API server is away")
}

// A field that does not exist is refused or warned of as validation says. Where schemas cannot be read, that is one warning.
func TestFieldsThatDoNotExist(t *testing.T) {
	const unknown = `spec.conditions[0]: 1:25: Pod has no field status.phse; did you mean "phase"?`
	for name, tc := range map[string]struct {
		validation v1alpha1.FieldValidation
		away       bool
		condition  string
		allowed    bool
		says       string
	}{
		"Strict":    {condition: "phse", says: unknown},
		"Warn":      {validation: v1alpha1.ValidationWarn, condition: "phse", allowed: true, says: unknown},
		"Ignore":    {validation: v1alpha1.ValidationIgnore, condition: "phse", allowed: true},
		"Sound":     {condition: "phase", allowed: true},
		"Away":      {away: true, condition: "phse", allowed: true, says: "spec.targets: the fields that expressions read were not all checked; cannot read the schemas of all kinds: Pod: the API server is away"},
		"NotAValue": {validation: "Strickt", condition: "phase", says: `spec.validation: "Strickt" is not a validation: write Strict, Warn or Ignore`},
	} {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}}
			c.Spec.Validation = tc.validation
			c.Spec.Targets = []v1alpha1.Target{{Name: "pods", Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}}
			c.Spec.Conditions = []string{"pods.items.exists(p, has(p.status." + tc.condition + "))"}
			v := town(t, []string{"list pods", "watch pods"})
			if tc.away {
				v.fields = newFieldChecker(schemasAway{})
			}
			owners := &ownerValidator{v, func() v1alpha1.Owner { return &v1alpha1.Cleaner{} }}
			req := asking(t, "Cleaner", c, nil)
			got := owners.reviewSpec(t.Context(), &req, c)
			said := answered(got)
			if got.Allowed != tc.allowed || !strings.Contains(said, tc.says) || tc.says == "" && strings.Contains(said, "field") {
				t.Errorf("got %s, want %q", said, tc.says)
			}
		})
	}
}

// slow are schemas for which a check waits as long as it may.
type slow struct{ waits chan struct{} }

func (s slow) FindSchema(ctx context.Context, _ schema.GroupVersionKind) (*objectschema.Schema, error) {
	s.waits <- struct{}{}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (slow) Renew(context.Context) (changed bool, err error) { return false, nil }

// However long schemas take, and however many specs are checked, a Cleaner is reviewed: that its fields were not checked is a warning.
func TestFieldChecksLeaveTimeForTheReview(t *testing.T) {
	const requests = 2*fieldChecks + 1
	v := town(t, []string{"list pods", "watch pods"})
	checks := slow{make(chan struct{}, requests)}
	v.fields = newFieldChecker(checks)
	v.fields.time = 50 * time.Millisecond
	owners := &ownerValidator{v, func() v1alpha1.Owner { return &v1alpha1.Cleaner{} }}
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}}
			c.Spec.Targets = []v1alpha1.Target{{Name: "pods", Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}}
			c.Spec.Conditions = []string{"pods.items.exists(p, has(p.status.phse))"}
			req := asking(t, "Cleaner", c, nil)
			got := owners.reviewSpec(t.Context(), &req, c)
			if said := answered(got); !got.Allowed || !strings.Contains(said, "the fields that expressions read were not all checked") {
				t.Errorf("got %s", said)
			}
		})
	}
	all.Wait()
	if n := len(checks.waits); n == 0 || n > requests {
		t.Errorf("%d have been checked", n)
	}
}
