package kubevirt

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/kube"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/targettest"
)

func TestClusterConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	targettest.Run(t, targettest.Harness{
		New: func(t *testing.T) targettest.Site {
			lab, c := startCluster(t, kube.Config{})
			return targettest.Site{
				Platform: c,
				VMs:      func(t *testing.T) []targettest.StoredVM { return clusterVMs(t, lab) },
				Objects:  func(t *testing.T) []string { return clusterObjects(t, lab) },
				Occupy: func(_ *testing.T, vm *inventory.VM) {
					lab.Put("virtualmachines", "vms", Name(vm.Name), map[string]any{"kind": "VirtualMachine"})
				},
				Reads: lab.Reads,
				SetCallHook: func(hook func(int) targettest.Outcome) {
					if hook == nil {
						lab.SetCallHook(nil)
						return
					}
					lab.SetCallHook(func(n int) kube.Outcome { return kube.Outcome(hook(n)) })
				},
			}
		},
		Denied: func(t *testing.T) platform.Platform {
			_, c := startCluster(t, kube.Config{}, func(a *address) {
				text, err := os.ReadFile(a.kubeconfig)
				if err != nil {
					t.Fatal(err)
				}
				a.kubeconfig = writeKubeconfig(t, bytes.ReplaceAll(text, []byte(`token: "lab"`), []byte(`token: "wrong"`)))
			})
			return c
		},
		Unreachable: func(t *testing.T) platform.Platform {
			lab, c := startCluster(t, kube.Config{})
			lab.Close()
			return c
		},
		SpaceUnknown: true,
	})
}

func TestFolderConformance(t *testing.T) {
	targettest.Run(t, targettest.Harness{
		New: func(t *testing.T) targettest.Site {
			f := &Folder{t.TempDir(), Options{Network: "multus:lan"}}
			return targettest.Site{
				Platform: f,
				VMs:      func(t *testing.T) []targettest.StoredVM { return folderVMs(t, f.root) },
				Objects:  func(t *testing.T) []string { return folderObjects(t, f.root) },
				Occupy: func(t *testing.T, vm *inventory.VM) {
					if err := os.Mkdir(f.manifestPath(vm), 0o755); err != nil {
						t.Fatal(err)
					}
				},
			}
		},
		SpaceUnknown: true,
	})
}

// clusterVMs returns the VMs of a cluster.
func clusterVMs(t *testing.T, lab *kube.Cluster) (all []targettest.StoredVM) {
	t.Helper()
	for _, o := range lab.Objects("virtualmachines") {
		m := decodeObject[virtualMachine](t, o)
		s := storedVM(t, m)
		s.ID = m.Metadata.Namespace + "/" + m.Metadata.Name
		for _, v := range m.Spec.Template.Spec.Volumes {
			s.Disks = append(s.Disks, lab.Uploaded("vms", v.DataVolume.Name))
		}
		all = append(all, s)
	}
	return all
}

func clusterObjects(t *testing.T, lab *kube.Cluster) (all []string) {
	t.Helper()
	for _, plural := range []string{"virtualmachines", "datavolumes"} {
		for _, o := range lab.Objects(plural) {
			m := decodeObject[virtualMachine](t, o)
			all = append(all, fmt.Sprintf("%s %s %v %x", plural, m.Metadata.Name, o["spec"], sha256.Sum256(lab.Uploaded("vms", m.Metadata.Name))))
		}
	}
	return all
}

// uploadCommand matches the upload commands in a file of manifests.
var uploadCommand = regexp.MustCompile(`image-upload dv (\S+) .*--image-path='?([^'\n]*)`)

// folderVMs returns the VMs of a folder as the commands in its files would create them.
func folderVMs(t *testing.T, root string) (all []targettest.StoredVM) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		images, sizes := map[string]string{}, map[string]int64{}
		for _, found := range uploadCommand.FindAllStringSubmatch(string(text), -1) {
			images[found[1]] = found[2]
		}
		for _, o := range readDocuments(t, path) {
			if o["kind"] != "VirtualMachine" {
				dv := decodeObject[dataVolume](t, o)
				sizes[dv.Metadata.Name] = parseMebibytes(t, dv.Spec.Storage.Resources.Requests.Storage) << 20
				continue
			}
			m := decodeObject[virtualMachine](t, o)
			s := storedVM(t, m)
			s.ID = path
			for _, v := range m.Spec.Template.Spec.Volumes {
				s.Disks = append(s.Disks, readImage(t, images[v.DataVolume.Name], sizes[v.DataVolume.Name]))
			}
			all = append(all, s)
		}
	}
	return all
}

func readDocuments(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	d := yaml.NewDecoder(file)
	for {
		var o map[string]any
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

// readImage returns the content of an image with this size.
func readImage(t *testing.T, path string, size int64) []byte {
	t.Helper()
	src, err := image.File{Path: path, Format: targets.Format(strings.TrimPrefix(filepath.Ext(path), ".")), Size: size}.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	p := make([]byte, src.Size())
	if err := src.ReadAt(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func folderObjects(t *testing.T, root string) (all []string) {
	t.Helper()
	sums := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			sums[path] = "folder"
			return err
		}
		text, err := os.ReadFile(path)
		sums[path] = fmt.Sprintf("%x", sha256.Sum256(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, path+" "+sums[path])
	}
	return all
}

func decodeObject[T any](t *testing.T, o map[string]any) (m T) {
	t.Helper()
	if err := json.Unmarshal(asJSON(t, o), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// storedVM returns the description of a VirtualMachine.
func storedVM(t *testing.T, m virtualMachine) targettest.StoredVM {
	t.Helper()
	d := m.Spec.Template.Spec.Domain
	s := targettest.StoredVM{
		Name: m.Metadata.Name, UUID: d.Firmware.UUID, Running: m.Spec.RunStrategy != "Halted",
		CPUs: d.CPU.Sockets * d.CPU.Cores * d.CPU.Threads, EFI: d.Firmware.Bootloader.EFI != nil, TPM: d.Devices.TPM != nil,
		SecureBoot: d.Firmware.Bootloader.EFI != nil && d.Firmware.Bootloader.EFI.SecureBoot,
	}
	for _, entries := range []map[string]string{m.Metadata.Labels, m.Metadata.Annotations} {
		for key, value := range entries {
			s.Metadata += key + "=" + value + "\n"
		}
	}
	s.MemoryMiB = parseMebibytes(t, d.Memory.Guest)
	for _, n := range d.Devices.Interfaces {
		s.MACs = append(s.MACs, n.MAC)
	}
	return s
}

func parseMebibytes(t *testing.T, quantity string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSuffix(quantity, "Mi"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
