// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// TestNoForeignSecretIsRead has the spec as it is now decide, and never the namespace of the operator be read: whatever a
// record, a former spec or a Cleaner that was there before has asked for.
func TestNoForeignSecretIsRead(t *testing.T) {
	const url = "https://sink.example"
	ref := v1alpha1.SecretKeyReference{Name: "sink", Key: "token"}
	cleaner := func(namespace string) *v1alpha1.Cleaner {
		return &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c", UID: "1"}, Spec: v1alpha1.CleanerSpec{
			CommonSpec:         v1alpha1.CommonSpec{CloudEventSink: url},
			CloudEventSinkAuth: &v1alpha1.SinkAuth{Type: v1alpha1.SinkAuthBearer, SecretRef: ref},
		}}
	}
	cluster := func(namespace string) *v1alpha1.ClusterCleaner {
		return &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "1"}, Spec: v1alpha1.ClusterCleanerSpec{
			CommonSpec: v1alpha1.CommonSpec{CloudEventSink: url},
			CloudEventSinkAuth: &v1alpha1.ClusterSinkAuth{Type: v1alpha1.SinkAuthBearer, SecretRef: v1alpha1.ClusterSecretKeyReference{
				Namespace: namespace, SecretKeyReference: ref,
			}},
		}}
	}
	const (
		own     = `namespace "cleaner-system" is the namespace of the operator, which does not read Secrets there for Cleaners`
		changed = "the spec has changed"
	)
	for name, tc := range map[string]struct {
		stored v1alpha1.Owner
		uid    types.UID
		sent   func(*outbox.Sink)
		want   string
	}{
		"OperatorNamespace":          {stored: cluster("cleaner-system"), want: own},
		"CleanerInOperatorNamespace": {stored: cleaner("cleaner-system"), want: own},
		"OtherSink":                  {stored: cleaner("shop"), sent: func(s *outbox.Sink) { s.URL = "https://evil.example" }, want: changed},
		"OtherSecret":                {stored: cleaner("shop"), sent: func(s *outbox.Sink) { s.Auth.SecretRef.Name = "other" }, want: changed},
		"OtherKey":                   {stored: cleaner("shop"), sent: func(s *outbox.Sink) { s.Auth.SecretRef.Key = "other" }, want: changed},
		"OtherNamespace":             {stored: cleaner("shop"), sent: func(s *outbox.Sink) { s.Auth.SecretRef.Namespace = "bank" }, want: changed},
		"OtherNamespaceOfCluster":    {stored: cluster("ops"), sent: func(s *outbox.Sink) { s.Auth.SecretRef.Namespace = "bank" }, want: changed},
		"OtherType":                  {stored: cleaner("shop"), sent: func(s *outbox.Sink) { s.Auth.Type = v1alpha1.SinkAuthHMAC }, want: changed},
		"OtherCleaner":               {stored: cleaner("shop"), uid: "2", want: changed},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			// Whatever came after what is refused here would fail by itself: there is nothing to read a Secret with.
			s := &Reader{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.stored).Build(), Namespace: "cleaner-system"}
			sink, uid := outbox.SinkOf(tc.stored), tc.uid
			if tc.sent != nil {
				tc.sent(&sink)
			}
			if uid == "" {
				uid = tc.stored.GetUID()
			}
			value, err := s.ReadValue(t.Context(), client.ObjectKeyFromObject(tc.stored), uid, sink)
			if value != nil || err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestValueOf(t *testing.T) {
	secret := func(data any) observed.Target {
		return observed.Target{State: observed.Complete, Objects: []observed.Object{{Value: map[string]any{"data": data}}}}
	}
	for name, tc := range map[string]struct {
		seen observed.Target
		want string
		err  string
	}{
		"Value":     {seen: secret(map[string]any{"token": "czNjcmV0"}), want: "s3cret"},
		"OtherKey":  {seen: secret(map[string]any{"other": "czNjcmV0"}), err: `cannot find key "token" in Secret shop/sink`},
		"NoData":    {seen: secret(nil), err: `cannot find key "token" in Secret shop/sink`},
		"NotBase64": {seen: secret(map[string]any{"token": "czNjcmV0!"}), err: `cannot decode key "token" of Secret shop/sink`},
		"Missing":   {seen: observed.Target{State: observed.Complete}, err: `cannot find Secret shop/sink`},
		"Forbidden": {seen: observed.Target{State: observed.Forbidden, Detail: "the operator may not"}, err: "the operator may not"},
		"Unknown":   {seen: observed.Target{State: observed.Failed, Detail: "cannot get it", Objects: secret(map[string]any{"token": "czNjcmV0"}).Objects}, err: "cannot get it"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := valueOf(tc.seen, "shop", v1alpha1.SecretKeyReference{Name: "sink", Key: "token"})
			switch {
			case tc.err == "" && (err != nil || string(got) != tc.want):
				t.Errorf("got %q, %v", got, err)
			case tc.err != "" && (err == nil || err.Error() != tc.err || got != nil):
				t.Errorf("got %q, %v, want %q", got, err, tc.err)
			case err != nil && strings.Contains(err.Error(), "czNj"):
				t.Errorf("the value is shown: %v", err)
			}
		})
	}
}
