// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package protectedkinds

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestFlag(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []string
		err  string
	}{
		"None":     {nil, nil, ""},
		"One":      {[]string{"--allow-protected-kinds=namespaces"}, []string{"namespaces"}, ""},
		"Several":  {[]string{"--allow-protected-kinds=nodes,clusterroles.rbac.authorization.k8s.io", "--allow-protected-kinds=namespaces"}, []string{"nodes", "clusterroles.rbac.authorization.k8s.io", "namespaces"}, ""},
		"Nonsense": {[]string{"--allow-protected-kinds=Nonsense"}, nil, `invalid argument "Nonsense" for "--allow-protected-kinds" flag: "Nonsense" is no protected resource`},
		"Kind":     {[]string{"--allow-protected-kinds=Namespace"}, nil, "is no protected resource"},
		"No group": {[]string{"--allow-protected-kinds=clusterroles"}, nil, "is no protected resource"},
		"Free":     {[]string{"--allow-protected-kinds=pods"}, nil, "is no protected resource"},
		"Empty":    {[]string{"--allow-protected-kinds="}, nil, ""},
		"Comma":    {[]string{"--allow-protected-kinds=nodes,"}, nil, `"" is no protected resource`},
		"Dot":      {[]string{"--allow-protected-kinds=namespaces."}, nil, `"namespaces." is no protected resource`},
		"Singular": {[]string{"--allow-protected-kinds=clusterrole.rbac.authorization.k8s.io"}, nil, "is no protected resource"},
		"All":      {[]string{"--allow-protected-kinds=*.rbac.authorization.k8s.io"}, nil, "is no protected resource"},
		"Inside":   {[]string{"--allow-protected-kinds=clusterroles .rbac.authorization.k8s.io"}, nil, "is no protected resource"},
		"A space":  {[]string{"--allow-protected-kinds=nodes, namespaces"}, nil, `" namespaces" is no protected resource`},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.Var(NewValue(&got), "allow-protected-kinds", "usage")
			err := flags.Parse(tc.args)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("want %q: %v", tc.err, err)
				}
				return
			}
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%v: %v", got, err)
			}
			if text := flags.Lookup("allow-protected-kinds").Value.String(); text != strings.Join(tc.want, ",") {
				t.Errorf("it says %q", text)
			}
		})
	}
}
