// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/controllers/plan"
)

// Course is how far the steps of a batch are: a step goes when all that it comes after have succeeded.
type Course struct {
	Steps  []plan.Step
	states []stepState
	on     map[types.UID][]int // the actions on each object
}

type stepState int

const (
	stepWaits stepState = iota
	stepSucceeded
	stepFailed
)

// NewCourse begins the steps of a plan.
func NewCourse(p plan.Plan) *Course {
	c := &Course{Steps: p.Steps, states: make([]stepState, len(p.Steps)), on: make(map[types.UID][]int, len(p.Steps))}
	for i := range c.Steps {
		if s := &c.Steps[i]; s.IsChange() {
			c.on[s.Object.UID] = append(c.on[s.Object.UID], i)
		}
	}
	return c
}

// CourseOfRows begins the steps that a judgement has left in a plan, as far as they are on the objects of due rows. Those of rows
// that are done have succeeded. The others are not taken in this batch, and neither is what comes after them.
func (m *Memory) CourseOfRows(p plan.Plan, rows map[types.UID]int, due map[types.UID]bool) *Course {
	c := NewCourse(p)
	for i := range c.Steps {
		uid := c.Steps[i].Object.UID
		switch n, recorded := rows[uid]; {
		case !recorded:
			c.MarkFailed(i)
		case m.Rows[n].isDone():
			c.MarkSucceeded(i)
		case !due[uid]:
			c.MarkFailed(i)
		}
	}
	return c
}

// MarkSucceeded records that a step has succeeded.
func (c *Course) MarkSucceeded(i int) { c.states[i] = stepSucceeded }

// MarkFailed records that a step has failed, or is not tried.
func (c *Course) MarkFailed(i int) { c.states[i] = stepFailed }

// NextSteps lists the steps that wait for no other, and of these the ones that come after one that has failed.
func (c *Course) NextSteps() (ready []int, broken map[int]bool) {
	broken = map[int]bool{}
	for i := range c.Steps {
		after := c.Steps[i].After
		if c.states[i] != stepWaits || slices.ContainsFunc(after, func(before int) bool { return c.states[before] == stepWaits }) {
			continue
		}
		ready = append(ready, i)
		if slices.ContainsFunc(after, func(before int) bool { return c.states[before] == stepFailed }) {
			broken[i] = true
		}
	}
	return ready, broken
}

// IsOver says that no step waits.
func (c *Course) IsOver() bool { return !slices.Contains(c.states, stepWaits) }

// ChangeFollows reports whether a step that changes something comes after a step.
func (c *Course) ChangeFollows(i int) bool {
	return slices.ContainsFunc(c.Steps, func(s plan.Step) bool { return s.IsChange() && slices.Contains(s.After, i) })
}

// IsObjectDone reports whether all actions on an object have succeeded.
func (c *Course) IsObjectDone(uid types.UID) bool {
	return !slices.ContainsFunc(c.on[uid], func(i int) bool { return c.states[i] != stepSucceeded })
}

// FailedItems are the items of steps that are not taken.
func (c *Course) FailedItems() map[plan.ItemKey]bool {
	out := map[plan.ItemKey]bool{}
	for i := range c.Steps {
		if c.states[i] == stepFailed {
			for _, item := range c.Steps[i].ListItems() {
				out[item] = true
			}
		}
	}
	return out
}

// IsAbout reports whether there are actions on an object.
func (c *Course) IsAbout(uid types.UID) bool { return len(c.on[uid]) > 0 }
