package gather

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeFile writes a file below dir, with a modification time in minutes.
func writeFile(t *testing.T, dir, name, text string, minute int) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_800_000_000, 0).Add(time.Duration(minute) * time.Minute)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// textOf returns the text of a file of the archive.
func textOf(a *Archive, name string) string {
	for _, f := range a.files {
		if f.Name == name {
			return string(f.text)
		}
	}
	return "no file " + name
}

// Patterns find names in free text that no structured text contains.
func TestPatternsInFreeText(t *testing.T) {
	p := newPseudonyms(false)
	for _, c := range [][2]string{
		{"dial tcp 192.0.2.7:443: refused", "dial tcp <addr1>:443: refused"},
		{"from [fe80::1]:443 at 04:05:45", "from [<addr2>]:443 at 04:05:45"},
		{"again 192.0.2.7, version 8.0.3", "again <addr1>, version 8.0.3"},
		{"mac 00:50:56:0a:0b:0c", "mac <mac1>"},
		{"ana@corp.example", "<account1>"},
		{"host esx1.berlin.example.com", "host <host1>"},
		{"[nas 1] web/web.vmdk is locked", "<disk1> is locked"},
		{"open /home/ana/pw: permission denied", "open <path1>: permission denied"},
		{"read /proc/self/maps", "read /proc/self/maps"},
		{"https://ana:hush@h/x", "https://ana:[removed]@h/x"},
		{`{"password": "hush"}`, `{"password": "[removed]"}`},
		{"Authorization: Bearer abcdef123456", "Authorization: Bearer [removed]"},
		{"uuid 42200b7e-5d1c-4c1f-9a55-0d4f6d1c9a01", "uuid <uuid1>"},
		{"key SHA256:7h3HKndBYL4dIfYnclh2J4Jkk3QjUn188OFPVAkzPaY ok", "key <fingerprint1> ok"},
	} {
		if got := p.replace(c[0]); got != c[1] {
			t.Errorf("replace(%q) = %q, want %q", c[0], got, c[1])
		}
	}
}

// A name has the same pseudonym in plans, journals, paths and logs, in all spellings.
func TestOneNameHasOnePseudonym(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "runs/web-db-01-3f9a1c/plan.json", `{"id":"web-db-01-3f9a1c","source":"esxi://ana@esx9:8443","target":"dir:/srv/mine/vm","vm":{"name":"Web DB 01","ref":"vm-42"}}`, 0)
	writeFile(t, dir, "runs/web-db-01-3f9a1c/journal.jsonl", `{"run":"web-db-01-3f9a1c","kind":"note","message":"[store] Web DB 01/Web DB 01.vmdk at esx9; /srv/mine/vm/Web DB 01; https://esx9/folder/Web%20DB%2001?x"}
{"run":"web-db-01-3f9a1c","kind":"not comp`, 1)
	log := filepath.Join(dir, "full.log")
	writeFile(t, dir, "full.log", `level=INFO vm="Web DB 01" server=ESX9 msg="web db 01 of ana"`+"\n", 2)
	a, err := Collect(t.Context(), Options{State: dir, Logs: []string{log}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"runs/vm1-3f9a1c/plan.json":     `{"id":"<vm1>-3f9a1c","source":"esxi://<user1>@<host1>:8443","target":"dir:<folder1>","vm":{"name":"<vm1>","ref":"vm-42"}}` + "\n",
		"runs/vm1-3f9a1c/journal.jsonl": `{"kind":"note","message":"<disk1> at <host1>; <folder1>/<vm1>; https://<host1>/folder/<vm1>?x","run":"<vm1>-3f9a1c"}` + "\n",
		"logs/1.log":                    `level=INFO vm="<vm1>" server=<host1> msg="<vm1> of <user1>"` + "\n",
	} {
		if got := textOf(a, name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// A log in JSON has the same pseudonyms, also after the time and the process that the journal of systemd adds.
func TestNamesInJSONLog(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "json.log", `{"level":"INFO","msg":"db \"x\" of esx9 begins","vm":"db \"x\"","server":"esx9","took":"3s"}`+"\n"+
		`2026-11-28T04:05:06+0000 decamp[7]: {"msg":"lab-7 joins after 3s","worker":"lab-7"}`+"\n", 0)
	a, err := Collect(t.Context(), Options{Logs: []string{filepath.Join(dir, "json.log")}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"level":"INFO","msg":"<vm1> of <host1> begins","vm":"<vm1>","server":"<host1>","took":"3s"}` + "\n" +
		`2026-11-28T04:05:06+0000 decamp[7]: {"msg":"<host2> joins after 3s","worker":"<host2>"}` + "\n"
	if got := textOf(a, "logs/1.log"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The archive contains the newest files that fit, and the end of a long log.
func TestSizeIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		writeFile(t, dir, fmt.Sprintf("runs/r%d/journal.jsonl", i), `{"message":"`+strings.Repeat("x", 10_000)+`"}`, i)
	}
	oldLine := "old line" + strings.Repeat(".", 4000) + "\n"
	writeFile(t, dir, "long.log", strings.Repeat(oldLine, maxFile/len(oldLine)+1)+"newest line\n", 9)
	a, err := Collect(t.Context(), Options{State: dir, Logs: []string{filepath.Join(dir, "long.log")}, Limit: maxFile + 21_000})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range a.Entries() {
		names = append(names, e.Name+e.Note)
	}
	if got := strings.Join(names, " "); got != "logs/1.logthe end of a longer file runs/r3/journal.jsonl runs/r4/journal.jsonl" {
		t.Errorf("got files %s", got)
	}
	if got := textOf(a, "logs/1.log"); !strings.HasPrefix(got, oldLine) || !strings.HasSuffix(got, "\nnewest line\n") {
		t.Errorf("got log %.20q … %q", got, got[max(0, len(got)-20):])
	}
	if len(a.Left) != 3 || a.Left[0] != "runs/r2/journal.jsonl: the archive is full" {
		t.Errorf("got files left out %q", a.Left)
	}
}

func TestShortNamesAreWholeWords(t *testing.T) {
	p := newPseudonyms(false)
	p.addName("vm", "db")
	p.addName("vm", "a")
	if got := p.replace("db=5 vm=db feedback of db: a"); got != "db=5 vm=<vm1> feedback of <vm1>: a" {
		t.Errorf("got %q", got)
	}
	if got := p.replaceJSON("name", "a"); got != "<vm2>" {
		t.Errorf("got %q", got)
	}
}
