package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

// loadContents reads testdata/contents.json, which has the format of ls --json.
func loadContents(t *testing.T) contents {
	t.Helper()
	text, err := os.ReadFile("testdata/contents.json")
	if err != nil {
		t.Fatal(err)
	}
	var c contents
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLsTable(t *testing.T) {
	var out bytes.Buffer
	c := loadContents(t)
	writeContents(&out, "esx1:443", c)
	golden(t, "testdata/ls.txt", out.String())
	out.Reset()
	writeWarnings(&out, c.VMs)
	golden(t, "testdata/ls-warnings.txt", out.String())
}

func TestLsOneVM(t *testing.T) {
	var out bytes.Buffer
	c := loadContents(t)
	if err := writeVM(&out, &c.VMs[0]); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/ls-vm.txt", out.String())
}

func TestLsWithoutVMs(t *testing.T) {
	var out bytes.Buffer
	writeContents(&out, "esx1:443", contents{})
	mustContain(t, out.String(), "No VMs", "privileges")
}

func TestWarningCodesListBlockingFirst(t *testing.T) {
	got := warningCodes([]inventory.Warning{{Code: "vtpm"}, {Code: "rdm", Blocks: true}, {Code: "vtpm"}, {Code: "rdm", Blocks: true}})
	if got != "rdm! vtpm" {
		t.Errorf("got %q", got)
	}
}

func TestTableAlignsByCharactersNotBytes(t *testing.T) {
	var out bytes.Buffer
	tab := newTable("NAME", "N")
	tab.alignRight(1)
	tab.addRow("Büro", "7")
	tab.addRow("x", "1234")
	tab.writeTo(&out)
	want := "NAME     N\nBüro     7\nx     1234\n"
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
	if strings.Contains(out.String(), " \n") {
		t.Error("a line ends with a blank")
	}
}
