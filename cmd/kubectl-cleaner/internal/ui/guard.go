// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// loopback is where the pages are served: connections come from this machine.
const loopback = "127.0.0.1"

// policy is the Content-Security-Policy: styles, scripts, pictures and connections of our own, and nothing inline.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// csrfField is the field of forms that proves that a page of ours sent them.
const csrfField = "csrf"

// httpPort is the port of addresses that contain none.
const httpPort = 80

// guard decides which requests are answered.
type guard struct {
	hosts []string
	// session is the value of the cookie, and csrf the value of the field of forms.
	session, csrf, cookie string

	mu sync.Mutex
	// token is in the address that the command prints; empty once it was used.
	token string
}

// newGuard returns a guard with new secrets.
func newGuard(port int) (*guard, error) {
	g := &guard{cookie: fmt.Sprintf("cleaner-ui-%d", port)}
	for _, secret := range []*string{&g.token, &g.session, &g.csrf} {
		*secret = rand.Text()
	}
	for _, host := range []string{loopback, "::1", "localhost"} {
		address := net.JoinHostPort(host, fmt.Sprint(port))
		g.hosts = append(g.hosts, address)
		if port == httpPort { // browsers leave it out
			g.hosts = append(g.hosts, strings.TrimSuffix(address, fmt.Sprint(":", port)))
		}
	}
	return g, nil
}

// protect lets requests through that the user's browser sends for one of our pages, and sets the headers of all responses.
func (g *guard) protect(s *Server, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		known := g.hasSession(r)
		boundConnection(w, r, s.Clock.Now(), known)
		switch {
		case !slices.Contains(g.hosts, r.Host):
			// A name that was made to point to this machine is another site for the browser, and its scripts may read what it gets.
			http.Error(w, "This host name is not served.", http.StatusMisdirectedRequest)
		case s.pages.serveAsset(w, r):
		case g.takeToken(w, r):
		case !known:
			s.showPage(w, r, http.StatusUnauthorized, &page{Template: "problem", Title: "Open the address that the command printed", Stranger: true, Content: &problem{
				Title:   "Open the address that the command printed",
				Message: "These pages are for the user who started kubectl cleaner ui. The address that it printed works once, in one browser. For another browser, start the command again.",
				Hint:    "If you have just opened that address from another page, continue here:", Retry: "/",
			}})
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			next.ServeHTTP(w, r)
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", "GET, HEAD, POST")
			s.showProblem(w, r, http.StatusMethodNotAllowed, &problem{Title: "This method is not served", Message: "Pages are read with GET, and Cleaners changed with POST."})
		case !g.isOwnForm(w, r):
			s.showProblem(w, r, http.StatusForbidden, &problem{
				Title: "Nothing was changed", Message: "The request does not come from a page of this server, or from one of an earlier start. Reload the page, and try again.",
			})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// boundConnection bounds how long a request takes to arrive. Strangers get an answer, and the connection ends: no body of theirs is read.
func boundConnection(w http.ResponseWriter, r *http.Request, now time.Time, known bool) {
	out := http.NewResponseController(w) // a recorder of tests has no deadlines
	if !known {
		w.Header().Set("Connection", "close")
		_ = out.SetWriteDeadline(now.Add(headerTimeout))
	}
	switch {
	case r.ContentLength == 0: // a deadline would end streams
	case known:
		_ = out.SetReadDeadline(now.Add(headerTimeout))
	default:
		_ = out.SetReadDeadline(now)
	}
}

// setHeaders sets the headers of all responses: nothing is stored, framed, or told to others.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// takeToken exchanges the token in the address for the cookie, once, and leads to the address without it.
func (g *guard) takeToken(w http.ResponseWriter, r *http.Request) bool {
	got := r.URL.Query().Get("token")
	if got == "" || r.Method != http.MethodGet || r.URL.Path != "/" {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token == "" || !isEqual(got, g.token) {
		return false
	}
	g.token = ""
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // loopback has no TLS
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return true
}

// hasSession reports whether the request has the cookie.
func (g *guard) hasSession(r *http.Request) bool {
	cookie, err := r.Cookie(g.cookie)
	return err == nil && isEqual(cookie.Value, g.session)
}

// isOwnForm reports whether a form of one of our pages sends the request. With the referrer policy of our pages, browsers send the origin "null"
// with forms: then they say in Sec-Fetch-Site, which no page can set, that the form is of the same origin.
func (g *guard) isOwnForm(w http.ResponseWriter, r *http.Request) bool {
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	own := origin == "http://"+r.Host && (site == "" || site == "same-origin") || origin == "null" && site == "same-origin"
	if !own || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		return false
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if r.ParseForm() != nil {
		return false
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it has arrived; a recorder of tests has no deadlines
	return isEqual(r.PostForm.Get(csrfField), g.csrf)
}

// isEqual compares a text with a secret, in a time that says nothing about the secret.
func isEqual(got, secret string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(secret)) == 1
}
