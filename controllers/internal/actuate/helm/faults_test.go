// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/release"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// failWith returns an error as the API server words it.
func failWith(code int32, reason metav1.StatusReason) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf("the test answers %d", code),
	}}
}

// failures are the ways in which a request can fail, or be carried out and seem to have failed.
func failures() map[string]func(f *fakeCluster, w http.ResponseWriter, r *http.Request, cancel func()) {
	type failure = func(f *fakeCluster, w http.ResponseWriter, r *http.Request, cancel func())
	answer := func(code int32, reason metav1.StatusReason) failure {
		return func(_ *fakeCluster, w http.ResponseWriter, _ *http.Request, _ func()) {
			respond(w, failWith(code, reason))
		}
	}
	carryOut := func(f *fakeCluster, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			f.server.carryOut(r)
		}
	}
	return map[string]failure{
		"Forbidden":     answer(http.StatusForbidden, metav1.StatusReasonForbidden),
		"PathNotServed": func(_ *fakeCluster, w http.ResponseWriter, _ *http.Request, _ func()) { respond(w, notServed()) },
		"Conflict":      answer(http.StatusConflict, metav1.StatusReasonConflict),
		"InternalError": answer(http.StatusInternalServerError, metav1.StatusReasonInternalError),
		"TimeoutAfterwards": func(f *fakeCluster, w http.ResponseWriter, r *http.Request, _ func()) {
			carryOut(f, r)
			respond(w, failWith(http.StatusGatewayTimeout, metav1.StatusReasonTimeout))
		},
		"NoAnswerAfterwards": func(f *fakeCluster, _ http.ResponseWriter, r *http.Request, _ func()) {
			carryOut(f, r)
			panic(http.ErrAbortHandler)
		},
		"Cancelled": func(_ *fakeCluster, _ http.ResponseWriter, r *http.Request, cancel func()) {
			_, _ = io.Copy(io.Discard, r.Body)
			cancel()
			<-r.Context().Done()
		},
		"CancelledAfterwards": func(f *fakeCluster, _ http.ResponseWriter, r *http.Request, cancel func()) {
			carryOut(f, r)
			cancel()
			<-r.Context().Done()
		},
	}
}

// TestEachRequestFails has each request of an uninstall fail, one at a time and in each way. Whatever has failed, the record goes last,
// nothing of others goes, and the next attempt does what is left, and nothing twice.
func TestEachRequestFails(t *testing.T) {
	begin := func(t *testing.T) (*fakeCluster, UninstallRequest) {
		t.Helper()
		f := fakeClusterWithAccount(t)
		f.install(
			config("a"), config("theirs"), config("stays", "helm.sh/resource-policy: keep"), named("v1", "ServiceAccount", "runner"),
			job("backup", well, preDelete), job("farewell", well, postDelete, `"helm.sh/hook-delete-policy": hook-succeeded`),
		)
		f.annotate("configmaps/theirs", releaseNameAnnotation, "bank")
		return f, f.committed()
	}
	f, want := begin(t)
	if got, err := f.uninstall(want); err != nil || got.State != Done {
		t.Fatalf("got %q, %v without a failure", got.State, err)
	}
	requests := f.server.didSend()
	for name, fail := range failures() {
		t.Run(name, func(t *testing.T) {
			for nth, request := range requests {
				t.Run(fmt.Sprint(nth+1), func(t *testing.T) {
					f, want := begin(t)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					f.server.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
						if n == nth+1 {
							fail(f, w, r, cancel)
						}
						return n == nth+1
					}
					got, err := f.uninstaller().Uninstall(ctx, nil, want, allow{})
					f.server.answer = nil
					if (err == nil) != (got.State == Done) {
						t.Errorf("%s: got %q, %v", request, got.State, err)
					}
					if sent := f.server.didSend(); ctx.Err() != nil && (len(sent) != nth+1 || !errors.Is(err, context.Canceled)) {
						t.Errorf("%s: got %v, and after the end of its context it sends %q", request, err, sent[nth+1:])
					}
					writes := f.server.didWrite()
					if gone := f.server.find("shop.v1") == nil; err != nil && gone && (f.server.find("configmaps/a") != nil || f.server.find("runner") != nil || f.server.find("jobs/farewell") != nil) {
						t.Errorf("%s: the record is gone, and there is %q", request, f.server.left())
					}
					if got, err = f.uninstall(want); err != nil || got.State != Done {
						t.Fatalf("%s: the next try gives %q, %v", request, got.State, err)
					}
					wantWrites := []string{
						"update " + recordName, "create Job backup", "update " + recordName,
						"delete ConfigMap a", "delete ServiceAccount runner",
						"create Job farewell", "update " + recordName, "delete Job farewell", "delete " + recordName,
					}
					if diff := cmp.Diff(wantWrites, append(writes, f.server.didWrite()...)); diff != "" {
						t.Errorf("%s: writes of both tries (-want +got):\n%s", request, diff)
					}
					if diff := cmp.Diff([]string{"ConfigMap stays", "ConfigMap theirs", "Job backup"}, f.server.left()); diff != "" {
						t.Errorf("%s: left (-want +got):\n%s", request, diff)
					}
				})
			}
		})
	}
}

// onRequest has a server fail some requests to a path, the first times, in the place of carrying them out.
func (s *fakeServer) onRequest(method, suffix string, times int, with *apierrors.StatusError, header ...string) {
	s.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != method || !strings.HasSuffix(r.URL.Path, suffix) || times == 0 {
			return false
		}
		times--
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		respond(w, with)
		return true
	}
}

// gone is the answer for an object that does not exist.
func gone(name string) *apierrors.StatusError {
	return apierrors.NewNotFound(secretsResource().GroupResource(), name)
}

// TestFailures has requests fail, and shows what is said about it and what is left undone.
func TestFailures(t *testing.T) {
	const record = "secrets/sh.helm.release.v1.shop.v1"
	conflict, forbidden := failWith(http.StatusConflict, metav1.StatusReasonConflict), failWith(http.StatusForbidden, metav1.StatusReasonForbidden)
	broken, busy := failWith(http.StatusInternalServerError, metav1.StatusReasonInternalError), failWith(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	mark, a, b, access, last := "update "+recordName, "delete ConfigMap a", "delete ConfigMap b", "delete ServiceAccount runner", "delete "+recordName
	all := []string{mark, a, b, access, last}
	cases := map[string]struct {
		reason         string
		method, suffix string
		times          int
		with           *apierrors.StatusError
		header         []string
		says           string
		writes         []string
	}{
		"RecordsForbidden": {
			reason: "nobody knows what the release is", method: http.MethodGet, suffix: "/secrets", times: -1, with: forbidden,
			says: "cannot list the release's Secrets: the test answers 403",
		},
		"RecordsExpired": {
			reason: "half a list is none", method: http.MethodGet, suffix: "/secrets", times: -1, with: failWith(http.StatusGone, metav1.StatusReasonExpired),
			says: "cannot list the release's Secrets: the test answers 410",
		},
		"RecordForbidden": {
			reason: "nobody knows what it says", method: http.MethodGet, suffix: record, times: -1, with: forbidden, says: "the test answers 403",
		},
		"RecordGoneOnce": {
			reason: "it is listed again", method: http.MethodGet, suffix: record, times: 1, with: gone("sh.helm.release.v1.shop.v1"), writes: all,
		},
		"RecordAlwaysGone": {
			reason: "a list that shows what is not there proves nothing", method: http.MethodGet, suffix: record, times: -1,
			with: gone("sh.helm.release.v1.shop.v1"), says: "cannot read the newest of the release's Secrets: it was gone 5 times",
		},
		"KindsUnknown": {
			reason: "no object is left out because discovery fails", method: http.MethodGet, suffix: "/api/v1", times: -1, with: broken, says: `cannot discover "v1": the test answers 500`,
		},
		"MarkConflict": {
			reason: "somebody else writes the record", method: http.MethodPut, suffix: record, times: -1, with: conflict,
			says: "cannot mark the release as uninstalling: the test answers 409",
		},
		"MarkForbidden": {
			reason: "what cannot be marked cannot be resumed", method: http.MethodPut, suffix: record, times: -1, with: forbidden,
			says: "cannot mark the release as uninstalling: the test answers 403",
		},
		"ObjectUnreadable": {
			reason: "the others of its stage go, and nothing after them", method: http.MethodGet, suffix: "configmaps/a", times: -1, with: forbidden,
			says: "cannot read ConfigMap team/a: the test answers 403", writes: []string{mark, b},
		},
		"ObjectForbidden": {
			reason: "the others of its stage go, and nothing after them", method: http.MethodDelete, suffix: "configmaps/a", times: -1, with: forbidden,
			says: "cannot delete ConfigMap team/a: the test answers 403", writes: []string{mark, b},
		},
		"ObjectBroken": {
			reason: "a webhook refuses it", method: http.MethodDelete, suffix: "configmaps/b", times: -1, with: broken,
			says: "cannot delete ConfigMap team/b: the test answers 500", writes: []string{mark, a},
		},
		"ObjectGone": {
			reason: "somebody else has deleted it", method: http.MethodGet, suffix: "configmaps/a", times: -1, with: gone("a"), writes: []string{mark, b, access, last},
		},
		"ObjectJustGone": {
			reason: "somebody else was faster", method: http.MethodDelete, suffix: "configmaps/a", times: -1, with: gone("a"), writes: []string{mark, b, access, last},
		},
		"NoSuchPath": {
			reason: "a path that is not served says nothing about the object", method: http.MethodDelete, suffix: "configmaps/a", times: -1, with: notServed(),
			says: "cannot delete ConfigMap team/a: the server could not find the requested resource", writes: []string{mark, b},
		},
		"ConflictOnce": {
			reason: "it is read again", method: http.MethodDelete, suffix: "configmaps/a", times: 4, with: conflict, writes: all,
		},
		"ConflictAlways": {
			reason: "not now", method: http.MethodDelete, suffix: "configmaps/a", times: -1, with: conflict,
			says: "cannot delete ConfigMap team/a: it changed 5 times just before its deletion", writes: []string{mark, b},
		},
		"Busy": {
			reason: "the client waits for as long as it is asked to", method: http.MethodDelete, suffix: "configmaps/a", times: 1, with: busy,
			header: []string{"Retry-After", "0"}, writes: all,
		},
		"BusyForever": {
			reason: "but not forever", method: http.MethodDelete, suffix: "configmaps/a", times: -1, with: busy,
			header: []string{"Retry-After", "0"}, says: "cannot delete ConfigMap team/a: the test answers 429", writes: []string{mark, b},
		},
		"AccessForbidden": {
			reason: "the last stage counts too", method: http.MethodDelete, suffix: "serviceaccounts/runner", times: -1, with: forbidden,
			says: "cannot delete ServiceAccount team/runner: the test answers 403", writes: []string{mark, a, b},
		},
		"LastForbidden": {
			reason: "the release stays uninstalling", method: http.MethodDelete, suffix: record, times: -1, with: forbidden,
			says: `cannot delete Secret "sh.helm.release.v1.shop.v1": the test answers 403`, writes: []string{mark, a, b, access},
		},
		"LastConflict": {
			reason: "it is read again", method: http.MethodDelete, suffix: record, times: 4, with: conflict, writes: all,
		},
		"LastConflictAlways": {
			reason: "not now", method: http.MethodDelete, suffix: record, times: -1, with: conflict,
			says: `cannot delete Secret "sh.helm.release.v1.shop.v1": it changed 5 times just before its deletion`, writes: []string{mark, a, b, access},
		},
		"LastJustGone": {
			reason: "somebody else was faster", method: http.MethodDelete, suffix: record, times: -1, with: gone("sh.helm.release.v1.shop.v1"),
			writes: []string{mark, a, b, access},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t)
			f.install(config("a"), config("b"), named("v1", "ServiceAccount", "runner"))
			want := f.committed()
			f.server.onRequest(tc.method, tc.suffix, tc.times, tc.with, tc.header...)
			got, err := f.uninstall(want)
			if state := map[bool]OutcomeState{true: Done, false: Unfinished}[tc.says == ""]; got.State != state {
				t.Errorf("%s: got %q, want %q", tc.reason, got.State, state)
			}
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.says)
			}
			if err != nil && !strings.HasPrefix(err.Error(), `cannot uninstall release "shop": `) {
				t.Errorf("%s: %q does not name the release", tc.reason, err)
			}
			writes := f.server.didWrite()
			if diff := cmp.Diff(tc.writes, writes); diff != "" {
				t.Errorf("%s: writes (-want +got):\n%s", tc.reason, diff)
			}
			writes = slices.DeleteFunc(writes, func(w string) bool { return !strings.HasPrefix(w, "delete") })
			if diff := cmp.Diff(writes, deletions(refs(got.Deleted)...)); diff != "" {
				t.Errorf("%s: the outcome says what was deleted (-done +said):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAllFailuresOfAStageAreNamed has two objects of a release fail, and one go.
func TestAllFailuresOfAStageAreNamed(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"), config("b"), config("c"))
	want := f.committed()
	f.server.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || strings.HasSuffix(r.URL.Path, "/b") {
			return false
		}
		respond(w, failWith(http.StatusForbidden, metav1.StatusReasonForbidden))
		return true
	}
	got, err := f.uninstall(want)
	if err == nil || !strings.Contains(err.Error(), "ConfigMap team/a") || !strings.Contains(err.Error(), "ConfigMap team/c") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"ConfigMap b"}, refs(got.Deleted)); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if !apierrors.IsForbidden(err) {
		t.Errorf("the caller cannot tell what is wrong: %v", err)
	}
}

// TestReadWanted shows what a plan is told about a release that cannot be read.
func TestReadWanted(t *testing.T) {
	cases := map[string]struct {
		given   func(f *fakeCluster)
		blocked string
		says    string
	}{
		"Readable": {given: func(*fakeCluster) {}},
		"Forbidden": {given: func(f *fakeCluster) {
			f.server.onRequest(http.MethodGet, "/secrets", -1, failWith(403, metav1.StatusReasonForbidden))
		}, blocked: "AccessDenied", says: "403"},
		"Broken": {given: func(f *fakeCluster) {
			f.server.onRequest(http.MethodGet, "/secrets", -1, failWith(500, metav1.StatusReasonInternalError))
		}, blocked: "ReadFailed", says: "500"},
		"Kinds": {given: func(f *fakeCluster) {
			f.server.onRequest(http.MethodGet, "/api/v1", -1, failWith(503, metav1.StatusReasonServiceUnavailable))
		}, blocked: "ReadFailed", says: "503"},
		"Unreadable": {given: func(f *fakeCluster) {
			f.rewriteRecord("shop.v1", func(r *release.Release) { r.Version = 7 })
		}, blocked: "ReleaseUnreadable", says: "it is of revision 7"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t)
			f.install(config("a"))
			tc.given(f)
			got := f.uninstaller().ReadWanted(t.Context(), nil, "team", &v1alpha1.Helm{Release: "shop", Delete: true})
			if got == nil || got.Name != "shop" || got.Blocked != tc.blocked || !strings.Contains(got.Detail, tc.says) {
				t.Errorf("got %+v, want it to be blocked by %q: %s", got, tc.blocked, tc.says)
			}
			if deployed := got.State == observed.ReleaseDeployed; deployed != (tc.blocked == "") {
				t.Errorf("its state is %v", got.State)
			}
		})
	}
	for _, spec := range []*v1alpha1.Helm{nil, {Release: "shop"}} {
		f := newFakeCluster(t)
		if got := f.uninstaller().ReadWanted(t.Context(), nil, "team", spec); got != nil || len(f.server.didSend()) > 0 {
			t.Errorf("a spec that deletes no release wants %+v", got)
		}
	}
}

// TestAProxyProvesNothing shows that what a proxy says, in plain text, does not prove that an object is gone.
func TestAProxyProvesNothing(t *testing.T) {
	f := newFakeCluster(t)
	f.install(config("a"))
	want := f.committed()
	f.server.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		lost := r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "shop.v1")
		if lost {
			http.NotFound(w, r)
		}
		return lost
	}
	if got, err := f.uninstall(want); err == nil || got.State == Done {
		t.Errorf("got %q, %v, and the record is there", got.State, err)
	}
}
