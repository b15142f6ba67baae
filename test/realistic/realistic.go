// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package realistic makes Pods and Nodes as clusters have them, with all that a Deployment, the scheduler and a kubelet write: probes,
// environment, volumes, conditions, the statuses of containers, and managedFields. Benchmarks and tests of memory use them, because what an
// object takes depends on the fields that it has.
//
// It makes objects and nothing else. Two calls with the same numbers make the same object.
package realistic

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// apps is how many Deployments the Pods belong to.
const apps = 200

// NodeName is the name of a Node, by its number.
func NodeName(n int) string { return fmt.Sprintf("node-%d", n) }

// Pod makes the Pod of a number, which runs on the Node of a number: about 8 KB of JSON, almost half of them managedFields.
func Pod(namespace string, n, node int) (*corev1.Pod, error) {
	app := fmt.Sprintf("web-%d", n%apps)
	hash := fmt.Sprintf("%010x", n%apps*7919)
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%s-%05x", app, hash, n), GenerateName: app + "-" + hash + "-",
			UID: uid(n), CreationTimestamp: startOf(n), Generation: 1,
			Labels:          map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "app.kubernetes.io/part-of": "shop", "pod-template-hash": hash},
			Annotations:     map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "checksum/config": strings.Repeat(hash, 6)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app + "-" + hash, UID: uid(1<<24 + n%apps), Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		},
		Spec:   podSpec(app, NodeName(node)),
		Status: podStatus(app, n, node),
	}
	return p, manage(&p.ObjectMeta, p, "kube-controller-manager", "kubelet")
}

func podSpec(app, node string) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: node, ServiceAccountName: app, DeprecatedServiceAccount: app, SchedulerName: "default-scheduler", RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst,
		TerminationGracePeriodSeconds: ptr.To[int64](30), EnableServiceLinks: ptr.To(true), Priority: ptr.To[int32](0), PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority),
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), FSGroup: ptr.To[int64](1000), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers:      []corev1.Container{container(app, 4)},
		Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": app}},
		}},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: app}, DefaultMode: ptr.To[int32](420)}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](420), Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](3607), Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			}}}},
		},
	}
}

// container makes the container of an app, with so many settings in its environment.
func container(app string, settings int) corev1.Container {
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
			InitialDelaySeconds: 5, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
		}
	}
	c := corev1.Container{
		Name: "main", Image: "images.example.com/shop/" + app + ":v1.2.3", ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"--listen=:8080", "--config=/etc/shop/config.yaml"},
		Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Env:       []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}},
		Resources: corev1.ResourceRequirements{Requests: resources("100m", "128Mi"), Limits: resources("1", "256Mi")},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/shop", ReadOnly: true}, {Name: "tmp", MountPath: "/tmp"},
			{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		},
		LivenessProbe: probe("/healthz"), ReadinessProbe: probe("/readyz"),
		TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
	}
	for i := range settings {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: fmt.Sprintf("https://service-%d.%s.svc.cluster.local", i, app)})
	}
	return c
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func podStatus(app string, n, node int) corev1.PodStatus {
	start := startOf(n)
	s := corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: &start, HostIP: hostIP(node), HostIPs: []corev1.HostIP{{IP: hostIP(node)}},
		PodIP: fmt.Sprintf("10.%d.%d.%d", 64+n>>16, n>>8&255, n&255),
	}
	s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: start})
	}
	s.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", Image: "images.example.com/shop/" + app + ":v1.2.3", ImageID: "images.example.com/shop/" + app + "@sha256:" + strings.Repeat("0f", 32),
		ContainerID: fmt.Sprintf("containerd://%064x", n), Ready: true, Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}},
	}}
	return s
}

// Node makes the Node of a number, with 20 images.
func Node(n int) (*corev1.Node, error) {
	o := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: NodeName(n), UID: uid(1<<28 + n), CreationTimestamp: startOf(0), Labels: map[string]string{
			corev1.LabelHostname: NodeName(n), corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", n%3), corev1.LabelTopologyRegion: "region", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelInstanceTypeStable: "large",
		}},
		Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.%d.%d.0/24", 64+n>>8, n&255), ProviderID: fmt.Sprintf("example://%d", n)},
		Status: corev1.NodeStatus{
			Capacity: resources("16", "64Gi"), Allocatable: resources("15", "60Gi"), Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIP(n)}, {Type: corev1.NodeHostName, Address: NodeName(n)}},
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.1.0", OSImage: "Linux", ContainerRuntimeVersion: "containerd://2.1.0", KubeletVersion: "v1.36.0", Architecture: "amd64", OperatingSystem: "linux"},
		},
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, LastHeartbeatTime: startOf(n), LastTransitionTime: startOf(0), Reason: "Kubelet" + string(kind), Message: "kubelet has said so of " + string(kind)}
		if kind == corev1.NodeReady {
			c.Status = corev1.ConditionTrue
		}
		o.Status.Conditions = append(o.Status.Conditions, c)
	}
	for i := range 20 {
		o.Status.Images = append(o.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("images.example.com/shop/web-%d@sha256:%064x", i, i), fmt.Sprintf("images.example.com/shop/web-%d:v1.2.3", i)}, SizeBytes: int64(i+1) << 24})
	}
	return o, manage(&o.ObjectMeta, o, "kubelet", "kubelet")
}

func uid(n int) types.UID { return types.UID(fmt.Sprintf("9f0d9a3e-5a50-4a9e-8f6e-%012x", n)) }

func hostIP(node int) string { return fmt.Sprintf("192.168.%d.%d", node>>8, node&255) }

// startOf is when the object of a number was made: they are a second apart.
func startOf(n int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC))
}

// manage adds the managedFields of an object that one manager has made and another one reports on.
func manage(meta *metav1.ObjectMeta, o any, maker, reporter string) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return fmt.Errorf("cannot find the fields of %s: %w", meta.Name, err)
	}
	entry := func(manager, subresource string, parts ...string) error {
		of := map[string]any{}
		for _, part := range parts {
			of[part] = content[part]
		}
		text, err := json.Marshal(fieldsOf(of))
		if err != nil {
			return fmt.Errorf("cannot write the fields of %s: %w", meta.Name, err)
		}
		fields := &metav1.FieldsV1{}
		fields.SetRawBytes(text)
		meta.ManagedFields = append(meta.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &meta.CreationTimestamp, FieldsType: "FieldsV1", FieldsV1: fields, Subresource: subresource,
		})
		return nil
	}
	delete(content["metadata"].(map[string]any), "uid")
	if err := entry(maker, "", "metadata", "spec"); err != nil {
		return err
	}
	return entry(reporter, "status", "status")
}

// fieldsOf is the set of fields of a value, in the format of managedFields: elements of lists are known by name, type or number, or not at all.
func fieldsOf(value any) map[string]any {
	out := map[string]any{}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			out["f:"+key] = fieldsOf(value[key])
		}
	case []any:
		for _, element := range value {
			object, _ := element.(map[string]any)
			for _, key := range []string{"name", "type", "containerPort", "mountPath", "ip"} {
				if of, ok := object[key]; ok {
					text := fmt.Sprintf(`k:{"%s":%q}`, key, fmt.Sprint(of))
					fields := fieldsOf(object)
					fields["."] = map[string]any{}
					out[text] = fields
					break
				}
			}
		}
	}
	return out
}
