// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import "k8s.io/apimachinery/pkg/util/validation/field"

// About how many bytes of memory what is compiled takes besides the expressions, and rather more than less.
const (
	footprintOfSpec  = 24 << 10 // its environment, above all
	footprintOfName  = 256      // a target or a variable that the environment declares
	footprintOfError = 512
	footprintOfPart  = 768 // a part of an object that is read: here, and in the queries of the targets
)

// SumFootprint adds up about how much memory programs and errors take while they are remembered.
func SumFootprint(p *Programs, errs field.ErrorList) int64 {
	bytes := int64(footprintOfSpec)
	if p != nil {
		bytes += p.footprint
		for _, reading := range p.FindReadings() {
			bytes += footprintOfPart * int64(reading.Projection.CountParts())
		}
	}
	for _, err := range errs {
		bytes += footprintOfError + int64(len(err.Field)+len(err.Detail))
	}
	return bytes
}
