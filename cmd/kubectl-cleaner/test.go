// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/facts"
	"github.com/vtex/cleaner/controllers/plan"
)

// The files of a case.
const (
	fileCleaner      = "cleaner.yaml"
	filePatch        = "patch.yaml"
	fileObjects      = "objects.yaml"
	filePlan         = "plan.yaml"
	fileAt           = "at"
	fileAllowedKinds = "allow-protected-kinds"
)

// testFlags are the command line of `test`.
type testFlags struct {
	update       bool
	junit        string
	templates    []string
	crds         []string
	allowedKinds []string
}

func (t *tool) newTestCommand() *cobra.Command {
	f := &testFlags{}
	cmd := &cobra.Command{
		Use:   "test DIR ...",
		Short: "Hold the plans of Cleaners against what is expected",
		Long: `Hold the plans of Cleaners against what is expected. Each folder below DIR that has an objects.yaml is a case:

  cleaner.yaml  the Cleaner or ClusterCleaner, and perhaps templates; without it, that of the nearest folder above
  patch.yaml    what is different about the Cleaner in this case, as a JSON merge patch
  objects.yaml  the objects of the cluster
  plan.yaml     what is expected: verdict, reason, steps, withheld, pending, next and errors; --update writes it
  at            the time of the decision, such as 2026-01-01T00:00:00Z, which is also what it is without this file; a
                second line is the time since which holds what rules wait for by ` + "`for`" + `
  allow-protected-kinds  the protected resources that may be deleted in this case, one a line, besides those of the flag

cleaner.yaml, plan.yaml and objects.yaml must be there, the others may. Symbolic links below DIR are refused. It also checks that a rule which patches an object before it does something else still wants that when it is patched:
the operator may be stopped in between, and decides anew.`,
		Example: `  kubectl cleaner test config/templates
  kubectl cleaner test --update my-template/testdata`,
		Args:              validateArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeFolders,
		RunE:              func(cmd *cobra.Command, args []string) error { return t.runTests(cmd.Context(), f, args) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.update, "update", false, "write each plan.yaml anew")
	flags.StringVar(&f.junit, "junit", "", "file to write the results to, as JUnit does")
	flags.StringArrayVar(&f.templates, "templates", nil, "file or folder with CleanerTemplates, besides those that are shipped; may be repeated")
	flags.StringArrayVar(&f.crds, "crds", nil, "file or folder with CustomResourceDefinitions; may be repeated")
	flags.StringSliceVar(&f.allowedKinds, "allow-protected-kinds", nil, "protected resources that may be deleted, as for the operator")
	return cmd
}

// caseResult is what became of a case.
type caseResult struct {
	name     string
	duration time.Duration
	// failure says what is wrong; nil if nothing is.
	failure error
}

func (t *tool) runTests(ctx context.Context, f *testFlags, dirs []string) error {
	var folders []*folder
	for _, dir := range dirs {
		f, err := openFolder(dir)
		if err != nil {
			return err
		}
		defer f.close()
		folders = append(folders, f)
	}
	cases, err := findCases(folders)
	if err != nil {
		return err
	}
	l, err := newLoader()
	if err != nil {
		return err
	}
	l.allowedKinds = f.allowedKinds
	var results []caseResult
	failed, p := 0, t.out.newPainter()
	for _, of := range cases {
		began := t.clock.Now()
		r := caseResult{name: filepath.ToSlash(of.displayDir()), failure: t.runCase(ctx, f, l.clone(), of)}
		r.duration = t.clock.Since(began)
		results = append(results, r)
		if r.failure != nil {
			failed++
			t.out.printf("%s %s\n    %s\n", p.red("FAIL"), r.name, escapeLines("    ", r.failure.Error()))
			continue
		}
		t.out.printf("%s   %s\n", p.green("ok"), r.name)
	}
	if f.junit != "" {
		if err := writeJUnit(f.junit, results); err != nil {
			return err
		}
	}
	if failed > 0 {
		t.out.printf("%s\n", p.red(fmt.Sprintf("%d of %s failed", failed, formatCaseCount(len(results)))))
		return errReported
	}
	t.out.printf("%s\n", p.green(formatCaseCount(len(results))+" passed"))
	return nil
}

// formatCaseCount returns a number of cases, in words.
func formatCaseCount(n int) string {
	if n == 1 {
		return "1 case"
	}
	return fmt.Sprintf("%d cases", n)
}

// testCase is the folder of a case.
type testCase struct {
	folder *folder
	// name is that of the folder in the one that the command line names.
	name string
}

// displayDir returns the folder as messages name it.
func (e testCase) displayDir() string { return e.folder.displayPath(e.name) }

// displayPath returns a file of the case as messages name it.
func (e testCase) displayPath(file string) string { return filepath.Join(e.displayDir(), file) }

// readFile reads a file of the case that need not be there.
func (e testCase) readFile(file string) (text []byte, there bool, err error) {
	name := filepath.Join(e.name, file)
	if there, err = e.folder.hasFile(name); !there || err != nil {
		return nil, there, err
	}
	text, err = e.folder.readFile(name)
	return text, true, err
}

// findCases are the folders with cases. A Cleaner of which there is none is an error, or it would seem to be tested; and so is
// a link, or what is behind it would.
func findCases(folders []*folder) ([]testCase, error) {
	var (
		cases []testCase
		paths []string
	)
	for _, f := range folders {
		paths = append(paths, f.path)
		var cleaners []string
		found := len(cases)
		err := f.walkFiles(func(name string, mode fs.FileMode) error {
			switch filepath.Base(name) {
			case fileObjects:
				cases = append(cases, testCase{f, filepath.Dir(name)})
			case fileCleaner:
				cleaners = append(cleaners, filepath.Dir(name))
			}
			return f.checkRegular(name, mode)
		})
		if err != nil {
			return nil, err
		}
		for _, dir := range cleaners {
			below := func(e testCase) bool {
				return dir == "." || e.name == dir || strings.HasPrefix(e.name, dir+string(filepath.Separator))
			}
			if !slices.ContainsFunc(cases[found:], below) {
				return nil, fmt.Errorf("there is no case of %s: write one into %s, a folder with %s and %s", f.displayPath(filepath.Join(dir, fileCleaner)), f.displayPath(filepath.Join(dir, "testdata")), fileObjects, filePlan)
			}
		}
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("there is no case in %s: each is a folder with %s and %s, and %s there or above", strings.Join(paths, ", "), fileObjects, filePlan, fileCleaner)
	}
	return cases, nil
}

// readCleaner reads the Cleaner of a case: that of its folder, or of the nearest one above it. It may be above what the command
// line names, and is no link there either.
func (e testCase) readCleaner() (path string, documents []*document, err error) {
	whole, err := filepath.Abs(e.displayDir())
	if err != nil {
		return "", nil, err
	}
	for at, up := e.displayDir(), whole; ; at, up = filepath.Join(at, ".."), filepath.Dir(up) {
		above, err := openFolder(at)
		if err != nil {
			return "", nil, err
		}
		there, err := above.hasFile(fileCleaner)
		if there && err == nil {
			documents, err = above.readDocuments(fileCleaner)
		}
		above.close()
		if there || err != nil {
			return above.displayPath(fileCleaner), documents, err
		}
		if up == filepath.Dir(up) {
			return "", nil, fmt.Errorf("%s has no %s, and no folder above it has one", e.displayDir(), fileCleaner)
		}
	}
}

// applyPatch applies the patch of a case to its Cleaner.
func (e testCase) applyPatch(own *document) error {
	text, there, err := e.readFile(filePatch)
	if !there || err != nil {
		return err
	}
	path := e.displayPath(filePatch)
	patch, err := yaml.YAMLToJSONStrict(text)
	switch {
	case err != nil:
		return fmt.Errorf("%s is no YAML: %w", path, err)
	case !bytes.HasPrefix(patch, []byte("{")):
		return fmt.Errorf("%s is no merge patch: write what is different, such as spec: {mode: DryRun}", path)
	}
	before, err := json.Marshal(own.object)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return fmt.Errorf("cannot apply %s: %w", path, err)
	}
	return own.decodeJSON(after)
}

// expectedPlan is what plan.yaml holds of a plan: all but what differs without a reason, such as UIDs.
type expectedPlan struct {
	Verdict  string                  `json:"verdict"`
	Reason   string                  `json:"reason"`
	Steps    []plan.DocumentStep     `json:"steps,omitempty"`
	Withheld []plan.DocumentWithheld `json:"withheld,omitempty"`
	Pending  []plan.DocumentPending  `json:"pending,omitempty"`
	Next     plan.Moment             `json:"next"`
	Errors   []plan.DocumentError    `json:"errors,omitempty"`
}

func (t *tool) runCase(ctx context.Context, f *testFlags, l *loader, of testCase) error {
	m, err := of.readTimes()
	if err != nil {
		return err
	}
	path, documents, err := of.readCleaner()
	if err != nil {
		return err
	}
	more, err := t.readPaths(f.templates)
	if err != nil {
		return err
	}
	if err := joinErrors(l.addTemplates(ctx, slices.Concat(more, documents))); err != nil {
		return err
	}
	own, err := selectCleaner(path, documents)
	if err != nil {
		return err
	}
	if err := of.applyPatch(own); err != nil {
		return err
	}
	allowed, _, err := of.readFile(fileAllowedKinds)
	if err != nil {
		return err
	}
	l.allowedKinds = slices.Concat(l.allowedKinds, strings.Fields(string(allowed)))
	c := l.loadCleaner(ctx, own, nil)
	if c.isInvalid() {
		return joinErrors(c.problems)
	}
	if !c.work.Cluster && c.owner.GetNamespace() == "" {
		c.owner.SetNamespace("default")
	}
	objects, err := of.folder.readDocuments(filepath.Join(of.name, fileObjects))
	if err != nil {
		return err
	}
	definitions, err := t.readPaths(f.crds)
	if err != nil {
		return err
	}
	world, err := newOfflineObjects(objects, definitions)
	if err != nil {
		return err
	}
	protection := plan.Protection{Namespaces: facts.ProtectedNamespaces(), AllowedKinds: l.allowedKinds}
	p := computePlan(ctx, c, world, nil, protection, m)
	if err := of.comparePlan(&p, buildOwner(c, m), m.at, f.update); err != nil {
		return err
	}
	return t.checkStepsAfterPatch(ctx, c, world, protection, m, &p)
}

// joinErrors returns an error of the problems that are no warnings.
func joinErrors(problems []problem) error {
	var lines []string
	for _, p := range problems {
		if !p.warning {
			lines = append(lines, p.String())
		}
	}
	if lines == nil {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// readTimes reads when a case is decided.
func (e testCase) readTimes() (planTimes, error) {
	m := planTimes{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	m.since = m.at
	text, there, err := e.readFile(fileAt)
	if !there || err != nil {
		return m, err
	}
	path := e.displayPath(fileAt)
	lines := strings.Fields(string(text))
	if len(lines) == 0 || len(lines) > 2 {
		return planTimes{}, fmt.Errorf("%s has %d times: write that of the decision, and perhaps below it that since which everything holds", path, len(lines))
	}
	for i, into := range []*time.Time{&m.at, &m.since}[:len(lines)] {
		if *into, err = time.Parse(time.RFC3339, lines[i]); err != nil {
			return planTimes{}, fmt.Errorf("%s: %s is no time: write one such as 2026-01-01T00:00:00Z", path, lines[i])
		}
	}
	if len(lines) == 1 {
		m.since = m.at
	}
	return m, nil
}

// comparePlan holds a plan against that of the case, or writes it there.
func (e testCase) comparePlan(p *plan.Plan, owner plan.Owner, at time.Time, update bool) error {
	d := p.ToDocument(owner, at, nil)
	want := expectedPlan{Verdict: string(d.Verdict), Reason: d.Reason, Steps: d.Steps, Withheld: d.Withheld, Pending: d.Pending, Next: d.Next, Errors: d.Errors}
	for i := range want.Steps {
		want.Steps[i].UID, want.Steps[i].ResourceVersion = "", ""
	}
	for i := range want.Withheld {
		want.Withheld[i].UID, want.Withheld[i].ResourceVersion = "", ""
	}
	got, err := marshalYAML(want)
	if err != nil {
		return err
	}
	path := e.displayPath(filePlan)
	before, there, err := e.readFile(filePlan)
	switch {
	case err != nil:
		return err
	case update && there && bytes.Equal(before, got):
		return nil
	case update:
		return e.folder.writeFile(filepath.Join(e.name, filePlan), got)
	case !there:
		return fmt.Errorf("%s is missing: write what is expected, or let --update write it", path)
	}
	// Both go through YAML once more, so that comments and the order of keys make no difference.
	var left, right any
	if err := yaml.Unmarshal(before, &left); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	if err := yaml.Unmarshal(got, &right); err != nil {
		return err
	}
	if diff := cmp.Diff(left, right); diff != "" {
		return fmt.Errorf("the plan is not that of %s (-expected, +planned):\n%s", path, diff)
	}
	return nil
}

// What JUnit's XML needs.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func writeJUnit(path string, results []caseResult) error {
	suite := junitSuite{Name: "kubectl cleaner test", Tests: len(results)}
	for _, r := range results {
		one := junitCase{Name: r.name, Class: "cleaner", Time: fmt.Sprintf("%.3f", r.duration.Seconds())}
		if r.failure != nil {
			suite.Failures++
			first, _, _ := strings.Cut(r.failure.Error(), "\n")
			one.Failure = &junitFailure{Message: first, Text: r.failure.Error()}
		}
		suite.Cases = append(suite.Cases, one)
	}
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644) //nolint:gosec // a report for others to read
}
