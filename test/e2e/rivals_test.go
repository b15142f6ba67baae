// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

// gate is somebody else's admission webhook.
type gate struct {
	mu     sync.Mutex
	answer func(*admissionv1.AdmissionRequest) (allowed bool, because string)
}

// set changes what it answers.
func (g *gate) set(answer func(*admissionv1.AdmissionRequest) (bool, string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = answer
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	answer := g.answer
	g.mu.Unlock()
	allowed, because := answer(review.Request)
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed, Result: &metav1.Status{Message: because, Code: http.StatusForbidden}}
	_ = json.NewEncoder(w).Encode(review) // who asked may have gone
}

func allow(*admissionv1.AdmissionRequest) (bool, string) { return true, "" }

// newGate puts a webhook before the deletions of ConfigMaps in the namespace.
func newGate(l *lab) *gate {
	l.Helper()
	probe := l.configMap("probe", nil, nil)
	return newGateBefore(l, admissionregistrationv1.Delete, corev1.SchemeGroupVersion, "configmaps", func() error {
		return l.Delete(l.ctx, probe, client.DryRunAll)
	})
}

// newGateBefore puts a webhook before what is done to the objects of a resource, and of its subresources, in the namespace.
// The probe is such a request that changes nothing.
func newGateBefore(l *lab, what admissionregistrationv1.OperationType, group schema.GroupVersion, resource string, probe func() error) *gate {
	l.Helper()
	g := &gate{answer: func(r *admissionv1.AdmissionRequest) (bool, string) {
		return r.DryRun == nil || !*r.DryRun, "the gate is closed"
	}}
	server := httptest.NewTLSServer(g)
	l.Cleanup(server.Close)
	url, always, none, second := server.URL, admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, int32(1)
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: l.ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "gate.example.test",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{what},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{group.Group}, APIVersions: []string{group.Version}, Resources: []string{resource, resource + "/*"},
				},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: l.ns}},
			FailurePolicy:     &always, SideEffects: &none, TimeoutSeconds: &second, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	configs := clientset(l).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := configs.Create(l.ctx, config, metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		_ = configs.Delete(context.Background(), l.ns, metav1.DeleteOptions{}) // it concerns nobody but this namespace
	})
	l.eventually("the webhook is in force", func() string {
		if err := probe(); !apierrors.IsForbidden(err) {
			return fmt.Sprintf("the probe is answered with %v", err)
		}
		return ""
	})
	g.set(allow)
	return g
}

func clientset(l *lab) *kubernetes.Clientset {
	l.Helper()
	c, err := kubernetes.NewForConfig(l.Config())
	if err != nil {
		l.Fatal(err)
	}
	return c
}

// bystander has another Cleaner come to its end in a namespace of its own: nobody waits for somebody else's trouble.
func (l *lab) bystander() {
	l.Helper()
	other := newLab(l.T, l.env)
	other.configMap("evidence", nil, nil)
	begun := time.Now()
	other.apply(cleanerYAML("bystander", "\n  ttl: 0s\n  targets:"+target))
	other.gone("bystander")
	if d := time.Since(begun); d > 30*time.Second {
		l.Errorf("a Cleaner beside it took %s", d)
	}
}

func TestAForeignWebhookRefusesTheDeletion(t *testing.T) {
	l := parallel(t)
	g := newGate(l)
	g.set(func(*admissionv1.AdmissionRequest) (bool, string) { return false, "not on my watch" })
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
	c := l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonDeletionRefused)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "gate.example.test") || !strings.Contains(got, "not on my watch") {
		t.Errorf("the message does not say who refuses, and why: %q", got)
	}
	l.bystander()
	answered := make(chan struct{})
	t.Cleanup(func() { close(answered) })
	g.set(func(*admissionv1.AdmissionRequest) (bool, string) { <-answered; return true, "" })
	l.eventually("the message says that the webhook does not answer", func() string {
		if c = l.cleaner("c"); c == nil {
			return "the Cleaner is gone"
		}
		if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "failed calling webhook") {
			return got
		}
		return ""
	})
	if !l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the object was deleted")
	}
	g.set(allow)
	l.gone("c")
	l.trail.deletedOnce()
}

// Somebody writes to the object whenever it is about to be deleted.
func TestATargetThatChangesAllTheTime(t *testing.T) {
	for name, included := range map[string]string{"seen": "true", "unseen": "false"} {
		t.Run(name, func(t *testing.T) {
			l := parallel(t)
			g := newGate(l)
			var n int
			g.set(func(r *admissionv1.AdmissionRequest) (bool, string) {
				n++
				patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"annotations": {"n": "%d"}}}`, n))
				err := l.Patch(l.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}, patch)
				return err == nil, fmt.Sprint(err)
			})
			l.configMap("evidence", nil, nil)
			l.apply(cleanerYAML("c", fmt.Sprintf(`
  ttl: 0s
  targets:
  - name: evidence
    reference: {version: v1, kind: ConfigMap, name: evidence}
    includeWhenEvaluating: %s
    delete: true`, included)))
			c := l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonTargetUnstable)
			if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "ConfigMap "+c.Namespace+"/evidence") {
				t.Errorf("the message does not name the object: %q", got)
			}
			l.bystander()
			for _, d := range l.trail.deletes() {
				if d.ObjectRef.Name == "evidence" && d.Code() != http.StatusConflict {
					t.Errorf("a deletion was answered with something else than a conflict: %s", d)
				}
			}
			g.set(allow)
			l.gone("c")
		})
	}
}

// Somebody writes to the Cleaner, to its metadata or to its status, just before the operator does: less and less often, or
// it could meet the same write for ever, since what a conflict stops begins again.
func TestARivalWritesToTheCleaner(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", fmt.Sprintf("\n  ttl: 0s\n  suspend: true\n  cloudEventSink: %q\n  targets:%s", s.URL, target))) // until the rival is there
	c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "c"}}
	label := func(n int) client.Patch {
		return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"labels": {"n": "%d"}}}`, n))
	}
	g := newGateBefore(l, admissionregistrationv1.Update, v1alpha1.GroupVersion, "cleaners", func() error {
		return l.Patch(l.ctx, c.DeepCopy(), label(0), client.DryRunAll)
	})
	var writes atomic.Int64
	g.set(func(r *admissionv1.AdmissionRequest) (bool, string) {
		if r.UserInfo.Username != operator.User {
			return true, ""
		}
		var err error
		switch n := int(writes.Add(1)); n {
		case 1, 6, 15, 28:
			err = l.Patch(l.ctx, c.DeepCopy(), label(n))
		case 3, 10, 21, 36:
			err = l.Status().Patch(l.ctx, c.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status": {"resolvedTargetCount": %d}}`, n)))
		}
		return err == nil, fmt.Sprint(err)
	})
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false })
	l.gone("c")
	if l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the target is there")
	}
	l.trail.deletedOnce()
	events, err := l.audit.Events()
	if err != nil {
		t.Fatal(err)
	}
	conflicts := 0
	for _, e := range events {
		if e.ObjectRef == nil || e.ObjectRef.Namespace != l.ns || e.ObjectRef.Resource != "cleaners" || !e.By(operator.User) || e.Verb != "patch" && e.Verb != "update" {
			continue
		}
		if e.Code() == http.StatusConflict {
			conflicts++
		}
		if e.Verb == "update" || bytes.Contains(e.RequestObject.Raw, []byte(`"spec"`)) {
			t.Errorf("the operator writes to the spec: %s %s", e, e.RequestObject.Raw)
		}
	}
	if conflicts < 2 {
		t.Errorf("%d writes of the operator have met one of the rival, so this shows nothing", conflicts)
	}
}

func TestRightsAreTakenAndGivenBackInARun(t *testing.T) {
	l := parallel(t)
	group := refused(l, widgetSpec, "w1", "w2")
	grant(l, group, "get")
	c := l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonUnconfirmed)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "list") || !strings.Contains(got, "widgets."+group) {
		t.Errorf("the message does not name verb and resource: %q", got)
	}
	for _, w := range []string{"w1", "w2"} {
		if !l.exists(widgetKind(group), w) {
			t.Errorf("%s was deleted although nobody could ask the condition", w)
		}
	}
	l.bystander()
	grant(l, group, "get", "list", "watch", "delete")
	l.gone("c")
	l.trail.deletedOnce()
}

func TestARefusedDeletionHoldsUpNoOther(t *testing.T) {
	l := parallel(t)
	group := l.ns + ".example.test"
	widgetCRD(l, group)
	grant(l, group, "get", "list", "watch")
	widget(l, group, "w", "stale")
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", fmt.Sprintf(widgetSpec, group)+`
  ttl: 0s`))
	c := &v1alpha1.Cleaner{}
	l.update(c, "c", func() { // before or after the first run began: either way both targets are wanted in the end
		c.Spec.Targets = append(c.Spec.Targets, v1alpha1.Target{
			Name: "evidence", Delete: true, OnMissing: v1alpha1.OnMissingAsNull, Reference: v1alpha1.Reference{Version: "v1", Kind: "ConfigMap", Name: "evidence"},
		})
	})
	l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonDeletionRefused)
	l.eventually("the object that may be deleted goes", func() string {
		if l.exists(&corev1.ConfigMap{}, "evidence") {
			return "it is there"
		}
		return ""
	})
	grant(l, group, "get", "list", "watch", "delete")
	l.gone("c")
	l.trail.deletedOnce()
}

// flowOf remembers which flow the API server counted the last request to.
type flowOf struct {
	next http.RoundTripper
	last string
}

func (f *flowOf) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := f.next.RoundTrip(r)
	if err == nil {
		f.last = resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	}
	return resp, err
}

// Priority and fairness of the API server itself: it serves one of the operator's deletions here at a time, and refuses those
// that come meanwhile; then it serves more.
func TestTooManyRequests(t *testing.T) {
	l := parallel(t)
	const n = 40
	for i := range n {
		l.configMap(fmt.Sprintf("evidence-%02d", i), map[string]string{"app": "shop"}, nil)
	}
	flow, zero := clientset(l).FlowcontrolV1(), int32(0)
	level, err := flow.PriorityLevelConfigurations().Create(l.ctx, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: l.ns},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &zero, BorrowingLimitPercent: &zero, LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := flow.FlowSchemas().Create(l.ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: l.ns},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence: 2, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: l.ns},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:      []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: operator.Namespace, Name: operator.ServiceAccount}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, Namespaces: []string{l.ns}}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	as, err := l.ServiceAccountConfig(l.ctx, operator.Namespace, operator.ServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	flows := &flowOf{}
	as.Wrap(func(next http.RoundTripper) http.RoundTripper { flows.next = next; return flows })
	probe, err := kubernetes.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
	l.eventually("the limit is in force", func() string {
		uid, version := types.UID("none"), "1"
		err := probe.CoreV1().ConfigMaps(l.ns).Delete(l.ctx, "none", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		if flows.last != string(schema.UID) {
			return fmt.Sprintf("a deletion belongs to the flow %q (%v)", flows.last, err)
		}
		return ""
	})
	l.apply(cleanerYAML("c", `
  ttl: 0s
  targets:
  - name: maps
    reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}}
    delete: true`))
	l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonDeletionRefused)
	l.bystander()
	more := int32(10)
	level.Spec.Limited.NominalConcurrencyShares = &more
	if _, err := flow.PriorityLevelConfigurations().Update(l.ctx, level, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.gone("c")
	list := &corev1.ConfigMapList{}
	if err := l.List(l.ctx, list, client.InNamespace(l.ns), client.MatchingLabels{"app": "shop"}); err != nil || len(list.Items) > 0 {
		t.Errorf("%d objects are left (%v)", len(list.Items), err)
	}
	l.trail.deletedOnce()
	refusals := 0
	for _, d := range l.trail.deletes() {
		if d.Code() == http.StatusTooManyRequests {
			refusals++
		}
	}
	if refusals == 0 {
		t.Error("no deletion was refused, so this shows nothing")
	}
}

func TestAFinalizerThatNeverGoes(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	cm := l.configMap("evidence", nil, nil)
	l.update(cm, "evidence", func() { cm.Finalizers = []string{"example.test/hold"} })
	l.apply(cleanerYAML("c", fmt.Sprintf("\n  ttl: 0s\n  cloudEventSink: %q\n  targets:%s", s.URL, target)))
	l.gone("c") // after --settle
	sent := 0
	for _, d := range l.trail.deletes() {
		if d.ObjectRef.Resource == "configmaps" {
			sent++
		}
	}
	if sent != 1 {
		t.Errorf("%d deletions were sent for an object that is terminating, want 1", sent)
	}
	if e := s.Events()[0]; !bytes.Contains(e.Data, []byte(`"terminating"`)) {
		t.Errorf("the event does not say that it is there: %s", e.Data)
	}
	if !l.exists(cm, "evidence") || len(cm.Finalizers) != 1 {
		t.Error("somebody else's finalizer was taken off")
	}
	l.update(cm, "evidence", func() { cm.Finalizers = nil })
}

// deleteNamespace deletes the namespace of the test.
func deleteNamespace(l *lab) {
	l.Helper()
	if err := l.Delete(l.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.ns}}); err != nil {
		l.Fatal(err)
	}
}

// letsGo checks that a Cleaner is not what holds its namespace.
func letsGo(l *lab, begun time.Time) {
	l.Helper()
	l.gone("c")
	if d := time.Since(begun); d > 30*time.Second {
		l.Errorf("the Cleaner held its namespace for %s", d)
	}
}

func TestTheNamespaceGoesInARun(t *testing.T) {
	l := parallel(t)
	group := refused(l, fmt.Sprintf("\n  cloudEventSink: %q%s", "http://127.0.0.1:1", widgetSpec), "w")
	deleteNamespace(l)
	letsGo(l, time.Now())
	l.eventually("the namespace goes", func() string {
		if l.exists(widgetKind(group), "w") {
			return "the object is there"
		}
		return ""
	})
	for _, d := range l.trail.deletes() {
		if d.ObjectRef.Resource == "widgets" && d.Code() < 300 {
			t.Errorf("the operator deleted something in a namespace that was being deleted: %s", d)
		}
	}
}

func TestTheNamespaceGoesInAnUninstall(t *testing.T) {
	l := parallel(t)
	release(l, "shop", map[string]string{"note": "x"})
	cm := &corev1.ConfigMap{}
	l.update(cm, "shop-config", func() { cm.Finalizers = []string{"example.test/hold"} })
	l.apply(cleanerYAML("c", "\n  ttl: 0s\n  helm: {release: shop, delete: true}"))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonUninstalling)
	deleteNamespace(l)
	letsGo(l, time.Now())
	l.update(cm, "shop-config", func() { cm.Finalizers = nil })
}

func TestTheSinkIsGone(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	l.apply(cleanerYAML("c", fmt.Sprintf("\n  ttl: 0s\n  cloudEventSink: %q\n  targets:%s", gone.URL, target)))
	c := l.says("c", v1alpha1.ConditionDelivered, v1alpha1.ReasonDeliveryFailed)
	if c.Status.Run == nil || c.Status.Run.Result != v1alpha1.ResultCompleted {
		t.Errorf("the payload is not kept: %+v", c.Status.Run)
	}
	l.bystander()
	s := l.sink()
	s.Answer(sink.Codes(503)...)
	l.update(c, "c", func() { c.Spec.CloudEventSink = s.URL })
	l.gone("c")
}

// The kind goes and comes back, with another object of the same name.
func TestTheKindIsMadeAnewInARun(t *testing.T) {
	l := parallel(t)
	group := refused(l, widgetSpec, "w")
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("widgets." + group)
	if err := l.Delete(l.ctx, crd); err != nil {
		t.Fatal(err)
	}
	l.says("c", v1alpha1.ConditionStalled, v1alpha1.ReasonUnconfirmed)
	l.eventually("the kind is gone", func() string {
		if err := l.Get(l.ctx, client.ObjectKeyFromObject(crd), crd); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	grant(l, group, "watch") // else it sees that there is nothing, before there is
	widgetCRD(l, group)
	widget(l, group, "w", "used")
	grant(l, group, "get", "list", "watch", "delete")
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	if !l.exists(widgetKind(group), "w") {
		t.Error("the object that was made anew was deleted")
	}
}

func TestTheFinalizerIsTakenOffByHand(t *testing.T) {
	e := alone(t)
	l := newLab(t, e)
	l.operators.run(e.binary, append(quick(), "--finish-grace=1h")...)
	dead := l.sink()
	dead.Otherwise(sink.Answer{Hang: true}) // so that the operator itself holds the Cleaner for an hour
	group := refused(l, strings.Replace(widgetSpec, "\n  targets:", fmt.Sprintf("\n  cloudEventSink: %q\n  targets:", dead.URL), 1), "w")
	c := l.cleaner("c")
	if err := l.Delete(l.ctx, c); err != nil {
		t.Fatal(err)
	}
	if _, err := dead.WaitFor(l.ctx, 1); err != nil { // the run has ended, and is told of
		t.Fatal(err)
	}
	patch := client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[
		{"op": "test", "path": "/metadata/finalizers", "value": [%q]},
		{"op": "remove", "path": "/metadata/finalizers"}]`, v1alpha1.Finalizer))
	if err := l.Patch(l.ctx, c, patch); err != nil { // also if the operator was faster
		t.Fatalf("the hand did not take the finalizer off: %s", err)
	}
	l.gone("c")
	grant(l, group, "get", "list", "watch", "delete")
	l.passes()
	if !l.exists(widgetKind(group), "w") {
		t.Error("the object was deleted for a Cleaner that is gone")
	}
}

func TestTwoCleanersWantOneObject(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	for _, name := range []string{"c", "d"} {
		l.apply(cleanerYAML(name, `
  ttl: 2s
  targets:
  - name: evidence
    reference: {version: v1, kind: ConfigMap, name: evidence}
    onMissing: AsNull
    delete: true`))
	}
	l.gone("c")
	l.gone("d")
	l.trail.deletedOnce()
}

func TestACleanerThatTargetsCleaners(t *testing.T) {
	l := parallel(t)
	l.apply(cleanerYAML("victim", "\n  ttl: 100h\n  targets:"+target))
	l.apply(cleanerYAML("c", `
  ttl: 0s
  targets:
  - name: cleaners
    reference: {apiGroup: cleaner.vtex.dev, version: v1alpha1, kind: Cleaner, matchLabels: {}}
    delete: true`))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonInvalidSpec)
	if l.cleaner("victim") == nil || len(l.trail.deletes()) > 0 {
		t.Errorf("a Cleaner was deleted by another one: %v", l.trail.deletes())
	}
}

// The API server dies while it is deleting: what became of those requests, nobody was told.
func TestTheAPIServerIsKilledInARun(t *testing.T) {
	l := newLab(t, alone(t))
	s := l.sink()
	const n = 200
	for i := range n {
		l.configMap(fmt.Sprintf("evidence-%03d", i), map[string]string{"app": "shop"}, nil)
	}
	l.operators.run(l.binary, lone()...)
	l.apply(cleanerYAML("c", fmt.Sprintf(`
  ttl: 0s
  cloudEventSink: %q
  targets:
  - name: maps
    reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}}
    delete: true`, s.URL)))
	if _, err := l.audit.WaitFor(l.ctx, func(events []cluster.Event) bool { return len(cluster.Deletes(events, operator.User)) > 5 }); err != nil {
		t.Fatal(err)
	}
	if err := l.Restart(l.ctx, cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	l.gone("c")
	list := &corev1.ConfigMapList{}
	if err := l.List(l.ctx, list, client.InNamespace(l.ns), client.MatchingLabels{"app": "shop"}); err != nil || len(list.Items) > 0 {
		t.Errorf("%d objects are left (%v)", len(list.Items), err)
	}
	l.trail.deletedOnce()
}
