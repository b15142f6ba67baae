// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// request returns the record of a request by "us" that was granted, changed by mods.
func request(verb, body string, mods ...func(*Event)) Event {
	e := Event{Event: auditv1.Event{
		Verb:           verb,
		RequestURI:     "/x",
		User:           authenticationv1.UserInfo{Username: "us"},
		ObjectRef:      &auditv1.ObjectReference{Name: "x"},
		ResponseStatus: &metav1.Status{Code: http.StatusOK},
		Annotations:    map[string]string{"authorization.k8s.io/decision": "allow"},
	}}
	if body != "" {
		e.RequestObject = &runtime.Unknown{Raw: []byte(body)}
	}
	for _, mod := range mods {
		mod(&e)
	}
	return e
}

func by(user, as string) func(*Event) {
	return func(e *Event) {
		e.User.Username = user
		if as != "" {
			e.ImpersonatedUser = &authenticationv1.UserInfo{Username: as}
		}
	}
}

func answered(code int32, reason metav1.StatusReason) func(*Event) {
	return func(e *Event) { e.ResponseStatus = &metav1.Status{Code: code, Reason: reason} }
}

func notAllowed(annotations map[string]string) func(*Event) {
	return func(e *Event) { e.Annotations = annotations }
}

func eviction(e *Event) { e.ObjectRef.Subresource = "eviction" }

func TestViolations(t *testing.T) {
	const (
		uid     = `{"preconditions":{"uid":"u"}}`
		version = `{"preconditions":{"resourceVersion":"1"}}`
		both    = `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"1"},"propagationPolicy":"Background"}`
		empty   = `{"preconditions":{"uid":"","resourceVersion":""}}`
	)
	cases := map[string]struct {
		reason string
		event  Event
		want   []string
	}{
		"Both": {
			reason: "exactly what is promised",
			event:  request("delete", both),
		},
		"NoUID": {
			reason: "another object may have the name by now",
			event:  request("delete", version),
			want:   []string{"us: delete /x (200): without a precondition on UID"},
		},
		"NoVersion": {
			reason: "the object may have changed",
			event:  request("delete", uid),
			want:   []string{"us: delete /x (200): without a precondition on resourceVersion"},
		},
		"NoBody": {
			reason: "nothing is demanded at all",
			event:  request("delete", ""),
			want:   []string{"us: delete /x (200): without a precondition on UID and resourceVersion"},
		},
		"Empty": {
			reason: "an empty precondition demands nothing",
			event:  request("delete", empty),
			want:   []string{"us: delete /x (200): without a precondition on UID and resourceVersion"},
		},
		"Refused": {
			reason: "the request was wrong, although admission refused it",
			event:  request("delete", uid, answered(403, metav1.StatusReasonForbidden)),
			want:   []string{"us: delete /x (403): without a precondition on resourceVersion"},
		},
		"Missing": {
			reason: "the request was wrong, although there was nothing to delete",
			event:  request("delete", "", answered(404, metav1.StatusReasonNotFound)),
			want:   []string{"us: delete /x (404): without a precondition on UID and resourceVersion"},
		},
		"Collection": {
			reason: "collections are never deleted",
			event:  request("deletecollection", both),
			want:   []string{"us: deletecollection /x (200): deletes a collection"},
		},
		"ForbiddenCollection": {
			reason: "not even tried",
			event:  request("deletecollection", "", answered(403, metav1.StatusReasonForbidden), notAllowed(nil)),
			want:   []string{"us: deletecollection /x (403): deletes a collection"},
		},
		"Nonsense": {
			reason: "what cannot be read is no proof",
			event:  request("delete", `"nonsense"`),
			want:   []string{"cannot read the options of us: delete /x (200): json: cannot unmarshal string into Go value of type v1.DeleteOptions"},
		},
		"Impersonating": {
			reason: "what we do in the name of another is ours",
			event:  request("delete", uid, by("us", "robot")),
			want:   []string{"us as robot: delete /x (200): without a precondition on resourceVersion"},
		},
		"Impersonated": {
			reason: "what is done in our name is ours",
			event:  request("delete", uid, by("boss", "us")),
			want:   []string{"boss as us: delete /x (200): without a precondition on resourceVersion"},
		},
		"Others": {
			reason: "others may do as they like",
			event:  request("delete", "", by("them", "")),
		},
		"Update": {
			reason: "only deletions are judged",
			event:  request("update", `{}`),
		},
		"Eviction": {
			reason: "an eviction deletes; it needs the resourceVersion",
			event:  request("create", `{"kind":"Eviction","deleteOptions":`+version+`}`, eviction),
		},
		"BareEviction": {
			reason: "an eviction deletes; it needs the resourceVersion",
			event:  request("create", `{"kind":"Eviction","deleteOptions":{}}`, eviction),
			want:   []string{"us: create /x (200): without a precondition on resourceVersion"},
		},
		"EvictionWithoutOptions": {
			reason: "an eviction need not have options",
			event:  request("create", `{"kind":"Eviction"}`, eviction),
			want:   []string{"us: create /x (200): without a precondition on resourceVersion"},
		},
		"Forbidden": {
			reason: "RBAC refuses before the body is read",
			event:  request("delete", "", answered(403, metav1.StatusReasonForbidden), notAllowed(map[string]string{"authorization.k8s.io/decision": "forbid"})),
		},
		"RateLimited": {
			reason: "a full queue refuses before RBAC is asked",
			event:  request("delete", "", answered(429, metav1.StatusReasonTooManyRequests), notAllowed(nil)),
		},
		"NotServed": {
			reason: "nobody reads the body for a kind that is not there",
			event:  request("delete", "", answered(404, "")),
		},
		"ServerError": {
			reason: "the body may not have been read",
			event:  request("delete", "", answered(503, metav1.StatusReasonServiceUnavailable)),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Violations([]Event{tc.event}, "us")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// emptyLog is an audit log to write, and a witness of it.
func emptyLog(t *testing.T) (*os.File, *Witness) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	w, err := newWitness(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return f, w
}

func TestWitnessReadsOn(t *testing.T) {
	f, w := emptyLog(t)
	steps := []struct {
		reason string
		write  string
		want   []string
	}{
		{reason: "nothing was written yet", write: "", want: nil},
		{reason: "a whole line and half of one", write: "{\"verb\":\"get\"}\n{\"verb\":", want: []string{"get"}},
		{reason: "the other half", write: "\"list\"}\n", want: []string{"get", "list"}},
		{reason: "nothing more", write: "", want: []string{"get", "list"}},
	}
	for _, s := range steps {
		if _, err := f.WriteString(s.write); err != nil {
			t.Fatal(err)
		}
		events, err := w.Events()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events {
			got = append(got, e.Verb)
		}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.reason, diff)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 10*pollInterval)
	defer cancel()
	events, err := w.WaitFor(ctx, func([]Event) bool { return false })
	if !errors.Is(err, context.DeadlineExceeded) || len(events) != 2 {
		t.Errorf("what never happens: want the deadline and what was seen, got %v and %d events", err, len(events))
	}
	if _, err := f.WriteString("no JSON\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Events(); err == nil {
		t.Error("a line that is no JSON: want an error")
	}
}

// An API server that is killed leaves a part of an event, and the next one continues on that line.
func TestAWitnessReadsPastWhatAKilledServerLeaves(t *testing.T) {
	const event = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":%q}`
	f, w := emptyLog(t)
	if _, err := fmt.Fprintf(f, event+"\n"+`{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":"li`+event+"\n"+event+"\n", "get", "watch", "patch"); err != nil {
		t.Fatal(err)
	}
	events, err := w.Events()
	if err != nil || len(events) != 3 || events[1].Verb != "watch" || events[2].Verb != "patch" {
		t.Errorf("saw %v: %v", events, err)
	}
	if _, err := fmt.Fprintf(f, event+"no JSON\n", "get"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Events(); err == nil {
		t.Error("a line that ends otherwise is no error")
	}
}

// What came of a write may be seen before the log has it.
func TestAWitnessWaitsForAnswers(t *testing.T) {
	f, w := emptyLog(t)
	write := func(stage auditv1.Stage, id string) {
		if _, err := fmt.Fprintf(f, "{\"stage\": %q, \"auditID\": %q, \"verb\": \"delete\"}\n", stage, id); err != nil {
			t.Error(err)
		}
	}
	write(auditv1.StageRequestReceived, "a")
	var wg sync.WaitGroup
	wg.Go(func() {
		for w.mu.TryLock() { // until it looks
			w.mu.Unlock()
		}
		write(auditv1.StageRequestReceived, "later")
		write(auditv1.StageResponseComplete, "a")
	})
	events, err := w.Events()
	wg.Wait()
	if err != nil || len(events) != 1 || events[0].AuditID != "a" {
		t.Errorf("saw %v (%v), want the answer", events, err)
	}

	w.patience = pollInterval
	write(auditv1.StageRequestReceived, "lost")
	if events, err = w.Events(); err != nil || len(events) != 1 {
		t.Errorf("of a request that is never answered: saw %v (%v)", events, err)
	}
	w.patience = time.Hour
	if events, err = w.Events(); err != nil || len(events) != 1 {
		t.Errorf("nothing has come since: saw %v (%v)", events, err)
	}
}

func TestAWitnessThatComesWithinAnEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string
		want          int
	}{
		"Empty":   {"", "{\"verb\":\"get\"}\n", 1},
		"Between": {"{\"verb\":\"get\"}\n", "{\"verb\":\"list\"}\n", 1},
		"Within":  {"{\"verb\":\"get\"}\n{\"verb\":", "\"list\"}\n{\"verb\":\"watch\"}\n", 1},
		"Still":   {"{\"verb\":", "\"li", 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(path, []byte(tc.before), 0o600); err != nil {
				t.Fatal(err)
			}
			w, err := newWitness(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tc.before+tc.after), 0o600); err != nil {
				t.Fatal(err)
			}
			if events, err := w.Events(); err != nil || len(events) != tc.want {
				t.Errorf("saw %d events, want %d: %v", len(events), tc.want, err)
			}
		})
	}
}

// TestWitness sends real requests, because what the API server writes down is its own business.
func TestWitness(t *testing.T) {
	c, admin := needCluster(t)
	ns := newNamespace(t, c)
	grantEverything(t, admin, ns)
	cfg, err := c.ServiceAccountConfig(t.Context(), ns, "default")
	if err != nil {
		t.Fatal(err)
	}
	user := "system:serviceaccount:" + ns + ":default"
	asJSON := clientFor(t, cfg)
	binary := rest.CopyConfig(cfg)
	binary.ContentType = runtime.ContentTypeProtobuf
	asProtobuf := clientFor(t, binary)
	untyped, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	poll(t, func(ctx context.Context) (bool, error) { // until the grant is known
		_, err := asJSON.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
	made := map[string]*metav1.Preconditions{}
	for _, name := range []string{"json", "protobuf", "uid-only", "bare", "collected", "impersonated", "others"} {
		cm, err := admin.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made[name] = &metav1.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion}
	}
	pod, err := admin.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "evicted"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	w, err := c.Witness()
	if err != nil {
		t.Fatal(err)
	}
	as := c.Config()
	as.Impersonate.UserName = user
	impersonating := clientFor(t, as)
	kinds := untyped.Resource(schema.GroupVersionResource{Group: "example.test", Version: "v1", Resource: "things"})
	requests := []struct {
		reason string
		send   func(context.Context) error
		want   func(error) bool
	}{
		{"with both preconditions, as JSON", func(ctx context.Context) error {
			return asJSON.CoreV1().ConfigMaps(ns).Delete(ctx, "json", metav1.DeleteOptions{Preconditions: made["json"]})
		}, isNil},
		{"with both preconditions, as protobuf", func(ctx context.Context) error {
			return asProtobuf.CoreV1().ConfigMaps(ns).Delete(ctx, "protobuf", metav1.DeleteOptions{Preconditions: made["protobuf"]})
		}, isNil},
		{"with the UID only, as protobuf", func(ctx context.Context) error {
			return asProtobuf.CoreV1().ConfigMaps(ns).Delete(ctx, "uid-only", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: made["uid-only"].UID}})
		}, isNil},
		{"without preconditions", func(ctx context.Context) error {
			return asJSON.CoreV1().ConfigMaps(ns).Delete(ctx, "bare", metav1.DeleteOptions{})
		}, isNil},
		{"of a collection", func(ctx context.Context) error {
			return asJSON.CoreV1().ConfigMaps(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "name=collected"})
		}, isNil},
		{"of a missing object, without preconditions", func(ctx context.Context) error {
			return asJSON.CoreV1().ConfigMaps(ns).Delete(ctx, "missing", metav1.DeleteOptions{})
		}, apierrors.IsNotFound},
		{"that RBAC forbids", func(ctx context.Context) error {
			return asJSON.CoreV1().ConfigMaps("kube-system").Delete(ctx, "x", metav1.DeleteOptions{Preconditions: made["json"]})
		}, apierrors.IsForbidden},
		{"of a kind that is not served", func(ctx context.Context) error {
			return kinds.Namespace(ns).Delete(ctx, "x", metav1.DeleteOptions{Preconditions: made["json"]})
		}, apierrors.IsNotFound},
		{"by eviction", func(ctx context.Context) error {
			return asJSON.PolicyV1().Evictions(ns).Evict(ctx, &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Namespace: ns, Name: pod.Name},
				DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To(pod.ResourceVersion)}},
			})
		}, isNil},
		{"by somebody who impersonates the user, with the UID only", func(ctx context.Context) error {
			return impersonating.CoreV1().ConfigMaps(ns).Delete(ctx, "impersonated", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: made["impersonated"].UID}})
		}, isNil},
		{"by somebody else", func(ctx context.Context) error {
			return admin.CoreV1().ConfigMaps(ns).Delete(ctx, "others", metav1.DeleteOptions{})
		}, isNil},
	}
	for _, r := range requests {
		if err := r.send(t.Context()); !r.want(err) {
			t.Fatalf("a deletion %s: unexpected answer %v", r.reason, err)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	events, err := w.WaitFor(ctx, func(events []Event) bool {
		return len(Deletes(events, user)) == len(requests)-1 && len(Deletes(events, Admin)) == 2
	})
	if err != nil {
		t.Fatal(err)
	}
	configMaps := user + ": delete /api/v1/namespaces/" + ns + "/configmaps/"
	want := []string{
		Admin + " as " + configMaps + "impersonated (200): without a precondition on resourceVersion",
		configMaps + "bare (200): without a precondition on UID and resourceVersion",
		configMaps + "missing (404): without a precondition on UID and resourceVersion",
		configMaps + "uid-only (200): without a precondition on resourceVersion",
		user + ": deletecollection /api/v1/namespaces/" + ns + "/configmaps?labelSelector=name%3Dcollected (200): deletes a collection",
	}
	got := Violations(events, user)
	slices.Sort(got) // two events may be written in another order than they were answered in
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	for _, e := range Deletes(events, user) {
		name, found := strings.CutPrefix(e.RequestURI, "/api/v1/namespaces/"+ns+"/configmaps/")
		if !found || name != "json" && name != "protobuf" {
			continue
		}
		p, err := e.Preconditions()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*made[name], p); diff != "" {
			t.Errorf("preconditions of %q (-want +got):\n%s", name, diff)
		}
	}
}

// TestAuditPolicy checks what is in the record beside deletions: what writes sent and got back, and no objects that were read.
func TestAuditPolicy(t *testing.T) {
	c, admin := needCluster(t)
	ns := newNamespace(t, c)
	w, err := c.Witness()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().ConfigMaps(ns).Get(t.Context(), "x", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ServiceAccountConfig(t.Context(), ns, "default"); err != nil {
		t.Fatal(err)
	}

	type record struct {
		Code                  int
		Request, Response     bool
		Namespace, Name, Verb string
	}
	var got []record
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = w.WaitFor(ctx, func(events []Event) bool {
		got = nil
		for _, e := range events {
			if e.By(Admin) && e.ObjectRef != nil && e.ObjectRef.Namespace == ns {
				got = append(got, record{e.Code(), e.RequestObject != nil, e.ResponseObject != nil, ns, e.ObjectRef.Name, e.Verb})
			}
		}
		return len(got) == 3
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []record{
		{Code: 201, Request: true, Response: true, Namespace: ns, Name: "x", Verb: "create"},
		{Code: 200, Request: false, Response: false, Namespace: ns, Name: "x", Verb: "get"},
		{Code: 201, Request: false, Response: false, Namespace: ns, Name: "default", Verb: "create"},
	}
	// Two events may be written in another order than they were answered in.
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(func(a, b record) bool { return a.Verb+a.Name < b.Verb+b.Name })); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func isNil(err error) bool { return err == nil }
