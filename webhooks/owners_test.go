// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// slowClock is a clock on which whatever is measured takes a while.
type slowClock struct {
	*clocktesting.FakeClock
	step time.Duration
}

func newSlowClock(step time.Duration) *slowClock {
	return &slowClock{clocktesting.NewFakeClock(moment), step}
}

func (s *slowClock) Since(t time.Time) time.Duration {
	s.Step(s.step)
	return s.FakeClock.Since(t)
}

// crowdedOwners is an API server with many Cleaners of a tenant, each with data of its own, and the Cleaners of others after them.
type crowdedOwners struct {
	manyOwners
	others []v1alpha1.Cleaner
}

func (m *crowdedOwners) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := m.manyOwners.List(ctx, list, opts...); err != nil {
		return err
	}
	if l, ok := list.(*v1alpha1.CleanerList); ok {
		for i := range l.Items {
			l.Items[i].Namespace = "tenant"
			l.Items[i].Spec.CloudEventSink = "http://sink.example.com/"
			l.Items[i].Spec.CloudEventData = fmt.Sprintf("%q", l.Items[i].Name)
		}
		if l.Continue == "" {
			l.Items = append(l.Items, m.others...)
		}
	}
	return nil
}

// TestANamespaceKeepsNoTemplateFromChanging shows that a template can be created and changed whatever one namespace has: Cleaners
// that there was no time for are named in a warning, and those of others are checked.
func TestANamespaceKeepsNoTemplateFromChanging(t *testing.T) {
	const warning = `there was no time to check 135 Cleaners that use the template (135 in namespace "tenant"): the status of a Cleaner says so if it does not work with the template`
	changed := bodyOf(func(c *v1alpha1.CleanerTemplate) { c.Spec.Template.Conditions = []string{"true"} })
	loses := bodyOf(func(c *v1alpha1.CleanerTemplate) {
		c.Spec.Template.Conditions, c.Spec.Template.Targets[0].Name = []string{"true"}, "others"
	})
	healthy := *podsOf(using, func(c *v1alpha1.Cleaner) { c.Namespace, c.Name, c.Spec.CloudEventData = "zoo", "healthy", "pods" })
	for name, tc := range map[string]struct {
		now  *v1alpha1.CleanerTemplate
		old  any
		want []string
	}{
		"Create": {changed, nil, []string{"allowed " + warning}},
		"Edit":   {changed, bodyOf(), []string{"allowed " + warning}},
		"Breaks": {loses, bodyOf(), []string{`Invalid: spec: breaks Cleaner "healthy" in namespace "zoo", which would stop working: spec.cloudEventData`}},
	} {
		t.Run(name, func(t *testing.T) {
			v := town(t, []string{"*"})
			owners := &crowdedOwners{others: []v1alpha1.Cleaner{healthy}}
			owners.n, v.live = 160, owners
			got := answered((&templateValidator{v, newSlowClock(50 * time.Millisecond)}).Handle(t.Context(), asking(t, "CleanerTemplate", tc.now, tc.old)))
			for _, want := range tc.want {
				if !strings.HasPrefix(got, want) {
					t.Errorf("%q does not begin with %q", got, want)
				}
			}
		})
	}
}

// TestManyNamespacesLeaveTimeForTheNext shows that a namespace has a part of what those before it have left.
func TestManyNamespacesLeaveTimeForTheNext(t *testing.T) {
	owners := &crowdedOwners{}
	for i := range 10 {
		for k := range 100 {
			owners.others = append(owners.others, *podsOf(using, func(c *v1alpha1.Cleaner) { c.Namespace, c.Name = fmt.Sprintf("n-%d", i), fmt.Sprintf("c-%d", k) }))
		}
	}
	v := town(t, nil)
	v.live = owners
	r := (&templateValidator{v, newSlowClock(20 * time.Millisecond)}).newOwnerReview(t.Context(), bodyOf(), bodyOf(needsParameter))
	if _, err := r.findBroken(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if ns := fmt.Sprintf("n-%d", i); r.skipped[ns] == 100 {
			t.Errorf("no Cleaner of %s was checked", ns)
		}
	}
	if r.skipped["n-0"] == 0 && r.skipped["n-9"] == 0 {
		t.Errorf("all were checked: the clock is too fast for this test")
	}
}

// TestAReviewSaysWhatItDidNotList shows that a list that does not end in time is no error, unless the caller is gone.
func TestAReviewSaysWhatItDidNotList(t *testing.T) {
	v := town(t, nil)
	v.live = &crowdedOwners{}
	r := (&templateValidator{v, clocktesting.NewFakePassiveClock(moment)}).newOwnerReview(t.Context(), nil, bodyOf())
	r.ends = moment
	broken, err := r.findBroken(t.Context())
	const want = "there was no time to check all Cleaners that use the template (not all were listed): the status of a Cleaner says so if it does not work with the template"
	if err != nil || len(broken) > 0 || r.describeSkipped() != want {
		t.Errorf("got %v, %v, %q", broken, err, r.describeSkipped())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.findBroken(ctx); err == nil {
		t.Error("a caller that is gone got an answer")
	}
}

// TestACleanerThatCannotBeCompiledInTimeEndsTheReview shows that a caller that is gone ends the review at once, and that the Cleaner counts as
// not checked.
func TestACleanerThatCannotBeCompiledInTimeEndsTheReview(t *testing.T) {
	v := town(t, nil)
	r := (&templateValidator{v, clocktesting.NewFakePassiveClock(moment)}).newOwnerReview(t.Context(), nil, bodyOf())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := podsOf(using)
	if err := r.reviewOwner(ctx, "Cleaner", c); !errors.Is(err, context.Canceled) || r.skipped[c.Namespace] != 1 || len(r.broken) > 0 {
		t.Errorf("got %v; skipped are %v", err, r.skipped)
	}
}

// TestDescribeSkipped shows what a warning says of Cleaners that were not checked.
func TestDescribeSkipped(t *testing.T) {
	r := &ownerReview{skipped: map[string]int{}}
	if got := r.describeSkipped(); got != "" {
		t.Errorf("got %q where nothing was skipped", got)
	}
	for i := range 7 {
		r.skipped[fmt.Sprintf("n-%d", i)] = i + 1
	}
	r.skipped[""], r.unlisted = 9, true
	const want = `there was no time to check 37 Cleaners that use the template (9 ClusterCleaners, 7 in namespace "n-6", 6 in namespace "n-5", 5 in namespace "n-4", 4 in namespace "n-3", and 3 more namespaces; not all were listed): the status of a Cleaner says so if it does not work with the template`
	if diff := cmp.Diff(want, r.describeSkipped()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestATemplateIsCompiledOnce shows that the compiler sees a template's own expressions once, and each cloudEventData once, and
// that it finds the same as in the whole spec.
func TestATemplateIsCompiledOnce(t *testing.T) {
	template := bodyOf(func(c *v1alpha1.CleanerTemplate) {
		c.Spec.Parameters = []v1alpha1.TemplateParameter{{Name: "p", Type: "string"}}
		c.Spec.Template.Variables = []v1alpha1.Variable{{Name: "all", Expression: "pods.items"}, {Name: "text", Expression: "'x'"}}
		c.Spec.Template.Rules = []v1alpha1.Rule{{Name: "r", ForEach: "pods", When: "true", Variables: []v1alpha1.Variable{{Name: "own", Expression: "1"}}}}
	})
	v := town(t, nil)
	u := newTemplateChecker(v, template)
	for _, data := range []string{"", "pods", "variables.all.size()", "variables.text + 'y'", "params.p", "params.q", "variables.own", "variables.none", "item", "nobody", "timestamp('x'", "now", "{1: 2}"} {
		work, body := &v1alpha1.Work{Targets: template.Spec.Template.Targets, Declared: []string{"p"}}, &template.Spec.Template
		work.Variables, work.Conditions, work.Rules, work.CloudEventData = body.Variables, body.Conditions, body.Rules, data
		_, want := v.compiler.Compile(t.Context(), work)
		got, err := u.compileOwner(t.Context(), work)
		if err != nil || !slices.Equal(fieldsOf(want), fieldsOf(got)) {
			t.Errorf("%q: got %v, %v, want %v", data, got, err, want)
		}
	}
	u.own = field.ErrorList{field.Invalid(field.NewPath("spec", "own"), "", "seen before")}
	for key := range u.dataErrors {
		u.dataErrors[key] = field.ErrorList{field.Invalid(field.NewPath("spec", "data"), "", "seen before")}
	}
	work := &v1alpha1.Work{}
	work.CloudEventData = "nobody"
	if got, err := u.compileOwner(t.Context(), work); err != nil || !slices.Equal(fieldsOf(got), []string{"spec.own", "spec.data"}) {
		t.Errorf("compiled again: %v, %v", got, err)
	}
	work.CloudEventData = strings.Repeat(" ", v1alpha1.MaxExpressionBytes+1)
	if got, err := u.compileOwner(t.Context(), work); err != nil || !slices.Equal(fieldsOf(got), []string{"spec"}) {
		t.Errorf("too long: %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newTemplateChecker(v, template).compileOwner(ctx, &v1alpha1.Work{}); !errors.Is(err, errCompileTimeout) {
		t.Errorf("without time: %v", err)
	}
}

// fieldsOf returns the fields of errors.
func fieldsOf(errs field.ErrorList) (fields []string) {
	for _, err := range errs {
		fields = append(fields, err.Field)
	}
	return fields
}
