package esx

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/decamp/decamp/internal/inventory/inventorytest"
)

func readReplaced(t *testing.T, text string, wrap func(io.Reader) io.Reader) string {
	t.Helper()
	out, err := io.ReadAll(readXML(io.NopCloser(wrap(strings.NewReader(text)))))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestInvalidXMLCharactersAreReplaced(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"<a b='ü'>🏷 &amp; &lt;</a>":   "<a b='ü'>🏷 &amp; &lt;</a>",
		"\x00\x1b[31m\x7f\u0085":      "\ufffd\ufffd[31m\x7f\u0085",
		"\xff\xfe\xc3":                "\ufffd\ufffd\ufffd",
		"\xed\xa0\x80":                "\ufffd\ufffd\ufffd",
		"\uffff\ufffd":                "\ufffd\ufffd",
		"&#0;&#1;&#x1B;&#x1b;&#9;":    "\ufffd\ufffd\ufffd\ufffd&#9;",
		"&#65;&#x41;&#xD800;":         "&#65;&#x41;\ufffd",
		"&#1114112;&#xffff;":          "\ufffd\ufffd",
		"&#99999999999;&":             "\ufffd&",
		"&#;&#x;&;&#-1;&#1":           "&#;&#x;&;&#-1;&#1",
		"&#000000000000000000000001;": "&#000000000000000000000001;",
	} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{"whole": iotest.DataErrReader, "byte by byte": iotest.OneByteReader} {
			if got := readReplaced(t, in, wrap); got != want {
				t.Errorf("%q, %s: %q, want %q", in, name, got, want)
			}
		}
	}
}

// TestHostileTextsStayXML reads a reply with hostile texts and unescaped control characters as SOAP calls do. The
// other texts of the reply are unchanged.
func TestHostileTextsStayXML(t *testing.T) {
	r := inventorytest.New(15)
	var body bytes.Buffer
	body.WriteString("<all>")
	const n = 2000
	for i := range n {
		text := strings.NewReplacer("<", "&lt;", ">", "&gt;", "&", "&amp;").Replace(inventorytest.Garbage(r))
		fmt.Fprintf(&body, "<vm><name>vm-%d</name><note>%s&#1;&#x0;</note></vm>", i, text)
	}
	body.WriteString("</all>")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		_, _ = w.Write(body.Bytes()) // the decoder reports a failed write
	}))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&soapTransport{base: http.DefaultTransport, pass: &pass{}}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all struct {
		VMs []struct {
			Name string `xml:"name"`
			Note string `xml:"note"`
		} `xml:"vm"`
	}
	if err := xml.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	for i, vm := range all.VMs {
		if vm.Name != fmt.Sprintf("vm-%d", i) || !strings.HasSuffix(vm.Note, "\ufffd\ufffd") {
			t.Fatalf("%d: %+v", i, vm)
		}
	}
	if len(all.VMs) != n {
		t.Errorf("%d VMs, want %d", len(all.VMs), n)
	}
}

func BenchmarkReadXML(b *testing.B) {
	text := strings.Repeat("<propSet><name>config.uuid</name><val xsi:type=\"xsd:string\">564d1234 &amp; Žižkov</val></propSet>\n", 1<<14)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := io.Copy(io.Discard, readXML(io.NopCloser(strings.NewReader(text)))); err != nil {
			b.Fatal(err)
		}
	}
}
