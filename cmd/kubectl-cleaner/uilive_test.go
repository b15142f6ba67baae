// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// pageReader reads the pages of kubectl cleaner ui without a browser.
type pageReader struct {
	t       *testing.T
	client  *http.Client
	address string
}

// read reads a page, or sends a form, and returns the page that this leads to.
func (p *pageReader) read(method, path, form string) (int, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.address+path, strings.NewReader(form))
	if err != nil {
		p.t.Fatal(err)
	}
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", p.address)
	}
	got, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

// testUI serves the pages, and reads what they say of the Cleaners of TestLive. test/ui opens them in a browser.
func testUI(t *testing.T, s *session, read func() *unstructured.Unstructured) {
	ctx, cancel := context.WithCancel(t.Context())
	out, stdout := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, clock.RealClock{}, []string{"ui", "--kubeconfig", s.kubeconfig}, strings.NewReader(""), stdout, io.Discard)
		_ = stdout.Close()
	}()
	address := ""
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		address = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=\w+`).FindString(lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	opened, err := url.Parse(address)
	if err != nil || address == "" {
		t.Fatalf("the address is %q: %v", address, err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &pageReader{t: t, client: &http.Client{Jar: jar}, address: "http://" + opened.Host}
	if code, page := p.read(http.MethodGet, "/?"+opened.RawQuery, ""); code != http.StatusOK || !strings.Contains(page, "<h1>Cleaners</h1>") {
		t.Fatalf("status %d\n%s", code, page)
	}
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		_, page := p.read(http.MethodGet, "/", "")
		return strings.Contains(page, "/cleaners/default/preview") && strings.Contains(page, "/clustercleaners/everywhere"), nil
	}); err != nil {
		t.Fatalf("the Cleaners are not listed: %v", err)
	}
	for path, want := range map[string]string{
		"/cleaners/default/preview": "<h1>", "/cleaners/default/preview/spec": "ttl: 1h", "/cleaners/default/preview/plan": "WaitingForTTL", "/cleaners/default/preview/forecast?until=24h": "of 1 Cleaner", "/forecast?until=24h": "of 2 Cleaners",
		"/cleaners/default/preview/object?name=pod/default/none": "pod/default/none", "/waste?count=now": "which 2 Cleaners would remove now",
	} {
		if code, page := p.read(http.MethodGet, path, ""); code != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%s: status %d, and %q is missing in\n%s", path, code, want, page)
		}
	}
	_, page := p.read(http.MethodGet, "/cleaners/default/preview", "")
	form := "csrf=" + regexp.MustCompile(`name="csrf" value="(\w+)"`).FindStringSubmatch(page)[1]
	for _, change := range []string{"suspend", "resume"} {
		if code, page := p.read(http.MethodPost, "/cleaners/default/preview/"+change, form); code != http.StatusOK || !strings.Contains(page, `class="notice"`) {
			t.Errorf("%s: status %d\n%s", change, code, page)
		}
		if got, _, _ := unstructured.NestedBool(read().Object, "spec", "suspend"); got != (change == "suspend") {
			t.Errorf("after %s, suspend is %t", change, got)
		}
	}
	before := read().GetAnnotations()[v1alpha1.AnnotationRequestedAt]
	if code, page := p.read(http.MethodPost, "/cleaners/default/preview/run", form); code != http.StatusOK || read().GetAnnotations()[v1alpha1.AnnotationRequestedAt] == before {
		t.Errorf("run: status %d\n%s", code, page)
	}
	if code, page := p.read(http.MethodPost, "/cleaners/default/none/suspend", form); code != http.StatusNotFound || !strings.Contains(page, "Cleaner default/none was not suspended") {
		t.Errorf("suspend of none: status %d\n%s", code, page)
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("it ends with %d", code)
	}
}
