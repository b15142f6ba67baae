// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// folder is where the control plane has its certificates, data and logs.
type folder string

// makeFolder makes the folder that Options name, or a temporary one.
func makeFolder(dir string) (folder, error) {
	if dir == "" {
		tmp, err := os.MkdirTemp("", "cleaner-cluster-")
		if err != nil {
			return "", fmt.Errorf("cannot make a folder for the control plane: %w", err)
		}
		return folder(tmp), nil
	}
	abs, err := filepath.Abs(dir) // the components run in another folder
	if err != nil {
		return "", fmt.Errorf("cannot use the folder %q: %w", dir, err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return "", fmt.Errorf("cannot make a folder for the control plane: %w", err)
	}
	return folder(abs), nil
}

func (f folder) file(name string) string { return filepath.Join(string(f), name) }

func (f folder) auditLog() string { return f.file("audit.log") }

// controllerManagerFlags are the flags of a kube-controller-manager with these controllers.
func (f folder) controllerManagerFlags(port int, controllers []string) []string {
	return []string{
		"--kubeconfig=" + f.file("kube-controller-manager.kubeconfig"),
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + f.file("server.crt"), "--tls-private-key-file=" + f.file("server.key"),
		"--service-account-private-key-file=" + f.file("serviceaccount.key"), "--root-ca-file=" + f.file("ca.crt"),
		"--use-service-account-credentials", // each controller under its own name in the audit log
		"--controllers=" + strings.Join(controllers, ","),
		"--leader-elect=false",
	}
}
