// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vtex/cleaner/test/operator"
)

// review is what somebody on the network of Pods sends to the webhook, past the API server.
type review struct {
	name, wants string
	method      string // POST, if there is none
	path        string // that of Cleaners, if there is none
	header      http.Header
	body        func() io.Reader
	// refused are the parts of an answer that say no, of which the answer has one.
	refused []string
}

const pathOfCleaners = "/validate-cleaner-vtex-dev-v1alpha1-cleaner"

// reviewOf is the review of a Cleaner, as the API server would send it.
func reviewOf(user, spec string) func() io.Reader {
	return text(fmt.Sprintf(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "a", "operation": "CREATE", "namespace": "victim",
"kind": {"group": "cleaner.vtex.dev", "version": "v1alpha1", "kind": "Cleaner"}, "resource": {"group": "cleaner.vtex.dev", "version": "v1alpha1", "resource": "cleaners"},
"userInfo": %s, "object": {"apiVersion": "cleaner.vtex.dev/v1alpha1", "kind": "Cleaner", "metadata": {"name": "a", "namespace": "victim"}, "spec": %s}}}`, user, spec))
}

func text(t string) func() io.Reader { return func() io.Reader { return strings.NewReader(t) } }

// hostileReviews returns all reviews that are sent. None is believed, and the operator keeps working.
func hostileReviews() []review {
	const spec = `{"ttl": "1d", "targets": [{"name": "maps", "reference": {"version": "v1", "kind": "ConfigMap", "matchLabels": {}}, "delete": true}]}`
	costly, err := nowhere().expand(`["{{repeat 900 "[1].all(a, a>0)&&"}} true"]`)
	if err != nil {
		panic(err) // a text of ours: it cannot be
	}
	asJSON := http.Header{"Content-Type": {"application/json"}}
	return []review{
		{name: "Get", wants: "Whatever a webhook shows who looks.", method: http.MethodGet, refused: []string{"\"allowed\":false", "405", "400"}},
		{name: "Nothing", wants: "A body that is not there.", header: asJSON, body: text(""), refused: []string{"\"allowed\":false"}},
		{name: "NoType", wants: "A body of no type.", body: text("{}"), refused: []string{"\"allowed\":false", "415"}},
		{name: "Cut", wants: "A text that ends too early.", header: asJSON, body: text(`{"request": {`), refused: []string{"\"allowed\":false"}},
		{name: "NoRequest", wants: "A review of nothing.", header: asJSON, body: text(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`), refused: []string{"\"allowed\":false"}},
		{name: "NullObject", wants: "An object that is null.", header: asJSON, body: text(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "a", "operation": "CREATE", "object": null}}`), refused: []string{"\"allowed\":false"}},
		{name: "NoOldObject", wants: "An update of nothing.", header: asJSON, body: text(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "a", "operation": "UPDATE", "object": {"spec": {}}}}`), refused: []string{"\"allowed\":false"}},
		{name: "AnotherKind", wants: "An object of another kind.", header: asJSON, body: text(`{"apiVersion": "v1", "kind": "Secret", "request": {"uid": "a"}}`), refused: []string{"\"allowed\":false"}},
		{name: "Depth", wants: "Lists in lists, over whose depth the stack grows.", header: asJSON, body: func() io.Reader { return strings.NewReader(strings.Repeat("[", 5<<20)) }, refused: []string{"\"allowed\":false"}},
		{name: "DepthInTheObject", wants: "The same, in the object.", header: asJSON, body: reviewOf(`{"username": "a"}`, `{"parameters": {"a": `+strings.Repeat("[", 200000)+strings.Repeat("]", 200000)+`}}`), refused: []string{"\"allowed\":false"}},
		{name: "Gigabyte", wants: "A body that fills memory.", header: asJSON, body: func() io.Reader { return io.LimitReader(blanks{}, 1<<30) }, refused: []string{"\"allowed\":false", "413", "EOF", "reset", "broken", "closed"}},
		{name: "Zipped", wants: "A body that fills memory once it is unzipped.", header: http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, body: func() io.Reader { z, _ := zipped(100<<20, " "); return strings.NewReader(z) }, refused: []string{"\"allowed\":false"}},
		{name: "Groups", wants: "A user in a hundred thousand groups, whose rights are asked with all of them.", header: asJSON, body: reviewOf(`{"username": "nobody", "groups": [`+join(100000, ",", `"group-%d"`)+`]}`, spec), refused: []string{"\"allowed\":false", "413"}},
		{name: "Traversal", wants: "Another path of the same server.", path: "/validate/../metrics", header: asJSON, body: text("{}"), refused: []string{"404", "\"allowed\":false"}},
		{name: "Elsewhere", wants: "What else is served there.", path: "/debug/pprof/heap", header: asJSON, body: text("{}"), refused: []string{"404"}},
		{name: "CostlySpec", wants: "Seconds of compilation.", header: asJSON, body: reviewOf(`{"username": "nobody"}`, `{"lifecycle": "Recurring", "targets": [{"name": "maps", "reference": {"version": "v1", "kind": "ConfigMap"}}], "conditions": `+costly+`}`), refused: []string{"\"allowed\":false"}},
		{name: "MillionRules", wants: "A Cleaner that takes a hundred times its text once it is decoded.", header: asJSON, body: reviewOf(`{"username": "a"}`, `{"rules": [`+strings.Repeat("{},", 2_000_000)+`{}]}`), refused: []string{"spec.rules: has far more entries than are allowed"}},
		{name: "Nobody", wants: "What a user without rights may do.", header: asJSON, body: reviewOf(`{"username": "nobody"}`, spec), refused: []string{"\"allowed\":false"}},
	}
}

// blanks are without end.
type blanks struct{}

// Read gives blanks.
func (blanks) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte(" "), len(p))), nil }

// caller calls the webhook as a Pod can, without what the API server could prove to be.
func caller() *http.Client {
	return &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}, ForceAttemptHTTP2: true},
	}
}

// callers call the webhook past the API server.
type callers struct {
	manager *operator.Process
	objects *objects
}

// call has all of them call it.
func (c callers) call(t *testing.T) {
	base := fmt.Sprintf("https://127.0.0.1:%d", c.manager.WebhookPort)
	for _, r := range hostileReviews() {
		t.Run(r.name, func(t *testing.T) {
			answer := r.ask(t, base)
			for _, part := range r.refused {
				if strings.Contains(answer, part) {
					return
				}
			}
			t.Errorf("wants: %s\nthe answer is %s", r.wants, shortened(answer))
		})
	}
	t.Run("Protocol", func(t *testing.T) { protocol(t, base) })
	t.Run("ManyAtOnce", func(t *testing.T) { c.manyAtOnce(t, base) })
	t.Run("SlowCallers", func(t *testing.T) { c.slowCallers(t) })
}

// ask gives status and body of the answer, or the error.
func (r *review) ask(t *testing.T, base string) string {
	t.Helper()
	method, path, body := http.MethodPost, pathOfCleaners, io.Reader(nil)
	if r.method != "" {
		method = r.method
	}
	if r.path != "" {
		path = r.path
	}
	if r.body != nil {
		body = r.body()
	}
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = r.header.Clone()
	resp, err := caller().Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return fmt.Sprintf("%s %s %v", resp.Status, got, err)
}

// protocol holds that HTTP/2, whose streams one connection has by the thousand, is not spoken.
func protocol(t *testing.T, base string) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+pathOfCleaners, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := caller().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 1 {
		t.Errorf("it speaks %s", resp.Proto)
	}
}

// manyAtOnce sends hundreds of costly reviews at the same time; an author is answered all the same.
func (c callers) manyAtOnce(t *testing.T, base string) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, r := range hostileReviews() {
		if r.name != "CostlySpec" {
			continue
		}
		for range 300 {
			all.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+pathOfCleaners, r.body())
				if err != nil {
					return
				}
				req.Header = r.header.Clone()
				if resp, err := caller().Do(req); err == nil {
					_ = resp.Body.Close()
				}
			})
		}
	}
	c.write(t, "many-at-once")
}

// slowCallers hold connections that never send a whole request; an author is answered all the same.
func (c callers) slowCallers(t *testing.T) {
	for range 300 {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", c.manager.WebhookPort)) //nolint:noctx // it is on this machine
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte{0x16, 0x03, 0x01}); err != nil {
			t.Fatal(err)
		}
	}
	c.write(t, "slow-callers")
}

// write writes a Cleaner that is as it should be, within the time of a request.
func (c callers) write(t *testing.T, name string) {
	t.Helper()
	at := nowhere()
	at.Namespace = healthyNamespace
	made, err := at.read(fmt.Sprintf("{{cleaner %q}}\nspec: {ttl: 100d, {{targets}}}", name))
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		err := c.objects.send(t.Context(), made[0], false, false)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("an author has to wait: %v", err)
		}
		pause(t.Context())
	}
}
