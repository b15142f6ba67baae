// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import "testing"

func TestKey(t *testing.T) {
	const noObject = `error: key: this is no object with metadata.name`
	checkExamples(t, Objects(), map[string]example{
		"Namespaced":        {`key({"metadata": {"name": "web", "namespace": "shop"}})`, `"shop/web"`},
		"ClusterScoped":     {`key({"metadata": {"name": "web"}})`, `"web"`},
		"EmptyNamespace":    {`key({"metadata": {"name": "web", "namespace": ""}})`, `"web"`},
		"NamespaceIsNoText": {`key({"metadata": {"name": "web", "namespace": 1}})`, `"web"`},
		"OfGo":              {`key(object)`, `"web"`},
		"NoName":            {`key({"metadata": {"namespace": "shop"}})`, noObject},
		"EmptyName":         {`key({"metadata": {"name": "", "namespace": "shop"}})`, noObject},
		"NameIsNoText":      {`key({"metadata": {"name": 1}})`, noObject},
		"MetadataIsNoMap":   {`key({"metadata": "web"})`, noObject},
		"Empty":             {`key({})`, noObject},
		"Text":              {`key("web")`, noObject},
		"Null":              {`key(null)`, noObject},
	})
}

func TestController(t *testing.T) {
	of := func(owners string) string { return `controller({"metadata": {"ownerReferences": ` + owners + `}})` }
	const noObject = `error: controller: this is no object with metadata`
	checkExamples(t, Objects(), map[string]example{
		"Found":            {of(`[{"kind": "A"}, {"kind": "B", "controller": false}, {"kind": "C", "controller": true}]`) + `.kind`, `optional.of("C")`},
		"FirstOfTwo":       {of(`[{"kind": "A", "controller": true}, {"kind": "B", "controller": true}]`) + `.kind`, `optional.of("A")`},
		"AnOwnerIsNone":    {of(`[{"kind": "A"}, {"kind": "B", "controller": false}]`), `optional.none()`},
		"ATextIsNotTrue":   {of(`[{"kind": "A", "controller": "true"}]`), `optional.none()`},
		"WhatIsNoMap":      {of(`["A", null]`), `optional.none()`},
		"NoOwners":         {of(`[]`), `optional.none()`},
		"Null":             {of(`null`), `optional.none()`},
		"NoList":           {of(`{"controller": true}`), `optional.none()`},
		"NoReferences":     {`controller(object)`, `optional.none()`},
		"EmptyMetadata":    {`controller({"metadata": {}})`, `optional.none()`},
		"MetadataIsNoMap":  {`controller({"metadata": 1})`, `optional.none()`},
		"ErrorNoMetadata":  {`controller({"spec": 1})`, noObject},
		"ErrorForAList":    {`controller([])`, noObject},
		"ErrorForNull":     {`controller(null)`, noObject},
		"OnlyInMetadata":   {`controller({"metadata": {}, "ownerReferences": [{"controller": true}]})`, `optional.none()`},
		"OfTheOwnersAlone": {`controller({"metadata": {"controller": true}})`, `optional.none()`},
	})
}
