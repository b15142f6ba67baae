// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/queries"
)

// asked are the paths of the requests of an Engine, with the object that they select.
type asked struct {
	mu    sync.Mutex
	paths map[string]bool
}

// forResource lists the paths of lists and watches of a resource, sorted, and forgets them.
func (a *asked) forResource(resource string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for path := range a.paths {
		if of, _, _ := strings.Cut(path, "?"); strings.HasSuffix(of, "/"+resource) {
			all = append(all, path)
			delete(a.paths, path)
		}
	}
	slices.Sort(all)
	return all
}

func (a *asked) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			a.mu.Lock()
			a.paths[strings.TrimSuffix(r.URL.Path+"?"+r.URL.Query().Get("fieldSelector"), "?")] = true
			a.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A Cleaner on the objects of its namespace makes the operator watch these, and not those of all namespaces, although it may. A ClusterCleaner
// on all of them changes nothing for it, neither when it comes nor when it goes.
func TestObjectsAreWatchedWhereTheyAreWanted(t *testing.T) {
	paths := &asked{paths: map[string]bool{}}
	r := newRealThrough(t, transport.WrapperFunc(paths.wrap))
	a, b := r.namespaces()
	web := map[string]string{"app": r.namespace}
	for _, resource := range []string{"secrets", "configmaps", "services"} {
		r.may("", resource)
	}
	create := map[string]func(namespace, name string){
		"Secret": func(namespace, name string) {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: web}}
			if _, err := r.admin.CoreV1().Secrets(namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"ConfigMap": func(namespace, name string) { r.configMapOf(namespace, name, web) },
		"Service": func(namespace, name string) {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: web}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}}}
			if _, err := r.admin.CoreV1().Services(namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	}
	for kind, tc := range map[string]struct {
		resource  string
		own, both []string
	}{
		"Secret":    {"secrets", []string{"/api/v1/namespaces/" + a + "/secrets"}, []string{"/api/v1/secrets"}},
		"ConfigMap": {"configmaps", []string{"/api/v1/namespaces/" + a + "/configmaps"}, []string{"/api/v1/configmaps"}},
		"Service":   {"services", []string{"/api/v1/namespaces/" + a + "/services"}, []string{"/api/v1/services"}},
	} {
		t.Run(kind, func(t *testing.T) {
			create[kind](a, "s")
			create[kind](b, "s")
			mine, wide := owner("of-"+tc.resource), Owner{Name: "wide-" + tc.resource}
			own, all := queries.New(kind, queries.In(a), queries.Labelled("app="+r.namespace)), queries.New(kind, queries.In(""), queries.Labelled("app="+r.namespace))
			named := queries.New(kind, queries.In(a), queries.Named("s"))
			r.SetInterests(mine, interests(own, named))
			r.finds(own, a+"/s")
			r.finds(named, a+"/s")
			if got := paths.forResource(tc.resource); !slices.Equal(got, tc.own) {
				t.Errorf("for one namespace it asked for %q, want %q", got, tc.own)
			}
			r.SetInterests(wide, interests(all))
			r.finds(all, a+"/s", b+"/s")
			r.finds(own, a+"/s")
			if got := paths.forResource(tc.resource); !slices.Equal(got, tc.both) {
				t.Errorf("for all namespaces it asked for %q besides, want %q", got, tc.both)
			}
			r.wakes(mine, "an object", func() { create[kind](a, "t") })
			r.finds(own, a+"/s", a+"/t")
			r.finds(all, a+"/s", a+"/t", b+"/s")
			r.DropInterests(wide)
			r.wakes(mine, "an object after the other one has gone", func() { create[kind](a, "u") })
			r.finds(own, a+"/s", a+"/t", a+"/u")
			r.DropInterests(mine)
		})
	}
}

// A Cleaner on objects that it names makes the operator watch these, and not those beside them, although it may.
func TestNamedObjectsAreWatchedAlone(t *testing.T) {
	paths := &asked{paths: map[string]bool{}}
	r := newRealThrough(t, transport.WrapperFunc(paths.wrap))
	a, _ := r.namespaces()
	r.may("", "configmaps")
	r.may("", "namespaces")
	for _, name := range []string{"one", "two"} {
		r.configMapOf(a, name, nil)
	}
	own, of := queries.New("ConfigMap", queries.In(a), queries.Named("one")), queries.New("Namespace", queries.Named(a))
	r.SetInterests(owner("c"), interests(own, of))
	r.finds(own, a+"/one")
	r.finds(of, "/"+a)
	if got, want := paths.forResource("configmaps"), []string{"/api/v1/namespaces/" + a + "/configmaps?metadata.name=one"}; !slices.Equal(got, want) {
		t.Errorf("for one ConfigMap it asked for %q, want %q", got, want)
	}
	if got, want := paths.forResource("namespaces"), []string{"/api/v1/namespaces?metadata.name=" + a}; !slices.Equal(got, want) {
		t.Errorf("for one Namespace it asked for %q, want %q", got, want)
	}
}

// Rights that are granted are noticed by the change of the rules, and not only when it is time to check access again.
func TestRightsAreNoticedByTheirRules(t *testing.T) {
	r := newReal(t)
	r.stop()
	for _, kind := range []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"} {
		r.may(rbacv1.GroupName, kind)
	}
	access, err := authorizationv1client.NewForConfig(r.config)
	if err != nil {
		t.Fatal(err)
	}
	allowed := func() bool {
		missing, err := served.FindMissingVerbs(t.Context(), access.SelfSubjectAccessReviews(), served.Resource{GVR: rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")}, "", "")
		return err == nil && len(missing) == 0
	}
	until(t, "rules may be watched", allowed)
	e, err := New(Options{Config: r.config, Clock: clock.RealClock{}, RetryEvery: time.Hour, WatchRights: true})
	if err != nil {
		t.Fatal(err)
	}
	r.rig = startRig(t, e, nil)
	q := queries.New("ConfigMap", queries.In(r.namespace))
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, observed.Forbidden)
	r.mayIn("configmaps")
	r.finds(q, r.namespace+"/kube-root-ca.crt")
}
