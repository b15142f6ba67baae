// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsontrim makes the JSON that an API server sends shallow while it arrives, before a client decodes it. An API server stores an
// object that is as deep as decoders allow; in a list or an event of a watch it is deeper, and then a client fails to decode all of it.
//
// It removes metadata.managedFields, which a user may fill without any webhook being asked, and cuts values that are nested too deep. It
// marks the objects that it cuts. For clients that ask for it, it also removes other metadata of the kinds of a group. It changes nothing
// else. Its memory does not depend on what is sent.
package jsontrim

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// maxDepth is how deep an object is nested at most. Decoders allow 10,000, and no kind of Kubernetes needs more than a few dozen.
const maxDepth = 1000

// cutKey marks an object that was cut. A user who writes it into an object only makes that object unreadable.
const cutKey = "\x00cut"

// errTooDeep says that something of an object was cut.
var errTooDeep = fmt.Errorf("it is nested more than %d deep; select objects without it", maxDepth)

// CheckWhole returns an error for the content of an object that was cut: only its metadata can be relied on.
func CheckWhole(content map[string]any) error {
	if content[cutKey] != nil {
		return errTooDeep
	}
	return nil
}

// LimitDepth makes all responses shallow to clients that are made of a configuration from now on.
func LimitDepth(config *rest.Config) {
	root := findRoot(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next, root, Kept{}} })
}

// Kept is what clients keep of the metadata of the kinds of a group. Labels, owners and managedFields are dropped. A client that drops
// metadata must never write an object as a whole, nor show it.
type Kept struct {
	// Group is the API group of the kinds.
	Group string
	// Annotations are the names of those that are kept.
	Annotations []string
	// Finalizers is how many of them are kept in lists and events, at least one, and Finalizer is kept after these too.
	Finalizers int
	Finalizer  string
}

// isAnnotation says that an annotation is kept whose name is a text of JSON. The API server escapes nothing in such names.
func (k *Kept) isAnnotation(text []byte) bool {
	return len(text) > 2 && slices.Contains(k.Annotations, string(text[1:len(text)-1]))
}

// isFinalizer says that a text of JSON is the finalizer that is kept.
func (k *Kept) isFinalizer(text []byte) bool {
	return len(text) > 2 && string(text[1:len(text)-1]) == k.Finalizer
}

// LimitMetadata does what LimitDepth does, and keeps of the metadata of some kinds only a part. The annotation by which the API server says that
// a watch has sent all that there was is kept too: without it a cache would never be synced.
func LimitMetadata(config *rest.Config, kept Kept) {
	root := findRoot(config)
	kept.Annotations = append(slices.Clone(kept.Annotations), metav1.InitialEventsAnnotationKey)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next, root, kept} })
}

// WrapClient returns an HTTP client of a configuration whose responses are shallow.
func WrapClient(config *rest.Config, client *http.Client) *http.Client {
	next := client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	out := *client
	out.Transport = &transport{next, findRoot(config), Kept{}}
	return &out
}

// findRoot returns the path below which the API server serves, such as the path of a cluster behind a gateway.
func findRoot(config *rest.Config) string {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil { // without an address there are no clients
		return "/"
	}
	return strings.TrimSuffix(server.Path, "/") + "/"
}

type transport struct {
	next http.RoundTripper
	root string
	kept Kept // without a group: all
}

// filtered is in the context of a request whose response an outer transport makes shallow.
type filtered struct{}

// RoundTrip sends a request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	s := t.findShape(r)
	if s == opaque || r.Context().Value(filtered{}) != nil {
		return t.next.RoundTrip(r)
	}
	resp, err := t.next.RoundTrip(r.WithContext(context.WithValue(r.Context(), filtered{}, true)))
	if err != nil || resp.Body == nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") || resp.Header.Get("Content-Encoding") != "" {
		return resp, err
	}
	made := filter{shape: s}
	if t.kept.Group != "" && strings.HasPrefix(r.URL.Path, t.root+"apis/"+t.kept.Group+"/") {
		made.kept = &t.kept
	}
	resp.Body = &body{Closer: resp.Body, in: resp.Body, filter: made}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	return resp, nil
}

// WrappedRoundTripper lets client-go find what is inside.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// findShape finds out from a request where the objects in its response are.
func (t *transport) findShape(r *http.Request) shape {
	path, below := strings.CutPrefix(r.URL.Path, t.root)
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	skip := map[string]int{"api": 2, "apis": 3}[parts[0]] // api/v1/pods, apis/apps/v1/deployments
	if !below || skip == 0 || len(parts) <= skip {
		return opaque
	}
	parts = parts[skip:]
	switch watch := r.URL.Query().Get("watch"); {
	case r.Method != http.MethodGet:
		return object
	case watch != "" && watch != "0" && watch != "false":
		return events
	case len(parts) > 2 && parts[0] == "namespaces":
		parts = parts[2:]
	}
	if len(parts) == 1 {
		return list
	}
	return object
}

// body is a response that is made shallow while it is read.
type body struct {
	io.Closer
	in     io.Reader
	filter filter
	// buffer is what was read of it, and space where the filter writes.
	buffer, space []byte
	// out is what may be read, and err what comes after that.
	out []byte
	err error
}

// bufferSize is how much is read at once.
const bufferSize = 32 << 10

// Read returns as soon as there is anything to read.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.buffer == nil {
		b.buffer = make([]byte, bufferSize)
	}
	for len(b.out) == 0 && b.err == nil {
		var n int
		n, b.err = b.in.Read(b.buffer)
		b.space = b.filter.appendShallow(b.space[:0], b.buffer[:n])
		b.out = b.space
	}
	if len(b.out) == 0 {
		return 0, b.err
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	return n, nil
}
