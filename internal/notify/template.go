package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	template "github.com/DataDog/datadog-agent/pkg/template/text"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

const (
	maxRendered = 64 << 10 // bytes of a rendered template
	maxSubject  = 200      // characters of a subject
)

// defaultSubject is the template of the subject of all kinds.
const defaultSubject = `{{if eq .Kind "vm-failed"}}VM {{.VM}} of plan {{.Plan}} failed
{{- else if eq .Kind "plan-failed"}}Plan {{.Plan}} failed
{{- else if eq .Kind "plan-done"}}Plan {{.Plan}} is done
{{- else if eq .Kind "cutover-due"}}VM {{.VM}} of plan {{.Plan}} waits for its cutover
{{- else}}The outage of VM {{.VM}} of plan {{.Plan}} took {{seconds .Outage.Took}}{{end}}`

// defaultText is the template of the text of all kinds.
const defaultText = `{{.Subject}}.
{{with .Failure}}
{{.Text}}
{{with .Hint}}Remedy: {{.}}
{{end}}{{end}}{{if .VMs}}
VMs: {{range $state, $n := .VMs}}{{$n}} {{$state}}  {{end}}
{{end}}{{with .Outage}}
{{if .Took}}Outage: {{seconds .Took}}
{{end}}{{if .Limit}}Limit: {{seconds .Limit}}
{{end}}{{if .Estimate}}Estimate: {{seconds .Estimate}}
{{end}}{{end}}{{if eq .Kind "cutover-due"}}
Cut over with: decamp cutover {{quote (printf "%s/%s" .Plan .Ref)}}
{{end}}{{if .VM}}
Source: {{.Source}}, {{.Ref}}
Target: {{range $i, $to := .To}}{{if $i}}, {{end}}{{$to}}{{end}}
{{end}}Details: decamp status {{quote .Plan}}
Time: {{utc .Time "2006-01-02 15:04:05"}} UTC
`

// templateFuncs are the functions of templates. Templates cannot call methods: with text/template, which
// can, the linker keeps all exported methods of the program, about 6 MB.
var templateFuncs = template.FuncMap{
	"json":    jsonText,
	"quote":   fault.Quote,
	"seconds": func(s float64) string { return time.Duration(s * float64(time.Second)).Round(time.Second).String() },
	"utc":     func(t time.Time, layout string) string { return t.UTC().Format(layout) },
}

// jsonText returns v as JSON, for templates of bodies.
func jsonText(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// templates are the templates of a receiver.
type templates struct {
	subject, text *template.Template
	body          *template.Template // body of a webhook; nil: the event as JSON
}

// parseTemplates parses the templates of a receiver, and tests them with an event of each kind. key is
// the key of the receiver in the file.
func parseTemplates(n *planfile.Notify, key string, r planfile.Receiver) (*templates, error) {
	t := &templates{}
	for _, each := range []struct {
		key, text, standard string
		to                  **template.Template
	}{
		{".subject", string(r.Subject), defaultSubject, &t.subject},
		{".text", string(r.Text), defaultText, &t.text},
		{".webhook.body", string(r.Webhook.Body), "", &t.body},
	} {
		if each.text == "" {
			each.text = each.standard
		}
		if each.text == "" {
			continue
		}
		parsed, err := template.New(key + each.key).Option("missingkey=error").Funcs(templateFuncs).Parse(each.text)
		if err != nil {
			return nil, n.Error(key+each.key, templateError(err))
		}
		*each.to = parsed
	}
	for _, kind := range planfile.EventKinds {
		e := Sample(kind)
		if err := t.fill(&e); err != nil {
			return nil, n.Error(key, templateError(err))
		}
		if _, err := t.renderBody(e); err != nil {
			return nil, n.Error(key+".webhook.body", templateError(err))
		}
	}
	return t, nil
}

// templateError returns an error of a template with a remedy.
func templateError(err error) error {
	return fault.New(fault.Invalid, "%w", err).WithHint("write it as in docs/notifications.md, and see the result with: decamp notify test NAME --print")
}

// fill sets the subject and the text of e.
func (t *templates) fill(e *Event) error {
	subject, err := renderText(t.subject, *e)
	if err != nil {
		return err
	}
	e.Subject = oneLine(subject)
	e.Text, err = renderText(t.text, *e)
	return err
}

// renderBody returns the body of a request about e, which is JSON.
func (t *templates) renderBody(e Event) ([]byte, error) {
	if t.body == nil {
		return json.Marshal(e)
	}
	body, err := renderText(t.body, e)
	if err == nil && !json.Valid([]byte(body)) {
		err = errors.New(`the result is not JSON: insert values with {{json .Subject}}, without quotation marks around it`)
	}
	return []byte(body), err
}

// renderText executes a template. It fails if the result exceeds maxRendered.
func renderText(t *template.Template, e Event) (string, error) {
	w := &limitedBuffer{}
	if err := t.Execute(w, e); err != nil {
		return "", err
	}
	return w.String(), nil
}

// limitedBuffer is a buffer that accepts at most maxRendered bytes.
type limitedBuffer struct{ bytes.Buffer }

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxRendered {
		return 0, fmt.Errorf("the result has more than %d bytes", maxRendered)
	}
	return b.Buffer.Write(p)
}

// WriteString implements io.StringWriter.
func (b *limitedBuffer) WriteString(s string) (int, error) { return b.Write([]byte(s)) }

var _ io.StringWriter = (*limitedBuffer)(nil)

// oneLine returns text as one line without control characters, and at most maxSubject characters.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if runes := []rune(text); len(runes) > maxSubject {
		return string(runes[:maxSubject-1]) + "…"
	}
	return text
}

// Sample returns an example of an event, for tests of receivers and templates.
func Sample(kind planfile.EventKind) Event {
	e := Event{ID: eventID(kind, "sample"), Kind: kind, Time: time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC), Plan: "sample-plan"}
	if kind == planfile.PlanFailed || kind == planfile.PlanDone {
		e.VMs = map[string]int{"done": 3}
	} else {
		e.VM, e.Ref, e.Source, e.To = "sample-vm", "vm-42", "esx1.example.com:443", []string{"dir:/srv/vm"}
		e.Runs, e.Worker = []string{"20261201-020000-sample"}, "worker1"
	}
	switch kind {
	case planfile.PlanFailed:
		e.VMs["failed"] = 1
	case planfile.VMFailed:
		e.Failure = &Failure{Kind: "full", Text: "no space left on /srv/vm", Hint: "free 10 GiB there, then run: decamp retry sample-plan/vm-42"}
	case planfile.CutoverDue:
		e.Outage = &Outage{Estimate: 42}
	case planfile.OutageOverrun:
		e.Outage = &Outage{Took: 371, Estimate: 42, Limit: 300}
	}
	return e
}
