package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSymbolsHaveAreas(t *testing.T) {
	modules := []string{"github.com/jackc/pgx/v5", "gopkg.in/yaml.v3", "golang.org/x/crypto", "golang.org/x/crypto/x509roots"}
	for name, want := range map[string]string{
		"main.(*app).run": "cmd/decamp",
		"github.com/decamp/decamp/internal/esx.(*Session).Close":                         "internal/esx",
		"github.com/decamp/decamp/internal/targets/libvirt/rpc.Dial":                     "internal/targets",
		"github.com/jackc/pgx/v5/pgconn.(*PgConn).Close":                                 "github.com/jackc/pgx/v5",
		"gopkg.in/yaml%2ev3.Unmarshal":                                                   "gopkg.in/yaml.v3",
		"golang.org/x/crypto/ssh.Dial":                                                   "golang.org/x/crypto",
		"golang.org/x/crypto/x509roots/fallback.init":                                    "golang.org/x/crypto/x509roots",
		"net/http.(*Server).Serve":                                                       "standard library",
		"slices.Sort[go.shape.[]github.com/decamp/decamp/internal/esx.VM]":               "standard library",
		"type:.eq.github.com/decamp/decamp/internal/esx.key":                             "types, strings and other data without a package",
		"go:itab.*os.File,io.Reader":                                                     "types, strings and other data without a package",
		"github.com/decamp/decamp/internal/sqlitedb.open[github.com/jackc/pgx/v5.Tracer": "internal/sqlitedb",
	} {
		if got := areaOfSymbol(name, modules); got != want {
			t.Errorf("%s belongs to %s, want %s", name, got, want)
		}
	}
}

func TestMethodsAndLinesAreCounted(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go":      "package p\n\ntype T struct{}\n\nfunc (T) A()   {}\nfunc (t *T) B() {}\n",
		"b.go":      "package p\n\ntype G[K any] struct{}\n\nfunc (g *G[K]) A() {}\nfunc (t *T) C()    {}\n",
		"a_test.go": "package p\n\nfunc (t *T) D() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	methods, err := methodsByType(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(methods) != 2 || methods[dir+".T"] != 3 || methods[dir+".G"] != 1 {
		t.Errorf("counted %v", methods)
	}
	if lines, err := linesOfFolder(dir); err != nil || lines != 12 {
		t.Errorf("counted %d lines, %v", lines, err)
	}
}
