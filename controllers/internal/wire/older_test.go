// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// without is a message as an API server writes it that does not know a field yet, at a path of numbers.
func without(message []byte, first protowire.Number, path ...protowire.Number) (out []byte) {
	for len(message) > 0 {
		number, kind, length := protowire.ConsumeField(message)
		switch {
		case number != first:
			out = append(out, message[:length]...)
		case len(path) > 0:
			out = protowire.AppendBytes(protowire.AppendTag(out, number, kind), without(valueOf(message[:length]), path[0], path[1:]...))
		}
		message = message[length:]
	}
	return out
}

// withoutZeros is a message as an API server writes it that knows none of the fields which JSON leaves out because they are zero.
func withoutZeros(message []byte, t reflect.Type) (out []byte, dropped int) {
	l := layoutOf(t)
	for len(message) > 0 {
		number, kind, length := protowire.ConsumeField(message)
		field := message[:length]
		f := l.fields[number]
		switch {
		case l.omitted[number] && isZero(field, kind) && f != nil && (f.Kind() == reflect.Int32 || f.Kind() == reflect.Int64 || f.Kind() == reflect.Bool || f.Kind() == reflect.String) && !isPointer(t, number):
			dropped++
		case kind == protowire.BytesType && f != nil && f.Kind() == reflect.Struct && len(layoutOf(f).fields) > 0:
			inner, n := withoutZeros(valueOf(field), f)
			out = protowire.AppendBytes(protowire.AppendTag(out, number, kind), inner)
			dropped += n
		default:
			out = append(out, field...)
		}
		message = message[length:]
	}
	return out, dropped
}

// isPointer says that a field is written only if it is set, or any number of times.
func isPointer(t reflect.Type, number protowire.Number) bool {
	for i := range t.NumField() {
		if n, ok := fieldNumber(t.Field(i)); ok && n == number {
			kind := t.Field(i).Type.Kind()
			return kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map
		}
	}
	return true
}

// Kubernetes 1.32 and earlier know no observedGeneration of Pods, which is always written. Their Pods are read in protobuf all the same.
func TestPodsOfAnOlderAPIServer(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "honest"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	message, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	older := without(without(message, 3, 17), 3, 2, 7)
	if len(older) >= len(message) {
		t.Fatal("nothing is missing")
	}
	read := func(message []byte) (u unstructured.Unstructured, err error) {
		kind := corev1.SchemeGroupVersion.WithKind("Pod")
		err = runtime.DecodeInto(decoder(t, binaryConfig(&rest.Config{}, &atomic.Bool{}), runtime.ContentTypeProtobuf), envelope(t, kind, message), &u)
		return u, err
	}
	want, err := read(message)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(older); err != nil {
		t.Error(err)
	} else if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("object (-newer +older):\n%s", diff)
	}
	for name, message := range map[string][]byte{
		"an older one, with a field that is not known":    append(older[:len(older):len(older)], newerField...),
		"without a field that JSON has with a zero value": without(message, 2, 2, 1), // the name of a container
		"with a field twice":                              append(append([]byte(nil), older...), older...),
	} {
		if u, err := read(message); !errors.Is(err, errOtherFields) {
			t.Errorf("%s: got %v, %v", name, u.Object, err)
		}
	}
}

// An object of any kind is read the same from an API server that knows none of its fields of zero value which JSON leaves out.
func TestAnOlderAPIServer(t *testing.T) {
	random, dropped := newRandom(), 0
	for _, kind := range known() {
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			data, _ := sent(t, random, kind)
			var newer runtime.Unknown
			if err := newer.Unmarshal(data[len("k8s\x00"):]); err != nil {
				t.Fatal(err)
			}
			message := newer.Raw
			older, n := withoutZeros(message, reflect.TypeOf(object).Elem())
			dropped += n
			var got [2]runtime.Object
			for i, m := range [][]byte{message, older} {
				got[i] = &unstructured.Unstructured{}
				if strings.HasSuffix(kind.Kind, "List") {
					got[i] = &unstructured.UnstructuredList{}
				}
				if err := runtime.DecodeInto(decoder(t, binaryConfig(&rest.Config{}, &atomic.Bool{}), runtime.ContentTypeProtobuf), envelope(t, kind, m), got[i]); err != nil {
					t.Fatalf("%s, %d fields missing: %v", kind, i*n, err)
				}
			}
			if diff := cmp.Diff(got[0], got[1]); diff != "" {
				t.Fatalf("%s (-newer +older):\n%s", kind, diff)
			}
		}
	}
	if dropped < 1000 {
		t.Errorf("only %d fields were missing", dropped)
	}
}
