// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bill is what the tests read of CycloneDX.
type bill struct {
	BOMFormat    string
	SpecVersion  string
	SerialNumber string
	Metadata     struct {
		Timestamp string
		Component part
	}
	Components   []part
	Dependencies []struct {
		Ref       string
		DependsOn []string
	}
}

type part struct {
	BOMRef              string `json:"bom-ref"`
	Type, Name, Version string
	Purl                string
	Hashes              []struct{ Alg, Content string }
}

func readBill(t *testing.T, text []byte) bill {
	t.Helper()
	var b bill
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// A bill of materials has each module that the compiler says is in the program, and no other.
func TestSBOM(t *testing.T) {
	for _, program := range []string{managerName, pluginName, schedulerName} {
		t.Run(program, func(t *testing.T) {
			binary := built(t, program)
			text, err := testBuilder().sbom(binary, host())
			if err != nil {
				t.Fatal(err)
			}
			got := readBill(t, text)
			if got.BOMFormat != "CycloneDX" || got.SpecVersion == "" || !strings.HasPrefix(got.SerialNumber, "urn:uuid:") || got.Metadata.Timestamp != "2023-11-14T22:13:20Z" {
				t.Errorf("it begins with %.300s", text)
			}
			of, in, name := got.Metadata.Component, module, "pkg:golang/github.com/vtex/cleaner"
			if program == schedulerName {
				in, name = in+"/scheduler", name+"/scheduler"
			}
			if of.Name != in+"/cmd/"+program || of.Version != "v"+testVersion || of.Hashes[0].Content != sumOfFile(t, binary) ||
				of.Purl != name+"@v"+testVersion+"?goarch="+runtime.GOARCH+"&goos="+runtime.GOOS+"&type=module#cmd/"+program {
				t.Errorf("it is about %+v", of)
			}
			info, err := buildinfo.ReadFile(binary)
			if err != nil {
				t.Fatal(err)
			}
			version := strings.TrimPrefix(runtime.Version(), "go")
			want := map[string]string{"std " + version: "pkg:golang/std@" + version + "?type=module"}
			unsummed := 0
			for _, m := range info.Deps {
				switch {
				case m.Replace == nil:
				case m.Replace.Path == "../": // a folder of the same commit, which go.sum knows nothing of
					m.Version = "v" + testVersion
					unsummed++
				default:
					m = m.Replace
				}
				want[m.Path+" "+m.Version] = "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B") + "?type=module"
			}
			if len(want) < 50 {
				t.Fatalf("the program has only the modules %v", want)
			}
			has, refs := map[string]string{}, map[string]bool{}
			for _, c := range got.Components {
				has[c.Name+" "+c.Version] = c.Purl
				refs[c.BOMRef] = true
				if c.Type != "library" || c.Name != "std" && c.Name != module && len(c.Hashes) != 1 {
					t.Errorf("component %+v", c)
				}
			}
			if want := map[string]int{schedulerName: 1}[program]; unsummed != want {
				t.Errorf("%d modules are folders, not %d", unsummed, want)
			}
			if diff := cmp.Diff(want, has); diff != "" {
				t.Errorf("modules (-program +bill):\n%s", diff)
			}
			if len(refs) != len(got.Components) || len(got.Dependencies) != 1 || got.Dependencies[0].Ref != of.BOMRef || len(got.Dependencies[0].DependsOn) != len(refs) {
				t.Errorf("%d components, %d names, and dependencies %v", len(got.Components), len(refs), got.Dependencies)
			}
			again, err := testBuilder().sbom(binary, host())
			if err != nil || string(again) != string(text) {
				t.Errorf("it is another one at the next time: %v", err)
			}
		})
	}
	if _, err := testBuilder().sbom("main.go", host()); err == nil {
		t.Error("what is no program has a bill of materials")
	}
}

func sumOfFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sum(content)
}
