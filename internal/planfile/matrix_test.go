package planfile_test

import (
	"os"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/planfile"
)

const someMatrix = `version: 1
origin: us, 2026
source: {url: esxi://root@esx1}
disks:
  - {medium: hdd, vms: [bench-hdd]}
  - {medium: ssd, vms: [bench-ssd, bench-ssd2]}
to:
  - {medium: nvme, folders: ["dir:/srv/nvme", "dir:/srv/nvme2"]}
links:
  - {nic: 1g, mtu: 1500}
  - {nic: 25g, mtu: 9000, url: "esxi://root@10.25.0.2", advertise: 10.25.0.1, prepare: [ip, link, set, eth1, mtu, "9000"]}
transports: [https, landing]
exports: [async, sync]
streams: [1, 8]
computed: {size: 1G, fill: 50%}
`

func TestMatrixIsRead(t *testing.T) {
	m, found := planfile.ParseMatrix([]byte(someMatrix))
	if len(found) > 0 {
		t.Fatal(found)
	}
	if len(m.Disks) != 2 || m.Disks[1].VMs[1] != "bench-ssd2" || m.To[0].Folders[1].Folder() != "/srv/nvme2" || !m.Ends || m.NFC.Handles != 4 ||
		m.Links[1].MTU != 9000 || m.Links[1].Prepare[5] != "9000" || m.Streams[1] != 8 || m.Computed != (planfile.Computed{Size: 1 << 30, Fill: 0.5, Seed: 1}) {
		t.Errorf("got matrix %+v", m)
	}
}

func TestMatrixIsReadStrictly(t *testing.T) {
	for _, c := range []struct{ old, new, message string }{
		{someMatrix, "", "empty"},
		{"version: 1", "version: 2", "version 2 is not supported"},
		{"streams:", "stream:", "did you mean streams?"},
		{"[1, 8]", "[1, 17]", "1 to 16"},
		{"[1, 8]", "[]", "the list is empty"},
		{"nic: 1g", "nic: fast", "10g"},
		{"mtu: 1500", "mtu: 99", "not between 100 and"},
		{"medium: hdd", "medium: pattern", "reserved for a simulated source"},
		{"medium: hdd", "medium: ssd", "disks[1]: ssd occurs twice"},
		{"{nic: 1g, mtu: 1500}", "{nic: 25g, mtu: 9000}", "links[1]: 25g with MTU 9000 occurs twice"},
		{"dir:/srv/nvme2", "dir:/srv/nvme", "twice"},
		{"streams:", "parallel: [3]\nstreams:", "parallel requires 3 VMs, and no entry of disks has more than 2"},
		{"streams:", "copies: [3]\nstreams:", "copies requires 3 folders, and no entry of to has more than 2"},
		{"[https, landing]", "[nfs]", "transport nfs requires a folder that the host has mounted"},
		{"[https, landing]", "[ftp]", "not one of https, nfc, landing, nfs"},
		{"size: 1G", "size: 1000", "at least 1 MiB"},
		{"[async, sync]", "[async, synch]", "did you mean sync?"},
		{"esxi://root@esx1", "esxi://root:sesame@esx1", "contains a password"},
	} {
		m, found := planfile.ParseMatrix([]byte(strings.Replace(someMatrix, c.old, c.new, 1)))
		if len(found) == 0 {
			t.Errorf("%s: got %+v, want an error", c.new, m)
			continue
		}
		if got := found[0].String() + " " + found[0].Remedy; !strings.Contains(got, c.message) || strings.Contains(got, "sesame") {
			t.Errorf("%s: got %s, want %s", c.new, got, c.message)
		}
	}
}

func FuzzParseMatrix(f *testing.F) {
	f.Add([]byte(someMatrix))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, found := planfile.ParseMatrix(text)
		if len(found) > 0 {
			return
		}
		if len(m.Disks) == 0 || len(m.To) == 0 || len(m.Links) == 0 || len(m.Transports) == 0 || len(m.Exports) == 0 {
			t.Errorf("got matrix %+v of %q", m, text)
		}
	})
}

// The example in the documentation is a valid matrix.
func TestDocumentedMatrixIsValid(t *testing.T) {
	page, err := os.ReadFile("../../docs/benchmarking.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "```yaml\n")
	text, _, closed := strings.Cut(text, "```\n")
	if !ok || !closed {
		t.Fatal("docs/benchmarking.md has no example")
	}
	m, found := planfile.ParseMatrix([]byte(text))
	if len(found) > 0 || len(m.Transports) != 4 || len(m.To[2].NFS) != 1 {
		t.Errorf("got findings %v, matrix %+v", found, m)
	}
}
