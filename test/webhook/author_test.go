// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// waiting is a spec that deletes a ConfigMap that does not exist.
const waiting = `{targets: [{name: cm, reference: {version: v1, kind: ConfigMap, name: %s}, delete: true}], lifecycle: Recurring}`

// authorOf is the annotation of a Cleaner.
func (e *env) authorOf(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	now := u.DeepCopy()
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(u), now); err != nil {
		t.Fatal(err)
	}
	return now.GetAnnotations()[v1alpha1.AnnotationAuthor]
}

// ready is the condition of a Cleaner as its reason and message.
func (e *env) ready(ctx context.Context, key client.ObjectKey) (string, error) {
	c := &v1alpha1.Cleaner{}
	if err := e.Get(ctx, key, c); err != nil {
		return "", err
	}
	if now := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady); now != nil && now.ObservedGeneration == c.Generation {
		return now.Reason + ": " + now.Message, nil
	}
	return "", nil
}

// becomes waits until Ready says something.
func (e *env) becomes(t *testing.T, key client.ObjectKey, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s says %s", key, want), func(ctx context.Context) string {
		got, err := e.ready(ctx, key)
		switch {
		case err != nil:
			return err.Error()
		case !strings.Contains(got, want):
			return "it says " + got
		}
		return ""
	})
}

// configMapEditor may do with ConfigMaps what waiting needs.
func configMapEditor() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "delete"}},
		{APIGroups: []string{"cleaner.vtex.dev"}, Resources: []string{"cleaners"}, Verbs: []string{"*"}},
	}
}

// TestTheAuthorIsStored shows that the webhook stores who wrote a spec, whatever the manifest says, and that the operator
// binds it to the object.
func TestTheAuthorIsStored(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	alice := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice-" + ns}
	e.grant(t, ns, "alice", alice, configMapEditor()...)
	as, _ := e.as(t, alice.Name, "team")

	for name, u := range map[string]*unstructured.Unstructured{
		"Name":         cleaner(t, ns, "named", fmt.Sprintf(waiting, "x")),
		"GenerateName": cleaner(t, ns, "", fmt.Sprintf(waiting, "other")),
		"Forged":       cleaner(t, ns, "forged", fmt.Sprintf(waiting, "z")),
	} {
		t.Run(name, func(t *testing.T) {
			if u.GetName() == "" {
				u.SetGenerateName("generated-")
			}
			if name == "Forged" {
				u.SetAnnotations(map[string]string{v1alpha1.AnnotationAuthor: `{"author":{"username":"kubernetes-admin","groups":["system:masters"]}}`})
				u.SetUID("11111111-1111-1111-1111-111111111111")
			}
			if err := as.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the author is bound", func(context.Context) string {
				if got := e.authorOf(t, u); !strings.Contains(got, `"username":"alice-`) || !strings.Contains(got, `"team"`) || !strings.Contains(got, `"about":"uid"`) {
					return "the annotation is " + got
				}
				return ""
			})
			e.becomes(t, client.ObjectKeyFromObject(u), "TargetMissing")
		})
	}
}

// TestNobodyWritesTheAuthor shows that the annotation can be set, changed, copied and removed by nobody but the operator.
func TestNobodyWritesTheAuthor(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	mine, other := cleaner(t, ns, "mine", fmt.Sprintf(waiting, "x")), cleaner(t, ns, "other", fmt.Sprintf(waiting, "x"))
	alice := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice-" + ns}
	e.grant(t, ns, "alice", alice, configMapEditor()...)
	as, _ := e.as(t, alice.Name)
	if err := as.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if err := e.Create(t.Context(), other); err != nil { // by the administrator
		t.Fatal(err)
	}
	bound := func(u *unstructured.Unstructured) string {
		eventually(t, "the author is bound", func(context.Context) string {
			if got := e.authorOf(t, u); !strings.Contains(got, `"about":"uid"`) {
				return "the annotation is " + got
			}
			return ""
		})
		return e.authorOf(t, u)
	}
	want, foreign := bound(mine), bound(other)
	for name, patch := range map[string]string{
		"Copied":  fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationAuthor, foreign),
		"Changed": fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationAuthor, strings.Replace(want, "alice", "admin", 1)),
		"Removed": fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationAuthor),
		"Asked":   fmt.Sprintf(`{"metadata":{"annotations":{%q:"1",%q:null}}}`, v1alpha1.AnnotationRequestedAt, v1alpha1.AnnotationAuthor),
	} {
		t.Run(name, func(t *testing.T) {
			for who, c := range map[string]client.Client{"alice": as, "the administrator": e.Client} {
				if err := c.Patch(t.Context(), mine.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
					t.Errorf("%s: %v", who, err)
				}
				if got := e.authorOf(t, mine); got != want {
					t.Errorf("%s: the author is now %s", who, got)
				}
			}
		})
	}
	t.Run("Edited", func(t *testing.T) { // an edit has an author of its own
		if err := e.Patch(t.Context(), mine.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"ttl":"1h"}}`))); err != nil {
			t.Fatal(err)
		}
		if got := e.authorOf(t, mine); strings.Contains(got, "alice") {
			t.Errorf("the author is still %s", got)
		}
	})
}

// TestWhoSuspendsIsNotTheAuthor shows that to suspend a Cleaner, and to let it go on, takes no right to what it does, and lends
// it none.
func TestWhoSuspendsIsNotTheAuthor(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	alice, bob := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice-" + ns}, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "bob-" + ns}
	e.grant(t, ns, "alice", alice, configMapEditor()...)
	e.grant(t, ns, "bob", bob, rbacv1.PolicyRule{APIGroups: []string{"cleaner.vtex.dev"}, Resources: []string{"cleaners"}, Verbs: []string{"*"}})
	asAlice, _ := e.as(t, alice.Name)
	asBob, _ := e.as(t, bob.Name)
	u := cleaner(t, ns, "c", fmt.Sprintf(waiting, "x"))
	if err := asAlice.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(u)
	e.becomes(t, key, "TargetMissing")
	for _, step := range []struct {
		who   string
		as    client.Client
		patch string
		want  string
	}{
		{"the administrator", e.Client, `{"spec":{"suspend":true}}`, "Suspended"},
		{"bob", asBob, `{"spec":{"suspend":false}}`, "TargetMissing"},
		{"bob", asBob, `{"spec":{"suspend":true}}`, "Suspended"},
		{"the administrator", e.Client, `{"spec":{"suspend":null}}`, "TargetMissing"},
	} {
		if err := step.as.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(step.patch))); err != nil {
			t.Fatalf("%s writes %s: %v", step.who, step.patch, err)
		}
		e.becomes(t, key, step.want)
		if got := e.authorOf(t, u); !strings.Contains(got, `"username":"`+alice.Name+`"`) {
			t.Errorf("after %s of %s the author is %s", step.patch, step.who, got)
		}
	}
	err := asBob.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":true,"ttl":"1s"}}`)))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is not allowed to delete configmaps") {
		t.Errorf("with suspend, something else is edited: %v", err)
	}
}

// TestANumberThatIsWrittenOtherwise shows that 30.0 instead of 30, which is a new generation for the API server and no change
// for the conditions of a webhook, takes the author from nobody.
func TestANumberThatIsWrittenOtherwise(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	u := cleaner(t, ns, "c", `{lifecycle: Recurring, limits: {actionsPerSecond: 60, maxActions: 40},
		targets: [{name: m, reference: {version: v1, kind: ConfigMap, matchLabels: {old: "yes"}}}],
		rules: [{name: a, forEach: m.items, when: "true", actions: [{delete: {gracePeriodSeconds: 30}}]}]}`)
	if err := e.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	config := e.Config()
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/apis", &v1alpha1.GroupVersion, scheme.Codecs.WithoutConversion()
	raw, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	var before, after string
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the operator writes it too
		text, err := raw.Get().Namespace(ns).Resource("cleaners").Name("c").Do(t.Context()).Raw()
		if err != nil {
			return err
		}
		before = e.authorOf(t, u)
		otherwise := regexp.MustCompile(`("(?:actionsPerSecond|maxActions|gracePeriodSeconds)":\d+)`).ReplaceAll(text, []byte("$1.0"))
		if n := bytes.Count(otherwise, []byte(".0")) - bytes.Count(text, []byte(".0")); n != 3 {
			t.Fatalf("%d numbers are written otherwise: %s", n, otherwise)
		}
		return raw.Put().Namespace(ns).Resource("cleaners").Name("c").Body(otherwise).SetHeader("Content-Type", "application/json").Do(t.Context()).Error()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	if after = e.authorOf(t, u); after == "" || u.GetGeneration() != 2 {
		t.Fatalf("generation %d, the author was %s and is %s", u.GetGeneration(), before, after)
	}
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "old", Labels: map[string]string{"old": "yes"}}}
	if err := e.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it acts", func(ctx context.Context) string {
		if err := e.Get(ctx, client.ObjectKeyFromObject(old), old); !apierrors.IsNotFound(err) {
			ready, _ := e.ready(ctx, client.ObjectKeyFromObject(u))
			return fmt.Sprintf("the object is there (%v), and the Cleaner says %s", err, ready)
		}
		return ""
	})
}

// TestANumberThatIsStoredOtherwise shows that parameters have no number that somebody can write otherwise without a webhook, so
// that the spec is not the one that was signed any more.
func TestANumberThatIsStoredOtherwise(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	config := e.Config()
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/apis", &v1alpha1.GroupVersion, scheme.Codecs.WithoutConversion()
	raw, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	write := func(parameters string) error {
		text := fmt.Sprintf(`{"apiVersion": "cleaner.vtex.dev/v1alpha1", "kind": "Cleaner", "metadata": {"namespace": %q, "name": "c"}, "spec": {"lifecycle": "Recurring", "parameters": %s,
			"targets": [{"name": "m", "reference": {"version": "v1", "kind": "ConfigMap", "name": "none"}}],
			"rules": [{"name": "a", "forEach": "[m]", "when": "false", "actions": [{"delete": {}}]}]}}`, ns, parameters)
		return raw.Post().Namespace(ns).Resource("cleaners").Body([]byte(text)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error()
	}
	for parameters, field := range map[string]string{
		`{"n": 9007199254740993}`:              "spec.parameters.n: is a number beyond",
		`{"n": 9007199254740993.0}`:            "spec.parameters.n: is a number beyond",
		`{"n": [{"m": -9223372036854775807}]}`: "spec.parameters.n[0].m: is a number beyond",
		`{"n": 18446744073709551615}`:          "spec.parameters.n: is a number beyond",
		`{"n": {"m": 1, "o": [0, 1e300]}}`:     "spec.parameters.n.o[1]: is a number beyond",
		`{"n": -0.0}`:                          "denied the request", // it is another number already when the author is judged
		`{"n": [9007199254740992.125]}`:        "spec.parameters.n[0]: is a number beyond",
	} {
		if err := write(parameters); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", parameters, err)
			_ = e.Delete(t.Context(), cleaner(t, ns, "c", "{}"))
		}
	}
	if err := write(`{"a": 9007199254740991, "b": [-9007199254740991, {"c": 0}], "d": 0.5}`); err != nil {
		t.Fatal(err)
	}
	u := cleaner(t, ns, "c", "{}")
	for _, change := range []struct{ from, to string }{
		{`9007199254740991`, `9007199254740991.0`}, {`"c":0`, `"c":0.0`}, {`"c":0`, `"c":-0.0`}, {`0.5`, `0.50`},
	} {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			text, err := raw.Get().Namespace(ns).Resource("cleaners").Name("c").Do(t.Context()).Raw()
			if err != nil {
				return err
			}
			otherwise := bytes.Replace(text, []byte(change.from), []byte(change.to), 2)
			if bytes.Equal(otherwise, text) {
				t.Fatalf("no %s in %s", change.from, text)
			}
			return raw.Put().Namespace(ns).Resource("cleaners").Name("c").Body(otherwise).SetHeader("Content-Type", "application/json").Do(t.Context()).Error()
		})
		if err != nil {
			t.Fatalf("%s: %v", change.to, err)
		}
		key := client.ObjectKeyFromObject(u)
		e.becomes(t, key, "TargetMissing")
	}
}

// TestAnImpersonatedAccountIsTheOneThatIsThere shows that who impersonates a ServiceAccount by its name is that account, with
// its UID, and not a later one of its name; and that an account which is not there writes nothing.
func TestAnImpersonatedAccountIsTheOneThatIsThere(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	bot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "bot"}}
	name := "system:serviceaccount:" + ns + ":bot"
	e.grant(t, ns, "bot", rbacv1.Subject{Kind: rbacv1.UserKind, Name: name}, configMapEditor()...)
	as, _ := e.as(t, name)
	u := cleaner(t, ns, "c", fmt.Sprintf(waiting, "x"))
	if err := as.Create(t.Context(), u.DeepCopy()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "there is no ServiceAccount "+ns+"/bot") {
		t.Errorf("an account that is not there writes: %v", err)
	}
	if err := e.Create(t.Context(), bot); err != nil {
		t.Fatal(err)
	}
	if err := as.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if got := e.authorOf(t, u); !strings.Contains(got, `"uid":"`+string(bot.UID)+`"`) {
		t.Errorf("the author is %s", got)
	}
}

// TestAnAccountIsNoWayAroundTheAuthor shows that a spec which somebody changed past the webhook does nothing, though it names a
// ServiceAccount: who changed it may not be allowed to name that account.
func TestAnAccountIsNoWayAroundTheAuthor(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	if err := e.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "janitor"}}); err != nil {
		t.Fatal(err)
	}
	e.grant(t, ns, "janitor", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:serviceaccount:" + ns + ":janitor"}, configMapEditor()...)
	u := cleaner(t, ns, "c", `{serviceAccountName: janitor, targets: [{name: cm, reference: {version: v1, kind: ConfigMap, name: x}, delete: true}], lifecycle: Recurring}`)
	if err := e.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(u)
	e.becomes(t, key, "TargetMissing")
	e.withoutWebhook(t, ns, func() error {
		return e.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"ttl":"1s"}}`)))
	})
	e.becomes(t, key, "AuthorMissing: The author of the spec is unknown: the author annotation is not signed for this spec")

	// Nor is one without an author, or with one that a key has signed which there never was.
	unknown := regexp.MustCompile(`"signature":".*"`).ReplaceAllString(e.authorOf(t, u), `"signature":"20260102T150405Z.AAAA"`)
	for name, planted := range map[string]string{"none": "", "lost": unknown} {
		u := cleaner(t, ns, name, `{serviceAccountName: janitor, targets: [{name: cm, reference: {version: v1, kind: ConfigMap, name: x}, delete: true}], lifecycle: Recurring}`)
		if planted != "" {
			u.SetAnnotations(map[string]string{v1alpha1.AnnotationAuthor: planted})
		}
		e.withoutWebhook(t, ns, func() error {
			tried := u.DeepCopy()
			if err := e.Create(t.Context(), tried, client.DryRunAll); err != nil {
				return err
			}
			if tried.GetAnnotations()[v1alpha1.AnnotationAuthor] != planted {
				return errors.New("the webhook has stored the author")
			}
			return e.Create(t.Context(), u)
		})
		e.becomes(t, client.ObjectKeyFromObject(u), "AuthorMissing: The author of the spec is unknown")
	}
}

// TestAnAuthorWhoLosesRights shows that what an author may no longer do is not done any more.
func TestAnAuthorWhoLosesRights(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	alice := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice-" + ns}
	e.grant(t, ns, "alice", alice, configMapEditor()...)
	as, _ := e.as(t, alice.Name)
	u := cleaner(t, ns, "c", `{targets: [{name: cm, reference: {version: v1, kind: ConfigMap, name: late}, delete: true}], lifecycle: Recurring}`)
	if err := as.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(u)
	e.becomes(t, key, "TargetMissing")
	if err := e.manager.Kill(); err != nil { // what it was told lately it would believe for some minutes
		t.Fatal(err)
	}
	if err := e.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "alice"}}); err != nil {
		t.Fatal(err)
	}
	late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "late"}}
	if err := e.Create(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	var err error
	if e.manager, err = operator.Run(t.Context(), e.Cluster, operator.Options{Binary: e.binary, Webhook: e.gate, Args: []string{"--min-interval=100ms"}}); err != nil {
		t.Fatal(err)
	}
	e.becomes(t, key, fmt.Sprintf(`AuthorLacksRights: The author of the spec, user %q, is not allowed to delete configmaps "late" in namespace %q`, alice.Name, ns))
	e.grant(t, ns, "again", alice, configMapEditor()...)
	eventually(t, "it acts", func(ctx context.Context) string {
		if err := e.Get(ctx, client.ObjectKeyFromObject(late), late); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the object is there (%v)", err)
		}
		return ""
	})
}

// withoutWebhook does something in a namespace while nobody is asked about what is written there.
func (e *env) withoutWebhook(t *testing.T, namespace string, do func() error) {
	t.Helper()
	leave := func(selector string) {
		patch := fmt.Sprintf(`[{"op":"add","path":"/webhooks/0/namespaceSelector","value":%s}]`, selector)
		for _, kind := range []string{"validatingwebhookconfiguration", "mutatingwebhookconfiguration"} {
			if _, err := e.Kubectl(t.Context(), "patch", kind, operator.WebhookConfiguration, "--type=json", "-p", patch); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave(fmt.Sprintf(`{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":[%q]}]}`, namespace))
	defer leave("{}")
	eventually(t, "the webhook is not asked", func(context.Context) string {
		if err := do(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestWithoutAnAuthorNothingIsDone shows a Cleaner that was written while the webhook was away: nothing is done for it, until
// somebody who may answers for it.
func TestWithoutAnAuthorNothingIsDone(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	victim := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "victim"}}
	if err := e.Create(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	u := cleaner(t, ns, "c", fmt.Sprintf(waiting, "victim"))
	e.withoutWebhook(t, ns, func() error {
		tried := u.DeepCopy()
		if err := e.Create(t.Context(), tried, client.DryRunAll); err != nil {
			return err
		}
		if tried.GetAnnotations()[v1alpha1.AnnotationAuthor] != "" {
			return errors.New("the webhook has stored the author")
		}
		return e.Create(t.Context(), u)
	})
	key := client.ObjectKeyFromObject(u)
	e.becomes(t, key, "AuthorMissing: The author of the spec is unknown")
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(victim), victim); err != nil {
		t.Fatalf("the object is gone: %v", err)
	}

	bob := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "bob-" + ns}
	e.grant(t, ns, "bob", bob, rbacv1.PolicyRule{APIGroups: []string{"cleaner.vtex.dev"}, Resources: []string{"cleaners"}, Verbs: []string{"*"}})
	as, _ := e.as(t, bob.Name)
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	if err := e.Patch(t.Context(), u.DeepCopy(), label); err != nil {
		t.Fatal(err)
	}
	if got := e.authorOf(t, u); got != "" {
		t.Errorf("who sets a label answers for the spec: %s", got)
	}
	ask := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"1"}}}`, v1alpha1.AnnotationRequestedAt))
	if err := as.Patch(t.Context(), u.DeepCopy(), ask); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `is not allowed to delete configmaps "victim"`) {
		t.Errorf("somebody without rights takes it over: %v", err)
	}
	plugin := buildPlugin(t, e)
	if out, err := plugin.run(t, "c", "-n", ns); err == nil || !strings.Contains(out, "then set --become-author") || e.authorOf(t, u) != "" {
		t.Errorf("kubectl cleaner run makes its user the author without a word: %v\n%s", err, out)
	}
	if out, err := plugin.run(t, "c", "-n", ns, "--become-author"); err != nil || !strings.Contains(out, "you are now the author of its spec") {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "it acts", func(ctx context.Context) string {
		if err := e.Get(ctx, client.ObjectKeyFromObject(victim), victim); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the object is there (%v)", err)
		}
		return ""
	})
}

// Whoever asks for an evaluation besides the schedule needs the rights to what the Cleaner does: its author wants it done at
// other times. One without a schedule acts whenever its conditions hold, so that anybody may ask.
func TestWhoeverAsksBesidesTheScheduleHasTheRights(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	bob := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "bob-" + ns}
	e.grant(t, ns, "bob", bob, rbacv1.PolicyRule{APIGroups: []string{"cleaner.vtex.dev"}, Resources: []string{"cleaners"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}})
	as, _ := e.as(t, bob.Name)
	ask := func(at string) client.Patch {
		return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationRequestedAt, at))
	}
	const maps = `
targets:
- name: maps
  delete: true
  reference: {version: v1, kind: ConfigMap, matchLabels: {doomed: "yes"}}
`
	for name, tc := range map[string]struct{ spec, refused string }{
		"yearly":    {"lifecycle: Recurring\nschedule: 0 3 1 1 *" + maps, "is not allowed to delete configmaps"},
		"unplanned": {"lifecycle: Recurring" + maps, ""},
		"release":   {"schedule: 0 3 1 1 *\nhelm: {release: web, delete: true}", "is not allowed to do everything"},
	} {
		t.Run(name, func(t *testing.T) {
			u := cleaner(t, ns, name, tc.spec)
			if err := e.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			if err := as.Patch(t.Context(), u.DeepCopy(), ask(`"1"`)); (tc.refused != "") != (apierrors.IsForbidden(err) && strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("somebody without rights asks: %v", err)
			}
			if err := e.Patch(t.Context(), u.DeepCopy(), ask(`"2"`)); err != nil {
				t.Errorf("its author asks: %v", err)
			}
			edit := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"ttl":"100d"}}`))
			if err := e.Patch(t.Context(), u, edit); err != nil || u.GetAnnotations()[v1alpha1.AnnotationRequestedAt] != "" {
				t.Errorf("after an edit %q is asked for (%v)", u.GetAnnotations()[v1alpha1.AnnotationRequestedAt], err)
			}
			if err := as.Patch(t.Context(), u.DeepCopy(), ask("null")); err != nil {
				t.Errorf("what was asked is taken back: %v", err)
			}
		})
	}
}
