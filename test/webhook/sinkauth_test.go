// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

// secretValue is a value that appears nowhere but at sinks.
const secretValue = "t0p-s3cret-value"

// guarded is a namespace with somebody who may write Cleaners that tell a sink.
type guarded struct {
	*env
	t     *testing.T
	ns    string
	alice rbacv1.Subject
	as    client.Client
	sink  *sink.Sink
}

// guard makes the namespace, a Secret with a value in it, and lets the operator and alice read that.
func (e *env) guard(t *testing.T, value string) *guarded {
	t.Helper()
	ns := e.namespace(t)
	g := &guarded{env: e, t: t, ns: ns, alice: rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice-" + ns}, sink: sink.Start(t)}
	g.as, _ = e.as(t, g.alice.Name)
	e.grant(t, ns, "alice", g.alice, configMapEditor()...)
	g.secret(value)
	return g
}

// secret writes the Secret.
func (g *guarded) secret(value string) {
	g.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: g.ns, Name: "sink"}, Data: map[string][]byte{"token": []byte(value)}}
	err := g.Create(g.t.Context(), s)
	if apierrors.IsAlreadyExists(err) {
		err = g.Update(g.t.Context(), s)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// mayRead lets somebody get the Secret.
func (g *guarded) mayRead(name string, who rbacv1.Subject) {
	g.t.Helper()
	g.grant(g.t, g.ns, name, who, rule("get", "", "secrets", "sink", "absent"))
}

// operatorMayRead lets the operator get that Secret, and one that is not there, as docs/security.md says.
func (g *guarded) operatorMayRead() {
	g.t.Helper()
	if _, err := g.Kubectl(g.t.Context(), "create", "role", "sink", "-n", g.ns, "--verb=get", "--resource=secrets", "--resource-name=sink", "--resource-name=absent"); err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.Kubectl(g.t.Context(), "create", "rolebinding", "sink", "-n", g.ns, "--role=sink", "--serviceaccount="+operator.Namespace+":"+operator.ServiceAccount); err != nil {
		g.t.Fatal(err)
	}
}

// tells is a Cleaner that deletes a ConfigMap, and tells the sink.
func (g *guarded) tells(kind v1alpha1.SinkAuthType, more string) *unstructured.Unstructured {
	g.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.ns, Name: "evidence"}}
	if err := g.Create(g.t.Context(), cm); client.IgnoreAlreadyExists(err) != nil {
		g.t.Fatal(err)
	}
	return cleaner(g.t, g.ns, "c", fmt.Sprintf(
		`{ttl: 0s, targets: [{name: cm, reference: {version: v1, kind: ConfigMap, name: evidence}, delete: true}], cloudEventSink: %q, cloudEventSinkAuth: {type: %s, secretRef: {name: sink, key: token}}%s}`,
		g.sink.URL, kind, more))
}

// waits waits until Delivered says that an event was not sent, and why.
func (g *guarded) waits(want string) {
	g.t.Helper()
	want = "The event of run 1 was not sent; the operator will retry: " + want + "."
	eventually(g.t, "Delivered says why", func(ctx context.Context) string {
		c := &v1alpha1.Cleaner{}
		if err := g.Get(ctx, client.ObjectKey{Namespace: g.ns, Name: "c"}, c); err != nil {
			return err.Error()
		}
		now := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionDelivered)
		if now == nil || now.Status != metav1.ConditionFalse || now.Reason != v1alpha1.ReasonDeliveryFailed || now.Message != want {
			return fmt.Sprintf("it says %+v", now)
		}
		return ""
	})
}

// gone waits until the Cleaner has told its sink.
func (g *guarded) gone() {
	g.t.Helper()
	eventually(g.t, "the Cleaner goes", func(ctx context.Context) string {
		c := &v1alpha1.Cleaner{}
		if err := g.Get(ctx, client.ObjectKey{Namespace: g.ns, Name: "c"}, c); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there: %v %+v", err, c.Status.Conditions)
		}
		return ""
	})
}

// received are the requests that the sink got.
func (g *guarded) received(n int) []sink.Event {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	events, err := g.sink.WaitFor(ctx, n)
	if err != nil {
		g.t.Fatal(err)
	}
	return events
}

// hidden fails if a value stands in the operator's log, in its metrics, in a Cleaner or in an Event.
func (g *guarded) hidden(value string) {
	g.t.Helper()
	log, err := os.ReadFile(g.manager.LogPath)
	if err != nil {
		g.t.Fatal(err)
	}
	if !strings.Contains(string(log), g.ns) {
		g.t.Error("the log says nothing of the Cleaner")
	}
	texts := map[string]string{"the log": string(log)}
	for _, kind := range []string{"cleaners", "events", "events.events.k8s.io", "clustercleaners"} {
		out, err := g.Kubectl(g.t.Context(), "get", kind, "-n", g.ns, "-o", "json")
		if err != nil {
			g.t.Fatal(err)
		}
		texts[kind] = string(out)
	}
	for where, text := range texts {
		if strings.Contains(text, value) {
			g.t.Errorf("%s has the value", where)
		}
	}
}

// TestSinkAuth shows what a sink gets of a Secret: read by the operator, which may read no other, or as the ServiceAccount.
func TestSinkAuth(t *testing.T) {
	bearer := func(e sink.Event) bool {
		return e.Header.Get("Authorization") == "Bearer "+secretValue && e.Header.Get("Webhook-Signature") == ""
	}
	signed := func(e sink.Event) bool {
		return sink.Verify([]byte(secretValue), e.Data, e.Header, time.Now()) && e.Header.Get("Authorization") == "" && e.Header.Get("Webhook-Id") == e.ID
	}
	for name, tc := range map[string]struct {
		kind    v1alpha1.SinkAuthType
		account bool
		shown   func(sink.Event) bool
	}{
		"Bearer":          {v1alpha1.SinkAuthBearer, false, bearer},
		"HMAC":            {v1alpha1.SinkAuthHMAC, false, signed},
		"BearerAsAccount": {v1alpha1.SinkAuthBearer, true, bearer},
	} {
		t.Run(name, func(t *testing.T) {
			g := shared.guard(t, secretValue+"\n")
			g.mayRead("reader", g.alice)
			more := ""
			if tc.account {
				g.account()
				more = ", serviceAccountName: teller"
			} else {
				g.operatorMayRead()
			}
			if err := g.as.Create(t.Context(), g.tells(tc.kind, more)); err != nil {
				t.Fatal(err)
			}
			g.gone()
			for _, e := range g.received(1) {
				if !tc.shown(e) {
					t.Errorf("the sink got %v", e.Header)
				}
			}
			g.hidden(secretValue)
		})
	}
}

// account makes a ServiceAccount that may do what the Cleaner is to do, and lets the operator act as it, with the preset sinks.
func (g *guarded) account() {
	g.t.Helper()
	ctx := g.t.Context()
	if err := operator.Grant(ctx, g.Cluster, "sinks", authorizationv1.ResourceAttributes{Verb: "impersonate-on:serviceaccount:get", Resource: "secrets"}); err != nil {
		g.t.Fatal(err)
	}
	for _, args := range [][]string{
		{"create", "serviceaccount", "teller", "-n", g.ns},
		{"create", "rolebinding", "impersonation", "-n", g.ns, "--clusterrole=cleaner-impersonation", "--serviceaccount=" + operator.Namespace + ":" + operator.ServiceAccount},
	} {
		if _, err := g.Kubectl(ctx, args...); err != nil {
			g.t.Fatal(err)
		}
	}
	teller := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: g.ns, Name: "teller"}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: g.ns, Name: teller.Name}, Rules: []rbacv1.PolicyRule{
		rule("get list watch delete", "", "configmaps"), rule("get", "", "secrets", "sink"),
	}}
	binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, Subjects: []rbacv1.Subject{teller}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: teller.Name}}
	for _, o := range []client.Object{role, binding} {
		if err := g.Create(ctx, o); err != nil {
			g.t.Fatal(err)
		}
	}
	g.grant(g.t, g.ns, "actor", g.alice, rule("impersonate", "", "serviceaccounts", "teller"))
}

// TestSinkAuthNeedsTheRight shows an author who may not read the Secret, one who may no longer, and an operator who may not.
func TestSinkAuthNeedsTheRight(t *testing.T) {
	g := shared.guard(t, secretValue)
	u := g.tells(v1alpha1.SinkAuthBearer, "")
	err := g.as.Create(t.Context(), u.DeepCopy())
	if want := fmt.Sprintf(`user %q is not allowed to get secrets "sink" in namespace %q`, g.alice.Name, g.ns); !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), want) {
		t.Fatalf("got %v, want %s", err, want)
	}
	g.mayRead("reader", g.alice)
	if err := g.as.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	g.waits(fmt.Sprintf(`the operator is not allowed to get secrets "sink" in namespace %q`, g.ns))
	if err := g.manager.Kill(); err != nil { // what it was told lately it would believe for some minutes
		t.Fatal(err)
	}
	if err := g.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: g.ns, Name: "reader"}}); err != nil {
		t.Fatal(err)
	}
	g.operatorMayRead()
	if g.manager, err = operator.Run(t.Context(), g.Cluster, operator.Options{Binary: g.binary, Webhook: g.gate, Args: []string{"--min-interval=100ms"}}); err != nil {
		t.Fatal(err)
	}
	g.waits(fmt.Sprintf(`The author of the spec, user %q, is not allowed to get secrets "sink" in namespace %q`, g.alice.Name, g.ns))
	if n := len(g.sink.Events()); n != 0 {
		t.Errorf("the sink got %d requests", n)
	}
	g.mayRead("again", g.alice)
	g.gone()
	g.received(1)
	g.hidden(secretValue)
}

// TestSinkAuthWaits shows a value that would inject a header, a Secret that is missing, and one that is changed while the sink
// is asked.
func TestSinkAuthWaits(t *testing.T) {
	g := shared.guard(t, secretValue+"\r\nX-Admin: yes")
	g.mayRead("reader", g.alice)
	g.operatorMayRead()
	u := g.tells(v1alpha1.SinkAuthBearer, "")
	if err := g.as.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	g.waits(`the value of key "token" in Secret "sink" has characters other than printable ASCII without spaces, which a header cannot hold`)
	name := func(secret string) {
		t.Helper()
		patch := fmt.Sprintf(`{"spec":{"cloudEventSinkAuth":{"secretRef":{"name":%q}}}}`, secret)
		if err := g.as.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	name("absent")
	g.waits(fmt.Sprintf("cannot find Secret %s/absent", g.ns))
	if n := len(g.sink.Events()); n != 0 {
		t.Errorf("the sink got %d requests", n)
	}
	changed := make(chan struct{})
	g.sink.Answer(sink.Answer{Status: http.StatusUnauthorized, Until: changed})
	g.secret("first-" + secretValue)
	name("sink")
	g.received(1)
	g.secret("second-" + secretValue)
	close(changed)
	g.gone()
	for i, e := range g.received(2) {
		if got, want := e.Header["Authorization"], "Bearer "+[]string{"first-", "second-"}[min(i, 1)]+secretValue; len(got) != 1 || got[0] != want || e.Header.Get("X-Admin") != "" {
			t.Errorf("request %d has the header %v", i+1, e.Header)
		}
	}
	g.hidden(secretValue)
}

// TestSinkAuthThatIsRefused shows specs that are not admitted, and one that is warned of.
func TestSinkAuthThatIsRefused(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	const rest = "ttl: 1d, targets: [{name: cm, reference: {version: v1, kind: ConfigMap, name: x, namespace: default}, delete: true}], limits: {maxActions: 1}, cloudEventSink: 'http://sink.example'"
	own := object(t, "ClusterCleaner", "own", fmt.Sprintf("{%s, cloudEventSinkAuth: {type: HMAC, secretRef: {namespace: %s, name: cleaner-signing-key, key: keys}}}", rest, operator.Namespace))
	there := cleaner(t, operator.Namespace, "there", "{"+strings.Replace(rest, ", namespace: default", "", 1)+", cloudEventSinkAuth: {type: HMAC, secretRef: {name: cleaner-signing-key, key: keys}}}")
	for u, want := range map[*unstructured.Unstructured]string{
		own:   fmt.Sprintf("spec.cloudEventSinkAuth.secretRef.namespace: %q is the namespace of the operator, and none of its Secrets can be used: put the Secret into another namespace", operator.Namespace),
		there: fmt.Sprintf("spec.cloudEventSinkAuth.secretRef: no Secret of %q can be used, because it is the namespace of the operator: put the Cleaner and the Secret into another namespace", operator.Namespace),
	} {
		if err := e.Create(t.Context(), u); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", u.GetName(), err, want)
		}
	}
	admin, warned := e.as(t, "kubernetes-admin", "system:masters")
	plain := cleaner(t, ns, "plain", "{"+strings.Replace(rest, ", namespace: default", "", 1)+", cloudEventSinkAuth: {type: Bearer, secretRef: {name: sink, key: token}}}")
	if err := admin.Create(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	if want := "spec.cloudEventSink: the token of cloudEventSinkAuth is sent as plain text"; !strings.Contains(strings.Join(warned.warnings, "\n"), want) {
		t.Errorf("warned of %q", warned.warnings)
	}
}
