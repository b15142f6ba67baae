// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/helmtest"
	"github.com/vtex/cleaner/test/operator"
)

// uninstalls is a Cleaner that uninstalls a release, at once.
func uninstalls(l *lab, release string) {
	l.Helper()
	l.apply(cleanerYAML(release, fmt.Sprintf(`
  ttl: 0s
  helm: {release: %s, delete: true}`, release)))
}

// hold keeps a ConfigMap from going, or no longer.
func hold(l *lab, name string, finalizers ...string) {
	l.Helper()
	cm := &corev1.ConfigMap{}
	l.update(cm, name, func() { cm.Finalizers = finalizers })
}

// TestAHangingReleaseDelaysNoOther has the only place of the pool taken by a release that does not come to its end. It
// waits for helm.timeout, which is 5 minutes: the others must not.
func TestAHangingReleaseDelaysNoOther(t *testing.T) {
	e := alone(t)
	if _, err := operator.Run(t.Context(), e.Cluster, operator.Options{Binary: e.binary, Args: append(quick(), "--uninstalls=1")}); err != nil {
		t.Fatal(err)
	}
	l := newLab(t, e)
	release(l, "hanging", nil)
	hold(l, "hanging-config", "example.test/hold")
	uninstalls(l, "hanging")
	l.says("hanging", v1alpha1.ConditionReady, v1alpha1.ReasonUninstalling)
	l.eventually("the release is being uninstalled", func() string {
		if l.exists(&corev1.Service{}, "hanging-svc") {
			return "its Service is there"
		}
		return ""
	})

	// What needs no place does not notice.
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
	l.gone("c")
	// What needs the place gets it.
	release(l, "shop", nil)
	uninstalls(l, "shop")
	l.gone("shop")
	if l.exists(&corev1.ConfigMap{}, "shop-config") {
		t.Error("the object of the other release is there")
	}

	if l.cleaner("hanging") == nil || !l.exists(&corev1.ConfigMap{}, "hanging-config") {
		t.Fatal("the release does not hang any more, so nothing was shown")
	}
	hold(l, "hanging-config")
	l.gone("hanging")
	if s := releaseSecrets(l); len(s) > 0 {
		t.Errorf("records are left: %v", s)
	}
}

// TestKilledHalfWayThroughAnUninstall kills the operator when a part of the release is gone.
func TestKilledHalfWayThroughAnUninstall(t *testing.T) {
	e := alone(t)
	first := e.start(t, "-1")
	l := newLab(t, e)
	release(l, "shop", nil)
	hold(l, "shop-config", "example.test/hold")
	uninstalls(l, "shop")
	cm := &corev1.ConfigMap{}
	l.eventually("the objects are deleted, and one is held", func() string {
		if l.exists(&corev1.Service{}, "shop-svc") || !l.exists(cm, "shop-config") || cm.DeletionTimestamp == nil {
			return "not yet"
		}
		return ""
	})
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if s := releaseSecrets(l); len(s) != 1 {
		t.Fatalf("the record must outlive the objects: %v", s)
	}
	hold(l, "shop-config")
	e.start(t, "-2")
	l.gone("shop")
	if s := releaseSecrets(l); len(s) > 0 {
		t.Errorf("records are left: %v", s)
	}
	deleted := map[string]int{}
	for _, d := range l.deletes() {
		if d.Code() < 300 {
			deleted[d.ObjectRef.Resource+" "+d.ObjectRef.Name]++
		}
	}
	for _, object := range []string{"services shop-svc", "configmaps shop-config", "secrets sh.helm.release.v1.shop.v1", "cleaners shop"} {
		if deleted[object] != 1 {
			t.Errorf("%s was deleted %d times, want once: %v", object, deleted[object], deleted)
		}
	}
}

// TestCleanerInItsOwnRelease has a chart bring the Cleaner that uninstalls it.
func TestCleanerInItsOwnRelease(t *testing.T) {
	l := parallel(t)
	_, err := helmtest.Install(l.ctx, l.Config(), l.ns, "shop", helmtest.Chart{Templates: map[string]string{
		"config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop-config}\n",
		"cleaner.yaml": cleanerYAML("shop", `
  ttl: 2s
  retry: {period: 10s}
  helm: {release: shop, delete: true}
`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.gone("shop")
	var deleted []string
	for _, d := range l.deletes() {
		if d.Code() < 300 {
			deleted = append(deleted, d.ObjectRef.Name)
		}
	}
	if diff := cmp.Diff([]string{"shop-config", "sh.helm.release.v1.shop.v1", "shop"}, deleted); diff != "" {
		t.Errorf("deleted, the Cleaner at the very end (-want +got):\n%s", diff)
	}
}

// TestAHostileRecordIsAStateOfItsCleaner has Secrets in which a few kilobytes unpack into millions of objects. The
// operator neither dies of them nor reads them again and again: their Cleaners say what is wrong, and others go on.
func TestAHostileRecordIsAStateOfItsCleaner(t *testing.T) {
	e := alone(t)
	running := e.start(t, "-1")
	l := newLab(t, e)
	const sound = `{"name":%q,"namespace":%q,"version":1,"info":{"first_deployed":"2030-01-02T03:04:05Z","status":"deployed"},`
	hostile := map[string]struct {
		text   string
		reason string
	}{
		"hooks":     {`"hooks":[` + strings.Repeat("{},", 10<<20) + "{}]}", v1alpha1.ReasonReleaseUnreadable},
		"brackets":  {`"manifest":"a: [` + strings.Repeat("{},", 300_000) + `{}]"}`, v1alpha1.ReasonTooManyObjects},
		"documents": {`"manifest":"` + strings.Repeat(`a\n---\n`, 10_000) + `"}`, v1alpha1.ReasonTooManyObjects},
	}
	for name, h := range hostile {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		if _, err := fmt.Fprintf(w, sound+h.text, name, l.ns); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "sh.helm.release.v1." + name + ".v1", Labels: map[string]string{"owner": "helm", "name": name}},
			Type:       "helm.sh/release.v1",
			Data:       map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(zipped.Bytes()))},
		}
		if err := l.Create(l.ctx, secret); err != nil {
			t.Fatal(err)
		}
		uninstalls(l, name)
	}
	for name, h := range hostile {
		l.says(name, v1alpha1.ConditionReady, h.reason)
	}
	release(l, "shop", nil)
	uninstalls(l, "shop")
	l.gone("shop")
	select {
	case <-running.Exited():
		t.Error("the operator has died")
	default:
	}
}
