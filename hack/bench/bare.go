// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
)

const (
	// recordsGroup serves a copy of the Cleaner's CRD, so that what bare client-go writes costs the API server the same,
	// and the operator does not take it for a Cleaner.
	recordsGroup = "bench.example.com"
	// inFlight is how many deletions of one Cleaner the operator has on their way.
	inFlight = 32
	// inFlightOfNamespace is how many it has of all Cleaners of a namespace, and workersOfNamespace how many of these it handles at a time: half of
	// what it has, while other namespaces may come.
	inFlightOfNamespace = 64
	workersOfNamespace  = controllers.DefaultWorkers / 2
)

// bareLoop makes the requests of Cleaners without deciding anything.
type bareLoop struct {
	namespace string
	objects   dynamic.Interface
	metadata  metadata.Interface
	watched   cache.SharedIndexInformer // the records
	groups    [][]metav1.PartialObjectMetadata
	slots     chan struct{}
}

func configMaps() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}

func records() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: recordsGroup, Version: "v1alpha1", Resource: "cleaners"}
}

func newBareLoop(ctx context.Context, r *rig, namespace string, groups int) (*bareLoop, error) {
	if err := serveRecords(ctx, r.Cluster); err != nil {
		return nil, err
	}
	l := &bareLoop{namespace: namespace, groups: make([][]metav1.PartialObjectMetadata, groups), slots: make(chan struct{}, inFlightOfNamespace)}
	var err error
	if l.objects, err = dynamic.NewForConfig(r.as); err != nil {
		return nil, err
	}
	if l.metadata, err = metadata.NewForConfig(r.as); err != nil {
		return nil, err
	}
	if l.watched, err = newRecordInformer(r.as, namespace); err != nil {
		return nil, err
	}
	admin, err := dynamic.NewForConfig(r.Config())
	if err != nil {
		return nil, err
	}
	return l, each(groups, makers, func(i int) error {
		c := gated(namespace, member(i), "gate", member(i))
		text, err := json.Marshal(c)
		if err != nil {
			return err
		}
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(text, &u.Object); err != nil {
			return err
		}
		u.SetAPIVersion(recordsGroup + "/v1alpha1")
		u.SetKind("Cleaner")
		if _, err = admin.Resource(records()).Namespace(namespace).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := l.patch(ctx, i, map[string]any{"status": r.waiting}, "status"); err != nil { // as large as a Cleaner is by then
			return err
		}
		l.groups[i], err = l.list(ctx, i)
		return err
	})
}

// newRecordInformer returns a typed informer of the records in a namespace, as controllers have for the resources that they are for.
func newRecordInformer(config *rest.Config, namespace string) (cache.SharedIndexInformer, error) {
	gv, scheme := records().GroupVersion(), runtime.NewScheme()
	scheme.AddKnownTypeWithName(gv.WithKind("Cleaner"), &v1alpha1.Cleaner{})
	scheme.AddKnownTypeWithName(gv.WithKind("CleanerList"), &v1alpha1.CleanerList{})
	metav1.AddToGroupVersion(scheme, gv)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/apis", &gv, serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, "cleaners", namespace, fields.Everything()), &v1alpha1.Cleaner{}, 0, cache.Indexers{}), nil
}

// watch watches the ConfigMaps and the records of the namespace until the context ends, as the operator does: a controller has to know when
// an object changes that it acts on, or that says what it does.
func (l *bareLoop) watch(ctx context.Context) error {
	return runInformers(ctx, metadatainformer.NewFilteredMetadataInformer(l.metadata, configMaps(), l.namespace, 0, cache.Indexers{}, nil).Informer(), l.watched)
}

// serveRecords installs the copy of the Cleaner's CRD, and lets the operator's ServiceAccount use it.
func serveRecords(ctx context.Context, c *cluster.Cluster) error {
	root, err := operator.Root()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, "config", "crd", "bases", "cleaner.vtex.dev_cleaners.yaml"))
	if err != nil {
		return fmt.Errorf("cannot read the CRD: %w", err)
	}
	path := filepath.Join(c.Dir(), "records.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "cleaner.vtex.dev", recordsGroup)), 0o600); err != nil {
		return fmt.Errorf("cannot write the copy of the CRD: %w", err)
	}
	if err := cluster.InstallCRDs(ctx, c.Config(), path); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	_, roleErr := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{recordsGroup}, Resources: []string{"cleaners", "cleaners/status"}, Verbs: []string{"get", "list", "watch", "patch", "delete"},
		}},
	}, metav1.CreateOptions{})
	_, bindingErr := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "bench"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: operator.Namespace, Name: operator.ServiceAccount}},
	}, metav1.CreateOptions{})
	for _, err := range []error{roleErr, bindingErr} {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("cannot grant the copy of the CRD: %w", err)
		}
	}
	return nil
}

func (l *bareLoop) list(ctx context.Context, group int) ([]metav1.PartialObjectMetadata, error) {
	list, err := l.metadata.Resource(configMaps()).Namespace(l.namespace).List(ctx, metav1.ListOptions{LabelSelector: "group=" + member(group), Limit: 500})
	if err != nil {
		return nil, err
	}
	items := list.Items
	for list.Continue != "" {
		list, err = l.metadata.Resource(configMaps()).Namespace(l.namespace).List(ctx, metav1.ListOptions{LabelSelector: "group=" + member(group), Limit: 500, Continue: list.Continue})
		if err != nil {
			return nil, err
		}
		items = append(items, list.Items...)
	}
	return items, nil
}

func (l *bareLoop) delete(ctx context.Context, objects []metav1.PartialObjectMetadata) error {
	background := metav1.DeletePropagationBackground
	return each(len(objects), inFlight, func(i int) error {
		l.slots <- struct{}{}
		defer func() { <-l.slots }()
		return l.objects.Resource(configMaps()).Namespace(l.namespace).Delete(ctx, objects[i].Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &objects[i].UID, ResourceVersion: &objects[i].ResourceVersion},
			PropagationPolicy: &background,
		})
	})
}

// deleteAll deletes the ConfigMaps, which were listed before.
func (l *bareLoop) deleteAll(ctx context.Context, groups int) error {
	for i := range groups {
		if err := l.delete(ctx, l.groups[i]); err != nil {
			return err
		}
	}
	return nil
}

// clean makes all requests of Cleaners that act, as many Cleaners at a time as the operator handles of a namespace.
func (l *bareLoop) clean(ctx context.Context, groups int) error {
	return each(groups, workersOfNamespace, func(i int) error { return l.cleanOne(ctx, i) })
}

// cleanOne makes the requests of one Cleaner, in the operator's order: the live reads, finalizer and run, the deletions,
// the result, and the end of the Cleaner itself.
func (l *bareLoop) cleanOne(ctx context.Context, group int) error {
	gate, err := l.objects.Resource(configMaps()).Namespace(l.namespace).Get(ctx, "gate", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if gate.GetName() != "gate" {
		return errors.New("the gate is another object")
	}
	objects, err := l.list(ctx, group)
	if err != nil {
		return err
	}
	if _, err := l.metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, l.namespace, metav1.GetOptions{}); err != nil {
		return err
	}
	if err := l.patch(ctx, group, map[string]any{"metadata": map[string]any{"finalizers": []string{recordsGroup + "/run"}}}); err != nil {
		return err
	}
	rows := make([]string, len(objects))
	for i, o := range objects {
		rows[i] = fmt.Sprintf("targets.old configmaps/v1 %s/%s %s %s", o.Namespace, o.Name, o.UID, o.ResourceVersion)
	}
	run := map[string]any{"number": 1, "decides": "v1:0123456789abcdef0123456789abcdef", "decidedAt": metav1.Now(), "rows": rows}
	if err := l.patch(ctx, group, map[string]any{"status": map[string]any{"runs": 1, "run": run}}, "status"); err != nil {
		return err
	}
	if err := l.delete(ctx, objects); err != nil {
		return err
	}
	outcomes := make([]map[string]any, len(rows))
	for i := range rows {
		outcomes[i] = map[string]any{"row": rows[i], "outcome": "deleted"}
	}
	result := map[string]any{"rows": nil, "result": "Completed", "finishedAt": metav1.Now(), "outcomes": outcomes}
	if err := l.patch(ctx, group, map[string]any{"status": map[string]any{"run": result}}, "status"); err != nil {
		return err
	}
	record := l.objects.Resource(records()).Namespace(l.namespace)
	if err := record.Delete(ctx, member(group), metav1.DeleteOptions{}); err != nil {
		return err
	}
	if _, err := record.Get(ctx, member(group), metav1.GetOptions{}); err != nil {
		return err
	}
	return l.patch(ctx, group, map[string]any{"metadata": map[string]any{"finalizers": nil}})
}

func (l *bareLoop) patch(ctx context.Context, group int, change map[string]any, subresource ...string) error {
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = l.objects.Resource(records()).Namespace(l.namespace).Patch(ctx, member(group), types.MergePatchType, text, metav1.PatchOptions{}, subresource...)
	return err
}
