// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
)

// Admin is the user of Config, and the name that its requests carry in the audit log.
const Admin = "admin"

// pollInterval is the pause between two looks at something that another process is about to do.
const pollInterval = 50 * time.Millisecond

//go:embed auditpolicy.yaml
var auditPolicy []byte

// Options say how a cluster differs from the usual one. The zero value is good.
type Options struct {
	// Dir takes certificates, data and logs, and is left behind by Stop. Empty means a temporary folder that Stop removes.
	Dir string
	// APIServerFlags are given to kube-apiserver after our own, so that they win.
	APIServerFlags []string
	// Controllers are the controllers of kube-controller-manager to run instead of DefaultControllers.
	Controllers []string
	// Log receives a line about what takes long. It may be nil.
	Log io.Writer
}

// DefaultControllers are the controllers that run unless Options say otherwise: those that make objects behave as in any
// cluster. Those that need nodes or a cloud are missing, and so are those that remove Pods: that is the work of Cleaners here.
func DefaultControllers() []string {
	return []string{
		"garbage-collector-controller", "namespace-controller",
		"serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller",
		"clusterrole-aggregation-controller", "disruption-controller",
		"deployment-controller", "replicaset-controller", "statefulset-controller", "daemonset-controller",
		"job-controller", "cronjob-controller", "endpointslice-controller",
		"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller",
	}
}

// Cluster is a running control plane. Its methods may be called from several goroutines.
type Cluster struct {
	dir      folder
	keepDir  bool
	binaries Binaries
	ca       *authority
	admin    *rest.Config
	etcdURL  string
	health   *http.Client

	mu         sync.Mutex
	components components
}

// Start builds the programs if need be, starts them, and returns when the cluster is ready for use. ctx bounds the start,
// not the cluster: that lives until Stop, or until this process ends (on Linux, however it ends).
func Start(ctx context.Context, o Options) (*Cluster, error) {
	binaries, err := FindBinaries(ctx, o.Log)
	if err != nil {
		return nil, err
	}
	dir, err := makeFolder(o.Dir)
	if err != nil {
		return nil, err
	}
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, keepDir: o.Dir != "", binaries: binaries, ca: ca, components: components{thread: newThread()}}
	if err := c.start(ctx, o); err != nil {
		c.keepDir = true // the logs in it tell why
		return nil, errors.Join(err, c.Stop())
	}
	fmt.Fprintf(discardNil(o.Log), "control plane at %s, logs in %s\n", c.admin.Host, c.dir)
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	plan, err := c.layOut(o)
	if err != nil {
		return err
	}
	if c.health, err = rest.HTTPClientFor(c.admin); err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	for _, p := range plan {
		if err := c.add(p); err != nil {
			return err
		}
		if err := p.waitReady(ctx, c.health); err != nil {
			return err
		}
	}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		if err := WaitForDefaults(ctx, c.admin, namespace); err != nil {
			return err
		}
	}
	return nil
}

// add starts a process, which Stop will end.
func (c *Cluster) add(p *process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.components.add(p)
}

// layOut writes the files that the components read and returns the components, in the order in which they must start.
func (c *Cluster) layOut(o Options) ([]*process, error) {
	ports, err := FindFreePorts(4)
	if err != nil {
		return nil, err
	}
	etcdURL, peerURL := loopback("http", ports[0]), loopback("http", ports[1])
	c.etcdURL = etcdURL
	apiURL, managerURL := loopback("https", ports[2]), loopback("https", ports[3])
	c.admin = &rest.Config{Host: apiURL, QPS: -1} // the server has its own limits; a test should not wait for the client's

	admin, err := c.ConfigFor(Admin, "system:masters")
	if err != nil {
		return nil, err
	}
	c.admin = admin
	manager, err := c.ConfigFor("system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	crt, key, err := c.ca.server(net.IPv4(10, 0, 0, 1))
	if err != nil {
		return nil, err
	}
	tokenKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, fmt.Errorf("cannot make the key of the ServiceAccounts: %w", err)
	}
	for name, content := range map[string][]byte{
		"ca.crt": c.ca.pem, "server.crt": crt, "server.key": key, "serviceaccount.key": tokenKey, "audit-policy.yaml": auditPolicy,
	} {
		if err := os.WriteFile(c.dir.file(name), content, 0o600); err != nil {
			return nil, fmt.Errorf("cannot write the files of the control plane: %w", err)
		}
	}
	if err := errors.Join(
		WriteKubeconfig(c.dir.file("admin.kubeconfig"), admin),
		WriteKubeconfig(c.dir.file("kube-controller-manager.kubeconfig"), manager),
	); err != nil {
		return nil, err
	}

	controllers := o.Controllers
	if len(controllers) == 0 {
		controllers = DefaultControllers()
	}
	return []*process{
		{
			name: Etcd, path: c.binaries.Etcd, logPath: c.dir.file("etcd.log"), ready: etcdURL + "/readyz",
			args: []string{
				"--data-dir=" + c.dir.file("etcd"),
				"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
				"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL, "--initial-cluster=default=" + peerURL,
				"--unsafe-no-fsync", // nothing here needs to outlive a power cut
			},
		},
		{
			name: APIServer, path: c.binaries.APIServer, logPath: c.dir.file("kube-apiserver.log"), ready: apiURL + "/readyz",
			args: append([]string{
				"--etcd-servers=" + etcdURL,
				"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(ports[2]),
				// Without these two it asks for an address that other machines can reach, and fails where there is none.
				"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
				"--tls-cert-file=" + c.dir.file("server.crt"), "--tls-private-key-file=" + c.dir.file("server.key"),
				"--client-ca-file=" + c.dir.file("ca.crt"),
				"--authorization-mode=RBAC",
				"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
				"--service-account-signing-key-file=" + c.dir.file("serviceaccount.key"), "--service-account-key-file=" + c.dir.file("serviceaccount.key"),
				"--service-cluster-ip-range=10.0.0.0/24",
				"--allow-privileged=true",
				"--audit-policy-file=" + c.dir.file("audit-policy.yaml"), "--audit-log-path=" + c.dir.auditLog(),
				"--audit-log-maxsize=0", // one file, never rotated: a Witness reads on where it stopped
			}, o.APIServerFlags...),
		},
		{
			name: ControllerManager, path: c.binaries.ControllerManager, logPath: c.dir.file("kube-controller-manager.log"), ready: managerURL + "/healthz",
			args: c.dir.controllerManagerFlags(ports[3], controllers),
		},
	}, nil
}

// RunControllers starts one more kube-controller-manager under a name, with nothing but these controllers and with further
// flags, and returns when it is ready.
func (c *Cluster) RunControllers(ctx context.Context, name string, controllers []string, flags ...string) (*Program, error) {
	ports, err := FindFreePorts(1)
	if err != nil {
		return nil, err
	}
	p := &process{
		name: Component(name), path: c.binaries.ControllerManager, logPath: c.dir.file(name + ".log"), ready: loopback("https", ports[0]) + "/healthz",
		args: append(c.dir.controllerManagerFlags(ports[0], controllers), flags...),
	}
	return c.run(ctx, p, c.health)
}

// Stop ends the control plane and returns when no process of it is left. It may be called more than once.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.components.stopped {
		return nil
	}
	errs := []error{c.components.stop()}
	if c.health != nil {
		c.health.CloseIdleConnections()
	}
	if !c.keepDir {
		errs = append(errs, os.RemoveAll(string(c.dir)))
	}
	return errors.Join(errs...)
}

// Keep has Stop keep the folder, so that a person can read its logs.
func (c *Cluster) Keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keepDir = true
}

// Dir returns the folder with certificates, data and logs.
func (c *Cluster) Dir() string { return string(c.dir) }

// PID returns the process id of a component.
func (c *Cluster) PID(name Component) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.components.find(name)
	if err != nil {
		return 0, err
	}
	return p.cmd.Process.Pid, nil
}

// Signal sends a signal to one component: SIGSTOP and SIGCONT to pause and resume it, SIGKILL to crash it. It does not wait for the
// effect: a paused process may still answer for some milliseconds.
func (c *Cluster) Signal(name Component, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.components.find(name)
	if err != nil {
		return err
	}
	return p.signal(sig)
}

// Restart ends one component, if it has not crashed yet, starts it with the same flags, port and data, and returns when it
// is ready.
func (c *Cluster) Restart(ctx context.Context, name Component) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.components.find(name)
	if err != nil {
		return err
	}
	if err := p.kill(); err != nil {
		return err
	}
	if err := p.start(c.components.thread); err != nil {
		return err
	}
	return p.waitReady(ctx, c.health)
}

// EtcdURL is where etcd serves its clients, of whom it asks for nothing.
func (c *Cluster) EtcdURL() string { return c.etcdURL }

// Config returns the configuration of a client that may do everything.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// ConfigFor returns the configuration of a client that is this user, in these groups, by a client certificate. What the
// user may do is up to RBAC.
func (c *Cluster) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	crt, key, err := c.ca.client(user, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            c.admin.Host,
		QPS:             c.admin.QPS,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.pem, CertData: crt, KeyData: key},
	}, nil
}

// ServiceAccountConfig returns the configuration of a client that is an existing ServiceAccount, by a token as a Pod would
// have it, good for a day.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(24 * 60 * 60))}}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot get a token of ServiceAccount %q in %q: %w", name, namespace, err)
	}
	return &rest.Config{
		Host:            c.admin.Host,
		QPS:             c.admin.QPS,
		BearerToken:     token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.pem},
	}, nil
}

// Namespace makes a namespace with a generated name, and returns the name when Pods can be created in it.
func (c *Cluster) Namespace(ctx context.Context, prefix string) (string, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return "", fmt.Errorf("cannot make a client: %w", err)
	}
	ns, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("cannot create a namespace: %w", err)
	}
	return ns.Name, WaitForDefaults(ctx, c.admin, ns.Name)
}

// Kubectl runs kubectl as Admin and returns what it printed. Plugins are found on PATH as usual.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.binaries.Kubectl, args...)
	// By environment, because plugins allow no flags before their name.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.dir.file("admin.kubeconfig"), "KUBECACHEDIR="+c.dir.file("kubectl-cache"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("cannot run kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// WriteKubeconfig writes the configuration of a client as a file for kubectl and for flags named --kubeconfig.
func WriteKubeconfig(path string, cfg *rest.Config) error {
	const name = "cleaner-test"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("cannot write the kubeconfig %q: %w", path, err)
	}
	return nil
}

// WaitForDefaults returns when controllers have put into the namespace what Pods there need.
func WaitForDefaults(ctx context.Context, admin *rest.Config, namespace string) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true, func(ctx context.Context) (bool, error) {
		if _, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return false, ignoreNotFound(err)
		}
		_, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil, ignoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("cannot see kube-controller-manager at work (a default ServiceAccount and ConfigMap in %q): %w", namespace, err)
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func loopback(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

// KubectlPath returns the kubectl of this version, for people.
func (c *Cluster) KubectlPath() string { return c.binaries.Kubectl }
