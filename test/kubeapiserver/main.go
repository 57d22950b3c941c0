// Kubeapiserver is the unchanged API server of Kubernetes. It is a separate module, so that decamp does
// not depend on Kubernetes.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
