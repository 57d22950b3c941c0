package report

import (
	"bytes"
	"embed"
	"io"

	template "github.com/DataDog/datadog-agent/pkg/template/html"
)

// page contains the template, style and script.
//
//go:embed page
var page embed.FS

// pageTemplate is the page with style and script inline, so that the result is one file
// without external references. Templates cannot call methods, as in package notify.
var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(readAsset("style.css")) },
	"seen":   bar.isSeen,
	"script": func() template.JS { return template.JS(readAsset("page.js")) },
}).ParseFS(page, "page/page.html"))

// readAsset returns an embedded file.
func readAsset(name string) string {
	text, err := page.ReadFile("page/" + name)
	if err != nil {
		panic(err) // the file is missing in the binary
	}
	return string(text)
}

// WriteHTML writes the report as one page. It needs no network, and is readable without
// scripts.
func WriteHTML(w io.Writer, r Report) error {
	var b bytes.Buffer
	// The page is complete before the first byte is written.
	if err := pageTemplate.Execute(&b, newView(r)); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}
