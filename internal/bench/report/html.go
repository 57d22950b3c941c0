package report

import (
	"bytes"
	"embed"
	"html/template"
	"io"
)

//go:embed page
var page embed.FS

// Style and script are embedded, so that the page is one file without external references.
var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(asset("style.css")) },
	"script": func() template.JS { return template.JS(asset("page.js")) },
}).ParseFS(page, "page/page.html"))

func asset(name string) string {
	text, err := page.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is part of the binary
	}
	return string(text)
}

// WriteHTML writes the report as one page that needs no network, and no script to be read.
func WriteHTML(w io.Writer, r Report) error {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, newView(r)); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}
