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

// sshDelivery allocates a volume for each disk, and fills it with a program on the node.
type sshDelivery struct {
	*delivery
}

// newSSHDelivery returns a delivery of d. It sends no request.
func newSSHDelivery(c clients, o Options, d platform.Delivery) (*sshDelivery, error) {
	machine, err := Config(d.Definition, o)
	if err != nil {
		return nil, err
	}
	w := &delivery{clients: c, Delivery: d, machine: machine, warnings: machine.Warnings, images: imagesHash(d.Images), plan: directPlan}
	for _, img := range d.Images {
		w.total += img.Size
	}
	return &sshDelivery{w}, nil
}

// newReceipt returns the receipt, which includes whether EFI variables were handled.
func (w *sshDelivery) newReceipt(g *found) platform.Receipt {
	r := w.delivery.newReceipt(g)
	r.EFI = w.carriesVariables()
	return r
}

// prepare implements Platform.Prepare.
func (w *sshDelivery) prepare(ctx context.Context) error {
	g, err := w.guests.findGuest(ctx, w.VM)
	if err != nil {
		return err
	}
	if g != nil && g.plan == "" {
		return w.checkImages(g)
	}
	if g, err = w.reserveGuest(ctx, g, earlyPlan); err != nil {
		return err
	}
	_, err = w.fillVolumes(ctx, g, true)
	return err
}

// deliver creates the guest. After an error, volumes that Prepare filled stay, because they would have
// to be transferred
// again while the VM is off. Everything else is removed.
func (w *sshDelivery) deliver(ctx context.Context) (platform.Receipt, error) {
	g, err := w.guests.findGuest(ctx, w.VM)
	if err != nil {
		return platform.Receipt{}, err
	}
	w.noteClock()
	if g != nil && g.plan == "" { // a complete guest is never removed
		if g.variablesError != "" {
			w.warnings = append(w.warnings, variablesWarning(errors.New(g.variablesError)))
		}
		return w.newReceipt(g), errors.Join(w.checkImages(g), w.removeRecords())
	}
	// Volumes that Prepare has filled are kept after an error.
	early := g != nil && g.plan == earlyPlan
	if g, err = w.completeGuest(ctx, g); err != nil {
		if early {
			return platform.Receipt{}, err
		}
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return platform.Receipt{}, errors.Join(err, w.removeGuest(late, true))
	}
	return w.newReceipt(g), w.removeRecords()
}

// completeGuest fills the volumes, sets the options, and marks the guest as complete.
func (w *sshDelivery) completeGuest(ctx context.Context, g *found) (*found, error) {
	g, err := w.reserveGuest(ctx, g, directPlan)
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
	if err := w.defineGuest(ctx, g, volumes); err != nil {
		return nil, fmt.Errorf("define guest %d: %w", g.vmid, err)
	}
	if err := w.carryVariables(ctx, g); err != nil {
		return nil, err
	}
	return g, w.finishGuest(ctx, g)
}

// reserveGuest returns the unfinished guest to fill: g if it was begun over SSH, else a new one. The
// guest reserves its
// VMID, and so the names of its volumes.
//
// If g was moved to another node, the error is fault.Conflict. A guest that an import has begun is
// removed.
func (w *sshDelivery) reserveGuest(ctx context.Context, g *found, plan string) (*found, error) {
	if g != nil && g.isDirect() {
		if g.node != w.node {
			return nil, fault.New(fault.Conflict, "the unfinished guest %d is on node %s", g.vmid, g.node).
				WithHint("move it back: qm migrate %d %s, on %s", g.vmid, w.node, g.node)
		}
		return g, w.api.awaitTasks(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}})
	}
	if g != nil { // an import has begun it
		if err := w.guests.destroyGuest(ctx, g); err != nil {
			return nil, err
		}
	}
	if err := w.volumes.removeAll(ctx, w.VM); err != nil { // volumes without a guest
		return nil, err
	}
	return w.createGuest(ctx, []Param{{"name", w.machine.Name}, {"onboot", "0"}}, plan)
}

// fillVolumes fills the volumes of all disks and returns their names. If early is set, only chunks with
// a known hash are
// written.
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

// recordOf returns the path of the record of verified chunks for an image.
func recordOf(img targets.Image) string { return img.Manifest + ".delivered" }

// fillVolume fills the volume of one image and returns its name. The record of verified chunks is next
// to the image's
// manifest.
func (w *sshDelivery) fillVolume(ctx context.Context, g *found, img targets.Image, on storage, early bool) (_ string, err error) {
	record, err := w.openRecord(ctx, g, img, on)
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
	f := &volumeFiller{src: src, hashes: known, record: record, knownOnly: early, progress: w.addProgress}
	err = w.fillRetrying(ctx, f, record.Info().Disk)
	return record.Info().Disk, err
}

// fillRetrying fills a volume. It reconnects after temporary errors, until retryPeriod has passed
// without progress.
func (w *sshDelivery) fillRetrying(ctx context.Context, f *volumeFiller, name string) error {
	return w.api.retryWhileProgress(ctx, func() (more bool, err error) {
		before := f.verified
		err = w.fillOnce(ctx, f, name)
		return f.verified > before, err
	})
}

// fillOnce fills a volume over one connection.
func (w *sshDelivery) fillOnce(ctx context.Context, f *volumeFiller, name string) (err error) {
	if f.volume, err = w.shell.openVolume(ctx, name); err != nil {
		return err
	}
	defer func() {
		if closed := f.volume.Close(); err == nil {
			err = closed
		}
	}()
	return f.run(ctx)
}

// openRecord opens the record of an image's volume, which contains the volume's name. If the record or
// the volume is missing
// or belongs to another image, it removes both and creates new ones.
func (w *sshDelivery) openRecord(ctx context.Context, g *found, img targets.Image, on storage) (*manifest.Log, error) {
	have, err := w.volumes.listOwn(ctx, w.VM, on.ID)
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
		elsewhere, err := w.volumesElsewhere(ctx, info.Disk, on)
		if err := errors.Join(err, log.Close()); err != nil {
			return nil, err
		}
		have = append(have, elsewhere...)
	} else if fault.Is(err, fault.Conflict) {
		return nil, err // another process uses the record
	}
	for _, v := range have { // their content is unknown
		if err := w.volumes.removeVolume(ctx, v); err != nil {
			return nil, err
		}
	}
	if err := manifest.Remove(path); err != nil {
		return nil, err
	}
	name, err := w.volumes.allocateVolume(ctx, w.VM, g.vmid, img, on)
	if err != nil {
		return nil, err
	}
	return manifest.Create(path, manifest.Info{Disk: name, Size: img.Size, Source: source})
}

// volumesElsewhere returns the recorded volume if it is on another storage, because the user has
// changed the storage. A
// volume on an inactive storage is ignored.
func (w *sshDelivery) volumesElsewhere(ctx context.Context, id string, on storage) ([]volume, error) {
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

// hashesOf opens the image's manifest and returns its hashes, and a function that closes it. Unless
// early is set, it must be
// the sealed manifest that was verified. Without a manifest, all hashes are unknown.
func hashesOf(img targets.Image, early bool) (hashFunc, func() error, error) {
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
			return nil, nil, fault.New(fault.Internal, "the manifest of disk %d differs from the verified one", img.Key)
		}
	}
	log, err := manifest.Open(img.Manifest)
	if err != nil {
		return nil, nil, err
	}
	return log.Hash, log.Close, nil
}

// removeRecords removes the records of verified chunks. They are outdated when the guest runs.
func (w *sshDelivery) removeRecords() error {
	var errs []error
	for _, img := range w.Images {
		errs = append(errs, manifest.Remove(recordOf(img)))
	}
	return errors.Join(errs...)
}

// otherOptions matches options that another definition of the same guest may have set.
var otherOptions = regexp.MustCompile(`^(balloon|machine|numa|(net|ide|sata|scsi|virtio)\d+)$`)

// defineGuest sets all options and disks in one request. After a lost answer it reads the guest before
// it tries again.
func (w *sshDelivery) defineGuest(ctx context.Context, g *found, volumes []string) error {
	for try := 1; ; try++ {
		config, err := w.guests.readConfig(ctx, g.node, g.vmid)
		if err != nil {
			return err
		}
		warned, err := w.api.runTask(ctx, http.MethodPost, guestPath(g.node, g.vmid)+"/config", w.missingOptions(config, volumes))
		w.noteTask(warned, "given its disks")
		if err == nil {
			return w.checkDefined(ctx, g, volumes)
		}
		if try == diskTries || !isTemporary(err) {
			return err
		}
		if err := w.api.awaitTasks(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}}); err != nil {
			return err
		}
	}
}

// missingOptions returns the options to set in a guest that has config, and those to delete. EFI disk
// and TPM are volumes,
// which Proxmox would create again, so existing ones are left out.
func (w *sshDelivery) missingOptions(config map[string]string, volumes []string) []Param {
	var params []Param
	wanted := map[string]bool{}
	for _, p := range w.machine.Base {
		wanted[p.Key] = true
		made := p.Key == "efidisk0" || p.Key == "tpmstate0" // setting it again would create another volume
		if !made || config[p.Key] == "" {
			params = append(params, p)
		}
	}
	for i, d := range w.machine.Disks {
		wanted[d.Slot] = true
		if !isVolume(config[d.Slot], volumes[i]) {
			params = append(params, Param{d.Slot, volumes[i] + d.Words})
		}
	}
	var stray []string
	for key := range config {
		if otherOptions.MatchString(key) && !wanted[key] {
			stray = append(stray, key)
		}
	}
	if len(stray) > 0 {
		slices.Sort(stray)
		params = append(params, Param{"delete", strings.Join(stray, ",")})
	}
	return params
}

// isVolume reports whether the option of a disk names the volume.
func isVolume(option, volume string) bool {
	first, _, _ := strings.Cut(option, ",")
	return first == volume
}

// checkDefined returns an error unless the guest has all disks. Proxmox does not apply the options of a
// request atomically.
func (w *sshDelivery) checkDefined(ctx context.Context, g *found, volumes []string) error {
	config, err := w.guests.readConfig(ctx, g.node, g.vmid)
	if err != nil {
		return err
	}
	for i, d := range w.machine.Disks {
		if !isVolume(config[d.Slot], volumes[i]) {
			return fault.New(fault.Internal, "%s of guest %d is %q, expected %s", d.Slot, g.vmid, fault.Line(config[d.Slot]), volumes[i])
		}
	}
	return nil
}
