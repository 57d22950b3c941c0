// Package schema compares the published schemas in docs/schema with the code that generates them.
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

// siteURL is the beginning of the identifiers of the schemas.
const siteURL = "https://decamp.dev/"

// checkPublished compares the published file of an identifier with text. With -update it writes the file.
func checkPublished(t *testing.T, id string, text []byte) {
	t.Helper()
	path, ok := strings.CutPrefix(id, siteURL+"schema/")
	if !ok {
		t.Fatalf("the identifier %s is not below %sschema/", id, siteURL)
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

func TestPlanSchemaIsCurrent(t *testing.T) {
	text, err := planfile.Schema()
	if err != nil {
		t.Fatal(err)
	}
	checkPublished(t, planfile.SchemaID, text)
	var doc struct {
		ID string `json:"$id"`
	}
	if err := json.Unmarshal(text, &doc); err != nil || doc.ID != planfile.SchemaID {
		t.Errorf("$id %q, %v", doc.ID, err)
	}
}

// The published document matches the one that servers send, but has the version of the API instead of the release.
func TestOpenAPIDocumentIsCurrent(t *testing.T) {
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
	checkPublished(t, server.DocumentID, text.Bytes())
	if n := componentSchemas(t, text.Bytes()); n < 20 {
		t.Errorf("the document has %d schemas", n)
	}
}

// componentSchemas compiles the schemas of the document, which validates them against the metaschema of 2020-12. It
// returns their number. It also checks that the document has its identifier and no servers.
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
