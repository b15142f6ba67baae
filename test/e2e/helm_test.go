// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	helm "helm.sh/helm/v3/pkg/release"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/e2e/mistakes"
	"github.com/vtex/cleaner/test/helmtest"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
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
	for _, d := range l.trail.deletes() {
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

// TestOldRevisionsOfAReleaseAreDeleted has a rule of the namespace keep the newest three records of a release, of which one is deployed.
// Helm goes back to one of them, upgrades, and uninstalls, as if there had never been others.
func TestOldRevisionsOfAReleaseAreDeleted(t *testing.T) {
	l := parallel(t)
	release(l, "shop", map[string]string{"note": "1"})
	change := func(note string) {
		t.Helper()
		if _, err := helmtest.Upgrade(l.ctx, l.Config(), l.ns, "shop", shopChart(note)); err != nil {
			t.Fatal(err)
		}
	}
	for _, note := range []string{"2", "3", "4", "5"} {
		change(note)
	}
	l.configMap("other", nil, nil)
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring
  targets:
  - {name: records, reference: {version: v1, kind: Secret, fieldSelector: type=helm.sh/release.v1}}
  rules:
  - name: old
    forEach: records.items
    when: "true"
    groupBy: item.metadata.labels.name
    orderBy: [{expression: int(item.metadata.labels.version)}]
    keep: 3
    unless: item.metadata.labels.status != "superseded"
    actions: [{delete: {}}]`))
	left := func(revisions ...int) {
		t.Helper()
		var want []string
		for _, n := range revisions {
			want = append(want, fmt.Sprintf("sh.helm.release.v1.shop.v%d", n))
		}
		l.eventually("the records of the newest three are left", func() string { return cmp.Diff(want, releaseSecrets(l)) })
	}
	note := func(want string) {
		t.Helper()
		cm := &corev1.ConfigMap{}
		if !l.exists(cm, "shop-config") || cm.Data["note"] != want {
			t.Errorf("the release has %v, want note %s", cm.Data, want)
		}
	}
	left(3, 4, 5)
	note("5")
	if err := helmtest.Rollback(l.Config(), l.ns, "shop", 3); err != nil {
		t.Fatal(err)
	}
	note("3")
	left(4, 5, 6)
	change("7")
	note("7")
	left(5, 6, 7)
	if err := helmtest.Uninstall(l.Config(), l.ns, "shop", false); err != nil {
		t.Fatal(err)
	}
	if s := releaseSecrets(l); len(s) > 0 || l.exists(&corev1.ConfigMap{}, "shop-config") {
		t.Errorf("the release is there: %v", s)
	}
}

// TestAReleaseWithItsOwnCleaner installs a chart with the template of the page. When its ttl has passed, the release is gone with all that
// is in it, the Cleaner last.
func TestAReleaseWithItsOwnCleaner(t *testing.T) {
	l := parallel(t)
	page, err := os.ReadFile("../../docs/concepts.md")
	if err != nil {
		t.Fatal(err)
	}
	template := regexp.MustCompile("(?s)```text\n(apiVersion: cleaner[^`]*Release.Name[^`]*)```").FindSubmatch(page)
	if template == nil {
		t.Fatal("the page has no template of a Cleaner")
	}
	chart := shopChart("1")
	chart.Templates["cleaner.yaml"], chart.Values["ttl"] = string(template[1]), "3s"
	if _, err := helmtest.Install(l.ctx, l.Config(), l.ns, "shop", chart); err != nil {
		t.Fatal(err)
	}
	made := l.cleaner("shop")
	if made == nil {
		t.Fatal("the Cleaner of the chart is not there")
	}
	l.gone("shop")
	if s := releaseSecrets(l); len(s) > 0 || l.exists(&corev1.ConfigMap{}, "shop-config") || l.exists(&corev1.Service{}, "shop-svc") {
		t.Errorf("a part of the release is there, and records %v", s)
	}
	var deleted []string
	for _, d := range l.trail.deletes() {
		if d.Code() < 300 {
			deleted = append(deleted, d.ObjectRef.Resource+" "+d.ObjectRef.Name)
			if due := made.CreationTimestamp.Add(3 * time.Second); d.RequestReceivedTimestamp.Time.Before(due) {
				t.Errorf("%s was deleted before %s", d.ObjectRef.Name, due)
			}
		}
	}
	if len(deleted) != 4 || deleted[3] != "cleaners shop" {
		t.Errorf("deleted were %v, want the two objects of the release, its record, and the Cleaner last", deleted)
	}
}

// TestAnUninstallOfSomebodyElseIsNotFinished has somebody who may write the record of a release mark it as uninstalling after a
// run was committed, while the operator is down. A run that has to stop is stopped, and nothing of the release goes; one whose
// conditions still hold goes on.
func TestAnUninstallOfSomebodyElseIsNotFinished(t *testing.T) {
	e := alone(t)
	l := newLab(t, e)
	first := l.operators.run(e.binary, append(lone(), "--finish-grace=1h")...) // else the grace may end before the operator is back
	told := l.sink()
	gate := newGate(l)
	stops := map[string]struct {
		stop   func(c *v1alpha1.Cleaner)
		result v1alpha1.Result
		says   string
	}{
		"untrue": {func(_ *v1alpha1.Cleaner) {
			state := &corev1.ConfigMap{}
			l.update(state, "untrue-state", func() { state.Data["clean"] = "false" })
		}, v1alpha1.ResultPartial, "is no longer true"},
		"edited": {func(c *v1alpha1.Cleaner) {
			l.update(c, c.Name, func() { c.Spec.Helm, c.Spec.Conditions = nil, []string{"false"} })
		}, v1alpha1.ResultPartial, "the spec was edited"},
		"removed": {func(c *v1alpha1.Cleaner) {
			if err := l.Delete(l.ctx, c); err != nil {
				t.Fatal(err)
			}
		}, v1alpha1.ResultAbandoned, "the Cleaner was deleted"},
		"clean": {func(*v1alpha1.Cleaner) {}, v1alpha1.ResultCompleted, ""},
	}
	set := func(name string, status helm.Status) {
		if err := helmtest.SetStatus(l.Config(), l.ns, name, status); err != nil {
			t.Fatal(err)
		}
	}
	gate.set(func(*admissionv1.AdmissionRequest) (bool, string) { return false, "the gate is closed" })
	for name := range stops {
		release(l, name, nil)
		l.configMap(name+"-state", nil, map[string]string{"clean": "true"})
		l.configMap(name+"-evidence", nil, nil)
		l.apply(cleanerYAML(name, fmt.Sprintf(`
  ttl: 0s
  cloudEventSink: %[2]q
  helm: {release: %[1]s, delete: true}
  targets:
  - {name: evidence, reference: {version: v1, kind: ConfigMap, name: %[1]s-evidence}, delete: true, includeWhenEvaluating: false}
  - {name: state, reference: {version: v1, kind: ConfigMap, name: %[1]s-state}}
  conditions: ['state.data.clean == "true"']`, name, told.URL)))
	}
	for name := range stops { // the run is committed: from here on somebody has it wait
		l.says(name, v1alpha1.ConditionReady, v1alpha1.ReasonDeletionRefused)
		set(name, helm.StatusPendingUpgrade)
	}
	gate.set(allow)
	for name := range stops {
		l.says(name, v1alpha1.ConditionReady, v1alpha1.ReasonReleasePending)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	for name, s := range stops {
		set(name, helm.StatusUninstalling)
		s.stop(l.cleaner(name))
	}
	l.operators.run(e.binary, append(lone(), "--finish-grace=1h")...)

	results := map[string]sink.Event{}
	for _, event := range l.received(told, len(stops)) {
		for name := range stops {
			if strings.Contains(string(event.Data), fmt.Sprintf("%q", name)) {
				results[name] = event
			}
		}
	}
	for name, s := range stops {
		data := strings.ReplaceAll(string(results[name].Data), `\"`, `"`)
		for _, want := range []string{string(s.result), s.says} {
			if !strings.Contains(data, want) {
				t.Errorf("%s: the event does not say %q: %s", name, want, data)
			}
		}
		left := l.exists(&corev1.ConfigMap{}, name+"-config") && l.exists(&corev1.Service{}, name+"-svc") && l.exists(&corev1.Secret{}, "sh.helm.release.v1."+name+".v1")
		if stopped := s.result != v1alpha1.ResultCompleted; stopped != left {
			t.Errorf("%s: all of the release is left: %t, want %t", name, left, stopped)
		}
		if says := fmt.Sprintf(`another client is uninstalling release "%s"`, name); (s.says != "") != strings.Contains(data, says) {
			t.Errorf("%s: the event says that somebody else uninstalls it, or not, which is wrong: %s", name, data)
		}
	}
	for _, d := range l.trail.deletes() {
		for name, s := range stops {
			if s.says != "" && slices.Contains([]string{name + "-config", name + "-svc", "sh.helm.release.v1." + name + ".v1"}, d.ObjectRef.Name) {
				t.Errorf("something of release %q was deleted: %s", name, d)
			}
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
	for _, d := range l.trail.deletes() {
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

// TestOldRevisionsAsItemsOfReleases is TestOldRevisionsOfAReleaseAreDeleted with a target of releases. A record that says something else than its
// Secret, and one that is empty, stay, and the status says why.
func TestOldRevisionsAsItemsOfReleases(t *testing.T) {
	l := parallel(t)
	release(l, "shop", map[string]string{"note": "1"})
	for _, note := range []string{"2", "3", "4"} {
		if _, err := helmtest.Upgrade(l.ctx, l.Config(), l.ns, "shop", shopChart(note)); err != nil {
			t.Fatal(err)
		}
	}
	first := &corev1.Secret{}
	if !l.exists(first, "sh.helm.release.v1.shop.v1") {
		t.Fatal("there is no record")
	}
	lying := &corev1.Secret{ // it has the record of another revision of another release
		ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "sh.helm.release.v1.bank.v1", Labels: map[string]string{"owner": "helm", "name": "bank", "version": "1", "status": "superseded"}},
		Type:       first.Type, Data: first.Data,
	}
	empty := lying.DeepCopy()
	empty.Name, empty.Labels["version"], empty.Data = "sh.helm.release.v1.bank.v2", "2", nil
	for _, s := range []*corev1.Secret{lying, empty} {
		if err := l.Create(l.ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring
  targets:
  - {name: releases, helmReleases: {}}
  rules:
  - name: old
    forEach: releases.items
    when: item.status != "" && item.chart.name != "" && time - timestamp(item.lastDeployed) >= duration("0s")
    groupBy: item.namespace + "/" + item.name
    orderBy: [{expression: item.revision}]
    keep: 2
    unless: item.status != "superseded"
    reason: 'item.name + " " + string(item.revision) + " is " + item.status'
    actions: [{delete: {}}]
  - name: any
    forEach: releases.items
    when: '!has(item.status)'
    actions: [{delete: {}}]`))
	left := func(revisions ...int) {
		t.Helper()
		want := []string{"sh.helm.release.v1.bank.v1", "sh.helm.release.v1.bank.v2"}
		for _, n := range revisions {
			want = append(want, fmt.Sprintf("sh.helm.release.v1.shop.v%d", n))
		}
		l.eventually("the records of the newest two are left, and those that cannot be read", func() string { return cmp.Diff(want, releaseSecrets(l)) })
	}
	left(3, 4)
	if _, err := helmtest.Upgrade(l.ctx, l.Config(), l.ns, "shop", shopChart("5")); err != nil {
		t.Fatal(err)
	}
	left(4, 5)
	l.eventually("the status says which records cannot be read, and why", func() string {
		text, err := json.Marshal(l.cleaner("c").Status)
		if err != nil {
			return err.Error()
		}
		for _, says := range []string{
			`the record of the Helm release cannot be read: the Secret has no data.release`,
			`the record of the Helm release cannot be read: the record is of release \"shop\", and the label name of the Secret is \"bank\"`,
		} {
			if !strings.Contains(string(text), says) {
				return string(text)
			}
		}
		if strings.Contains(string(text), string(first.Data["release"][:20])) {
			t.Error("the status has something of a record")
		}
		return ""
	})
}

// uninstallsPreviews is the spec of a ClusterCleaner that uninstalls the releases of some namespaces whose names begin with preview-.
func uninstallsPreviews(more string, namespaces ...string) string {
	return fmt.Sprintf(`
  lifecycle: Recurring
  targets:
  - name: releases
    helmReleases: {namespaces: [%s]}
  rules:
  - name: old
    forEach: releases.items
    when: item.name.startsWith("preview-") && time - timestamp(item.lastDeployed) >= duration("0s")
    actions: [{helmUninstall: {}}]%s`, strings.Join(namespaces, ", "), more)
}

// TestARuleUninstallsReleases has a ClusterCleaner uninstall the previews of three namespaces, all of their revisions, and nothing else.
func TestARuleUninstallsReleases(t *testing.T) {
	l := parallel(t)
	labs := []*lab{l, newLab(t, shared), newLab(t, shared), newLab(t, shared)}
	var namespaces []string
	for i, other := range labs {
		release(other, "preview-1", nil)
		release(other, "web", nil)
		if _, err := helmtest.Upgrade(other.ctx, other.Config(), other.ns, "preview-1", shopChart("2")); err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			namespaces = append(namespaces, other.ns)
		}
	}
	cleaner := l.fixtures.cluster(uninstallsPreviews("", namespaces...))
	for i, other := range labs {
		want := []string{"sh.helm.release.v1.preview-1.v1", "sh.helm.release.v1.preview-1.v2", "sh.helm.release.v1.web.v1"}
		if i < 3 {
			want = want[2:]
		}
		l.eventually("the releases of "+other.ns, func() string { return cmp.Diff(want, releaseSecrets(other)) })
		for _, o := range []struct {
			kind client.Object
			name string
		}{{&corev1.ConfigMap{}, "preview-1-config"}, {&corev1.Service{}, "preview-1-svc"}} {
			if there := other.exists(o.kind, o.name); there != (i == 3) {
				t.Errorf("%s of %s is there: %t", o.name, other.ns, there)
			}
		}
		if !other.exists(&corev1.ConfigMap{}, "web-config") {
			t.Errorf("an object of another release of %s is gone", other.ns)
		}
	}
	l.eventually("the status tells of it", func() string {
		if err := l.Get(l.ctx, client.ObjectKey{Name: cleaner.Name}, cleaner); err != nil {
			return err.Error()
		}
		text, err := json.Marshal(cleaner.Status)
		if err != nil {
			return err.Error()
		}
		for _, ns := range namespaces {
			if !strings.Contains(string(text), "release "+ns+"/preview-1") {
				return "it does not name the release of " + ns + ": " + string(text)
			}
		}
		return ""
	})
}

// TestARuleUninstallsNoMoreReleasesThanItMay has limits allow one uninstall: of two that are wanted, none begins.
func TestARuleUninstallsNoMoreReleasesThanItMay(t *testing.T) {
	l := parallel(t)
	release(l, "preview-1", nil)
	cleaner := l.fixtures.cluster(uninstallsPreviews("\n  limits: {maxActions: 1}", l.ns))
	l.eventually("the first release is gone", func() string { return cmp.Diff([]string(nil), releaseSecrets(l)) })
	release(l, "preview-2", nil)
	l.eventually("the limit is said", func() string {
		if err := l.Get(l.ctx, client.ObjectKey{Name: cleaner.Name}, cleaner); err != nil {
			return err.Error()
		}
		if !meta.IsStatusConditionTrue(cleaner.Status.Conditions, v1alpha1.ConditionTripped) {
			return fmt.Sprint(cleaner.Status.Conditions)
		}
		return ""
	})
	if !l.exists(&corev1.ConfigMap{}, "preview-2-config") || len(releaseSecrets(l)) != 1 {
		t.Error("the second release is not left alone")
	}
}

// TestAnUninstallOfARuleIsFinished crashes the operator at each point of the uninstall of a release, one after the other: the next process knows its
// mark, and finishes what has begun, also when the rule no longer wants it.
func TestAnUninstallOfARuleIsFinished(t *testing.T) {
	e := alone(t)
	l := newLab(t, e)
	crashes := []string{
		"before the release is marked", "after the release is marked", "before the DELETE of an object of the release", "after the DELETE of an object of the release",
		"before the DELETE of a record of the release", "after the DELETE of a record of the release",
	}
	cleaner := l.fixtures.cluster(uninstallsPreviews("", l.ns))
	for i, point := range crashes {
		release(l, fmt.Sprintf("preview-%d", i), nil)
		l.operators.crashesAt(point, 1)
	}
	release(l, "preview-9", nil)
	hold(l, "preview-9-config", "example.test/hold")
	p := l.operators.run(faulty(t, mistakes.Mistake{}), lone()...)
	l.eventually("one release is left, which is held", func() string { return cmp.Diff([]string{"sh.helm.release.v1.preview-9.v1"}, releaseSecrets(l)) })
	l.eventually("its uninstall has begun", func() string {
		if l.exists(&corev1.Service{}, "preview-9-svc") {
			return "its Service is there"
		}
		return ""
	})
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	l.eventually("the rule wants nothing", func() string {
		if err := l.Get(l.ctx, client.ObjectKey{Name: cleaner.Name}, cleaner); err != nil {
			return err.Error()
		}
		cleaner.Spec.Rules[0].When = "false"
		if err := l.Update(l.ctx, cleaner); err != nil {
			return err.Error()
		}
		return ""
	})
	l.operators.run(faulty(t, mistakes.Mistake{}), lone()...)
	l.eventually("the status says what is waited for", func() string {
		if err := l.Get(l.ctx, client.ObjectKey{Name: cleaner.Name}, cleaner); err != nil {
			return err.Error()
		}
		ready := meta.FindStatusCondition(cleaner.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonUninstalling || !strings.Contains(ready.Message, "preview-9-config") {
			return fmt.Sprint(cleaner.Status.Conditions)
		}
		return ""
	})
	hold(l, "preview-9-config")
	l.eventually("all releases are gone", func() string { return cmp.Diff([]string(nil), releaseSecrets(l)) })
	deleted := map[string]int{}
	for _, d := range l.trail.deletes() {
		if d.Code() < 300 {
			deleted[d.ObjectRef.Resource+" "+d.ObjectRef.Name]++
		}
	}
	for object, n := range deleted {
		if n != 1 {
			t.Errorf("%s was deleted %d times", object, n)
		}
	}
}

// TestASuspendedRuleUninstallsNothingMore suspends a Cleaner half way through an uninstall: the rest stays until that is over.
func TestASuspendedRuleUninstallsNothingMore(t *testing.T) {
	e := alone(t)
	l := newLab(t, e)
	release(l, "preview-1", nil)
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring
  targets:
  - {name: releases, helmReleases: {}}
  rules:
  - {name: all, forEach: releases.items, when: "true", actions: [{helmUninstall: {}}]}`))
	l.operators.crashesAt("after the release is marked", 1)
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true })
	l.operators.run(faulty(t, mistakes.Mistake{}), lone()...)
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonSuspended)
	if !l.exists(&corev1.ConfigMap{}, "preview-1-config") || !l.exists(&corev1.Service{}, "preview-1-svc") {
		t.Error("something is gone")
	}
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false })
	l.eventually("the release is gone", func() string { return cmp.Diff([]string(nil), releaseSecrets(l)) })
}

// TestAnUpgradeIsFasterThanARule pauses the operator before it marks a release, which is upgraded meanwhile: nothing of it is touched.
func TestAnUpgradeIsFasterThanARule(t *testing.T) {
	e := alone(t)
	l := newLab(t, e)
	release(l, "preview-1", map[string]string{"note": "1"})
	l.apply(cleanerYAML("c", `
  lifecycle: Recurring
  targets:
  - {name: releases, helmReleases: {}}
  rules:
  - {name: first, forEach: releases.items, when: item.revision == 1 && item.status == "deployed", actions: [{helmUninstall: {}}]}`))
	p := l.operators.stopsAt(faulty(t, mistakes.Mistake{}), "before the release is marked", 1, lone()...)
	if _, err := helmtest.Upgrade(l.ctx, l.Config(), l.ns, "preview-1", shopChart("2")); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	if diff := cmp.Diff([]string{"sh.helm.release.v1.preview-1.v1", "sh.helm.release.v1.preview-1.v2"}, releaseSecrets(l)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	for _, d := range l.trail.deletes() {
		t.Errorf("it has deleted %s %s", d.ObjectRef.Resource, d.ObjectRef.Name)
	}
	newest := &corev1.Secret{}
	if !l.exists(newest, "sh.helm.release.v1.preview-1.v2") || newest.Annotations[v1alpha1.AnnotationUninstall] != "" || newest.Labels["status"] != "deployed" {
		t.Error("the new revision is marked")
	}
	l.bystander() // and the audit log has a deletion, without which it witnesses nothing
}
