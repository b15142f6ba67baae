// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// releaseServer has the Secret of a release of no objects.
type releaseServer struct {
	t      *testing.T
	mu     sync.Mutex
	secret *corev1.Secret // nil when it is gone
	writes []string
	// refuses says that it refuses to delete the Secret.
	refuses bool
}

// newReleaseServer serves release web, and returns an uninstaller that acts on it.
func newReleaseServer(t *testing.T, r *rig) *releaseServer {
	t.Helper()
	s := &releaseServer{t: t}
	release := `{"name":"web","namespace":"shop","version":1,"info":{"first_deployed":"2030-01-02T03:04:05Z","status":"deployed"},"manifest":"","hooks":[]}`
	s.secret = &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: v1alpha1.ReleaseSecretType,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "sh.helm.release.v1.web.v1", UID: "record", ResourceVersion: "1",
			Labels: map[string]string{"owner": "helm", "name": "web", "version": "1", "status": "deployed"},
		},
		Data: map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString([]byte(release)))},
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	uninstaller, err := helm.New(helm.Options{Config: &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}, Clock: r.clock})
	must(t, err)
	r.own.Helm = uninstaller
	r.own.Watched, r.own.Live = s.readerOf(r.own.Watched), s.readerOf(r.own.Live)
	return s
}

// readerOf reads the release, and everything else from another Reader.
func (s *releaseServer) readerOf(other snapshot.Reader) snapshot.Reader {
	return reads(func(ctx context.Context, q snapshot.Query) observed.Target {
		if !q.OfReleases {
			return other.Read(ctx, q)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		seen := observed.Target{State: observed.Complete, Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespaced: true}
		if s.secret == nil || q.Labels.String() == "owner=helm,status=uninstalling" && s.secret.Labels["status"] != "uninstalling" {
			return seen
		}
		annotations := map[string]any{}
		for k, v := range s.secret.Annotations {
			annotations[k] = v
		}
		seen.Objects = []observed.Object{{
			Ref:    observed.Ref{Resource: seen.Resource, Kind: "Secret", Namespace: "shop", Name: s.secret.Name, UID: s.secret.UID, ResourceVersion: s.secret.ResourceVersion},
			Labels: s.secret.Labels, OfRelease: true,
			Value: map[string]any{
				"apiVersion": "v1", "kind": "Secret", "name": "web", "status": s.secret.Labels["status"],
				"metadata": map[string]any{"namespace": "shop", "name": s.secret.Name, "uid": "record", "resourceVersion": s.secret.ResourceVersion, "annotations": annotations},
			},
		}}
		return seen
	})
}

// ServeHTTP serves the Secret.
func (s *releaseServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			s.t.Error(err)
		}
	}
	status := func(code int32, reason metav1.StatusReason) {
		answer(int(code), metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
			Details: &metav1.StatusDetails{Name: "sh.helm.release.v1.web.v1", Kind: "secrets"},
		})
	}
	list := strings.HasSuffix(req.URL.Path, "/secrets")
	switch {
	case list:
		items := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
		if s.secret != nil {
			items.Items = []metav1.PartialObjectMetadata{{TypeMeta: s.secret.TypeMeta, ObjectMeta: s.secret.ObjectMeta}}
		}
		answer(http.StatusOK, items)
	case s.secret == nil:
		status(http.StatusNotFound, metav1.StatusReasonNotFound)
	case req.Method == http.MethodPut:
		var put corev1.Secret
		if err := json.NewDecoder(req.Body).Decode(&put); err != nil {
			s.t.Error(err)
		}
		if put.ResourceVersion != s.secret.ResourceVersion {
			status(http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		s.writes = append(s.writes, "mark")
		s.change(&put)
		answer(http.StatusOK, s.secret)
	case req.Method == http.MethodDelete && s.refuses:
		status(http.StatusForbidden, metav1.StatusReasonForbidden)
	case req.Method == http.MethodDelete:
		s.writes = append(s.writes, "delete")
		s.secret = nil
		answer(http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	case strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadata"):
		answer(http.StatusOK, metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: s.secret.ObjectMeta})
	default:
		answer(http.StatusOK, s.secret)
	}
}

// change stores the Secret at another version.
func (s *releaseServer) change(to *corev1.Secret) {
	n, err := strconv.Atoi(s.secret.ResourceVersion)
	must(s.t, err)
	s.secret = to.DeepCopy()
	s.secret.ResourceVersion = strconv.Itoa(n + 1)
}

func (s *releaseServer) did() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.writes, " ")
}

// uninstallingByRule is a Cleaner that uninstalls releases.
func uninstallingByRule(when string) *v1alpha1.Cleaner {
	c := done(v1alpha1.RuleAction{HelmUninstall: &v1alpha1.HelmUninstallAction{}})
	c.Spec.Rules[0].When = when
	c.Spec.Targets = []v1alpha1.Target{{Name: "pods", HelmReleases: &v1alpha1.HelmReleases{}}}
	return c
}

// passUntil makes passes, each a second after the one before, until something holds.
func passUntil(r *rig, what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) { // a job ends by itself
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not yet; it says %+v", what, r.cleaner().Status)
		}
		r.clock.Step(time.Second)
		r.pass()
	}
}

// describeReady is what a Cleaner says in Ready.
func describeReady(r *rig) string {
	for _, c := range r.cleaner().Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// TestARuleUninstallsARelease carries a release through its uninstall: one pass marks it, the pool deletes it, and a later pass tells of that.
func TestARuleUninstallsARelease(t *testing.T) {
	r := newRig(t, uninstallingByRule("true"))
	s := newReleaseServer(t, r)
	r.pass()
	if got := s.did(); got != "mark" {
		t.Fatalf("after one pass it did %q, and says %+v", got, r.cleaner().Status)
	}
	if got := describeReady(r); !strings.HasPrefix(got, "Uninstalling: Being uninstalled: release shop/web") {
		t.Errorf("it says %q", got)
	}
	passUntil(r, "the release is gone", func() bool {
		return s.did() == "mark delete" && len(r.memories.memoryOf(r.key()).underWay.ListRecords()) == 0
	})
	r.clock.Step(time.Second)
	r.pass()
	if got := describeReady(r); !strings.HasPrefix(got, "NothingToDo") {
		t.Errorf("then it says %q", got)
	}
	var said []string
	for _, e := range r.events.list {
		said = append(said, e.Reason+" "+e.Note)
	}
	if got := strings.Join(said, "\n"); !strings.Contains(got, "UninstallBegun done: began to uninstall 1: release shop/web") || !strings.Contains(got, "Uninstalled done: uninstalled release shop/web") {
		t.Errorf("the Events are %s", got)
	}
	text := fmt.Sprint(r.cleaner().Status.LastActions)
	if !strings.Contains(text, "uninstall begun") || !strings.Contains(text, "Secret shop/sh.helm.release.v1.web.v1 record done helmUninstall") {
		t.Errorf("the last actions are %s", text)
	}
}

// TestAnotherProcessFinishesTheUninstallOfARule has the process forget all when the release is marked, and the rule want nothing then: the next one
// finishes what has begun, unless the Cleaner is suspended.
func TestAnotherProcessFinishesTheUninstallOfARule(t *testing.T) {
	r := newRig(t, uninstallingByRule(`item.status == "deployed"`))
	s := newReleaseServer(t, r)
	r.pass()
	r.memories.ForgetCleaner(r.key())
	r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true })
	for range 5 {
		r.clock.Step(time.Second)
		r.pass()
	}
	if got := s.did(); got != "mark" {
		t.Fatalf("while it is suspended it did %q", got)
	}
	r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Suspend, c.Spec.Rules[0].When = false, "false" })
	passUntil(r, "the release is gone", func() bool { return s.did() == "mark delete" })
}

// TestAnUninstallThatFailsIsSaid has the API server refuse the deletion of the record: the status says so until it does not.
func TestAnUninstallThatFailsIsSaid(t *testing.T) {
	r := newRig(t, uninstallingByRule("true"))
	s := newReleaseServer(t, r)
	s.refuses = true
	passUntil(r, "the trouble is said", func() bool {
		return strings.HasPrefix(describeReady(r), "UninstallFailed: An action failed and will be retried: release shop/web: ")
	})
	s.mu.Lock()
	s.refuses = false
	s.mu.Unlock()
	passUntil(r, "the release is gone", func() bool { return s.did() == "mark delete" })
}

// TestADryRunUninstallsNothing rehearses an uninstall.
func TestADryRunUninstallsNothing(t *testing.T) {
	c := uninstallingByRule("true")
	c.Spec.Mode = v1alpha1.ModeDryRun
	r := newRig(t, c)
	s := newReleaseServer(t, r)
	r.pass()
	if got := s.did(); got != "" {
		t.Errorf("it did %q", got)
	}
	if text := fmt.Sprint(r.cleaner().Status.LastActions); !strings.Contains(text, "would be uninstalled") {
		t.Errorf("the last actions are %s", text)
	}
}

// TestTwoWhoWantOneReleaseDoNotFight has another Cleaner take the release over each time that it is marked: this one waits ever longer.
func TestTwoWhoWantOneReleaseDoNotFight(t *testing.T) {
	r := newRig(t, uninstallingByRule("true"))
	s := newReleaseServer(t, r)
	r.pass()
	take := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.secret.Annotations[v1alpha1.AnnotationUninstall] != "another" {
			taken := s.secret.DeepCopy()
			taken.Annotations[v1alpha1.AnnotationUninstall] = "another"
			s.change(taken)
		}
	}
	take()
	passUntil(r, "the release is given up", func() bool { return strings.HasPrefix(describeReady(r), "UninstallFailed") })
	for range 120 {
		r.clock.Step(time.Second)
		r.pass()
		take()
	}
	if got := s.did(); got != "mark" {
		t.Errorf("in two minutes it did %q", got)
	}
	if got := describeReady(r); !strings.HasPrefix(got, "UninstallFailed") {
		t.Errorf("it says %q", got)
	}
}
