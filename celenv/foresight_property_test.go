// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

// spanOfMoments is how many seconds from midsummer on the random expressions are about.
const spanOfMoments = 16

var midsummer = at("2025-06-24T00:00:00Z")

// author writes random expressions that are about times.
type author struct {
	*rand.Rand
	known []named // what can be read
	names int
}

type named struct{ name, kind string }

func (a *author) one(of ...string) string { return of[a.IntN(len(of))] }

// read is something of a kind that can be read, or else what write gives.
func (a *author) read(kind string, write func() string) string {
	var all []string
	for _, n := range a.known {
		if n.kind == kind {
			all = append(all, n.name)
		}
	}
	if len(all) == 0 || a.IntN(3) == 0 {
		return write()
	}
	return a.one(all...)
}

// in writes something into one of several texts, in the place of #.
func (a *author) in(written string, texts ...string) string {
	return strings.ReplaceAll(a.one(texts...), "#", written)
}

// with is what write gives while one more name can be read. In text, @ is that name and # what was written.
func (a *author) with(kind, text string, write func() string) string {
	a.names++
	n := named{fmt.Sprint("v", a.names), kind}
	a.known = append(a.known, n)
	written := write()
	a.known = a.known[:len(a.known)-1]
	return strings.NewReplacer("@", n.name, "#", written).Replace(text)
}

func (a *author) seconds() string { return fmt.Sprintf(`duration("%ds")`, a.IntN(spanOfMoments)) }

func (a *author) moment() string {
	return fmt.Sprintf(`timestamp("%s")`, midsummer.Add(time.Duration(a.IntN(spanOfMoments))*time.Second).Format(time.RFC3339))
}

func (a *author) timestamp(depth int) string {
	if depth <= 0 {
		return a.read("timestamp", func() string {
			return a.one("time", a.moment(), a.read("item", func() string { return "svc" })+".ts.map(t, timestamp(t))[0]")
		})
	}
	switch a.IntN(8) {
	case 0, 1:
		return "time"
	case 2:
		return fmt.Sprintf("(%s %s %s)", a.timestamp(depth-1), a.one("+", "-"), a.duration(depth-1))
	case 3:
		return fmt.Sprintf("(%s ? %s : %s)", a.bool(depth-1), a.timestamp(depth-1), a.timestamp(depth-1))
	case 4:
		return fmt.Sprintf("[%s, %s][%d]", a.timestamp(depth-1), a.timestamp(depth-1), a.IntN(2))
	case 5:
		return fmt.Sprintf("[%s, %s, %s].%s()", a.timestamp(depth-1), a.timestamp(depth-1), a.timestamp(0), a.one("max", "min"))
	case 6:
		return a.in(a.timestamp(depth-1), "dyn(#)", "timestamp(#)", "optional.of(#).value()", "{'t': #}.t", "{'t': #}.?t.orValue(timestamp(0))",
			"[#].reverse()[0]", "([timestamp(0)] + [#])[1]", "[#].slice(0, 1).last().value()")
	default:
		return a.timestamp(0)
	}
}

func (a *author) duration(depth int) string {
	if depth <= 0 {
		return a.read("duration", func() string { return a.one(a.seconds(), "(time - "+a.moment()+")", "("+a.moment()+" - time)") })
	}
	switch a.IntN(11) {
	case 8:
		return fmt.Sprintf("(%s * %s)", a.duration(depth-1), a.one("2", "-1", a.int(0)))
	case 9:
		return fmt.Sprintf("[%s, %s, %s].%s", a.duration(depth-1), a.duration(depth-1), a.duration(0), a.one("sum()", "sortBy(x, x)[0]", "maxBy(x, x).value()", "sortBy(x, x * -2)[1]"))
	case 0, 1:
		return fmt.Sprintf("(%s - %s)", a.timestamp(depth-1), a.timestamp(depth-1))
	case 2:
		return fmt.Sprintf("(%s %s %s)", a.duration(depth-1), a.one("+", "-"), a.duration(depth-1))
	case 3:
		return fmt.Sprintf("(%s ? %s : %s)", a.bool(depth-1), a.duration(depth-1), a.duration(depth-1))
	case 4:
		return a.with("item", "revisions.items.map(@, #)."+a.one("max()", "min()"), func() string { return a.duration(depth - 1) })
	case 5:
		first := a.duration(depth - 1)
		return a.with("duration", "cel.bind(@, "+first+", #)", func() string { return a.duration(depth - 1) })
	case 6:
		return a.in(a.duration(depth-1), "dyn(#)", "duration(#)", "optional.of(#).orValue(duration('0s'))", "svc.?nope.optMap(x, duration('1s')).orValue(#)",
			"{'a': 1}.transformMap(k, v, #)['a']", "[#, #].filter(x, x > duration('2s'))[0]")
	default:
		return a.duration(0)
	}
}

func (a *author) int(depth int) string {
	if depth <= 0 {
		return a.read("int", func() string { return fmt.Sprint(a.IntN(6)) })
	}
	switch a.IntN(14) {
	case 8:
		return fmt.Sprintf("(%s * %d)", a.int(depth-1), a.IntN(7)-3)
	case 9:
		return fmt.Sprintf("(-%s)", a.int(depth-1))
	case 10:
		return fmt.Sprintf("[3, 1, 4, 1, 5, 9][%s]", a.int(depth-1))
	case 11:
		return fmt.Sprintf("int(math.%s(double(%s) %s %s))", a.one("floor", "ceil", "round", "trunc"), a.int(depth-1), a.one("*", "/", "+", "-"), a.one("1.5", "-0.4", "3.0"))
	case 12:
		return fmt.Sprintf("(%s.getMinutes() * 60 %s %s.getSeconds())", a.timestamp(depth-1), a.one("+", "-"), a.timestamp(depth-1))
	case 0:
		return fmt.Sprintf("(int(%s) - int(%s))", a.timestamp(depth-1), a.moment())
	case 1:
		return fmt.Sprintf("%s.%s()", a.duration(depth-1), a.one("getSeconds", "getMinutes", "getMilliseconds"))
	case 2:
		return a.with("item", "revisions.items.filter(@, #).size()", func() string { return a.bool(depth - 1) })
	case 3:
		return fmt.Sprintf("(%s %s %s)", a.int(depth-1), a.one("+", "-"), a.int(depth-1))
	case 4:
		return fmt.Sprintf("(%s %s %d)", a.int(depth-1), a.one("/", "%"), 1+a.IntN(5))
	case 5:
		return fmt.Sprintf("%s.%s()", a.timestamp(depth-1), a.one("getSeconds", "getMinutes", "getDate"))
	case 6:
		return fmt.Sprintf("(%s ? %s : %s)", a.bool(depth-1), a.int(depth-1), a.int(depth-1))
	case 7:
		return fmt.Sprintf(`%s.%s("%s")`, a.timestamp(depth-1), a.one("getSeconds", "getMinutes", "getHours", "getDayOfWeek", "getFullYear"), a.one("+05:45", "Europe/Berlin", "-03:30"))
	default:
		return fmt.Sprintf("int(%s)", a.one(a.duration(depth-1), "string("+a.int(depth-1)+")"))
	}
}

func (a *author) bool(depth int) string {
	if depth <= 0 {
		return a.read("bool", func() string {
			item := a.read("item", func() string { return "svc" })
			return a.one("true", "false", "svc.yes", item+".yes", item+".nope", "("+item+".n == 1)")
		})
	}
	compare := a.one("<", "<=", ">", ">=", "<", ">", "==", "!=")
	switch a.IntN(14) {
	case 0, 1:
		return fmt.Sprintf("(%s %s %s)", a.timestamp(depth-1), compare, a.timestamp(depth-1))
	case 2, 3:
		return fmt.Sprintf("(%s %s %s)", a.duration(depth-1), compare, a.duration(depth-1))
	case 4:
		return fmt.Sprintf("(%s %s %s)", a.int(depth-1), compare, a.int(depth-1))
	case 5, 6:
		return fmt.Sprintf("(%s %s %s)", a.bool(depth-1), a.one("&&", "||"), a.bool(depth-1))
	case 7:
		return "!" + a.bool(depth-1)
	case 8:
		return fmt.Sprintf("(%s ? %s : %s)", a.bool(depth-1), a.bool(depth-1), a.bool(depth-1))
	case 9, 10:
		return a.with("item", "revisions.items."+a.one("exists", "all", "exists_one")+"(@, #)", func() string { return a.bool(depth - 1) })
	case 11:
		first := a.bool(depth - 1)
		return a.with("bool", "cel.bind(@, "+first+", #)", func() string { return a.bool(depth - 1) })
	case 12:
		list := a.with("item", "revisions.items.map(@, #)", func() string { return a.duration(depth - 1) })
		return a.with("duration", list+a.one(".exists", ".all")+"(@, #)", func() string { return a.bool(depth - 1) })
	default:
		if a.IntN(2) == 0 {
			return fmt.Sprintf("(%s in [%d, %d, %d])", a.int(depth-1), a.IntN(9), a.IntN(60), a.IntN(60))
		}
		if a.IntN(3) == 0 {
			return fmt.Sprintf("(double(%s) / 2.0 %s %s)", a.int(depth-1), compare, a.one("1.5", "3", "double("+a.int(0)+")"))
		}
		return fmt.Sprintf("(%s in [%s, %s])", a.duration(depth-1), a.seconds(), a.seconds())
	}
}

// spec is a random one: variables, two conditions that share them, and a rule.
func (a *author) spec() *v1alpha1.Work {
	depth := 1 + a.IntN(4)
	w := spec()
	variable := func(kind, name string, write func(int) string) v1alpha1.Variable {
		v := v1alpha1.Variable{Name: name, Expression: write(a.IntN(depth + 1))}
		a.known = append(a.known, named{"variables." + name, kind})
		return v
	}
	w.Variables = []v1alpha1.Variable{variable("duration", "d", a.duration), variable("bool", "b", a.bool), variable("int", "i", a.int)}
	w.Conditions = []string{a.bool(depth), a.bool(depth)}
	forEach := a.with("item", a.one("revisions.items", "revisions.items.filter(@, #)"), func() string { return a.bool(depth - 1) })
	keep := intstr.FromString(a.int(depth - 1))
	a.known = append(a.known, named{"item", "item"})
	own := []v1alpha1.Variable{variable("timestamp", "own", a.timestamp)}
	w.Rules = []v1alpha1.Rule{{
		Name: "r", ForEach: forEach, Variables: own, When: a.bool(depth), Unless: a.bool(depth - 1), GroupBy: a.int(depth - 1), Keep: &keep,
		OrderBy: []v1alpha1.OrderBy{{Expression: a.one(a.duration(depth-1), a.timestamp(depth-1), a.int(depth-1))}},
	}}
	return w
}

func (a *author) targets() map[string]any {
	items := make([]any, a.IntN(5))
	for i := range items {
		item := map[string]any{"n": int64(a.IntN(6)), "yes": a.IntN(2) == 0, "ts": []any{}}
		if a.IntN(8) > 0 {
			item["ts"] = []any{midsummer.Add(time.Duration(a.IntN(spanOfMoments)) * time.Second).Format(time.RFC3339)}
		}
		items[i] = item
	}
	return map[string]any{"revisions": list(items...), "svc": map[string]any{"yes": true, "n": int64(1), "ts": []any{"2025-06-24T00:00:05Z"}}}
}

// answers are all that an evaluation answers, in words.
func (e *Evaluation) answers(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	say := func(answer any, problem *expr.Error) {
		if problem != nil {
			answer = problem.Kind
		}
		fmt.Fprint(&b, answer, " ")
	}
	for _, r := range e.EvaluateConditions() {
		say(r.Value, r.Err)
	}
	r := e.SelectRule(0)
	listed, problem := r.EvaluateItems()
	items := listItems(listed)
	say(len(items), problem)
	var orders []Order
	for _, i := range items {
		say(i.EvaluateWhen())
		say(i.EvaluateUnless())
		say(i.EvaluateGroup())
		order, problem := i.EvaluateOrder()
		say("", problem)
		if problem != nil {
			continue
		}
		for _, before := range orders {
			n, problem := r.CompareOrders(before, order)
			say(n, problem)
		}
		orders = append(orders, order)
	}
	say(r.EvaluateKeep(items))
	return b.String()
}

// moments are those at which random expressions can change, the nanoseconds around them, and some others.
func moments(after time.Time) []time.Time {
	var all []time.Time
	for k := range 7 * spanOfMoments {
		half := midsummer.Add(time.Duration(k-spanOfMoments) * time.Second / 2)
		for _, by := range []time.Duration{-1, 0, 1, 166666667} {
			if at := half.Add(by); at.After(after) {
				all = append(all, at)
			}
		}
	}
	return all
}

// stockPrograms makes Programs that only answer, and evaluate each part whenever it is reached.
func stockPrograms(t *testing.T, c *Compiler, w *v1alpha1.Work) *Programs {
	t.Helper()
	p, errs := c.Compile(t.Context(), w)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	all := append(p.rules[0].listExpressions(), p.conditions...)
	for _, variables := range []map[string]*variable{p.variables, p.rules[0].variables} {
		for _, v := range variables {
			all = append(all, v.expression)
		}
	}
	for _, x := range all {
		if x == nil {
			continue
		}
		if x.ahead != nil {
			x.ahead.planned = true
		}
		var err error
		if x.program, err = c.planProgram(x.env, x.ast, p.meter, true, c.calls.MeterProgram(x.ast, p.meter)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// Whatever the expressions and the objects are: before the moment that is foreseen no answer is another one, and what FindFlip
// finds is the first moment at which one is. All answers to compare with are given by programs that foresee nothing,
// and that evaluate fixed parts for each item.
func TestForesightOfRandomExpressions(t *testing.T) {
	specs := 60
	if testing.Short() {
		specs = 20
	}
	c := newCompiler(t, budget.Limits{})
	known, changed, flips, fixed := 0, 0, 0, 0
	for seed := range uint64(specs) {
		a := &author{Rand: rand.New(rand.NewPCG(seed, 1))}
		w := a.spec()
		p, errs := c.Compile(t.Context(), w)
		if len(errs) > 0 && strings.Contains(errs.ToAggregate().Error(), "exceeds nesting limit") {
			continue
		}
		if len(errs) > 0 {
			t.Fatalf("seed %d: %v", seed, errs.ToAggregate())
		}
		fixed += p.fixedParts
		stock := stockPrograms(t, c, w)
		for range 2 {
			offset := time.Duration(a.IntN(4*spanOfMoments)-spanOfMoments) * time.Second / 2
			in := Input{Targets: a.targets(), Time: midsummer.Add(offset + time.Duration(a.IntN(3)-1))}
			answers := func(p *Programs, at time.Time) (string, Foresight) {
				e, problem := p.BeginEvaluation(t.Context(), Input{Targets: in.Targets, Time: at})
				if problem != nil {
					t.Fatal(problem)
				}
				defer e.Close() // not at the end of the test: there are many
				return e.answers(t), e.Foresight()
			}
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("seed %d at %s: %s\n%+v\n%v", seed, in.Time.Format(time.RFC3339Nano), fmt.Sprintf(format, args...), w.CommonSpec, in.Targets)
			}
			now, foreseen := answers(p, in.Time)
			if want, _ := answers(stock, in.Time); now != want {
				fail("it answers %s, and not %s", now, want)
			}
			gate := func(all string) string { return strings.Join(strings.Fields(all)[:2], " ") }
			var changes, flip time.Time
			for _, at := range moments(in.Time) {
				then, _ := answers(stock, at)
				if changes.IsZero() && then != now {
					changes = at
				}
				if flip.IsZero() && gate(then) != gate(now) {
					flip = at
					break
				}
			}
			if !foreseen.Unknown {
				known++
				if !changes.IsZero() && (foreseen.Until.IsZero() || foreseen.Until.After(changes)) {
					fail("what is foreseen is to hold until %s, and changes at %s", foreseen.Until, changes)
				}
			}
			if !changes.IsZero() {
				changed++
			}

			e := begin(t, p, in)
			results, first := e.EvaluateConditions(), e.Foresight()
			e.Close()
			at, isExact := p.FindFlip(t.Context(), in, results, first, midsummer.Add(time.Hour))
			switch {
			case first.Unknown:
			case !flip.IsZero() && (at.IsZero() || at.After(flip)):
				fail("the conditions are to flip at %s, and do at %s", at, flip)
			case isExact && !at.IsZero():
				flips++
				before, _ := answers(stock, at.Add(-1))
				then, _ := answers(stock, at)
				if gate(then) == gate(now) || at.Add(-1).After(in.Time) && gate(before) != gate(now) {
					fail("%s is to be the moment of a flip: %s, %s, %s", at, now, before, then)
				}
			}
		}
	}
	t.Logf("of %d evaluations %d are foreseen, %d change, and %d flip; %d parts are evaluated once", 2*specs, known, changed, flips, fixed)
	if known < specs/2 || changed < specs/2 || flips < specs/8 || fixed < specs {
		t.Error("which shows little")
	}
}
