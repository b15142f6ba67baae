// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Sink is where events go, and how they show there who has sent them.
type Sink struct {
	// URL is the address.
	URL string
	// Auth is the zero value for a sink that is shown nothing.
	Auth v1alpha1.ClusterSinkAuth
}

// SinkOf is where the events of a Cleaner go by its spec. What shows the sink who has sent them is never a template's.
func SinkOf(c v1alpha1.Owner) Sink {
	sink := Sink{URL: c.Common().CloudEventSink}
	if auth := c.Work().CloudEventSinkAuth; auth != nil {
		sink.Auth = *auth
	}
	return sink
}

// maxSecret is how many bytes a value may have.
const maxSecret = 8 << 10

// secretPrefix is what Standard Webhooks write before a key in base64.
const secretPrefix = "whsec_"

// The headers of a request that is signed, as Standard Webhooks name them.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// buildAuthHeader makes the headers of one attempt that show a sink who has sent it, with the value as it is in its Secret now.
// Errors are for the author of the Cleaner, and never hold the value.
func (s *Sender) buildAuthHeader(ctx context.Context, d *delivery, sink Sink, e cloudevents.Event) (http.Header, error) {
	if sink.Auth == (v1alpha1.ClusterSinkAuth{}) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.secretTimeout)
	defer cancel()
	value, err := s.readSecret(ctx, d.key, d.uid, sink)
	if err != nil {
		return nil, err
	}
	value, err = parseSecretValue(value)
	if err != nil {
		ref := sink.Auth.SecretRef
		return nil, fmt.Errorf("the value of key %q in Secret %q %w", ref.Key, ref.Name, err)
	}
	switch sink.Auth.Type {
	case v1alpha1.SinkAuthBearer:
		return http.Header{"Authorization": {"Bearer " + string(value)}}, nil
	case v1alpha1.SinkAuthHMAC:
		return signWebhook(value, e.ID(), s.clock.Now(), e.Data())
	default:
		return nil, fmt.Errorf("%q is not a type of cloudEventSinkAuth", sink.Auth.Type)
	}
}

// parseSecretValue returns a value without the newline at its end, or why it cannot be used: it goes into a header.
func parseSecretValue(value []byte) ([]byte, error) {
	value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	switch {
	case len(value) == 0:
		return nil, errors.New("is empty")
	case len(value) > maxSecret:
		return nil, fmt.Errorf("is longer than %d bytes", maxSecret)
	case bytes.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return nil, errors.New("has characters other than printable ASCII without spaces, which a header cannot hold")
	}
	return value, nil
}

// signWebhook makes the headers of Standard Webhooks. It signs the event's id, the time and the body, with dots between.
func signWebhook(value []byte, id string, at time.Time, body []byte) (http.Header, error) {
	key := value
	if encoded, ok := bytes.CutPrefix(value, []byte(secretPrefix)); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(string(encoded)); err != nil || len(key) == 0 {
			return nil, errors.New("the value begins with " + secretPrefix + ", and what follows is not base64") // err may hold a part of it
		}
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body) // a hash takes all
	return http.Header{
		headerID: {id}, headerTimestamp: {timestamp}, headerSignature: {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	}, nil
}
