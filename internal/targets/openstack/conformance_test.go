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
	conforms(t, lab.Config{}, true)
}

// A cloud whose Cinder forgets what images say, whose lists are late, whose Glance hashes otherwise, and whose
// tokens end all the time.
func TestConformanceOnAStrangeCloud(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	conforms(t, lab.Config{Forgetful: true, Hash: "sha256", Late: 1, TokenCalls: 7}, false)
}

func conforms(t *testing.T, config lab.Config, secondMode bool) {
	targettest.Run(t, targettest.Harness{
		SecondMode: secondMode,
		New: func(t *testing.T) targettest.Site {
			cloud := serve(t, config)
			p := place(t, cloud, "lab")
			tapped := &targettest.CallHook{Next: p.cloud.http.Transport}
			p.cloud.http.Transport = tapped
			return targettest.Site{
				Platform: p, SetCallHook: tapped.SetHook, Reads: tapped.Reads,
				VMs:     func(t *testing.T) []targettest.StoredVM { return seenIn(t, cloud) },
				Objects: func(t *testing.T) []string { return thingsIn(cloud) },
				Occupy: func(t *testing.T, vm *inventory.VM) {
					cloud.AddPort("aaaaaaaa-0000-4000-8000-000000000001", vm.NICs[0].MAC, "")
				},
			}
		},
		Denied: func(t *testing.T) platform.Platform {
			cloud := serve(t, config)
			environmentOf(t, cloud)
			path := os.Getenv("OS_CLIENT_CONFIG_FILE")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, bytes.ReplaceAll(text, []byte(lab.Password), []byte("wrong")))
			p, err := New("lab?network=lan", Options{Wait: quick})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Unreachable: func(t *testing.T) platform.Platform {
			cloud := serve(t, config)
			p := place(t, cloud, "lab")
			cloud.Close()
			return p
		},
	})
}

// seenIn are the VMs whose records are complete.
func seenIn(t *testing.T, cloud *lab.Cloud) (all []targettest.StoredVM) {
	t.Helper()
	there := cloud.Volumes()
	for _, record := range there {
		if record.Metadata[completeKey] == "" {
			continue
		}
		hardware := record.ImageMetadata
		s := targettest.StoredVM{
			ID: record.ID, Name: strings.TrimSuffix(record.Name, "-disk0"), UUID: record.Metadata[uuidKey], Running: len(cloud.Servers()) > 0,
			EFI: hardware["hw_firmware_type"] == "uefi", SecureBoot: hardware["os_secure_boot"] == "required", TPM: hardware["hw_tpm_version"] == "2.0",
			Metadata: record.Description + " " + sorted(record.Metadata),
		}
		for _, f := range serveFlavors {
			if f.ID == record.Metadata[flavorKey] {
				s.CPUs, s.MemoryMiB = f.CPUs, int64(f.RAM)
			}
		}
		mine := slices.DeleteFunc(slices.Clone(there), func(v lab.Volume) bool {
			return v.Metadata[sourceKey] != record.Metadata[sourceKey] || v.Metadata[diskKey] == ""
		})
		sort.Slice(mine, func(i, j int) bool { return mine[i].Metadata[diskKey] < mine[j].Metadata[diskKey] })
		for _, v := range mine {
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

// serveFlavors are those of the cloud that VMs of the suite fit exactly.
var serveFlavors = []lab.Flavor{{ID: "v2", CPUs: 2, RAM: 256}, {ID: "v4", CPUs: 4, RAM: 768}}

// thingsIn names all that is there.
func thingsIn(cloud *lab.Cloud) (all []string) {
	for _, v := range cloud.Volumes() {
		all = append(all, fmt.Sprintf("volume %s %s %s %d %x %s %s", v.ID, v.Name, v.Status, v.Size, sha256.Sum256(v.Data), sorted(v.Metadata), sorted(v.ImageMetadata)))
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

func sorted(m map[string]string) string {
	text := ""
	for _, key := range slices.Sorted(maps.Keys(m)) {
		text += key + "=" + strconv.Quote(m[key]) + " "
	}
	return text
}
