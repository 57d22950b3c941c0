package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/mount"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
)

// published is a VM's folder, for decamp verify.
type published struct {
	folder string
	record *dir.Record
	target *dir.Target
}

func openPublished(folder string) (*published, error) {
	record, err := dir.ReadRecord(folder)
	if err != nil {
		return nil, err
	}
	t, err := dir.New(filepath.Dir(filepath.Clean(folder)), dir.Options{})
	return &published{folder, record, t}, err
}

// variables are an error if those of its EFI firmware are not what was published.
func (p *published) variables() error { return dir.CheckNVRAM(p.folder, p.record) }

// domainName is what virsh calls the VM.
func (p *published) domainName() string { return dir.DomainName(p.record.Called()) }

// whereabouts say where the VM is.
func (p *published) whereabouts() string {
	if d := p.record.Delivered; d != nil {
		return fmt.Sprintf("delivered to %s as %s (%s)", plain(d.Place), plain(d.ID), plain(d.Name))
	}
	return "published in " + p.folder
}

// here is a NotFound if the images were delivered, and cleared from the stage.
func (p *published) here() error {
	d := p.record.Delivered
	if d == nil || slices.ContainsFunc(p.images(), func(img targets.Image) bool { return exists(img.Path) }) {
		return nil
	}
	if at := dir.Started(p.folder); !at.IsZero() {
		return fault.New(fault.NotFound, "the images of %s are not here any more: they were delivered to %s as %s, and decamp started the VM there on %s", p.record.Source.Name, d.Place, d.ID, at.Local().Format(time.DateTime)).
			WithHint("the manifests in %s say what was delivered; the VM has changed its disks since, as expected after a start", fault.Quote(p.folder))
	}
	return fault.New(fault.NotFound, "the images of %s are not here any more: they were delivered to %s as %s", p.record.Source.Name, d.Place, d.ID).
		WithHint("the manifests in %s say what was delivered; to compare, export a disk from there as raw, before the first start, and name the manifest's image so", fault.Quote(p.folder))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// images are the published images where they stand now: the folder may have been moved.
func (p *published) images() []targets.Image {
	var images []targets.Image
	for _, img := range p.record.Images {
		path := filepath.Join(p.folder, img.File)
		images = append(images, targets.Image{
			Key: img.Key, Path: path, Final: path, Manifest: filepath.Join(p.folder, img.Manifest),
			Format: img.Format, Size: img.Size, Root: img.Root, Copied: img.Copied,
		})
	}
	return images
}

// converted reports whether an image was changed since it was copied.
func (p *published) converted() bool {
	return slices.ContainsFunc(p.record.Images, func(img dir.RecordedImage) bool { return img.Copied != "" })
}

// origin is the VM that a published one came from, open for a second reading.
type origin struct {
	session   *esx.Session
	transport *https.Transport
	vm        *inventory.VM
}

func (a *app) openOrigin(ctx context.Context, rawURL string, l assemble.Login, ref inventory.MoRef) (*origin, error) {
	session, err := a.Dial(ctx, rawURL, l)
	if err != nil {
		return nil, err
	}
	o := &origin{session: session, transport: https.New(session, https.Options{Log: a.Log})}
	if o.vm, err = session.VMByRef(ctx, ref); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *origin) disk(ctx context.Context, key int32) (disk.Source, error) {
	d, ok := o.vm.Disk(key)
	if !ok {
		return nil, fault.New(fault.NotFound, "VM %s has no disk %d any more", o.vm.Name, key)
	}
	return assemble.OpenDisk(ctx, o.transport, transport.Disk{VM: o.vm, Disk: d})
}

func (o *origin) Close() error { return errors.Join(o.transport.Close(), o.session.Close()) }

// mounted is a host shown as a folder, with what it stands on.
type mounted struct {
	session   *esx.Session
	transport *https.Transport
	mount     *mount.Mount
}

// mountStall is how long a connection of a mount may deliver nothing: others wait behind
// it, and a read has its own deadline, before which another connection should be tried.
const mountStall = 20 * time.Second

// openMount mounts the host of session at dir, and takes the session over. Where stores is
// not nil, the root is what it says and not what the host says.
func (a *app) openMount(ctx context.Context, session *esx.Session, stores []inventory.Datastore, dir string, connections int, o mount.Options) (*mounted, error) {
	o.Log = a.Log
	m := &mounted{session: session}
	m.transport = https.New(session, https.Options{MaxConnections: connections, Stall: mountStall, Log: a.Log})
	var host mount.Host = mount.NewRemote(session, m.transport, a.Log)
	if stores != nil {
		host = mount.Listed{Host: host, Stores: stores}
	}
	var err error
	if m.mount, err = mount.New(ctx, host, dir, o); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// wait returns when ctx ends or the file system was unmounted.
func (m *mounted) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-m.mount.Done():
	}
}

// Close unmounts and logs out.
func (m *mounted) Close() error {
	var errs []error
	if m.mount != nil {
		errs = append(errs, m.mount.Close())
	}
	return errors.Join(append(errs, m.transport.Close(), m.session.Close())...)
}
