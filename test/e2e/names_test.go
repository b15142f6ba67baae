// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// TestNamesThatAreNotUTF8 has an Event whose name is not valid UTF-8, which the API server takes in protobuf: it is left alone and said to
// be, and keeps no other from being deleted, not one with spaces either.
func TestNamesThatAreNotUTF8(t *testing.T) {
	const odd = "a\xffb"
	for name, lifecycle := range map[string]string{"Once": "ttl: 0s", "Recurring": "lifecycle: Recurring"} {
		t.Run(name, func(t *testing.T) {
			l := parallel(t)
			received := l.sink()
			mayDeleteEvents(l)
			config := l.Config()
			config.ContentType = runtime.ContentTypeProtobuf
			set, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			events := set.CoreV1().Events(l.ns)
			for _, name := range []string{"good", " with  spaces ", odd} {
				e := &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{Name: name, Labels: map[string]string{"old": "yes"}},
					InvolvedObject: corev1.ObjectReference{Namespace: l.ns, Name: "x", Kind: "Pod"}, Type: corev1.EventTypeNormal, Reason: "x",
				}
				if _, err := events.Create(l.ctx, e, metav1.CreateOptions{}); err != nil {
					t.Fatalf("%q: %s", name, err)
				}
			}
			l.apply(cleanerYAML("c", `
  `+lifecycle+`
  cloudEventSink: `+received.URL+`
  targets:
  - {name: events, reference: {version: v1, kind: Event, matchLabels: {old: "yes"}}, delete: true}`))
			got := l.received(received, 1)
			if data := string(got[0].Data); !strings.Contains(data, `"withheld":[{`) || !strings.Contains(data, "its name is not valid UTF-8") {
				t.Errorf("the sink has received %s", data)
			}
			list, err := events.List(l.ctx, metav1.ListOptions{LabelSelector: "old=yes"})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 1 || list.Items[0].Name != odd {
				t.Errorf("left are %d Events", len(list.Items))
			}
			if name == "Once" {
				l.gone("c")
				return
			}
			l.eventually("the status says so", func() string {
				s := l.cleaner("c").Status
				if s.LastEvaluation == nil || !slices.ContainsFunc(s.LastEvaluation.Withheld, func(w v1alpha1.Withheld) bool { return strings.Contains(w.Because, "its name is not valid UTF-8") }) {
					return fmt.Sprintf("it says %+v", s.LastEvaluation)
				}
				return ""
			})
		})
	}
}

// TestNamesThatGrowInJSON has Events with names of which JSON has six bytes for each that they have. All that may be are deleted, and
// what is recorded of them, or of those that are left alone, never is too much for the API server.
func TestNamesThatGrowInJSON(t *testing.T) {
	const many = 400
	for name, tc := range map[string]struct {
		part string
		left int
	}{"Brackets": {"<", 0}, "Controls": {"\x01", many}} {
		t.Run(name, func(t *testing.T) {
			l := parallel(t)
			received := l.sink()
			mayDeleteEvents(l)
			set, err := kubernetes.NewForConfig(l.Config())
			if err != nil {
				t.Fatal(err)
			}
			events := set.CoreV1().Events(l.ns)
			for i := range many + 1 {
				name := fmt.Sprint(strings.Repeat(tc.part, 1000), i)
				if i == many {
					name = "good"
				}
				e := &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{Name: name, Labels: map[string]string{"old": "yes"}},
					InvolvedObject: corev1.ObjectReference{Namespace: l.ns, Name: "x", Kind: "Pod"}, Type: corev1.EventTypeNormal, Reason: "x",
				}
				if _, err := events.Create(l.ctx, e, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			l.apply(cleanerYAML("c", `
  lifecycle: Recurring
  cloudEventSink: `+received.URL+`
  targets:
  - {name: events, reference: {version: v1, kind: Event, matchLabels: {old: "yes"}}, delete: true}`))
			l.eventually("all are gone that may be", func() string {
				list, err := events.List(l.ctx, metav1.ListOptions{LabelSelector: "old=yes"})
				if err != nil {
					return err.Error()
				}
				if len(list.Items) != tc.left || slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.Name == "good" }) {
					return fmt.Sprintf("left are %d Events", len(list.Items))
				}
				return ""
			})
			l.received(received, 1) // then the run has ended
		})
	}
}

// mayDeleteEvents lets the operator delete Events in the namespace of the test.
func mayDeleteEvents(l *lab) {
	l.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "events"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"get", "list", "watch", "delete"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "events"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "events"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: operator.Namespace, Name: operator.ServiceAccount}},
	}
	if err := l.Create(l.ctx, role); err != nil {
		l.Fatal(err)
	}
	if err := l.Create(l.ctx, binding); err != nil {
		l.Fatal(err)
	}
}
