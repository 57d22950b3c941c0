package rpc

import (
	"cmp"
	"context"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// Part is how many bytes of a disk are in one frame at most.
const Part = 1 << 20

// sparseStream is the flag of uploads and downloads that tell holes and do not send zeros.
const sparseStream = 1

// Upload writes src into a volume that was just made: its data, and holes where it has none. told
// is told how many bytes of the disk are sent, holes too; it may be nil.
//
// Holes of a volume that is a file stay holes. To a device libvirt writes zeros for them, and one before SparseDevices
// refuses them.
func (c *Client) Upload(ctx context.Context, v Volume, src disk.Source, told func(n int64)) error {
	u := upload{Client: c, src: src, told: told, buf: make([]byte, Part)}
	if err := u.open(ctx, procVolumeUpload, v, disk.Range{Len: src.Size()}); err != nil {
		return err
	}
	defer c.within(ctx)()
	if err := u.content(ctx); err != nil {
		c.abort(ctx, procVolumeUpload)
		return err
	}
	if err := c.send(ctx, frame{proc: procVolumeUpload, kind: stream, status: ok}); err != nil {
		return err
	}
	_, err := c.next(ctx)
	return err
}

// open starts a stream of a part of a volume. Once it is asked for, its answer is awaited, as far as grace goes:
// a connection that ends before has libvirt 9.0 keep the volume open until its daemon ends, and LVM removes none
// that is open.
func (c *Client) open(ctx context.Context, proc uint32, v Volume, part disk.Range) error {
	_, err := c.change(ctx, proc, args{}.volume(v).uint64(uint64(part.Off)).uint64(uint64(part.Len)).uint32(sparseStream))
	return err
}

// abort gives a stream up. It waits for no answer: where libvirt ended it, there is none.
func (c *Client) abort(ctx context.Context, proc uint32) {
	_ = c.send(ctx, frame{proc: proc, kind: stream, status: failed}) // what went wrong before is told
}

// An upload is one under way.
type upload struct {
	*Client
	src  disk.Source
	told func(int64)
	buf  []byte
}

// window is how much of a disk is described at once.
const window = 1 << 30

func (u *upload) content(ctx context.Context) error {
	for off := int64(0); off < u.src.Size(); off += window {
		extents, err := u.src.Extents(ctx, disk.Range{Off: off, Len: min(window, u.src.Size()-off)})
		if err != nil {
			return err
		}
		for _, e := range extents {
			if err := u.extent(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *upload) extent(ctx context.Context, e disk.Extent) error {
	if e.Kind == disk.Zero {
		defer u.tell(e.Len)
		return u.packet(ctx, frame{kind: hole, payload: args{}.uint64(uint64(e.Len)).uint32(0)})
	}
	for off := e.Off; off < e.End(); off += Part {
		p := u.buf[:min(Part, e.End()-off)]
		if err := u.src.ReadAt(ctx, p, off); err != nil {
			return err
		}
		if err := u.packet(ctx, frame{kind: stream, payload: p}); err != nil {
			return err
		}
		u.tell(int64(len(p)))
	}
	return nil
}

func (u *upload) tell(n int64) {
	if u.told != nil {
		u.told(n)
	}
}

var errEarly error = fault.New(fault.Transient, "libvirt ended the upload early").WithHint("run the same command again")

// packet sends a part of the stream, unless libvirt has already said that it is of no use.
func (u *upload) packet(ctx context.Context, f frame) error {
	select {
	case early, open := <-u.frames:
		if !open {
			return u.lost(ctx, u.broken)
		}
		if early.mine(u.serial) {
			return cmp.Or(early.refusal(), errEarly)
		}
	default:
	}
	u.wait(ctx)
	f.proc, f.status = procVolumeUpload, continues
	return u.send(ctx, f)
}

// A Reader takes what a volume holds, from front to back and without gaps. Data must not keep p.
type Reader interface {
	Data(off int64, p []byte) error
	Zeros(r disk.Range) error
}

// shortTries is how often in a row a download may bring nothing. Libvirt 9.0 ends one of some forty at
// once, as if the volume were empty.
const shortTries = 5

// Download reads a volume of size bytes.
func (c *Client) Download(ctx context.Context, v Volume, size int64, to Reader) error {
	tries := 0
	for off := int64(0); off < size; {
		n, err := c.download(ctx, v, disk.Range{Off: off, Len: size - off}, to)
		if err != nil {
			return err
		}
		if tries++; n > 0 {
			tries = 0
		}
		if tries == shortTries {
			return fault.New(fault.Corrupt, "volume %s ends at byte %d of %d", v.Name, off, size).WithHint("run the same command again")
		}
		off += n
	}
	return nil
}

// download reads a part of a volume, and returns how much of it came.
func (c *Client) download(ctx context.Context, v Volume, part disk.Range, to Reader) (int64, error) {
	if err := c.open(ctx, procVolumeDownload, v, part); err != nil {
		return 0, err
	}
	defer c.within(ctx)()
	off, err := c.receive(ctx, part, to)
	if err != nil {
		c.abort(ctx, procVolumeDownload)
		return 0, err
	}
	if err := c.send(ctx, frame{proc: procVolumeDownload, kind: stream, status: ok}); err != nil {
		return 0, err
	}
	_, err = c.next(ctx)
	return off - part.Off, err
}

// receive takes the frames of a stream until an empty one, and returns where they ended.
func (c *Client) receive(ctx context.Context, part disk.Range, to Reader) (off int64, err error) {
	for off = part.Off; ; {
		c.wait(ctx)
		f, err := c.next(ctx)
		if err != nil {
			return off, err
		}
		n, err := f.length()
		if err != nil || n == 0 && f.kind == stream {
			return off, err
		}
		if n < 0 || n > part.End()-off {
			return off, fault.New(fault.Corrupt, "libvirt sends %d bytes at byte %d of a volume of %d", n, off, part.End()).WithHint("run the same command again")
		}
		if f.kind == hole {
			err = to.Zeros(disk.Range{Off: off, Len: n})
		} else {
			err = to.Data(off, f.payload)
		}
		if err != nil {
			return off, err
		}
		off += n
	}
}

// length is how much of a volume a frame of a stream tells.
func (f frame) length() (int64, error) {
	if f.kind != hole {
		return int64(len(f.payload)), nil
	}
	r := &result{rest: f.payload}
	return int64(r.uint64()), r.err
}
