// Crds prints the resource definitions of the objects that decamp writes, as KubeVirt and CDI install them. It prints a
// JSON list for tests with a real API server.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/decamp/decamp/test/kubevirt/upstream"
)

func main() {
	if err := printDefinitions(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// printDefinitions writes the definitions to standard output.
func printDefinitions() error {
	machine, err := upstream.VirtualMachine()
	if err != nil {
		return err
	}
	all := []*v1.CustomResourceDefinition{machine}
	for _, kind := range []string{"datavolume", "cdiconfig"} {
		crd, err := upstream.CDI(kind)
		if err != nil {
			return err
		}
		all = append(all, crd)
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}
