// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/randfill"

	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// inProtobuf is an answer as an API server sends it in protobuf.
func inProtobuf(t *testing.T, o runtime.Object, kind schema.GroupVersionKind) []byte {
	t.Helper()
	o.GetObjectKind().SetGroupVersionKind(kind)
	out, err := runtime.Encode(protobuf.NewSerializer(nil, nil), o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Metadata and Status say the same in protobuf and in JSON.
func TestAnswersInProtobuf(t *testing.T) {
	random := randfill.NewWithSeed(1).NilChance(.5).NumElements(0, 2).Funcs(metafuzzer.Funcs(clientscheme.Codecs)...)
	for range 100 {
		for kind, o := range map[string]runtime.Object{"PartialObjectMetadata": &metav1.PartialObjectMetadata{}, "Status": &metav1.Status{}} {
			gvk := schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: kind}
			if kind == "Status" {
				gvk.Group = ""
			}
			random.Fill(o)
			o.GetObjectKind().SetGroupVersionKind(gvk)
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			want, got := newReader().readAnswer(text), newReader().readAnswer(inProtobuf(t, o, gvk))
			if want == nil || got == nil {
				t.Fatalf("got %v and %v of %s", want, got, text)
			}
			unstructured.RemoveNestedField(want.Object, "metadata", "managedFields")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s (-JSON +protobuf):\n%s", kind, diff)
			}
		}
	}
}

// What is neither an object nor a Status says nothing.
func TestAnswersThatSayNothing(t *testing.T) {
	unknown := inProtobuf(t, &metav1.Status{}, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	for _, text := range []string{"", " ", "{", "[]", "<html>", "{}", "k8s\x00", "k8s\x00hello", string(unknown)} {
		if got := newReader().readAnswer([]byte(text)); got != nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

// An error in protobuf says what the same one says in JSON.
func TestErrorsInProtobuf(t *testing.T) {
	ref := observed.Ref{Resource: podsResource(), Namespace: "ns", Name: "a", UID: "u"}
	for name, sent := range map[string]*apierrors.StatusError{
		"not found": apierrors.NewNotFound(podsResource().GroupResource(), "a"),
		"conflict":  apierrors.NewConflict(podsResource().GroupResource(), "a", errors.New("the UID in the precondition (u) does not match the UID in record (v)")),
		"forbidden": apierrors.NewForbidden(podsResource().GroupResource(), "a", errors.New("not yours")),
	} {
		t.Run(name, func(t *testing.T) {
			var said []life.Answer
			for _, format := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf+asMetadata) {
						t.Errorf("it was asked for %q", r.Header.Get("Accept"))
					}
					status := sent.Status()
					status.TypeMeta = statusMeta()
					body, err := json.Marshal(status)
					if err != nil {
						t.Error(err)
					}
					if format == runtime.ContentTypeProtobuf {
						body = inProtobuf(t, &status, schema.GroupVersionKind{Version: "v1", Kind: "Status"})
					}
					w.Header().Set("Content-Type", format)
					w.WriteHeader(int(status.Code))
					_, _ = w.Write(body)
				}))
				defer server.Close()
				a, err := New(&rest.Config{Host: server.URL}, fair.NewSlots(inFlight, clock.RealClock{}))
				if err != nil {
					t.Fatal(err)
				}
				_, err = a.sendRequest(t.Context(), ref, newDeleteRequest(ref, "1", nil, "", false))
				said = append(said, classifyError(err, ref))
			}
			if !cmp.Equal(said[0], said[1]) || said[0].Kind == life.AnswerLost || said[0].Kind == life.AnswerDone {
				t.Errorf("JSON says %+v, and protobuf %+v", said[0], said[1])
			}
		})
	}
}
