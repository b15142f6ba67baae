// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"time"
)

// Duration is a length of time: numbers with units, such as "360h", "15d" or "1h30m". The units are ns, us (or µs), ms,
// s, m, h, d (24 hours) and w (7 days). The longest duration is 292 years (106751d).
//
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d|w))+$`
// +kubebuilder:validation:MaxLength=64
type Duration string

var (
	durationTerm = regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h|d|w)`)
	durationText = regexp.MustCompile(`^(?:` + durationTerm.String() + `)+$`)
)

// IsDuration says that a text is written as a Duration is. No expression is.
func IsDuration(s string) bool { return durationText.MatchString(s) }

// ParseDuration reads a Duration. It errs on text that is none, and on one longer than 292 years, which is more than
// a time.Duration can hold. Fractions of a nanosecond are dropped.
func ParseDuration(s string) (time.Duration, error) {
	if !IsDuration(s) {
		return 0, fmt.Errorf("%q is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as \"360h\" or \"1h30m\"", s)
	}
	total := new(big.Rat)
	for _, m := range durationTerm.FindAllStringSubmatch(s, -1) {
		n, ok := new(big.Rat).SetString(m[1])
		if !ok {
			return 0, fmt.Errorf("%q is not a duration: %q is not a number", s, m[1])
		}
		total.Add(total, n.Mul(n, new(big.Rat).SetInt64(int64(unitOf(m[2])))))
	}
	if total.Cmp(new(big.Rat).SetInt64(math.MaxInt64)) > 0 {
		return 0, fmt.Errorf("%q is too long: the longest duration is 292 years (106751d)", s)
	}
	return time.Duration(new(big.Int).Quo(total.Num(), total.Denom()).Int64()), nil
}

// unitOf is what one of a Duration's names of units stands for.
func unitOf(name string) time.Duration {
	switch name {
	case "ns":
		return time.Nanosecond
	case "us", "µs":
		return time.Microsecond
	case "ms":
		return time.Millisecond
	case "s":
		return time.Second
	case "m":
		return time.Minute
	case "h":
		return time.Hour
	case "d":
		return 24 * time.Hour
	default:
		return 7 * 24 * time.Hour
	}
}

// Parse reads the duration; the empty one is otherwise.
func (d Duration) Parse(otherwise time.Duration) (time.Duration, error) {
	if d == "" {
		return otherwise, nil
	}
	return ParseDuration(string(d))
}
