// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// costlyRecord makes the record of a release, which repeats as many values as each of its documents may, in many documents.
func (l *lab) costlyRecord(name string) *corev1.Secret {
	l.Helper()
	doc := "apiVersion: [" + strings.Repeat("1,", 2900) + "]\nmetadata: {name: a, namespace: elsewhere}\na: &a [" + strings.Repeat("[],", 300) + "]\nkind: [" + strings.Repeat("*a,", 918) + "]\n---\n"
	manifest, err := json.Marshal(strings.Repeat(doc, 300))
	if err != nil {
		l.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	fmt.Fprintf(w, `{"name":%q,"namespace":%q,"version":1,"info":{"first_deployed":"2030-01-02T03:04:05Z","status":"deployed"},"manifest":%s}`, name, l.ns, manifest)
	if err := w.Close(); err != nil {
		l.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "sh.helm.release.v1." + name + ".v1", Labels: map[string]string{"owner": "helm", "name": name}},
		Type:       "helm.sh/release.v1",
		Data:       map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(zipped.Bytes()))},
	}
	if err := l.Create(l.ctx, secret); err != nil {
		l.Fatal(err)
	}
	return secret
}

// TestACostlyRecordDelaysNoOtherNamespace has more Cleaners than one namespace may have workers read a record that is as costly as one may
// be, and that changes all the time. Releases of other namespaces are uninstalled meanwhile, and Cleaners without a release do not notice.
func TestACostlyRecordDelaysNoOtherNamespace(t *testing.T) {
	l := parallel(t)
	others := []*lab{newLab(t, l.env), newLab(t, l.env), newLab(t, l.env)}
	for _, o := range others {
		release(o, "shop", nil)
	}
	secret := l.costlyRecord("costly")
	over, changed := make(chan struct{}), make(chan struct{})
	defer func() { close(over); <-changed }()
	go func() {
		defer close(changed)
		again := time.NewTicker(250 * time.Millisecond)
		defer again.Stop()
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			case <-again.C:
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, n)
			if err := l.Patch(l.ctx, secret.DeepCopy(), client.RawPatch("application/merge-patch+json", patch)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for n := range 10 {
		l.apply(cleanerYAML(fmt.Sprint("costly-", n), `
  ttl: 0s
  retry: {period: 10s}
  helm: {release: costly, delete: true}`))
	}
	for n := range 10 {
		l.says(fmt.Sprint("costly-", n), v1alpha1.ConditionReady, v1alpha1.ReasonTooManyObjects)
	}
	for _, o := range others {
		uninstalls(o, "shop")
	}
	l.bystander()
	for _, o := range others {
		o.gone("shop")
	}
}
