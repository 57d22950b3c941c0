package openstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// undoTimeout limits the cleanup after a failed delivery, which also runs after a cancellation.
const undoTimeout = 10 * time.Minute

// poll is the interval between queries of the state of a volume, an image or a server.
const poll = 5 * time.Second

// delivery is one call of Deliver or Start. It is not safe for concurrent use.
type delivery struct {
	cloud   *cloud  // the login
	opts    Options // options of the platform
	finder  finder  // finds existing parts
	remover remover // removes parts

	platform.Delivery
	session *session           // set by newDelivery
	machine *machine           // hardware of the VM
	flavor  flavors.Flavor     // chosen flavor
	nets    []networks.Network // network of each card

	zone     string              // availability zone of volumes; empty if the cloud chooses
	contents string              // imagesHash of the images
	progress *platform.Progress  // reports transferred bytes
	warnings []inventory.Warning // differences from the source VM
	ports    []ports.Port        // port of each card
	volumes  []string            // ID of each disk's volume
	record   string              // ID of the record: the boot volume or the image
}

// warn adds a warning. code is a stable identifier, remedy an instruction for the user.
func (w *delivery) warn(code, remedy, format string, args ...any) {
	w.warnings = append(w.warnings, inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Deliver creates ports and volumes, or the image. After a crash it finds its parts by their marks. If
// this call fails, a
// VM that an earlier call completed is left unchanged.
func (p *Platform) Deliver(ctx context.Context, d platform.Delivery) (platform.Receipt, error) {
	w, err := prepareDelivery(ctx, p.newChooser(), d)
	if err != nil {
		return platform.Receipt{}, err
	}
	there, err := w.finder.findParts(ctx, w.session, d.VM)
	if err != nil {
		return platform.Receipt{}, err
	}
	id, of := there.completedRecord()
	if id != "" && of != w.contents {
		return platform.Receipt{}, w.outdatedError(id)
	}
	if id != "" {
		if err := w.adoptFound(there, id); err != nil {
			return platform.Receipt{}, err
		}
	} else if err := w.createParts(ctx); err != nil {
		return platform.Receipt{}, w.removeParts(ctx, err)
	}
	return w.newReceipt(), nil
}

// outdatedError returns the error for a complete record of another copy of the VM.
func (w *delivery) outdatedError(record string) error {
	return fault.New(fault.Conflict, "%s contains an earlier copy of VM %s", record, w.VM.Name).
		WithHint("if the earlier copy is not required: openstack%s %s delete %s; then run the same command again", w.cloud.cloudOption(), w.opts.Boot, record)
}

// prepareDelivery returns a delivery with networks and zone. It creates nothing.
func prepareDelivery(ctx context.Context, c chooser, d platform.Delivery) (*delivery, error) {
	w, err := newDelivery(ctx, c, d)
	if err != nil {
		return nil, err
	}
	if w.nets, err = c.chooseNetworks(ctx, w.session, d.VM); err != nil {
		return nil, err
	}
	w.zone, err = c.volumeZone(ctx, w.session)
	return w, err
}

// newDelivery returns a delivery with hardware, session and flavor. It creates nothing.
func newDelivery(ctx context.Context, c chooser, d platform.Delivery) (*delivery, error) {
	m, err := machineOf(d.Definition, c.opts)
	if err != nil {
		return nil, err
	}
	w := &delivery{
		cloud: c.cloud, opts: c.opts, finder: finder{c.cloud}, remover: remover{finder{c.cloud}},
		Delivery: d, machine: m, contents: imagesHash(d.Images), progress: platform.NewProgress(d), warnings: m.warnings,
	}
	if w.session, err = c.cloud.session(ctx); err != nil {
		return nil, err
	}
	if w.flavor, err = c.chooseFlavor(ctx, w.session, d.VM); err != nil {
		return nil, err
	}
	if w.flavor.VCPUs != d.VM.CPUs { // Nova rejects a topology with another number of CPUs
		maps.DeleteFunc(m.properties, func(key, _ string) bool { return strings.HasPrefix(key, "hw_cpu_") })
	}
	if n := needOf(d.VM, c.opts); w.flavor.VCPUs != n.cpus || w.flavor.RAM != n.ramMiB {
		w.warn("flavor", "to use another flavor, set flavor=NAME", "flavor %s has %d vCPUs and %d MiB, the VM had %d and %d",
			fault.Line(w.flavor.Name), w.flavor.VCPUs, w.flavor.RAM, n.cpus, n.ramMiB)
	}
	return w, nil
}

// adoptFound uses the parts of a complete delivery. If a part was removed, the error is fault.Conflict.
func (w *delivery) adoptFound(there *found, record string) error {
	gone := func(what string) error {
		return fault.New(fault.Conflict, "%s of VM %s was delivered, and does not exist any more", what, w.VM.Name).
			WithHint("if the other parts are not required: openstack%s %s delete %s; then run the same command again", w.cloud.cloudOption(), w.opts.Boot, record)
	}
	w.record, w.volumes, w.ports = record, make([]string, len(w.VM.Disks)), make([]ports.Port, len(w.VM.NICs))
	for i, d := range w.VM.Disks {
		for _, v := range there.volumes {
			if v.Metadata[diskKey] == fmt.Sprint(d.Key) {
				w.volumes[i] = v.ID
			}
		}
		if w.volumes[i] == "" && w.opts.Boot != fromImage {
			return gone(fmt.Sprintf("the volume of disk %d", d.Key))
		}
	}
	for i := range w.VM.NICs {
		for _, port := range there.ports {
			if port.Name == w.portName(i) {
				w.ports[i] = port
			}
		}
		if w.ports[i].ID == "" {
			return gone("port " + w.portName(i))
		}
	}
	return nil
}

// createParts creates the missing parts. Ports come first, so that errors of Neutron appear before
// hours of copying.
func (w *delivery) createParts(ctx context.Context) error {
	if err := w.finder.checkNames(ctx, w.session, w.VM, w.machine.name); err != nil {
		return err
	}
	if err := (portMaker{w}).makePorts(ctx); err != nil {
		return err
	}
	if w.opts.Boot == fromImage {
		return w.makeImage(ctx)
	}
	w.volumes = make([]string, len(w.VM.Disks))
	for i := range w.VM.Disks {
		v, err := w.ensureVolume(ctx, i)
		if err != nil {
			return fmt.Errorf("disk %d: %w", w.VM.Disks[i].Key, err)
		}
		w.volumes[i] = v
		w.progress.Finish(w.VM.Disks[i].Capacity)
	}
	return w.completeRecord(ctx)
}

// planHash returns a hash of everything that determines the i-th disk's volume. A volume with another
// hash is replaced.
// i is -1 for the empty volume of a VM without disks.
func (w *delivery) planHash(i int) string {
	root, size := "", int64(0)
	if i >= 0 {
		img := w.imageOf(i)
		root, size = img.Root, img.Size
	}
	text, _ := json.Marshal([]any{w.machine.properties, root, size, w.volumeType(i), w.opts.AvailabilityZone, w.opts.Boot}) // strings and numbers cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// partMetadata returns the metadata of the volume or image of the i-th disk.
func (w *delivery) partMetadata(i int) map[string]string {
	m := sourceMetadata(w.VM)
	m[planKey] = w.planHash(i)
	if i >= 0 {
		m[diskKey] = fmt.Sprint(w.VM.Disks[i].Key)
	}
	if i == w.machine.boot {
		maps.Copy(m, noteMetadata(w.Definition))
		m[flavorKey] = toText(w.flavor.ID)
	}
	return m
}

// removeParts removes everything after a failed delivery. It returns why, joined with an error of the
// removal.
func (w *delivery) removeParts(ctx context.Context, why error) error {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := w.remover.removeAll(late, w.session, w.VM); err != nil {
		return errors.Join(why, fmt.Errorf("remove the created parts: %w", err))
	}
	return why
}

// newReceipt returns the receipt with the command that creates the server. Start may create it instead.
func (w *delivery) newReceipt() platform.Receipt {
	return platform.Receipt{
		Platform: "openstack " + w.cloud.name, ID: w.record, Name: w.machine.name, Warnings: append(w.warnings, inventory.Warning{
			Code: targets.NotStarted, Text: "OpenStack cannot create a server that is off: this one is created when it is started", Remedy: w.createCommand(),
		}),
	}
}

// createCommand returns the command that creates a server from the delivered parts.
func (w *delivery) createCommand() string {
	c := "openstack" + w.cloud.cloudOption() + " server create --flavor " + fault.Quote(w.flavor.ID)
	if w.opts.Boot == fromImage {
		c += " --image " + w.record
	} else {
		c += " --volume " + w.record
	}
	for i, id := range w.volumes {
		if i != w.machine.boot {
			c += " --block-device source_type=volume,destination_type=volume,boot_index=-1,disk_bus=" + w.machine.bus + ",uuid=" + id
		}
	}
	for _, port := range w.ports {
		c += " --port " + port.ID
	}
	if len(w.ports) == 0 {
		c += " --no-network"
	}
	if w.opts.AvailabilityZone != "" {
		c += " --availability-zone " + fault.Quote(w.opts.AvailabilityZone)
	}
	return c + " -- " + fault.Quote(w.machine.name)
}
