package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeBill writes the software bill of materials of a program in CycloneDX's JSON format.
func (w *artefacts) writeBill(p program, modules []module) {
	w.createFile(fmt.Sprintf("%s-%s.cdx.json", p.name, w.version), func(out io.Writer) error {
		e := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON)
		e.SetPretty(true)
		return e.EncodeVersion(w.billOf(p, modules), cdx.SpecVersion1_6)
	})
}

// billOf returns the bill of materials of a program. It has no serial number, because that would be random.
func (r *release) billOf(p program, modules []module) *cdx.BOM {
	main := cdx.Component{
		BOMRef: "pkg:golang/github.com/decamp/decamp@v" + r.version + "#cmd/" + p.command(), Type: cdx.ComponentTypeApplication, Name: p.name, Version: r.version,
		Description: p.summary, Licenses: licenceChoices([]string{"Apache-2.0"}), PackageURL: "pkg:golang/github.com/decamp/decamp@v" + r.version + "#cmd/" + p.command(),
	}
	var components []cdx.Component
	var references []string
	for _, m := range modules {
		c := cdx.Component{
			BOMRef: "pkg:golang/" + m.path + "@" + m.version, Type: cdx.ComponentTypeLibrary, Name: m.path, Version: m.version,
			Licenses: licenceChoices(m.licences), PackageURL: "pkg:golang/" + m.path + "@" + m.version,
		}
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:")); err == nil && m.sum != "" {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		}
		components, references = append(components, c), append(references, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.date.Format("2006-01-02T15:04:05Z"), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &references}}
	return bom
}

// licenceChoices returns SPDX identifiers in CycloneDX's form.
func licenceChoices(names []string) *cdx.Licenses {
	var licences cdx.Licenses
	for _, name := range names {
		licences = append(licences, cdx.LicenseChoice{License: &cdx.License{ID: name}})
	}
	return &licences
}
