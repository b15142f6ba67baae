// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// SelfSigned are certificates of an authority of our own. Authority and certificate lie in a Secret, which has to exist
// and is to be mounted as the certificates' folder; each replica renews them, and the first one that does wins.
type SelfSigned struct {
	// Namespace is where Secret and Service are.
	Namespace string
	// Secret holds authority and certificate.
	Secret string
	// Service is the name under which the API server calls.
	Service string
	// Configuration is the name of the ValidatingWebhookConfiguration and of the MutatingWebhookConfiguration that are told
	// the authority.
	Configuration string
}

// addRotator has the certificates made and renewed while the manager runs, and closes ready when they can be served.
func (s *SelfSigned) addRotator(mgr ctrl.Manager, dir string, ready chan struct{}) error {
	err := rotator.AddRotator(mgr, &rotator.CertRotator{
		SecretKey:      types.NamespacedName{Namespace: s.Namespace, Name: s.Secret},
		CertDir:        dir,
		CAName:         "cleaner-webhook-ca",
		CAOrganization: "cleaner",
		DNSName:        s.Service + "." + s.Namespace + ".svc",
		IsReady:        ready,
		Webhooks:       []rotator.WebhookInfo{{Name: s.Configuration, Type: rotator.Validating}, {Name: s.Configuration, Type: rotator.Mutating}},
		FieldOwner:     "cleaner-webhook",
		// A replica that does not lead is called too.
		RequireLeaderElection: false,
	})
	if err != nil {
		return fmt.Errorf("cannot add the renewal of the webhook's certificates to the manager: %w", err)
	}
	return nil
}
