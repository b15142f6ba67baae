// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Verify says whether the operator has sent a request. The key is the value of the Secret, and body is all of the request's.
func Verify(key, body []byte, h http.Header, now time.Time) bool {
	sent, err := strconv.ParseInt(h.Get("Webhook-Timestamp"), 10, 64)
	if err != nil || now.Sub(time.Unix(sent, 0)).Abs() > 5*time.Minute {
		return false // an attacker may repeat what was sent long ago
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return hmac.Equal([]byte(want), []byte(h.Get("Webhook-Signature")))
}
