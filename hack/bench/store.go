// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// store is what an API server keeps its objects in.
type store struct {
	url     string
	client  *http.Client
	encoder runtime.Encoder
}

func newStore(url string) *store {
	return &store{
		url:     url,
		client:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: makers}},
		encoder: scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion),
	}
}

func (s *store) putPod(ctx context.Context, pod *corev1.Pod) error {
	return s.put(ctx, "/registry/pods/"+pod.Namespace+"/"+pod.Name, pod)
}

// put writes an object without resourceVersion as an API server does.
func (s *store) put(ctx context.Context, key string, o runtime.Object) error {
	value, err := runtime.Encode(s.encoder, o)
	if err != nil {
		return fmt.Errorf("cannot encode %s: %w", key, err)
	}
	return s.putBytes(ctx, key, value)
}

// putJSON is put for an object of a CustomResourceDefinition.
func (s *store) putJSON(ctx context.Context, key string, o *unstructured.Unstructured) error {
	value, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("cannot encode %s: %w", key, err)
	}
	return s.putBytes(ctx, key, value)
}

func (s *store) putBytes(ctx context.Context, key string, value []byte) error {
	text, err := json.Marshal(map[string][]byte{"key": []byte(key), "value": value})
	if err != nil {
		return fmt.Errorf("cannot encode %s: %w", key, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v3/kv/put", bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("cannot write into etcd: %w", err)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("cannot write into etcd: %w", err)
	}
	said, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return fmt.Errorf("cannot write into etcd: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("cannot write into etcd: %s: %s", answer.Status, said)
	}
	return nil
}
