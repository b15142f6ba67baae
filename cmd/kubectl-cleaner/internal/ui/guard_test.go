// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// The token of the address works once: it is exchanged for a cookie that scripts cannot read and other sites cannot send.
func TestTokenWorksOnce(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	parsed, err := url.Parse(s.address)
	if err != nil || parsed.Host != "127.0.0.1:4711" || parsed.Query().Get("token") == "" {
		t.Fatalf("the address is %s: %v", s.address, err)
	}
	none := func(r *http.Request) { r.Header.Del("Cookie") }
	for _, wrong := range []string{"/?token=", "/?token=wrong", "/forecast?token=" + parsed.Query().Get("token")} {
		if got := s.ask(http.MethodGet, wrong, nil, none); got.Code != http.StatusUnauthorized || len(got.Result().Cookies()) > 0 {
			t.Errorf("%s: status %d, cookies %v", wrong, got.Code, got.Result().Cookies())
		}
	}
	if got := s.ask(http.MethodHead, "/?"+parsed.RawQuery, nil, none); got.Code != http.StatusUnauthorized {
		t.Errorf("HEAD: status %d", got.Code)
	}
	got := s.ask(http.MethodGet, "/?"+parsed.RawQuery, nil, none)
	cookies := got.Result().Cookies()
	if got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/" || len(cookies) != 1 {
		t.Fatalf("status %d, to %q, cookies %v", got.Code, got.Header().Get("Location"), cookies)
	}
	if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Value == parsed.Query().Get("token") || c.Domain != "" || c.MaxAge != 0 || c.Name != "cleaner-ui-4711" {
		t.Errorf("the cookie is %s", c)
	}
	if again := s.ask(http.MethodGet, "/?"+parsed.RawQuery, nil, none); again.Code != http.StatusUnauthorized || len(again.Result().Cookies()) > 0 {
		t.Errorf("used again: status %d", again.Code)
	}
	s.cookie = cookies[0]
	wants(t, s.page(http.StatusOK, "/"), "preview")
}

// Strangers see the files that pages load, and nothing about the cluster or its user.
func TestStrangersSeeNothing(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	for _, cookie := range []string{"", s.cookie.Name + "=", s.cookie.Name + "=wrong", "other=" + s.cookie.Value} {
		without := func(r *http.Request) { r.Header.Set("Cookie", cookie) }
		for _, path := range []string{"/", "/cleaners/team/preview", "/cleaners/team/preview/plan", "/forecast", "/events", "/nothing"} {
			got := s.ask(http.MethodGet, path, nil, without)
			if got.Code != http.StatusUnauthorized {
				t.Errorf("%s with cookie %q: status %d", path, cookie, got.Code)
			}
			for _, secret := range []string{"preview", "staging", "cluster.example", s.guard.csrf, s.guard.session, s.guard.token, "team"} {
				if strings.Contains(got.Body.String(), secret) {
					t.Errorf("%s shows %q to strangers", path, secret)
				}
			}
		}
		if got := s.ask(http.MethodPost, "/cleaners/team/preview/suspend", url.Values{csrfField: {s.guard.csrf}}, without); got.Code != http.StatusUnauthorized {
			t.Errorf("a change with cookie %q: status %d", cookie, got.Code)
		}
		if got := s.ask(http.MethodGet, "/assets/style.css", nil, without); got.Code != http.StatusOK || !strings.HasPrefix(got.Header().Get("Content-Type"), "text/css") {
			t.Errorf("the style sheet: status %d, %s", got.Code, got.Header().Get("Content-Type"))
		}
	}
	if asked := s.Commands.(*commands).asked; len(asked) > 0 {
		t.Errorf("strangers caused %v", asked)
	}
}

// A name that was made to point to this machine is refused, with the cookie too: the page of such a name could read what it gets.
func TestOnlyHostsOfLoopbackAreServed(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	for host, want := range map[string]int{
		"127.0.0.1:4711": http.StatusOK, "[::1]:4711": http.StatusOK, "localhost:4711": http.StatusOK,
		"127.0.0.1": http.StatusMisdirectedRequest, "127.0.0.1:80": http.StatusMisdirectedRequest, "localhost": http.StatusMisdirectedRequest, "rebound.example:4711": http.StatusMisdirectedRequest,
		"localhost.example:4711": http.StatusMisdirectedRequest, "127.0.0.2:4711": http.StatusMisdirectedRequest, "": http.StatusMisdirectedRequest,
	} {
		for _, path := range []string{"/", "/assets/style.css", "/?token=" + s.guard.token} {
			got := s.ask(http.MethodGet, path, nil, func(r *http.Request) { r.Host = host })
			if refused := got.Code == http.StatusMisdirectedRequest; refused != (want == http.StatusMisdirectedRequest) {
				t.Errorf("%q %s: status %d", host, path, got.Code)
			}
		}
	}
}

// Browsers leave port 80 out of addresses, and of origins.
func TestPortOfHTTP(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	g, err := newGuard(80)
	if err != nil {
		t.Fatal(err)
	}
	s.guard, s.cookie = g, &http.Cookie{Name: g.cookie, Value: g.session} //nolint:gosec // it is a request that has it
	s.handler = s.newHandler()
	for host, want := range map[string]int{"127.0.0.1": http.StatusOK, "localhost": http.StatusOK, "[::1]": http.StatusOK, "127.0.0.1:80": http.StatusOK, "rebound.example": http.StatusMisdirectedRequest} {
		if got := s.ask(http.MethodGet, "/", nil, func(r *http.Request) { r.Host = host }); got.Code != want {
			t.Errorf("%s: status %d", host, got.Code)
		}
	}
	own := func(r *http.Request) { r.Host = "127.0.0.1"; r.Header.Set("Origin", "http://127.0.0.1") }
	if got := s.ask(http.MethodPost, "/cleaners/team/preview/run", url.Values{csrfField: {g.csrf}}, own); got.Code != http.StatusSeeOther {
		t.Errorf("a form: status %d", got.Code)
	}
}

// All responses forbid what pages do not need: scripts and styles that are not ours, frames, storing, telling others where one was.
func TestHeaders(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	for _, got := range []*httptest.ResponseRecorder{
		s.ask(http.MethodGet, "/", nil), s.ask(http.MethodGet, "/nothing", nil), s.ask(http.MethodGet, "/assets/live.js", nil),
		s.ask(http.MethodGet, "/", nil, func(r *http.Request) { r.Host = "rebound.example" }), s.ask(http.MethodGet, "/", nil, func(r *http.Request) { r.Header.Del("Cookie") }),
		s.ask(http.MethodPost, "/cleaners/team/preview/run", url.Values{}), s.ask(http.MethodPut, "/", nil),
	} {
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Frame-Options":         "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "",
		} {
			if got.Header().Get(name) != want {
				t.Errorf("status %d: %s is %q", got.Code, name, got.Header().Get(name))
			}
		}
	}
}

// Only forms of our own pages change something.
func TestOnlyOwnFormsChangeSomething(t *testing.T) {
	const path = "/cleaners/team/preview/suspend"
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	remove := func(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(name) } }
	for name, tc := range map[string]struct {
		csrf   string
		change []func(*http.Request)
		want   int
	}{
		"Form":                  {"own", nil, http.StatusSeeOther},
		"FormWithOrigin":        {"own", []func(*http.Request){header("Origin", "http://127.0.0.1:4711")}, http.StatusSeeOther},
		"BrowserWithoutMetdata": {"own", []func(*http.Request){header("Origin", "http://127.0.0.1:4711"), remove("Sec-Fetch-Site")}, http.StatusSeeOther},
		"NoToken":               {"", nil, http.StatusForbidden},
		"OtherToken":            {"other", nil, http.StatusForbidden},
		"OtherSite":             {"own", []func(*http.Request){header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden},
		"OtherPort":             {"own", []func(*http.Request){header("Sec-Fetch-Site", "same-site"), header("Origin", "http://127.0.0.1:4712")}, http.StatusForbidden},
		"SameSiteOnly":          {"own", []func(*http.Request){header("Sec-Fetch-Site", "same-site"), header("Origin", "http://127.0.0.1:4711")}, http.StatusForbidden},
		"OtherOrigin":           {"own", []func(*http.Request){header("Origin", "http://rebound.example:4711")}, http.StatusForbidden},
		"OtherName":             {"own", []func(*http.Request){header("Origin", "http://localhost:4711")}, http.StatusForbidden},
		"HiddenOrigin":          {"own", []func(*http.Request){remove("Sec-Fetch-Site")}, http.StatusForbidden},
		"NoOrigin":              {"own", []func(*http.Request){remove("Origin"), remove("Sec-Fetch-Site")}, http.StatusForbidden},
		"NoForm":                {"own", []func(*http.Request){header("Content-Type", "text/plain")}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			c := &commands{}
			s := newSite(t, c, object(t, preview))
			form := url.Values{csrfField: {tc.csrf}}
			if tc.csrf == "own" {
				form.Set(csrfField, s.guard.csrf)
			}
			got := s.ask(http.MethodPost, path, form, tc.change...)
			if done := len(c.asked) > 0; got.Code != tc.want || done != (tc.want == http.StatusSeeOther) {
				t.Errorf("status %d, and it did %v", got.Code, c.asked)
			}
		})
	}
	c := &commands{}
	s := newSite(t, c, object(t, preview))
	long := url.Values{csrfField: {s.guard.csrf}, "more": {strings.Repeat("a", maxBody)}}
	if got := s.ask(http.MethodPost, path, long); got.Code != http.StatusForbidden || len(c.asked) > 0 {
		t.Errorf("a long form: status %d, %v", got.Code, c.asked)
	}
	inAddress := path + "?" + url.Values{csrfField: {s.guard.csrf}}.Encode()
	if got := s.ask(http.MethodPost, inAddress, url.Values{}); got.Code != http.StatusForbidden || len(c.asked) > 0 {
		t.Errorf("a token in the address: status %d, %v", got.Code, c.asked)
	}
	for method, want := range map[string]int{http.MethodGet: http.StatusNotFound, http.MethodPut: http.StatusMethodNotAllowed, http.MethodDelete: http.StatusMethodNotAllowed, http.MethodPatch: http.StatusMethodNotAllowed, http.MethodOptions: http.StatusMethodNotAllowed} {
		if got := s.ask(method, path, nil); got.Code != want || len(c.asked) > 0 {
			t.Errorf("%s: status %d, %v", method, got.Code, c.asked)
		}
	}
}

// Buttons do what the commands do. What the API server refuses is shown, with its reason.
func TestChanges(t *testing.T) {
	forbidden := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("cleaners").GroupResource(), "preview", errors.New(`User "bob" cannot patch resource "cleaners" <b>`))
	for path, tc := range map[string]struct {
		err       error
		want      int
		asked, to string
		says      []string
	}{
		"/cleaners/team/preview/suspend":       {nil, http.StatusSeeOther, "suspend team/preview true", "/cleaners/team/preview?said=suspend", nil},
		"/cleaners/team/preview/resume":        {nil, http.StatusSeeOther, "suspend team/preview false", "/cleaners/team/preview?said=resume", nil},
		"/cleaners/team/preview/run":           {nil, http.StatusSeeOther, "run team/preview", "/cleaners/team/preview?said=run", nil},
		"/clustercleaners/everywhere/run":      {nil, http.StatusSeeOther, "run everywhere", "/clustercleaners/everywhere?said=run", nil},
		"/clustercleaners/everywhere/suspend":  {forbidden, http.StatusForbidden, "suspend everywhere true", "", []string{"ClusterCleaner everywhere was not suspended", `User &#34;bob&#34; cannot patch resource &#34;cleaners&#34; &lt;b&gt;`, "context staging", "Nothing was changed."}},
		"/cleaners/team/preview/run?":          {&RefusedError{errors.New("the author of the spec of cleaner/preview is unknown")}, http.StatusConflict, "run team/preview", "", []string{"Cleaner team/preview was not evaluated", "the author of the spec of cleaner/preview is unknown", "Nothing was changed."}},
		"/cleaners/team/preview/delete":        {nil, http.StatusNotFound, "", "", []string{"There is no such page"}},
		"/cleaners/team/preview/suspend/again": {nil, http.StatusNotFound, "", "", []string{"There is no such page"}},
	} {
		t.Run(path, func(t *testing.T) {
			c := &commands{err: tc.err}
			s := newSite(t, c, object(t, preview))
			got := s.ask(http.MethodPost, path, url.Values{csrfField: {s.guard.csrf}})
			if got.Code != tc.want || strings.Join(c.asked, ", ") != tc.asked || got.Header().Get("Location") != tc.to {
				t.Errorf("status %d, it did %v, and leads to %q", got.Code, c.asked, got.Header().Get("Location"))
			}
			wants(t, got.Body.String(), tc.says...)
		})
	}
	s := newSite(t, &commands{}, object(t, preview))
	if got := s.page(http.StatusOK, "/cleaners/team/preview?said=forged"); strings.Contains(got, "forged") || strings.Contains(got, `class="notice"`) {
		t.Error("an address can say what was done")
	}
}

// If no definite refusal came, the change may have been made: the page says how the Cleaner is now.
func TestUnknownChanges(t *testing.T) {
	dropped := &url.Error{Op: "Patch", URL: "https://cluster.example", Err: errors.New("connection reset by peer")}
	suspended := strings.Replace(preview, "spec: {", "spec: {suspend: true, ", 1)
	requested := strings.Replace(preview, "generation: 2}", `generation: 2, annotations: {cleaner.vtex.dev/requestedAt: "2026-01-01T12:00:00Z"}}`, 1)
	for name, tc := range map[string]struct {
		object, change string
		err            error
		want           int
		says           []string
	}{
		"Applied":     {suspended, "suspend", dropped, http.StatusBadGateway, []string{"It is not known whether Cleaner team/preview was suspended", "connection reset by peer", "At 2026-01-01 13:00:00 CET it was suspended."}},
		"NotApplied":  {preview, "suspend", context.DeadlineExceeded, http.StatusGatewayTimeout, []string{"was suspended", "it was not suspended."}},
		"Resumed":     {preview, "resume", apierrors.NewInternalError(errors.New("etcd is slow")), http.StatusInternalServerError, []string{"It is not known whether Cleaner team/preview was resumed", "it was not suspended."}},
		"Requested":   {requested, "run", dropped, http.StatusBadGateway, []string{"was evaluated", "the last request for an evaluation of it was of 2026-01-01T12:00:00Z."}},
		"NoRequest":   {preview, "run", dropped, http.StatusBadGateway, []string{"no evaluation of it was requested."}},
		"ServerBusy":  {preview, "run", apierrors.NewTooManyRequests("busy", 1), http.StatusTooManyRequests, []string{"Nothing was changed."}},
		"NotReadable": {strings.Replace(preview, "name: preview", "name: other", 1), "run", dropped, http.StatusBadGateway, []string{"It cannot be read either"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, &commands{err: tc.err}, object(t, tc.object))
			got := s.ask(http.MethodPost, "/cleaners/team/preview/"+tc.change, url.Values{csrfField: {s.guard.csrf}})
			if got.Code != tc.want {
				t.Errorf("status %d", got.Code)
			}
			wants(t, got.Body.String(), tc.says...)
			if said := strings.Contains(got.Body.String(), "Nothing was changed."); said != (name == "ServerBusy") {
				t.Errorf("says that nothing was changed: %v", said)
			}
		})
	}
}

// What a page says about a change is what the Cleaner shows: not what the address says.
func TestNotices(t *testing.T) {
	suspended := strings.Replace(preview, "spec: {", "spec: {suspend: true, ", 1)
	requested := func(text string) string {
		return strings.Replace(text, "generation: 2}", `generation: 2, annotations: {cleaner.vtex.dev/requestedAt: "2026-01-01T12:00:00Z"}}`, 1)
	}
	for name, tc := range map[string]struct{ object, said, want string }{
		"Suspended":         {suspended, "suspend", "Suspended. It stops before its next request."},
		"SuspendOfActive":   {preview, "suspend", ""},
		"Resumed":           {preview, "resume", "Resumed. The operator evaluates it at once."},
		"ResumeOfSuspended": {suspended, "resume", ""},
		"Requested":         {requested(preview), "run", "Evaluation requested. The operator evaluates it now."},
		"RequestSuspended":  {requested(suspended), "run", "Evaluation requested. It is suspended, and does nothing until it is resumed."},
		"NotRequested":      {preview, "run", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := newSite(t, &commands{}, object(t, tc.object)).page(http.StatusOK, "/cleaners/team/preview?said="+tc.said)
			if tc.want == "" {
				if strings.Contains(got, `class="notice"`) {
					t.Errorf("there is a notice in:\n%s", got)
				}
				return
			}
			wants(t, got, `role="status">`+tc.want)
		})
	}
}

// Statuses say where it failed: in the request, or on the way to the cluster.
func TestStatuses(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	s.page(http.StatusBadRequest, "/cleaners/team/a%2fb")
	s.page(http.StatusBadRequest, "/cleaners/a%25b/preview/plan")
	s.page(http.StatusNotFound, "/cleaners/team/nothing")
	if got := s.ask(http.MethodPost, "/cleaners/team/a%2fb/suspend", url.Values{csrfField: {s.guard.csrf}}); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "Nothing was changed.") {
		t.Errorf("a change of an invalid name: status %d", got.Code)
	}
	s.Client.(*dynamicfake.FakeDynamicClient).PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, &url.Error{Op: "Get", URL: "https://cluster.example", Err: syscall.ECONNREFUSED}
	})
	wants(t, s.page(http.StatusBadGateway, "/cleaners/team/preview"), "connection refused")
}
