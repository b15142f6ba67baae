// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// flood is a write that somebody repeats as often as the API server takes it.
type flood struct {
	name, sender, wants string
	// makes is what is there before, by an administrator.
	makes string
	// writes is what is written for the nth time.
	writes func(n int) string
	// most ends it early; 0 does not.
	most int
}

// floods are all that there are. Each has the namespace of its name.
func floods() []flood {
	const watching = `spec: {lifecycle: Recurring, {{maps}}, conditions: ["maps.items.size() < 0"], {{report}}}`
	return []flood{
		{
			name: "flood-of-cleaners", sender: "editor", wants: "A thousand Cleaners in one namespace, each with a watch, a timer and a status.", most: 1000,
			writes: func(n int) string { return fmt.Sprintf("{{cleaner \"a-%d\"}}\n", n) + watching },
		},
		{
			name: "flood-of-requests", sender: "editor", wants: "An evaluation for each request that is written into an annotation.",
			makes: "{{cleaner \"a\"}}\n" + watching,
			writes: func(n int) string {
				return fmt.Sprintf("{{cleaner \"a\"}}\nmetadata: {annotations: {cleaner.vtex.dev/requestedAt: \"%d\"}}", n)
			},
		},
		{
			name: "flood-of-specs", sender: "editor", wants: "A compilation for each spec that differs a little.",
			makes: "{{cleaner \"a\"}}\n" + watching,
			writes: func(n int) string {
				return fmt.Sprintf("{{cleaner \"a\"}}\nspec: {conditions: [\"maps.items.size() < -%d\"]}", n)
			},
		},
		{
			name: "flood-of-expressions", sender: "editor", wants: "Sixty Cleaners that are due in a hundred days, of which each takes as much memory as it may once it is compiled.", most: 60,
			writes: func(n int) string {
				condition := fmt.Sprintf(`"size([%d%s]) < 0"`, n, strings.Repeat(",1", 7900))
				return fmt.Sprintf("{{cleaner \"a-%d\"}}\nspec: {lifecycle: Recurring, ttl: 2400h, {{maps}}, conditions: [%s], {{report}}}", n, strings.Join(slices.Repeat([]string{condition}, 4), ", "))
			},
		},
		{
			name: "flood-of-holds", sender: "editor", wants: "Sixty Cleaners of which each waits for five thousand things with long names, for years.", most: 60,
			writes: func(n int) string {
				return fmt.Sprintf("{{cleaner \"a-%d\"}}\nspec: {lifecycle: Recurring, rules: [{name: a, forEach: lists.range(5000), when: 'true', key: '\"%s\" + string(item)', for: 100w, actions: [{report: {}}]}]}",
					n, strings.Repeat("x", 900))
			},
		},
		{
			name: "flood-of-reports", sender: "editor", wants: "Sixteen Cleaners of which each reports so many items, with long names and reasons, that eight at a time take more memory than there is.", most: 16,
			writes: func(n int) string {
				text := fmt.Sprintf(`'"%s" + string(item)'`, strings.Repeat("x", 900))
				return fmt.Sprintf("{{cleaner \"a-%d\"}}\nspec: {lifecycle: Recurring, retry: {period: 10s}, rules: [{name: a, forEach: lists.range(30000), when: 'true', key: %s, reason: %s, actions: [{report: {}}]}]}", n, text, text)
			},
		},
		{
			name: "flood-of-variables", sender: "editor", wants: "Sixteen Cleaners of which each has variables that build as much as an evaluation may.", most: 16,
			writes: func(n int) string {
				var variables, sizes []string
				for i := range 5 {
					variables = append(variables, fmt.Sprintf("{name: v%d, expression: 'lists.range(120000).map(x, [dyn(x)])'}", i))
					sizes = append(sizes, fmt.Sprintf("variables.v%d.size()", i))
				}
				return fmt.Sprintf("{{cleaner \"a-%d\"}}\nspec: {lifecycle: Recurring, retry: {period: 10s}, {{maps}}, variables: [%s], conditions: ['%s < 0'], {{report}}}",
					n, strings.Join(variables, ", "), strings.Join(sizes, " + "))
			},
		},
		{
			name: "flood-of-selectors", sender: "editor", wants: "Ten Cleaners of which each selects by as many values of a label as a spec has room for.", most: 10,
			writes: func(n int) string {
				targets := make([]string, 28)
				for i := range targets {
					name, values := fmt.Sprintf("maps%d", i), make([]string, 1000)
					if i == 0 {
						name = "maps"
					}
					for j := range values {
						values[j] = fmt.Sprintf("v%d", 1000*i+j)
					}
					targets[i] = fmt.Sprintf("{name: %s, reference: {version: v1, kind: ConfigMap, matchExpressions: [{key: a, operator: In, values: [%s]}]}}", name, strings.Join(values, ","))
				}
				return fmt.Sprintf("{{cleaner \"a-%d\"}}\nspec: {lifecycle: Recurring, targets: [%s], {{report}}}", n, strings.Join(targets, ", "))
			},
		},
		{
			name: "flood-of-events", sender: "editor", wants: "An evaluation of many Cleaners for each change of an object.",
			makes: manyWatch(20, watching),
			writes: func(n int) string {
				return fmt.Sprintf("{{object \"v1\" \"ConfigMap\" \"kept-1\"}}\ndata: {n: \"%d\"}", n)
			},
		},
		{
			name: "flood-of-templates", sender: "reader", wants: "A compilation of many Cleaners for each change of their template.",
			makes:  "{{cleanerTemplate}}\nspec: {template: {{\"{\"}}{{maps}}, {{report}}{{\"}\"}}}\n---\n" + manyWatch(20, "spec: {lifecycle: Recurring, templateRef: {name: {{name}}}}"),
			writes: func(n int) string { return fmt.Sprintf("{{cleanerTemplate}}\nspec: {description: \"%d\"}", n) },
		},
	}
}

func manyWatch(n int, spec string) string {
	text := "{{object \"v1\" \"ConfigMap\" \"kept-1\"}}"
	for i := range n {
		text += fmt.Sprintf("\n---\n{{cleaner \"a-%d\"}}\n%s", i, spec)
	}
	return text
}

// flood begins all floods, and gives what ends them.
func (p *play) flood() (stop func()) {
	p.Helper()
	ctx, cancel := context.WithCancel(p.ctx)
	var all sync.WaitGroup
	for _, f := range floods() {
		if err := p.makeNamespace(ctx, f.name, f.sender); err != nil {
			p.Fatal(err)
		}
		at := nowhere()
		at.Namespace = f.name
		made, err := at.read(f.makes)
		if err != nil {
			p.Fatal(err)
		}
		exists := map[string]bool{}
		for _, u := range made {
			if err := p.objects.sendAgain(ctx, u, false, false); err != nil {
				p.Fatal(err)
			}
			exists[key(u)] = true
		}
		p.await("the rights of "+f.sender, func(ctx context.Context) string {
			if allowed, err := p.mayCreate(ctx, senders()[f.sender].user, f.name); err != nil || !allowed {
				return fmt.Sprintf("in %s: %v", f.name, err)
			}
			return ""
		})
		all.Go(func() { p.repeat(ctx, f, at, exists) })
	}
	stop = func() {
		cancel()
		all.Wait()
	}
	p.Cleanup(stop)
	return stop
}

func key(u *unstructured.Unstructured) string { return u.GetKind() + " " + u.GetName() }

// repeat writes until the context is done.
func (p *play) repeat(ctx context.Context, f flood, at *place, exists map[string]bool) {
	began, done := time.Now(), 0
	var refused error
	for n := 1; ctx.Err() == nil && (f.most == 0 || n <= f.most); n++ {
		written, err := at.read(f.writes(n))
		if err != nil {
			p.Errorf("%s: %s", f.name, err)
			return
		}
		for _, u := range written {
			if err := p.people[f.sender].send(ctx, u, exists[key(u)], false); err == nil {
				done++
			} else { // it does no harm
				refused = err
			}
		}
	}
	p.Logf("%s: %d writes in %s", f.name, done, time.Since(began).Round(time.Second))
	if done == 0 {
		p.Errorf("%s: nothing was written: it is no flood: %.500v", f.name, refused)
	}
}
