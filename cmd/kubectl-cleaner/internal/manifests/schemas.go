// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/controllers/kindschemas"
)

// offlineSchemas are the schemas of CustomResourceDefinitions, by their kinds without a version, and of the built-in kinds.
type offlineSchemas map[schema.GroupKind]*apiextensionsv1.CustomResourceDefinition

// FindSchema returns the schema of a kind; nil if it is not known.
func (o offlineSchemas) FindSchema(_ context.Context, gvk schema.GroupVersionKind) (*objectschema.Schema, error) {
	if crd := o[gvk.GroupKind()]; crd != nil {
		return objectschema.OfDefinition(crd, gvk.Version)
	}
	return objectschema.OfBuiltIn(scheme.Scheme, gvk), nil
}

// Renew changes nothing: files are read once.
func (offlineSchemas) Renew(context.Context) (changed bool, err error) { return false, nil }

// Misses finds schemas in another source, and notes the kinds that it does not know.
type Misses struct {
	kindschemas.Source
	kinds map[schema.GroupVersionKind]bool
}

// NoteMisses has the loader note the kinds whose schemas it looks for and does not know.
func (l *Loader) NoteMisses() *Misses {
	m := &Misses{Source: l.Schemas, kinds: map[schema.GroupVersionKind]bool{}}
	l.Schemas = m
	return m
}

// FindSchema returns the schema of a kind; nil if it is not known.
func (m *Misses) FindSchema(ctx context.Context, gvk schema.GroupVersionKind) (*objectschema.Schema, error) {
	found, err := m.Source.FindSchema(ctx, gvk)
	if found == nil && err == nil {
		m.kinds[gvk] = true
	}
	return found, err
}

// maxListed is how many kinds a list of them names.
const maxListed = 10

// ListKinds lists the kinds that are not known, such as "Gadget of example.com/v1", and counts those that are more than it names; empty if there are none.
func (m *Misses) ListKinds() string {
	var names []string
	for gvk := range m.kinds {
		names = append(names, expr.TruncateText(fmt.Sprintf("%s of %s", gvk.Kind, gvk.GroupVersion()), 128))
	}
	slices.Sort(names)
	if more := len(names) - maxListed; more > 0 {
		names = append(names[:maxListed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// UseDefinitions has the loader know the fields of the kinds that CustomResourceDefinitions among documents define.
func (l *Loader) UseDefinitions(documents []*Document) error {
	known := offlineSchemas{}
	items, err := listAllItems(documents)
	if err != nil {
		return err
	}
	for _, i := range items {
		crd, err := i.decodeDefinition()
		if err != nil {
			return err
		}
		if crd != nil {
			known[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = crd
		}
	}
	l.Schemas = known
	return nil
}

// checkFields has options say which fields the expressions of a spec read that no object has, and returns the warnings of its expressions.
func (l *Loader) checkFields(ctx context.Context, work *v1alpha1.Work, programs *celenv.Programs, options *validation.Options) []expr.Warning {
	if programs == nil {
		return nil
	}
	if l.Stored && work.Validation != v1alpha1.ValidationIgnore {
		work.Validation = v1alpha1.ValidationWarn
	}
	errs, likely := kindschemas.CheckFields(ctx, l.Schemas, work, programs)
	options.UnknownFields = errs
	return append(programs.Warnings(), likely...)
}
