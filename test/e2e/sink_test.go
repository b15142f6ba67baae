// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

// tell applies a Cleaner that deletes a ConfigMap of its name and tells a sink.
func tell(l *lab, name, url string) {
	l.Helper()
	l.configMap(name, nil, nil)
	l.apply(cleanerYAML(name, fmt.Sprintf(`
  ttl: 0s
  cloudEventSink: %q
  targets:
  - name: config
    reference: {version: v1, kind: ConfigMap, name: %s}
    delete: true`, url, name)))
}

// fails waits until a Cleaner says that its sink did not take the event, and why; nothing else of what the sink said may
// stand there.
func fails(l *lab, name, why string) {
	l.Helper()
	want := "The sink did not accept the event of run 1; the operator will retry: " + why + "."
	var c *v1alpha1.Cleaner
	l.eventually("Delivered says "+why, func() string {
		c = l.says(name, v1alpha1.ConditionDelivered, v1alpha1.ReasonDeliveryFailed)
		if got := message(c, v1alpha1.ConditionDelivered); got != want {
			return got
		}
		return ""
	})
	if !meta.IsStatusConditionFalse(c.Status.Conditions, v1alpha1.ConditionDelivered) {
		l.Error("Delivered is not False")
	}
	if c.DeletionTimestamp != nil || c.Status.Run == nil || c.Status.Run.Result != v1alpha1.ResultCompleted {
		l.Errorf("%s does not stay with its finished run: %s", name, describe(c))
	}
}

func TestDeadSinkCostsNoDeedAndNoOtherCleaner(t *testing.T) {
	l := parallel(t)
	dead, good := l.sink(), l.sink()
	dead.Otherwise(sink.Answer{Hang: true})
	told := []string{"dead-1", "dead-2", "dead-3"}
	for _, name := range told {
		tell(l, name, dead.URL)
	}
	if _, err := dead.WaitFor(l.ctx, len(told)); err != nil { // they hang
		t.Fatal(err)
	}

	// What comes after them is not held up.
	tell(l, "good", good.URL)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("untold", "\n  ttl: 0s\n  targets:"+target))
	l.gone("good")
	l.gone("untold")
	if n := len(good.Events()); n != 1 {
		t.Errorf("the good sink received %d events, want 1", n)
	}
	for _, name := range append(told, "good", "evidence") {
		if l.exists(&corev1.ConfigMap{}, name) {
			t.Errorf("%s was not deleted", name)
		}
	}

	for _, name := range told {
		fails(l, name, "no answer")
	}
	dead.Close()

	// It comes to life: each event arrives as it did before, once.
	alive := l.sinkAt(strings.TrimPrefix(dead.URL, "http://"))
	for _, name := range told {
		l.gone(name)
	}
	before := map[string]sink.Event{}
	for _, e := range dead.Events() {
		before[e.ID] = e
	}
	events := alive.Events()
	for _, e := range events {
		was, ok := before[e.ID]
		if !ok || e.Source != was.Source || e.Type != was.Type || e.Time != was.Time || !bytes.Equal(e.Data, was.Data) {
			t.Errorf("the event differs from the one before, or came twice:\n%+v\n%+v", was, e)
		}
		delete(before, e.ID)
	}
	if len(events) != len(told) {
		t.Errorf("%d events arrived, want %d", len(events), len(told))
	}
}

// TestNoSecretOfTheOperatorIsSent has a ClusterCleaner name a Secret of the operator's namespace when its run is finished, and
// no webhook is asked: the event waits, until another Secret is named.
func TestNoSecretOfTheOperatorIsSent(t *testing.T) {
	l := parallel(t)
	s := l.sink()
	answer := make(chan struct{})
	s.Answer(sink.Answer{Status: http.StatusServiceUnavailable, Until: answer})
	l.configMap("evidence", nil, nil)
	secret := func(namespace, value string) *corev1.Secret {
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: l.ns}, Data: map[string][]byte{"token": []byte(value)}}
		if err := l.Create(l.ctx, o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	secret(l.ns, "mine")
	own := secret(operator.Namespace, "the-operators")
	t.Cleanup(func() {
		if err := l.Delete(context.WithoutCancel(l.ctx), own); err != nil {
			t.Error(err)
		}
	})
	cc := l.fixtures.cluster(fmt.Sprintf(`
  ttl: 0s
  cloudEventSink: %q
  cloudEventSinkAuth: {type: Bearer, secretRef: {namespace: %s, name: %s, key: token}}
  targets:
  - name: config
    reference: {version: v1, kind: ConfigMap, namespace: %s, name: evidence}
    delete: true`, s.URL, l.ns, l.ns, l.ns))
	l.received(s, 1)
	name := func(namespace string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"cloudEventSinkAuth":{"secretRef":{"namespace":%q}}}}`, namespace)
		if err := l.Patch(l.ctx, cc.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}
	name(operator.Namespace)
	close(answer)
	want := fmt.Sprintf("The event of run 1 was not sent; the operator will retry: namespace %q is the namespace of the operator, which does not read Secrets there for Cleaners.", operator.Namespace)
	l.eventually("Delivered says why", func() string {
		if err := l.Get(l.ctx, client.ObjectKeyFromObject(cc), cc); err != nil {
			return err.Error()
		}
		if now := meta.FindStatusCondition(cc.Status.Conditions, v1alpha1.ConditionDelivered); now == nil || now.Message != want {
			return fmt.Sprintf("it says %+v", now)
		}
		return ""
	})
	name(l.ns)
	for _, e := range l.received(s, 2) {
		if got := e.Header.Get("Authorization"); got != "Bearer mine" {
			t.Errorf("the sink got %q", got)
		}
	}
}

func TestSinkThatWillNotTakeTheEventIsNamed(t *testing.T) {
	l := parallel(t)
	refusing, elsewhere, good := l.sink(), l.sink(), l.sink()
	refusing.Answer(
		sink.Answer{Status: http.StatusBadRequest, Header: http.Header{"X-Detail": {"10.9.8.7 is my database"}}, Body: 100},
		sink.Answer{Status: http.StatusTemporaryRedirect, Header: http.Header{"Location": {elsewhere.URL}}},
	)
	tell(l, "bad", refusing.URL)
	fails(l, "bad", "answered 400")
	tell(l, "moved", refusing.URL)
	fails(l, "moved", "answered 307")
	tell(l, "node", "http://169.254.169.254/latest/meta-data")
	fails(l, "node", "no answer")
	if n := len(elsewhere.Events()); n != 0 {
		t.Errorf("%d events followed a redirect", n)
	}

	// Its author names another one, or none.
	c := &v1alpha1.Cleaner{}
	l.update(c, "bad", func() { c.Spec.CloudEventSink = good.URL })
	l.gone("bad")
	l.update(c, "moved", func() { c.Spec.CloudEventSink = "" })
	l.gone("moved")
	l.update(c, "node", func() { c.Spec.CloudEventSink = good.URL })
	l.gone("node")

	refused, taken := refusing.Events(), good.Events()
	if len(refused) != 2 || len(taken) != 2 {
		t.Fatalf("the sinks received %d and %d events, want 2 and 2", len(refused), len(taken))
	}
	if taken[0].ID != refused[0].ID || !bytes.Equal(taken[0].Data, refused[0].Data) {
		t.Errorf("the event differs between two sinks:\n%+v\n%+v", refused[0], taken[0])
	}
}
