// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package signedrecords

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

// uninstallMark is what the operator signs on the record of a Helm release when it begins to uninstall it. Without the signature, a user
// who may write that Secret could claim that the uninstall has begun, and a stopped run finishes what it has begun.
type uninstallMark struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Run       int64     `json:"run"`
	Decides   string    `json:"decides"`
	// DecidedAt distinguishes a run from an earlier one with the same number, from before the numbers restarted.
	DecidedAt metav1.Time `json:"decidedAt"`
	Record    types.UID   `json:"record"` // of the Secret
	Revision  int64       `json:"revision"`
}

// markText is the text that is signed about the uninstall of a run's release.
func markText(c v1alpha1.Owner, run *v1alpha1.Run) ([]byte, error) {
	text, err := json.Marshal(uninstallMark{
		Kind: v1alpha1.KindOf(c), Namespace: c.GetNamespace(), Name: c.GetName(), UID: c.GetUID(),
		Run: run.Number, Decides: run.Decides, DecidedAt: run.DecidedAt, Record: types.UID(run.Helm.UID), Revision: run.Helm.Revision,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot write the mark of an uninstall: %w", err)
	}
	return text, nil
}

// SignMark is the mark with which the release of a run is uninstalled.
func SignMark(ring signing.Ring, c v1alpha1.Owner, run *v1alpha1.Run) (string, error) {
	text, err := markText(c, run)
	if err != nil {
		return "", err
	}
	return ring.Sign(signing.Uninstall, text)
}

// IsMark says that a mark was read which this operator has signed for the run's release.
func IsMark(ring signing.Ring, c v1alpha1.Owner, run *v1alpha1.Run, mark string) bool {
	text, err := markText(c, run)
	if err != nil {
		return false
	}
	_, err = ring.Verify(signing.Uninstall, text, mark)
	return err == nil
}
