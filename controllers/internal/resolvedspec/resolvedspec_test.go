// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package resolvedspec

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
)

// world is a cluster with a template for ClusterCleaners and one for Cleaners.
func world(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, template("idle", "params.after"), template("other", "1m"))...).Build()
}

// template deletes what has matched for long enough.
func template(name, wait string) *v1alpha1.CleanerTemplate {
	t := &v1alpha1.CleanerTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	t.Spec.Parameters = []v1alpha1.TemplateParameter{{Name: "after", Type: "duration"}}
	t.Spec.Template.Rules = []v1alpha1.Rule{{Name: "r", For: wait}}
	return t
}

// uses is a Cleaner, or, without a namespace, a ClusterCleaner, of a generation, that uses a template; empty: none.
func uses(namespace, name, of, parameters string, generation int64) v1alpha1.Owner {
	c := v1alpha1.NewOwner(namespace)
	c.SetNamespace(namespace)
	c.SetName(name)
	c.SetGeneration(generation)
	if of != "" {
		c.Common().TemplateRef = &v1alpha1.TemplateRef{Name: of, Parameters: &runtime.RawExtension{Raw: []byte(parameters)}}
	}
	return c
}

func TestReadAssignment(t *testing.T) {
	version := "3/" + author.FingerprintTemplate(template("idle", "params.after"))
	for name, tc := range map[string]struct {
		of, parameters string
		version        string
		missing, wrong string
		wait           string // of the rule
	}{
		"NoTemplate": {version: "3"},
		"Template":   {of: "idle", parameters: `{"after": "5m"}`, version: version, wait: "params.after"},
		"Missing":    {of: "gone", parameters: `{}`, version: "3", missing: "gone"},
		"Wrong":      {of: "idle", parameters: `{"before": "5m"}`, version: version, wrong: "before"},
	} {
		t.Run(name, func(t *testing.T) {
			c := uses("shop", "c", tc.of, tc.parameters, 3)
			got, err := Reader{world(t)}.ReadAssignment(t.Context(), c)
			if err != nil || got.Version != tc.version || got.Missing != tc.missing {
				t.Errorf("got version %q, and %q is missing: %v", got.Version, got.Missing, err)
			}
			if text := got.Wrong.ToAggregate(); (text != nil) != (tc.wrong != "") || text != nil && !strings.Contains(text.Error(), tc.wrong) {
				t.Errorf("it is wrong that %v", text)
			}
			if tc.wait == "" { // it is as it is written
				if (got.Work.TemplateRef == nil) != (tc.of == "") || len(got.Work.Rules) != 0 {
					t.Errorf("got %+v", got.Work)
				}
				return
			}
			if got.Work.TemplateRef != nil || len(got.Work.Rules) != 1 || got.Work.Rules[0].For != tc.wait || !slices.Equal(got.Work.Durations, []string{"after"}) {
				t.Errorf("got %+v", got.Work)
			}
		})
	}
}

// A version is current until the spec or the template has changed. A template that goes, or is made anew, is a change too.
func TestIsCurrent(t *testing.T) {
	api := world(t)
	r, c := Reader{api}, uses("shop", "c", "idle", `{"after": "5m"}`, 3)
	a, err := r.ReadAssignment(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	is := func(want bool, now v1alpha1.Owner, why string) {
		t.Helper()
		if got, err := r.IsCurrent(t.Context(), now, a.Version); err != nil || got != want {
			t.Errorf("%s: it is current: %t, %v", why, got, err)
		}
	}
	is(true, c, "nothing has changed")
	is(false, uses("shop", "c", "idle", `{"after": "6m"}`, 4), "the spec has changed")
	is(false, uses("shop", "c", "other", `{}`, 3), "it uses another template")
	stored := &v1alpha1.CleanerTemplate{}
	if err := errors.Join(api.Get(t.Context(), types.NamespacedName{Name: "idle"}, stored), api.Delete(t.Context(), stored)); err != nil {
		t.Fatal(err)
	}
	is(false, c, "the template is gone")
	anew := template("idle", "params.after")
	if anew.UID = "anew"; api.Create(t.Context(), anew) != nil {
		t.Fatal("it cannot be made anew")
	}
	is(false, c, "it was made anew")
}

// What cannot be read is said, and nothing is taken for missing.
func TestReadErrors(t *testing.T) {
	down := errors.New("down")
	r := Reader{interceptor.NewClient(world(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return down },
	})}
	c := uses("shop", "c", "idle", `{}`, 3)
	if a, err := r.ReadAssignment(t.Context(), c); !errors.Is(err, down) || !strings.Contains(err.Error(), `"idle"`) || a.Missing != "" {
		t.Errorf("got %+v, %v", a, err)
	}
	if same, err := r.IsCurrent(t.Context(), c, "3"); same || !errors.Is(err, down) {
		t.Errorf("it is current: %t, %v", same, err)
	}
	if users := r.ListUsers(t.Context(), template("idle", "1m")); users != nil {
		t.Errorf("it is used by %v", users)
	}
}

func TestTemplateOf(t *testing.T) {
	for version, want := range map[string]string{"": "", "3": "", "3/abc": "abc"} {
		if got := TemplateOf(version); got != want {
			t.Errorf("the template of %q is %q", version, got)
		}
	}
}

func TestListUsers(t *testing.T) {
	r := Reader{world(t, uses("shop", "a", "idle", `{}`, 1), uses("shop", "b", "other", `{}`, 1), uses("till", "c", "", "", 1), uses("", "d", "idle", `{}`, 1))}
	var got []string
	for _, request := range r.ListUsers(t.Context(), template("idle", "1m")) {
		got = append(got, request.String())
	}
	if slices.Sort(got); !slices.Equal(got, []string{"/d", "shop/a"}) {
		t.Errorf("it is used by %v", got)
	}
}
