// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// manyOwners is an API server with many Cleaners, and two ClusterCleaners, that use a template. It lists as many at a time as it is asked for.
type manyOwners struct {
	client.Reader
	n     int
	pages atomic.Int32
	// largest is the most that was listed at once, and under way how many lists there were at a time.
	largest, underWay, together atomic.Int32
	// each is called at each list.
	each func(ctx context.Context)
}

func (m *manyOwners) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	m.together.Store(max(m.together.Load(), m.underWay.Add(1)))
	defer m.underWay.Add(-1)
	m.pages.Add(1)
	if m.each != nil {
		m.each(ctx)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	asked := (&client.ListOptions{}).ApplyOptions(opts)
	first, _ := strconv.Atoi(asked.Continue)
	n := 2
	if _, ok := list.(*v1alpha1.CleanerList); ok {
		n = m.n
	}
	last := n
	if asked.Limit > 0 {
		last = min(n, first+int(asked.Limit))
	}
	for i := first; i < last; i++ {
		switch l := list.(type) {
		case *v1alpha1.CleanerList:
			l.Items = append(l.Items, *podsOf(using, func(c *v1alpha1.Cleaner) { c.Name = fmt.Sprintf("c-%d", i) }))
		case *v1alpha1.ClusterCleanerList:
			c := v1alpha1.ClusterCleaner{}
			c.Name, c.Spec.Lifecycle, c.Spec.TemplateRef = fmt.Sprintf("all-%d", i), v1alpha1.LifecycleOnce, &v1alpha1.TemplateRef{Name: "t"}
			l.Items = append(l.Items, c)
		}
	}
	m.largest.Store(max(m.largest.Load(), int32(last-first)))
	if last < n {
		list.SetContinue(strconv.Itoa(last))
	}
	return nil
}

// needsParameter makes a template that those which use it do not work with.
func needsParameter(t *v1alpha1.CleanerTemplate) {
	t.Spec.Parameters = []v1alpha1.TemplateParameter{{Name: "p", Type: "string"}}
}

// TestATemplateIsReviewedPageByPage shows that a review of a template reads all that use it, some at a time.
func TestATemplateIsReviewedPageByPage(t *testing.T) {
	owners := &manyOwners{n: 3*ownersPage + 1}
	v := town(t, []string{"*"})
	v.live = owners
	got := answered((&templateValidator{v, clock.RealClock{}}).Handle(t.Context(), asking(t, "CleanerTemplate", bodyOf(needsParameter), bodyOf())))
	for _, want := range []string{`breaks Cleaner "c-0"`, `breaks Cleaner "c-19"`, fmt.Sprintf("and %d more", owners.n+2-maxFindings)} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	if strings.Count(got, "breaks") != maxFindings || owners.pages.Load() != 5 || owners.largest.Load() != ownersPage {
		t.Errorf("%d pages of up to %d: %s", owners.pages.Load(), owners.largest.Load(), got)
	}
}

// TestReviewsOfTemplatesTakeTurns shows that one review of a template at a time reads all Cleaners.
func TestReviewsOfTemplatesTakeTurns(t *testing.T) {
	text := review(`{"uid":"1","kind":{"group":"cleaner.vtex.dev","version":"v1alpha1","kind":"CleanerTemplate"},"name":"t","operation":"CREATE","userInfo":{"username":"alice"},"object":` + marshal(t, bodyOf()) + `}`)
	answers := make(chan string, 8)
	entered, release := make(chan struct{}, 8), make(chan struct{})
	owners := &manyOwners{n: 1, each: func(context.Context) {
		entered <- struct{}{}
		<-release
	}}
	v := town(t, []string{"*"})
	v.live = owners
	handler := newHandlers(v, clock.RealClock{})[TemplatePath]
	for range cap(answers) {
		go func() { answers <- send(t.Context(), handler, text).Body.String() }()
	}
	for range 2 * cap(answers) { // each lists Cleaners and ClusterCleaners
		<-entered
		release <- struct{}{}
	}
	for range cap(answers) {
		if got := <-answers; !strings.Contains(got, `"allowed":true`) {
			t.Errorf("got %s", got)
		}
	}
	if owners.together.Load() != 1 {
		t.Errorf("%d reviews read at a time", owners.together.Load())
	}
}

// TestAReviewOfATemplateEndsInTime shows that nothing more is read once whoever asked has gone.
func TestAReviewOfATemplateEndsInTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	owners := &manyOwners{n: 10 * ownersPage, each: func(context.Context) { cancel() }}
	v := town(t, []string{"*"})
	v.live = owners
	got := answered((&templateValidator{v, clock.RealClock{}}).Handle(ctx, asking(t, "CleanerTemplate", bodyOf(), nil)))
	if owners.pages.Load() != 1 || !strings.HasPrefix(got, "ServiceUnavailable: cannot list the Cleaners that use the template: context canceled") {
		t.Errorf("%d pages: %s", owners.pages.Load(), got)
	}
}

// TestNothingIsJudgedWithoutTime shows that a review whose time is over before it is judged is not judged.
func TestNothingIsJudgedWithoutTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	handlers := newHandlers(town(t, []string{"*"}), clock.RealClock{})
	for path, object := range map[string]any{AuthorPath: podsOf(), TemplatePath: bodyOf()} {
		got := send(ctx, handlers[path], reviewOf("Cleaner", marshal(t, object), "")).Body.String()
		if !strings.Contains(got, `"allowed":false`) || !strings.Contains(got, "try again") {
			t.Errorf("%s: %s", path, got)
		}
	}
}
