// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/cronschedule"
	"github.com/vtex/cleaner/api/v1alpha1"
)

// minStartingDeadline is the shortest deadline that a busy operator can still meet.
const minStartingDeadline = 10 * time.Second

// checkSchedule checks schedule, timeZone and startingDeadline.
func checkSchedule(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	if spec.Schedule == "" {
		for _, given := range []struct{ name, value string }{{"timeZone", spec.TimeZone}, {"startingDeadline", string(spec.StartingDeadline)}} {
			if given.value != "" {
				f.addError(p.Child(given.name), "requires a schedule: add one, or remove this field")
			}
		}
		return
	}
	zone, err := cronschedule.ParseZone(spec.TimeZone)
	if err != nil {
		f.addError(p.Child("timeZone"), err.Error())
		zone = time.UTC
	}
	switch times, err := cronschedule.ParseSchedule(spec.Schedule, zone); {
	case err != nil:
		f.addError(p.Child("schedule"), err.Error())
	case times.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero():
		f.addError(p.Child("schedule"), fmt.Sprintf("%q never occurs: no month has that day", strings.TrimSpace(spec.Schedule)))
	}
	path := p.Child("startingDeadline")
	if deadline, ok := f.parseDuration(spec.StartingDeadline, path); ok && deadline < minStartingDeadline {
		f.addError(path, fmt.Sprintf("%s is too short: write %s or more, or leave it out for 1h", spec.StartingDeadline, minStartingDeadline))
	}
}
