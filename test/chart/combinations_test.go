// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/lint/support"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/config/templates"
)

// combination is a way to use the chart.
type combination struct {
	release, values string
	kinds           []string
	// check looks at what is special about it; what is true of all is checked anyway.
	check func(*testing.T, objects)
}

func combinations() map[string]combination {
	return map[string]combination{
		"Default": {release: name},
		"OtherName": {release: "tidy", check: func(t *testing.T, o objects) {
			want := []string{
				"--leader-elect", "--health-probe-bind-address=:8081", "--metrics-bind-address=:8443", "--webhook-port=9443",
				"--webhook-cert-dir=/var/run/cleaner/webhook", "--webhook-service=tidy-cleaner-webhook",
				"--webhook-secret=tidy-cleaner-webhook-cert", "--webhook-configuration=tidy-cleaner-webhook", "--signing-secret=tidy-cleaner-signing-key",
			}
			if diff := cmp.Diff(want, manager(t, o).Spec.Template.Spec.Containers[0].Args); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		}},
		"LongName": {release: "a-name-as-long-as-helm-lets-a-release-have-it-53-long", check: func(t *testing.T, o objects) {
			for id, u := range o {
				if u.GetKind() == "Service" && len(u.GetName()) > 63 {
					t.Errorf("%s has a name that is too long", id)
				}
			}
		}},
		"Renamed":   {release: name, values: "{nameOverride: janitor}"},
		"EveryFlag": {release: name, values: everyFlag},
		"Templates": {release: name, kinds: []string{kind}, check: func(t *testing.T, o objects) {
			all, err := templates.LoadAll()
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range all {
				u := o["CleanerTemplate "+want.Name]
				if u == nil || u.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
					t.Errorf("the template %s is not there, or would go with the chart", want.Name)
					continue
				}
				u.SetLabels(nil)
				u.SetAnnotations(nil)
				got := get[v1alpha1.CleanerTemplate](t, o, "CleanerTemplate "+want.Name)
				if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
					t.Errorf("%s (-shipped +chart):\n%s", want.Name, diff)
				}
			}
		}},
		"NoTemplates": {release: name, values: "{templates: {enabled: false}}", kinds: []string{kind}, check: func(t *testing.T, o objects) {
			o.mustLack(t, "CleanerTemplate ")
		}},
		"NoCRDs": {release: name, values: "{crds: {enabled: false}}", check: func(t *testing.T, o objects) {
			o.mustLack(t, "CustomResourceDefinition ")
		}},
		"CRDsGo": {release: name, values: "{crds: {keep: false}}", check: func(t *testing.T, o objects) {
			if policy, ok := o["CustomResourceDefinition cleaners.cleaner.vtex.dev"].GetAnnotations()["helm.sh/resource-policy"]; ok {
				t.Errorf("they are kept: %s", policy)
			}
		}},
		"NoPresets": {
			release: name, values: "{presets: {workloads: false, pods: false, knative: false}}",
			check: func(t *testing.T, o objects) {
				o.mustLack(t, "ClusterRole cleaner-targets-")
				get[rbacv1.ClusterRole](t, o, "ClusterRole cleaner-targets") // which sums up those of others
			},
		},
		"OtherAccount": {
			release: name, values: "{serviceAccount: {create: false, name: robot}}",
			check: func(t *testing.T, o objects) {
				o.mustLack(t, "ServiceAccount ")
				if got := manager(t, o).Spec.Template.Spec.ServiceAccountName; got != "robot" {
					t.Errorf("it runs as %s", got)
				}
			},
		},
		"Image": {
			release: name, values: "{image: {repository: registry.example.com/cleaner, digest: 'sha256:" + strings.Repeat("0a", 32) + "', pullSecrets: [{name: registry}]}}",
			check: func(t *testing.T, o objects) {
				pod := manager(t, o).Spec.Template.Spec
				if want := "registry.example.com/cleaner:" + version(t) + "@sha256:" + strings.Repeat("0a", 32); pod.Containers[0].Image != want {
					t.Errorf("the image is %s", pod.Containers[0].Image)
				}
				if len(pod.ImagePullSecrets) != 1 || pod.ImagePullSecrets[0].Name != "registry" {
					t.Errorf("it is pulled with %v", pod.ImagePullSecrets)
				}
			},
		},
		"NoWebhook": {
			release: name, values: "{webhook: {enabled: false}}",
			check: func(t *testing.T, o objects) {
				for _, gone := range []string{
					"ValidatingWebhookConfiguration ", "Service cleaner-webhook", "Secret ",
					"Role cleaner-webhook-certificates", "ClusterRole cleaner-webhook-certificates",
				} {
					o.mustLack(t, gone)
				}
				d := manager(t, o).Spec.Template.Spec
				if !slices.Contains(d.Containers[0].Args, "--webhook=false") || len(d.Volumes) > 0 || len(d.Containers[0].Ports) != 2 {
					t.Errorf("the manager serves it: %+v", d.Containers[0])
				}
			},
		},
		"OtherWebhook": {
			release: name, values: "{webhook: {failurePolicy: Ignore, timeoutSeconds: 5, port: 10250}}",
			check: func(t *testing.T, o objects) {
				for _, w := range get[admissionregistrationv1.ValidatingWebhookConfiguration](t, o, "ValidatingWebhookConfiguration cleaner-webhook").Webhooks {
					if *w.FailurePolicy != admissionregistrationv1.Ignore || *w.TimeoutSeconds != 5 {
						t.Errorf("%s: %v, %d s", w.Name, *w.FailurePolicy, *w.TimeoutSeconds)
					}
				}
			},
		},
		"CertManager": {
			release: "tidy", values: "{webhook: {certificates: {source: cert-manager, issuerRef: {kind: ClusterIssuer, name: internal}}}}",
			check: func(t *testing.T, o objects) {
				o.mustLack(t, "Issuer ")
				o.mustLack(t, "Secret ")
				o.mustLack(t, "ClusterRole tidy-cleaner-webhook-certificates")
				spec, _ := o["Certificate tidy-cleaner-webhook"].Object["spec"].(map[string]any)
				want := map[string]any{
					"dnsNames":   []any{"tidy-cleaner-webhook.cleaner-system.svc", "tidy-cleaner-webhook.cleaner-system.svc.cluster.local"},
					"issuerRef":  map[string]any{"kind": "ClusterIssuer", "name": "internal"},
					"secretName": manager(t, o).Spec.Template.Spec.Volumes[0].Secret.SecretName,
				}
				if diff := cmp.Diff(want, spec); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if got := o["ValidatingWebhookConfiguration tidy-cleaner-webhook"].GetAnnotations()["cert-manager.io/inject-ca-from"]; got != "cleaner-system/tidy-cleaner-webhook" {
					t.Errorf("the authority is that of %q", got)
				}
			},
		},
		"NoMetrics": {
			release: name, values: "{metrics: {enabled: false, serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}, readers: [{name: prometheus, namespace: monitoring}]}}",
			check: func(t *testing.T, o objects) {
				o.mustLack(t, "Service cleaner-controller-manager-metrics")
				o.mustLack(t, "ServiceMonitor ")
				o.mustLack(t, "PrometheusRule ")
				o.mustLack(t, "ConfigMap ")
				o.mustLack(t, "ClusterRoleBinding cleaner-metrics-readers")
				if args := manager(t, o).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--metrics-bind-address=0") {
					t.Errorf("they are served: %v", args)
				}
			},
		},
		"Monitored": {
			release: name, values: `{metrics: {readers: [{name: prometheus, namespace: monitoring}], serviceMonitor: {enabled: true, labels: {team: a}, interval: 30s, scrapeTimeout: 10s, tlsConfig: {serverName: a}}}}`,
			check: func(t *testing.T, o objects) {
				binding := get[rbacv1.ClusterRoleBinding](t, o, "ClusterRoleBinding cleaner-metrics-readers")
				if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "prometheus", Namespace: "monitoring"}}, binding.Subjects); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				monitor := o["ServiceMonitor cleaner-controller-manager-metrics"]
				spec, _ := monitor.Object["spec"].(map[string]any)
				endpoint, _ := spec["endpoints"].([]any)[0].(map[string]any)
				want := map[string]any{
					"port": "https", "scheme": "https", "path": "/metrics", "interval": "30s", "scrapeTimeout": "10s", "honorLabels": true,
					"bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token", "tlsConfig": map[string]any{"serverName": "a"},
				}
				if diff := cmp.Diff(want, endpoint); diff != "" || monitor.GetLabels()["team"] != "a" {
					t.Errorf("labels %v, -want +got:\n%s", monitor.GetLabels(), diff)
				}
				selector, _ := spec["selector"].(map[string]any)
				wanted, _ := selector["matchLabels"].(map[string]any)
				service := get[corev1.Service](t, o, "Service cleaner-controller-manager-metrics")
				for k, v := range wanted {
					if service.Labels[k] != v {
						t.Errorf("it does not select the Service: %s=%v", k, v)
					}
				}
			},
		},
		"Alerted": {
			release: name, values: `{metrics: {prometheusRule: {enabled: true, labels: {release: a}}, dashboard: {enabled: true, labels: {found: b}}}}`,
			check: func(t *testing.T, o objects) {
				rules, dashboard := o["PrometheusRule cleaner-alerts"], o["ConfigMap cleaner-dashboard"]
				if rules == nil || rules.GetLabels()["release"] != "a" || dashboard == nil || dashboard.GetLabels()["found"] != "b" {
					t.Errorf("rules with labels: %v, and a dashboard: %v", rules, dashboard)
				}
			},
		},
		"Guarded": {
			release: name, values: `
replicas: 2
podDisruptionBudget: {enabled: true, maxUnavailable: 50%}
networkPolicy:
  enabled: true
  ingress:
    metrics: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  egress:
    enabled: true
    apiServer: {to: [{ipBlock: {cidr: 10.0.0.1/32}}], ports: [443]}
    sinks: {ports: []}
`,
			check: func(t *testing.T, o objects) {
				budget := get[policyv1.PodDisruptionBudget](t, o, "PodDisruptionBudget cleaner-controller-manager")
				if *budget.Spec.MaxUnavailable != intstr.FromString("50%") {
					t.Errorf("%v may be missing", budget.Spec.MaxUnavailable)
				}
				monitoring := []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "monitoring"}}}}
				server := []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.1/32"}}}
				want := networkingv1.NetworkPolicySpec{
					PodSelector: *manager(t, o).Spec.Selector,
					PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
					Ingress: []networkingv1.NetworkPolicyIngressRule{
						{Ports: ports(corev1.ProtocolTCP, 9443)}, {Ports: ports(corev1.ProtocolTCP, 8443), From: monitoring}, {Ports: ports(corev1.ProtocolTCP, 8081)},
					},
					Egress: []networkingv1.NetworkPolicyEgressRule{
						{Ports: append(ports(corev1.ProtocolTCP, 53), ports(corev1.ProtocolUDP, 53)...)}, {Ports: ports(corev1.ProtocolTCP, 443), To: server},
					},
				}
				if diff := cmp.Diff(want, get[networkingv1.NetworkPolicy](t, o, "NetworkPolicy cleaner-controller-manager").Spec); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			},
		},
		"Impersonates": {
			release: "tidy", values: "{impersonation: {namespaces: [default, kube-public]}}",
			check: func(t *testing.T, o objects) { mustImpersonate(t, o, "tidy-cleaner-impersonation") },
		},
		"ImpersonatesAsBefore": {
			release: "tidy", values: "{impersonation: {namespaces: [default, kube-public], legacy: true}}",
			check: func(t *testing.T, o objects) { mustImpersonate(t, o, "tidy-cleaner-legacy-impersonation") },
		},
		"NoAdmissionPolicies": {
			release: name, values: "{admissionPolicies: {enabled: false}}",
			check: func(t *testing.T, o objects) { o.mustLack(t, "ValidatingAdmissionPolicy") },
		},
		"OtherAdmissionPolicies": {
			release: "tidy", values: "{serviceAccount: {create: false, name: robot}}",
			check: func(t *testing.T, o objects) {
				for _, name := range []string{"tidy-cleaner-author", "tidy-cleaner-status"} {
					policy := get[admissionregistrationv1.ValidatingAdmissionPolicy](t, o, "ValidatingAdmissionPolicy "+name)
					if got, want := policy.Spec.Variables[0].Expression, "'system:serviceaccount:' + 'cleaner-system' + ':' + 'robot'"; got != want {
						t.Errorf("the policy %s lets %s write", name, got)
					}
					binding := get[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, o, "ValidatingAdmissionPolicyBinding "+name)
					if binding.Spec.PolicyName != policy.Name {
						t.Errorf("the binding is for the policy %s", binding.Spec.PolicyName)
					}
				}
			},
		},
		"Scheduler": {
			release: "tidy", values: "{scheduler: {enabled: true, replicas: 2, reservedIPv4: 0, reservedIPv6: 5, image: {tag: '1'}}, nodeSelector: {disk: ssd}}",
			check: func(t *testing.T, o objects) {
				const id = "tidy-cleaner-scheduler"
				d := get[appsv1.Deployment](t, o, "Deployment "+id)
				pod := d.Spec.Template.Spec
				if *d.Spec.Replicas != 2 || pod.Containers[0].Image != "ghcr.io/vtex/cleaner-scheduler:1" || pod.NodeSelector["disk"] != "ssd" || pod.ServiceAccountName != id {
					t.Errorf("the Pods are %+v", pod)
				}
				if !labels.SelectorFromSet(d.Spec.Selector.MatchLabels).Matches(labels.Set(d.Spec.Template.Labels)) || labels.SelectorFromSet(d.Spec.Selector.MatchLabels).Matches(labels.Set(manager(t, o).Spec.Template.Labels)) {
					t.Errorf("it selects %v", d.Spec.Selector)
				}
				policy := get[networkingv1.NetworkPolicy](t, o, "NetworkPolicy "+id)
				if diff := cmp.Diff(d.Spec.Selector, &policy.Spec.PodSelector); diff != "" {
					t.Errorf("its policy is for other Pods:\n%s", diff)
				}
				var config struct {
					LeaderElection struct{ ResourceNamespace, ResourceName string }
					Profiles       []struct {
						SchedulerName string
						PluginConfig  []struct {
							Name string
							Args map[string]int
						}
					}
				}
				text := get[corev1.ConfigMap](t, o, "ConfigMap "+pod.Volumes[0].ConfigMap.Name).Data["scheduler.yaml"]
				if err := yaml.Unmarshal([]byte(text), &config); err != nil {
					t.Fatal(err)
				}
				lease := get[rbacv1.Role](t, o, "Role "+id+"-leader-election").Rules[1].ResourceNames
				if config.LeaderElection.ResourceNamespace != namespace || !slices.Equal(lease, []string{config.LeaderElection.ResourceName}) {
					t.Errorf("it may write the Lease %v, and takes %+v", lease, config.LeaderElection)
				}
				plugin := config.Profiles[0].PluginConfig[0]
				if config.Profiles[0].SchedulerName != id || plugin.Name != "PodAllocatableIP" || plugin.Args["reservedIPv4"] != 0 || plugin.Args["reservedIPv6"] != 5 {
					t.Errorf("it is configured by\n%s", text)
				}
				was := d.Spec.Template.Annotations[configured]
				again := get[appsv1.Deployment](t, render(t, "tidy", "{scheduler: {enabled: true, name: other}}"), "Deployment "+id)
				if is := again.Spec.Template.Annotations[configured]; was == "" || is == was {
					t.Errorf("another configuration restarts no Pod: %q", is)
				}
				number := get[corev1.ConfigMap](t, render(t, "tidy", "{scheduler: {enabled: true, name: '123'}}"), "ConfigMap "+id).Data["scheduler.yaml"]
				if !strings.Contains(number, "schedulerName: \"123\"\n") {
					t.Errorf("a name of digits is no text:\n%s", number)
				}
			},
		},
		"NoScheduler": {release: name, check: func(t *testing.T, o objects) {
			for id := range o {
				if strings.Contains(id, "scheduler") {
					t.Errorf("%s is there", id)
				}
			}
		}},
		"NoNetworkPolicy": {
			release: name, values: "{networkPolicy: {enabled: false}, scheduler: {enabled: true}}",
			check: func(t *testing.T, o objects) { o.mustLack(t, "NetworkPolicy") },
		},
		"Placed": {
			release: name, values: `
resources: {requests: {cpu: 1, memory: 200Mi}}
goMemLimit: ""
terminationGracePeriodSeconds: 60
podLabels: {team: a, app.kubernetes.io/name: mine}
podAnnotations: {note: b}
nodeSelector: {disk: ssd}
tolerations: [{key: dedicated, operator: Exists, effect: NoSchedule}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
priorityClassName: system-cluster-critical
serviceAccount: {annotations: {cloud: role}}
health: {port: 9090}
`,
			check: func(t *testing.T, o objects) {
				template := manager(t, o).Spec.Template
				pod := template.Spec
				if template.Labels["team"] != "a" || template.Labels["app.kubernetes.io/name"] != "cleaner" || template.Annotations["note"] != "b" {
					t.Errorf("labels %v, annotations %v", template.Labels, template.Annotations)
				}
				if len(pod.Containers[0].Env) > 0 || *pod.TerminationGracePeriodSeconds != 60 || pod.PriorityClassName != "system-cluster-critical" {
					t.Errorf("got %+v", pod)
				}
				if got := pod.Containers[0].Resources.Requests.Memory().String(); got != "200Mi" {
					t.Errorf("it asks for %s", got)
				}
				if len(pod.Tolerations) != 1 || pod.Affinity.NodeAffinity == nil || pod.NodeSelector["disk"] != "ssd" {
					t.Errorf("it is placed by %v, %v and %v", pod.Tolerations, pod.Affinity, pod.NodeSelector)
				}
				if diff := cmp.Diff(manager(t, o).Spec.Selector, pod.TopologySpreadConstraints[0].LabelSelector); diff != "" {
					t.Errorf("what is spread:\n%s", diff)
				}
				if got := get[corev1.ServiceAccount](t, o, "ServiceAccount cleaner-manager").Annotations["cloud"]; got != "role" {
					t.Errorf("the ServiceAccount's annotation is %q", got)
				}
			},
		},
	}
}

// mustImpersonate wants the operator to be bound to a role in the namespaces default and kube-public, and nowhere else.
func mustImpersonate(t *testing.T, o objects, role string) {
	t.Helper()
	for _, where := range []string{"default", "kube-public"} {
		binding := get[rbacv1.RoleBinding](t, o, "RoleBinding tidy-cleaner-impersonation in "+where)
		if binding.RoleRef.Name != role {
			t.Errorf("in %s it is bound to %s", where, binding.RoleRef.Name)
		}
	}
	for id, u := range o {
		if u.GetKind() == "ClusterRoleBinding" && strings.Contains(get[rbacv1.ClusterRoleBinding](t, o, id).RoleRef.Name, "impersonation") {
			t.Errorf("%s is for all namespaces", id)
		}
	}
}

func ports(protocol corev1.Protocol, numbers ...int) []networkingv1.NetworkPolicyPort {
	var all []networkingv1.NetworkPolicyPort
	for _, n := range numbers {
		all = append(all, networkingv1.NetworkPolicyPort{Protocol: ptr.To(protocol), Port: ptr.To(intstr.FromInt(n))})
	}
	return all
}

func (o objects) mustLack(t *testing.T, prefix string) {
	t.Helper()
	for id := range o {
		if strings.HasPrefix(id, prefix) {
			t.Errorf("%s is there", id)
		}
	}
}

// Each combination passes `helm lint --strict`, without as much as a notice.
func TestLint(t *testing.T) {
	for title, c := range combinations() {
		linter := action.NewLint()
		linter.Strict, linter.Namespace = true, namespace
		result := linter.Run([]string{path}, parse(t, c.values))
		for _, m := range result.Messages {
			if m.Severity >= support.InfoSev {
				t.Errorf("%s: %v", title, m)
			}
		}
		if result.TotalChartsLinted != 1 {
			t.Errorf("%s: %v", title, result.Errors)
		}
	}
}

// What is told after an installation depends on what was installed.
func TestNotes(t *testing.T) {
	const (
		upgrade = "helm upgrade tidy oci://"
		off     = "WARNING: The webhook is off."
		ignored = "nobody asks whether the author"
		goes    = "WARNING: crds.keep is false."
		old     = "Kubernetes before 1.36"
	)
	for values, want := range map[string][]string{
		"":                                   {upgrade},
		"{templates: {enabled: false}}":      nil,
		"{webhook: {enabled: false}}":        {upgrade, off},
		"{webhook: {failurePolicy: Ignore}}": {upgrade, ignored},
		"{crds: {keep: false}}":              {upgrade, goes},
	} {
		r, err := template(t, "tidy", values)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{upgrade, off, ignored, goes, old} {
			if got := strings.Contains(r.Info.Notes, line); got != slices.Contains(want, line) {
				t.Errorf("%s: that the notes say %q is %t:\n%s", values, line, got, r.Info.Notes)
			}
		}
		for _, names := range []string{"deployment/tidy-cleaner-controller-manager", "--clusterrole tidy-cleaner-editor"} {
			if !strings.Contains(r.Info.Notes, names) {
				t.Errorf("%s: the notes do not name %s:\n%s", values, names, r.Info.Notes)
			}
		}
	}
}

func TestCombinations(t *testing.T) {
	for title, c := range combinations() {
		t.Run(title, func(t *testing.T) {
			o := render(t, c.release, c.values, c.kinds...)
			o.hangTogether(t, c.release)
			if c.check != nil {
				c.check(t, o)
			}
		})
	}
}

// hangTogether checks what is true of every combination: whatever is named is there, by the name that it has.
func (o objects) hangTogether(t *testing.T, release string) {
	t.Helper()
	d := manager(t, o)
	pod := d.Spec.Template.Spec
	container := pod.Containers[0]
	selects := func(id string, selector map[string]string) {
		if len(selector) < 3 || !labels.SelectorFromSet(selector).Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("%s does not select the Pods: %v", id, selector)
		}
	}
	selects("the Deployment", d.Spec.Selector.MatchLabels)
	for id, u := range o {
		if u.GetLabels()["app.kubernetes.io/instance"] != release || u.GetLabels()["helm.sh/chart"] != "cleaner-"+version(t) {
			t.Errorf("%s does not say whose it is: %v", id, u.GetLabels())
		}
		if ns := u.GetNamespace(); ns != "" && ns != namespace && !strings.Contains(id, "-impersonation in ") {
			t.Errorf("%s is in namespace %s", id, ns)
		}
		switch u.GetKind() {
		case "Service":
			s := get[corev1.Service](t, o, id)
			selects(id, s.Spec.Selector)
			port := s.Spec.Ports[0].TargetPort.StrVal
			if !slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == port }) {
				t.Errorf("%s leads to a port %q, which the container has not", id, port)
			}
		case "PodDisruptionBudget":
			selects(id, get[policyv1.PodDisruptionBudget](t, o, id).Spec.Selector.MatchLabels)
		case "RoleBinding", "ClusterRoleBinding":
			b := get[rbacv1.ClusterRoleBinding](t, o, id) // a RoleBinding has the same fields
			// The API server itself brings those that begin with system:.
			if b.RoleRef.Name == "" || o[b.RoleRef.Kind+" "+b.RoleRef.Name] == nil && !strings.HasPrefix(b.RoleRef.Name, "system:") {
				t.Errorf("%s binds %s %s, which is not there", id, b.RoleRef.Kind, b.RoleRef.Name)
			}
			if s := b.Subjects[0]; strings.Contains(id, "-scheduler") {
				if o["ServiceAccount "+s.Name] == nil || s.Namespace != namespace {
					t.Errorf("%s is for %v, who is not there", id, s)
				}
			} else if !strings.HasSuffix(id, "-metrics-readers") && (s.Name != pod.ServiceAccountName || s.Namespace != namespace) {
				t.Errorf("%s is for %v, and the Pods run as %s", id, s, pod.ServiceAccountName)
			}
		}
	}
	if o["ServiceAccount "+pod.ServiceAccountName] == nil && pod.ServiceAccountName != "robot" {
		t.Errorf("there is no ServiceAccount %s", pod.ServiceAccountName)
	}

	// The flags have the operator's own defaults where nothing is said.
	flags := map[string]string{
		"--webhook-service": "cleaner-webhook", "--webhook-secret": "cleaner-webhook-cert", "--webhook-configuration": "cleaner-webhook",
	}
	for _, arg := range container.Args {
		flag, value, _ := strings.Cut(arg, "=")
		flags[flag] = value
	}
	for flag, port := range map[string]string{"--health-probe-bind-address": "health", "--metrics-bind-address": "metrics", "--webhook-port": "webhook"} {
		for _, p := range container.Ports {
			if p.Name == port && strings.TrimPrefix(flags[flag], ":") != fmt.Sprint(p.ContainerPort) {
				t.Errorf("%s is %s, and the port is %d", flag, flags[flag], p.ContainerPort)
			}
		}
	}
	if flags["--webhook"] == "false" {
		return
	}
	mounted := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "webhook-cert" })].Secret.SecretName
	for id, u := range o {
		if u.GetKind() != "ValidatingWebhookConfiguration" {
			continue
		}
		for _, w := range get[admissionregistrationv1.ValidatingWebhookConfiguration](t, o, id).Webhooks {
			s := w.ClientConfig.Service
			if o["Service "+s.Name] == nil || s.Namespace != namespace {
				t.Errorf("%s calls Service %s/%s", w.Name, s.Namespace, s.Name)
			}
			if flags["--webhook-cert"] != "files" && flags["--webhook-service"] != s.Name {
				t.Errorf("the certificate is for %s, and %s is called", flags["--webhook-service"], s.Name)
			}
		}
		if flags["--webhook-cert"] == "files" {
			continue
		}
		if flags["--webhook-secret"] != mounted || o["Secret "+mounted] == nil || flags["--webhook-configuration"] != u.GetName() {
			t.Errorf("%v do not fit Secret %s and %s", container.Args, mounted, id)
		}
		prefix := strings.TrimSuffix(u.GetName(), "webhook")
		may := append(get[rbacv1.Role](t, o, "Role "+prefix+"webhook-certificates").Rules, get[rbacv1.ClusterRole](t, o, "ClusterRole "+prefix+"webhook-certificates").Rules...)
		var update []string
		for _, r := range may {
			if slices.Contains(r.Verbs, "update") {
				update = append(update, r.ResourceNames...)
			}
		}
		if diff := cmp.Diff([]string{mounted, u.GetName()}, update); diff != "" {
			t.Errorf("what the operator may write for its certificates:\n%s", diff)
		}
	}
}
