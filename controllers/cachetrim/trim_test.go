// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachetrim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// crowded is metadata as large as somebody can make it, and a little that the operator reads.
func crowded() metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: "shop", Name: "c", UID: "uid", ResourceVersion: "7", Generation: 3, GenerateName: "c-",
		Labels: map[string]string{}, Annotations: map[string]string{v1alpha1.AnnotationRequestedAt: "now"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", 1000)}},
	}
	for i := range 20_000 {
		m.Labels[fmt.Sprint("l", i)] = ""
		m.Annotations[fmt.Sprint("cleaner.vtex.dev/a", i)] = ""
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{Name: fmt.Sprint("o", i)})
		m.Finalizers = append(m.Finalizers, fmt.Sprint("example.com/f", i))
	}
	m.Finalizers = append(m.Finalizers, v1alpha1.Finalizer)
	return m
}

// Whatever somebody writes into the metadata of an object of ours, the cache takes little of it, and all that the operator reads.
func TestTrimObject(t *testing.T) {
	long := crowded()
	long.Annotations[v1alpha1.AnnotationAuthor] = strings.Repeat("x", 200<<10)
	for name, o := range map[string]client.Object{
		"Cleaner": &v1alpha1.Cleaner{ObjectMeta: crowded()}, "ClusterCleaner": &v1alpha1.ClusterCleaner{ObjectMeta: crowded()},
		"CleanerTemplate": &v1alpha1.CleanerTemplate{ObjectMeta: crowded()}, "LongAnnotation": &v1alpha1.Cleaner{ObjectMeta: long},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := TrimObject(o); err != nil {
				t.Fatal(err)
			}
			bytes := len(o.GetGenerateName()) + 100*(len(o.GetLabels())+len(o.GetOwnerReferences())+len(o.GetManagedFields()))
			for name, value := range o.GetAnnotations() {
				bytes += len(name) + len(value)
			}
			for _, f := range o.GetFinalizers() {
				bytes += len(f)
			}
			if limit := maxCachedAnnotation + 1000; bytes > limit {
				t.Errorf("%d bytes of it are kept, more than %d", bytes, limit)
			}
			if o.GetAnnotations()[v1alpha1.AnnotationRequestedAt] != "now" || !slices.Contains(o.GetFinalizers(), v1alpha1.Finalizer) ||
				o.GetName() != "c" || o.GetGenerateName() != "c-" || o.GetNamespace() != "shop" || o.GetUID() != "uid" || o.GetResourceVersion() != "7" || o.GetGeneration() != 3 {
				t.Errorf("what is read is not kept: %+v", o)
			}
		})
	}
	secret := &corev1.Secret{ObjectMeta: crowded()}
	if _, err := TrimObject(secret); err != nil || secret.ManagedFields != nil || len(secret.Labels) == 0 {
		t.Errorf("of another object only managedFields are dropped: %v", err)
	}
	if gone, err := TrimObject("gone"); err != nil || gone != "gone" {
		t.Errorf("what is no object is let through: %v, %v", gone, err)
	}
}

// Whatever somebody writes into a report, the cache keeps of it what the operator writes itself.
func TestTrimReport(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	s := v1alpha1.CleanerStatus{LastEvaluation: &v1alpha1.Evaluation{Message: long, Conditions: make([]v1alpha1.ConditionOutcome, 80_000)}}
	for range 100 {
		s.LastActions = append(s.LastActions, v1alpha1.Action{Object: long, UID: long, Rule: long, Action: long, Result: long})
		s.Conditions = append(s.Conditions, metav1.Condition{Type: long, Reason: long, Message: long})
		s.Pending = append(s.Pending, v1alpha1.Pending{Rule: long, Key: long})
		s.LastEvaluation.Errors = append(s.LastEvaluation.Errors, v1alpha1.ItemError{Rule: long, Key: long, Field: long, Message: long})
		s.LastEvaluation.Withheld = append(s.LastEvaluation.Withheld, v1alpha1.Withheld{Object: long, Because: long})
	}
	for range 200 {
		s.ResolvedTargets = append(s.ResolvedTargets, long)
	}
	for range 64 { // as large as the schema of the kind lets them be
		wide := strings.Repeat("🧹", 1024)
		s.Findings = append(s.Findings, v1alpha1.Finding{Rule: long[:63], Message: wide, Items: []string{wide, wide, wide, wide, wide}})
	}
	c := &v1alpha1.Cleaner{Status: *s.DeepCopy()}
	if _, err := TrimObject(c); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	const most = 512 << 10
	if len(text) > most {
		t.Errorf("%d bytes of it are kept", len(text))
	}
	if n := cap(c.Status.LastEvaluation.Conditions); n > 2*MaxOutcomes {
		t.Errorf("%d conditions are kept", n)
	}
}

var wideText = strings.Repeat("🧹", 1000)

// fillTexts has each list below a value be long, and each text; but not what is signed.
func fillTexts(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(wideText)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 200, 200))
		for i := range v.Len() {
			fillTexts(v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillTexts(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !isRecord(f.Name) {
				fillTexts(v.Field(i))
			}
		}
	}
}

// isRecord says that a field of a status, or what is in it, is signed or read as a whole.
func isRecord(field string) bool {
	return slices.Contains([]string{"LastRequestedAt", "Run", "Unsent", "RecordedAt", "Signature"}, field)
}

// checkTexts says what below a value is longer than what the operator writes.
func checkTexts(t *testing.T, name string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		if text := v.String(); len(text) > maxReported || !utf8.ValidString(text) || text == "" {
			t.Errorf("%s has %d bytes, which are text: %t", name, len(text), utf8.ValidString(text))
		}
	case reflect.Slice:
		if v.Len() > MaxResolved || v.Len() == 0 {
			t.Errorf("%s has %d entries", name, v.Len())
		}
		for i := 0; i < v.Len() && !t.Failed(); i++ {
			checkTexts(t, name+"[]", v.Index(i))
		}
	case reflect.Pointer:
		checkTexts(t, name, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !isRecord(f.Name) {
				checkTexts(t, name+"."+f.Name, v.Field(i))
			}
		}
	}
}

// No field of a report is forgotten, whichever there are: each list and each text is bounded, and something is left of each.
func TestEachFieldOfAReportIsTrimmed(t *testing.T) {
	c := &v1alpha1.Cleaner{}
	fillTexts(reflect.ValueOf(&c.Status).Elem())
	if _, err := TrimObject(c); err != nil {
		t.Fatal(err)
	}
	checkTexts(t, "status", reflect.ValueOf(c.Status))
}

// What the operator itself writes is left as it is.
func TestAReportOfTheOperatorIsLeft(t *testing.T) {
	full := strings.Repeat("x", maxReported)
	s := v1alpha1.CleanerStatus{
		LastEvaluation: &v1alpha1.Evaluation{Verdict: v1alpha1.VerdictWait, Reason: full, Message: full, Conditions: slices.Repeat([]v1alpha1.ConditionOutcome{{Expression: full, Error: full}}, MaxOutcomes)},
		LastActions:    slices.Repeat([]v1alpha1.Action{{Object: full, Result: full}}, MaxActions),
		Conditions:     slices.Repeat([]metav1.Condition{{Type: full, Message: full}}, MaxConditions),
		Pending:        slices.Repeat([]v1alpha1.Pending{{Rule: full, Key: full}}, MaxListed),
		Findings:       []v1alpha1.Finding{{Rule: "r", Count: 9, Message: full, Items: slices.Repeat([]string{full}, 5)}},
	}
	c := &v1alpha1.ClusterCleaner{Status: *s.DeepCopy()}
	if _, err := TrimObject(c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, c.Status); diff != "" {
		t.Errorf("-was +is:\n%s", diff)
	}
}

// Of finalizers ours is kept, wherever it stands, and of others the first.
func TestTrimFinalizers(t *testing.T) {
	for _, n := range []int{0, 1, MaxCachedFinalizers - 1, MaxCachedFinalizers, MaxCachedFinalizers + 1, 100} {
		for at := -1; at <= n; at++ {
			all := make([]string, n)
			for i := range all {
				all[i] = fmt.Sprint("example.com/f", i)
			}
			if at >= 0 {
				all = slices.Insert(all, at, v1alpha1.Finalizer)
			}
			was := slices.Clone(all)
			got := trimFinalizers(all)
			if len(got) != min(len(all), MaxCachedFinalizers) || slices.Contains(got, v1alpha1.Finalizer) != (at >= 0) {
				t.Errorf("of %d with ours at %d are kept %q", n, at, got)
			}
			for i, f := range got {
				if f != v1alpha1.Finalizer && f != was[i] {
					t.Errorf("of %d with ours at %d number %d is %s, and was %s", n, at, i, f, was[i])
				}
			}
			if !slices.Equal(all, was) {
				t.Errorf("the object's own are changed to %q", all)
			}
		}
	}
}
