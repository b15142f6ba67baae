// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kindschemas finds the schemas of the kinds of targets: in the OpenAPI documents of an API server, or wherever a Source finds them. It
// reads documents, caches schemas, and has the fields of a spec checked with them. It decides nothing, and changes nothing.
package kindschemas

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/celenv/usage"
	"github.com/vtex/cleaner/controllers/releaseitem"
)

// Source finds schemas.
type Source interface {
	// FindSchema returns the schema of a kind; nil if it is not known. It may be some seconds old.
	FindSchema(ctx context.Context, gvk schema.GroupVersionKind) (*objectschema.Schema, error)
	// Renew has FindSchema return schemas that are as new as this call, and says whether any has changed.
	Renew(ctx context.Context) (changed bool, err error)
}

// SeesKind says whether expressions see objects of the kind of a target, and which it is. Targets of all kinds have none, and of the Secrets of Helm
// releases expressions see items.
func SeesKind(t *v1alpha1.ClusterTarget) (schema.GroupVersionKind, bool) {
	r := &t.Reference
	return schema.GroupVersionKind{Group: r.APIGroup, Version: r.Version, Kind: r.Kind}, t.IsIncluded() && !t.IsOfAnyKind() && !t.IsOfReleases()
}

// FindKinds finds the kinds of the targets that expressions see, by the names of the targets. It leaves out those whose schema is not known. An
// error names the kinds whose schema could not be read; the others are found.
func FindKinds(ctx context.Context, source Source, targets []v1alpha1.ClusterTarget) (map[string]usage.Kind, error) {
	kinds := make(map[string]usage.Kind, len(targets))
	var failed []string
	for i := range targets {
		if targets[i].IsOfReleases() && targets[i].IsIncluded() {
			kinds[targets[i].Name] = usage.Kind{Name: "HelmRelease", Schema: releaseitem.MakeSchema()}
			continue
		}
		gvk, seen := SeesKind(&targets[i])
		if !seen {
			continue
		}
		found, err := source.FindSchema(ctx, gvk)
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", gvk.Kind, err))
		} else if found != nil {
			kinds[targets[i].Name] = usage.Kind{Name: gvk.Kind, Schema: found}
		}
	}
	if len(failed) > 0 {
		return kinds, fmt.Errorf("cannot read the schemas of all kinds: %s", strings.Join(failed, "; "))
	}
	return kinds, nil
}

// CheckFields says which fields the expressions of a spec read that no object has, and what is only likely wrong. What is not checked because a
// schema cannot be read is one warning: that must not keep users from creating Cleaners.
func CheckFields(ctx context.Context, source Source, work *v1alpha1.Work, programs *celenv.Programs) (errs field.ErrorList, likely []expr.Warning) {
	errs, likely, unread := CheckKnownFields(ctx, source, work, programs)
	if unread != nil {
		likely = append(likely, expr.WarnUnchecked(unread.Error()))
	}
	return errs, likely
}

// CheckKnownFields is CheckFields, and says apart why schemas could not be read. What schemas say that are no longer true is no error.
func CheckKnownFields(ctx context.Context, source Source, work *v1alpha1.Work, programs *celenv.Programs) (errs field.ErrorList, likely []expr.Warning, unread error) {
	if work.Validation == v1alpha1.ValidationIgnore {
		return nil, nil, nil
	}
	kinds, err := FindKinds(ctx, source, work.Targets)
	errs, likely = programs.CheckFields(field.NewPath("spec"), kinds)
	if len(errs) > 0 {
		changed, renewed := source.Renew(ctx)
		switch {
		case renewed != nil:
			return nil, nil, renewed
		case changed:
			kinds, err = FindKinds(ctx, source, work.Targets)
			errs, likely = programs.CheckFields(field.NewPath("spec"), kinds)
		}
	}
	return errs, likely, err
}

const (
	// maxKept is how many schemas a Reader keeps. One of a large kind, such as Pod, takes about 300 KiB.
	maxKept = 32
	// maxDocument is how many bytes an OpenAPI document may have.
	maxDocument = 32 << 20
	// keepIndex is how long the list of the documents is used: a spec may have many targets, and many specs may come at once.
	keepIndex = 30 * time.Second
)

// Reader is the Source that reads the OpenAPI v3 documents of an API server. It reads one document at a time.
type Reader struct {
	client rest.Interface
	clock  clock.PassiveClock
	kept   *lru.Cache
	// turn guards what follows.
	turn chan struct{}
	// index are the URLs of the documents, and read is when they were listed; nil before.
	index index
	read  time.Time
}

// index are the URLs of documents, by the paths of their groups and versions. A URL contains a hash of the document.
type index map[string]string

// NewReader returns a Reader that asks an API server through a client.
func NewReader(client rest.Interface, c clock.PassiveClock) *Reader {
	return &Reader{client: client, clock: c, turn: make(chan struct{}, 1), kept: lru.New(maxKept)}
}

// key is a kind in a document, whose URL contains a hash of it.
type key struct {
	gvk schema.GroupVersionKind
	url string
}

// waitTurn waits until no other call reads.
func (r *Reader) waitTurn(ctx context.Context) (done func(), err error) {
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// FindSchema returns the schema of a kind; nil if the API server has no OpenAPI document that describes the kind.
func (r *Reader) FindSchema(ctx context.Context, gvk schema.GroupVersionKind) (*objectschema.Schema, error) {
	done, err := r.waitTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	url, err := r.findURL(ctx, gvk.GroupVersion())
	if err != nil || url == "" {
		return nil, err
	}
	k := key{gvk, url}
	if found, ok := r.kept.Get(k); ok {
		return found.(*objectschema.Schema), nil
	}
	document, err := r.readDocument(ctx, url)
	if err != nil || document == nil {
		return nil, err
	}
	found, err := objectschema.OfOpenAPI(document, gvk)
	if err == nil {
		r.kept.Add(k, found)
	}
	return found, err
}

// FindDocument returns what names the OpenAPI document of a group and version, and changes with it; empty if there is none.
func (r *Reader) FindDocument(ctx context.Context, gv schema.GroupVersion) (string, error) {
	done, err := r.waitTurn(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	return r.findURL(ctx, gv)
}

// findURL finds a document in the list of them, which it reads if it is old.
func (r *Reader) findURL(ctx context.Context, gv schema.GroupVersion) (string, error) {
	if r.index == nil || r.clock.Since(r.read) >= keepIndex {
		if err := r.readIndex(ctx); err != nil {
			return "", err
		}
	}
	return r.index[pathOf(gv)], nil
}

// Renew lists the documents again, and says whether one has changed, or come or gone.
func (r *Reader) Renew(ctx context.Context) (changed bool, err error) {
	done, err := r.waitTurn(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	before := r.index
	err = r.readIndex(ctx)
	return !maps.Equal(before, r.index), err
}

// readIndex lists the documents of the API server; none if it has no OpenAPI v3.
func (r *Reader) readIndex(ctx context.Context) error {
	now := r.clock.Now()
	text, err := r.readDocument(ctx, "/openapi/v3")
	if err != nil {
		return err
	}
	var listed struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if text != nil {
		if err := json.Unmarshal(text, &listed); err != nil {
			return fmt.Errorf("cannot read the list of OpenAPI documents: %w", err)
		}
	}
	r.index, r.read = make(index, len(listed.Paths)), now
	for path, document := range listed.Paths {
		r.index[path] = document.ServerRelativeURL
	}
	return nil
}

// pathOf is the name of a group and version in the list of documents.
func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// readDocument reads a document; nil if there is none.
func (r *Reader) readDocument(ctx context.Context, url string) ([]byte, error) {
	body, err := r.client.Get().RequestURI(url).SetHeader("Accept", "application/json").Stream(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", url, err)
	}
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(io.LimitReader(body, maxDocument+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", url, err)
	case len(text) > maxDocument:
		return nil, fmt.Errorf("cannot read %s: it is longer than %d bytes", url, maxDocument)
	}
	return text, nil
}
