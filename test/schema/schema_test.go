// Package schema compares the published schemas in docs/schema with the code that they are made from.
package schema

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

var update = flag.Bool("update", false, "write the files in docs/schema")

// site is the beginning of the identifiers; docs/schema has the files at the rest of the path.
const site = "https://decamp.dev/"

// isPublished compares the file of an identifier with the text, or writes it.
func isPublished(t *testing.T, id string, text []byte) {
	t.Helper()
	path, ok := strings.CutPrefix(id, site+"schema/")
	if !ok {
		t.Fatalf("the identifier %s is not below %sschema/", id, site)
	}
	file := filepath.Join("../../docs/schema", path)
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	published, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(published, text) {
		t.Errorf("%s is not up to date: run make generate", file)
	}
}

func TestThePlanSchemaIsPublished(t *testing.T) {
	text, err := planfile.Schema()
	if err != nil {
		t.Fatal(err)
	}
	isPublished(t, planfile.SchemaID, text)
	var doc struct {
		ID string `json:"$id"`
	}
	if err := json.Unmarshal(text, &doc); err != nil || doc.ID != planfile.SchemaID {
		t.Errorf("$id %q, %v", doc.ID, err)
	}
}

// The published document is the one that servers send, with the version of the API in place of decamp's release.
func TestTheOpenAPIDocumentIsPublished(t *testing.T) {
	f := servertest.Start(t, func(c *server.Config) { c.Version = "1" })
	resp, err := f.Client().Get(f.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sent, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	var text bytes.Buffer
	if err := json.Indent(&text, sent, "", "  "); err != nil {
		t.Fatal(err)
	}
	text.WriteByte('\n')
	isPublished(t, server.DocumentID, text.Bytes())
	if n := componentSchemas(t, text.Bytes()); n < 20 {
		t.Errorf("the document has %d schemas", n)
	}
}

// componentSchemas compiles the schemas of the document, which compares them with the metaschema of 2020-12, and returns
// their number. It also checks that the document names its identifier and no server.
func componentSchemas(t *testing.T, text []byte) int {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	doc := parsed.(map[string]any)
	if doc["x-self"] != server.DocumentID || doc["servers"] != nil {
		t.Errorf("x-self %v, servers %v", doc["x-self"], doc["servers"])
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(server.DocumentID, doc); err != nil {
		t.Fatal(err)
	}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for name := range schemas {
		if _, err := c.Compile(server.DocumentID + "#/components/schemas/" + name); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	return len(schemas)
}
