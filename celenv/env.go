// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	kubernetes "k8s.io/apiserver/pkg/cel/library"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/compilecost"
	"github.com/vtex/cleaner/celenv/library"
)

// What an expression may be, apart from what it says.
const (
	maxExpressionSize  = 16384 // code points, as the schema has it
	maxParserRecursion = 250
	maxLoopNesting     = 4
)

// The names that expressions read besides those of targets. Which of them one sees depends on where it stands.
const (
	nameParams      = "params"
	nameTime        = "time"
	nameItem        = "item"
	nameObject      = "object"
	nameItems       = "items"
	prefixVariables = "variables."
)

// isReserved says that no target may have a name.
func isReserved(name string) bool {
	switch name {
	case nameParams, nameTime, nameItem, nameObject, nameItems, "variables", "key":
		return true
	default:
		return false
	}
}

// buildVersion1 gives the first version of the language. A version is never changed once it is released: what comes later is a
// version of its own, so that an expression that compiled once compiles, and means the same, for ever. Every library
// is pinned, because cel-go's default is its newest.
func buildVersion1() []cel.EnvOption {
	return []cel.EnvOption{
		cel.CustomTypeAdapter(budget.NewAdapter(nil)),
		cel.OptionalTypes(cel.OptionalTypesVersion(2)),
		cel.Macros(library.BoundCopies(cel.OptionalTypes(cel.OptionalTypesVersion(2)))...),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.EagerlyValidateDeclarations(true),
		cel.EnableIdentifierEscapeSyntax(),
		cel.ParserExpressionSizeLimit(maxExpressionSize),
		cel.ParserRecursionLimit(maxParserRecursion),
		cel.ParserErrorRecoveryLimit(4),
		cel.ASTValidators(
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
			cel.ValidateComprehensionNestingLimit(maxLoopNesting)),

		ext.Bindings(ext.BindingsVersion(0)),
		ext.Encoders(ext.EncodersVersion(0)),
		ext.Lists(ext.ListsVersion(3)),
		ext.Math(ext.MathVersion(2)),
		ext.Regex(ext.RegexVersion(0)),
		ext.Sets(ext.SetsVersion(0)),
		ext.Strings(ext.StringsVersion(5)),
		ext.TwoVarComprehensions(ext.TwoVarComprehensionsVersion(0)),

		kubernetes.CIDR(),
		kubernetes.Format(),
		kubernetes.IP(),
		kubernetes.Lists(kubernetes.ListsVersion(1)),
		kubernetes.Quantity(),
		kubernetes.Regex(),
		kubernetes.SemverLib(kubernetes.SemverVersion(1)),
		kubernetes.URLs(),

		library.Arithmetic(),
		library.Certificates(),
		library.Conditions(),
		library.Durations(),
		library.Index(),
		library.Shorthands(),
		library.JSON(),
		library.Network(),
		library.Objects(),
		library.Pods(),
		library.References(),
		library.Selectors(),

		cel.Variable(nameParams, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(nameTime, cel.TimestampType),
		cel.Variable(nameItem, cel.DynType),
		cel.Variable(nameObject, cel.DynType),
		cel.Variable(nameItems, cel.ListType(cel.DynType)),
	}
}

// Options are what a Compiler may be told. The zero value is good.
type Options struct {
	// Limits bound each evaluation. Those that are zero have their default, which grows with Memory.
	Limits budget.Limits
	// Memory is how many bytes the operator may use. 0: that is not known.
	Memory int64
}

// Compiler turns specs into Programs. It is safe for concurrent use.
type Compiler struct {
	env    *cel.Env
	envs   *sharedEnvs
	limits budget.Limits
	// Calls has functions pay when they are called.
	calls *budget.Calls
	// functions are all functions, for planning a program.
	functions interpreter.Dispatcher
	// scale knows what expressions cost before they run.
	scale *compilecost.Scale
	// places are taken by specs that are compiled.
	places chan struct{}
}

// NewCompiler builds the environment of the language.
func NewCompiler(o Options) (*Compiler, error) {
	labelSharedErrors()
	env, err := cel.NewEnv(buildVersion1()...)
	if err != nil {
		return nil, fmt.Errorf("cannot build the CEL environment: %w", err)
	}
	calls, all, err := budget.NewCalls(env)
	if err != nil {
		return nil, err
	}
	return &Compiler{
		env: env, envs: newSharedEnvs(env), limits: o.Limits.WithDefaults(o.Memory), calls: calls, functions: all,
		scale: compilecost.NewScale(env, calls), places: make(chan struct{}, maxCompilations),
	}, nil
}

// labelSharedErrors writes into the two error values that cel-go shares between all evaluations, before there are any.
// cel-go writes the node that failed into an error that has none yet: that would be a race of two evaluations, and for
// ever afterwards the wrong node.
func labelSharedErrors() {
	const nowhere = -1
	types.LabelErrNode(nowhere, types.NoSuchOverloadErr())
	end := types.Timestamp{Time: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	types.LabelErrNode(nowhere, end.Add(types.Duration{Duration: time.Hour}))
}

// envKey is a hash of the names that an environment declares.
type envKey [sha256.Size]byte

// sharedEnvs shares environments between specs that declare the same names: most of what a compiled spec takes in memory is its environment.
// It keeps none: an environment lasts as long as the programs that were compiled in it, which a Cache counts.
type sharedEnvs struct {
	base *cel.Env

	mu   sync.Mutex
	made map[envKey]weak.Pointer[cel.Env]
}

func newSharedEnvs(base *cel.Env) *sharedEnvs {
	return &sharedEnvs{base: base, made: map[envKey]weak.Pointer[cel.Env]{}}
}

// extendEnv returns the environment that declares these variables besides those of the language.
func (s *sharedEnvs) extendEnv(variables []string) (*cel.Env, error) {
	slices.Sort(variables)
	variables = slices.Compact(variables) // validation refuses a name that occurs twice
	key := envKey(sha256.Sum256([]byte(strings.Join(variables, " "))))
	if env := s.findEnv(key); env != nil {
		return env, nil
	}
	declared := make([]cel.EnvOption, len(variables))
	for i, name := range variables {
		declared[i] = cel.Variable(name, cel.DynType)
	}
	env, err := s.base.Extend(declared...) // outside the lock: specs with other names do not wait for it
	if err != nil {
		return nil, err
	}
	return s.shareEnv(key, env), nil
}

func (s *sharedEnvs) findEnv(key envKey) *cel.Env {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[key].Value()
}

// shareEnv shares a new environment, and returns it; or the one that another goroutine has shared meanwhile.
func (s *sharedEnvs) shareEnv(key envKey, env *cel.Env) *cel.Env {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.made[key].Value(); other != nil {
		return other
	}
	s.made[key] = weak.Make(env)
	runtime.AddCleanup(env, s.forgetEnv, key)
	return env
}

// forgetEnv removes the entry of an environment that is gone.
func (s *sharedEnvs) forgetEnv(key envKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made[key].Value() == nil {
		delete(s.made, key)
	}
}
