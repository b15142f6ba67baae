// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/library"
	"github.com/vtex/cleaner/celenv/lookups"
	"github.com/vtex/cleaner/celenv/resulttype"
)

// ruleProgram is a rule ready to run. What the rule leaves out is nil.
type ruleProgram struct {
	index                                                              int
	variables                                                          map[string]*variable
	slots                                                              int
	forEach, when, forExpression, forKey, groupBy, unless, key, reason *expression
	forConstant                                                        time.Duration // `for`, where it is a constant
	orderBy                                                            []orderProgram
	keep, leave                                                        countProgram
	confirm                                                            []confirmProgram
	joinedTargets                                                      []string // what a confirm of "*" reads, sorted
	unprovenTargets                                                    []string // what the decision depends on and no confirm names
	own, decisive                                                      []string // what forEach goes through, and what the decision depends on
	lookups                                                            ruleLookups
	actions                                                            []actionProgram
}

type orderProgram struct {
	*expression
	descending bool
}

type confirmProgram struct{ name, namespace *expression }

type actionProgram struct{ when, object, patch *expression }

// countProgram says how many items of a group stay: the constant, unless there is an expression.
type countProgram struct {
	name       string // of the field
	constant   int
	expression *expression
}

// compileRule compiles a rule.
func (b *builder) compileRule(outer *scope, i int, r *v1alpha1.Rule) *ruleProgram {
	at := expr.PathOfRule(i)
	p := &ruleProgram{index: i, slots: len(r.Variables), variables: map[string]*variable{}}
	p.forEach = b.compileExpression(outer, at+".forEach", r.ForEach, resulttype.List)

	item := outer.clone()
	delete(item.hidden, nameItem)
	delete(item.hidden, nameObject)
	if p.forEach != nil {
		p.own = expr.FindLeadingTargets(p.forEach.tree.Root, func(name string) bool { return item.targets[name] }, item.findVariable)
		if p.forEach.listsObjects {
			item.sure = outer.sure.WithItem(nameItem, p.own, p.forEach.tree)
		}
	}
	for _, v := range r.Variables {
		item.hidden[prefixVariables+v.Name] = hiddenLater
	}
	b.compileVariables(item, at+".", r.Variables, p)
	for name, v := range item.variables {
		if v.rule == p {
			p.variables[name] = v
		}
	}
	p.when = b.compileExpression(item, at+".when", r.When, resulttype.Bool)
	p.findLookups(item)
	grouping := *item // sees all items with leave, and otherwise, as what follows, those for which when is true
	if p.when != nil {
		item.sure = item.sure.WithGuards(p.when.tree, nameItem, nameObject)
	}
	if r.Leave == nil {
		grouping.sure = item.sure
	}
	p.compileFor(b, item, at+".for", r.For)
	p.forKey = b.compileOptional(item, at+".forKey", r.ForKey, resulttype.String)
	p.groupBy = b.compileOptional(&grouping, at+".groupBy", r.GroupBy, resulttype.JSON)
	for j, o := range r.OrderBy {
		x := b.compileExpression(item, fmt.Sprintf("%s.orderBy[%d].expression", at, j), o.Expression, resulttype.Order)
		p.orderBy = append(p.orderBy, orderProgram{expression: x, descending: o.Descending})
	}
	p.keep, p.leave = b.compileCount(outer, at, "keep", r.Keep), b.compileCount(outer, at, "leave", r.Leave)
	p.unless = b.compileOptional(item, at+".unless", r.Unless, resulttype.Bool)
	for j, c := range r.Confirm {
		entry := fmt.Sprintf("%s.confirm[%d].", at, j)
		p.confirm = append(p.confirm, confirmProgram{
			name:      b.compileOptional(item, entry+"name", c.Name, resulttype.Names),
			namespace: b.compileOptional(item, entry+"namespace", c.Namespace, resulttype.String),
		})
	}
	p.key = b.compileOptional(item, at+".key", r.Key, resulttype.String)
	p.reason = b.compileOptional(item, at+".reason", r.Reason, resulttype.String)
	several := item.clone() // once: it has all names of the spec
	delete(several.hidden, nameItems)
	for j := range r.Actions {
		p.actions = append(p.actions, b.compileAction(item, several, fmt.Sprintf("%s.actions[%d].", at, j), &r.Actions[j]))
	}
	markHolding(p.forEach, p.when, p.forExpression, p.forKey, p.key)
	p.joinedTargets = slices.DeleteFunc(collectTargets(p.listExpressions()...), func(name string) bool { return len(p.own) == 1 && p.own[0] == name })
	p.decisive = item.findDecisiveTargets(r, p)
	return p
}

func (b *builder) compileAction(item, several *scope, at string, a *v1alpha1.RuleAction) actionProgram {
	p := actionProgram{when: b.compileOptional(item, at+"when", a.When, resulttype.Bool)}
	if p.when != nil { // the rest is evaluated only where it is true
		alone, shared := *item, *several
		alone.sure = item.sure.WithGuards(p.when.tree, nameItem, nameObject)
		shared.sure, item, several = alone.sure, &alone, &shared
	}
	p.object = b.compileOptional(item, at+"object", a.Object, resulttype.Object)
	if a.Patch != nil {
		if a.Object != "" { // it patches another object than the item
			other := *several
			other.sure, several = several.sure.Without(nameObject), &other
		}
		w := resulttype.Map
		if a.Patch.Type == v1alpha1.PatchJSON {
			w = resulttype.Operations
		}
		p.patch = b.compileExpression(several, at+"patch.expression", a.Patch.Expression, w)
	}
	return p
}

// compileFor compiles `for`: a duration, or an expression.
func (p *ruleProgram) compileFor(b *builder, s *scope, path, text string) {
	if !v1alpha1.IsDuration(text) {
		p.forExpression = b.compileOptional(s, path, text, resulttype.Duration)
		return
	}
	var err error
	if p.forConstant, err = v1alpha1.ParseDuration(text); err != nil {
		b.addInvalid(path, text, err.Error())
	}
}

// compileCount compiles `keep` and `leave`: a number, or an expression about a whole group.
func (b *builder) compileCount(outer *scope, at, name string, count *intstr.IntOrString) countProgram {
	p, path := countProgram{name: name}, at+"."+name
	switch {
	case count == nil:
	case count.Type == intstr.Int && count.IntVal < 0:
		b.addInvalid(path, count.String(), "must not be negative")
	case count.Type == intstr.Int:
		p.constant = int(count.IntVal)
	default:
		group := outer.clone()
		delete(group.hidden, nameItems)
		group.hidden[nameItem], group.hidden[nameObject] = name+hiddenGroup, name+hiddenGroup
		p.expression = b.compileExpression(group, path, count.StrVal, resulttype.Int)
	}
	return p
}

// RuleEvaluation is one rule in an Evaluation.
type RuleEvaluation struct {
	e        *Evaluation
	p        *ruleProgram
	recorded *lookups.Record // nil: none are
}

// Item is an entry of the list of a rule, which the rule's expressions are about. A variable of the rule is computed at most once until
// an expression is about another item; going back to an item computes it again, so that memory does not grow with the number of items. An
// error of its methods concerns only this item.
type Item struct {
	rule  *RuleEvaluation
	value any // as Go has it where that is how it came, else a ref.Val
}

// SelectRule gives the rule of this index in the spec.
func (e *Evaluation) SelectRule(i int) *RuleEvaluation {
	e.ahead.beginRule()
	return &RuleEvaluation{e: e, p: e.p.rules[i]}
}

// The longest texts that are held on to for each item.
const (
	maxKey    = 1 << 10 // key, forKey
	maxReason = 1 << 10 // reason
	maxOrder  = 4 << 10 // orderBy
	maxGroup  = 4 << 10 // groupBy, as JSON
	maxName   = 253     // confirm: what an object or a namespace can be called at most
)

// EvaluateItems gives the entries of forEach, in the order of its list.
func (r *RuleEvaluation) EvaluateItems() (ItemList, *expr.Error) {
	e := r.e
	out, problem := e.evaluateAndForesee(r.p.forEach, &e.sharedBudget)
	if problem != nil {
		return ItemList{}, problem
	}
	if n, most := budget.MeasureLength(out), e.p.limits.Items; n > int64(most) {
		return ItemList{}, r.p.forEach.locateError(&expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("forEach gives %d items, and a rule may have %d", n, most), Hint: "filter the list, or let the target select less"})
	}
	if own, ok := out.(*budget.NativeList); ok {
		return ItemList{r, own.Native}, nil
	}
	var values []any
	for it := out.(traits.Lister).Iterator(); it.HasNext() == types.True; {
		values = append(values, it.Next())
	}
	if !e.RetainBytes(r.p.forEach.path, 16*len(values)) {
		return ItemList{}, e.abortReason
	}
	return ItemList{r, values}, nil
}

// ItemList are the entries of forEach, in the order of its list.
type ItemList struct {
	rule   *RuleEvaluation
	values []any
}

// CountItems returns how many there are.
func (l *ItemList) CountItems() int { return len(l.values) }

// MakeItem returns one of them, by its place. Each call makes an Item of its own.
func (l *ItemList) MakeItem(place int) *Item {
	value := l.values[place]
	if own, ok := value.(*budget.SortedMap); ok {
		value = own.Native
	}
	return &Item{rule: l.rule, value: value}
}

// bindItem has the expressions see an item.
func (i *Item) bindItem() *Evaluation {
	e := i.rule.e
	e.object, e.items = nil, nil
	if e.item == i {
		return e
	}
	e.p.meter.Held.EndItem()
	e.rule, e.item, e.itemBudget = i.rule.p, i, e.p.limits.NewItemBudget(1, &e.answerSteps)
	if n := i.rule.p.slots; cap(e.itemMemos) < n {
		e.itemMemos = make([]memo, n)
	} else {
		e.itemMemos = e.itemMemos[:n]
		clear(e.itemMemos)
	}
	return e
}

// evaluateExpression evaluates an expression about the item.
func (i *Item) evaluateExpression(x *expression) (ref.Val, *expr.Error) {
	e := i.bindItem()
	return e.evaluateAndForesee(x, &e.itemBudget)
}

// evaluateBool gives the answer of an expression that must be true or false; without one it is otherwise.
func (i *Item) evaluateBool(x *expression, otherwise bool) (bool, *expr.Error) {
	if x == nil {
		return otherwise, nil
	}
	out, problem := i.evaluateExpression(x)
	return problem == nil && out == types.True, problem
}

// evaluateText gives the answer of an expression that must be a string, not longer than most; without one it is empty.
func (i *Item) evaluateText(x *expression, most int) (string, *expr.Error) {
	if x == nil {
		return "", nil
	}
	out, problem := i.evaluateExpression(x)
	return x.convertToText(out, problem, most)
}

// convertToText gives an answer as a string, if it is not too long to be held on to.
func (x *expression) convertToText(out ref.Val, problem *expr.Error, most int) (string, *expr.Error) {
	if problem == nil {
		problem = x.checkLength(out, most)
	}
	if problem != nil {
		return "", problem
	}
	return strings.Clone(string(out.(types.String))), nil // a part of a longer text would hold on to all of it
}

// checkLength gives the error of an answer that is too long to be held on to; nil if it is not.
func (x *expression) checkLength(out ref.Val, most int) *expr.Error {
	n := budget.MeasureText(out)
	if n <= int64(most) {
		return nil
	}
	return x.locateError(&expr.Error{Kind: expr.Runtime, Message: fmt.Sprintf("%s may have %d bytes, and this one has %d", x.formatName(), most, n), Hint: "give a shorter text"})
}

// AsNative gives the item in Go: map[string]any, []any, string, bool, int64, float64 or nil. An entry of a target is the very map
// of the Input, and must not be changed. It is nil for what JSON cannot say, and for what is too large to be written down.
func (i *Item) AsNative() any {
	v, ok := i.value.(ref.Val)
	if !ok {
		return i.value
	}
	native, err := budget.ConvertToNative(v, i.rule.e.p.limits.ItemGrowth)
	if err != nil {
		return nil
	}
	return native
}

// AsObject is AsNative where that is a Kubernetes object: a map with apiVersion, kind and metadata.name. Else it is nil.
func (i *Item) AsObject() map[string]any {
	if !budget.IsObject(i.value) {
		return nil
	}
	object, _ := i.AsNative().(map[string]any)
	return object
}

// EvaluateWhen says whether the rule acts on the item.
func (i *Item) EvaluateWhen() (bool, *expr.Error) {
	if e, record := i.bindItem(), i.rule.recorded; record != nil {
		record.BeginAnswer()
		e.recording = record
		defer func() { e.recording = nil }()
	}
	return i.evaluateBool(i.rule.p.when, false)
}

// EvaluateUnless says whether the item is spared. It is not where the rule does not say.
func (i *Item) EvaluateUnless() (bool, *expr.Error) { return i.evaluateBool(i.rule.p.unless, false) }

// EvaluateActionWhen says whether an action applies to the item. It does where the action does not say.
func (i *Item) EvaluateActionWhen(action int) (bool, *expr.Error) {
	return i.evaluateBool(i.rule.p.actions[action].when, true)
}

// EvaluateForKey says what the time of EvaluateFor belongs to. It is empty where the rule does not say.
func (i *Item) EvaluateForKey() (string, *expr.Error) { return i.evaluateText(i.rule.p.forKey, maxKey) }

// EvaluateKey names the item. It is empty where the rule does not say.
func (i *Item) EvaluateKey() (string, *expr.Error) { return i.evaluateText(i.rule.p.key, maxKey) }

// EvaluateReason says why the item is acted on. It is empty where the rule does not say.
func (i *Item) EvaluateReason() (string, *expr.Error) {
	x := i.rule.p.reason
	if x == nil {
		return "", nil
	}
	e := i.bindItem()
	out, problem := x.evaluateIn(e, &e.itemBudget)
	return x.convertToText(out, problem, maxReason)
}

// EvaluateFor says how long when must hold. It is 0 where the rule does not say.
func (i *Item) EvaluateFor() (time.Duration, *expr.Error) {
	x := i.rule.p.forExpression
	if x == nil {
		return i.rule.p.forConstant, nil
	}
	out, problem := i.evaluateExpression(x)
	if problem != nil {
		return 0, problem
	}
	if text, ok := out.(types.String); ok {
		d, err := v1alpha1.ParseDuration(string(text))
		if err != nil {
			return 0, x.locateError(&expr.Error{Kind: expr.Runtime, Message: expr.TruncateText(err.Error(), 512)})
		}
		return d, nil
	}
	d := out.(types.Duration).Duration
	if d < 0 {
		return 0, x.locateError(&expr.Error{Kind: expr.Runtime, Message: fmt.Sprintf("a duration below 0: %s", d), Hint: `to act at once, give duration("0s")`})
	}
	return d, nil
}

// EvaluateGroup gives a text that is equal for items whose groupBy is. It is empty where the rule does not say.
func (i *Item) EvaluateGroup() (string, *expr.Error) {
	x := i.rule.p.groupBy
	if x == nil {
		return "", nil
	}
	out, problem := i.evaluateExpression(x)
	if problem != nil {
		return "", problem
	}
	if problem := x.checkLength(out, maxGroup); problem != nil {
		return "", problem
	}
	if text, ok := out.(types.String); ok {
		return strconv.Quote(string(text)), nil
	}
	if budget.MeasureValue(out, 64*maxGroup) > 64*maxGroup { // whatever counts for more is longer as JSON
		return "", x.locateError(&expr.Error{Kind: expr.Runtime, Message: fmt.Sprintf("groupBy may have %d bytes as JSON, and this value has more", maxGroup), Hint: "group by a text or a number"})
	}
	text, err := library.EncodeJSON(out)
	if err != nil {
		return "", x.locateError(&expr.Error{Kind: expr.Runtime, Message: expr.TruncateText(err.Error(), 512), Hint: resulttype.HintJSON})
	}
	if problem := x.checkLength(types.String(text), maxGroup); problem != nil {
		return "", problem
	}
	return text, nil
}

// EvaluateConfirm says what an entry of confirm reads for the item: the names of objects, each once, and their namespace, which is
// empty where the entry does not say. There are no names where it reads nothing, and where it reads the whole target:
// ConfirmsAll tells.
func (i *Item) EvaluateConfirm(entry int) (names []string, namespace string, err *expr.Error) {
	p := i.rule.p.confirm[entry]
	if p.name == nil {
		namespace, err = i.evaluateNamespace(p.namespace)
		return nil, namespace, err
	}
	out, err := i.evaluateExpression(p.name)
	if err != nil {
		return nil, "", err
	}
	if names, err = p.collectNames(out); err != nil || len(names) == 0 {
		return nil, "", err
	}
	namespace, err = i.evaluateNamespace(p.namespace)
	if err != nil {
		return nil, "", err
	}
	return names, namespace, nil
}

// maxNames is how many objects an entry of confirm may name for one item.
const maxNames = 1000

// collectNames gives those of an answer, each once.
func (p confirmProgram) collectNames(out ref.Val) ([]string, *expr.Error) {
	var names []string
	add := func(v ref.Val) *expr.Error {
		if _, ok := v.(types.String); !ok {
			return p.name.locateError(&expr.Error{Kind: expr.Runtime, Message: fmt.Sprintf("%s, and this list has a %s in it", p.name.describeRequirement(), v.Type().TypeName())})
		}
		name, problem := p.name.convertToText(v, nil, maxName)
		if problem == nil && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
		return problem
	}
	list, ok := out.(traits.Lister)
	if !ok {
		problem := add(out)
		return names, problem
	}
	if n := budget.MeasureLength(list); n > maxNames {
		return nil, p.name.locateError(&expr.Error{Kind: expr.Runtime, Message: fmt.Sprintf("confirm may name %d objects for an item, and this names %d", maxNames, n), Hint: "leave name out to read the whole target"})
	}
	for it := list.Iterator(); it.HasNext() == types.True; {
		if problem := add(it.Next()); problem != nil {
			return nil, problem
		}
	}
	return names, nil
}

// evaluateNamespace returns the namespace of an object to confirm. An empty one is an error: it would name another object than the author
// means.
func (i *Item) evaluateNamespace(x *expression) (string, *expr.Error) {
	if x == nil {
		return "", nil
	}
	namespace, problem := i.evaluateText(x, maxName)
	if problem == nil && namespace == "" {
		problem = x.locateError(&expr.Error{Kind: expr.Runtime, Message: "the namespace is empty", Hint: "leave it out for the namespace of the item, and for cluster-scoped kinds"})
	}
	return namespace, problem
}

// ConfirmsAll says that an entry of confirm reads its whole target.
func (r *RuleEvaluation) ConfirmsAll(entry int) bool { return r.p.confirm[entry].name == nil }

// ListJoinedTargets returns the targets that a confirm of all reads, sorted: those on which the rule depends, except its items' target.
func (r *RuleEvaluation) ListJoinedTargets() []string { return r.p.joinedTargets }

// ListUnprovenTargets returns the targets on which the rule's decision depends and that its confirm does not name, and those on which depends
// what earlier rules claim. The target of its items is one of them if the decision on an item depends on others.
func (r *RuleEvaluation) ListUnprovenTargets() []string { return r.p.unprovenTargets }

// EvaluateActionObject gives the object that an action is about, as CEL has it: the item, where the action does not say.
func (i *Item) EvaluateActionObject(action int) (map[string]any, *expr.Error) {
	x := i.rule.p.actions[action].object
	if x == nil {
		if object := i.AsObject(); object != nil {
			return object, nil
		}
		return nil, &expr.Error{
			Kind: expr.Runtime, Path: fmt.Sprintf("%s.actions[%d]", expr.PathOfRule(i.rule.p.index), action),
			Message: "the item is no object, and the action does not say what it is about", Hint: "add object: to the action",
		}
	}
	out, problem := i.evaluateExpression(x)
	if problem != nil {
		return nil, problem
	}
	if !budget.IsObject(out) {
		return nil, x.locateError(&expr.Error{Kind: expr.Runtime, Message: "this is no object: it has no apiVersion, kind and metadata.name", Hint: "give an object of a target"})
	}
	native, err := budget.ConvertToNative(out, i.rule.e.p.limits.ItemGrowth)
	if err != nil {
		return nil, x.locateError(&expr.Error{Kind: expr.Runtime, Message: expr.TruncateText(err.Error(), 512), Hint: resulttype.HintJSON})
	}
	object, _ := native.(map[string]any)
	return object, nil
}

// EvaluateKeep says how many of a group stay: all of its items for which when holds. It is 0 where the rule does not say.
func (r *RuleEvaluation) EvaluateKeep(group []*Item) (int, *expr.Error) {
	return r.evaluateCount(&r.p.keep, group)
}

// EvaluateLeave says how many of a group are left in all. It is 0 where the rule does not say.
func (r *RuleEvaluation) EvaluateLeave(group []*Item) (int, *expr.Error) {
	return r.evaluateCount(&r.p.leave, group)
}

func (r *RuleEvaluation) evaluateCount(p *countProgram, group []*Item) (int, *expr.Error) {
	x := p.expression
	if x == nil {
		return p.constant, nil
	}
	r.bindItems(group)
	own := r.e.p.limits.NewItemBudget(len(group), &r.e.answerSteps)
	out, problem := r.e.evaluateAndForesee(x, &own)
	if problem != nil {
		return 0, problem
	}
	n, ok := resulttype.ConvertToCount(out)
	if !ok || n < 0 {
		return 0, x.locateError(&expr.Error{Kind: expr.Runtime, Message: fmt.Sprintf("%s must not be negative, and this gave %d", p.name, n)})
	}
	return n, nil
}

// EvaluatePatch gives the patch that an action makes of an object for these items: a map[string]any, or a []any for type: JSON. It
// sees the one item where there is only one.
func (r *RuleEvaluation) EvaluatePatch(action int, object map[string]any, items []*Item) (any, *expr.Error) {
	e, x := r.e, r.p.actions[action].patch
	if x == nil {
		return nil, &expr.Error{Kind: expr.Internal, Path: fmt.Sprintf("%s.actions[%d]", expr.PathOfRule(r.p.index), action), Message: "the action is no patch"}
	}
	own := e.p.limits.NewItemBudget(len(items), &e.answerSteps)
	from := &own
	if len(items) == 1 {
		items[0].bindItem()
		from = &e.itemBudget
		e.items = newItemList(items, e.p.meter)
	} else {
		r.bindItems(items)
	}
	e.object = object
	defer func() { e.object, e.items = nil, nil }()
	out, problem := e.evaluateAndForesee(x, from)
	if problem != nil {
		return nil, problem
	}
	if budget.MeasureValue(out, own.MaxGrowth) > own.MaxGrowth {
		return nil, x.locateError(newTooLargeError(own.MaxGrowth))
	}
	patch, err := library.ConvertToNative(out) // always a copy: it is changed
	if err != nil {
		return nil, x.locateError(&expr.Error{Kind: expr.Runtime, Message: expr.TruncateText(err.Error(), 512), Hint: resulttype.HintJSON})
	}
	return patch, nil
}

// bindItems has the expressions see several items.
func (r *RuleEvaluation) bindItems(items []*Item) {
	e := r.e
	e.p.meter.Held.EndItem()
	e.rule, e.item, e.object = r.p, nil, nil
	e.items = newItemList(items, e.p.meter)
}

func newItemList(items []*Item, m *budget.Meter) ref.Val {
	values := make([]any, len(items))
	for i, item := range items {
		values[i] = item.value
	}
	return budget.NewAdapter(m).NativeToValue(values)
}

func newTooLargeError(limit int64) *expr.Error {
	return &expr.Error{Kind: expr.Exhausted, Message: fmt.Sprintf("the value is larger than %d bytes", limit)}
}
