// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachetrim

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/jsontrim"
	"github.com/vtex/cleaner/test/apiserver"
)

// An API server streams a list as a watch, and says by an annotation of a bookmark that the list has ended: a cache that does not hear of it
// is never synced.
func TestACacheThatDropsMetadataIsSynced(t *testing.T) {
	for name, limit := range map[string]func(*rest.Config){"whole": jsontrim.LimitDepth, "limited": LimitMetadata} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			gvr := v1alpha1.GroupVersion.WithResource("cleaners")
			s.Serve(gvr, "Cleaner", true)
			s.Put(gvr, "shop", "c", nil)
			scheme := apiruntime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(v1alpha1.GroupVersion.WithKind("Cleaner"), meta.RESTScopeNamespace)
			config := rest.CopyConfig(s.Config())
			limit(config)
			c, err := cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			go func() { _ = c.Start(ctx) }()
			if _, err := c.GetInformer(ctx, &v1alpha1.Cleaner{}); err != nil || !c.WaitForCacheSync(ctx) {
				t.Errorf("it is not synced: %v; asked to watch %d times and to list %d times", err, s.Asked("watch cleaners"), s.Asked("list cleaners"))
			}
		})
	}
}
