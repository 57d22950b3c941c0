package libvirt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/platform"
)

// vmOnTwoDatastores returns a VM with disks on two datastores.
func vmOnTwoDatastores() *inventory.VM {
	vm := webVM(1 << 20)
	vm.VMX.Datastore, vm.Disks[0].Path.Datastore = "ssd1", "ssd1"
	vm.Disks = append(vm.Disks, inventory.Disk{Key: 2001, Controller: 1000, Unit: 1, Capacity: 2 << 20, Path: inventory.Path{Datastore: "nfs"}})
	return vm
}

// Each disk is linked or uploaded to its mapped pool. Withdraw finds all volumes there.
func TestDisksOnTwoPools(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprint("remote ", remote), func(t *testing.T) {
			s, other := newSite(t, d, remote), newSite(t, d, remote)
			maps := namemap.Map{Storages: map[string]string{"nfs": other.platform.at.pool, "gone": "no-such-pool"}, Names: map[string]string{"web *": "www *"}}
			s.platform.opts.Maps = maps
			vm := vmOnTwoDatastores()
			to := platform.New(newStage(t, maps), s.platform, platform.Options{})
			def := stageDisks(t, to, vm)
			if err := to.Publish(t.Context(), def); err != nil {
				t.Fatal(err)
			}
			domains, texts := s.domains(t)
			if len(domains) != 1 || domains[0].Name != "www 01" {
				t.Fatalf("got domains %v, want \"www 01\"", domains)
			}
			var x libvirtxml.Domain
			if err := x.Unmarshal(texts[0]); err != nil {
				t.Fatal(err)
			}
			for i, in := range []string{s.pool, other.pool} {
				volume := fmt.Sprintf("%s/www_01-%s-disk%d.raw", in, sourceID(vm), i)
				if _, err := os.Stat(volume); err != nil || x.Devices.Disks[i].Source.File.File != volume {
					t.Errorf("disk %d: %v, domain\n%s", i, err, texts[0])
				}
			}
			if err := to.Withdraw(t.Context(), vm); err != nil {
				t.Fatal(err)
			}
			for _, in := range []string{s.pool, other.pool} {
				if left, _ := filepath.Glob(in + "/*"); len(left) > 0 {
					t.Errorf("remaining files: %v", left)
				}
			}
		})
	}
}

// The outline names the pool and the volume of each disk, independent of the order in the stage's outline.
func TestOutlineHasThePools(t *testing.T) {
	t.Parallel()
	vm := vmOnTwoDatastores()
	p := newTestPlatform(t, Options{Maps: namemap.Map{Storages: map[string]string{"nfs": "slow"}}})
	stage := targets.Outline{Disks: []targets.OutlineDisk{{Key: 2001}, {Key: 2000}}}
	o, err := p.Outline(targets.Definition{VM: vm}, stage)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"pool slow, disk1", "pool " + p.at.pool + ", disk0"} {
		pool, disk, _ := strings.Cut(want, ", ")
		if got := o.Disks[i]; got.On != pool || !strings.HasSuffix(got.As, "-"+disk+".raw") {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
}

func TestMapWithMissingPoolIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	s.platform.opts.Maps.Storages = map[string]string{"nfs": "no-such-pool"}
	err := s.platform.Check(t.Context(), vmOnTwoDatastores())
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "no-such-pool") || !strings.Contains(fault.HintOf(err), "map of storages") {
		t.Errorf("got %v (hint %q), want not found", err, fault.HintOf(err))
	}
}

// newStage returns a stage for a platform with the same maps.
func newStage(t *testing.T, maps namemap.Map) *dir.Target {
	t.Helper()
	maps.Storages = nil
	stage, err := dir.New(t.TempDir(), dir.Options{Domain: dir.DomainOptions{Type: "qemu", Maps: maps}})
	if err != nil {
		t.Fatal(err)
	}
	return stage
}

// stageDisks writes all of vm's disks to the stage, like the steps before commit.
func stageDisks(t *testing.T, to *platform.Target, vm *inventory.VM) targets.Definition {
	t.Helper()
	images, err := to.Plan(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	for i, img := range images {
		w, _, err := to.Open(t.Context(), img)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := w.WriteAt(t.Context(), []byte(fmt.Sprint("disk ", i)), 4096); err != nil {
			t.Fatal(err)
		}
		if err := w.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(img.Manifest, []byte("manifest"), 0o644); err != nil {
			t.Fatal(err)
		}
		images[i].Root = "aa55"
	}
	return targets.Definition{VM: vm, Images: images, Decamp: "v0.0.0-test"}
}
