// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	_ "golang.org/x/crypto/x509roots/fallback" // so that https works in an image without certificates
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

const (
	// TypeCleaned is the type of the event of a run that deleted all that it was to delete. What is sent on from it may
	// rely on the objects being gone.
	TypeCleaned = "dev.vtex.cleaner.cleaned.v1"
	// TypePartial is the type of the event of any other run: something was left.
	TypePartial = "dev.vtex.cleaner.partial.v1"
)

const (
	maxData    = 64 << 10 // bytes
	maxObjects = 200
	maxMessage = 1024 // bytes
)

// CleanerRef says whose run it is.
type CleanerRef struct {
	// Kind is "Cleaner".
	Kind string
	// Namespace is empty for a kind that lives in none.
	Namespace string
	// Name is the Cleaner's name.
	Name string
	// UID tells the Cleaner from another one that had its name.
	UID types.UID
}

// RefOf names a Cleaner.
func RefOf(c v1alpha1.Owner) CleanerRef {
	return CleanerRef{Kind: v1alpha1.KindOf(c), Namespace: c.GetNamespace(), Name: c.GetName(), UID: c.GetUID()}
}

// isClusterScoped reports whether the run belongs to a ClusterCleaner, which only administrators write.
func (c CleanerRef) isClusterScoped() bool { return c.Namespace == "" }

// eventData is what the event says. Its lists are never null.
type eventData struct {
	Cleaner    eventCleaner    `json:"cleaner"`
	Run        int64           `json:"run"`
	Result     v1alpha1.Result `json:"result"`
	Message    string          `json:"message,omitempty"`
	DecidedAt  string          `json:"decidedAt"`
	FinishedAt string          `json:"finishedAt"`
	Helm       *eventRelease   `json:"helm,omitempty"`
	// Counts, unlike Objects, are about all objects of the run.
	Counts   []v1alpha1.Count    `json:"counts"`
	Withheld []v1alpha1.Withheld `json:"withheld"`
	Objects  []eventObject       `json:"objects"`
	// Truncated says that the lists do not hold all there was.
	Truncated bool `json:"truncated"`
	// Data is the value of the Cleaner's cloudEventData when the run was decided on. It is never cut.
	Data json.RawMessage `json:"data,omitempty"`
}

type eventCleaner struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

type eventRelease struct {
	Name     string           `json:"name"`
	Revision int64            `json:"revision"`
	Outcome  v1alpha1.Outcome `json:"outcome,omitempty"`
}

type eventObject struct {
	Rule      string           `json:"rule"`
	Resource  string           `json:"resource"`
	Namespace string           `json:"namespace,omitempty"`
	Name      string           `json:"name"`
	UID       types.UID        `json:"uid"`
	Outcome   v1alpha1.Outcome `json:"outcome"`
}

// NewEvent makes the event of a finished run from what is recorded in the run alone, so that every attempt is equal.
func NewEvent(c CleanerRef, run *v1alpha1.Run) (cloudevents.Event, error) {
	if c.Kind == "" || c.Name == "" || c.UID == "" {
		return cloudevents.Event{}, errors.New("cannot make an event: the Cleaner's kind, name or UID is missing")
	}
	if run.Number < 1 || run.Result == "" || run.FinishedAt == nil {
		return cloudevents.Event{}, fmt.Errorf("cannot make an event: run %d is not finished", run.Number)
	}
	content, err := encodeData(c, run)
	if err != nil {
		return cloudevents.Event{}, err
	}

	e := cloudevents.New(cloudevents.CloudEventsVersionV1)
	e.SetID(fmt.Sprintf("%s-%d", c.UID, run.Number))
	e.SetSource(formatSource(c))
	e.SetSubject(string(c.UID))
	e.SetType(TypePartial)
	if run.Result == v1alpha1.ResultCompleted && len(run.Withheld) == 0 {
		e.SetType(TypeCleaned)
	}
	e.SetTime(truncateTime(run.FinishedAt.Time))
	if err := e.SetData(cloudevents.ApplicationJSON, json.RawMessage(content)); err != nil {
		return cloudevents.Event{}, fmt.Errorf("cannot make an event: %w", err)
	}
	if err := e.Validate(); err != nil {
		return cloudevents.Event{}, fmt.Errorf("cannot make an event: %w", err)
	}
	return e, nil
}

// formatSource returns the path under which the API server serves the Cleaner.
func formatSource(c CleanerRef) string {
	path := "/apis/" + v1alpha1.GroupVersion.String()
	if c.Namespace != "" {
		path += "/namespaces/" + c.Namespace
	}
	return path + "/" + strings.ToLower(c.Kind) + "s/" + c.Name
}

// truncateTime returns the time as the API server keeps it: a run that was just written must give the same event as the same run
// read back.
func truncateTime(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// encodeData writes the event's data, as much of it as may be sent.
func encodeData(c CleanerRef, run *v1alpha1.Run) ([]byte, error) {
	d := eventData{
		Cleaner:    eventCleaner(c),
		Run:        run.Number,
		Result:     run.Result,
		Message:    truncateText(run.Message, maxMessage),
		DecidedAt:  truncateTime(run.DecidedAt.Time).Format(time.RFC3339),
		FinishedAt: truncateTime(run.FinishedAt.Time).Format(time.RFC3339),
		Counts:     append([]v1alpha1.Count{}, run.Counts...),
		Withheld:   append([]v1alpha1.Withheld{}, run.Withheld...),
		Objects:    []eventObject{},
		Data:       json.RawMessage(run.Data),
	}
	if run.Data != "" && !json.Valid(d.Data) {
		return nil, errors.New("cannot make an event: status.run.data is not JSON")
	}
	if run.Helm != nil {
		d.Helm = &eventRelease{Name: run.Helm.Name, Revision: run.Helm.Revision, Outcome: run.Helm.Outcome}
	}
	for _, o := range run.Outcomes[:min(len(run.Outcomes), maxObjects)] {
		row, err := runrow.ParseRow(o.Row)
		if err != nil {
			continue // another version wrote it; the counts have it
		}
		d.Objects = append(d.Objects, eventObject{
			Rule: row.Rule, Resource: observed.ResourceName(row.Resource),
			Namespace: row.Namespace, Name: row.Name, UID: row.UID, Outcome: o.Outcome,
		})
	}
	var all int64
	for _, n := range run.Counts {
		all += n.Count
	}
	d.Truncated = all > int64(len(d.Objects))
	return d.encodeWithin(maxData)
}

// encodeWithin writes as many of the lists' entries as fit into limit bytes. Objects are dropped first, from the end, then
// withheld ones, then counts.
func (d eventData) encodeWithin(limit int) ([]byte, error) {
	entries := len(d.Counts) + len(d.Withheld) + len(d.Objects)
	var failed error
	dropped, _ := sort.Find(entries, func(n int) int {
		text, err := json.Marshal(d.truncateTo(entries - n))
		failed = errors.Join(failed, err)
		return len(text) - limit
	})
	text, err := json.Marshal(d.truncateTo(entries - dropped))
	if err := errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("cannot write an event: %w", err)
	}
	return text, nil
}

// truncateTo returns the data with the first n entries of its lists.
func (d eventData) truncateTo(n int) eventData {
	entries := len(d.Counts) + len(d.Withheld) + len(d.Objects)
	d.Truncated = d.Truncated || n < entries
	counts := min(n, len(d.Counts))
	withheld := min(n-counts, len(d.Withheld))
	d.Objects = d.Objects[:n-counts-withheld]
	d.Counts, d.Withheld = d.Counts[:counts], d.Withheld[:withheld]
	return d
}

// truncateText shortens text to at most limit bytes, between characters. Unlike sanitize.CutToBytes it leaves the bytes before as they are.
func truncateText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// maxAnswer bounds what is read of an answer's header, and of its body.
const maxAnswer = 64 << 10

// timeouts bound one attempt. They pass by the wall clock, as the network does.
type timeouts struct {
	connect, header, total time.Duration
	// concealFor is how long after its begin an attempt without an answer is shown: what it tells is the same whatever
	// happened.
	concealFor time.Duration
}

// newClient makes the HTTP client of all attempts for tenants, or for those who run the cluster. Each attempt has a
// connection of its own, so that each is judged by the address that the sink's name stands for now.
func newClient(o Options, t timeouts, tenants bool) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		permitted := dialPolicy{Policy: o.Policy, forTenants: tenants}
		if tenants && o.ClusterAddresses != nil {
			var err error
			if permitted.clusterAddresses, err = o.ClusterAddresses(ctx); err != nil {
				return nil, fmt.Errorf("%w: %w", errUnknownCluster, err)
			}
		}
		dialer := &net.Dialer{Timeout: t.connect, Control: permitted.checkAddress, Resolver: o.Resolver}
		return dialer.DialContext(ctx, network, address)
	}
	return &http.Client{
		Timeout: t.total,
		Transport: &http.Transport{
			DialContext:            dial,
			TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    t.connect,
			ResponseHeaderTimeout:  t.header,
			MaxResponseHeaderBytes: maxAnswer,
			DisableKeepAlives:      true,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// postEvent sends the event in the binary mode of CloudEvents over HTTP, with more headers, and gives the answer's status code and header.
func postEvent(ctx context.Context, client *http.Client, sink string, auth http.Header, e cloudevents.Event) (int, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, sink, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("cannot make a request: %w", err)
	}
	req.Header.Set("User-Agent", "cleaner.vtex.dev")
	if err := cehttp.WriteRequest(binding.WithForceBinary(ctx), binding.ToMessage(&e), req); err != nil {
		return 0, nil, fmt.Errorf("cannot write the event: %w", err)
	}
	maps.Copy(req.Header, auth)
	resp, err := client.Do(req)
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err // a URL may hold a secret in its query
	}
	if err != nil {
		return 0, nil, fmt.Errorf("cannot send the event: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // the answer has been given; how it ends changes nothing
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, resp.Header, nil
}
