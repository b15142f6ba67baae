// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/live"
	"github.com/vtex/cleaner/test/operator"
)

// patience bounds every wait: far more than a busy machine needs.
const patience = 90 * time.Second

// shared is the control plane with the operator installed, and binary is the manager. In tools is kubectl-cleaner.
var (
	shared        *cluster.Cluster
	binary, tools string
)

func TestMain(m *testing.M) {
	clustertest.Suite{Ready: ready}.Main(m)
}

func ready(ctx context.Context, c *cluster.Cluster) error {
	shared, tools = c, filepath.Join(c.Dir(), "tools")
	var errs [3]error
	var all sync.WaitGroup
	all.Go(func() { binary, errs[0] = operator.Build(ctx, c.Dir(), os.Stderr) })
	all.Go(func() { errs[1] = buildPlugin(ctx) })
	all.Go(func() { errs[2] = operator.Install(ctx, c) })
	all.Wait()
	return errors.Join(errs[:]...)
}

// buildPlugin builds kubectl-cleaner.
func buildPlugin(ctx context.Context) error {
	root, err := operator.Root()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", tools+"/", "./cmd/kubectl-cleaner")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build kubectl-cleaner: %w\n%s", err, out)
	}
	return nil
}

// rig is the operator behind a proxy, a Prometheus that scrapes it, and a person at a shell.
type rig struct {
	*testing.T
	*timeline
	whole     *testing.T // of all scenarios; T is the one of this one
	root      string
	env       []string
	proxy     *httptest.Server
	reader    *rest.Config
	manager   *operator.Process
	ahead     atomic.Int64 // by which the API server's clock is, in seconds
	failLists atomic.Bool  // lists of metadata fail
	tried     map[string]bool
}

func newRig(t *testing.T) *rig {
	t.Helper()
	all, honor := readRules(t)
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, whole: t, timeline: newTimeline(t, all, honor), root: root, tried: map[string]bool{}}
	bin, kubeconfig := t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.Symlink(shared.KubectlPath(), filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WriteKubeconfig(kubeconfig, shared.Config()); err != nil {
		t.Fatal(err)
	}
	r.env = append(os.Environ(), "PATH="+bin+":"+tools+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+t.TempDir())
	r.must("kubectl create namespace shop && kubectl wait --for=create serviceaccount/default -n shop --timeout=60s")
	r.must("kubectl create clusterrolebinding reads-metrics --clusterrole=cleaner-metrics-reader --serviceaccount=shop:default")
	if r.reader, err = shared.ServiceAccountConfig(t.Context(), "shop", "default"); err != nil {
		t.Fatal(err)
	}
	r.serveProxy()
	return r
}

// serveProxy puts a proxy before the API server, which sets its clock ahead and lets lists fail.
func (r *rig) serveProxy() {
	r.Helper()
	behind, err := url.Parse(shared.Config().Host)
	if err != nil {
		r.Fatal(err)
	}
	tlsConfig, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: shared.Config().CAData}})
	if err != nil {
		r.Fatal(err)
	}
	silent := log.New(io.Discard, "", 0)
	transport := &http.Transport{TLSClientConfig: tlsConfig}
	forward := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(behind) }, Transport: transport, FlushInterval: -1, ErrorLog: silent,
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Set("Date", time.Now().Add(time.Duration(r.ahead.Load())*time.Second).UTC().Format(http.TimeFormat))
			return nil
		},
	}
	r.proxy = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.failLists.Load() && req.Method == http.MethodGet && req.URL.Query().Get("watch") == "" && strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadataList") {
			http.Error(w, "not now", http.StatusInternalServerError)
			return
		}
		forward.ServeHTTP(w, req)
	}))
	r.proxy.Config.ErrorLog = silent
	r.proxy.StartTLS()
	r.Cleanup(func() {
		r.proxy.CloseClientConnections()
		r.proxy.Close()
		transport.CloseIdleConnections()
	})
}

// start runs the operator.
func (r *rig) start(args ...string) {
	r.Helper()
	r.pods++
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.proxy.Certificate().Raw})
	var err error
	r.manager, err = operator.Run(r.whole.Context(), shared, operator.Options{
		Binary: binary, Name: fmt.Sprint(r.pods), Env: []string{"GOMEMLIMIT=680MiB"}, Args: append([]string{"--min-interval=100ms", "--finish-grace=2s"}, args...),
		Through: func(c *rest.Config) { c.Host, c.CAData = r.proxy.URL, ca },
	})
	if err != nil {
		r.Fatal(err)
	}
	p := r.manager
	r.whole.Cleanup(func() {
		if err := p.Kill(); err != nil {
			r.Error(err)
		}
	})
}

// stop ends the operator as a Node would.
func (r *rig) stop() {
	r.Helper()
	if err := r.manager.Signal(syscall.SIGTERM); err != nil {
		r.Fatal(err)
	}
	select {
	case <-r.manager.Exited():
	case <-time.After(patience):
		r.Fatal("the operator does not stop")
	}
}

// restart replaces the operator's Pod, and two minutes pass until it leads again.
func (r *rig) restart() {
	r.Helper()
	r.stop()
	r.show(nil)
	r.pass(2 * time.Minute)
	r.start()
	r.owns()
}

// owns waits until the operator owns all shards.
func (r *rig) owns() {
	r.Helper()
	r.scrape("it owns all", is("cleaner_shards", 16))
}

// run runs a command in a shell.
func (r *rig) run(text string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", text)
	cmd.Dir, cmd.Env = r.root, r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *rig) must(text string) {
	r.Helper()
	if out, err := r.run(text); err != nil {
		r.Fatalf("$ %s\n%s%v", text, out, err)
	}
}

// apply creates objects.
func (r *rig) apply(manifests string) {
	r.Helper()
	path := filepath.Join(r.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, []byte(manifests), 0o600); err != nil {
		r.Fatal(err)
	}
	r.must("kubectl apply --server-side --validate=strict -f " + path)
}

// mustGo waits until the objects of shop with these names are gone.
func (r *rig) mustGo(kind string, names ...string) {
	r.Helper()
	r.must("kubectl -n shop wait " + kind + " " + strings.Join(names, " ") + " --for=delete --timeout=60s")
}

// scrape waits until the operator shows something, and has Prometheus see it.
func (r *rig) scrape(what string, shows func(samples) bool) {
	r.Helper()
	live.Eventually(r.T, what, func() string {
		status, text, err := operator.Scrape(r.Context(), r.manager.Metrics, r.reader)
		if err != nil || status != http.StatusOK {
			return fmt.Sprintf("no metrics, but %d: %v", status, err)
		}
		s := r.parse(text)
		if !shows(s) {
			shown := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
				return !strings.HasPrefix(line, "cleaner_") || strings.Contains(line, "_bucket{")
			})
			return "the metrics do not show it:\n" + strings.Join(shown, "\n")
		}
		r.show(s)
		return ""
	})
}

// grow makes a counter grow for as long as an alert asks for, each time by an action, and has Prometheus see it each time.
func (r *rig) grow(during time.Duration, metric string, with []string, act func(n int)) {
	r.Helper()
	var last float64
	r.scrape(metric, func(s samples) bool { last, _ = s.sum(metric, with...); return true })
	for n, until := 0, r.now.Add(during); r.now.Before(until); n++ {
		act(n)
		r.scrape(metric+" grows", func(s samples) bool {
			now, _ := s.sum(metric, with...)
			if now <= last {
				return false
			}
			last = now
			return true
		})
		r.pass(12 * time.Minute) // and a minute in which it grew
	}
}

// fires checks that an alert fires with some labels, and not before its time.
func (r *rig) fires(alert string, want ...string) {
	r.Helper()
	r.tried[alert] = true
	got := r.firing(alert)
	for _, w := range want {
		if !strings.Contains(strings.Join(got, "\n"), w) {
			r.Fatalf("%s fires for %q, want %q", alert, got, want)
		}
	}
	if len(got) == 0 {
		r.Fatalf("%s does not fire", alert)
	}
}

// follow runs the commands of the runbook of an alert. What only reads may be a little early.
func (r *rig) follow(alert string) {
	r.Helper()
	for _, c := range commands(r.T, alert) {
		reads := strings.Contains(c.text, " get ") || strings.Contains(c.text, " explain ")
		live.Eventually(r.T, "the runbook of "+alert+" is followed", func() string {
			out, err := r.run(c.text)
			missing := c.missing(out)
			if err == nil && missing == "" {
				return ""
			}
			wrong := fmt.Sprintf("$ %s\n%sdoes not print %q: %v", c.text, out, missing, err)
			if !reads {
				r.Fatal(wrong)
			}
			return wrong
		})
	}
}

// ends checks that an alert ends.
func (r *rig) ends(alert string) {
	r.Helper()
	if got := r.firing(alert); len(got) > 0 {
		r.Fatalf("%s still fires for %q", alert, got)
	}
}
