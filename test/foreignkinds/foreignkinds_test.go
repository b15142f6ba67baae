// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package foreignkinds

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/kindschemas"
	"github.com/vtex/cleaner/test/cluster"
)

// project is where the definitions of a project are: in files of its Go module, or in a folder of this repository.
type project struct{ module, pattern, folder string }

// projects are those whose kinds people clean. Those of KubeVirt are in no Go module that can be downloaded.
func projects() map[string]project {
	return map[string]project{
		"Knative Serving":  {module: "knative.dev/serving", pattern: "config/core/300-resources/*.yaml"},
		"Tekton Pipelines": {module: "github.com/tektoncd/pipeline", pattern: "config/300-crds/*.yaml"},
		"cert-manager":     {module: "github.com/cert-manager/cert-manager", pattern: "deploy/crds/*.yaml"},
		"Argo Workflows":   {module: "github.com/argoproj/argo-workflows/v4", pattern: "manifests/base/crds/full/argoproj.io_*.yaml"},
		"Argo Rollouts":    {module: "github.com/argoproj/argo-rollouts", pattern: "manifests/crds/*-crd.yaml"},
		"Argo CD":          {module: "github.com/argoproj/argo-cd/v3", pattern: "manifests/crds/*-crd.yaml"},
		"Spiderpool":       {folder: "../spiderpool/crds/spiderpool.yaml"},
	}
}

// readProject reads the definitions of a project.
func readProject(ctx context.Context, p project) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files := []string{p.folder}
	if p.module != "" {
		var err error
		if files, err = cluster.ThirdPartyCRDs(ctx, p.module, p.pattern); err != nil {
			return nil, err
		}
	}
	return cluster.ReadCRDs(files...)
}

// definitions are those of all projects, read once.
var definitions = sync.OnceValues(func() (map[string][]*apiextensionsv1.CustomResourceDefinition, error) {
	all := map[string][]*apiextensionsv1.CustomResourceDefinition{}
	for name, p := range projects() {
		crds, err := readProject(context.Background(), p)
		if err != nil {
			return nil, err
		}
		all[name] = crds
	}
	return all, nil
})

// needDefinitions returns the definitions of all projects. It needs a network, or what was downloaded before.
func needDefinitions(t *testing.T) map[string][]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	if testing.Short() {
		t.Skip("it downloads modules")
	}
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ways are the ways in which schemas are made of definitions: from --crds, and as the API server publishes them.
func ways() map[string]func(*apiextensionsv1.CustomResourceDefinition, schema.GroupVersionKind) (*objectschema.Schema, error) {
	return map[string]func(*apiextensionsv1.CustomResourceDefinition, schema.GroupVersionKind) (*objectschema.Schema, error){
		"Definition": func(crd *apiextensionsv1.CustomResourceDefinition, gvk schema.GroupVersionKind) (*objectschema.Schema, error) {
			return objectschema.OfDefinition(crd, gvk.Version)
		},
		"OpenAPI": func(crd *apiextensionsv1.CustomResourceDefinition, gvk schema.GroupVersionKind) (*objectschema.Schema, error) {
			published, err := builder.BuildOpenAPIV3(crd, gvk.Version, builder.Options{})
			if err != nil {
				return nil, err
			}
			document, err := json.Marshal(published)
			if err != nil {
				return nil, err
			}
			return objectschema.OfOpenAPI(document, gvk)
		},
	}
}

// source has the schemas of definitions, and of the built-in kinds.
type source struct {
	crds  map[schema.GroupKind]*apiextensionsv1.CustomResourceDefinition
	make  func(*apiextensionsv1.CustomResourceDefinition, schema.GroupVersionKind) (*objectschema.Schema, error)
	known map[schema.GroupVersionKind]*objectschema.Schema
}

func newSource(crds []*apiextensionsv1.CustomResourceDefinition, way string) *source {
	s := &source{crds: map[schema.GroupKind]*apiextensionsv1.CustomResourceDefinition{}, make: ways()[way], known: map[schema.GroupVersionKind]*objectschema.Schema{}}
	for _, crd := range crds {
		s.crds[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = crd
	}
	return s
}

// FindSchema makes the schema of a kind, once.
func (s *source) FindSchema(_ context.Context, gvk schema.GroupVersionKind) (*objectschema.Schema, error) {
	if known, ok := s.known[gvk]; ok {
		return known, nil
	}
	crd := s.crds[gvk.GroupKind()]
	if crd == nil {
		return objectschema.OfBuiltIn(scheme.Scheme, gvk), nil
	}
	made, err := s.make(crd, gvk)
	if err == nil && made == nil {
		err = fmt.Errorf("there is no version %s of %s", gvk.Version, crd.Name)
	}
	s.known[gvk] = made
	return made, err
}

// Renew changes nothing.
func (*source) Renew(context.Context) (changed bool, err error) { return false, nil }

// check returns what is wrong with a spec, with errors before what is only likely.
func check(t *testing.T, s *source, compiler *celenv.Compiler, work *v1alpha1.Work) (wrong []string, likely []expr.Warning) {
	t.Helper()
	programs, errs := compiler.Compile(t.Context(), work)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	found, likely := kindschemas.CheckFields(t.Context(), s, work, programs)
	for _, e := range found {
		wrong = append(wrong, e.Field+": "+e.Detail)
	}
	return wrong, likely
}

func newCompiler(t *testing.T) *celenv.Compiler {
	t.Helper()
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return compiler
}

// shipped are the templates, samples and recipes, by where they are.
func shipped(t *testing.T) map[string]*v1alpha1.Work {
	t.Helper()
	all := map[string]*v1alpha1.Work{}
	known, err := templates.LoadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range known {
		work, errs := templates.StandIn(template)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		all["template "+template.Name] = work
	}
	for _, root := range []string{"../../config/samples", "../../docs/examples"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testdata" || filepath.Ext(path) != ".yaml" {
				if err == nil && d.IsDir() && d.Name() == "testdata" {
					return fs.SkipDir
				}
				return err
			}
			if err := readCleaners(path, func(work *v1alpha1.Work) { all[fmt.Sprintf("%s %d", path, len(all))] = work }); err != nil {
				return fmt.Errorf("cannot read %s: %w", path, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// readCleaners reads the Cleaners in a file, with their templates in place.
func readCleaners(path string, add func(*v1alpha1.Work)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var kind struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return err
		}
		var owner v1alpha1.Owner
		switch kind.Kind {
		case "Cleaner":
			owner = &v1alpha1.Cleaner{}
		case "ClusterCleaner":
			owner = &v1alpha1.ClusterCleaner{}
		default:
			continue
		}
		text, err := yaml.YAMLToJSON(document) // yaml.Unmarshal sets parameters where the document has none
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, owner); err != nil {
			return err
		}
		work := owner.Work()
		if use := owner.Common().TemplateRef; use != nil {
			template, err := templates.Load(use.Name)
			if err != nil {
				return err
			}
			expanded, errs := templates.Expand(owner, template)
			if len(errs) > 0 {
				return errs.ToAggregate()
			}
			work = expanded
		}
		add(work)
	}
}

// Nothing is wrong with what is shipped, by the schemas of those whose kinds it reads.
func TestShippedExpressions(t *testing.T) {
	all := needDefinitions(t)
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, of := range all {
		crds = append(crds, of...)
	}
	compiler := newCompiler(t)
	for way := range ways() {
		s, read := newSource(crds, way), map[string]bool{}
		for name, work := range shipped(t) {
			wrong, likely := check(t, s, compiler, work)
			if len(wrong) > 0 || len(likely) > 0 {
				t.Errorf("%s, by its %s: %s %v", name, way, strings.Join(wrong, "\n"), likely)
			}
			for i := range work.Targets {
				if gvk, seen := kindschemas.SeesKind(&work.Targets[i]); seen {
					read[gvk.Group] = true
				}
			}
		}
		for _, group := range []string{"serving.knative.dev", "tekton.dev", "argoproj.io", "spiderpool.spidernet.io"} {
			if !read[group] {
				t.Errorf("nothing reads kinds of %s", group)
			}
		}
	}
}

// about is a spec with conditions about an object w of a kind.
func about(gvk schema.GroupVersionKind, conditions ...string) *v1alpha1.Work {
	work := &v1alpha1.Work{}
	work.Conditions = conditions
	work.Targets = []v1alpha1.ClusterTarget{{Name: "w"}}
	reference := &work.Targets[0].Reference
	reference.APIGroup, reference.Version, reference.Kind, reference.Name = gvk.Group, gvk.Version, gvk.Kind, "w"
	return work
}

// What people ask of these kinds has no finding; mistyped, it has one that names what was meant.
func TestCommonExpressions(t *testing.T) {
	all := needDefinitions(t)
	compiler := newCompiler(t)
	for name, kinds := range map[string]map[schema.GroupVersionKind]map[string]string{
		"Knative Serving": {
			{Group: "serving.knative.dev", Version: "v1", Kind: "Service"}: {
				`condition(w, "Ready").status.orValue("") == "True"`:                           "",
				`w.status.conditions.exists(c, c.type == "Ready" && c.reason == "x")`:          "",
				`w.spec.template.spec.containers.exists(c, c.image.contains("x"))`:             "",
				`w.?status.latestReadyRevisionName.orValue("") == ""`:                          "",
				`w.spec.?traffic.orValue([]).exists(t, t.?revisionName.orValue("") == "x")`:    "",
				`w.status.latestReadyRevision == "x"`:                                          `no field status.latestReadyRevision; did you mean "latestReadyRevisionName"?`,
				`w.status.conditions.exists(c, c.state == "x")`:                                `did you mean "status"?`,
				`w.spec.?trafficc.orValue([]).size() > 0`:                                      `no field spec.trafficc; did you mean "traffic"?`,
				`w.spec.template.spec.containers.exists(c, c.imagePullPollicy == "Always")`:    `did you mean "imagePullPolicy"?`,
				`w.status.traffic.exists(t, t.percent > 0) && w.metadata.generatonn == int(1)`: `did you mean "generation"?`,
			},
			{Group: "serving.knative.dev", Version: "v1", Kind: "Revision"}: {
				`condition(w, "Active").status.orValue("False") == "False" && w.?status.observedGeneration.orValue(0) > 0`: "",
				`w.spec.containerConcurrency == 0 || w.spec.timeoutSeconds > 1`:                                            "",
				`w.spec.containerConcurency == 0`:                                                                          `did you mean "containerConcurrency"?`,
			},
		},
		"Tekton Pipelines": {
			{Group: "tekton.dev", Version: "v1", Kind: "PipelineRun"}: {
				`w.?status.completionTime.hasValue() && w.spec.?pipelineRef.name.orValue("") == "x"`: "",
				`condition(w, "Succeeded").reason.orValue("") == "Completed"`:                        "",
				`w.status.childReferences.exists(c, c.pipelineTaskName == "x")`:                      "",
			},
			{Group: "tekton.dev", Version: "v1", Kind: "TaskRun"}: {
				`w.status.podName == "x" && w.spec.serviceAccountName == "y" && has(w.status.startTime)`: "",
			},
		},
		"cert-manager": {
			{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}: {
				`timestamp(w.status.notAfter) < time && w.spec.secretName != "" && w.spec.issuerRef.name == "x"`: "",
				`condition(w, "Ready").status.orValue("") == "True" && w.spec.dnsNames.size() > 0`:               "",
				`w.status.conditions.exists(c, c.type == "Issuing" && timestamp(c.lastTransitionTime) < time)`:   "",
				`w.status.notafter == "x"`:                 `no field status.notafter; did you mean "notAfter"?`,
				`w.?spec.?issuer.?name.orValue("") == "x"`: `no field spec.issuer; did you mean "issuerRef"?`,
				`w.spec.privateKey.algorithm == "RSSA"`:    `did you mean "RSA"?`,
			},
			{Group: "cert-manager.io", Version: "v1", Kind: "CertificateRequest"}: {
				`has(w.status.failureTime) && w.spec.issuerRef.kind == "ClusterIssuer"`: "",
			},
			{Group: "acme.cert-manager.io", Version: "v1", Kind: "Challenge"}: {
				`w.status.state == "valid" && w.spec.dnsName == "x"`: "",
				`w.status.state == "vallid"`:                         `did you mean "valid"?`,
			},
		},
		"Argo Workflows": {
			{Group: "argoproj.io", Version: "v1alpha1", Kind: "Workflow"}: {
				`w.status.phase == "Succeeded" && timestamp(w.status.finishedAt) < time && !w.spec.?ttlStrategy.hasValue()`: "",
				`w.status.?nodes.orValue({}).exists(n, w.status.nodes[n].phase == "Failed")`:                                "",
				`w.spec.templates.exists(t, t.?container.image.orValue("") == "x")`:                                         "",
				`has(w.status.finishAt)`:                `no field status.finishAt; did you mean "finishedAt"?`,
				`has(w.spec.templates[0].contaner)`:     `did you mean "container"?`,
				`w.spec.?ttlStrategie.hasValue()`:       `did you mean "ttlStrategy"?`,
				`has(w.status.nodes["x"].displayNames)`: `did you mean "displayName"?`,
			},
		},
		"Argo Rollouts": {
			{Group: "argoproj.io", Version: "v1alpha1", Kind: "Rollout"}: {
				`w.spec.replicas == 0 && w.status.phase == "Healthy" && w.status.conditions.exists(c, c.type == "Available")`: "",
				`w.spec.strategy.canary.steps.exists(s, has(s.setWeight))`:                                                    "",
				`w.status.faze == "Healthy"`:   `no field status.faze`,
				`has(w.spec.strategy.cannary)`: `did you mean "canary"?`,
			},
			{Group: "argoproj.io", Version: "v1alpha1", Kind: "AnalysisRun"}: {
				`w.status.phase == "Successful" && w.status.metricResults.exists(m, m.name == "x")`: "",
			},
		},
		"Argo CD": {
			{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"}: {
				`w.status.health.status == "Healthy" && w.status.sync.status == "Synced" && w.spec.destination.namespace == "x"`: "",
				`w.status.resources.exists(r, r.kind == "Deployment" && r.?health.status.orValue("") == "Missing")`:              "",
				`timestamp(w.status.operationState.finishedAt) < time`:                                                           "",
				`w.status.health.state == "Healthy"`:                                                                             `did you mean "status"?`,
				`w.spec.destination.nameSpace == "x"`:                                                                            `did you mean "namespace"?`,
				`has(w.status.operationState.finishAt)`:                                                                          `did you mean "finishedAt"?`,
			},
		},
		"Spiderpool": {
			{Group: "spiderpool.spidernet.io", Version: "v2beta1", Kind: "SpiderIPPool"}: {
				`w.spec.subnet != "" && w.?status.allocatedIPCount.orValue(0) > 0`: "",
				`w.spec.subnets == "x"`: `no field spec.subnets; did you mean "subnet"?`,
			},
		},
	} {
		for way := range ways() {
			s := newSource(all[name], way)
			for gvk, conditions := range kinds {
				for condition, want := range conditions {
					t.Run(name+"/"+way+"/"+gvk.Kind+"/"+condition, func(t *testing.T) {
						wrong, likely := check(t, s, compiler, about(gvk, condition))
						switch {
						case want == "" && (len(wrong) > 0 || len(likely) > 0):
							t.Errorf("got %v, %v", wrong, likely)
						case want != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], want)):
							t.Errorf("got %v, %v, want %q", wrong, likely, want)
						}
					})
				}
			}
		}
	}
}

const (
	// conditionsAtATime is how many fields one spec asks for.
	conditionsAtATime = 40
	// deepest is how deep the fields are, and most how many of a version are tried.
	deepest, most = 7, 400
)

// walked is a field that a definition has, and where it is.
type walked struct {
	path  string // as an expression reads it
	name  string
	known []string // all fields beside it
	open  bool     // what is not named may be there, too
}

// walk lists the fields of a schema, those of less depth first.
func walk(root *apiextensionsv1.JSONSchemaProps) []walked {
	type place struct {
		path string
		of   *apiextensionsv1.JSONSchemaProps
		open bool
	}
	var out []walked
	level := []place{{"w", root, false}}
	for range deepest {
		var next []place
		for _, at := range level {
			of, path := at.of, at.path
			for of.Items != nil && of.Items.Schema != nil {
				of, path = of.Items.Schema, path+"[?0]"
			}
			if of.AdditionalProperties != nil && of.AdditionalProperties.Schema != nil {
				next = append(next, place{path + `[?"key"]`, of.AdditionalProperties.Schema, at.open})
				continue
			}
			preserves := of.XPreserveUnknownFields != nil && *of.XPreserveUnknownFields || of.XEmbeddedResource
			open := at.open || preserves
			names := slices.Sorted(maps.Keys(of.Properties))
			for _, name := range names {
				if path == "w" && name != "spec" && name != "status" || !isIdentifier(name) {
					continue
				}
				field := of.Properties[name]
				out = append(out, walked{path + ".?" + name, name, names, open})
				next = append(next, place{path + ".?" + name, &field, open})
			}
		}
		level = next
	}
	return out
}

// isIdentifier says whether a field can be selected by its name as it is.
func isIdentifier(name string) bool {
	return !slices.Contains([]string{"in", "true", "false", "null", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while"}, name) &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// some are fields from all over a list, the same ones each time.
func some(all []walked) []walked {
	if len(all) <= most {
		return all
	}
	var out []walked
	for i := range most {
		out = append(out, all[i*len(all)/most])
	}
	return out
}

// mistype drops a letter in the middle of the name of a field; empty if that is a field, too.
func (f *walked) mistype() string {
	if len(f.name) < 6 || f.open {
		return ""
	}
	name := f.name[:len(f.name)/2] + f.name[len(f.name)/2+1:]
	if slices.Contains(f.known, name) {
		return ""
	}
	return name
}

// No field of any of these definitions is said to be missing, and each that is mistyped is, with one that is there.
func TestAllFields(t *testing.T) {
	all := needDefinitions(t)
	compiler := newCompiler(t)
	asked, mistyped := 0, 0
	for _, crds := range all {
		for way := range ways() {
			s := newSource(crds, way)
			for _, crd := range crds {
				for i := range crd.Spec.Versions {
					v := &crd.Spec.Versions[i]
					if !v.Served || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
						continue
					}
					gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}
					for fields := range slices.Chunk(some(walk(v.Schema.OpenAPIV3Schema)), conditionsAtATime) {
						var good, bad []string
						var meant []*walked
						for i := range fields {
							f := &fields[i]
							good = append(good, f.path+".hasValue()")
							if name := f.mistype(); name != "" {
								bad = append(bad, strings.TrimSuffix(f.path, f.name)+name+".hasValue()")
								meant = append(meant, f)
							}
						}
						asked, mistyped = asked+len(good), mistyped+len(bad)
						if wrong, likely := check(t, s, compiler, about(gvk, good...)); len(wrong) > 0 || len(likely) > 0 {
							t.Errorf("%s, by its %s: %s %v", gvk, way, strings.Join(wrong, "\n"), likely)
						}
						wrong, _ := check(t, s, compiler, about(gvk, bad...))
						for i, f := range meant {
							at := fmt.Sprintf("spec.conditions[%d]: ", i)
							found := slices.IndexFunc(wrong, func(w string) bool { return strings.HasPrefix(w, at) })
							if found < 0 || !strings.Contains(wrong[found], strconv.Quote(f.name)) {
								t.Errorf("%s, by its %s: of %s, meant as %s: %v", gvk, way, bad[i], f.name, wrong)
								break
							}
						}
					}
				}
			}
		}
	}
	if asked < 5000 || mistyped < 2000 {
		t.Errorf("only %d fields are tried, and %d mistyped", asked, mistyped)
	}
	t.Logf("%d fields, %d mistyped", asked, mistyped)
}
