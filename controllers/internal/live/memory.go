// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// perByte is how many bytes of memory a byte of a response counts for while it arrives: until it is known what it holds.
	perByte = 8
	// perValue and perEntry are what a value takes in memory, and an entry of a map.
	perValue, perEntry = 32, 48
)

// meteredTransport takes memory for responses while they arrive.
type meteredTransport struct{ next http.RoundTripper }

// meterClient returns a client that takes memory for each response, from the Memory of the request's context.
func meterClient(c *http.Client) *http.Client {
	out := *c
	if out.Transport == nil {
		out.Transport = http.DefaultTransport
	}
	out.Transport = meteredTransport{out.Transport}
	return &out
}

// RoundTrip sends a request.
func (t meteredTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		resp.Body = meteredBody{resp.Body, r.Context()}
	}
	return resp, err
}

// meteredBody ends with an error where there is no memory for more.
type meteredBody struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // that of the request, as in net/http
}

// Read reads on.
func (b meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if full := snapshot.TakeBytes(b.ctx, int64(n)*perByte); full != nil {
		return n, full
	}
	return n, err
}

// counted is a Memory that knows how much was taken.
type counted struct {
	ctx   context.Context //nolint:containedctx // it has the Memory that is asked
	taken atomic.Int64
}

// TakeBytes takes so many bytes more.
func (c *counted) TakeBytes(bytes int64) error {
	c.taken.Add(bytes)
	return snapshot.TakeBytes(c.ctx, bytes)
}

// countMemory gives a context for reads whose memory is counted.
func countMemory(ctx context.Context) (context.Context, *counted) {
	c := &counted{ctx: ctx}
	return snapshot.WithMemory(ctx, c), c
}

// settle takes what an object or a list holds, in the place of what was taken for its bytes.
func (c *counted) settle(read runtime.Unstructured) error {
	total := int64(0)
	if list, many := read.(*unstructured.UnstructuredList); many {
		for i := range list.Items {
			total += measureValue(list.Items[i].Object)
		}
	} else {
		total = measureValue(read.UnstructuredContent())
	}
	return c.TakeBytes(total - c.taken.Load())
}

// measureValue is about how many bytes a value of JSON takes.
func measureValue(v any) int64 {
	total := int64(perValue)
	switch v := v.(type) {
	case string:
		total += int64(len(v))
	case map[string]any:
		total += 4 * perEntry // a small map has room for some
		for k, item := range v {
			total += perEntry + int64(len(k)) + measureValue(item)
		}
	case []any:
		for _, item := range v {
			total += measureValue(item)
		}
	}
	return total
}
