// Command render writes the Kubernetes manifests from the Helm chart.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/test/packaging"
)

func main() {
	const root = "../.."
	text, err := packaging.Manifest(filepath.Join(root, packaging.ChartFolder))
	if err == nil {
		err = os.WriteFile(filepath.Join(root, packaging.ManifestFile), text, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}
