// Modules of others whose files the tests read, and whose code nothing imports: hence a module of its own,
// without packages. `go mod tidy` would empty it. test/cluster downloads what is listed here and reads it from the module cache.
module github.com/vtex/cleaner/test/thirdparty

go 1.26.0

require (
	github.com/argoproj/argo-cd/v3 v3.4.0
	github.com/argoproj/argo-rollouts v1.9.0
	github.com/argoproj/argo-workflows/v4 v4.0.5
	github.com/cert-manager/cert-manager v1.21.2
	github.com/tektoncd/pipeline v1.6.0
	knative.dev/serving v0.51.0
)
