// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const testTimeout = 30 * time.Second

func TestKubectl(t *testing.T) {
	c, _ := needCluster(t)
	out, err := c.Kubectl(t.Context(), "version", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	type info struct{ GitVersion, Major, Minor string }
	var got struct{ ClientVersion, ServerVersion info }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	source, err := sourceDir(t.Context(), "test", "controlplane")
	if err != nil {
		t.Fatal(err)
	}
	version, err := requiredVersion(t.Context(), source, "k8s.io/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{version, version}, []string{got.ClientVersion.GitVersion, got.ServerVersion.GitVersion}); diff != "" {
		t.Errorf("versions of client and server (-want +got):\n%s", diff)
	}

	if _, err := c.Kubectl(t.Context(), "get", "no-such-kind"); err == nil || !strings.Contains(err.Error(), "no-such-kind") {
		t.Errorf("kubectl get no-such-kind: want an error that says what kubectl said, got %v", err)
	}
}

func TestIdentities(t *testing.T) {
	c, admin := needCluster(t)
	ns := newNamespace(t, c)
	if _, err := admin.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	robot, err := c.ServiceAccountConfig(t.Context(), ns, "robot")
	if err != nil {
		t.Fatal(err)
	}
	alice, err := c.ConfigFor("alice", "developers")
	if err != nil {
		t.Fatal(err)
	}

	type want struct {
		user   string
		groups []string
	}
	cases := map[string]struct {
		reason string
		config *rest.Config
		want   want
	}{
		"Admin": {
			reason: "Config is the administrator",
			config: c.Config(),
			want:   want{user: Admin, groups: []string{"system:masters", "system:authenticated"}},
		},
		"User": {
			reason: "ConfigFor is the named user in the named groups",
			config: alice,
			want:   want{user: "alice", groups: []string{"developers", "system:authenticated"}},
		},
		"ServiceAccount": {
			reason: "ServiceAccountConfig is who a Pod of that ServiceAccount would be",
			config: robot,
			want: want{
				user:   "system:serviceaccount:" + ns + ":robot",
				groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + ns, "system:authenticated"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			review, err := clientFor(t, tc.config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := want{user: review.Status.UserInfo.Username, groups: review.Status.UserInfo.Groups}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}

	if _, err := c.ServiceAccountConfig(t.Context(), ns, "nobody"); !apierrors.IsNotFound(err) {
		t.Errorf("a ServiceAccount that does not exist: want NotFound, got %v", err)
	}
}

func TestServiceAccountIsSubjectToRBAC(t *testing.T) {
	c, admin := needCluster(t)
	ns := newNamespace(t, c)
	cfg, err := c.ServiceAccountConfig(t.Context(), ns, "default")
	if err != nil {
		t.Fatal(err)
	}
	robot := clientFor(t, cfg)
	if _, err := robot.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("list without a grant: want Forbidden, got %v", err)
	}
	grantEverything(t, admin, ns)
	// RBAC is read from a cache of the API server, which follows a moment later.
	poll(t, func(ctx context.Context) (bool, error) {
		_, err := robot.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
	if _, err := robot.CoreV1().ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list in another namespace: want Forbidden, got %v", err)
	}
}

func TestServiceAccountAdmission(t *testing.T) {
	c, admin := needCluster(t)
	ns := newNamespace(t, c)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	got, err := admin.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.ServiceAccountName != "default" || len(got.Spec.Volumes) != 1 {
		t.Errorf("the admission plugin must add the ServiceAccount and its token: got %q and volumes %v", got.Spec.ServiceAccountName, got.Spec.Volumes)
	}
}

func TestGarbageCollector(t *testing.T) {
	c, admin := needCluster(t)
	ns := newNamespace(t, c)
	configMaps := admin.CoreV1().ConfigMaps(ns)
	owner, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	if _, err := configMaps.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := configMaps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, func(ctx context.Context) (bool, error) {
		_, err := configMaps.Get(ctx, owned.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})
}

func TestNamespaceIsEmptiedAndRemoved(t *testing.T) {
	c, admin := needCluster(t)
	ns := newNamespace(t, c)
	if err := admin.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, func(ctx context.Context) (bool, error) {
		_, err := admin.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})
}

func TestWriteKubeconfig(t *testing.T) {
	c, _ := needCluster(t)
	ns := newNamespace(t, c)
	robot, err := c.ServiceAccountConfig(t.Context(), ns, "default")
	if err != nil {
		t.Fatal(err)
	}
	alice, err := c.ConfigFor("alice")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		config *rest.Config
		want   string
	}{
		"Certificate": {reason: "a client certificate survives", config: alice, want: "alice"},
		"Token":       {reason: "a token survives", config: robot, want: "system:serviceaccount:" + ns + ":default"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := WriteKubeconfig(path, tc.config); err != nil {
				t.Fatal(err)
			}
			out, err := c.Kubectl(t.Context(), "--kubeconfig", path, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(out)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPause(t *testing.T) {
	c, _ := needCluster(t)
	for _, name := range []Component{Etcd, APIServer, ControllerManager} {
		t.Run(string(name), func(t *testing.T) {
			if err := c.Signal(name, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			p, err := c.components.find(name)
			if err != nil {
				t.Fatal(err)
			}
			poll(t, func(ctx context.Context) (bool, error) {
				ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				return errors.Is(probe(ctx, c.health, p.ready), context.DeadlineExceeded), nil
			})
			if err := c.Signal(name, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			poll(t, func(ctx context.Context) (bool, error) { return probe(ctx, c.health, p.ready) == nil, nil })
		})
	}
}

func TestRestart(t *testing.T) {
	c, admin := needCluster(t)
	ns := newNamespace(t, c)
	for _, name := range []Component{Etcd, APIServer, ControllerManager} {
		t.Run(string(name), func(t *testing.T) {
			before, err := c.PID(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Signal(name, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := c.Restart(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			after, err := c.PID(name)
			if err != nil {
				t.Fatal(err)
			}
			if before == after || !gone(before) || gone(after) {
				t.Errorf("want process %d replaced by a living one, got %d", before, after)
			}
			poll(t, func(ctx context.Context) (bool, error) { // the API server's connections to etcd come back one by one
				_, err := admin.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					t.Fatal("the data are lost")
				}
				return err == nil, nil
			})
		})
	}
	if _, err := c.PID("no-such-component"); err == nil {
		t.Error("a component that does not exist: want an error")
	}
}

func TestRun(t *testing.T) {
	c, _ := needCluster(t)
	ports, err := FindFreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	proxy := ProgramOptions{
		Name: "proxy", Path: c.binaries.Kubectl, Args: []string{"proxy", fmt.Sprintf("--port=%d", ports[0])},
		Env:     []string{"KUBECONFIG=" + c.dir.file("admin.kubeconfig")},
		LogPath: c.dir.file("proxy.log"), Ready: loopback("http", ports[0]) + "/readyz",
	}
	for range 2 { // the second one takes the port of the first
		p, err := c.Run(t.Context(), proxy)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.Exited():
			t.Error("the program runs, but Exited says otherwise")
		default:
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.Exited()
	}

	proxy.Args = []string{"no-such-command"}
	if _, err := c.Run(t.Context(), proxy); err == nil || !strings.Contains(err.Error(), "no-such-command") {
		t.Errorf("a program that ends at once: want its last words, got %v", err)
	}
}

func TestStartFails(t *testing.T) {
	needCluster(t)
	dir := t.TempDir()
	_, err := Start(t.Context(), Options{Dir: dir, APIServerFlags: []string{"--no-such-flag"}})
	if err == nil {
		t.Fatal("want an error")
	}
	if !strings.Contains(err.Error(), "kube-apiserver") || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("want the name and the last words of the component, got:\n%v", err)
	}
	if left := mentioning(dir); len(left) > 0 {
		t.Errorf("etcd had been started: processes %v are left", left)
	}
}

func TestStop(t *testing.T) {
	needCluster(t)
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, name := range []Component{Etcd, APIServer, ControllerManager} {
		pid, err := c.PID(name)
		if err != nil {
			t.Fatal(err)
		}
		if gone(pid) {
			t.Errorf("%s does not run", name)
		}
		pids = append(pids, pid)
	}
	if err := c.Signal(Etcd, syscall.SIGSTOP); err != nil { // a paused process must go too
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary folder is left: %v", err)
	}
	if err := c.Signal(Etcd, syscall.SIGCONT); err == nil {
		t.Error("Signal after Stop: want an error")
	}
	if _, err := c.Run(t.Context(), ProgramOptions{Name: "late", Path: c.binaries.Kubectl}); err == nil {
		t.Error("Run after Stop: want an error")
	}
}

func TestDiesWithParent(t *testing.T) {
	needCluster(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can tie a child's life to its parent's")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), orphanEnv+"=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var dir string
	pids := make([]int, 3)
	if _, err := fmt.Sscan(line, &dir, &pids[0], &pids[1], &pids[2]); err != nil {
		t.Fatalf("cannot read %q: %v", line, err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, pid := range pids {
		if gone(pid) {
			t.Errorf("process %d does not run", pid)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
	poll(t, func(context.Context) (bool, error) { return gone(pids[0]) && gone(pids[1]) && gone(pids[2]), nil })
}

// gone tells whether a process has ended. One that nobody has reaped yet has ended too.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(err, os.ErrNotExist) && runtime.GOOS == "linux"
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

// mentioning returns the processes with text in their command line, on systems that have /proc.
func mentioning(text string) []string {
	var pids []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), text) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// poll waits until the condition holds.
func poll(t *testing.T, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), pollInterval, testTimeout, true, condition); err != nil {
		t.Fatal(err)
	}
}

// grantEverything lets the default ServiceAccount of a namespace do what it likes there.
func grantEverything(t *testing.T, admin kubernetes.Interface, ns string) {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "default"}},
	}
	if _, err := admin.RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
