package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/matrix"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

const spec = `version: 1
origin: us
source: {url: esxi://root@esx1}
disks: [{medium: ssd, vms: [one, two]}]
to: [{medium: nvme, folders: ["dir:/srv/a", "dir:/srv/b"]}]
links: [{nic: 1g, mtu: 1500}, {nic: 10g, mtu: 9000}]
transports: [https, landing]
exports: [async, sync]
streams: [1, 8]
parallel: [1, 2]
copies: [2]
`

func parseCells(t *testing.T, text string) []matrix.Cell {
	t.Helper()
	m, found := planfile.ParseMatrix([]byte(text))
	if len(found) > 0 {
		t.Fatal(found)
	}
	return matrix.Cells(m)
}

// For each link, the cells of the ends are first. Every cell has a different name.
func TestCells(t *testing.T) {
	var names []string
	for _, c := range parseCells(t, spec) {
		if s, err := bench.ParseName(c.Name()); err != nil || s != c.Setup {
			t.Errorf("%s is parsed as %+v, %v", c.Name(), s, err)
		}
		names = append(names, fmt.Sprintf("%s %s %s", c.Name(), strings.Join(c.VMs, "+"), strings.Join(c.Folders, "+")))
	}
	want := []string{
		"esxi_ssd_https_null_1g_mtu1500_x1 one ",
		"esxi_ssd_https_null_1g_mtu1500_x8 one ",
		"esxi_ssd_landing_null_1g_mtu1500 one ",
		"pattern_nvme  /srv/a",
		"pattern_nvme_to2  /srv/a+/srv/b",
		"pattern_nvme_sync  /srv/a",
		"esxi_ssd_https_nvme_1g_mtu1500_x1 one /srv/a",
		"esxi_ssd_https_nvme_1g_mtu1500_x8 one /srv/a",
		"esxi_ssd_https_nvme_1g_mtu1500_sync_x1 one /srv/a",
		"esxi_ssd_https_nvme_1g_mtu1500_sync_x8 one /srv/a",
		"esxi_ssd_https_nvme_1g_mtu1500_x8_vms2 one+two /srv/a",
		"esxi_ssd_https_nvme_1g_mtu1500_x8_to2 one /srv/a+/srv/b",
		"esxi_ssd_landing_nvme_1g_mtu1500 one /srv/a",
		"esxi_ssd_landing_nvme_1g_mtu1500_sync one /srv/a",
		"esxi_ssd_landing_nvme_1g_mtu1500_vms2 one+two /srv/a",
		"esxi_ssd_landing_nvme_1g_mtu1500_to2 one /srv/a+/srv/b",
	}
	if got := names[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("cells are\n%s", strings.Join(got, "\n"))
	}
	if len(names) != 29 || !strings.HasPrefix(names[16], "esxi_ssd_https_null_10g_mtu9000_x1 ") {
		t.Errorf("%d cells, want 29; the first cell of the second link is %s", len(names), names[16])
	}
	if n := len(parseCells(t, strings.Replace(spec, "streams:", "ends: false\nstreams:", 1))); n != 20 {
		t.Errorf("%d cells without the ends, want 20", n)
	}
}

// Cells of clones by a host use the mounted exports with their mode, and need a source and a destination.
func TestCellsOfExports(t *testing.T) {
	text := strings.NewReplacer("[https, landing]", "[nfs]", `"dir:/srv/b"]`, `"dir:/srv/b"], nfs: [{folder: "dir:/srv/x", datastore: fast, export: async}, {folder: "dir:/srv/y", datastore: slow, export: sync}]`).Replace(spec)
	var got []string
	for _, c := range parseCells(t, text) {
		if c.Source != bench.Pattern && c.Link == 0 {
			got = append(got, fmt.Sprintf("%s %s %s", c.Name(), c.Datastore, c.Folders))
		}
	}
	want := "esxi_ssd_nfs_nvme_1g_mtu1500 fast [/srv/x], esxi_ssd_nfs_nvme_1g_mtu1500_sync slow [/srv/y]"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("cells are %s, want %s", got, want)
	}
}

// A fakeRunner is a Runner that records the entered links and the measured cells, and measures nothing.
type fakeRunner struct {
	*matrix.Runner
	entered, measured []string
	fail              map[string]error
}

func newFakeRunner(t *testing.T, path string) *fakeRunner {
	t.Helper()
	log, err := matrix.OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	f := &fakeRunner{fail: map[string]error{}}
	f.Runner = &matrix.Runner{Cells: parseCells(t, spec), Origin: "us", Log: log,
		Enter: func(_ context.Context, link int) error { f.entered = append(f.entered, fmt.Sprint(link)); return nil },
		Measure: func(_ context.Context, c matrix.Cell) (bench.Row, error) {
			f.measured = append(f.measured, c.Name())
			return bench.Row{Seconds: 1, Allocated: bench.MiB, Wire: 1}, f.fail[c.Name()]
		}}
	return f
}

// After a run that was interrupted or had failures, the next run measures only the missing cells.
func TestMatrixRunResumes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	ctx, cancel := context.WithCancel(t.Context())
	first := newFakeRunner(t, path)
	first.fail["esxi_ssd_https_null_1g_mtu1500_x8"] = fault.New(fault.Transient, "reset")
	first.Told = func(p matrix.Progress) {
		if p.Row != nil && p.Number == 5 {
			cancel()
		}
	}
	if err := first.Run(ctx); !fault.Is(err, fault.Transient) || len(first.measured) != 5 {
		t.Fatalf("%v after %q", err, first.measured)
	}
	if err := first.Log.Close(); err != nil {
		t.Fatal(err)
	}
	truncateLog(t, path)
	second := newFakeRunner(t, path)
	if err := second.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(second.measured[:2], " "); got != "esxi_ssd_https_null_1g_mtu1500_x8 pattern_nvme_to2" || len(second.measured) != 29-3 || strings.Join(second.entered, "") != "01" {
		t.Errorf("the second run began with %s and measured %d cells on links %q", got, len(second.measured), second.entered)
	}
	if err := second.Log.Close(); err != nil {
		t.Fatal(err)
	}
	third := newFakeRunner(t, path)
	if err := third.Run(t.Context()); err != nil || len(third.measured)+len(third.entered) != 0 {
		t.Errorf("the third run measured %q, %v; want nothing", third.measured, err)
	}
}

// truncateLog cuts a file in the middle of its last line, as a crash does.
func truncateLog(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-10)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Has finds only rows with the same VMs, the same folders and the same origin.
func TestRowsOfOtherVMsFoldersAndOriginsAreNotUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	f := newFakeRunner(t, path)
	if err := f.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	written := slices.IndexFunc(f.Cells, func(c matrix.Cell) bool { return len(c.VMs) > 0 && len(c.Folders) > 0 })
	c := f.Cells[written]
	if _, ok := f.Log.Has(c, "us"); !ok {
		t.Error("a measured row is not found")
	}
	c.VMs = []string{"another"}
	if _, ok := f.Log.Has(c, "us"); ok {
		t.Error("the row of another VM is found")
	}
	c = f.Cells[written]
	c.Folders = []string{"/srv/another"}
	if _, ok := f.Log.Has(c, "us"); ok {
		t.Error("the row of another folder is found")
	}
	if _, ok := f.Log.Has(f.Cells[written], "them"); ok {
		t.Error("the row of another origin is found")
	}
}

func TestLogRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	f := newFakeRunner(t, path)
	if _, err := matrix.OpenLog(path); !fault.Is(err, fault.Conflict) {
		t.Errorf("second process: got %v, want Conflict", err)
	}
	if err := f.Log.Append(bench.Row{}); !fault.Is(err, fault.Internal) {
		t.Errorf("row without a name: got %v, want Internal", err)
	}
	other := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(other, []byte("a letter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := matrix.OpenLog(other); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
		t.Errorf("file of another kind: got %v, want Invalid with a hint", err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "a letter\n" {
		t.Errorf("the refused file was changed: %q, %v", text, err)
	}
}

// A full disk ends the run, because every other cell would fail, too. An error of Enter also ends it.
func TestFullDiskEndsTheRun(t *testing.T) {
	f := newFakeRunner(t, filepath.Join(t.TempDir(), "rows.jsonl"))
	f.fail["pattern_nvme"] = fault.New(fault.Full, "no space")
	if err := f.Run(t.Context()); !fault.Is(err, fault.Full) || len(f.measured) != 4 {
		t.Errorf("%v after %q", err, f.measured)
	}
	f = newFakeRunner(t, filepath.Join(t.TempDir(), "rows.jsonl"))
	f.Enter = func(context.Context, int) error { return errors.New("the MTU is another") }
	if err := f.Run(t.Context()); err == nil || len(f.measured) > 0 {
		t.Errorf("with an error of Enter: got %v, measured %q", err, f.measured)
	}
}
