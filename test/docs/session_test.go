// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
)

// patience is how long a command that only reads may take to print what the page shows.
const patience = time.Minute

// The pages that install and uninstall the operator.
const (
	quickStart = "docs/quick-start.md"
	uninstall  = "docs/install.md"
)

// runbooks is the page whose commands need what has gone wrong: test/alerts makes it happen, and runs them.
const runbooks = "docs/runbooks.md"

// step is a command of a console block, and what the page shows of its output.
type step struct {
	line    int
	command string
	output  []string
}

// steps parts a console block: a command begins with "$ ", and goes on with "> ".
func (b block) steps() ([]step, error) {
	var all []step
	for i, line := range strings.Split(strings.TrimRight(b.text, "\n"), "\n") {
		command, isCommand := strings.CutPrefix(line, "$ ")
		more, goesOn := strings.CutPrefix(line, "> ")
		switch {
		case isCommand:
			all = append(all, step{line: b.line + 1 + i, command: command})
		case len(all) == 0:
			return nil, fmt.Errorf("line %d shows output of no command", b.line+1+i)
		case goesOn && len(all[len(all)-1].output) == 0:
			all[len(all)-1].command += "\n" + more
		default:
			all[len(all)-1].output = append(all[len(all)-1].output, strings.TrimRight(line, " "))
		}
	}
	return all, nil
}

// notRun are commands that no test can run, by how they begin, and why. Of those of make, the target must be there.
func notRun() map[string]string {
	return map[string]string{
		"cosign ":           "needs a key and a registry",
		"docker ":           "needs a container daemon and a registry",
		"jq .predicate":     "reads what a registry has",
		"export PATH=":      "the session has the plugin on its PATH already",
		"go install ":       "the session has the plugin already",
		"make build":        "compiles everything once more: the session has the plugin already",
		"make demo":         "starts a control plane of its own",
		"make docker-build": "needs a container daemon",
		"make image-push":   "needs a registry",
		"make lint":         "compiles the linter",
		"make release":      "compiles the plugin for five platforms: releaseFiles makes the rest",
		"make scheduler-":   "compiles kube-scheduler, and needs a registry",
		"make test":         "is what runs this test",
		"make verify":       "changes the working tree",
		"tar -xzf":          "the session has the plugin already",
	}
}

// unrunnable says why a command is not run; empty if it is.
func unrunnable(command string) string {
	for prefix, why := range notRun() {
		if strings.HasPrefix(command, prefix) {
			return why
		}
	}
	return ""
}

// releaseFiles puts the manifests of a release, and their checksums, into the folder of the session.
const releaseFiles = `here=$PWD && (cd "$(dirname "$(readlink -f go.mod)")" && go run ./hack/release --version=0.1.0 ` +
	`--image=registry.example.com/cleaner:0.1.0 --out="$here/released" files) && mv released/* . && rmdir released`

// prepared are commands that a page takes for done before it begins.
func prepared() map[string][]string {
	return map[string][]string{
		// Pods wait for their ServiceAccount, and nothing runs them: their phase is written by hand.
		"docs/cel.md": {
			"kubectl create namespace shop --dry-run=client -o yaml | kubectl apply --server-side -f -",
			"kubectl wait --for=create serviceaccount/default -n shop --timeout=60s",
			"kubectl apply --server-side -f docs/why/objects.yaml",
			`kubectl patch pod batch -n shop --subresource=status --type=merge -p='{"status":{"phase":"Failed"}}'`,
			"kubectl apply --server-side -f docs/why/cleaner.yaml",
		},
		"README.md": {releaseFiles},
		uninstall:   {releaseFiles},
		"docs/cli.md": {
			"kubectl create namespace shop --dry-run=client -o yaml | kubectl apply --server-side -f -",
			"kubectl apply --server-side -f docs/why/cleaner.yaml",
		},
		// Something to stop, and to keep.
		"docs/operations.md": {
			"make templates",
			"kubectl apply --server-side -f config/samples/cleaner_v1alpha1_podgc-orphaned.yaml",
			"kubectl create namespace shop --dry-run=client -o yaml | kubectl apply --server-side -f -",
			"kubectl apply --server-side -f docs/why/cleaner.yaml",
		},
	}
}

// meanwhile is what happens before a command, by others: a page is about it, and does not tell to do it.
func meanwhile() map[string]string {
	return map[string]string{
		"kubectl create -f signing-key.yaml": "kubectl -n cleaner-system delete secret cleaner-signing-key",
		"kubectl apply -f cluster.yaml":      "kubectl delete cleaners --all --all-namespaces && kubectl delete clustercleaners,cleanertemplates --all",
	}
}

// Each command on a page does what the page says: it succeeds, and prints what is shown beneath it, in a cluster into
// which the pages themselves have installed the operator. The files that a page shows under a name are there.
func TestSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not with -short")
	}
	s := newShell(t)
	for _, p := range inOrder(pages(t)) {
		if len(p.blocks) == 0 || p.name == runbooks {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			s.lay(t, p)
			if p.name != quickStart {
				s.install(t)
				s.apply(t, p)
			}
			for _, command := range prepared()[p.name] {
				if out, err := s.run(t.Context(), command); err != nil {
					t.Fatalf("%s: %v\n%s", command, err, out)
				}
			}
			for _, b := range p.blocks {
				if b.language != "console" {
					continue
				}
				steps, err := b.steps()
				if err != nil {
					t.Fatalf("%s: %v", p.name, err)
				}
				s.dir = s.root
				for _, step := range steps {
					if why := unrunnable(step.command); why != "" {
						t.Logf("%s:%d: not run: %s", p.name, step.line, why)
						continue
					}
					if happens := meanwhile()[step.command]; happens != "" {
						if out, err := s.run(t.Context(), happens); err != nil {
							t.Fatalf("%s: %v\n%s", happens, err, out)
						}
					}
					if err := s.perform(t, step); err != nil {
						t.Fatalf("%s:%d: $ %s\n%v", p.name, step.line, step.command, err)
					}
				}
			}
			if p.name == quickStart {
				s.apply(t, p)
			}
		})
	}
}

// inOrder has the page that installs first, and the one that uninstalls last.
func inOrder(pages []page) []page {
	rank := func(p page) int {
		switch p.name {
		case quickStart:
			return 0
		case uninstall:
			return 2
		default:
			return 1
		}
	}
	slices.SortStableFunc(pages, func(a, b page) int { return rank(a) - rank(b) })
	return pages
}

// shell is where commands are run: a folder that looks like the repository, beside a control plane.
type shell struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface
	// binary is the manager, and manager its run: nil while there is none.
	binary  string
	manager *operator.Process
	runs    int
	gate    *operator.Gate
	// root is the folder, and dir where the last command has left off.
	root, dir string
	env       []string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	ctx := t.Context()
	c, err := cluster.Start(ctx, cluster.Options{Log: os.Stderr, APIServerFlags: operator.Routing()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{cluster: c, client: client, root: filepath.Join(t.TempDir(), "cleaner")}
	if s.binary, err = operator.Build(ctx, t.TempDir(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	bin, kubeconfig := filepath.Dir(plugin(t)), filepath.Join(t.TempDir(), "kubeconfig")
	if err := errors.Join(
		os.Symlink(c.KubectlPath(), filepath.Join(bin, "kubectl")),
		cluster.WriteKubeconfig(kubeconfig, c.Config()),
		mirror(s.root),
	); err != nil {
		t.Fatal(err)
	}
	s.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+t.TempDir())
	return s
}

// plugin builds kubectl-cleaner, and says where it is.
func plugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubectl-cleaner")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/kubectl-cleaner")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// mirror makes a folder whose entries are those of the repository, so that a session can write files of its own there.
func mirror(dir string) error {
	from, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// lay writes the files that a page shows under a name.
func (s *shell) lay(t *testing.T, p page) {
	t.Helper()
	s.dir = s.root
	for _, b := range p.blocks {
		if b.file == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(s.root, b.file), []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// install has the operator there, for a page that is looked at alone.
func (s *shell) install(t *testing.T) {
	t.Helper()
	if s.manager != nil {
		return
	}
	if err := s.perform(t, step{command: "make deploy"}); err != nil {
		t.Fatal(err)
	}
}

// apply sends each manifest of a page to the API server, as it stands.
func (s *shell) apply(t *testing.T, p page) {
	t.Helper()
	for _, b := range p.blocks {
		manifest, err := b.manifest()
		if err != nil {
			t.Errorf("%s:%d: %v", p.name, b.line, err)
		}
		if manifest == nil {
			continue
		}
		if manifest.Namespace != "" {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: manifest.Namespace}}
			if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		path := filepath.Join(t.TempDir(), "manifest.yaml")
		if err := os.WriteFile(path, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.cluster.Kubectl(t.Context(), "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", path); err != nil {
			t.Errorf("%s:%d: %v", p.name, b.line, err)
		}
	}
}

// perform runs a command, and says how what it prints differs from what is shown. What only reads may be a little early.
func (s *shell) perform(t *testing.T, step step) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var wrong error
	var printed []byte
	once := func(ctx context.Context) (bool, error) {
		out, err := s.run(ctx, step.command)
		wrong = differs(step, out, err)
		printed = out
		return wrong == nil, nil
	}
	if step.offline() || !reads(step.command) || len(step.output) == 0 {
		_, _ = once(ctx)
	} else {
		_ = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, once) // wrong says why it gave up
	}
	t.Logf("$ %s\n%s", step.command, printed)
	if wrong == nil && deploys.MatchString(step.command) {
		return s.serve(ctx)
	}
	return wrong
}

// deploys are commands that change which Pods of the operator there are to be.
var deploys = regexp.MustCompile(`^make deploy|^kubectl apply .* install\.yaml$|^kubectl .*scale deployment/cleaner`)

// reads says whether a command may be run again without doing anything twice.
func reads(command string) bool {
	return regexp.MustCompile(`^kubectl (-n \S+ )?(get|describe|events|auth can-i|cleaner (explain|plan|validate|test)) `).MatchString(command)
}

// offline says whether a command looks at files alone: it prints the same each time, to the letter.
func (s step) offline() bool {
	return strings.Contains(s.command, " --objects ") || strings.HasPrefix(s.command, "kubectl cleaner test ")
}

// differs holds what a command printed against what is shown. What fails must be shown to fail.
func differs(step step, out []byte, err error) error {
	if len(step.output) == 0 {
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	got, want := alike(strings.Split(strings.TrimSpace(string(out)), "\n"), step.offline()), alike(step.output, step.offline())
	if diff := cmp.Diff(cut(want), cut(got)); diff != "" {
		return errors.Join(fmt.Errorf("-shown +printed:\n%s\n%s", diff, out), err)
	}
	return nil
}

var (
	moments = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z`)
	ages    = regexp.MustCompile(`\b(\d+[dhms]){1,3}\b`)
	blanks  = regexp.MustCompile(` {2,}`)
)

// alike takes out of lines what is different each time: the width of columns, and, of a cluster, times and ages.
func alike(lines []string, offline bool) []string {
	var all []string
	for _, line := range lines {
		line = strings.TrimRight(line, " ")
		if !offline {
			line = ages.ReplaceAllString(moments.ReplaceAllString(line, "TIME"), "AGE")
			line = blanks.ReplaceAllString(line, "  ")
		}
		all = append(all, line)
	}
	return all
}

// cut leaves out blank lines at the ends.
func cut(lines []string) []string {
	return strings.Split(strings.Trim(strings.Join(lines, "\n"), "\n"), "\n")
}

// run runs one command by bash, where the last one has left off. What it says besides is shown when it fails.
func (s *shell) run(ctx context.Context, command string) ([]byte, error) {
	left := filepath.Join(filepath.Dir(s.root), "left")
	c := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command+"\nstatus=$?; pwd > "+left+"; exit $status")
	c.Dir, c.Env = s.dir, s.env
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	if dir, readErr := os.ReadFile(left); readErr == nil {
		s.dir = strings.TrimSpace(string(dir))
	}
	if err != nil {
		return append(stdout.Bytes(), stderr.Bytes()...), err
	}
	return stdout.Bytes(), nil
}

// serve does what a kubelet would after a change of the operator's Deployment: it runs the manager, or ends it, and says that its
// Pods are ready.
func (s *shell) serve(ctx context.Context) error {
	deployment, err := s.client.AppsV1().Deployments(operator.Namespace).Get(ctx, operator.Deployment, metav1.GetOptions{})
	if err != nil {
		return err
	}
	wanted := ptr.Deref(deployment.Spec.Replicas, 1) > 0
	switch {
	case !wanted && s.manager != nil:
		s.gate.To(0)
		err := s.manager.Kill()
		s.manager = nil
		return err
	case !wanted:
		return nil
	case s.gate == nil:
		if s.gate, err = operator.OpenGate(ctx, s.cluster); err != nil {
			return err
		}
	}
	if s.manager == nil {
		s.runs++
		options := operator.Options{Binary: s.binary, Name: strconv.Itoa(s.runs), Webhook: s.gate, Args: []string{"--min-interval=100ms"}}
		if s.manager, err = operator.Run(ctx, s.cluster, options); err != nil {
			return err
		}
	}
	pods := s.client.CoreV1().Pods(operator.Namespace)
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=manager"})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			switch _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); {
			case apierrors.IsConflict(err), apierrors.IsNotFound(err): // its controller was faster
				return false, nil
			case err != nil:
				return false, err
			}
		}
		return true, nil
	})
}

func TestWrongOutputIsFound(t *testing.T) {
	cases := map[string]struct {
		command, shown, printed string
		failed, wrong           bool
	}{
		"the same":                {"kubectl get pods", "a  1s", "a  1s", false, false},
		"other ages and widths":   {"kubectl get pods", "a  1s", "a    2m3s", false, false},
		"other times":             {"kubectl cleaner explain a", "at 2026-01-01T00:00:00Z", "at 2026-02-01T00:00:00Z", false, false},
		"nothing shown":           {"kubectl apply -f a", "", "a created", false, false},
		"a failure that is shown": {"kubectl apply -f a", "refused", "refused", true, false},
		"other words":             {"kubectl get pods", "a  Running", "a  Failed", false, true},
		"a line more":             {"kubectl get pods", "a", "a\nb", false, true},
		"a line less":             {"kubectl get pods", "a\nb", "a", false, true},
		"a failure":               {"kubectl apply -f a", "", "refused", true, true},
		"other times offline":     {"kubectl cleaner plan --objects a -f b", "at 2026-01-01T00:00:00Z", "at 2026-02-01T00:00:00Z", false, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := step{command: tc.command}
			if tc.shown != "" {
				s.output = strings.Split(tc.shown, "\n")
			}
			var failure error
			if tc.failed {
				failure = errors.New("exit status 1")
			}
			if err := differs(s, []byte(tc.printed), failure); (err != nil) != tc.wrong {
				t.Errorf("got %v", err)
			}
		})
	}
}
