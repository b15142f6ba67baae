// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	fakeclient "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
	"github.com/vtex/cleaner/controllers/signing"
)

// asker is who asks in a rig.
var asker = author.Author{Username: "bob"}

// asking has an evaluation be asked for, as the webhook lets it through.
func asking(at string) func(r *rig) {
	return func(r *rig) {
		r.t.Helper()
		var template *v1alpha1.CleanerTemplate
		if use := r.cleaner().Spec.TemplateRef; use != nil {
			template = &v1alpha1.CleanerTemplate{}
			if err := r.store.Get(r.t.Context(), client.ObjectKey{Name: use.Name}, template); apierrors.IsNotFound(err) {
				template = nil
			} else {
				must(r.t, err)
			}
		}
		ring, err := r.keys.CurrentRing()
		must(r.t, err)
		editing(func(c *v1alpha1.Cleaner) {
			if c.Annotations == nil {
				c.Annotations = map[string]string{}
			}
			c.Annotations[v1alpha1.AnnotationRequestedAt] = at
			signed, err := author.SignRequest(ring, c, asker, author.FingerprintTemplate(template), r.clock.Now())
			must(r.t, err)
			c.Annotations[v1alpha1.AnnotationRequest] = signed
		})(r)
	}
}

// askingUnsigned has an evaluation be asked for where there is no webhook.
func askingUnsigned(at string) func(r *rig) {
	return editing(func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: at} })
}

// bothWays asks with the webhook and without.
func bothWays() map[string]func(at string) func(r *rig) {
	return map[string]func(at string) func(r *rig){"Signed": asking, "Not signed": askingUnsigned}
}

// filling has the Cleaner be too large for what is written of its status, as long as it is said so and it contains one of these.
func (r *rig) filling(texts ...string) *bool {
	full := false
	r.client = interceptor.NewClient(r.store, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			data, err := p.Data(o)
			must(r.t, err)
			if full && (len(texts) == 0 || slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(data, []byte(text)) })) {
				return apierrors.NewInternalError(errors.New("etcdserver: request is too large"))
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	return &full
}

// forgingRuns has somebody write what no operator has signed.
func forgingRuns(r *rig) {
	c := r.cleaner()
	c.Status.Runs++
	must(r.t, r.store.Status().Update(r.t.Context(), c))
}

// try looks at the Cleaner so often, with so much time before each look, whatever comes of it.
func (r *rig) try(times int, apart time.Duration) {
	for range times {
		r.clock.Step(apart)
		_, _ = r.Reconcile(r.t.Context(), r.request())
	}
}

// droppedFor is why the status says that nothing more is begun on a request; empty if it says no such thing.
func (r *rig) droppedFor() string {
	if c := meta.FindStatusCondition(r.cleaner().Status.Conditions, v1alpha1.ConditionRequestDropped); c != nil && c.Status == metav1.ConditionTrue && c.Message != "" {
		return c.Reason
	}
	return ""
}

// kept says that nothing was done on a request, that it is recorded as one, and why.
func (r *rig) kept(why string, left ...string) {
	r.t.Helper()
	if got := r.pods.names(); !slices.Equal(got, left) {
		r.t.Errorf("left %v at %s, want %v", got, r.clock.Now(), left)
	}
	if got, at := r.droppedFor(), r.cleaner().Status.LastRequestedAt; got != why || at != "1" {
		r.t.Errorf("the status says %q of the request, answered is %q; want %q", got, at, why)
	}
}

// yearly is a Cleaner with a schedule that is not due, which deletes Pods that have succeeded.
func yearly() *v1alpha1.Cleaner {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Schedule, c.Spec.StartingDeadline = "0 0 1 6 *", "10m"
	return c
}

// byTemplate is one whose rules are those of the template t, of which it makes the first state: no rule wants anything.
func byTemplate(r *rig) *v1alpha1.CleanerTemplate {
	w, t := yearly(), &v1alpha1.CleanerTemplate{}
	t.Name, t.UID, t.Generation = "t", "t", 1
	t.Spec.Template.Targets = []v1alpha1.ClusterTarget{{Name: "pods", Reference: v1alpha1.ClusterReference{Reference: w.Spec.Targets[0].Reference}}}
	t.Spec.Template.Rules = w.Spec.Rules
	t.Spec.Template.Rules[0].When = "false"
	must(r.t, r.store.Create(r.t.Context(), t))
	return t
}

// using is a Cleaner with a schedule that is not due, which uses the template t.
func using() *v1alpha1.Cleaner {
	return &v1alpha1.Cleaner{Spec: v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{
		Lifecycle: v1alpha1.LifecycleRecurring, Schedule: "0 0 1 6 *", TemplateRef: &v1alpha1.TemplateRef{Name: "t"},
	}}}
}

// A request that is made while nobody can record anything, because somebody has forged the status and filled the Cleaner, does not
// wait for that to end.
func TestARequestIsNotHeldBackByAForgedRecord(t *testing.T) {
	for name, asks := range bothWays() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, yearly(), aPod("a", "Succeeded"))
			full := r.filling()
			r.pass()
			*full = true
			forgingRuns(r)
			r.try(1, time.Minute)
			asks("1")(r)
			r.try(3, time.Hour)
			*full = false
			r.try(3, time.Minute)
			r.kept(v1alpha1.ReasonRequestExpired, "a")
		})
	}
}

// The same, and the template changes meanwhile: nobody has asked for what it says then.
func TestARequestDoesNotOutliveItsTemplate(t *testing.T) {
	for name, asks := range bothWays() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, using(), aPod("a", "Succeeded"))
			template := byTemplate(r)
			full := r.filling()
			r.pass()
			*full = true
			forgingRuns(r)
			r.try(1, time.Minute)
			asks("1")(r)
			r.try(1, time.Minute)
			template.Generation, template.Spec.Template.Rules[0].When = 2, "true"
			must(t, r.store.Update(t.Context(), template))
			r.try(1, time.Minute)
			*full = false
			r.try(3, time.Minute)
			r.kept(v1alpha1.ReasonRequestOutlived, "a")
		})
	}
}

// What a request is about is signed with it: a process that has not seen the template as it was knows it too.
func TestARequestIsForOneTemplate(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *rig, t *v1alpha1.CleanerTemplate)
		why    string
		left   []string
	}{
		"Unchanged": {func(*rig, *v1alpha1.CleanerTemplate) {}, "", nil},
		"Edited": {func(r *rig, template *v1alpha1.CleanerTemplate) {
			template.Generation++
			must(r.t, r.store.Update(r.t.Context(), template))
		}, v1alpha1.ReasonRequestOutlived, []string{"a"}},
		"Made anew": {func(r *rig, template *v1alpha1.CleanerTemplate) {
			must(r.t, r.store.Delete(r.t.Context(), template))
			template.ResourceVersion, template.UID = "", "another"
			must(r.t, r.store.Create(r.t.Context(), template))
		}, v1alpha1.ReasonRequestOutlived, []string{"a"}},
		"Gone": {func(r *rig, template *v1alpha1.CleanerTemplate) {
			must(r.t, r.store.Delete(r.t.Context(), template))
		}, v1alpha1.ReasonRequestOutlived, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, using(), aPod("a", "Succeeded"))
			template := byTemplate(r)
			template.Spec.Template.Rules[0].When = "true"
			must(t, r.store.Update(t.Context(), template))
			r.pass()
			asking("1")(r)
			r.memories = memories{} // a restart, before anybody has looked
			tc.change(r, template)
			r.try(3, time.Minute)
			r.kept(tc.why, tc.left...)
		})
	}
}

// A request for a template that the watch does not show yet waits for the watch, and not for longer than it counts.
func TestARequestWaitsForTheWatchOfItsTemplate(t *testing.T) {
	t.Run("Soon", func(t *testing.T) { waitsForTheWatch(t, 2*time.Minute).kept("") })
	t.Run("Too late", func(t *testing.T) { waitsForTheWatch(t, 2*time.Hour).kept(v1alpha1.ReasonRequestExpired, "a") })
}

// waitsForTheWatch asks for what a template says that the watch shows only after a time, and looks at the Cleaner then.
func waitsForTheWatch(t *testing.T, after time.Duration) *rig {
	r := newRig(t, using(), aPod("a", "Succeeded"))
	template := byTemplate(r)
	stale, lags := template.DeepCopy(), true
	r.client = interceptor.NewClient(r.store, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if into, ok := o.(*v1alpha1.CleanerTemplate); ok && lags {
				stale.DeepCopyInto(into)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	r.pass()
	template.Generation, template.Spec.Template.Rules[0].When = 2, "true"
	must(t, r.store.Update(t.Context(), template))
	asking("1")(r)
	r.try(2, time.Minute)
	if got, at := r.droppedFor(), r.cleaner().Status.LastRequestedAt; got != "" || at != "" || len(r.pods.names()) == 0 {
		t.Fatalf("dropped for %q, answered %q, left %v", got, at, r.pods.names())
	}
	r.try(1, after)
	if over := r.droppedFor() == v1alpha1.ReasonRequestExpired; over != (after > time.Hour) {
		t.Errorf("while the watch lags the status says that the request is over: %t", over)
	}
	lags = false
	r.try(2, time.Minute)
	return r
}

// What keeps a request from being carried out does not prolong it, and status says when it is over.
func TestARequestIsOverWhateverHoldsIt(t *testing.T) {
	type tests map[string]struct {
		change     func(c *v1alpha1.Cleaner)
		hold, free func(r *rig)
		// blind says that nothing can be said meanwhile.
		blind bool
	}
	var keys signing.Keys
	var full *bool
	for name, tc := range (tests{
		"The author lacks rights": {hold: func(r *rig) { r.opts.ActWithoutAuthor = false }, free: func(r *rig) { r.opts.ActWithoutAuthor = true }},
		"The template is missing": {change: func(c *v1alpha1.Cleaner) { *c = *using() }, hold: nothing, free: nothing},
		"The key is missing":      {hold: func(r *rig) { keys, r.keys = r.keys, noKeys{} }, free: func(r *rig) { r.keys = keys }, blind: true},
		"The watch begins late":   {hold: func(r *rig) { r.pods.syncing = true }, free: func(r *rig) { r.pods.syncing = false }},
		"A deed is refused":       {hold: func(r *rig) { r.pods.answer = refuses }, free: func(r *rig) { r.pods.answer = nil }},
		"Nothing is recorded":     {hold: func(r *rig) { full = r.filling(); *full = true }, free: func(*rig) { *full = false }, blind: true},
		"A rule has to wait":      {change: func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].For = "30m" }, hold: nothing, free: nothing},
	}) {
		t.Run(name, func(t *testing.T) {
			c := yearly()
			if tc.change != nil {
				tc.change(c)
			}
			c.Spec.StartingDeadline = "10m"
			r := newRig(t, c, aPod("a", "Succeeded"))
			r.pass()
			asking("1")(r)
			tc.hold(r)
			r.try(12, time.Minute)
			if got := r.droppedFor(); (got != v1alpha1.ReasonRequestExpired) != tc.blind {
				t.Errorf("when the deadline is over, the status says %q of the request", got)
			}
			tc.free(r)
			r.try(40, time.Minute)
			r.kept(v1alpha1.ReasonRequestExpired, "a")
		})
	}
}

// refuses is an API server that allows nothing.
func refuses(string, string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"}}
}

// To be suspended is an answer: what is asked then is not carried out when the Cleaner goes on.
func TestARequestOfASuspendedCleanerIsAnswered(t *testing.T) {
	r := newRig(t, yearly(), aPod("a", "Succeeded"))
	r.pass()
	editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true })(r)
	asking("1")(r)
	r.try(2, time.Minute)
	editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false })(r)
	r.try(5, time.Minute)
	r.kept("", "a")
}

// A request that is made while a run is open does not wait for its end, which others can put off.
func TestARequestDoesNotWaitForARun(t *testing.T) {
	for name, asks := range map[string]func(at string) func(r *rig){"Signed": asking, "Not signed": askingUnsigned, "Not asked": nil} {
		t.Run(name, func(t *testing.T) {
			c := once()
			c.Spec.Lifecycle, c.Spec.Schedule, c.Spec.StartingDeadline = v1alpha1.LifecycleOnce, "30 1 1 1 *", "10m"
			r := newRig(t, c, aPod("a", "Succeeded"))
			r.pass()
			r.clock.Step(31 * time.Minute)
			r.pods.answer = refuses
			r.try(2, time.Minute)
			if run := r.cleaner().Status.Run; run == nil || run.Result != "" {
				t.Fatalf("no run is open: %+v", run)
			}
			if asks != nil {
				asks("1")(r)
			}
			r.try(12, time.Minute)
			if got := r.droppedFor(); asks != nil && got != v1alpha1.ReasonRequestExpired {
				t.Errorf("while the run is open the status says %q of the request", got)
			}
			r.pods.answer = nil
			p := aPod("a", "Succeeded")
			p.SetUID("another")
			r.pods.put(p)
			r.try(6, 10*time.Minute)
			if got := r.pods.names(); !slices.Equal(got, []string{"a"}) {
				t.Errorf("left %v at %s", got, r.clock.Now())
			}
			if run := r.cleaner().Status.Run; run != nil && run.Result == "" {
				t.Errorf("the run is open still, so that this shows nothing: %+v", run)
			}
		})
	}
}

// After a restart a request that could not be recorded is as old as it is.
func TestARequestThatIsNotRecordedGrowsOldOverARestart(t *testing.T) {
	r := newRig(t, yearly(), aPod("a", "Succeeded"))
	full := r.filling()
	r.pass()
	*full = true
	asking("1")(r)
	r.try(24, time.Hour)
	r.memories = memories{}
	r.try(1, time.Minute)
	*full = false
	r.try(3, time.Minute)
	r.kept(v1alpha1.ReasonRequestExpired, "a")
}

// One that cleans once records a request with the run that it begins: it is not carried out again after a restart, even if no report
// has room.
func TestARequestIsRecordedWithItsRun(t *testing.T) {
	c := once()
	c.Spec.Lifecycle, c.Spec.Schedule, c.Spec.StartingDeadline = v1alpha1.LifecycleOnce, "0 0 1 6 *", "1d"
	r := newRig(t, c, aPod("a", "Succeeded"))
	full := r.filling(`"conditions"`, `"lastEvaluation"`)
	r.pass()
	*full = true
	asking("1")(r)
	r.pods.answer = func(_, name string) *apierrors.StatusError { // somebody makes it anew at that moment
		p := aPod("a", "Succeeded")
		p.SetUID("second")
		r.pods.keep(p)
		r.pods.answer = nil
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("another one"))
	}
	r.try(1, time.Minute)
	if got := r.pods.took(); len(got) != 1 || r.cleaner().Status.LastRequestedAt != "1" {
		t.Fatalf("sent %v, recorded %q", got, r.cleaner().Status.LastRequestedAt)
	}
	r.memories = memories{}
	r.try(3, time.Minute)
	if got := r.pods.took(); len(got) > 0 {
		t.Errorf("after a restart it has sent %v", got)
	}
}

// A run that was begun on a request in time is what became of it, however long it takes.
func TestARunThatWasAskedForGoesOn(t *testing.T) {
	c := once()
	c.Spec.Lifecycle, c.Spec.Schedule, c.Spec.StartingDeadline = v1alpha1.LifecycleOnce, "0 0 1 6 *", "10m"
	r := newRig(t, c, aPod("a", "Succeeded"))
	r.pass()
	asking("1")(r)
	r.pods.answer = refuses
	r.try(30, time.Minute)
	if run := r.cleaner().Status.Run; run == nil || run.Result != "" {
		t.Fatalf("no run is open: %+v", run)
	}
	r.kept("", "a")
	r.pods.answer = nil
	r.try(6, time.Minute)
	if got := r.pods.names(); len(got) > 0 {
		t.Errorf("left %v", got)
	}
}

// A request that no webhook has signed, such as one of a manifest or of before an upgrade, does nothing. A new one takes off what is
// said of it.
func TestARequestThatNobodySignedIsDropped(t *testing.T) {
	r := newRig(t, yearly(), aPod("a", "Succeeded"))
	r.opts.ActWithoutAuthor = false
	askingUnsigned("0")(r)
	r.try(2, time.Minute)
	if got := r.droppedFor(); got != v1alpha1.ReasonRequestNotSigned {
		t.Fatalf("the status says %q of the request", got)
	}
	r.clock.Step(time.Minute)
	editing(func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationRequestedAt] = "0.5" })(r)
	r.opts.ActWithoutAuthor = false
	r.try(1, 0) // the report of this one leaves no time for the next
	r.opts.ActWithoutAuthor = true
	asking("1")(r)
	r.try(1, 0)
	if got := r.cleaner().Status.LastRequestedAt; got != "1" || r.droppedFor() == "" {
		t.Fatalf("recorded is %q, and the status says %q, so that this shows nothing", got, r.droppedFor())
	}
	r.try(2, time.Minute)
	r.kept("")
}

// A request is about what is to be done when it is made, whether it waits for something or for its answer.
func TestARequestEndsWithItsSpec(t *testing.T) {
	edit := func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].For = "" }
	for name, tc := range map[string]struct {
		suspended bool
		edit      func(c *v1alpha1.Cleaner)
		left      []string
	}{
		"It waits for something":       {false, edit, []string{"a"}},
		"It waits for an answer":       {true, edit, []string{"a"}},
		"It was made with the edit":    {true, func(c *v1alpha1.Cleaner) { edit(c); c.Annotations[v1alpha1.AnnotationRequestedAt] = "2" }, nil},
		"Nothing else is to be done":   {false, func(c *v1alpha1.Cleaner) { c.Labels = map[string]string{"a": "b"} }, nil},
		"Resumed, and nothing changed": {true, func(*v1alpha1.Cleaner) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			c.Spec.Schedule, c.Spec.Rules[0].For, c.Spec.Suspend = "0 0 1 1 *", "30m", tc.suspended
			r := newRig(t, c, aPod("a", "Succeeded"))
			r.pass()
			editing(func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"} })(r)
			r.pass()
			editing(func(c *v1alpha1.Cleaner) { tc.edit(c); c.Spec.Suspend = false })(r)
			for range 40 {
				r.pass()
				r.clock.Step(time.Minute)
			}
			if got, asked := r.pods.names(), r.cleaner().Status.LastRequestedAt; !slices.Equal(got, tc.left) || asked == "" {
				t.Errorf("left %v, want %v; answered %q", got, tc.left, asked)
			}
		})
	}
}

// A request is over when a time of the schedule would be: whoever makes something match all the time does not prolong it.
func TestARequestEndsAtTheDeadline(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Schedule, c.Spec.StartingDeadline, c.Spec.Rules[0].For = "0 0 1 1 *", "10m", "30m"
	r := newRig(t, c, aPod("a", "Succeeded"))
	after(0)(r)
	r.pass()
	editing(func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"} })(r)
	for range 40 {
		r.pass()
		r.clock.Step(time.Minute)
	}
	if got := r.pods.names(); !slices.Equal(got, []string{"a"}) || r.cleaner().Status.LastRequestedAt != "1" {
		t.Errorf("left %v", got)
	}
}

// A request that nothing was evaluated for is over when a schedule is written: whoever made it needed no rights then.
func TestARequestIsOlderThanTheSchedule(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.TTL = "soon"
	c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"}
	r := newRig(t, c, aPod("a", "Succeeded"))
	r.pass()
	editing(func(c *v1alpha1.Cleaner) { c.Spec.TTL, c.Spec.Schedule = "", "0 0 1 1 *" })(r)
	after(time.Minute)(r)
	r.pass()
	if got, asked := r.pods.names(), r.cleaner().Status.LastRequestedAt; !slices.Equal(got, []string{"a"}) || asked != "1" {
		t.Errorf("left %v; asked %q", got, asked)
	}
}

// reviewing has the rights of users be reviewed, as the operator does unless it acts without authors: they may do all that is in allowed, by the
// verb and the resource, and nobody can say while there is trouble.
func (r *rig) reviewing(allowed map[string][]string, trouble *error) {
	r.opts.ActWithoutAuthor = false
	cluster := fakeclient.NewClientset()
	cluster.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		what := review.Spec.ResourceAttributes.Verb + " " + review.Spec.ResourceAttributes.Resource
		review.Status.Allowed = slices.Contains(allowed[review.Spec.User], what)
		if review.Spec.User == asker.Username && *trouble != nil {
			return true, nil, *trouble
		}
		return true, review, nil
	})
	r.authors = identity.NewAuthors(cluster.AuthorizationV1().SubjectAccessReviews(), cluster.CoreV1(), r.clock)
	ring, err := r.keys.CurrentRing()
	must(r.t, err)
	c := r.cleaner()
	signed, err := author.Sign(ring, c, author.Author{Username: "alice"}, r.clock.Now())
	must(r.t, err)
	editing(func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: signed} })(r)
}

// Nothing is begun on a request of somebody who may not do what the Cleaner does, whoever has signed it.
func TestARequestOfSomebodyWithoutRightsIsDropped(t *testing.T) {
	all := []string{"list pods", "watch pods", "get pods", "delete pods"}
	taken := func(r *rig) {
		editing(func(c *v1alpha1.Cleaner) { delete(c.Annotations, v1alpha1.AnnotationRequest) })(r)
	}
	for name, tc := range map[string]struct {
		allowed map[string][]string
		trouble time.Duration // for how long nobody can say
		then    func(r *rig)  // while nobody can say
		want    string
		left    []string
	}{
		"All rights":              {map[string][]string{"alice": all, "bob": all}, 0, nil, "", nil},
		"No right":                {map[string][]string{"alice": all}, 0, nil, v1alpha1.ReasonRequestNotAllowed, []string{"a"}},
		"No right to delete":      {map[string][]string{"alice": all, "bob": all[:3]}, 0, nil, v1alpha1.ReasonRequestNotAllowed, []string{"a"}},
		"Nobody can say at first": {map[string][]string{"alice": all, "bob": all}, 2 * time.Minute, nil, "", nil},
		"Nobody can ever say":     {map[string][]string{"alice": all, "bob": all}, time.Hour, nil, v1alpha1.ReasonRequestExpired, []string{"a"}},
		"Taken off meanwhile":     {map[string][]string{"alice": all, "bob": all}, 2 * time.Minute, taken, v1alpha1.ReasonRequestNotSigned, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var trouble error
			if tc.trouble > 0 {
				trouble = errors.New("the API server is busy")
			}
			r := newRig(t, yearly(), aPod("a", "Succeeded"))
			r.reviewing(tc.allowed, &trouble)
			r.pass()
			asking("1")(r)
			began := r.clock.Now()
			for r.clock.Since(began) < 15*time.Minute {
				if again := r.pass().RequeueAfter; again <= 0 {
					t.Fatal("it does not come back")
				} else {
					r.clock.Step(min(again, time.Minute))
				}
				if tc.then != nil && r.clock.Since(began) > time.Minute {
					tc.then(r)
					tc.then = nil
				}
				if r.clock.Since(began) > tc.trouble {
					trouble = nil
				}
			}
			r.kept(tc.want, tc.left...)
			if c := meta.FindStatusCondition(r.cleaner().Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != v1alpha1.ReasonWaitingForSchedule && tc.left != nil {
				t.Errorf("Ready says %+v", c)
			}
		})
	}
}

// Who asks for the evaluation of a Cleaner that uninstalls a release, and has not written it, may do everything: nobody has looked what the
// release has. Its author may ask for it.
func TestARequestForAReleaseNeedsAllRights(t *testing.T) {
	secrets := []string{"get secrets", "list secrets", "update secrets", "delete secrets"}
	for name, tc := range map[string]struct {
		by   string
		may  []string
		want string
	}{
		"Secrets": {"alice", secrets, v1alpha1.ReasonRequestNotAllowed}, "Everything": {"alice", append([]string{"* *"}, secrets...), ""}, "Author": {asker.Username, secrets, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := yearly()
			c.Spec.Lifecycle, c.Spec.Targets, c.Spec.Rules, c.Spec.Helm = "", nil, nil, &v1alpha1.Helm{Release: "shop", Delete: true}
			r := newRig(t, c)
			r.reviewing(map[string][]string{asker.Username: tc.may}, new(error))
			c = r.cleaner()
			ring, err := r.keys.CurrentRing()
			must(t, err)
			signed, err := author.Sign(ring, c, author.Author{Username: tc.by}, epoch)
			must(t, err)
			c.Annotations[v1alpha1.AnnotationAuthor], c.Annotations[v1alpha1.AnnotationRequestedAt] = signed, "1"
			c.Annotations[v1alpha1.AnnotationRequest], err = author.SignRequest(ring, c, asker, "", r.clock.Now())
			must(t, err)
			p := newPass(r.CleanerReconciler, c, types.NamespacedName{}, resolvedspec.Assignment{Work: c.Work()}, newMemory("uid", mine))
			p.store.Ring, p.clients = ring, &clients.Set{}
			must(t, p.triggers.SeeRequest(""))
			p.triggers.JudgeRequest(t.Context())
			refused := p.triggers.RefuseAsker(t.Context(), p.authority.findAskerLacks)
			p.triggers.ReportRequest(p.newReport())
			said := meta.FindStatusCondition(p.store.Draft.State().Conditions, v1alpha1.ConditionRequestDropped)
			if refused != (tc.want != "") || refused && (said == nil || said.Reason != tc.want) {
				t.Errorf("it is refused: %t, %+v", refused, said)
			}
		})
	}
}
