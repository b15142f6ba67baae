// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// SelfSigned says where the operator keeps certificates of an authority of its own. The Secret must exist, and must be
// mounted as the folder of the certificates. Every replica tries to renew them, and the first one wins.
type SelfSigned struct {
	// Namespace is the namespace of Secret and Service.
	Namespace string
	// Secret contains the authority and the certificate.
	Secret string
	// Service is the Service through which the API server calls the webhook.
	Service string
	// Configuration is the name of the ValidatingWebhookConfiguration and of the MutatingWebhookConfiguration. The operator
	// writes the authority into both.
	Configuration string
}

// addRotator makes the manager create and renew the certificates. It closes ready when they can be served.
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
		// The API server also calls replicas that do not lead.
		RequireLeaderElection: false,
	})
	if err != nil {
		return fmt.Errorf("cannot add the renewal of the webhook's certificates to the manager: %w", err)
	}
	return nil
}
