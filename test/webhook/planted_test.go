// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// vouched is how the API server begins what it says of an author who does not make the request.
const vouched = `metadata.annotations[cleaner.vtex.dev/author]: is not what the webhook writes for "`

// writers lets all users, ServiceAccounts among them, write Cleaners in a namespace, and do there what waiting needs if so wanted.
func (e *env) writers(t *testing.T, ns string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	e.grant(t, ns, "writers", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"}, append(rules, rule("*", "cleaner.vtex.dev", "cleaners"))...)
}

// signed has the webhook sign a user as the author of an object, by a review that no API server has made.
func (e *env) signed(t *testing.T, u *unstructured.Unstructured, user authenticationv1.UserInfo) string {
	t.Helper()
	return e.signs(t, user, u, nil)[v1alpha1.AnnotationAuthor]
}

// signs has the webhook write what it does for a user who writes an object over another one, which is nil when it is created, by a review that no
// API server has made.
func (e *env) signs(t *testing.T, user authenticationv1.UserInfo, u, old *unstructured.Unstructured) map[string]string {
	t.Helper()
	raw := func(u *unstructured.Unstructured) runtime.RawExtension {
		text, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Namespace: u.GetNamespace(), UserInfo: user, Object: raw(u),
			Kind: metav1.GroupVersionKind{Group: "cleaner.vtex.dev", Version: "v1alpha1", Kind: u.GetKind()},
		},
	}
	if old != nil {
		review.Request.Operation, review.Request.OldObject = admissionv1.Update, raw(old)
	}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := ask(t, e.manager, "mutate-cleaner-vtex-dev-v1alpha1-"+strings.ToLower(u.GetKind()), string(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(answer), review); err != nil || review.Response == nil || review.Response.Patch == nil {
		t.Fatalf("nothing is signed: %v: %s", err, answer)
	}
	patch, err := jsonpatch.DecodePatch(review.Response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	text, err := patch.Apply(raw(u).Raw)
	if err != nil {
		t.Fatal(err)
	}
	after := &unstructured.Unstructured{}
	if err := after.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return after.GetAnnotations()
}

// TestNobodyPlantsAnAuthor shows that what the webhook signed for a caller who is not the API server is worth nothing, while the
// API server does not ask the webhook: an author is who makes the request, with the groups that they are in, and no other text.
func TestNobodyPlantsAnAuthor(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	e.writers(t, ns)
	victim := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "victim"}}
	if err := e.Create(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "robot"}}
	if err := e.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	mallory := "mallory-" + ns
	as, _ := e.as(t, mallory, "team")
	robot := "system:serviceaccount:" + ns + ":robot"
	asRobot, _ := e.as(t, robot)
	admin := authenticationv1.UserInfo{Username: "kubernetes-admin", Groups: []string{"system:masters"}}
	mine := fmt.Sprintf(`{"author":{"username":%q,"groups":["team","system:authenticated"]},`, mallory)

	cases := map[string]struct {
		user    authenticationv1.UserInfo
		as      client.Client
		change  func(annotation string) string
		version string
		// admitted says that the API server lets it in, and the operator does not believe it.
		admitted bool
	}{
		"SomebodyElse":           {user: admin},
		"InTheFormerVersion":     {user: admin, version: "v1alpha"},
		"MyNameAndTheirGroups":   {user: authenticationv1.UserInfo{Username: mallory, Groups: []string{"system:masters"}}},
		"MyGroupsAndTheirs":      {user: authenticationv1.UserInfo{Username: mallory, Groups: []string{"team", "system:authenticated", "system:masters"}}},
		"MyGroupsInOne":          {user: authenticationv1.UserInfo{Username: mallory, Groups: []string{`team","system:authenticated`}}},
		"MyNameAndNoGroups":      {user: authenticationv1.UserInfo{Username: mallory}},
		"TheirNameBeginsAsMine":  {user: authenticationv1.UserInfo{Username: mallory + "s", Groups: []string{"team", "system:authenticated"}}},
		"AServiceAccount":        {user: authenticationv1.UserInfo{Username: robot}},
		"AUserByAServiceAccount": {user: admin, as: asRobot},
		"AnotherServiceAccount":  {user: authenticationv1.UserInfo{Username: robot + "s", UID: "1"}, as: asRobot},
		"WhiteSpace":             {user: admin, change: func(a string) string { return " " + a }},
		"NoJSON":                 {user: admin, change: func(string) string { return "x" }},
		"TwoAuthors":             {user: admin, change: func(a string) string { return mine + strings.TrimPrefix(a, "{") }, admitted: true},
		"TwoAuthorsInCapitals":   {user: admin, change: func(a string) string { return mine + strings.Replace(a, `{"author"`, `"AUTHOR"`, 1) }, admitted: true},
		"TwoNames": {
			user: admin, admitted: true,
			change: func(a string) string {
				return strings.Replace(a, `{"author":{`, strings.TrimSuffix(mine, `},`)+`,"extra":{},`, 1)
			},
		},
	}
	planted := map[string]*unstructured.Unstructured{}
	for name, tc := range cases {
		u := cleaner(t, ns, strings.ToLower(name), fmt.Sprintf(waiting, "victim"))
		annotation := e.signed(t, u, tc.user)
		if tc.change != nil {
			annotation = tc.change(annotation)
		}
		u.SetAnnotations(map[string]string{v1alpha1.AnnotationAuthor: annotation})
		if tc.version != "" {
			u.SetAPIVersion("cleaner.vtex.dev/" + tc.version)
		}
		planted[name] = u
	}
	edited, labelled := cleaner(t, ns, "edited", fmt.Sprintf(waiting, "victim")), cleaner(t, ns, "labelled", fmt.Sprintf(waiting, "x"))
	inserted := e.signed(t, edited, admin)
	if err := e.Create(t.Context(), labelled); err != nil { // the administrator is its author
		t.Fatal(err)
	}
	annotate := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationAuthor, inserted))

	e.withoutWebhook(t, ns, func() error {
		tried := edited.DeepCopy()
		if err := as.Create(t.Context(), tried, client.DryRunAll); err != nil {
			return err
		}
		if tried.GetAnnotations()[v1alpha1.AnnotationAuthor] != "" {
			return errors.New("the webhook has stored the author")
		}
		for name, tc := range cases {
			by, user := tc.as, robot
			if by == nil {
				by, user = as, mallory
			}
			err := by.Create(t.Context(), planted[name])
			switch {
			case tc.admitted && err != nil:
				t.Errorf("%s: %v", name, err)
			case !tc.admitted && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), vouched+user+`", of whom the request is: leave the annotation out`)):
				t.Errorf("%s is not refused: %v", name, err)
			}
		}
		if err := as.Create(t.Context(), edited); err != nil {
			t.Errorf("without the annotation it is not admitted: %v", err)
		}
		if err := as.Patch(t.Context(), edited.DeepCopy(), annotate); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), vouched) {
			t.Errorf("an author is planted by an update: %v", err)
		}
		for name, patch := range map[string]string{"a label": `{"metadata":{"labels":{"a":"b"}}}`, "the spec": `{"spec":{"ttl":"1h"}}`} {
			if err := as.Patch(t.Context(), labelled.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
				t.Errorf("with the annotation as it was %s cannot be changed: %v", name, err)
			}
		}
		return nil
	})
	for name, tc := range cases {
		if tc.admitted {
			e.becomes(t, client.ObjectKeyFromObject(planted[name]), "AuthorMissing: The author of the spec is unknown: the author annotation is not signed for this spec")
		}
	}
	e.becomes(t, client.ObjectKeyFromObject(edited), "AuthorMissing: The author of the spec is unknown")
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(victim), victim); err != nil {
		t.Errorf("the victim is gone: %v", err)
	}
}

// TestWhoeverWritesIsVouchedFor shows that what the webhook writes is what the API server vouches for, whoever it is, also where
// a manifest has the annotation of somebody else; and that the operator binds it.
func TestWhoeverWritesIsVouchedFor(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	e.writers(t, ns, configMapEditor()...)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "robot"}}
	if err := e.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	byToken, err := e.ServiceAccountConfig(t.Context(), ns, "robot")
	if err != nil {
		t.Fatal(err)
	}
	robot := "system:serviceaccount:" + ns + ":robot"
	impersonated := func(user rest.ImpersonationConfig) *rest.Config {
		config := e.Config()
		config.Impersonate = user
		return config
	}
	groups := func(n int, form string) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf(form, i))
		}
		return all
	}
	other, _ := e.as(t, "other-"+ns)
	for name, tc := range map[string]struct {
		config *rest.Config
		want   string
	}{
		"Administrator":         {e.Config(), `{"author":{"username":"`},
		"User":                  {impersonated(rest.ImpersonationConfig{UserName: "jane"}), `{"author":{"username":"jane","groups":["system:authenticated"]},`},
		"Groups":                {impersonated(rest.ImpersonationConfig{UserName: "jane", Groups: []string{"b", "a"}}), `{"author":{"username":"jane","groups":["b","a","system:authenticated"]},`},
		"UID":                   {impersonated(rest.ImpersonationConfig{UserName: "jane", UID: "7", Extra: map[string][]string{"scopes": {"x"}}}), `{"author":{"username":"jane","groups":["system:authenticated"]},`},
		"Quotes":                {impersonated(rest.ImpersonationConfig{UserName: `a"b\c'd`, Groups: []string{`"`, `\`, `\"`, `e","f`}}), `{"author":{"username":"a\"b\\c'd","groups":["\"","\\","\\\"","e\",\"f","system:authenticated"]},`},
		"HTML":                  {impersonated(rest.ImpersonationConfig{UserName: `<a>&b`, Groups: []string{`<g>&`}}), `{"author":{"username":"<a>&b","groups":["<g>&","system:authenticated"]},`},
		"OtherLetters":          {impersonated(rest.ImpersonationConfig{UserName: "Zoë 名"}), `{"author":{"username":"Zoë 名","groups":["system:authenticated"]},`},
		"NearlyAServiceAccount": {impersonated(rest.ImpersonationConfig{UserName: "system:serviceaccount:x"}), `{"author":{"username":"system:serviceaccount:x","groups":["system:authenticated"]},`},
		"ManyGroups":            {impersonated(rest.ImpersonationConfig{UserName: "jane", Groups: groups(2000, "team-%d")}), `{"author":{"username":"jane","groups":["team-0",`},
		"AllGroups":             {impersonated(rest.ImpersonationConfig{UserName: "jane", Groups: groups(8000, "%04x")}), `{"author":{"username":"jane","groups":["0000",`},
		"ServiceAccount":        {byToken, fmt.Sprintf(`{"author":{"username":%q,"uid":%q},`, robot, account.UID)},
		"AccountByItsName":      {impersonated(rest.ImpersonationConfig{UserName: robot}), fmt.Sprintf(`{"author":{"username":%q,"uid":%q},`, robot, account.UID)},
		"AccountByItsUID":       {impersonated(rest.ImpersonationConfig{UserName: robot, UID: string(account.UID)}), fmt.Sprintf(`{"author":{"username":%q,"uid":%q},`, robot, account.UID)},
	} {
		t.Run(name, func(t *testing.T) {
			as, err := clientOf(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			u := cleaner(t, ns, "c-"+strings.ToLower(name), fmt.Sprintf(waiting, "x"))
			u.SetAnnotations(map[string]string{v1alpha1.AnnotationAuthor: `{"author":{"username":"kubernetes-admin","groups":["system:masters"]}}`})
			if err := as.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			if got := u.GetAnnotations()[v1alpha1.AnnotationAuthor]; !strings.HasPrefix(got, tc.want) {
				t.Errorf("the author is %.400s, and not %s", got, tc.want)
			}
			eventually(t, "the operator binds it", func(context.Context) string {
				if got := e.authorOf(t, u); !strings.HasPrefix(got, tc.want) || !strings.Contains(got, `"about":"uid"`) {
					return fmt.Sprintf("the annotation is %.400s", got)
				}
				return ""
			})
			asks := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"now"}}}`, v1alpha1.AnnotationRequestedAt)
			asked := u.DeepCopy()
			if err := as.Patch(t.Context(), asked, client.RawPatch("application/merge-patch+json", asks)); err != nil || !strings.HasPrefix(asked.GetAnnotations()[v1alpha1.AnnotationRequest], tc.want) {
				t.Errorf("its author cannot ask for an evaluation: %v: %.400s", err, asked.GetAnnotations()[v1alpha1.AnnotationRequest])
			}
			if err := other.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
				t.Errorf("somebody else cannot label it: %v", err)
			}
			if err := as.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"ttl":"1h"}}`))); err != nil {
				t.Errorf("its author cannot edit it: %v", err)
			}
		})
	}
	t.Run("ControlCharacter", func(t *testing.T) {
		as, _ := e.as(t, "jane\tdoe")
		err := as.Create(t.Context(), cleaner(t, ns, "c", fmt.Sprintf(waiting, "x")))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `the name "jane\tdoe" has a control character`) {
			t.Errorf("got %v", err)
		}
	})
}

// TestTheAPIServerVouchesWithoutAWebhook shows that the API server itself holds to the policy, for both kinds and in each version,
// while there is neither an operator nor a webhook; that the operator alone writes any author; and that a Cleaner with an
// author can still be changed otherwise.
func TestTheAPIServerVouchesWithoutAWebhook(t *testing.T) {
	e, err := newEnv(t.Context(), shared.binary)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	ns := e.namespace(t)
	for _, kind := range []string{"validatingwebhookconfiguration", "mutatingwebhookconfiguration"} {
		if _, err := e.Kubectl(t.Context(), "delete", kind, operator.WebhookConfiguration); err != nil {
			t.Fatal(err)
		}
	}
	e.grant(t, "", "everybody", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"}, rule("*", "cleaner.vtex.dev", "cleaners clustercleaners"))
	mallory, _ := e.as(t, "mallory", "team")
	self, _ := e.as(t, operator.User)
	const mine, theirs = `{"author":{"username":"mallory","groups":["team","system:authenticated"]},"time":"x"}`, `{"author":{"username":"jane","groups":["team"]},"time":"x"}`
	for name, of := range map[string]struct{ kind, version, namespace string }{
		"Cleaner": {"Cleaner", "v1alpha1", ns}, "FormerVersion": {"Cleaner", "v1alpha", ns}, "ClusterCleaner": {"ClusterCleaner", "v1alpha1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			made := func(author string) *unstructured.Unstructured {
				u := object(t, of.kind, strings.ToLower(name), fmt.Sprintf(waiting, "x"))
				if of.kind == "ClusterCleaner" {
					u = object(t, of.kind, strings.ToLower(name), `{targets: [{name: cm, reference: {version: v1, kind: ConfigMap, name: x, namespace: default}, delete: true}], lifecycle: Recurring}`)
				}
				u.SetAPIVersion("cleaner.vtex.dev/" + of.version)
				u.SetNamespace(of.namespace)
				if author != "" {
					u.SetAnnotations(map[string]string{v1alpha1.AnnotationAuthor: author})
				}
				return u
			}
			eventually(t, "it is refused to name somebody else", func(ctx context.Context) string { // the API server hears of all that by watches
				err := mallory.Create(ctx, made(theirs), client.DryRunAll)
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), vouched+"mallory") {
					return fmt.Sprint(err)
				}
				return ""
			})
			if err := mallory.Create(t.Context(), made(mine), client.DryRunAll); err != nil {
				t.Errorf("who names himself is refused: %v", err)
			}
			if err := mallory.Create(t.Context(), made("")); err != nil {
				t.Fatal(err)
			}
			annotate := func(as client.Client, annotation, value string) error {
				return as.Patch(t.Context(), made(""), client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, annotation, value)))
			}
			both := []string{v1alpha1.AnnotationAuthor, v1alpha1.AnnotationRequest}
			for _, annotation := range both {
				for who, as := range map[string]client.Client{"mallory": mallory, "the administrator": e.Client} {
					if err := annotate(as, annotation, fmt.Sprintf("%q", theirs)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), fmt.Sprintf("[%s]: is not what the webhook writes for ", annotation)) {
						t.Errorf("%s names somebody else in %s: %v", who, annotation, err)
					}
				}
				if err := annotate(self, annotation, fmt.Sprintf("%q", theirs)); err != nil {
					t.Fatalf("the operator cannot write %s: %v", annotation, err)
				}
			}
			label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
			if err := mallory.Patch(t.Context(), made(""), label); err != nil {
				t.Errorf("it cannot be labelled: %v", err)
			}
			for _, annotation := range both {
				if err := annotate(mallory, annotation, "null"); err != nil {
					t.Errorf("%s cannot be taken off: %v", annotation, err)
				}
				if err := annotate(mallory, annotation, fmt.Sprintf("%q", theirs)); !apierrors.IsForbidden(err) {
					t.Errorf("%s can be put back: %v", annotation, err)
				}
			}
		})
	}
}
