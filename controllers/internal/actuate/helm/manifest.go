// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/kube"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm/manifests"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

const (
	// maxDocuments is how many YAML documents a manifest may have.
	maxDocuments = 5000
	// maxHookNodes is how many values the hooks of a deletion may have, with those that aliases repeat.
	maxHookNodes = 50_000
)

// document is an object as a manifest writes it.
type document struct {
	kind            schema.GroupVersionKind
	namespace, name string
	// content is the whole of it.
	content map[string]any
	// keepReason says that the chart does not want it deleted. Helm leaves everything with a resource policy, whatever it says.
	keepReason string
}

// weigh is about how much of the memory it takes without its content.
func (d *document) weigh() int {
	return 256 + len(d.kind.Group) + len(d.kind.Version) + len(d.kind.Kind) + len(d.namespace) + len(d.name) + len(d.keepReason)
}

// dropContents drops what documents contain, except the type of a Secret that grants rights.
func dropContents(docs []document) []document {
	for i := range docs {
		kind := docs[i].content["type"]
		docs[i].content = nil
		if givesToken(kind) {
			docs[i].content = map[string]any{"type": kind}
		}
	}
	return docs
}

// extractHeads writes the heads of the objects of a manifest: Helm is given nothing else of it.
func extractHeads(ctx context.Context, manifest string) (string, error) {
	docs, err := splitDocuments(manifest)
	if err != nil {
		return "", err
	}
	return manifests.ExtractHeads(ctx, docs, kube.ResourcePolicyAnno, release.HookAnnotation)
}

// splitDocuments parts a text into YAML documents, as Helm does.
func splitDocuments(text string) ([]string, error) {
	if strings.Count(text, "\n---") >= maxDocuments {
		return nil, fmt.Errorf("its manifest has more than %d documents: %w", maxDocuments, manifests.ErrTooLarge)
	}
	files := releaseutil.SplitManifests(text)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Sort(releaseutil.BySplitManifestsOrder(names))
	docs := make([]string, 0, len(files))
	for _, name := range names {
		docs = append(docs, files[name])
	}
	return docs, nil
}

// weighHooks refuses hooks that are too much together: all of their objects are in memory while they are run.
func weighHooks(ctx context.Context, hooks []*release.Hook) error {
	left := manifests.NewAllowance(maxHookNodes)
	for _, h := range hooks {
		docs, err := splitDocuments(h.Manifest)
		if err != nil {
			return fmt.Errorf("its hook %q: %w", h.Name, err)
		}
		for _, doc := range docs {
			if err := left.TakeDocument(ctx, doc); err != nil {
				return fmt.Errorf("its hook %q %w", h.Name, err)
			}
		}
	}
	return nil
}

// parseHeads reads the heads of a manifest in the order in which Helm deletes.
func parseHeads(ctx context.Context, heads string) ([]document, error) {
	_, files, err := releaseutil.SortManifests(releaseutil.SplitManifests(heads), nil, releaseutil.UninstallOrder)
	if err != nil {
		return nil, fmt.Errorf("its manifest is not YAML: %w", err)
	}
	var docs []document
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		left := ""
		if f.Head.Metadata != nil {
			if policy, has := f.Head.Metadata.Annotations[kube.ResourcePolicyAnno]; has {
				left = fmt.Sprintf("the chart says %s: %s", kube.ResourcePolicyAnno, strings.TrimSpace(policy))
			}
		}
		written, err := parseDocuments(f.Content, left)
		if err != nil {
			return nil, err
		}
		docs = append(docs, dropContents(written)...)
	}
	return docs, nil
}

// parseDocuments reads the objects in one YAML document.
func parseDocuments(text, left string) ([]document, error) {
	objects, err := decodeObjects(text)
	if err != nil {
		return nil, err
	}
	var docs []document
	for _, o := range objects {
		d := document{kind: o.GroupVersionKind(), namespace: o.GetNamespace(), name: o.GetName(), content: o.Object, keepReason: left}
		if err := d.checkPathSegments(); err != nil {
			return nil, err
		}
		docs = append(docs, d)
	}
	return docs, nil
}

// checkPathSegments refuses names that would turn the path of an object into another path: tenants write them.
func (d document) checkPathSegments() error {
	if d.kind.Kind == "" || d.kind.Version == "" || d.name == "" {
		return fmt.Errorf("its manifest has an object without apiVersion, kind or name: %q %q", d.kind, d.name)
	}
	for _, segment := range []string{d.kind.Group, d.kind.Version, d.namespace, d.name} {
		if wrong := content.IsPathSegmentName(segment); segment != "" && len(wrong) > 0 {
			return fmt.Errorf("its manifest has an object that cannot be: %q %s", segment, strings.Join(wrong, ", "))
		}
	}
	return nil
}

// decodeObjects reads one YAML document: an object, the items of a list, or nothing but comments.
func decodeObjects(doc string) ([]unstructured.Unstructured, error) {
	var content map[string]any
	if err := yaml.Unmarshal([]byte(doc), &content); err != nil {
		return nil, fmt.Errorf("its manifest is not YAML: %w", err)
	}
	if len(content) == 0 {
		return nil, nil
	}
	o := unstructured.Unstructured{Object: content}
	if !o.IsList() {
		return []unstructured.Unstructured{o}, nil
	}
	var items []unstructured.Unstructured
	err := o.EachListItem(func(item runtime.Object) error {
		u, ok := item.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("its manifest has a list with an item that is not an object: %T", item)
		}
		items = append(items, *u)
		return nil
	})
	return items, err
}

// object is an object of a manifest, as the API server knows it.
type object struct {
	observed.Ref

	kind       schema.GroupVersionKind
	namespaced bool
	// content is the object as the chart wrote it.
	content map[string]any
}

// resolvedManifest is what a manifest stands for on this API server.
type resolvedManifest struct {
	objects []object
	kept    []Kept
}

// resolveManifest finds out what the manifest of a record stands for, with live discovery.
func (u *Uninstaller) resolveManifest(ctx context.Context, r record) (resolvedManifest, error) {
	docs, err := r.listDocuments()
	if err != nil {
		return resolvedManifest{}, err
	}
	return u.resolveDocuments(ctx, u.newKindResolver(), docs, r.secret.Namespace)
}

// listDocuments returns the objects of the manifest of a record, in the order in which Helm deletes them.
func (r record) listDocuments() ([]document, error) {
	err := r.content.manifestError
	if err == nil {
		return r.content.documents, nil
	}
	reason := v1alpha1.ReasonReleaseUnreadable
	if errors.Is(err, manifests.ErrTooLarge) {
		reason = v1alpha1.ReasonTooManyObjects
	}
	return nil, &BlockedError{Reason: reason, Detail: fmt.Sprintf("release %q cannot be uninstalled: %v", r.content.release.Name, err)}
}

// resolveDocuments asks the API server for the resources of documents. The order is kept.
func (u *Uninstaller) resolveDocuments(ctx context.Context, kinds *kindResolver, docs []document, namespace string) (resolvedManifest, error) {
	var found resolvedManifest
	for _, d := range docs {
		served, err := kinds.findKind(ctx, d.kind)
		if err != nil {
			return resolvedManifest{}, err
		}
		o := object{kind: d.kind, namespaced: served.namespaced, content: d.content, Ref: observed.Ref{Resource: served.resource, Kind: d.kind.Kind, Name: d.name}}
		if served.namespaced {
			o.Namespace = d.namespace
			if o.Namespace == "" {
				o.Namespace = namespace
			}
		}
		switch {
		case d.keepReason != "":
			found.kept = append(found.kept, Kept{o.Ref, d.keepReason})
		case !served.served:
			found.kept = append(found.kept, Kept{o.Ref, fmt.Sprintf("the API server serves no kind %s of %s", d.kind.Kind, d.kind.GroupVersion())})
		default:
			found.objects = append(found.objects, o)
		}
	}
	return found, nil
}

// findBlocker says why the objects of a release must not be deleted, and names them; nil if they may.
func (u *Uninstaller) findBlocker(ctx context.Context, slot ReadSlot, r resolvedManifest, namespace, name string) (*BlockedError, error) {
	var outside, protected []string
	for _, o := range r.objects {
		switch {
		case u.answersFor(namespace):
		case !o.namespaced:
			outside = append(outside, o.String()+" (cluster-scoped)")
		case o.Namespace != namespace:
			outside = append(outside, o.String())
		}
		if because := u.protection.OfRelease(o.Ref, o.namespaced); because != "" {
			protected = append(protected, fmt.Sprintf("%s (%s)", o.Ref, because))
		}
	}
	switch {
	case len(outside) > 0:
		return &BlockedError{
			Reason: v1alpha1.ReasonReleaseOutsideNamespace,
			Detail: fmt.Sprintf("release %q has objects outside namespace %q, which the operator deletes only when it acts as a ServiceAccount: %s", name, namespace, joinFirst(outside)),
		}, nil
	case len(protected) > 0:
		return &BlockedError{
			Reason: v1alpha1.ReasonProtected,
			Detail: fmt.Sprintf("release %q has protected objects: %s", name, joinFirst(protected)),
		}, nil
	}
	if blocked := checkRightsCount(name, rightsToDelete(r, namespace)); blocked != nil {
		return blocked, nil
	}
	rights, err := u.findOwnRights(ctx, slot, r.objects)
	switch {
	case errors.Is(err, errTooManyRequests):
		return &BlockedError{
			Reason: v1alpha1.ReasonTooManyObjects,
			Detail: fmt.Sprintf("release %q needs more than %d requests to find out whether it contains the rights of ServiceAccount %q: uninstall it with Helm", name, maxAccountRequests, u.account.Name),
		}, nil
	case err != nil || len(rights) == 0:
		return nil, err
	}
	return &BlockedError{
		Reason: v1alpha1.ReasonReleaseOwnsServiceAccount,
		Detail: fmt.Sprintf("release %q contains objects that ServiceAccount %q needs for the uninstall: %s; use another ServiceAccount", name, u.account.Name, joinFirst(rights)),
	}, nil
}

// joinFirst names the first of many.
func joinFirst(names []string) string {
	const most = 10
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// splitStages parts objects into those that go first and those that others may need until they are gone: the accounts and
// the roles of the release. The order within each is kept.
func splitStages(objects []object) (first, last []object) {
	for _, o := range objects {
		if isAccessResource(o.Resource.GroupResource()) {
			last = append(last, o)
			continue
		}
		first = append(first, o)
	}
	return first, last
}

func isAccessResource(r schema.GroupResource) bool {
	switch r {
	case serviceAccounts(), roles(), roleBindings(), clusterRoles(), clusterRoleBindings():
		return true
	default:
		return false
	}
}
