package openstack

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/targettest"
)

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	runConformance(t, lab.Config{}, true)
}

// This cloud loses the image's properties in Cinder, its lists are delayed, its Glance uses another hash, and its
// tokens expire often.
func TestConformanceOnUnusualCloud(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	runConformance(t, lab.Config{Forgetful: true, Hash: "sha256", Late: 1, TokenCalls: 7}, false)
}

func runConformance(t *testing.T, config lab.Config, secondMode bool) {
	targettest.Run(t, targettest.Harness{
		SecondMode: secondMode,
		New: func(t *testing.T) targettest.Site {
			cloud := startCloud(t, config)
			p := newPlatform(t, cloud, "lab")
			callHook := &targettest.CallHook{Next: p.cloud.http.Transport}
			p.cloud.http.Transport = callHook
			return targettest.Site{
				Platform: p, SetCallHook: callHook.SetHook, Reads: callHook.Reads,
				VMs:     func(t *testing.T) []targettest.StoredVM { return storedVMs(t, cloud) },
				Objects: func(t *testing.T) []string { return listObjects(cloud) },
				Occupy: func(t *testing.T, vm *inventory.VM) {
					cloud.AddPort("aaaaaaaa-0000-4000-8000-000000000001", vm.NICs[0].MAC, "")
				},
			}
		},
		Denied: func(t *testing.T) platform.Platform {
			cloud := startCloud(t, config)
			setEnvironment(t, cloud)
			path := os.Getenv("OS_CLIENT_CONFIG_FILE")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, bytes.ReplaceAll(text, []byte(lab.Password), []byte("wrong")))
			p, err := New("lab?network=lan", Options{Wait: noWait})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Unreachable: func(t *testing.T) platform.Platform {
			cloud := startCloud(t, config)
			p := newPlatform(t, cloud, "lab")
			cloud.Close()
			return p
		},
	})
}

// storedVMs returns the VMs whose records are complete.
func storedVMs(t *testing.T, cloud *lab.Cloud) (all []targettest.StoredVM) {
	t.Helper()
	volumes := cloud.Volumes()
	for _, record := range volumes {
		if record.Metadata[completeKey] == "" {
			continue
		}
		hardware := record.ImageMetadata
		s := targettest.StoredVM{
			ID: record.ID, Name: strings.TrimSuffix(record.Name, "-disk0"), UUID: record.Metadata[uuidKey], Running: len(cloud.Servers()) > 0,
			EFI: hardware["hw_firmware_type"] == "uefi", SecureBoot: hardware["os_secure_boot"] == "required", TPM: hardware["hw_tpm_version"] == "2.0",
			Metadata: record.Description + " " + formatSorted(record.Metadata),
		}
		for _, f := range suiteFlavors {
			if f.ID == record.Metadata[flavorKey] {
				s.CPUs, s.MemoryMiB = f.CPUs, int64(f.RAM)
			}
		}
		disks := slices.DeleteFunc(slices.Clone(volumes), func(v lab.Volume) bool {
			return v.Metadata[sourceKey] != record.Metadata[sourceKey] || v.Metadata[diskKey] == ""
		})
		sort.Slice(disks, func(i, j int) bool { return disks[i].Metadata[diskKey] < disks[j].Metadata[diskKey] })
		for _, v := range disks {
			s.Disks = append(s.Disks, v.Data)
		}
		for _, p := range cloud.Ports() {
			if strings.Contains(p.Description, record.Metadata[sourceKey]) {
				s.MACs = append(s.MACs, p.MAC)
			}
		}
		all = append(all, s)
	}
	return all
}

// suiteFlavors are the flavors that match the suite's VMs exactly.
var suiteFlavors = []lab.Flavor{{ID: "v2", CPUs: 2, RAM: 256}, {ID: "v4", CPUs: 4, RAM: 768}}

// listObjects lists all objects of the cloud.
func listObjects(cloud *lab.Cloud) (all []string) {
	for _, v := range cloud.Volumes() {
		all = append(all, fmt.Sprintf("volume %s %s %s %d %x %s %s", v.ID, v.Name, v.Status, v.Size, sha256.Sum256(v.Data), formatSorted(v.Metadata), formatSorted(v.ImageMetadata)))
	}
	for _, i := range cloud.Images() {
		all = append(all, fmt.Sprintf("image %s %s %s", i.ID, i.Name, i.Status))
	}
	for _, p := range cloud.Ports() {
		all = append(all, fmt.Sprintf("port %+v", p))
	}
	for _, s := range cloud.Servers() {
		all = append(all, fmt.Sprintf("server %s %s %s", s.ID, s.Name, s.Status))
	}
	return all
}

func formatSorted(m map[string]string) string {
	text := ""
	for _, key := range slices.Sorted(maps.Keys(m)) {
		text += key + "=" + strconv.Quote(m[key]) + " "
	}
	return text
}
