// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// minStartingDeadline is the shortest in which an operator that has other work too still comes to a time of a schedule.
const minStartingDeadline = 10 * time.Second

// checkSchedule looks at the times at which a Cleaner is evaluated.
func (f *Findings) checkSchedule(spec *v1alpha1.Work, p *field.Path) {
	if spec.Schedule == "" {
		for _, given := range []struct{ name, value string }{{"timeZone", spec.TimeZone}, {"startingDeadline", string(spec.StartingDeadline)}} {
			if given.value != "" {
				f.addError(p.Child(given.name), "means nothing without a schedule: add one, or remove it")
			}
		}
		return
	}
	f.checkCron(spec.Schedule, p.Child("schedule"))
	if zone := spec.TimeZone; zone != "" {
		// The zone of wherever the operator runs is not the author's.
		if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
			f.addError(p.Child("timeZone"), fmt.Sprintf("%q is not a time zone: write the IANA name of one, such as Europe/Berlin or UTC", zone))
		}
	}
	path := p.Child("startingDeadline")
	if deadline, ok := f.parseDuration(spec.StartingDeadline, path); ok && deadline < minStartingDeadline {
		f.addError(path, fmt.Sprintf("%s is too short: write %s or more, or leave it out for 1h", spec.StartingDeadline, minStartingDeadline))
	}
}

func (f *Findings) checkCron(text string, p *field.Path) {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "TZ=") { // the parser would take it, and panics where nothing follows it
		zone, _, _ := strings.Cut(text[strings.Index(text, "=")+1:], " ")
		f.addError(p, fmt.Sprintf("sets a time zone: remove it, and write timeZone: %s", zone))
		return
	}
	if every, ok := strings.CutPrefix(text, "@every"); ok { // counts from whenever it is asked, so it has no times
		f.addError(p, fmt.Sprintf("@every has no times of its own: write retry: {period: %s}, or times such as \"*/10 * * * *\"", strings.TrimSpace(every)))
		return
	}
	times, err := cron.ParseStandard(text)
	switch {
	case err != nil:
		f.addError(p, fmt.Sprintf("%q is not a schedule: %s; write the five fields minute, hour, day of month, month and day of week, such as \"*/10 * * * *\", or one of @hourly, @daily, @weekly, @monthly and @yearly", text, err))
	case times.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero():
		f.addError(p, fmt.Sprintf("%q never comes: no month has that day", text))
	}
}
