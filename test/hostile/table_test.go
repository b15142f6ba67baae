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

// advisories returns what went wrong in other operators that act for tenants, and the rows that attempt the same here.
func advisories() map[string][]string {
	return map[string][]string{
		// Kyverno: paths, ConfigMaps and objects of other namespaces were read and written with the rights of the operator.
		"CVE-2026-22039":      {"a-path-in-the-name", "an-encoded-path-in-the-name", "a-path-for-a-version", "a-resource-from-an-expression"},
		"CVE-2026-41068":      {"a-namespace-in-the-reference", "a-namespace-that-is-pruned", "a-confirmation-in-another-namespace"},
		"GHSA-79gf-7frw-68m9": {"an-object-made-by-an-expression", "a-copy-of-an-object-with-another-namespace"},
		// Kyverno: an expression, or a call that a policy names, requested any address in the operator's network.
		"CVE-2026-4789":       {"a-function-that-is-not-there", "an-address-of-metadata", "an-address-of-metadata-in-ipv6", "loopback-mapped"},
		"GHSA-fmqp-4wfc-w3v7": {"the-api-server", "a-redirect-to-loopback", "a-door-by-a-subresource"},
		// Kyverno: a list that failed counted as one that selects nothing.
		"GHSA-jrr2-x33p-6hvc": {"a-field-selector-that-nobody-knows", "an-account-without-rights"},
		// Flux: commands in a manifest, a file outside of the folder, and a duration over which the controller crashed.
		"CVE-2022-24817": {"unknown-fields", "a-file-from-an-expression"},
		"CVE-2022-24878": {"a-template-in-a-path", "a-manifest-with-a-path", "a-file-for-a-zone"},
		"CVE-2022-39272": {"a-ttl-of-many-parts", "a-ttl-beyond-the-calendar", "a-timeout-of-ages", "times-at-the-ends-of-the-calendar"},
		// Argo CD: credentials in messages that others read.
		"CVE-2023-25163": {"a-password-in-the-url", "secrets-in-the-answer"},
	}
}

// What went wrong in other operators is attempted here.
func TestAdvisoriesHaveRows(t *testing.T) {
	all := map[string]bool{}
	for _, r := range rows(t) {
		all[r.Name] = true
	}
	for advisory, names := range advisories() {
		for _, name := range names {
			if !all[name] {
				t.Errorf("%s: no row is called %q", advisory, name)
			}
		}
	}
}

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
