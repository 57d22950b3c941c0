// Package arch tests the rules of the architecture, the code and the docs, such as which packages may import a package.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/decamp/decamp/"

// tiers are the packages of internal/, from the lowest tier to the highest. A package imports only packages of lower
// tiers. importExceptions lists the exceptions.
var tiers = [][]string{
	{"childenv", "atomicfile", "bars", "exposition", "logging", "diskspace", "sleep", "systemd", "tuning", "buildinfo"},
	{"bottleneck", "confine", "disk", "efi", "fault", "inventory", "inflate", "fastlz", "fleetkey", "kvm", "secretfile", "suggest", "sqlitedb", "postgres", "proxy", "units"},
	{"flaghelp", "terminal", "gather", "manifest", "namemap", "vmdk", "qcow2", "nbd", "guest", "esx", "credentials", "nfc", "workflow", "cleanup", "selector", "sched", "fleetdb", "knownhosts"},
	{"blockcopy", "readahead", "writebehind", "journal", "planfile", "image", "diskfile", "convert", "testboot"},
	{"nfs"},
	{"transport", "targets", "config"},
	{"migrate", "mount", "bench", "trace"},
	{"preflight", "doctor", "nfcplugin"},
	{"fleet", "notify"},
	{"assemble", "server", "progress"},
}

// innerTiers are the tiers of the subpackages of a package. "" is the package itself.
var innerTiers = map[string][][]string{
	"fleet": {{"login"}, {"admission"}, {"simulate", ""}},
}

// importExceptions are the permitted imports within a tier, each with its reason.
var importExceptions = map[[2]string]string{
	{"disk", "fault"}:          "an image that is full or locked is a fault with a remedy",
	{"efi", "fault"}:           "a machine without firmware is a fault with a remedy",
	{"inventory", "fault"}:     "a bad datastore path is the user's input",
	{"confine", "fault"}:       "a machine without a free user id is a fault with a remedy",
	{"kvm", "fault"}:           "a machine without QEMU is a fault with a remedy",
	{"fleetkey", "fault"}:      "a missing or a wrong key is a fault with a remedy",
	{"secretfile", "fault"}:    "a file that others can read is a fault with a remedy",
	{"fleetkey", "secretfile"}: "a key is a secret in a file",
	{"proxy", "fault"}:         "a proxy that fails is a fault with a remedy",
	{"postgres", "fault"}:      "an unverified server is a fault with a remedy",
	{"esx", "nfc"}:             "a ticket is requested over SOAP and used on port 902",
}

// libraryImporters lists, for each library, the only packages that may import it.
var libraryImporters = map[string][]string{
	"github.com/vmware/govmomi":                {"internal/esx", "internal/lab/vsphere", "test/govc"},
	"github.com/dbos-inc/dbos-transact-golang": {"internal/workflow"},
	"golang.org/x/crypto/ssh":                  {"internal/esx/shell", "internal/lab"},
	"go.yaml.in/yaml/v3":                       {"internal/planfile", "internal/config", "internal/guest/linux", "internal/convert", "internal/targets/kubevirt"},
	"github.com/godbus/dbus/v5":                {"internal/credentials"},
	"libvirt.org/go/libvirtxml":                {"internal/targets/dir", "internal/targets/libvirt", "internal/testboot", "test/boot"},
	"github.com/gophercloud/gophercloud":       {"internal/targets/openstack"},
	"github.com/spf13/cobra":                   {"cmd/decamp"},
	"github.com/jackc/pgx/v5":                  {"internal/workflow", "internal/postgres", "internal/fleetdb", "internal/lab/postgres"},
	"modernc.org/sqlite":                       {"internal/sqlitedb", "internal/fleetdb"},
	"github.com/vbauerster/mpb/v8":             {"internal/bars"},
	"github.com/danielgtaylor/huma/v2":         {"internal/server"},
	"html/template":                            {}, // calls methods by name, so that the linker keeps all exported methods
	"text/template":                            {}, // see html/template
	"github.com/prometheus/client_golang":      {}, // tests compare package exposition with it
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func TestImportsOfTiers(t *testing.T) {
	level := map[string]int{}
	for i, tier := range tiers {
		for _, name := range tier {
			level[name] = i
		}
	}
	for _, p := range listPackages(t) {
		from, ok := internalName(p.ImportPath)
		if !ok || from == "lab" {
			continue
		}
		own, known := level[from]
		if !known {
			t.Errorf("package internal/%s is in no tier: add it to tiers", from)
			continue
		}
		for _, imported := range p.Imports {
			to, ok := internalName(imported)
			if !ok || to == from || importExceptions[[2]string{from, to}] != "" {
				continue
			}
			if level[to] >= own {
				t.Errorf("%s imports %s, which is not in a lower tier", p.ImportPath, imported)
			}
		}
	}
}

func TestImportsOfInnerTiers(t *testing.T) {
	for parent, tiers := range innerTiers {
		level := map[string]int{}
		for i, tier := range tiers {
			for _, name := range tier {
				level[name] = i
			}
		}
		inner := func(path string) (name string, ok bool) {
			root := module + "internal/" + parent
			return strings.TrimPrefix(strings.TrimPrefix(path, root), "/"), isBelow(path, root)
		}
		for _, p := range listPackages(t) {
			from, ok := inner(p.ImportPath)
			if !ok {
				continue
			}
			own, known := level[from]
			if !known {
				t.Errorf("package %s is in no tier of %s: add it to innerTiers", p.ImportPath, parent)
				continue
			}
			for _, imported := range p.Imports {
				if to, ok := inner(imported); ok && level[to] >= own {
					t.Errorf("%s imports %s, which is not in a lower tier", p.ImportPath, imported)
				}
			}
		}
	}
}

func TestLibrariesHaveFewImporters(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, imported := range p.Imports {
			for library, allowed := range libraryImporters {
				if isBelow(imported, library) && !slices.ContainsFunc(allowed, func(d string) bool { return isBelow(p.ImportPath, module+d) }) {
					t.Errorf("%s imports %s, which only %v may import", p.ImportPath, imported, allowed)
				}
			}
		}
	}
}

func TestLabImportsNoProductPackages(t *testing.T) {
	for _, p := range listPackages(t) {
		if !isBelow(p.ImportPath, module+"internal/lab") {
			continue
		}
		for _, imported := range p.Imports {
			if name, ok := internalName(imported); ok && name != "lab" {
				t.Errorf("%s imports %s", p.ImportPath, imported)
			}
		}
	}
}

// The decamp program does not contain the emulator or its libraries.
func TestDecampContainsNoEmulator(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"cmd/decamp").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if !slices.Contains(packages, module+"internal/esx") {
		t.Fatalf("go list -deps found %d packages, but not internal/esx", len(packages))
	}
	for _, p := range packages {
		for _, excluded := range []string{module + "internal/lab", "github.com/vmware/govmomi/simulator", "gonum.org/v1/gonum"} {
			if isBelow(p, excluded) {
				t.Errorf("cmd/decamp contains %s", p)
			}
		}
	}
}

// listPackages returns the packages of the module and their imports, without tests.
func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // the nbdkit plugin requires cgo
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(out); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("go list found %d packages", len(all))
	}
	return all
}

// internalName returns the first element below internal/: "transport" for internal/transport/https.
func internalName(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, module+"internal/")
	name, _, _ := strings.Cut(rest, "/")
	return name, ok
}

func isBelow(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }
