// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/jsontrim"
)

// NewClient returns a dynamic client that decodes lists and watches within these bounds. Its results are those of any dynamic client,
// except:
//
//   - managedFields may be missing.
//   - The objects of watch events may be of type Object.
//   - A deleted object has only what identifies it and its version.
//   - An object that is too large for the process, nested too deep, or impossible in JSON, has only its metadata in lists and watches, and
//     Object.Content and UnreadReason say why. A read of it alone fails, or UnreadReason says why.
//
// After ErrNotBinary, the next request is answered from JSON.
func NewClient(config *rest.Config, http *http.Client, clock clock.PassiveClock) (dynamic.Interface, error) {
	http = jsontrim.WrapClient(config, http)
	text, err := newTextClient(config, http)
	if err != nil {
		return nil, err
	}
	return &client{config: config, http: http, clock: clock, text: text, binary: map[schema.GroupVersionResource]*binaryClient{}}, nil
}

// newTextClient returns a dynamic client that reads JSON, and refuses what is too large as NewClient does.
func newTextClient(config *rest.Config, http *http.Client) (dynamic.Interface, error) {
	text, err := rest.UnversionedRESTClientForConfigAndClient(textConfig(config), http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a dynamic client: %w", err)
	}
	return dynamic.New(text), nil
}

type client struct {
	config *rest.Config
	http   *http.Client
	clock  clock.PassiveClock
	text   dynamic.Interface

	mu     sync.Mutex
	binary map[schema.GroupVersionResource]*binaryClient
}

// textFor is how long a kind is read as JSON after protobuf has failed: what has made it fail may be over.
const textFor = time.Hour

// binaryClient reads one kind in protobuf.
type binaryClient struct {
	dynamic.Interface
	failed *atomic.Bool
	// textSince is when it was first read as JSON, because it has failed.
	textSince time.Time
}

// inText says that the kind is read as JSON, because reading protobuf has failed not long ago.
func (b *binaryClient) inText(now time.Time) bool {
	if !b.failed.Load() {
		return false
	}
	if b.textSince.IsZero() {
		b.textSince = now
	}
	if now.Sub(b.textSince) < textFor {
		return true
	}
	b.textSince = time.Time{}
	b.failed.Store(false)
	return false
}

// IsKnown says that the types of a version of a group are those of Kubernetes itself, which this program knows.
func IsKnown(gv schema.GroupVersion) bool { return scheme.Scheme.IsVersionRegistered(gv) }

// Resource reads a kind in protobuf if this program knows its version of it, unless that has failed within textFor.
func (c *client) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	if !IsKnown(gvr.GroupVersion()) {
		return c.text.Resource(gvr)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.binary[gvr]
	if b == nil {
		failed := &atomic.Bool{}
		rest, err := rest.UnversionedRESTClientForConfigAndClient(binaryConfig(c.config, failed), c.http)
		if err != nil { // as it did not for text, of the same configuration
			return c.text.Resource(gvr)
		}
		b = &binaryClient{Interface: dynamic.New(rest), failed: failed}
		c.binary[gvr] = b
	}
	if b.inText(c.clock.Now()) {
		return c.text.Resource(gvr)
	}
	return b.Resource(gvr)
}
