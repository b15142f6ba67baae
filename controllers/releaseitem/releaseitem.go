// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package releaseitem makes the items of a target of Helm releases: of the Secret in which Helm keeps the record of a revision, what
// expressions read of it. One function makes them for watches, live reads and files.
//
// A user who may write Secrets writes records. So a record is read as a stream, up to where its head ends and within bounds; what the
// Secret says beside it has to agree; and an item has nothing of a record that cannot be read but the reason. The manifest, the values
// and the rest of a record are in no item.
//
// It is pure, without Helm.
package releaseitem

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/internal/jsonscan"
	"github.com/vtex/cleaner/controllers/internal/recordtext"
)

const (
	// maxHead is how much of an unpacked record is read. Helm writes the head first.
	maxHead = 1 << 20
	// maxText bounds each text of an item.
	maxText = 1 << 10
	// maxRevision has as many digits as a revision may have.
	maxRevision = 1_000_000_000
	// minYear and maxYear bound times: no release was deployed at others, and expressions fail where the difference of two times is more than 292 years.
	minYear, maxYear = 1970, 2199

	// unreadableField says of an item why its record cannot be read.
	unreadableField = "unreadable"
)

// Item is what expressions read of a revision of a release. It says what the fields of an item are called, and of what types they are.
type Item struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Type       string            `json:"type"`

	Name          string            `json:"name"`
	Namespace     string            `json:"namespace"`
	Revision      int64             `json:"revision"`
	Status        string            `json:"status"`
	Chart         Chart             `json:"chart"`
	AppVersion    string            `json:"appVersion"`
	FirstDeployed metav1.Time       `json:"firstDeployed"`
	LastDeployed  metav1.Time       `json:"lastDeployed"`
	Labels        map[string]string `json:"labels"`
	Unreadable    string            `json:"unreadable"`
}

// Chart is the chart of a revision.
type Chart struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// MakeSchema returns the schema of an item. Other texts than the usual ones are likely mistakes where a status is meant. Of what the Secret and the
// record have besides, it says where else that is, or that expressions cannot read it.
func MakeSchema() *objectschema.Schema {
	s := objectschema.OfGoType(reflect.TypeFor[Item]())
	s.Fields["status"].Usual = []string{
		"deployed", "failed", "pending-install", "pending-rollback", "pending-upgrade", "superseded", "uninstalled", "uninstalling", "unknown",
	}
	s.Hints = map[string]string{
		"version": "it is revision, or chart.version for the version of the chart",
		"info":    "status, firstDeployed and lastDeployed are fields of the item itself",
	}
	for _, key := range []string{"config", "data", "hooks", "manifest", "notes", "templates", "values"} {
		s.Hints[key] = "expressions cannot read the record itself, such as its manifest and its values"
	}
	return s
}

// ListSources returns what an item is made of.
func ListSources() *projection.Projection {
	return projection.Merge(projection.KeepPath("apiVersion"), projection.KeepPath("kind"), projection.KeepPath("metadata"),
		projection.KeepPath("type"), projection.KeepPath("data", "release"))
}

// MakeItem returns the item of a Secret: of its content, or, if that could not be read, of its metadata and the reason. The content is not changed,
// and the item shares its metadata.
func MakeItem(secret map[string]any, unread error) map[string]any {
	item := make(map[string]any, len(secret)+8)
	item["apiVersion"], item["kind"] = "v1", "Secret" // what could not be read may not say so
	if unread != nil {
		item["type"] = v1alpha1.ReleaseSecretType // by which it was asked for
	}
	for _, key := range []string{"metadata", "type"} {
		if value, found := secret[key]; found {
			item[key] = value
		}
	}
	if metadata, ok := item["metadata"].(map[string]any); ok && metadata["managedFields"] != nil {
		metadata = maps.Clone(metadata)
		delete(metadata, "managedFields")
		item["metadata"] = metadata
	}
	var h *head
	err := unread
	if err == nil {
		h, err = readSecret(secret)
	}
	if err != nil {
		item[unreadableField] = cleanReason(err.Error())
		return item
	}
	h.addTo(item)
	return item
}

// FindProblem returns why an item has nothing of the record; empty if it has.
func FindProblem(item map[string]any) string {
	why, _ := item[unreadableField].(string)
	return why
}

// cleanReason shortens a reason, and replaces what cannot be seen: a part of it is what a user has written.
func cleanReason(why string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(why[:min(len(why), maxText)], ""))
}

// head is what is read of a revision.
type head struct {
	name, namespace, status             string
	revision                            int64
	chartName, chartVersion, appVersion string
	firstDeployed, lastDeployed         string
	labels                              map[string]any
	// parts are those of the record that have been read.
	parts struct{ name, info, chart bool }
}

// addTo adds the fields of a head to an item. What the record does not say is absent.
func (h *head) addTo(item map[string]any) {
	item["name"], item["namespace"], item["revision"], item["status"], item["labels"] = h.name, h.namespace, h.revision, h.status, h.labels
	chart := map[string]any{}
	for _, f := range []struct {
		to          map[string]any
		name, value string
	}{
		{chart, "name", h.chartName},
		{chart, "version", h.chartVersion},
		{item, "appVersion", h.appVersion},
		{item, "firstDeployed", h.firstDeployed},
		{item, "lastDeployed", h.lastDeployed},
	} {
		if f.value != "" {
			f.to[f.name] = f.value
		}
	}
	if len(chart) > 0 {
		item["chart"] = chart
	}
}

// readSecret reads the head of the record in a Secret. The name and the labels of the Secret have to say the same: by them Helm finds the record, and
// protection knows a superseded revision.
func readSecret(secret map[string]any) (*head, error) {
	if secret["type"] != v1alpha1.ReleaseSecretType {
		return nil, errors.New("the Secret is not of type " + v1alpha1.ReleaseSecretType)
	}
	metadata, _ := secret["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	label := func(key string) string { text, _ := labels[key].(string); return text }
	data, _ := secret["data"].(map[string]any)
	packed, _ := data["release"].(string)
	if packed == "" {
		return nil, errors.New("the Secret has no data.release")
	}
	if label(v1alpha1.ReleaseOwnerLabel) != v1alpha1.ReleaseOwner {
		return nil, errors.New("the Secret does not have the label owner: helm")
	}
	h, err := readHead(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	if err != nil {
		return nil, fmt.Errorf("data.release: %w", err)
	}
	h.namespace, _ = metadata["namespace"].(string)
	if h.revision, err = strconv.ParseInt(label("version"), 10, 64); err != nil || h.revision <= 0 || h.revision >= maxRevision {
		return nil, fmt.Errorf("the label version of the Secret is %q, not a revision", cutText(label("version")))
	}
	switch name, want := metadata["name"], fmt.Sprintf("%s%s.v%d", v1alpha1.ReleaseSecretPrefix, h.name, h.revision); {
	case label("name") != h.name:
		return nil, fmt.Errorf("the record is of release %q, and the label name of the Secret is %q", cutText(h.name), cutText(label("name")))
	case label("status") != h.status:
		return nil, fmt.Errorf("the record has the status %q, and the label status of the Secret is %q", cutText(h.status), cutText(label("status")))
	case name != want:
		return nil, fmt.Errorf("the record is of Secret %q by its release and revision, and not of this one", cutText(want))
	}
	h.labels = map[string]any{}
	for key, value := range labels {
		if !slices.Contains(systemLabels, key) {
			h.labels[key] = value
		}
	}
	return h, nil
}

// systemLabels are those that Helm itself gives the Secret of a record; the others are the release's.
var systemLabels = []string{"name", "owner", "status", "version", "createdAt", "modifiedAt"} //nolint:gochecknoglobals // never changes

// cutText shortens a text of a user for a message.
func cutText(text string) string { return text[:min(len(text), 100)] }

// readHead reads the head of a record: as far as its name, its info and what it says of its chart.
func readHead(data io.Reader) (*head, error) {
	text, err := recordtext.Unpack(data)
	if err != nil {
		return nil, err
	}
	h := &headReader{Scanner: jsonscan.New(text, maxHead)}
	h.readParts()
	switch err := h.Err(); {
	case err != nil:
		return nil, err
	case h.name == "":
		return nil, errors.New("it has no name")
	case h.status == "":
		return nil, errors.New("it has no status")
	}
	return &h.head, nil
}

// headReader reads a head from its JSON.
type headReader struct {
	*jsonscan.Scanner
	head
}

// readParts reads the record until all of the head is there.
func (h *headReader) readParts() {
	part := func(done *bool, read func()) func() {
		return func() {
			read()
			if *done = true; h.parts.name && h.parts.info && h.parts.chart {
				h.Stop()
			}
		}
	}
	h.ReadObject(map[string]func(){
		"name": part(&h.parts.name, h.newTextReader("name", &h.name)),
		"info": part(&h.parts.info, h.readInfo),
		"chart": func() {
			h.ReadObject(map[string]func(){"metadata": part(&h.parts.chart, h.readChart)})
		},
	})
}

// newTextReader returns a function that reads a text.
func (h *headReader) newTextReader(what string, into *string) func() {
	return func() { *into = h.ReadText(what, maxText) }
}

func (h *headReader) readInfo() {
	h.ReadObject(map[string]func(){
		"status":         h.newTextReader("status", &h.status),
		"first_deployed": h.newTimeReader(&h.firstDeployed),
		"last_deployed":  h.newTimeReader(&h.lastDeployed),
	})
}

func (h *headReader) readChart() {
	h.ReadObject(map[string]func(){
		"name":       h.newTextReader("name of the chart", &h.chartName),
		"version":    h.newTextReader("version of the chart", &h.chartVersion),
		"appVersion": h.newTextReader("appVersion of the chart", &h.appVersion),
	})
}

// newTimeReader returns a function that reads a time, and writes it as Kubernetes does. Helm writes "" where there is none.
func (h *headReader) newTimeReader(into *string) func() {
	return func() {
		text := h.ReadText("time", maxText)
		if text == "" {
			return
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			h.SetError("it has %q where a time should be", cutText(text))
			return
		}
		if at = at.UTC(); at.IsZero() {
			return
		}
		if at.Year() < minYear || at.Year() > maxYear {
			h.SetError("it has a time of the year %d", at.Year())
			return
		}
		*into = at.Format(time.RFC3339)
	}
}
