// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// objects reads and writes objects of all kinds, as somebody.
type objects struct{ dynamic.Interface }

// of is where objects of a kind are.
func (o *objects) of(gvk schema.GroupVersionKind, namespace string) dynamic.ResourceInterface {
	resource := o.Resource(gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s"))
	if namespace == "" {
		return resource
	}
	return resource.Namespace(namespace)
}

func (o *objects) at(u *unstructured.Unstructured) dynamic.ResourceInterface {
	return o.of(u.GroupVersionKind(), u.GetNamespace())
}

// create creates an object of one of Kubernetes' own types.
func (o *objects) create(ctx context.Context, apiVersion, kind string, typed metav1.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	return o.at(u).Create(ctx, u, metav1.CreateOptions{})
}

// read reads one of the objects of a row.
func (o *objects) read(ctx context.Context, namespace, kind, name string) (*unstructured.Unstructured, error) {
	versions := map[string]schema.GroupVersion{
		"Cleaner": v1alpha1.GroupVersion, "ClusterCleaner": v1alpha1.GroupVersion, "CleanerTemplate": v1alpha1.GroupVersion,
		"RoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1"},
	}
	version, ok := versions[kind]
	if !ok {
		version = schema.GroupVersion{Version: "v1"}
	}
	u, err := o.of(version.WithKind(kind), namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s %q: %w", kind, name, err)
	}
	return u, nil
}

// sendAgain is send, as people do it: while the webhook has no time they send it again, some times.
func (o *objects) sendAgain(ctx context.Context, u *unstructured.Unstructured, exists, loose bool) error {
	const tries = 4
	var err error
	for range tries {
		if err = o.send(ctx, u, exists, loose); !hadNoTime(err) {
			return err
		}
	}
	return err
}

// hadNoTime says that the webhook was called in vain, or answered that there was no time left.
func hadNoTime(err error) bool {
	if err == nil || !apierrors.IsServiceUnavailable(err) && !apierrors.IsInternalError(err) && !apierrors.IsTimeout(err) {
		return false
	}
	return strings.Contains(err.Error(), "deadline exceeded") || strings.Contains(err.Error(), "try again")
}

// send writes an object, and its status if it has one: what is there is patched.
func (o *objects) send(ctx context.Context, u *unstructured.Unstructured, exists, loose bool) error {
	validation := metav1.FieldValidationStrict
	if loose {
		validation = metav1.FieldValidationIgnore
	}
	status, hasStatus := u.Object["status"]
	object := u.DeepCopy()
	delete(object.Object, "status")
	var err error
	if exists {
		text, merr := json.Marshal(object)
		if merr != nil {
			return merr
		}
		_, err = o.at(u).Patch(ctx, u.GetName(), types.MergePatchType, text, metav1.PatchOptions{FieldValidation: validation})
	} else {
		_, err = o.at(u).Create(ctx, object, metav1.CreateOptions{FieldValidation: validation})
	}
	if err != nil || !hasStatus {
		return err
	}
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = o.at(u).Patch(ctx, u.GetName(), types.MergePatchType, text, metav1.PatchOptions{FieldValidation: validation}, "status")
	return err
}
