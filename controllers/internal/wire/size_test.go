// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
)

// memoryOf is what a function allocates, and what of that its result holds.
func memoryOf[T any](do func() T) (allocated, held int64) {
	before := inUse()
	var out T
	allocated = allocatedBy(func() { out = do() })
	held = inUse() - before
	runtime.KeepAlive(out)
	return allocated, held
}

// inUse is how much memory is held on to.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // and what pools let go of
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// allocatedBy is how many bytes a function allocates.
func allocatedBy(do func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// fill repeats a part, with a number in the place of each %, until a text is as long.
func fill(begin, part, end string, length int) string {
	var b strings.Builder
	b.WriteString(begin)
	for i := 0; b.Len() < length; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strings.ReplaceAll(part, "%", strconv.Itoa(i)))
	}
	b.WriteString(end)
	return b.String()
}

// shapes are JSON that takes much more memory than its text, and such as people write.
func shapes(length int) map[string]string {
	chain := strings.Repeat(`{"":`, 1000) + "0" + strings.Repeat("}", 1000)
	return map[string]string{
		"small maps":        fill(`[`, `{"a":{}}`, `]`, length),
		"maps of no name":   fill(`[`, `{"":0}`, `]`, length),
		"chains of maps":    fill(`[`, chain, `]`, length),
		"empty maps":        fill(`[`, `{}`, `]`, length),
		"empty lists":       fill(`[`, `[]`, `]`, length),
		"lists of one":      fill(`[`, `[0]`, `]`, length),
		"chains of lists":   fill(`[`, strings.Repeat("[", 1000)+strings.Repeat("]", 1000), `]`, length),
		"zeros":             fill(`[`, `0`, `]`, length),
		"numbers":           fill(`[`, `%`, `]`, length),
		"fractions":         fill(`[`, `0.%`, `]`, length),
		"nulls":             fill(`[`, `null`, `]`, length),
		"empty texts":       fill(`[`, `""`, `]`, length),
		"letters":           fill(`[`, `"a"`, `]`, length),
		"texts of 9 bytes":  fill(`[`, `"123456789"`, `]`, length),
		"texts of 17 bytes": fill(`[`, `"12345678901234567"`, `]`, length),
		"quotes":            fill(`[`, `"\\\"\\"`, `]`, length),
		"escapes":           fill(`[`, `"\u0041\u0042"`, `]`, length),
		"one map":           fill(`{`, `"%":0`, `}`, length),
		"a map of maps":     fill(`{`, `"%":{}`, `}`, length),
		"maps of nine":      fill(`[`, `{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0}`, `]`, length),
		"one text":          `"` + strings.Repeat("x", length) + `"`,
		"structure in text": `"` + strings.Repeat("[{:,", length/4) + `"`,
		"with spaces":       fill(`[`, "\n  {\n    \"a\" : {\n    }\n  }", `]`, length),
		"a schema":          fill(`{`, `"property%":{"type":"object","properties":{"name":{"type":"string"},"count":{"type":"integer","format":"int32"}}}`, `}`, length),
		"results":           fill(`[`, `{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"web-%","status":"Synced","health":{"status":"Healthy"}}`, `]`, length),
	}
}

// What is counted of JSON is no less than what its maps hold, and no more than a few times that; and no byte counts for more
// than what is small is held to be.
func TestTextSize(t *testing.T) {
	for _, length := range []int{1000, 100_000, 1 << 20} {
		for name, shape := range shapes(length) {
			text := []byte(`{"a":` + shape + `}`)
			size := textSize(text, 1<<40)
			allocated, held := memoryOf(func() map[string]any {
				var value map[string]any
				if err := utiljson.Unmarshal(text, &value); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return value
			})
			t.Logf("%-20s %7d bytes: counted %9d, held %9d, allocated %9d", name, len(text), size, held, allocated)
			const rest = 64 << 10 // what is allocated whatever is read
			runtime.KeepAlive(text)
			runtime.KeepAlive(shape)
			if held > size+rest {
				t.Errorf("%s, %d bytes: counts %d, and takes %d", name, len(text), size, held)
			}
			if allocated > 3*size+int64(len(text))+rest {
				t.Errorf("%s, %d bytes: counts %d, and allocates %d", name, len(text), size, allocated)
			}
			if size > 5*held+rest {
				t.Errorf("%s, %d bytes: counts %d for %d", name, len(text), size, held)
			}
			if size > perCharacter*int64(len(text)) {
				t.Errorf("%s: counts %d for each byte", name, size/int64(len(text)))
			}
		}
	}
}

// repeatedly has, for each type of a message that a kind can hold, a message of the kind with as many empty ones of it, and
// no other message of its kind; the name is the path to it.
func repeatedly(t reflect.Type, n int, seen map[string]bool) map[string][]byte {
	out := map[string][]byte{}
	var walk func(t reflect.Type, name string, wrap func([]byte) []byte)
	walk = func(t reflect.Type, name string, wrap func([]byte) []byte) {
		if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
			return
		}
		for number, f := range layoutOf(t).fields {
			place := fmt.Sprintf("%s.%d", t, number)
			if seen[place] {
				continue
			}
			seen[place] = true
			part := protowire.AppendTag(nil, number, protowire.BytesType)
			many := func(value func(i int) []byte) []byte {
				var message []byte
				for i := range n {
					message = protowire.AppendBytes(append(message, part...), value(i))
				}
				return wrap(message)
			}
			out[name+"/"+place] = many(func(int) []byte { return nil })
			if f.Kind() == reflect.Map {
				out[name+"/"+place+" of keys"] = many(func(i int) []byte {
					return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), strconv.Itoa(i))
				})
				out[name+"/"+place+" of keys that end too late"] = many(func(int) []byte { return []byte{0x0a, 6, '0'} })
			}
			walk(f, name+"/"+place, func(message []byte) []byte {
				return wrap(protowire.AppendBytes(append([]byte(nil), part...), message))
			})
		}
	}
	walk(t, "", func(message []byte) []byte { return message })
	return out
}

// cost is what it takes to read a message as an object and to put that into maps.
func cost(t *testing.T, kind schema.GroupVersionKind, message []byte) int64 {
	t.Helper()
	read := func() {
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := object.(typed).Unmarshal(message); err == nil {
			_, _ = convertToUnstructured(object, kind, &unstructured.Unstructured{})
		}
	}
	read() // which knows the types from then on
	return allocatedBy(read)
}

// What is counted of a message is no less than a part of what is allocated to read it, whatever repeats in it.
func TestMessageSize(t *testing.T) {
	seen := map[string]bool{}
	worst := 0.0 // of what is allocated for a byte that is counted
	for _, kind := range known() {
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		if meta.IsListType(object) { // of which each item is counted
			continue
		}
		for name, message := range repeatedly(reflect.TypeOf(object).Elem(), 1000, seen) {
			size := messageSize(message, reflect.TypeOf(object).Elem(), 1<<40)
			if allocated := cost(t, kind, message); allocated > 5*size {
				t.Errorf("%s %s, %d bytes: counts %d, and allocates %d", kind.Kind, name, len(message), size, allocated)
			} else {
				worst = max(worst, float64(allocated)/float64(size))
			}
			if size > perMessageByte*int64(len(message)) {
				t.Errorf("%s %s: counts %d for each byte", kind.Kind, name, size/int64(len(message)))
			}
		}
	}
	t.Log(len(seen), "fields, worst", worst)
}

// hostile is JSON of a custom resource that is small where it is stored, and large in memory.
func hostile(name string) string {
	return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","namespace":"shop","uid":"u","resourceVersion":"12","labels":{"a":"b"},"managedFields":[{"manager":"m"}]},"spec":` +
		fill(`[`, `{"a":{}}`, `]`, 1<<20) + `}`
}

// policy is the message of a NetworkPolicy that is no larger, and larger in memory.
func policy(t *testing.T, name string) []byte {
	t.Helper()
	peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}
	rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{peer}}
	o := networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: "u", ResourceVersion: "12", Labels: map[string]string{"a": "b"}},
		Spec:       networkingv1.NetworkPolicySpec{Ingress: slices.Repeat([]networkingv1.NetworkPolicyIngressRule{rule}, 100_000)},
	}
	message, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return message
}

var policies = networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")

// Of an object that is too large a watch tells the metadata, and why there is no more; and that costs little. What was
// deleted has its name as ever.
func TestWatchOfWhatIsTooLarge(t *testing.T) {
	const want = `{"metadata":{"name":"large","namespace":"shop","uid":"u","resourceVersion":"12","labels":{"a":"b"}}}`
	message := envelope(t, policies, policy(t, "large"))
	for name, tc := range map[string]struct {
		events func(watch.EventType) *restwatch.Decoder
		kind   schema.GroupVersionKind
	}{
		"JSON": {func(e watch.EventType) *restwatch.Decoder {
			return decoderOf(t, textConfig(&rest.Config{}), `{"type":"`+string(e)+`","object":`+hostile("large")+"}\n")
		}, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}},
		"protobuf": {func(e watch.EventType) *restwatch.Decoder {
			return readMessages(t, binaryConfig(&rest.Config{}, &atomic.Bool{}), e, message)
		}, policies},
	} {
		t.Run(name, func(t *testing.T) {
			var got apiruntime.Object
			d := tc.events(watch.Modified)
			allocated := allocatedBy(func() {
				var err error
				if _, got, err = d.Decode(); err != nil {
					t.Fatal(err)
				}
			})
			o, ok := got.(*Object)
			if !ok || o.GroupVersionKind() != tc.kind {
				t.Fatalf("got a %T", got)
			}
			if _, err := o.Content(); !errors.Is(err, errTooLarge) {
				t.Errorf("its content gives error %v", err)
			}
			o.TypeMeta = metav1.TypeMeta{}
			if text, err := json.Marshal(o.PartialObjectMetadata); err != nil || string(text) != want {
				t.Errorf("error %v, metadata %s", err, text)
			}
			if allocated > maxObject/2 {
				t.Errorf("it takes %d bytes not to read it", allocated)
			}
			if _, got, err := tc.events(watch.Deleted).Decode(); err != nil || got.(metav1.Object).GetName() != "large" {
				t.Errorf("when it was deleted: got %v, %v", got, err)
			}
		})
	}
}

// Of an object that is too large a list has the metadata, and the reason; of the others it has all.
func TestListOfWhatIsTooLarge(t *testing.T) {
	small := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "small"}}
	smallMessage, err := small.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var items []byte
	for _, m := range [][]byte{smallMessage, policy(t, "large"), smallMessage} {
		items = protowire.AppendBytes(protowire.AppendTag(items, 2, protowire.BytesType), m)
	}
	lists := policies.GroupVersion().WithKind("NetworkPolicyList")
	const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"small"},"spec":[{}]}`
	for name, tc := range map[string]struct {
		decoder apiruntime.Decoder
		data    []byte
	}{
		"JSON": {decoder(t, textConfig(&rest.Config{}), apiruntime.ContentTypeJSON),
			[]byte(`{"apiVersion":"example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"7","continue":"x"},"items":[` + widget + `,` + hostile("large") + `,` + widget + `]}`)},
		"JSON of items that do not say what they are": {decoder(t, textConfig(&rest.Config{}), apiruntime.ContentTypeJSON),
			[]byte(`{"apiVersion":"example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"7"},"items":[` + widget + `,` + strings.Replace(hostile("large"), `"apiVersion":"example.com/v1","kind":"Widget",`, "", 1) + `,` + widget + `]}`)},
		"protobuf": {decoder(t, binaryConfig(&rest.Config{}, &atomic.Bool{}), apiruntime.ContentTypeProtobuf),
			envelope(t, lists, append([]byte("\x0a\x07\x0a\x00\x12\x017\x1a\x00"), items...))},
	} {
		t.Run(name, func(t *testing.T) {
			list := &unstructured.UnstructuredList{}
			if err := apiruntime.DecodeInto(tc.decoder, tc.data, list); err != nil {
				t.Fatal(err)
			}
			unread := 0
			for i := range list.Items {
				u := &list.Items[i]
				err := UnreadReason(u)
				if large := u.GetName() == "large"; large != errors.Is(err, errTooLarge) || large == (u.Object["spec"] != nil) {
					t.Errorf("%s: error %v, content %.100v", u.GetName(), err, u.Object)
				}
				if err != nil {
					unread++
					if u.GetLabels()["a"] != "b" || u.GetUID() != "u" || u.GetResourceVersion() != "12" {
						t.Errorf("its metadata is %v", u.Object)
					}
				}
				if want := strings.TrimSuffix(list.GetKind(), "List"); u.GetKind() != want || u.GetAPIVersion() != list.GetAPIVersion() {
					t.Errorf("%s is a %s %s", u.GetName(), u.GetAPIVersion(), u.GetKind())
				}
			}
			if len(list.Items) != 3 || unread != 1 || list.GetResourceVersion() != "7" {
				t.Errorf("got %d items of version %q, %d of which were not read", len(list.Items), list.GetResourceVersion(), unread)
			}
		})
	}
}

// One object that is too large is an error, and no reason to ask for another format.
func TestReadOfWhatIsTooLarge(t *testing.T) {
	failed := &atomic.Bool{}
	for name, err := range map[string]error{
		"JSON":     apiruntime.DecodeInto(decoder(t, textConfig(&rest.Config{}), apiruntime.ContentTypeJSON), []byte(hostile("large")), &unstructured.Unstructured{}),
		"protobuf": apiruntime.DecodeInto(decoder(t, binaryConfig(&rest.Config{}, failed), apiruntime.ContentTypeProtobuf), envelope(t, policies, policy(t, "large")), &unstructured.Unstructured{}),
	} {
		if !errors.Is(err, errTooLarge) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	if failed.Load() {
		t.Error("it will be read from JSON")
	}
}

// Whatever people write is read, as large as an API server stores it.
func TestLargeObjectsArePermitted(t *testing.T) {
	const stored = 1536 << 10
	for name, shape := range map[string]string{
		"a definition":            fill(`{`, `"replicas%":{"description":"How many of them there are. It may be zero.","type":"integer","format":"int32"},"name%":{"type":"object","properties":{"name":{"type":"string"}}}`, `}`, stored),
		"results":                 fill(`[`, `{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"web-%","status":"Synced","health":{"status":"Healthy"}}`, `]`, stored),
		"nodes of a workflow":     fill(`{`, `"flow-%":{"id":"flow-%","name":"flow.%","displayName":"%","type":"Pod","templateName":"t","templateScope":"local/flow","phase":"Succeeded","boundaryID":"flow","startedAt":"2026-01-01T00:00:00Z","finishedAt":"2026-01-01T00:00:00Z","progress":"1/1","resourcesDuration":{"cpu":1,"memory":2},"children":["flow-%"],"outputs":{"exitCode":"0"}}`, `}`, stored),
		"fields that are managed": fill(`{`, `"k:{\"name\":\"c%\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{}}`, `}`, stored),
		"numbers of five digits":  fill(`[`, `1%`, `]`, stored),
		"one text":                `"` + strings.Repeat("{", stored) + `"`,
	} {
		text := []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":` + shape + `}`)
		if err := CheckText(text); err != nil {
			t.Errorf("%s: counts %d: %v", name, textSize(text, 1<<40), err)
		}
	}
	for name, o := range map[string]typed{
		"ConfigMap of many keys": &corev1.ConfigMap{Data: numbered(20_000, strings.Repeat("x", 40))},
		"ConfigMap of one key":   &corev1.ConfigMap{Data: map[string]string{"a": fill("[", `{"a":{}}`, "]", 1<<20)}},
		"Secret":                 &corev1.Secret{Data: map[string][]byte{"a": make([]byte, 1<<20)}},
		"ControllerRevision":     &appsv1.ControllerRevision{Data: apiruntime.RawExtension{Raw: []byte(`{"a":` + shapes(1 << 20)["results"] + `}`)}},
		"EndpointSlice":          &discoveryv1.EndpointSlice{Endpoints: slices.Repeat([]discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, NodeName: new("node"), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web", UID: "u"}}}, 1000)},
		"Pod of many containers": &corev1.Pod{Spec: corev1.PodSpec{Containers: slices.Repeat([]corev1.Container{{Name: "a", Env: slices.Repeat([]corev1.EnvVar{{Name: "a", Value: "b"}}, 100)}}, 100)}},
	} {
		message, err := o.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := checkMessage(message, reflect.TypeOf(o).Elem()); err != nil {
			t.Errorf("%s: counts %d: %v", name, messageSize(message, reflect.TypeOf(o).Elem(), 1<<40), err)
		}
	}
	raw := appsv1.ControllerRevision{Data: apiruntime.RawExtension{Raw: []byte(hostile("a"))}}
	message, err := raw.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if checkMessage(message, reflect.TypeOf(raw)) == nil {
		t.Error("JSON in a message is not counted")
	}
}

// numbered is a map with so many entries of a value.
func numbered(n int, value string) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[strconv.Itoa(i)] = value
	}
	return out
}
