// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/vtex/cleaner/celenv"
)

// podsAlone serves Pods, and nothing else.
type podsAlone struct{}

func (podsAlone) ServerResourcesForGroupVersionWithContext(_ context.Context, version string) (*metav1.APIResourceList, error) {
	if version != "v1" {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
	}
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true}}}, nil
}

// emptyCluster has no template, and nobody who uses one.
type emptyCluster struct{}

func (emptyCluster) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "cleanertemplates"}, key.Name)
}

func (emptyCluster) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// review is an AdmissionReview of one request, as the API server sends it.
func review(request string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":` + request + `}`
}

// maxAnswer is the longest answer that the webhook may give, in bytes: findings and warnings are at most 20 each.
const maxAnswer = 4 << 20

// FuzzReview sends anything to the handlers. Whatever it is, they answer a review or a refusal, in bounded time and size.
func FuzzReview(f *testing.F) {
	const cleaner = `{"apiVersion":"cleaner.vtex.dev/v1alpha1","kind":"Cleaner","metadata":{"name":"a","namespace":"shop"},"spec":`
	const kind = `"kind":{"group":"cleaner.vtex.dev","version":"v1alpha1","kind":"Cleaner"},"namespace":"shop","userInfo":{"username":"jane","groups":["shop"]}`
	const pods = `{"ttl":"1d","targets":[{"name":"pods","reference":{"version":"v1","kind":"Pod","matchLabels":{"a":"b"}},"delete":true}],"conditions":["pods.items.size() == 0"]}`
	const rules = `{"lifecycle":"Recurring","targets":[{"name":"pods","reference":{"version":"v1","kind":"Pod"}}],"rules":[{"name":"r","forEach":"pods.items","when":"age(item) > duration('1h')","actions":[{"delete":{}},{"patch":{"merge":"{'a': 1}"}}]}]}`
	for i, body := range []string{
		"", "null", "{}", "[]", `{"request":null}`, "\x00\xff", review("null"), review("{}"),
		review(`{"uid":"1","operation":"CREATE",` + kind + `,"object":` + cleaner + pods + `}}`),
		review(`{"uid":"2","operation":"UPDATE",` + kind + `,"object":` + cleaner + pods + `},"oldObject":` + cleaner + rules + `}}`),
		review(`{"uid":"3","operation":"UPDATE",` + kind + `,"object":` + cleaner + pods + `},"oldObject":7}`),
		review(`{"uid":"4","operation":"CREATE",` + kind + `,"object":` + cleaner + rules + `}}`),
		review(`{"uid":"5","operation":"CREATE",` + kind + `,"object":` + cleaner + `{"lifecycle":"Recurring","templateRef":{"name":"t"}}}}`),
		review(`{"uid":"6","operation":"CREATE",` + kind + `,"object":` + cleaner + `{"targets":[{"delete":true}],"rules":[{"confirm":[{"target":"nobody"}],"actions":[{"patch":{}}]}]}}}`),
		review(`{"uid":"7","operation":"CREATE",` + kind + `,"object":{"kind":"CleanerTemplate","metadata":{"name":"t"},"spec":{"parameters":[{"name":"p","type":"string","default":"x"}],"template":` + rules + `}}}`),
		review(`{"uid":"8","operation":"DELETE",` + kind + `}`),
		`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"9"}}`,
		`{"apiVersion":"v1","kind":"Pod"}`,
	} {
		for at := range 4 {
			f.Add(at+i, []byte(body))
		}
	}
	ctrl.SetLogger(logr.Discard())
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		f.Fatal(err)
	}
	v := &validator{compiler: compiler, discovery: podsAlone{}, fields: newFieldChecker(builtIn{}), reviews: &authority{}, live: emptyCluster{}, keys: newKey(f), operator: &operatorIdentity{user: authenticationv1.UserInfo{Username: operator}}}
	served := newHandlers(v, clock.RealClock{})
	handlers := []http.Handler{served[Path], served[ClusterPath], served[TemplatePath], served[AuthorPath]}
	f.Fuzz(func(t *testing.T, at int, body []byte) {
		v.reviews = &authority{}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		began := time.Now()
		handlers[uint(at)%uint(len(handlers))].ServeHTTP(w, req)
		if took := time.Since(began); took > 3*answerTimeout { // the machine may be busy
			t.Errorf("the answer took %s", took)
		}
		checkAnswer(t, w, body)
	})
}

// checkAnswer holds an answer to what the API server takes for one.
func checkAnswer(t *testing.T, w *httptest.ResponseRecorder, body []byte) {
	t.Helper()
	if w.Body.Len() > maxAnswer {
		t.Errorf("the answer has %d bytes", w.Body.Len())
	}
	if w.Code >= 400 && w.Code < 500 {
		return
	}
	var answer, asked admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK || answer.Response == nil {
		t.Fatalf("the answer is no review: %d %v %s", w.Code, err, w.Body)
	}
	r := answer.Response
	if !r.Allowed && (r.Result == nil || r.Result.Message == "" || r.Result.Code < 400) {
		t.Errorf("a refusal says nothing: %s", w.Body)
	}
	if json.Unmarshal(body, &asked) == nil && asked.Request != nil && r.UID != "" && r.UID != asked.Request.UID {
		t.Errorf("the answer is that to %q, and %q was asked", r.UID, asked.Request.UID)
	}
}
