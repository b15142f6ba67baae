// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import "github.com/vtex/cleaner/controllers/internal/alarms"

// namesAtATime is for how many single objects it is asked at a time what the operator may do with them: there may be as many as users name, so that no
// goroutine waits for the alarm of each.
const namesAtATime = 8

func newNameAlarms() *alarms.Line[*scope] {
	return alarms.NewLine(func(s *scope) (*alarms.Alarm, int) { return &s.alarm, s.place })
}

// IsBefore is for the line of the alarms of single objects, as SetPlace.
func (s *scope) IsBefore(other *scope) bool { return s.alarm.Due.Before(other.alarm.Due) }
func (s *scope) SetPlace(place int)         { s.place = place }
