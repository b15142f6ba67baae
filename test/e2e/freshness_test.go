// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// While the watch of a large target lags, a rule that counts its items is not carried out by what the watch shows: it would keep one too few. When
// the watch is as new as the API server, that is proved by a request for one object, and nothing is listed as a whole.
func TestARuleThatCountsDoesNotTrustAWatchThatLags(t *testing.T) {
	const objects = 601
	l := newLab(t, alone(t))
	names := make([]string, objects)
	for n := range names {
		names[n] = fmt.Sprintf("map-%03d", n)
	}
	l.labelled(nil, names...)
	var watch lag
	var proofs, lists atomic.Int64
	tamper := func(r *http.Request) fault {
		if q := r.URL.Query(); r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps") && !q.Has("watch") {
			switch {
			case q.Get("limit") == "1":
				proofs.Add(1)
			case !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList"):
				lists.Add(1)
			}
		}
		return 0
	}
	through(t, l.env, tamper, func(r *http.Response) {
		if strings.Contains(r.Request.URL.Path, "/configmaps") && r.Request.URL.Query().Has("watch") {
			r.Body = lagging{r.Body, &watch}
		}
	}, lone()...)
	l.apply(cleanerYAML("c", stays("", shopMaps+fmt.Sprintf(`
  rules:
  - name: old
    forEach: maps.items
    when: "true"
    orderBy: [{expression: item.metadata.name}]
    keep: %d
    actions: [{delete: {}}]`, objects))))
	keep := func(n int32) {
		l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].Keep = new(intstr.FromInt32(n)) })
	}
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)

	watch.Lock()
	catchUp := sync.OnceFunc(watch.Unlock)
	t.Cleanup(catchUp)
	if err := l.Delete(l.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: names[0]}}); err != nil {
		t.Fatal(err)
	}
	keep(objects - 1)
	l.eventually("the operator has asked", func() string {
		if proofs.Load() == 0 || lists.Load() == 0 {
			return fmt.Sprintf("%d proofs were begun, and it was listed %d times", proofs.Load(), lists.Load())
		}
		return ""
	})
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo) // as the list says
	if n := len(l.left()); n != objects-1 {
		t.Errorf("%d objects are left, want %d", n, objects-1)
	}

	catchUp()
	for n := int32(objects - 2); ; n-- { // for some time after a proof has failed, all is read live
		before := lists.Load()
		keep(n)
		l.eventually("one more is gone", func() string {
			if left := len(l.left()); left != int(n) {
				return fmt.Sprintf("%d are left, want %d", left, n)
			}
			return ""
		})
		l.eventually("the status is about the present spec", func() string {
			c := l.cleaner("c")
			if got := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady); got.ObservedGeneration != c.Generation || got.Reason != v1alpha1.ReasonNothingToDo {
				return describe(c)
			}
			return ""
		})
		switch {
		case lists.Load() == before:
			return
		case n < 5: // a busy machine fails to prove it more than once
			t.Fatalf("all were listed %d times", lists.Load())
		}
	}
}

// The version of an object says nothing of the labels of its Namespace: a rule about each item by itself confirms which Namespaces its target selects.
func TestANamespaceThatIsNoLongerSelectedIsNotCleaned(t *testing.T) {
	l := newLab(t, alone(t))
	label := func(value string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"labels": {"clean": %q}}}`, value))
		if err := l.Patch(l.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.ns}}, patch); err != nil {
			t.Fatal(err)
		}
	}
	label("yes")
	l.labelled(nil, "a", "b")
	var watch lag
	through(t, l.env, untampered, func(r *http.Response) {
		if strings.HasSuffix(r.Request.URL.Path, "/api/v1/namespaces") && r.Request.URL.Query().Has("watch") {
			r.Body = lagging{r.Body, &watch}
		}
	}, lone()...)
	cc := l.fixtures.cluster(`
  lifecycle: Recurring
  targets:
  - {name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: shop}, namespaceSelector: {matchLabels: {clean: "yes"}}}}
  rules:
  - {name: all, forEach: maps.items, when: 'item.metadata.name == "never"', actions: [{delete: {}}]}`)
	now := &v1alpha1.ClusterCleaner{}
	says := func(reason string) {
		t.Helper()
		l.eventually("it says "+reason, func() string {
			if err := l.Get(l.ctx, client.ObjectKeyFromObject(cc), now); err != nil {
				return err.Error()
			}
			if ready := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != reason || ready.ObservedGeneration != now.Generation {
				return fmt.Sprint(ready)
			}
			return ""
		})
	}
	says(v1alpha1.ReasonNothingToDo)

	watch.Lock()
	catchUp := sync.OnceFunc(watch.Unlock)
	t.Cleanup(catchUp)
	label("no")
	now.Spec.Rules[0].When = "true"
	if err := l.Update(l.ctx, now); err != nil {
		t.Fatal(err)
	}
	says(v1alpha1.ReasonNothingToDo) // as the list says
	if left := l.left(); len(left) != 2 {
		t.Errorf("of the objects of a Namespace that is not selected any longer, %v are left", left)
	}
	label("yes")
	catchUp()
	l.eventually("all are gone", func() string {
		if left := l.left(); len(left) > 0 {
			return fmt.Sprint(left)
		}
		return ""
	})
}

// A definition begins to have a default: the API server shows objects with a field more from then on, at the versions that they had. No rule acts on what
// they were, and conditions become true, both by themselves.
func TestADefaultOfADefinitionIsSeen(t *testing.T) {
	l := parallel(t)
	group := l.ns + ".example.com"
	mayClean(l, group)
	defineWidgets(l, group, "keep: {type: string}")
	for _, name := range []string{"a", "b"} {
		l.apply(fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: %s}\nspec: {phase: Done}", group, name))
	}
	targets := fmt.Sprintf(`
  targets:
  - name: all
    reference: {apiGroup: %s, version: v1, kind: Widget, matchLabels: {}}`, group)
	l.apply(cleanerYAML("rule", stays("", targets+`
  rules:
  - name: done
    forEach: all.items
    when: item.spec.?keep.orValue("no") == "never"
    actions: [{delete: {}}]`)))
	l.apply(cleanerYAML("waits", `
  lifecycle: Once
  ttl: 0s`+strings.Replace(targets, "name: all", "name: all\n    delete: true", 1)+`
  conditions: ['all.items.all(w, w.spec.?keep.orValue("no") == "yes")']`))
	l.says("rule", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	l.says("waits", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	defineWidgets(l, group, `keep: {type: string, default: "yes"}`)
	awaitDefault(l, group)
	l.updateCleaner("rule", func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].When = `item.spec.?keep.orValue("no") == "no"` })
	l.eventually("the rule is evaluated as it is now", func() string {
		c := l.cleaner("rule")
		if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.ObservedGeneration != c.Generation {
			return fmt.Sprint(ready)
		}
		return ""
	})
	if acted := l.cleaner("rule").Status.LastActions; len(acted) > 0 {
		t.Errorf("what the API server has shown with a default was deleted without: %v", acted)
	}
	l.eventually("the condition has become true", func() string {
		if _, err := readKeep(l, group); !apierrors.IsNotFound(err) {
			return fmt.Sprint("it is still there, ", err)
		}
		return ""
	})
}

// readKeep reads the field of Widget a that has a default.
func readKeep(l *lab, group string) (string, error) {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(group + "/v1")
	u.SetKind("Widget")
	err := l.Get(l.ctx, client.ObjectKey{Namespace: l.ns, Name: "a"}, u)
	keep, _, _ := unstructured.NestedString(u.Object, "spec", "keep")
	return keep, err
}

// awaitDefault waits until the API server shows Widget a with its default.
func awaitDefault(l *lab, group string) {
	l.Helper()
	l.eventually("the API server shows the default", func() string {
		if keep, err := readKeep(l, group); err != nil || keep != "yes" {
			return fmt.Sprint(keep, err)
		}
		return ""
	})
}

// While the watch of definitions lags, no Cleaner acts on what objects were before they had a default: neither by themselves, nor by a variable so large
// that it is kept from the first decision to the next.
func TestADefaultIsSeenWhileTheWatchOfDefinitionsLags(t *testing.T) {
	l := newLab(t, alone(t))
	group := l.ns + ".example.com"
	mayClean(l, group)
	defineWidgets(l, group, "keep: {type: string}")
	for n := range 41 {
		l.apply(fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: %s}\nspec: {phase: %q}", group, strings.Repeat("a", n+1), strings.Repeat("x", 250)))
	}
	var watch lag
	through(t, l.env, untampered, func(r *http.Response) {
		if strings.HasSuffix(r.Request.URL.Path, "/customresourcedefinitions") && r.Request.URL.Query().Has("watch") {
			r.Body = lagging{r.Body, &watch}
		}
	}, lone()...)
	targets := fmt.Sprintf(`
  targets:
  - name: all
    reference: {apiGroup: %s, version: v1, kind: Widget, matchLabels: {}}`, group)
	variables := `
  variables:
  - name: kept
    expression: 'all.items.map(w, {"name": w.metadata.name, "keep": w.spec.?keep.orValue("no"), "large": lists.range(1000).map(x, w.spec.phase).join()})'`
	whens := map[string]string{
		"item":     `item.spec.?keep.orValue("no") == %q`,
		"variable": `variables.kept.exists(k, k.name == item.metadata.name && k.keep == %q)`,
	}
	for name := range whens {
		l.apply(cleanerYAML(name, stays("", targets+variables+`
  rules: [{name: done, forEach: all.items, when: "false", actions: [{delete: {}}]}]`)))
	}
	decide := func(keep string) {
		t.Helper()
		for name, when := range whens {
			l.updateCleaner(name, func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].When = fmt.Sprintf(when, keep) })
		}
		l.eventually("the rules are evaluated as they are now", func() string {
			for name := range whens {
				c := l.cleaner(name)
				if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.ObservedGeneration != c.Generation {
					return fmt.Sprint(name, ready)
				}
			}
			return ""
		})
	}
	decide("never")

	watch.Lock()
	catchUp := sync.OnceFunc(watch.Unlock)
	t.Cleanup(catchUp)
	defineWidgets(l, group, `keep: {type: string, default: "yes"}`)
	awaitDefault(l, group)
	l.apply(cleanerYAML("once", `
  ttl: 0s`+strings.Replace(targets, "name: all", "name: all\n    delete: true", 1)+variables+`
  conditions: ['variables.kept.all(k, k.keep == "no")']`))
	decide("no")
	l.says("once", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	for name := range whens {
		if acted := l.cleaner(name).Status.LastActions; len(acted) > 0 {
			t.Errorf("%s: what the API server has shown with a default was deleted without: %v", name, acted)
		}
	}
	if _, err := readKeep(l, group); err != nil {
		t.Error(err)
	}
	catchUp()
	decide("yes")
	l.eventually("it is gone", func() string {
		if _, err := readKeep(l, group); !apierrors.IsNotFound(err) {
			return fmt.Sprint("it is still there, ", err)
		}
		return ""
	})
}
