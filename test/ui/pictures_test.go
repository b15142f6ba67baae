// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/vtex/cleaner/test/operator"
)

// maxPicture is how large a picture of the documentation may be, in bytes.
const maxPicture = 200 << 10

// pictured are the Cleaners of the pictures, in as many states.
const pictured = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: checkout}
---
apiVersion: v1
kind: Namespace
metadata: {name: search}
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: old-configs, namespace: shop}
spec:
  lifecycle: Recurring
  mode: DryRun
  targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchExpressions: [{key: app, operator: Exists}]}}]
  rules:
  - name: old
    forEach: maps.items
    when: "true"
    groupBy: item.metadata.labels.app
    orderBy: [{expression: item.metadata.name, descending: true}]
    keep: 3
    unless: '"pinned" in item.metadata.labels'
    reason: '"its app has three newer ones"'
    actions: [{delete: {}}]
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: preview-4711, namespace: shop}
spec: {ttl: 36h, targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: web}}, delete: true}]}
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: idle-settings, namespace: checkout}
spec:
  lifecycle: Recurring
  targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: cart}}}]
  rules: [{name: idle, forEach: maps.items, when: "true", for: 50h, reason: '"nothing has read it for 50 hours"', actions: [{delete: {}}]}]
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: stale-leases, namespace: search}
spec:
  lifecycle: Recurring
  targets: [{name: leases, reference: {apiGroup: coordination.k8s.io, version: v1, kind: Lease}}]
  rules: [{name: stale, forEach: leases.items, when: "true", actions: [{delete: {}}]}]
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: failed-pods, namespace: search}
spec:
  lifecycle: Recurring
  suspend: true
  targets: [{name: pods, reference: {version: v1, kind: Pod}}]
  rules: [{name: failed, forEach: pods.items, when: 'item.?status.phase.orValue("") == "Failed"', actions: [{delete: {}}]}]
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: left-behind, namespace: checkout}
spec:
  lifecycle: Recurring
  mode: DryRun
  targets:
  - {name: services, reference: {version: v1, kind: Service, matchLabels: {of: preview}}}
  - {name: claims, reference: {version: v1, kind: PersistentVolumeClaim, matchLabels: {of: preview}}}
  - {name: jobs, reference: {apiGroup: batch, version: v1, kind: Job, matchLabels: {of: preview}}}
  rules:
  - {name: services, forEach: services.items, when: "true", actions: [{delete: {}}]}
  - {name: claims, forEach: claims.items, when: "true", actions: [{delete: {}}]}
  - {name: jobs, forEach: jobs.items, when: "true", actions: [{delete: {}}]}
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: nightly-settings}
spec:
  lifecycle: Recurring
  schedule: "0 3 * * *"
  targets: [{name: maps, reference: {version: v1, kind: ConfigMap, namespaces: [shop], matchLabels: {app: api}}}]
  rules: [{name: nightly, forEach: maps.items, when: "true", keep: 2, reason: '"two newer ones are kept"', actions: [{delete: {}}]}]
`

// picturedObjects are the objects of the pictures, and the rights of the operator to them.
func picturedObjects() string {
	var out strings.Builder
	out.WriteString(pictured)
	for namespace, apps := range map[string][]string{"shop": {"web", "api"}, "checkout": {"cart"}} {
		for _, app := range apps {
			for n := range 7 {
				fmt.Fprintf(&out, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s-settings-%d, namespace: %s, labels: {app: %s%s}}\n", app, n+1, namespace, app, map[bool]string{true: ", pinned: always"}[n == 1])
			}
		}
	}
	for _, left := range []struct {
		group, kind, spec string
		count             int
	}{
		{"", "Service", "{ports: [{port: 80}]}", 5}, {"", "PersistentVolumeClaim", "{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}", 3},
		{"batch/", "Job", "{suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: main, image: main}]}}}", 8},
	} {
		for n := range left.count {
			fmt.Fprintf(&out, "---\napiVersion: %sv1\nkind: %s\nmetadata: {name: preview-%d, namespace: checkout, labels: {of: preview}}\nspec: %s\n", left.group, left.kind, n+1, left.spec)
		}
	}
	out.WriteString(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pictures}
rules: [{apiGroups: ["", batch], resources: [configmaps, pods, services, persistentvolumeclaims, jobs], verbs: [get, list, watch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pictures}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pictures}
subjects: [{kind: ServiceAccount, name: ` + operator.ServiceAccount + `, namespace: ` + operator.Namespace + `}]
`)
	return out.String()
}

// TestPictures takes the pictures of the documentation, of an operator at work.
func TestPictures(t *testing.T) {
	folder := os.Getenv("PICTURES")
	if folder == "" {
		t.Skip("make pictures takes them")
	}
	chromium := findChromium()
	if chromium == "" {
		t.Fatal("there is no Chromium on this machine, and CHROMIUM does not name one")
	}
	l := startLab(t)
	ctx := t.Context()
	if err := operator.Install(ctx, l.plane); err != nil {
		t.Fatal(err)
	}
	manager, err := operator.Build(ctx, t.TempDir(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	l.create(picturedObjects())
	if _, err := operator.Run(context.WithoutCancel(ctx), l.plane, operator.Options{Binary: manager, Args: []string{"--leader-elect=false"}}); err != nil {
		t.Fatal(err)
	}
	_, address := l.serve(t, "ui", l.plane.Config())
	b := newTab(browser(t, chromium), t, address)
	b.do(chromedp.EmulateViewport(1180, 860))
	b.reads("AccessDenied", "WaitingForTTL", "Holding", "WaitingForSchedule", "DryRun")
	b.eventually("the operator has seen all", func() bool { return !strings.Contains(b.text(), "Not seen yet") })
	for _, picture := range []struct {
		name, path, scheme, shows string
		width, height             int64
	}{
		{"ui-cleaners-light", "/", "light", "Live", 1180, 980}, {"ui-cleaners-dark", "/", "dark", "Live", 1180, 980},
		{"ui-plan-light", "/cleaners/shop/old-configs/plan", "light", "It would take", 1180, 900}, {"ui-plan-narrow", "/cleaners/shop/old-configs/plan", "dark", "It would take", 420, 900},
		{"ui-waste-light", "/waste?count=now", "light", "would remove now", 1180, 600}, {"ui-forecast-dark", "/forecast?until=7d", "dark", "Timeline", 1180, 1180},
	} {
		b.do(chromedp.EmulateViewport(picture.width, picture.height))
		if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: picture.scheme}}}); err != nil {
			t.Fatal(err)
		}
		b.open(picture.path)
		b.reads(picture.shows)
		image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if len(image) > maxPicture {
			t.Errorf("%s has %d bytes", picture.name, len(image))
		}
		if err := os.WriteFile(filepath.Join(folder, picture.name+".png"), image, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
