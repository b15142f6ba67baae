// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

const (
	// patience is how long all inputs together may take until each has come to its state.
	patience = 2 * time.Minute
	// hands is how many do something at the same time.
	hands = 8
)

// play is one performance of all rows.
type play struct {
	*testing.T
	*env
	ctx      context.Context
	people   map[string]*objects
	servers  *servers
	scenes   []*scene
	manager  *operator.Process
	starts   int // of operators, as their log has it when this one is ready
	deadline time.Time
	limit    int64
}

// scene is a row and where it is played.
type scene struct {
	*row
	*place
	// refused is what the API server has said of what was sent last, and object what that was.
	refused error
	object  *unstructured.Unstructured
	// failed is why it could not be played.
	failed error
}

// All hostile inputs at once do not harm anybody, and each comes to a state that says why.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs a control plane")
	}
	p := &play{T: t, env: shared, ctx: t.Context(), people: map[string]*objects{}, servers: serve(t)}
	p.settle()
	p.run()
	w := newWitness(p)
	h := healthy{p}
	h.create()
	h.act("before anything hostile is sent")

	calm := h.keepActing()
	stop := p.flood()
	p.prepare()
	p.send()
	h.act("while all of it is sent")
	stop()
	t.Run("policy", p.policed)
	p.forge()
	p.deadline = time.Now().Add(patience)
	for _, s := range p.scenes {
		t.Run(s.class+"/"+s.Name, func(t *testing.T) { p.judge(t, s) })
	}
	t.Run("reviews", callers{p.manager, p.objects}.call)
	h.act("after all of it")
	calm()
	h.awaitActed(besidePrefix, "on what they were given all the time")
	t.Run("harmless", func(t *testing.T) {
		w.judgeDeeds(t)
		w.judgeCanaries(t)
		w.judgeProcess(t)
		if n := p.servers.heard[forgedSink].Load(); n > 0 {
			t.Errorf("%d events were sent of runs that never were", n)
		}
	})
}

// settle makes the namespaces, with those who send from them, and the rights of the operator.
func (p *play) settle() {
	p.Helper()
	for name, s := range senders() {
		config := p.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: s.user}
		o, err := newObjects(config)
		if err != nil {
			p.Fatal(err)
		}
		p.people[name] = o
	}
	if err := p.grantAll(p.ctx); err != nil {
		p.Fatal(err)
	}
	if err := p.makeNamespace(p.ctx, victim, ""); err != nil {
		p.Fatal(err)
	}
	crown, err := p.crowns(p.ctx)
	if err != nil {
		p.Fatal(err)
	}
	for _, r := range rows(p) {
		at := &place{
			Namespace: r.Name, Victim: victim, crown: crown, sinks: p.servers.url, ports: p.servers.port, apiServer: p.Config().Host,
		}
		at.look = func(kind, name string) (*unstructured.Unstructured, error) {
			return p.read(p.ctx, at.Namespace, kind, name)
		}
		p.scenes = append(p.scenes, &scene{row: r, place: at})
	}
	p.each(func(ctx context.Context, s *scene) error { return p.makeNamespace(ctx, s.Namespace, s.Sender) })
	p.await("the rights of all senders", func(ctx context.Context) string {
		for _, s := range p.scenes {
			if allowed, err := p.mayCreate(ctx, senders()[s.Sender].user, s.Namespace); err != nil || !allowed {
				return fmt.Sprintf("%s in %s: %v", s.Sender, s.Namespace, err)
			}
		}
		return ""
	})
}

// run runs the operator as its Deployment does.
func (p *play) run() {
	p.Helper()
	container, err := operator.Declared(p.ctx, p.Cluster, operator.Deployment)
	if err != nil {
		p.Fatal(err)
	}
	p.limit = container.Resources.Limits.Memory().Value()
	if p.limit == 0 {
		p.Fatal("the Deployment has no memory limit")
	}
	o := operator.As(container)
	o.Binary, o.Webhook = p.binary, p.gate
	// Every address but those that are never allowed, so that nothing but those rules stands in the way.
	o.Args = append(o.Args, "--sink-allow-loopback=false", "--sink-allow=0.0.0.0/0,::/0,"+p.servers.addresses())
	if p.manager, err = operator.Run(p.ctx, p.Cluster, o); err != nil {
		p.Fatal(err)
	}
	log, err := os.ReadFile(p.manager.LogPath)
	if err != nil {
		p.Fatal(err)
	}
	p.starts = countStarts(log)
}

// prepare has an administrator apply what rows need.
func (p *play) prepare() {
	p.each(func(ctx context.Context, s *scene) error {
		needed, err := s.needs(s.place)
		if err != nil {
			return err
		}
		for _, u := range needed {
			if err := p.objects.sendAgain(ctx, u, false, false); err != nil {
				return fmt.Errorf("cannot apply what it needs: %w", err)
			}
		}
		return nil
	})
}

// send sends all rows but the statuses.
func (p *play) send() {
	p.each(func(ctx context.Context, s *scene) error {
		if s.forged() {
			return nil
		}
		if err := p.deliver(ctx, s); err != nil {
			return err
		}
		later, err := s.read(s.Later)
		if err != nil {
			return err
		}
		for _, u := range later {
			if err := p.objects.sendAgain(ctx, u, true, false); err != nil {
				return fmt.Errorf("cannot apply what comes later: %w", err)
			}
		}
		return nil
	})
}

// deliver sends what a row sends: the last of it may be refused.
func (p *play) deliver(ctx context.Context, s *scene) error {
	sent, err := s.sends(s.place)
	if err != nil {
		return err
	}
	for i, u := range sent {
		_, err := p.objects.at(u).Get(ctx, u.GetName(), metav1.GetOptions{})
		s.object = u
		s.refused = p.people[s.Sender].sendAgain(ctx, u, err == nil, s.Loose)
		if s.refused != nil && i < len(sent)-1 {
			return fmt.Errorf("cannot send %s %q: %w", u.GetKind(), u.GetName(), s.refused)
		}
	}
	return nil
}

// policed holds that the API server itself lets nobody but the operator write a status.
func (p *play) policed(t *testing.T) {
	for _, s := range p.scenes {
		if !s.forged() || s.failed != nil {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			if err := p.deliver(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if !apierrors.IsForbidden(s.refused) || !strings.Contains(s.refused.Error(), "only the operator writes the status of cleaners") {
				t.Errorf("it is not refused: %v", s.refused)
			}
		})
	}
}

// forge takes the policy away, as where an administrator has not installed it, and sends the statuses again.
func (p *play) forge() {
	p.Helper()
	if _, err := p.Kubectl(p.ctx, "delete", "validatingadmissionpolicybindings,validatingadmissionpolicies", "--all"); err != nil {
		p.Fatal(err)
	}
	gone := time.Now().Add(patience) // the API server hears of it a moment later
	p.each(func(ctx context.Context, s *scene) error {
		if !s.forged() {
			return nil
		}
		for {
			if err := p.deliver(ctx, s); err != nil {
				return err
			}
			if !apierrors.IsForbidden(s.refused) { // a status alone wakes nobody: the record is judged by the next pass
				request := &unstructured.Unstructured{Object: map[string]any{"apiVersion": s.object.GetAPIVersion(), "kind": s.object.GetKind()}}
				request.SetNamespace(s.object.GetNamespace())
				request.SetName(s.object.GetName())
				request.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestedAt: "forged"})
				return p.people[s.Sender].send(ctx, request, true, false)
			}
			if time.Now().After(gone) {
				return fmt.Errorf("the policy was deleted, and refuses it still: %w", s.refused)
			}
			pause(ctx)
		}
	})
}

// judge holds a row to what must come of it.
func (p *play) judge(t *testing.T, s *scene) {
	if s.failed != nil {
		t.Fatal(s.failed)
	}
	if s.Refused != "" {
		if s.refused == nil || !strings.Contains(s.refused.Error(), s.Refused) {
			t.Errorf("%s\nwants: %s\nit is not refused with %q: %v", s.Sender, s.Wants, s.Refused, s.refused)
		}
		return
	}
	// What is refused with a reason is as harmless as it gets.
	if (s.Harmless != "" || s.forged()) && (apierrors.IsInvalid(s.refused) || apierrors.IsRequestEntityTooLargeError(s.refused) || isDenied(s.refused)) {
		return
	}
	if s.refused != nil {
		t.Fatalf("%s\nwants: %s\nit is refused: %v", s.Sender, s.Wants, s.refused)
	}
	var missing string
	for {
		missing = p.missing(t.Context(), s)
		if missing == "" {
			break
		}
		if p.ended() || time.Now().After(p.deadline) {
			t.Fatalf("%s\nwants: %s\nstill missing: %s", s.Sender, s.Wants, missing)
		}
		pause(t.Context())
	}
	if s.Unheard != "" && p.servers.heard[s.Unheard].Load() > 0 {
		t.Errorf("%s was connected to", s.Unheard)
	}
}

// isDenied says that a webhook has refused something, not that it gave no answer.
func isDenied(err error) bool {
	return err != nil && strings.Contains(err.Error(), "denied the request: ")
}

// missing says what has not come of a row yet.
func (p *play) missing(ctx context.Context, s *scene) string {
	u, err := p.objects.at(s.object).Get(ctx, s.object.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && s.Gone != "":
		return ""
	case apierrors.IsNotFound(err) && s.Harmless != "": // it has done its work, and its work was none
		return ""
	case err != nil:
		return err.Error()
	case s.Gone != "":
		return "it is there"
	}
	c := &v1alpha1.Cleaner{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
		return err.Error()
	}
	if missing := s.distrusted(c); s.forged() && missing != "" {
		return missing
	}
	return s.says(c)
}

// distrusted says what is left of a forged status: the operator has dropped the record, says so, and signs its own.
func (s *scene) distrusted(c *v1alpha1.Cleaner) string {
	record := slices.ContainsFunc([]string{"runs", "run", "unsent", "lastScheduleTime"}, func(field string) bool {
		_, found, err := unstructured.NestedFieldNoCopy(s.object.Object, "status", field)
		return found && err == nil
	})
	switch is := c.Status; {
	case is.Run != nil || is.Unsent != nil:
		return fmt.Sprintf("it has a run that never was: %+v %+v", is.Run, is.Unsent)
	case is.Runs != 0 && is.Signature == "":
		return "its number of runs is not signed"
	case is.ObservedGeneration > c.Generation:
		return "it has a generation that was never observed"
	case record && !slices.ContainsFunc(is.LastActions, func(a v1alpha1.Action) bool {
		return strings.HasPrefix(a.Result, v1alpha1.ReasonRecordNotTrusted)
	}):
		return fmt.Sprintf("it does not say that a record was dropped: %+v", is)
	}
	return ""
}

// says holds the status of a Cleaner to what it has to say.
func (s *scene) says(c *v1alpha1.Cleaner) string {
	want, status, reason, text := v1alpha1.ConditionReady, "", "", ""
	if s.Undelivered {
		want, status = v1alpha1.ConditionDelivered, "False"
	}
	if s.Says != "" {
		parts := saying.FindStringSubmatch(s.Says)
		want, status, reason, text = parts[1], parts[2], parts[3], parts[4]
	}
	got := meta.FindStatusCondition(c.Status.Conditions, want)
	switch shown := fmt.Sprintf("it says %+v", c.Status.Conditions); {
	case s.Unsaid != "" && strings.Contains(fmt.Sprint(c.Status), s.Unsaid):
		return fmt.Sprintf("its status has %q", s.Unsaid)
	case got == nil || got.Reason == "" || got.Message == "":
		return shown
	case want == v1alpha1.ConditionReady && got.ObservedGeneration != c.Generation:
		return shown
	case status != "" && string(got.Status) != status, reason != "" && got.Reason != reason, !strings.Contains(got.Message, text):
		return shown
	}
	return ""
}

// each does something for all scenes, several at a time. One that fails is left out from then on.
func (p *play) each(do func(context.Context, *scene) error) {
	var g errgroup.Group
	g.SetLimit(hands)
	for _, s := range p.scenes {
		g.Go(func() error {
			if s.failed == nil {
				s.failed = do(p.ctx, s)
			}
			return nil
		})
	}
	_ = g.Wait() // each scene has its own
}

// await waits until nothing is missing.
func (p *play) await(what string, missing func(context.Context) string) {
	p.Helper()
	deadline := time.Now().Add(patience)
	for {
		is := missing(p.ctx)
		if is == "" {
			return
		}
		if p.ended() {
			p.Fatalf("%s: the operator has ended; its log is %s", what, p.manager.LogPath)
		}
		if time.Now().After(deadline) {
			p.Fatalf("%s: still missing: %s", what, is)
		}
		pause(p.ctx)
	}
}

// ended says that the operator is gone.
func (p *play) ended() bool {
	if p.manager == nil { // it has not begun
		return false
	}
	select {
	case <-p.manager.Exited():
		return true
	default:
		return false
	}
}

// pause is the time between two looks.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
}

// The healthy Cleaners have nothing to do with anything hostile.
const (
	healthyNamespace = "healthy"
	healthyCleaners  = 20
	// besidePrefix begins the names of what they are given to do all the time.
	besidePrefix = "beside"
)
