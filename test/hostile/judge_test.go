// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/invariants"
	"github.com/vtex/cleaner/test/operator"
)

// shown is how many of the same kind of harm are listed.
const shown = 10

// witness judges what the operator has done to others.
type witness struct {
	play *play
	// canaries are the versions of objects that nobody may touch, by their name.
	canaries map[string]string
}

// newWitness remembers what is there before anything hostile is.
func newWitness(p *play) *witness {
	p.Helper()
	w := &witness{play: p}
	var err error
	if w.canaries, err = w.versions(p.ctx); err != nil {
		p.Fatal(err)
	}
	const least = 200
	if len(w.canaries) < least {
		p.Fatalf("there are %d objects to watch over only", len(w.canaries))
	}
	return w
}

// judgeDeeds holds each write of the operator against what it may touch, and each deletion against its preconditions.
func (w *witness) judgeDeeds(t *testing.T) {
	events, err := w.play.audit.Events()
	if err != nil {
		t.Fatal(err)
	}
	var foreign []string
	deeds := 0
	for i := range events {
		e := &events[i]
		if !e.By(operator.User) {
			continue
		}
		if why := w.foreign(e); why != "" {
			foreign = append(foreign, fmt.Sprintf("%s: %s", why, e))
		}
		if e.Verb == "delete" && e.ObjectRef != nil && e.ObjectRef.Namespace == healthyNamespace {
			deeds++
		}
	}
	if deeds < healthyCleaners {
		t.Errorf("the audit log shows %d deeds, so it witnesses nothing", deeds)
	}
	for _, line := range foreign[:min(len(foreign), shown)] {
		t.Error(line)
	}
	if len(foreign) > shown {
		t.Errorf("and %d more", len(foreign)-shown)
	}
	for _, line := range cluster.Violations(events, operator.User) {
		t.Error(line)
	}
	w.judgeHealthy(t, events)
	logReactions(t, events)
}

// logReactions says how soon the healthy Cleaners deleted what they were given while everything hostile went on. The machine and its API
// server are just as busy, so that it is no measure that could fail.
func logReactions(t *testing.T, events []cluster.Event) {
	made := map[string]time.Time{}
	var took []time.Duration
	for i := range events {
		e := &events[i]
		if e.ObjectRef == nil || e.ObjectRef.Resource == "events" || e.ObjectRef.Namespace != healthyNamespace || !strings.HasPrefix(e.ObjectRef.Name, besidePrefix) || e.Code() >= 300 {
			continue
		}
		switch at := e.RequestReceivedTimestamp.Time; e.Verb {
		case "create":
			made[e.ObjectRef.Name] = at
		case "delete":
			took = append(took, at.Sub(made[e.ObjectRef.Name]))
			delete(made, e.ObjectRef.Name)
		}
	}
	slices.Sort(took)
	if len(took) == 0 || len(made) > 0 {
		t.Fatalf("the audit log shows %d deletions of what the healthy Cleaners were given, and none of %d objects", len(took), len(made))
	}
	t.Logf("reaction of the healthy Cleaners beside all of it: median %s, 99th percentile %s, longest %s of %d", took[len(took)/2], took[len(took)*99/100], took[len(took)-1], len(took))
}

// judgeHealthy holds what was done outside of the namespaces of rows and floods against the invariants. In those, what
// others have written as status would blur them.
func (w *witness) judgeHealthy(t *testing.T, events []cluster.Event) {
	var theirs []string
	for _, s := range w.play.scenes {
		theirs = append(theirs, s.Namespace)
	}
	for _, f := range floods() {
		theirs = append(theirs, f.name)
	}
	events = slices.DeleteFunc(events, func(e cluster.Event) bool {
		return e.ObjectRef != nil && slices.Contains(theirs, e.ObjectRef.Namespace)
	})
	log, err := invariants.ReadLogs(filepath.Join(w.play.Dir(), "manager*.log"))
	if err != nil {
		t.Fatal(err)
	}
	found := invariants.Check(&invariants.Record{
		Operator: operator.User, Audit: events, Log: log, Namespaces: []string{healthyNamespace}, Elsewhere: theirs, Own: operator.Namespace,
		Protected: []string{"kube-system", "kube-public", "kube-node-lease", operator.Namespace},
	})
	for _, v := range found[:min(len(found), shown)] {
		t.Error(v)
	}
}

// upkeep is what the operator writes for itself.
func upkeep(e *cluster.Event) bool {
	ref := e.ObjectRef
	switch ref.Resource {
	case "events", "leases", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews", "tokenreviews":
		return true
	case "validatingwebhookconfigurations", "mutatingwebhookconfigurations":
		return strings.HasPrefix(ref.Name, operator.WebhookConfiguration)
	case "secrets":
		return own(ref.Namespace)
	case "cleaners", "clustercleaners": // its record, its finalizer, and the end of one that has cleaned
		return ref.Subresource == "status" || e.Verb == "delete" || e.RequestObject == nil || !bytes.Contains(e.RequestObject.Raw, []byte(`"spec"`))
	}
	return false
}

// foreign says why a request of the operator harms somebody; empty if it does not.
func (w *witness) foreign(e *cluster.Event) string {
	ref := e.ObjectRef
	if ref == nil {
		return ""
	}
	if as := e.ImpersonatedUser; as != nil {
		account, _ := strings.CutPrefix(as.Username, "system:serviceaccount:")
		namespace, _, _ := strings.Cut(account, ":")
		if namespace != ref.Namespace {
			return "it acts as an account of another namespace"
		}
	}
	if !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb) || upkeep(e) {
		return ""
	}
	release := regexp.MustCompile(`^sh\.helm\.release\.v1\.web\.v\d+$`)
	switch {
	case ref.Namespace == healthyNamespace, strings.HasPrefix(ref.Name, "free"):
		return ""
	case ref.Resource == "secrets" && release.MatchString(ref.Name) && w.play.plays("releases", ref.Namespace):
		return ""
	}
	return "it touches what is nobody's to give"
}

// plays says that a namespace is that of a row of a class.
func (p *play) plays(class, namespace string) bool {
	return slices.ContainsFunc(p.scenes, func(s *scene) bool { return s.class == class && s.Namespace == namespace })
}

func (w *witness) versions(ctx context.Context) (map[string]string, error) {
	kinds := []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ServiceAccount"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	}
	versions := map[string]string{}
	for _, kind := range kinds {
		list, err := w.play.of(kind, "").List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot list %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; !own(o.GetNamespace()) && o.GetNamespace() != "kube-system" {
				versions[fmt.Sprintf("%s %s/%s", kind.Kind, o.GetNamespace(), o.GetName())] = string(o.GetUID()) + " " + o.GetResourceVersion()
			}
		}
	}
	return versions, nil
}

// judgeCanaries holds that what was there before anything hostile is there, as it was.
func (w *witness) judgeCanaries(t *testing.T) {
	after, err := w.versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, version := range w.canaries {
		if after[name] != version {
			t.Errorf("%s was %s, and is %q", name, version, after[name])
		}
	}
}

// judgeProcess holds that the operator is the same process, and has stayed below its memory limit.
func (w *witness) judgeProcess(t *testing.T) {
	if w.play.ended() {
		t.Fatalf("the operator has ended with %d; its log is %s", w.play.manager.ExitCode(), w.play.manager.LogPath)
	}
	most, err := highWater(w.play.manager.PID())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the operator had %d MiB at most; its limit is %d MiB", most>>20, w.play.limit>>20)
	if bound := w.play.limit / 10 * 9; most > bound { // so that there is room for what nobody has thought of
		t.Errorf("the operator had %d MiB, and is to have %d MiB at most", most>>20, bound>>20)
	}
	log, err := os.ReadFile(w.play.manager.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte("panic")) && !bytes.Contains(line, []byte(v1alpha1.ReasonEvaluationFailed)) {
			t.Errorf("the operator's log has %s", shortened(string(line)))
			break
		}
	}
	if n := countStarts(log); n != w.play.starts {
		t.Errorf("the operator has started %d times", 1+n-w.play.starts)
	}
}

// countStarts says how often a log tells that an operator started. Those of earlier tests are there, too.
func countStarts(log []byte) int { return bytes.Count(log, []byte(`"msg":"Starting","version"`)) }

// highWater is the most memory that a process has had.
func highWater(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("cannot read how much memory the operator has had: %w", err)
	}
	found := regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("cannot read how much memory the operator has had in %q", text)
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10, err
}
