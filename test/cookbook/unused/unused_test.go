// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package unused

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/live"
)

// names are those of all recipes.
func names(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*", "cleaner.yaml"))
	if err != nil || len(paths) < 10 {
		t.Fatalf("the recipes are not where they should be: %v, %v", paths, err)
	}
	for i, path := range paths {
		paths[i] = filepath.Base(filepath.Dir(path))
	}
	return paths
}

// Without its switch a recipe for a protected kind is refused when it is written, or what it would do is withheld. It is
// first because the others run with it.
func TestWithoutTheSwitch(t *testing.T) {
	l := need(t)
	l.operate(t, "-without")
	l.must(t, objects)
	for _, name := range []string{"unbound-roles", "unbound-clusterroles", "released-volumes"} {
		text, err := os.ReadFile(filepath.Join(folder, name, "cleaner.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		live.Eventually(t, name+" is refused", func() string {
			err := l.apply(t, string(text), "--dry-run=server")
			if err == nil || !strings.Contains(err.Error(), "unless the operator runs with --allow-protected-kinds=") {
				return fmt.Sprint(err)
			}
			return ""
		})
	}
	dangling := recipe(t, "dangling-role-bindings", "Enforce")
	l.put(t, dangling)
	s := l.says(t, dangling, v1alpha1.ReasonProtected)
	if !slices.ContainsFunc(s.LastEvaluation.Withheld, func(w struct{ Object, Because string }) bool {
		return strings.Contains(w.Object, "left-over") && strings.Contains(w.Because, "--allow-protected-kinds=")
	}) {
		t.Errorf("it withholds %v", s.LastEvaluation.Withheld)
	}
	l.there(t, "rolebinding/left-over", "rolebinding/left-over -n kube-system", "clusterrole/left-over")
}

// The webhook admits each recipe as it stands. The operator may then read all that it reads, with config/default and its
// role.yaml; and in a cluster of nothing but what Kubernetes and config/default bring, nothing would be done.
func TestRecipesLeaveAFreshClusterAlone(t *testing.T) {
	l := need(t)
	l.operate(t, "-fresh", l.everythingAllowed())
	l.mustNot(t, objects)
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(folder, name, "cleaner.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			u := recipe(t, name, "DryRun")
			if ns := u.GetNamespace(); ns != "" {
				l.must(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+ns+"}}")
			}
			live.Eventually(t, "the webhook admits it", func() string {
				if err := l.apply(t, string(text), "--dry-run=server"); err != nil {
					return err.Error()
				}
				return ""
			})
			l.put(t, u)
			s := l.says(t, u, v1alpha1.ReasonNothingToDo, v1alpha1.ReasonProtected, v1alpha1.ReasonDryRun, v1alpha1.ReasonKindNotServed, v1alpha1.ReasonConditionsNotMet,
				v1alpha1.ReasonWaitingForSchedule, v1alpha1.ReasonTargetMissing)
			if len(s.LastEvaluation.Errors) > 0 {
				t.Errorf("it has errors: %v", s.LastEvaluation.Errors)
			}
			for _, a := range s.LastActions {
				t.Errorf("%s %s: %s", a.Action, a.Object, a.Result)
			}
		})
	}
}

// What some recipes do to real objects: what is left over goes, what is in use stays.
func TestRecipesClean(t *testing.T) {
	l := need(t)
	l.operate(t, "-clean", l.everythingAllowed())
	cases := map[string]struct{ goes, stays []string }{
		"unused-configmaps": {
			[]string{"configmap/left-over"},
			[]string{"configmap/of-a-cronjob", "configmap/projected", "configmap/kube-root-ca.crt", "configmap/kube-root-ca.crt -n default"},
		},
		"unused-secrets": {
			[]string{"secret/left-over"},
			[]string{"secret/of-an-ingress", "secret/of-an-account", "secret/token", "secret/sh.helm.release.v1.web.v1"},
		},
		"services-without-endpoints": {
			[]string{"service/left-over"},
			[]string{"service/asleep", "service/by-hand", "service/kubernetes -n default", "service/cleaner-webhook -n cleaner-system"},
		},
		"unused-priorityclasses": {
			[]string{"priorityclass/left-over"},
			[]string{"priorityclass/named", "priorityclass/system-node-critical"},
		},
		"unused-storageclasses": {
			[]string{"storageclass/left-over"},
			[]string{"storageclass/named", "storageclass/standard"},
		},
		"unbound-clusterroles": {
			[]string{"clusterrole/left-over"},
			[]string{"clusterrole/bound", "clusterrole/part-of-view", "clusterrole/cleaner-editor", "clusterrole/view", "clusterrole/system:discovery"},
		},
		"dangling-role-bindings": {
			[]string{"rolebinding/left-over", "rolebinding/left-over -n kube-system"},
			[]string{"rolebinding/bound", "clusterrolebinding/cluster-admin", "rolebinding/system:controller:token-cleaner -n kube-system"},
		},
		"unused-serviceaccounts": {
			[]string{"serviceaccount/left-over"},
			[]string{"serviceaccount/default", "serviceaccount/web", "serviceaccount/cleaner-manager -n cleaner-system", "serviceaccount/generic-garbage-collector -n kube-system"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l.must(t, objects)
			l.eventuallyThere(t, tc.stays...)
			u := recipe(t, name, "Enforce")
			l.put(t, u)
			l.gone(t, tc.goes...)
			s := l.says(t, u, v1alpha1.ReasonNothingToDo, v1alpha1.ReasonProtected)
			if len(s.LastActions) != len(tc.goes) {
				t.Errorf("it did %v", s.LastActions)
			}
			l.there(t, tc.stays...)
		})
	}
}

// kube-system is looked after by a recipe that says includeProtected, and left alone without.
func TestIncludeProtected(t *testing.T) {
	l := need(t)
	l.operate(t, "-protected")
	l.must(t, objects)
	u := recipe(t, "disruption-budgets-without-pods", "Enforce")
	spec := u.Object["spec"].(map[string]any)
	if spec["includeProtected"] != true {
		t.Fatal("it does not say includeProtected")
	}
	spec["includeProtected"] = false
	l.put(t, u)
	l.gone(t, "pdb/left-over")
	l.says(t, u, v1alpha1.ReasonProtected)
	l.there(t, "pdb/left-over -n kube-system", "pdb/asleep")

	spec["includeProtected"] = true
	l.put(t, u)
	l.gone(t, "pdb/left-over -n kube-system")
	l.there(t, "pdb/asleep")
}

// look asks for an object, such as "pdb/left-over -n kube-system"; without a namespace in shop.
func (l *lab) look(t *testing.T, object string) error {
	t.Helper()
	args := strings.Fields(object)
	if len(args) == 1 {
		args = append(args, "-n", "shop")
	}
	_, err := l.Kubectl(t.Context(), append([]string{"get", "-o", "name"}, args...)...)
	return err
}

func (l *lab) there(t *testing.T, all ...string) {
	t.Helper()
	for _, object := range all {
		if err := l.look(t, object); err != nil {
			t.Errorf("%s is not there: %v", object, err)
		}
	}
}

func (l *lab) eventuallyThere(t *testing.T, all ...string) {
	t.Helper()
	for _, object := range all {
		live.Eventually(t, object+" is there", func() string {
			if err := l.look(t, object); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

func (l *lab) gone(t *testing.T, all ...string) {
	t.Helper()
	for _, object := range all {
		live.Eventually(t, object+" is gone", func() string {
			switch err := l.look(t, object); {
			case err == nil:
				return "it is there"
			case !strings.Contains(err.Error(), "NotFound"):
				return err.Error()
			}
			return ""
		})
	}
}

// mustNot takes manifests away.
func (l *lab) mustNot(t *testing.T, manifests string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Kubectl(t.Context(), "delete", "--ignore-not-found", "--wait=true", "-f", path); err != nil {
		t.Fatal(err)
	}
}

// objects are what some have left over in a cluster in which others are at work.
const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: left-over, namespace: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
imagePullSecrets: [{name: of-an-account}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: left-over, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: of-a-cronjob, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: projected, namespace: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: left-over, namespace: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: of-an-ingress, namespace: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: of-an-account, namespace: shop}
---
apiVersion: v1
kind: Secret
type: helm.sh/release.v1
metadata: {name: sh.helm.release.v1.web.v1, namespace: shop}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata: {name: token, namespace: shop, annotations: {kubernetes.io/service-account.name: default}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: left-over}
value: 1000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: named}
value: 1000
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: left-over}
provisioner: example.com/disk
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: named}
provisioner: example.com/disk
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: example.com/disk
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec: {storageClassName: named, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report, namespace: shop}
spec:
  schedule: "0 0 1 1 *"
  suspend: true
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          serviceAccountName: web
          priorityClassName: named
          containers: [{name: report, image: example.com/report, envFrom: [{configMapRef: {name: of-a-cronjob}}]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: asleep, namespace: shop}
spec:
  replicas: 0
  selector: {matchLabels: {app: asleep}}
  template:
    metadata: {labels: {app: asleep}}
    spec:
      containers: [{name: web, image: example.com/web}]
      volumes: [{name: settings, projected: {sources: [{configMap: {name: projected}}]}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  defaultBackend: {service: {name: asleep, port: {number: 80}}}
  tls: [{secretName: of-an-ingress}]
---
apiVersion: v1
kind: Service
metadata: {name: left-over, namespace: shop}
spec: {selector: {app: gone}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: asleep, namespace: shop}
spec: {selector: {app: asleep}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: by-hand, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: left-over, namespace: shop}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: gone}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: left-over, namespace: kube-system}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: gone}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: asleep, namespace: shop}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: asleep}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: left-over}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bound}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: part-of-view, labels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bound, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bound}
subjects: [{kind: ServiceAccount, name: web, namespace: shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: left-over, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bound}
subjects: [{kind: ServiceAccount, name: gone, namespace: shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: left-over, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: gone}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
`
