// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/cases"
)

// victim is the namespace of somebody who has nothing to do with it, where nothing may change.
const victim = "victim"

// row is one hostile input. Texts are templates of text/template; see functions.
type row struct {
	// Name is the row's, and the beginning of its namespace's.
	Name string `json:"name"`
	// Sender is whoever sends it, and Wants what for.
	Sender string `json:"sender"`
	Wants  string `json:"wants"`

	// Needs are manifests that are there before: an administrator has applied them.
	Needs string `json:"needs"`
	// Sends are the manifests that are sent, and Later are those that an administrator applies afterwards.
	Sends string `json:"sends"`
	Later string `json:"later"`
	// Loose lets the client leave out fields that nobody knows.
	Loose bool `json:"loose"`
	// Spec, in the place of Sends, is the spec of a Cleaner.
	Spec string `json:"spec"`
	// Record, in the place of Sends, is a record of release web in Helm's Secret, which a Cleaner uninstalls.
	Record string `json:"record"`
	// Sink, in the place of Sends, is where a Cleaner that deletes ConfigMap free-1 sends its event.
	Sink string `json:"sink"`

	// What must come of it; see the documentation of the package.
	Refused     string `json:"refused"`
	Says        string `json:"says"`
	Harmless    string `json:"harmless"`
	Gone        string `json:"gone"`
	Undelivered bool   `json:"undelivered"`
	// Unheard is a server that nobody may have connected to, and Unsaid what no status may have in it.
	Unheard string `json:"unheard"`
	Unsaid  string `json:"unsaid"`

	// class is the table that it stands in.
	class string
}

// forged says that it is a status, which nobody but the operator may write. It has to be refused.
func (r *row) forged() bool { return r.class == "status" }

// rows are all tables.
func rows(t testing.TB) []*row {
	t.Helper()
	tables, err := cases.Load[row]("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var all []*row
	for file, table := range tables {
		for i := range table {
			table[i].class = strings.TrimSuffix(file, ".yaml")
			all = append(all, &table[i])
		}
	}
	return all
}

// place is where a row is played.
type place struct {
	// Namespace is the sender's, and Victim that of somebody else.
	Namespace, Victim string
	// look finds an object of the namespace; nil where there is no cluster.
	look func(kind, name string) (*unstructured.Unstructured, error)
	// crown is the UID of what must not be touched.
	crown string
	// sinks, ports and apiServer are where sinks lead.
	sinks     func(name string) string
	ports     func(name string) int
	apiServer string
}

// nowhere is a place for those who only want to read what is sent.
func nowhere() *place {
	return &place{
		Namespace: "ns", Victim: victim, crown: "00000000-0000-0000-0000-000000000000", apiServer: "https://198.51.100.1",
		sinks: func(string) string { return "http://198.51.100.2/" }, ports: func(string) int { return 1 },
	}
}

// needs and sends are the manifests of a row.
func (r *row) needs(p *place) ([]*unstructured.Unstructured, error) {
	text := r.Needs
	if r.Record != "" {
		text += "\n---\n" + `{{object "v1" "Secret" "sh.helm.release.v1.web.v1"}}
metadata: {labels: {owner: helm, name: web, status: deployed, version: "1"}}
type: helm.sh/release.v1
data: {release: "` + r.Record + `"}
`
	}
	if r.Sink != "" {
		text += "\n---\n" + `{{object "v1" "ConfigMap" "free-1"}}`
	}
	return p.read(text)
}

func (r *row) sends(p *place) ([]*unstructured.Unstructured, error) {
	text := r.Sends
	switch {
	case r.Spec != "":
		text = "{{cleaner \"a\"}}\nspec: " + r.Spec
	case r.Record != "":
		text = "{{cleaner \"a\"}}\nspec: {ttl: 0s, helm: {release: web, delete: true}}"
	case r.Sink != "":
		sink, err := p.expand(r.Sink)
		if err != nil {
			return nil, err
		}
		text = fmt.Sprintf("{{cleaner \"a\"}}\nspec: {ttl: 0s, targets: [{name: maps, reference: {version: v1, kind: ConfigMap, name: free-1}, delete: true}], cloudEventSink: %s}", quoted(sink))
	}
	return p.read(text)
}

// read expands a text and reads its documents.
func (p *place) read(text string) ([]*unstructured.Unstructured, error) {
	expanded, err := p.expand(text)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for doc := range strings.SplitSeq(expanded, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", shortened(doc), err)
		}
		if u.Object == nil {
			continue
		}
		name, _, err := unstructured.NestedString(u.Object, "named")
		if err != nil {
			return nil, err
		}
		delete(u.Object, "named")
		u.SetName(name)
		if u.GetKind() != "ClusterCleaner" && u.GetKind() != "CleanerTemplate" {
			u.SetNamespace(p.Namespace)
		}
		all = append(all, u)
	}
	return all, nil
}

func (p *place) expand(text string) (string, error) {
	t, err := template.New("").Option("missingkey=error").Funcs(p.functions()).Parse(text)
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", shortened(text), err)
	}
	var out strings.Builder
	if err := t.Execute(&out, p); err != nil {
		return "", fmt.Errorf("cannot expand %s: %w", shortened(text), err)
	}
	return out.String(), nil
}

// functions are what texts are made with. What is inserted into a double-quoted string is quoted for it.
func (p *place) functions() template.FuncMap {
	found := func(kind, name string, of func(*unstructured.Unstructured) string) (string, error) {
		if p.look == nil {
			return "0", nil
		}
		u, err := p.look(kind, name)
		if err != nil {
			return "", err
		}
		return of(u), nil
	}
	return template.FuncMap{
		// Objects: their head, without what follows it.
		"object":          object,
		"cleaner":         func(name string) string { return object("cleaner.vtex.dev/v1alpha1", "Cleaner", name) },
		"clusterCleaner":  func() string { return object("cleaner.vtex.dev/v1alpha1", "ClusterCleaner", p.Namespace) },
		"cleanerTemplate": func() string { return object("cleaner.vtex.dev/v1alpha1", "CleanerTemplate", p.Namespace) },
		"owned":           p.owned,
		"ownedCleaner":    p.ownedCleaner,
		"blob": func(name, text string) string {
			return object("v1", "ConfigMap", name) + "\ndata: {text: " + quoted(text) + "}"
		},
		// Parts of the spec of a Cleaner.
		"maps": func() string { return "targets: [{name: maps, reference: {version: v1, kind: ConfigMap}}]" },
		"report": func() string {
			return `rules: [{name: a, forEach: maps.items, when: "false", actions: [{report: {}}]}]`
		},
		"targets": func() string {
			return "targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {x: z}}, delete: true}]"
		},
		// Where.
		"namespace": func() string { return p.Namespace },
		"name":      func() string { return p.Namespace },
		"victim":    func() string { return p.Victim },
		"crown":     func() string { return p.crown },
		"uid": func(kind, name string) (string, error) {
			return found(kind, name, func(u *unstructured.Unstructured) string { return string(u.GetUID()) })
		},
		"version": func(kind, name string) (string, error) {
			return found(kind, name, (*unstructured.Unstructured).GetResourceVersion)
		},
		"sink":      p.sinks,
		"tlsSink":   func(name string) string { return strings.Replace(p.sinks(name), "http:", "https:", 1) },
		"port":      p.ports,
		"apiserver": func() string { return p.apiServer },
		// Much of something.
		"repeat":    func(n int, text string) string { return strings.Repeat(text, n) },
		"numbered":  func(n int, format string) string { return join(n, "", format) },
		"series":    func(n int, format string) string { return join(n, ", ", format) },
		"body":      func(body, text string) string { return strings.ReplaceAll(text, "BODY", body) },
		"doublings": doublings,
		"binds":     binds,
		"laughs":    laughs,
		"gzip":      zip,
		"gzipped":   zipped,
		// Releases of Helm.
		"json":   quoted,
		"pack":   func(text string) (string, error) { z, err := zip(text); return packed(z), err },
		"packed": packed,
		"raw":    func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
		"manifest": func(namespace, name string) string {
			return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\n", name, namespace)
		},
		"hook":       hook,
		"release":    release,
		"helmRecord": helmRecord,
		"records":    records,
	}
}

// object is the head of an object. Its name is not in metadata yet, so that what follows may have metadata of its own.
func object(apiVersion, kind, name string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nnamed: %s", apiVersion, kind, name)
}

// ofRelease says of an object that it belongs to release web.
func (p *place) ofRelease() string {
	return fmt.Sprintf("metadata: {labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: web, meta.helm.sh/release-namespace: %s}}", p.Namespace)
}

func (p *place) owned(apiVersion, kind, name string) string {
	return object(apiVersion, kind, name) + "\n" + p.ofRelease() + "\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n"
}

func (p *place) ownedCleaner(name string) string {
	return object("cleaner.vtex.dev/v1alpha1", "Cleaner", name) + "\n" + p.ofRelease() + `
spec: {ttl: 100d, targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {x: z}}, delete: true}]}
`
}

func join(n int, separator, format string) string {
	var out strings.Builder
	for i := range n {
		if i > 0 {
			out.WriteString(separator)
		}
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

// doublings are n variables, each twice the one before it.
func doublings(n int) string {
	var all []string
	for i := 1; i <= n; i++ {
		all = append(all, fmt.Sprintf(`{name: v%d, expression: "variables.v%d + variables.v%d"}`, i, i-1, i-1))
	}
	return strings.Join(all, ", ")
}

// binds is body about the last of n values, of which each is a step of the one before it.
func binds(n int, first, step, body string) string {
	v := func(i int, text string) string {
		return regexp.MustCompile(`\bV\b`).ReplaceAllString(text, fmt.Sprintf("v%d", i))
	}
	text := v(n, body)
	for i := n; i > 0; i-- {
		text = fmt.Sprintf("cel.bind(v%d, %s, %s)", i, v(i-1, step), text)
	}
	text = quoted(fmt.Sprintf("cel.bind(v0, %s, %s)", first, text))
	return text[1 : len(text)-1]
}

// laughs is a document of 10 to the power of n strings, by aliases.
func laughs(n int) string {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: free-1}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < n; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	return text
}

func zip(text string) (string, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, text); err != nil {
		return "", err
	}
	err := w.Close()
	return out.String(), err
}

// zipped is a text, repeated n times and zipped.
func zipped(n int, text string) (string, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	const chunk = 1 << 16
	for part := strings.Repeat(text, chunk); n > 0; n -= chunk {
		if _, err := io.WriteString(w, part[:min(n, chunk)*len(text)]); err != nil {
			return "", err
		}
	}
	return out.String(), w.Close()
}

// packed is what Helm writes into a Secret, as a manifest has it.
func packed(bytes string) string {
	return base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(bytes))))
}

// hook is a Pod that runs before a release is uninstalled.
func hook(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, annotations: {helm.sh/hook: pre-delete}}\nspec: {containers: [{name: a, image: a}]}\n", name)
}

// release is a release as Helm records it.
func release(name, namespace string, version int, manifest, hook string) string {
	r := map[string]any{
		"name": name, "namespace": namespace, "version": version, "manifest": manifest,
		"info": map[string]any{"status": "deployed", "first_deployed": "2026-01-01T00:00:00Z", "last_deployed": "2026-01-01T00:00:00Z"},
	}
	if hook != "" {
		r["hooks"] = []any{map[string]any{"name": "kept-pod", "kind": "Pod", "path": "a", "manifest": hook, "events": []string{"pre-delete"}}}
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers: it cannot be
	}
	return string(text)
}

// helmRecord is the Secret of a revision.
func helmRecord(name string, version int, text string) (string, error) {
	z, err := zip(text)
	return object("v1", "Secret", fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, version)) + fmt.Sprintf(`
metadata: {labels: {owner: helm, name: %s, status: deployed, version: "%d"}}
type: helm.sh/release.v1
data: {release: "%s"}
`, name, version, packed(z)), err
}

// records are many revisions of release web.
func records(n int, text string) (string, error) {
	var all []string
	for i := 1; i <= n; i++ {
		one, err := helmRecord("web", i, strings.Replace(text, `"version":1`, fmt.Sprintf(`"version":%d`, i), 1))
		if err != nil {
			return "", err
		}
		all = append(all, one)
	}
	return strings.Join(all, "\n---\n"), nil
}

// quoted is a text as a string of JSON.
func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string: it cannot be
	}
	return string(out)
}

// shortened is the beginning of a text.
func shortened(text string) string {
	const enough = 300
	return text[:min(len(text), enough)]
}
