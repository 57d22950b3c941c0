// Package packaging validates the Helm chart, the manifests that are rendered from it, and the definitions of CI,
// with the code of Helm, of Kubernetes and of actionlint.
//
// The command render rewrites the manifests:
//
//	go run -C test/packaging ./render
//
// It is a separate module, so that decamp does not depend on Kubernetes and Helm for its tests.
package packaging

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// The paths of the chart and of the manifests, from the root of the repository.
const (
	ChartFolder  = "packaging/helm/decamp"
	ManifestFile = "packaging/kubernetes/decamp.yaml"
)

// Render returns the objects of the chart in folder, with these values above its defaults, as helm template does for
// the release decamp in the namespace decamp.
func Render(folder string, values map[string]any) ([]byte, error) {
	c, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "decamp", Namespace: "decamp", IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.Trim(files[name], "- \n"); strings.HasSuffix(name, ".yaml") && text != "" {
			fmt.Fprintf(&b, "---\n%s\n", text)
		}
	}
	return b.Bytes(), nil
}

// manifestHead is the beginning of ManifestFile.
const manifestHead = `# Rendered from ../helm/decamp by: go run -C test/packaging ./render
# Create the namespace and the secrets first: docs/kubernetes.md
`

// Manifest returns the content of ManifestFile: the chart in folder with its defaults.
func Manifest(folder string) ([]byte, error) {
	text, err := Render(folder, nil)
	return append([]byte(manifestHead), bytes.TrimPrefix(text, []byte("---\n"))...), err
}
