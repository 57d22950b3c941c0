package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// An sshDelivery allocates a volume for each disk, and fills it by a program on the node.
type sshDelivery struct {
	*delivery
}

func newSSHDelivery(c clients, o Options, d platform.Delivery) (*sshDelivery, error) {
	machine, err := Config(d.Definition, o)
	if err != nil {
		return nil, err
	}
	w := &delivery{clients: c, Delivery: d, machine: machine, warnings: machine.Warnings, images: contents(d.Images), plan: directPlan}
	for _, img := range d.Images {
		w.total += img.Size
	}
	return &sshDelivery{w}, nil
}

// receipt adds that the boot entries were carried.
func (w *sshDelivery) receipt(g *found) platform.Receipt {
	r := w.delivery.receipt(g)
	r.EFI = w.carries()
	return r
}

// prepare is Prepare of Place.
func (w *sshDelivery) prepare(ctx context.Context) error {
	g, err := w.guests.find(ctx, w.VM)
	if err != nil {
		return err
	}
	if g != nil && g.plan == "" {
		return w.done(g)
	}
	if g, err = w.hold(ctx, g, earlyPlan); err != nil {
		return err
	}
	_, err = w.fillVolumes(ctx, g, true)
	return err
}

// deliver makes the guest over SSH. What Prepare brought there stays after an error, as it would have
// to be brought again while the VM is off; all else is removed.
func (w *sshDelivery) deliver(ctx context.Context) (platform.Receipt, error) {
	g, err := w.guests.find(ctx, w.VM)
	if err != nil {
		return platform.Receipt{}, err
	}
	w.noteClock()
	if g != nil && g.plan == "" { // it was delivered: whatever is wrong, it stays
		if g.behind != "" {
			w.warnings = append(w.warnings, leftBehind(errors.New(g.behind)))
		}
		return w.receipt(g), errors.Join(w.done(g), w.forget())
	}
	early := g != nil && g.plan == earlyPlan
	if g, err = w.carryOut(ctx, g); err != nil {
		if early {
			return platform.Receipt{}, err
		}
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		return platform.Receipt{}, errors.Join(err, w.abandon(late, true))
	}
	return w.receipt(g), w.forget()
}

func (w *sshDelivery) carryOut(ctx context.Context, g *found) (*found, error) {
	g, err := w.hold(ctx, g, directPlan)
	if err != nil {
		return nil, err
	}
	volumes, err := w.fillVolumes(ctx, g, false)
	if err != nil {
		return nil, err
	}
	if err := w.renewVariables(ctx, g); err != nil {
		return nil, err
	}
	if err := w.define(ctx, g, volumes); err != nil {
		return nil, fmt.Errorf("define guest %d: %w", g.vmid, err)
	}
	if err := w.carry(ctx, g); err != nil {
		return nil, err
	}
	return g, w.finish(ctx, g)
}

// hold returns the guest that is ours to fill: g, if it is one, else a new one.
func (w *sshDelivery) hold(ctx context.Context, g *found, plan string) (*found, error) {
	if g != nil && g.direct() {
		if g.node != w.node {
			return nil, fault.New(fault.Conflict, "guest %d, which is being made, is on node %s", g.vmid, g.node).
				WithHint("bring it back: qm migrate %d %s, on %s", g.vmid, w.node, g.node)
		}
		return g, w.api.settle(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}})
	}
	if g != nil { // it was begun by uploads
		if err := w.guests.destroy(ctx, g); err != nil {
			return nil, err
		}
	}
	if err := w.volumes.removeAll(ctx, w.VM); err != nil { // whose guest is gone
		return nil, err
	}
	return w.create(ctx, []Param{{"name", w.machine.Name}, {"onboot", "0"}}, plan)
}

// fillVolumes fills a volume for each disk, and returns their names. If it is early, as far as hashes of
// the image are known.
func (w *sshDelivery) fillVolumes(ctx context.Context, g *found, early bool) ([]string, error) {
	list, err := w.storages.list(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(w.machine.Disks))
	for i, d := range w.machine.Disks {
		img := w.Images[d.Image]
		on, err := w.storages.forDisks(d.On, list)
		if err != nil {
			return nil, err
		}
		if names[i], err = w.fillVolume(ctx, g, img, on, early); err != nil {
			return nil, fmt.Errorf("disk %d of guest %d: %w", img.Key, g.vmid, err)
		}
	}
	return names, nil
}

func recordOf(img targets.Image) string { return img.Manifest + ".delivered" }

// fillVolume fills the one volume of an image.
func (w *sshDelivery) fillVolume(ctx context.Context, g *found, img targets.Image, on storage, early bool) (_ string, err error) {
	record, err := w.recorded(ctx, g, img, on)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, record.Close()) }()
	known, closeHashes, err := hashesOf(img, early)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, closeHashes()) }()
	src, err := w.Open(ctx, img)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	f := &filling{src: src, hashes: known, record: record, least: early, did: w.progress}
	err = w.fill(ctx, f, record.Info().Disk)
	return record.Info().Disk, err
}

// fill goes on after connections that broke, as long as any of them brought something, and patience
// after that.
func (w *sshDelivery) fill(ctx context.Context, f *filling, name string) error {
	return w.api.patiently(ctx, func() (more bool, err error) {
		before := f.proven
		err = w.fillOnce(ctx, f, name)
		return f.proven > before, err
	})
}

func (w *sshDelivery) fillOnce(ctx context.Context, f *filling, name string) (err error) {
	if f.volume, err = w.shell.attach(ctx, name); err != nil {
		return err
	}
	defer func() {
		if closed := f.volume.Close(); err == nil {
			err = closed
		}
	}()
	return f.run(ctx)
}

// recorded opens the record of what the image's volume holds, which names the volume. Where one of the
// two is not there, or not of this image, both are made anew.
func (w *sshDelivery) recorded(ctx context.Context, g *found, img targets.Image, on storage) (*manifest.Log, error) {
	have, err := w.volumes.list(ctx, w.VM, on.ID)
	if err != nil {
		return nil, err
	}
	have = slices.DeleteFunc(have, func(v volume) bool { return v.key != img.Key })
	path, source := recordOf(img), w.api.host+" "+w.node
	if log, err := manifest.Open(path); err == nil {
		info := log.Info()
		same := func(v volume) bool { return v.ID == info.Disk && v.vmid == g.vmid }
		if info.Size == img.Size && info.Source == source && slices.ContainsFunc(have, same) {
			return log, nil
		}
		elsewhere, err := w.elsewhere(ctx, info.Disk, on)
		if err := errors.Join(err, log.Close()); err != nil {
			return nil, err
		}
		have = append(have, elsewhere...)
	} else if fault.Is(err, fault.Conflict) {
		return nil, err // somebody else is at it
	}
	for _, v := range have { // nobody knows what is in it
		if err := w.volumes.remove(ctx, v); err != nil {
			return nil, err
		}
	}
	if err := manifest.Remove(path); err != nil {
		return nil, err
	}
	name, err := w.volumes.allocate(ctx, w.VM, g.vmid, img, on)
	if err != nil {
		return nil, err
	}
	return manifest.Create(path, manifest.Info{Disk: name, Size: img.Size, Source: source})
}

// elsewhere lists the volume on record if it is on another storage, as it is when the disk was to go there
// before. What is on a storage that the node does not reach stays.
func (w *sshDelivery) elsewhere(ctx context.Context, id string, on storage) ([]volume, error) {
	v, ours := parseVolume(id, w.VM)
	if !ours || v.on == on.ID {
		return nil, nil
	}
	list, err := w.storages.list(ctx)
	if err != nil || !slices.ContainsFunc(list, func(s storage) bool { return s.ID == v.on && s.Active == 1 }) {
		return nil, err
	}
	return []volume{v}, nil
}

// hashesOf reads the image's manifest. It is the one that was sealed and verified, unless this is
// early. Where there is none the image is what it is.
func hashesOf(img targets.Image, early bool) (hashes, func() error, error) {
	if _, err := os.Lstat(img.Manifest); errors.Is(err, os.ErrNotExist) {
		return func(int64) (manifest.Hash, bool, error) { return manifest.Hash{}, false, nil }, func() error { return nil }, nil
	}
	if !early {
		s, err := manifest.Load(img.Manifest)
		if err != nil {
			return nil, nil, err
		}
		if err := s.Close(); err != nil {
			return nil, nil, err
		}
		if s.Root().String() != img.Root {
			return nil, nil, fault.New(fault.Internal, "the manifest of disk %d is another than was verified", img.Key)
		}
	}
	log, err := manifest.Open(img.Manifest)
	if err != nil {
		return nil, nil, err
	}
	return log.Hash, log.Close, nil
}

// forget removes the records: what they tell of is a guest's now, who changes it.
func (w *sshDelivery) forget() error {
	var errs []error
	for _, img := range w.Images {
		errs = append(errs, manifest.Remove(recordOf(img)))
	}
	return errors.Join(errs...)
}

// mayBe are options that another plan for the same guest may have set.
var mayBe = regexp.MustCompile(`^(balloon|machine|numa|(net|ide|sata|scsi|virtio)\d+)$`)

// define gives the guest all its options and disks, in one change. An answer that was lost may have
// been a yes: what is there already is not made again.
func (w *sshDelivery) define(ctx context.Context, g *found, volumes []string) error {
	for try := 1; ; try++ {
		config, err := w.guests.config(ctx, g.node, g.vmid)
		if err != nil {
			return err
		}
		warned, err := w.api.do(ctx, http.MethodPost, qemu(g.node, g.vmid)+"/config", w.options(config, volumes))
		w.note(warned, "given its disks")
		if err == nil {
			return w.defined(ctx, g, volumes)
		}
		if try == diskTries || !passes(err) {
			return err
		}
		if err := w.api.settle(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}}); err != nil {
			return err
		}
	}
}

// options are what is missing of a guest that has config.
func (w *sshDelivery) options(config map[string]string, volumes []string) []Param {
	var params []Param
	wanted := map[string]bool{}
	for _, p := range w.machine.Base {
		wanted[p.Key] = true
		made := p.Key == "efidisk0" || p.Key == "tpmstate0" // a volume, too
		if !made || config[p.Key] == "" {
			params = append(params, p)
		}
	}
	for i, d := range w.machine.Disks {
		wanted[d.Slot] = true
		if !has(config[d.Slot], volumes[i]) {
			params = append(params, Param{d.Slot, volumes[i] + d.Words})
		}
	}
	var stray []string
	for key := range config {
		if mayBe.MatchString(key) && !wanted[key] {
			stray = append(stray, key)
		}
	}
	if len(stray) > 0 {
		slices.Sort(stray)
		params = append(params, Param{"delete", strings.Join(stray, ",")})
	}
	return params
}

// has reports whether the option of a disk is of a volume.
func has(option, volume string) bool {
	first, _, _ := strings.Cut(option, ",")
	return first == volume
}

// defined is an error unless the guest has its disks: Proxmox takes options one by one.
func (w *sshDelivery) defined(ctx context.Context, g *found, volumes []string) error {
	config, err := w.guests.config(ctx, g.node, g.vmid)
	if err != nil {
		return err
	}
	for i, d := range w.machine.Disks {
		if !has(config[d.Slot], volumes[i]) {
			return fault.New(fault.Internal, "%s of guest %d is %q, and not %s", d.Slot, g.vmid, fault.Line(config[d.Slot]), volumes[i])
		}
	}
	return nil
}
