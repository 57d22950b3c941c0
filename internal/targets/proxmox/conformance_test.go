package proxmox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/targettest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	targettest.Run(t, targettest.Harness{
		Parallel: true,
		New:      newSite,
		Denied: func(t *testing.T) platform.Platform {
			return newPlatform(t, startServer(t, pve.Config{}), Options{Token: "root@pam!decamp=wrong"})
		},
		Unreachable: func(t *testing.T) platform.Platform {
			p := newPlatform(t, startServer(t, pve.Config{}), Options{})
			p.api.host = loopback.Reserve(t)
			return p
		},
	})
}

func newSite(t *testing.T) targettest.Site {
	s := startServer(t, pve.Config{})
	p := newPlatform(t, s, Options{})
	callHook := &targettest.CallHook{Next: p.api.http.Transport}
	p.api.http.Transport = callHook
	p.api.wait = func(ctx context.Context, d time.Duration) error {
		if d == poll {
			return s.Settle(ctx) // so that each task is polled at most twice, even on a slow machine
		}
		return sleep.For(ctx, time.Millisecond/5)
	}
	return targettest.Site{
		Platform: p, SetCallHook: callHook.SetHook, Reads: callHook.Reads,
		VMs:     func(t *testing.T) []targettest.StoredVM { return storedVMs(t, s) },
		Objects: func(t *testing.T) []string { return listObjects(t, s) },
		Occupy: func(t *testing.T, vm *inventory.VM) {
			m, err := Config(targets.Definition{VM: vm}, p.opts)
			if err != nil {
				t.Fatal(err)
			}
			s.AddGuest(150, map[string]string{"name": m.Name})
		},
	}
}

// storedVMs returns the guests as the node stores them.
func storedVMs(t *testing.T, s *pve.Server) []targettest.StoredVM {
	t.Helper()
	var all []targettest.StoredVM
	for _, vmid := range s.VMIDs() {
		config := s.Guest(vmid)
		number := func(key string) int {
			n, err := strconv.Atoi(config[key])
			if err != nil && config[key] != "" {
				t.Error(err)
			}
			return n
		}
		_, uuid, _ := strings.Cut(config["smbios1"], "uuid=")
		g := targettest.StoredVM{
			ID: fmt.Sprint(vmid), Name: config["name"], UUID: uuid, Running: config["onboot"] == "1",
			CPUs: number("sockets") * number("cores"), MemoryMiB: int64(number("memory")), EFI: config["bios"] == "ovmf",
			SecureBoot: strings.Contains(config["efidisk0"], "pre-enrolled-keys=1"), TPM: config["tpmstate0"] != "",
			Metadata: config["description"] + " " + config["tags"],
		}
		for i := range 4 {
			if _, rest, ok := strings.Cut(config[fmt.Sprintf("net%d", i)], "="); ok {
				mac, _, _ := strings.Cut(rest, ",")
				g.MACs = append(g.MACs, strings.ToLower(mac))
			}
		}
		for _, slot := range []string{"sata0", "sata1", "scsi0", "scsi1"} {
			if config[slot] == "" {
				continue
			}
			data, err := s.Read(t.Context(), config[slot])
			if err != nil {
				t.Fatal(err)
			}
			g.Disks = append(g.Disks, data)
		}
		all = append(all, g)
	}
	return all
}

// listObjects lists the options of guests, the checksums of volumes, and uploads.
func listObjects(t *testing.T, s *pve.Server) []string {
	t.Helper()
	objects := s.Uploads()
	for _, vmid := range s.VMIDs() {
		config := s.Guest(vmid)
		for _, key := range slices.Sorted(maps.Keys(config)) {
			objects = append(objects, fmt.Sprintf("guest %d %s %s", vmid, key, config[key]))
		}
	}
	for _, path := range s.Volumes() {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, fmt.Sprintf("volume %s %x", path, sha256.Sum256(data)))
	}
	return objects
}
