// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the operator as a whole: the built binary on a real control plane, which it starts on this
// machine. What took how long is read from the API server's audit log, not from the operator; where a ratio is given, the
// other side is a loop over bare client-go that makes the same requests, as the same ServiceAccount and as many at a time,
// in the same run.
//
// It is no test: it fails only if it cannot measure. Figures of two machines cannot be compared, ratios can.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	write := pflag.Bool("write", false, "write the figures to "+figuresFile+" as well, and what comes of them: the pages docs/performance.md and docs/scale.md, and the plots")
	pages := pflag.Bool("pages", false, "make the pages and the plots again of the figures that are kept, and measure nothing")
	small := pflag.Bool("small", false, "measure a hundredth of the sizes, to see that everything works")
	rounds := pflag.Int("rounds", 8, "how often the operator and bare client-go are measured, by turns, half as often with many Cleaners: even, so that each begins as often")
	only := pflag.StringSlice("only", nil, "what to measure instead of everything: "+strings.Join(names(), ", "))
	way := pflag.String("hold", "", "look at the cluster of KUBECONFIG in another way, and print what that takes: this program runs itself so")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(logr.Discard())
	if *way != "" {
		exitOn(measureHolding(ctx, *way))
		return
	}
	if *pages {
		exitOn(publish(ctx, nil))
		return
	}
	if *small && !pflag.CommandLine.Changed("rounds") {
		*rounds = 2
	}
	if *rounds < 2 || *rounds%2 != 0 {
		fmt.Fprintf(os.Stderr, "bench: --rounds is %d: write an even number, such as 8\n", *rounds)
		os.Exit(2)
	}
	s := wholeSizes()
	if *small {
		s = smallSizes()
	}
	s.rounds, s.manyRounds = *rounds, max(2, *rounds/4*2)
	exitOn(run(ctx, s, *only, *write))
}

// exitOn ends the program if something could not be measured.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func wholeSizes() sizes {
	return sizes{
		reactions: 200, beside: 100, queue: 10_000, cleaners: 200, each: 50, objects: 5000, idle: 1000, many: 10_000, confirming: 10_000, district: 4,
		evaluated: []crowd{{5000, 250}, {20_000, 1000}, {50_000, 2500}, {100_000, 5000}}, ended: 5000,
		crowds: []crowd{{5000, 250}, {20_000, 1000}, {50_000, 2500}, {100_000, 5000}}, busy: crowd{20_000, 1000}, cached: 50_000,
		rates: []int{50, 200, 400}, writes: 30 * time.Second, hosted: []int{1000, 5000, 10_000}, recorded: []crowd{{20_000, 1000}, {100_000, 5000}},
	}
}

func smallSizes() sizes {
	return sizes{
		reactions: 5, beside: 5, queue: 100, cleaners: 4, each: 5, objects: 50, idle: 10, many: 100, confirming: 100, district: 1,
		evaluated: []crowd{{200, 10}, {1000, 50}}, ended: 50,
		crowds: []crowd{{200, 10}, {1000, 50}}, busy: crowd{200, 10}, cached: 1000,
		rates: []int{50}, writes: 3 * time.Second, hosted: []int{10, 100}, recorded: []crowd{{1000, 50}},
	}
}

// sizes say how much is measured.
type sizes struct {
	rounds         int // how often the operator and bare client-go are measured, by turns
	manyRounds     int // the same with many Cleaners, which takes longest
	reactions      int // events to react to, one after the other
	beside         int // the same, while another namespace keeps the operator busy
	queue          int // Cleaners that are due at the same moment
	cleaners, each int // Cleaners that act at the same time, and objects that each of them deletes
	objects        int // objects that one Cleaner deletes
	idle, many     int // Cleaners that wait: those that are listened to for a minute, and those whose memory is measured

	confirming int // Cleaners that confirm the same kind at the same moment
	district   int // Cleaners in each of many namespaces

	evaluated []crowd       // what a rule is evaluated over
	ended     int           // Pods that have ended, beyond the threshold of podgc-terminated
	crowds    []crowd       // what the templates watch, one after the other
	busy      crowd         // what they watch while Pods change
	cached    int           // up to how many Pods caches of client-go are measured too
	rates     []int         // changes of Pods in a second
	writes    time.Duration // for how long they change
	hosted    []int         // Cleaners beside all of the Pods
	recorded  []crowd       // whose addresses have records in pools
}

// crowd is a number of Pods on a number of Nodes.
type crowd struct{ pods, nodes int }

func (c crowd) String() string { return fmt.Sprintf("%d Pods on %d Nodes", c.pods, c.nodes) }

// measurement is one thing that can be measured alone.
type measurement struct {
	name    string
	measure func(context.Context, *rig, sizes) ([]figure, error)
}

// measurements are all, in their order: those with many objects last, because the API server keeps them.
func measurements() []measurement {
	return []measurement{
		{"reaction", reaction}, {"beside", beside}, {"many", manyCleaners}, {"one", oneCleaner}, {"idle", idle},
		{"evaluation", evaluation}, {"ended", ended}, {"confirmations", confirmations}, {"replicas", replicas}, {"pods", pods}, {"cleaners", crowdedCleaners}, {"anykind", anyKind}, {"records", recordedAddresses},
	}
}

func names() []string {
	var out []string
	for _, m := range measurements() {
		out = append(out, m.name)
	}
	return out
}

// run measures what is asked for, prints it, and writes it down if asked.
func run(ctx context.Context, s sizes, only []string, write bool) (err error) {
	r, err := newRig(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Stop()) }()
	var all []measured
	for _, m := range measurements() {
		if len(only) > 0 && !slices.Contains(only, m.name) {
			continue
		}
		got, err := m.measure(ctx, r, s)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		for _, f := range got {
			fmt.Println(f)
		}
		all = append(all, measured{m.name, got})
	}
	if !write {
		return nil
	}
	return publish(ctx, all)
}
