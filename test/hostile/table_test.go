// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
)

// saying is the form of what a condition has to say.
var saying = regexp.MustCompile(`^(\w+)=(True|False|Unknown)(?: (\w+): (.*))?$`)

// Each row says who sends it, what for, and one thing that must come of it.
func TestRowsAreWhole(t *testing.T) {
	all := rows(t)
	const enough = 120
	if len(all) < enough {
		t.Errorf("there are %d rows, and %d is the least", len(all), enough)
	}
	seen := map[string]bool{}
	for _, r := range all {
		t.Run(r.class+"/"+r.name(), func(t *testing.T) {
			if seen[r.Name] {
				t.Error("another row has this name")
			}
			seen[r.Name] = true
			if !regexp.MustCompile(`^[a-z0-9-]{3,58}$`).MatchString(r.Name) {
				t.Error("its name is none of a namespace")
			}
			if _, known := senders()[r.Sender]; !known {
				t.Errorf("nobody is called %q", r.Sender)
			}
			if r.Wants == "" {
				t.Error("it does not say what it wants")
			}
			musts := 0
			for _, must := range []bool{r.Refused != "", r.Says != "", r.Harmless != "", r.Gone != "", r.Undelivered, r.forged()} {
				if must {
					musts++
				}
			}
			if musts != 1 {
				t.Errorf("%d things must come of it", musts)
			}
			if r.Says != "" && !saying.MatchString(r.Says) {
				t.Errorf("no condition can say %q", r.Says)
			}
			for _, manifests := range []func(*place) error{
				func(p *place) error { _, err := r.needs(p); return err },
				func(p *place) error { _, err := p.read(r.Later); return err },
			} {
				if err := manifests(nowhere()); err != nil {
					t.Error(err)
				}
			}
			if sent, err := r.sends(nowhere()); err != nil || len(sent) == 0 {
				t.Errorf("%d manifests are sent: %v", len(sent), err)
			}
		})
	}
}

// name is the row's; one without would have no test.
func (r *row) name() string { return r.Name }

// A Cleaner that is refused for what is written in it is refused before it is in any cluster too, and soon.
func TestRefusedWithoutACluster(t *testing.T) {
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows(t) {
		if r.class != "expressions" || r.Refused == "" {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			sent, err := r.sends(nowhere())
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(sent[len(sent)-1])
			if err != nil {
				t.Fatal(err)
			}
			c := &v1alpha1.Cleaner{}
			if err := json.Unmarshal(text, c); err != nil {
				t.Fatal(err)
			}
			const soon = 10 * time.Second // the API server waits no longer
			began := time.Now()
			found := validation.Validate(c.Work(), validation.Options{}).SpecErrors()
			if len(found) == 0 {
				_, errs := compiler.Compile(t.Context(), c.Work())
				found = validation.Validate(c.Work(), validation.Options{Compiled: errs}).Errors()
			}
			if took := time.Since(began); took > soon {
				t.Errorf("it took %s", took)
			}
			if !slices.ContainsFunc(found, func(f validation.Finding) bool { return strings.Contains(f.String(), r.Refused) }) {
				t.Errorf("nothing of %q has %q", found, r.Refused)
			}
		})
	}
}
