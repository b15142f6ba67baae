// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"encoding/xml"
	"fmt"
	"os"
	"strings"
	"time"
)

// Result is the result of a case.
type Result struct {
	Name     string
	Duration time.Duration
	// Failure is nil if the case passed.
	Failure error
}

// The elements of JUnit's XML.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes results to a file, as JUnit does.
func WriteJUnit(path string, results []Result) error {
	suite := junitSuite{Name: "kubectl cleaner test", Tests: len(results)}
	for _, r := range results {
		one := junitCase{Name: r.Name, Class: "cleaner", Time: fmt.Sprintf("%.3f", r.Duration.Seconds())}
		if r.Failure != nil {
			suite.Failures++
			first, _, _ := strings.Cut(r.Failure.Error(), "\n")
			one.Failure = &junitFailure{Message: first, Text: r.Failure.Error()}
		}
		suite.Cases = append(suite.Cases, one)
	}
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644) //nolint:gosec // a report for others to read
}
