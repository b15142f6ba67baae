// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// NewClient returns a dynamic client whose lists and watches are read so. What they give is what any dynamic client gives,
// but for managedFields, which may be missing; for the events of a watch, whose objects may be an Object each; and for
// objects that were deleted, of which there is what names them and their version, and nothing else. Of an object that is too
// large for the process a watch and a list give the metadata, and Object.Content and UnreadReason say why; a read of it alone fails.
func NewClient(config *rest.Config, http *http.Client) (dynamic.Interface, error) {
	text, err := NewTextClient(config, http)
	if err != nil {
		return nil, err
	}
	return &client{config: config, http: http, text: text, binary: map[schema.GroupVersionResource]*binaryClient{}}, nil
}

// NewTextClient returns a dynamic client that reads JSON, and refuses what is too large as NewClient does.
func NewTextClient(config *rest.Config, http *http.Client) (dynamic.Interface, error) {
	text, err := rest.UnversionedRESTClientForConfigAndClient(textConfig(config), http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a dynamic client: %w", err)
	}
	return dynamic.New(text), nil
}

type client struct {
	config *rest.Config
	http   *http.Client
	text   dynamic.Interface

	mu     sync.Mutex
	binary map[schema.GroupVersionResource]*binaryClient
}

// binaryClient reads one kind in protobuf.
type binaryClient struct {
	dynamic.Interface
	failed *atomic.Bool
}

// Resource reads a kind in protobuf if this program knows its version of it, unless that has failed once.
func (c *client) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	if !scheme.Scheme.IsVersionRegistered(gvr.GroupVersion()) {
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
		b = &binaryClient{dynamic.New(rest), failed}
		c.binary[gvr] = b
	}
	if b.failed.Load() {
		return c.text.Resource(gvr)
	}
	return b.Resource(gvr)
}
